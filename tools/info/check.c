/* SPDX-License-Identifier: BSD-3-Clause */
/* What of the surroundings will hurt a job, and what to do about it. */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "info.h"

extern char **environ;

#define MIB (1024.0 * 1024.0)

void add_check(struct checks *checks, const char *name, enum verdict verdict, const char *value, const char *fmt, ...)
{
    struct check *c;
    va_list ap;

    if (checks->n == MAX_CHECKS)
        return;
    c = &checks->check[checks->n++];
    c->verdict = verdict;
    snprintf(c->name, sizeof(c->name), "%s", name);
    snprintf(c->value, sizeof(c->value), "%s", value);
    va_start(ap, fmt);
    vsnprintf(c->text, sizeof(c->text), fmt, ap);
    va_end(ap);
}

static void bytes_text(double bytes, char *text, size_t size)
{
    if (bytes >= 1024 * MIB)
        snprintf(text, size, "%.1f GiB", bytes / (1024 * MIB));
    else
        snprintf(text, size, "%.1f MiB", bytes / MIB);
}

/* The soft limit; RLIM_INFINITY also when it can't be read. */
static rlim_t limit(int which)
{
    struct rlimit l;

    return getrlimit(which, &l) == 0 ? l.rlim_cur : RLIM_INFINITY;
}

/* What a rank needs: some for itself, and per peer a connection on every rail and one for shared memory. */
static void descriptors(struct checks *checks, unsigned n_rails)
{
    rlim_t files = limit(RLIMIT_NOFILE);
    unsigned per_peer = n_rails + 2;
    char value[40] = "unlimited";
    long peers = 1000000;

    if (files != RLIM_INFINITY) {
        snprintf(value, sizeof(value), "%llu", (unsigned long long)files);
        peers = files > 64 ? (long)((files - 64) / per_peer) : 0;
    }
    if (peers < 8)
        add_check(checks, "open files", STOPS, value, "a rank with %u rail%s opens about 64 files and %u for each peer; raise the "
                  "limit with ulimit -n 65536", n_rails, n_rails == 1 ? "" : "s", per_peer);
    else if (peers < 512)
        add_check(checks, "open files", HURTS, value, "enough for about %ld peers on %u rail%s; raise it with ulimit -n 65536",
                  peers, n_rails, n_rails == 1 ? "" : "s");
    else
        add_check(checks, "open files", FINE, value, "enough for about %ld peers on %u rail%s", peers, n_rails,
                  n_rails == 1 ? "" : "s");
}

static void locked_memory(struct checks *checks, int rdma)
{
    rlim_t memlock = limit(RLIMIT_MEMLOCK);
    char value[40] = "unlimited";

    if (memlock != RLIM_INFINITY)
        bytes_text((double)memlock, value, sizeof(value));
    if (!rdma)
        add_check(checks, "locked memory", FINE, value, "matters to RDMA NICs only, and there is none");
    else if (memlock != RLIM_INFINITY && (double)memlock < 1024 * MIB)
        add_check(checks, "locked memory", HURTS, value, "RDMA NICs lock the memory they read and write; raise the limit with "
                  "ulimit -l unlimited, or LimitMEMLOCK=infinity of the service that starts jobs");
    else
        add_check(checks, "locked memory", FINE, value, "enough for RDMA NICs");
}

static void shared_memory(struct checks *checks)
{
    struct statvfs fs;
    char value[120], total[40], left[40];
    double room;

    if (statvfs("/dev/shm", &fs) != 0) {
        add_check(checks, "/dev/shm", HURTS, strerror(errno), "processes of this host will talk through sockets; mount a tmpfs "
                  "there");
        return;
    }
    room = (double)fs.f_bavail * (double)fs.f_frsize;
    bytes_text((double)fs.f_blocks * (double)fs.f_frsize, total, sizeof(total));
    bytes_text(room, left, sizeof(left));
    snprintf(value, sizeof(value), "%s, %s free", total, left);
    if ((fs.f_flag & ST_RDONLY) || access("/dev/shm", W_OK) != 0)
        add_check(checks, "/dev/shm", HURTS, value, "can't be written, so processes of this host will talk through sockets; mount "
                  "it read-write");
    else if (room < 64 * MIB)
        add_check(checks, "/dev/shm", HURTS, value, "each pair of processes takes about 1 MiB; containers get more by "
                  "--shm-size 1g, hosts by mount -o remount,size=50%% /dev/shm");
    else
        add_check(checks, "/dev/shm", FINE, value, "enough for about %.0f pairs of processes", room / (1.1 * MIB));
}

static void address_space(struct checks *checks)
{
    rlim_t as = limit(RLIMIT_AS);
    char value[40] = "unlimited";

    if (as == RLIM_INFINITY)
        return;
    bytes_text((double)as, value, sizeof(value));
    add_check(checks, "address space", HURTS, value, "mapped memory counts, also what is never touched; lift the limit with "
              "ulimit -v unlimited");
}

static void processors(struct checks *checks)
{
    cpu_set_t set;
    char value[60];
    long here = sysconf(_SC_NPROCESSORS_ONLN), mine;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return;
    mine = CPU_COUNT(&set);
    snprintf(value, sizeof(value), "%ld of %ld", mine, here);
    if (mine == 1 && here > 1)
        add_check(checks, "processors", HURTS, value, "this process is bound to one processor, which its helper thread will share; "
                  "bind ranks to two or more, or set SHUNT_THREAD=0");
    else
        add_check(checks, "processors", FINE, value, "ranks beyond this number share processors, and block instead of polling");
}

/* The first `n` numbers of a file of /proc; how many there were. */
static int read_numbers(const char *path, long *number, int n)
{
    FILE *f = fopen(path, "r");
    int got = 0;

    while (f && got < n && fscanf(f, "%ld", &number[got]) == 1)
        got++;
    if (f)
        fclose(f);
    return got;
}

static void network(struct checks *checks)
{
    long v[3];
    char value[60];

    if (read_numbers("/proc/sys/net/ipv4/ip_local_port_range", v, 2) == 2) {
        long ports = v[1] - v[0] + 1;
        snprintf(value, sizeof(value), "%ld-%ld", v[0], v[1]);
        if (ports < 2000)
            add_check(checks, "local ports", HURTS, value, "each connection takes one; widen net.ipv4.ip_local_port_range");
        else
            add_check(checks, "local ports", FINE, value, "%ld, of which each outgoing connection takes one", ports);
    }
    if (read_numbers("/proc/sys/net/core/somaxconn", v, 1) == 1 && v[0] < 256) {
        snprintf(value, sizeof(value), "%ld", v[0]);
        add_check(checks, "listen queue", HURTS, value, "many ranks that start at once will have to try again; raise "
                  "net.core.somaxconn to 4096");
    }
    if (read_numbers("/proc/sys/net/ipv4/tcp_wmem", v, 3) == 3 && v[2] < 2 * MIB) {
        bytes_text((double)v[2], value, sizeof(value));
        add_check(checks, "TCP send buffer", HURTS, value, "bounds the rate of one connection over long paths; raise the third "
                  "number of net.ipv4.tcp_wmem to 4 MiB or more");
    }
    if (read_numbers("/proc/sys/net/ipv4/tcp_rmem", v, 3) == 3 && v[2] < 2 * MIB) {
        bytes_text((double)v[2], value, sizeof(value));
        add_check(checks, "TCP receive buffer", HURTS, value, "bounds the rate of one connection over long paths; raise the third "
                  "number of net.ipv4.tcp_rmem to 6 MiB or more");
    }
}

void check_limits(struct checks *checks, unsigned n_rails, int rdma)
{
    descriptors(checks, n_rails ? n_rails : 1);
    locked_memory(checks, rdma);
    shared_memory(checks);
    address_space(checks);
    processors(checks);
    network(checks);
}

static void check_variable(struct checks *checks, const char *name, const char *value)
{
    const shunt_feature_t *feature;

    switch (shunt_setting_check(name, value)) {
    case SHUNT_OK:
        break;
    case SHUNT_ERR_NOT_FOUND:
        add_check(checks, name, HURTS, value, "%s; it is ignored", shunt_error_text());
        return;
    default:
        add_check(checks, name, STOPS, value, "%s", shunt_error_text());
        return;
    }
    if (strcmp(name, "SHUNT_BACKEND") == 0 && strcmp(value, "auto") != 0) {
        for (unsigned i = 0; (feature = shunt_feature_get(i)); i++)
            if (feature->is_rail && feature->built && strcmp(feature->name, value) == 0)
                return;
        add_check(checks, name, STOPS, value, "this build has no such backend");
    }
}

void check_environment(struct checks *checks)
{
    for (char **e = environ; *e; e++) {
        char name[64];
        size_t n = strcspn(*e, "=");

        if (strncmp(*e, "SHUNT_", 6) != 0 || n >= sizeof(name) || (*e)[n] != '=')
            continue;
        memcpy(name, *e, n);
        name[n] = 0;
        if ((*e)[n + 1])
            check_variable(checks, name, *e + n + 1);
    }
}

const char *setting_value(const shunt_setting_t *setting, const char **from)
{
    const char *value = getenv(setting->name);

    *from = value && *value ? "environment" : "default";
    return value && *value ? value : setting->default_value;
}
