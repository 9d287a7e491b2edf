/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting through the environment: a shared file, torchrun's variables, PMIx.
 *
 * torchrun's environment holds no secret. Without SHUNT_KEY_FILE the key is derived from MASTER_ADDR, MASTER_PORT and
 * TORCHELASTIC_RUN_ID, which anyone may know: that keeps jobs apart, and guards against accidents only. MASTER_PORT
 * itself usually belongs to torchrun's own store, so rank 0 takes one of the N_PORTS ports from SHUNT_PORT (default:
 * MASTER_PORT + 1) on, and the others try them all until one answers with this job's key.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "comm/boot/boot.h"
#include "comm/boot/dial.h"
#include "comm/boot/id.h"
#include "comm/boot/join.h"
#include "comm/boot/pmix.h"
#include "comm/boot/root.h"

#define N_PORTS 16

struct meeting {
    const struct shunt__config *config;
    const char *const *ips;
    int n_ips;
    struct shunt__boot_join join; /* rank, size, stop, times and port range are set */
    struct shunt__boot **boot;
    struct shunt__boot_root **root;
    unsigned char *epoch_id;
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

static shunt_status_t number(const char *name, long min, long max, int *value)
{
    const char *text = variable(name);
    char *end;
    long n;

    errno = 0;
    n = strtol(text ? text : "", &end, 10);
    if (!text || *end || errno || n < min || n > max)
        return shunt__fail(SHUNT_ERR_INVALID, "%s=%s is no number from %ld to %ld", name, text ? text : "", min, max);
    *value = (int)n;
    return SHUNT_OK;
}

/* RANK and WORLD_SIZE. */
static shunt_status_t rank_and_size(struct meeting *m)
{
    shunt_status_t status = number("WORLD_SIZE", 1, SHUNT__BOOT_MAX_SIZE, &m->join.size);

    return status ? status : number("RANK", 0, m->join.size - 1, &m->join.rank);
}

static int stopped(const struct meeting *m)
{
    return m->join.stop && __atomic_load_n(m->join.stop, __ATOMIC_RELAXED);
}

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* Joins with an id; `changed` as in struct shunt__boot_join. */
static shunt_status_t join_id(struct meeting *m, const unsigned char bytes[SHUNT__BOOT_ID_BYTES], int (*changed)(void *),
                              void *arg)
{
    struct shunt__boot_id id;

    if (shunt__boot_id_unpack(bytes, &id) != 0)
        return shunt__fail(SHUNT_ERR_FORMAT, "what rank 0 has handed out is not an id of this version of Shunt");
    m->join.key = id.key;
    m->join.nonce = id.nonce;
    m->join.address = id.address;
    m->join.n_addresses = id.n_addresses;
    m->join.patient = changed != NULL;
    m->join.changed = changed;
    m->join.arg = arg;
    return shunt__boot_join_meeting(&m->join, m->boot, m->epoch_id);
}

/* ---- a shared file ---- */

struct id_file {
    const char *path;
    unsigned char id[SHUNT__BOOT_ID_BYTES];
};

/* Nonzero when there is no whole id in it; `why` says so (200 bytes). */
static int read_id_file(const char *path, unsigned char id[SHUNT__BOOT_ID_BYTES], char *why)
{
    unsigned char bytes[SHUNT__BOOT_ID_BYTES + 1];
    struct stat st;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0) {
        snprintf(why, 200, "%s", strerror(errno));
        return -1;
    }
    n = read(fd, bytes, sizeof(bytes));
    if (fstat(fd, &st) != 0 || n != SHUNT__BOOT_ID_BYTES || !shunt__boot_id_valid(bytes)) {
        close(fd);
        snprintf(why, 200, "it holds no id of this version of Shunt");
        return -1;
    }
    close(fd);
    if (geteuid() != 0 && st.st_uid != geteuid()) {
        snprintf(why, 200, "it belongs to user %u, so it is not this job's", (unsigned)st.st_uid);
        return -1;
    }
    memcpy(id, bytes, SHUNT__BOOT_ID_BYTES);
    return 0;
}

static int id_file_changed(void *arg)
{
    struct id_file *file = arg;
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    char why[200];

    return read_id_file(file->path, id, why) == 0 && memcmp(id, file->id, sizeof(id)) != 0;
}

/* Whole or not at all, and for this user's eyes only. */
static shunt_status_t write_id_file(const char *path, const unsigned char id[SHUNT__BOOT_ID_BYTES])
{
    char temporary[4096];
    int fd, err = 0;

    if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= (int)sizeof(temporary))
        return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_ID_FILE is too long");
    fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
    if (fd < 0)
        return shunt__fail_errno(SHUNT_ERR_SYSTEM, errno, "can't write SHUNT_ID_FILE=%s", path);
    if (write(fd, id, SHUNT__BOOT_ID_BYTES) != SHUNT__BOOT_ID_BYTES)
        err = errno ? errno : ENOSPC;
    if (close(fd) != 0 && !err)
        err = errno;
    if (!err && rename(temporary, path) != 0)
        err = errno;
    if (err) {
        unlink(temporary);
        return shunt__fail_errno(SHUNT_ERR_SYSTEM, err, "can't write SHUNT_ID_FILE=%s", path);
    }
    return SHUNT_OK;
}

static shunt_status_t file_root(struct meeting *m, struct id_file *file)
{
    shunt_status_t status;

    unlink(file->path); /* an earlier run's, if any: better none than that one */
    status = shunt__boot_root_open(m->config, m->ips, m->n_ips, file->id, m->root);
    if (status)
        return status;
    status = write_id_file(file->path, file->id);
    if (!status) {
        status = join_id(m, file->id, NULL, NULL);
        if (!id_file_changed(file))
            unlink(file->path); /* it has served */
    }
    return status;
}

static shunt_status_t from_file(struct meeting *m, const char *path)
{
    struct id_file file = {.path = path};
    char why[200] = "";
    shunt_status_t status = SHUNT_ERR_AGAIN;

    if (m->join.rank == 0)
        return file_root(m, &file);
    while (status == SHUNT_ERR_AGAIN) {
        while (read_id_file(path, file.id, why) != 0) {
            if (stopped(m))
                return shunt__fail(SHUNT_ERR_ABORTED, "rank %d of %d was aborted while the ranks were meeting", m->join.rank,
                                   m->join.size);
            if (shunt__now() >= m->join.started + m->join.timeout)
                return shunt__fail(SHUNT_ERR_TIMEOUT, "rank 0 is missing: rank %d of %d found no id in SHUNT_ID_FILE=%s within "
                                   "SHUNT_BOOTSTRAP_TIMEOUT: %s", m->join.rank, m->join.size, path, why);
            pause_ms(20);
        }
        status = join_id(m, file.id, id_file_changed, &file);
    }
    return status;
}

/* ---- torchrun's variables ---- */

static shunt_status_t read_key_file(const char *path, unsigned char key[SHUNT__BOOT_KEY_BYTES])
{
    unsigned char bytes[4096];
    struct stat st;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return shunt__fail_errno(errno == ENOENT ? SHUNT_ERR_NOT_FOUND : SHUNT_ERR_PERMISSION, errno,
                                 "can't read SHUNT_KEY_FILE=%s", path);
    n = read(fd, bytes, sizeof(bytes));
    if (n >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 077))
        shunt__log(SHUNT__LOG_WARN, "SHUNT_KEY_FILE=%s can be read by others than its owner; chmod 600 it", path);
    close(fd);
    if (n < 16)
        return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_KEY_FILE=%s must hold at least 16 bytes that nobody can guess", path);
    crypto_generichash(key, SHUNT__BOOT_KEY_BYTES, bytes, (unsigned long long)n, NULL, 0);
    sodium_memzero(bytes, sizeof(bytes));
    return SHUNT_OK;
}

/* Key and nonce of a job that is known by its MASTER_ADDR, MASTER_PORT and run id. */
static shunt_status_t job_secret(struct meeting *m, const char *addr, int port, unsigned char key[SHUNT__BOOT_KEY_BYTES])
{
    const char *run = variable("TORCHELASTIC_RUN_ID"), *key_file = shunt__config_str(m->config, SHUNT__KEY_FILE);
    unsigned char hash[40];
    char job[1024];
    int n = snprintf(job, sizeof(job), "shunt/%s/%d/%s", addr, port, run ? run : "");

    crypto_generichash(hash, sizeof(hash), (unsigned char *)job,
                       (unsigned long long)(n < (int)sizeof(job) ? n : (int)sizeof(job)), NULL, 0);
    memcpy(&m->join.nonce, hash + 32, 8);
    if (*key_file)
        return read_key_file(key_file, key);
    memcpy(key, hash, SHUNT__BOOT_KEY_BYTES);
    return SHUNT_OK;
}

/* The ports where rank 0 may listen: the same on all ranks. */
static shunt_status_t root_ports(const struct meeting *m, int master_port, int *port, int *n)
{
    int first = m->join.first_port, last = m->join.last_port;
    int64_t wanted = shunt__config_int(m->config, SHUNT__PORT), p = wanted;

    if (wanted < 0 || wanted > 65535)
        return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_PORT=%lld is no port", (long long)wanted);
    if (!wanted) {
        p = master_port + 1;
        if (p + N_PORTS - 1 > 65535)
            p = 65535 - N_PORTS + 1;
        if (first && (p < first || p > last))
            p = first;
    }
    if (!first)
        last = 65535;
    if (p < first || p > last)
        return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_PORT=%lld is outside of SHUNT_PORT_RANGE=%d-%d", (long long)p, first, last);
    *port = (int)p;
    *n = p + N_PORTS - 1 > last ? last - (int)p + 1 : N_PORTS;
    return SHUNT_OK;
}

/* The addresses behind a name, waiting for a resolver that says it can't answer just now. */
static shunt_status_t resolve(struct meeting *m, const char *name, struct shunt__boot_address *address, int max, int *n)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *i;
    int rc;

    while ((rc = getaddrinfo(name, NULL, &hints, &list)) != 0) {
        int later = rc == EAI_AGAIN || (rc == EAI_SYSTEM && errno == EINTR);
        if (stopped(m))
            return shunt__fail(SHUNT_ERR_ABORTED, "rank %d of %d was aborted while the ranks were meeting", m->join.rank,
                               m->join.size);
        if (!later || shunt__now() >= m->join.started + m->join.timeout)
            return shunt__fail(SHUNT_ERR_NOT_FOUND, "MASTER_ADDR=%s can't be resolved: %s", name, gai_strerror(rc));
        pause_ms(50);
    }
    *n = 0;
    for (i = list; i && *n < max; i = i->ai_next) {
        struct sockaddr_storage sa = {0};
        if (i->ai_addrlen > sizeof(sa))
            continue;
        memcpy(&sa, i->ai_addr, i->ai_addrlen);
        if (shunt__boot_address_from(&sa, &address[*n]) == 0)
            ++*n;
    }
    freeaddrinfo(list);
    if (*n == 0)
        return shunt__fail(SHUNT_ERR_NOT_FOUND, "MASTER_ADDR=%s has neither an IPv4 nor an IPv6 address", name);
    return SHUNT_OK;
}

static shunt_status_t from_torchrun(struct meeting *m)
{
    const char *addr = variable("MASTER_ADDR");
    struct shunt__boot_address found[8], all[SHUNT__BOOT_DIAL_MAX];
    unsigned char key[SHUNT__BOOT_KEY_BYTES], id[SHUNT__BOOT_ID_BYTES];
    int master_port, port = 0, n_ports = 0, n_found, n = 0;
    shunt_status_t status = number("MASTER_PORT", 1, 65535, &master_port);

    if (!status)
        status = root_ports(m, master_port, &port, &n_ports);
    if (!status)
        status = job_secret(m, addr, master_port, key);
    if (status)
        return status;
    if (m->join.rank == 0) {
        status = shunt__boot_root_open_at(m->config, m->ips, m->n_ips, key, m->join.nonce, port, n_ports, id, m->root);
        return status ? status : join_id(m, id, NULL, NULL);
    }
    status = resolve(m, addr, found, 8, &n_found);
    if (status)
        return status;
    for (int p = 0; p < n_ports; p++)
        for (int a = 0; a < n_found && n < SHUNT__BOOT_DIAL_MAX; a++) {
            all[n] = found[a];
            all[n++].port = (uint16_t)(port + p);
        }
    m->join.key = key;
    m->join.address = all;
    m->join.n_addresses = n;
    m->join.patient = 1;
    return shunt__boot_join_meeting(&m->join, m->boot, m->epoch_id);
}

/* ---- PMIx ---- */

static shunt_status_t from_pmix(struct meeting *m)
{
    static unsigned meetings; /* every rank's n-th meeting is the same one */
    unsigned n = __atomic_fetch_add(&meetings, 1, __ATOMIC_RELAXED);
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    shunt_status_t status = shunt__boot_pmix_open(&m->join.rank, &m->join.size);

    if (status)
        return status;
    if (m->join.size > 1) {
        if (m->join.rank == 0) {
            status = shunt__boot_root_open(m->config, m->ips, m->n_ips, id, m->root);
            if (!status)
                status = shunt__boot_pmix_put(n, id);
        } else
            status = shunt__boot_pmix_get(n, id, m->join.started + m->join.timeout, m->join.stop);
        if (!status)
            status = join_id(m, id, NULL, NULL);
    }
    shunt__boot_pmix_close();
    return status;
}

shunt_status_t shunt__boot_open_env(const struct shunt__config *config, const char *const *ips, int n_ips,
                                    const int *stop, int *rank, int *size, struct shunt__boot **boot,
                                    struct shunt__boot_root **root, unsigned char epoch_id[16])
{
    struct shunt__boot *got_boot = NULL;
    struct shunt__boot_root *got_root = NULL;
    unsigned char epoch[16];
    struct meeting m = {.config = config, .ips = ips, .n_ips = n_ips, .boot = &got_boot, .root = &got_root, .epoch_id = epoch};
    const char *file, *how = "alone";
    shunt_status_t status;

    if (!config || !rank || !size || !boot || !root || !epoch_id)
        return shunt__fail(SHUNT_ERR_INVALID, "an argument is NULL");
    if (shunt__boot_secure_start() != 0)
        return shunt__fail(SHUNT_ERR_SYSTEM, "libsodium finds no source of random numbers");
    randombytes_buf(epoch, sizeof(epoch));
    m.join.rank = 0;
    m.join.size = 1;
    m.join.stop = stop;
    m.join.started = shunt__now();
    m.join.timeout = (uint64_t)shunt__config_int(config, SHUNT__BOOTSTRAP_TIMEOUT);
    status = shunt__boot_port_range(config, &m.join.first_port, &m.join.last_port);
    if (status)
        return status;
    file = shunt__config_str(config, SHUNT__ID_FILE);
    if (*file) {
        how = "through SHUNT_ID_FILE";
        if (!variable("RANK") || !variable("WORLD_SIZE"))
            return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_ID_FILE needs RANK and WORLD_SIZE in the environment");
        status = rank_and_size(&m);
        if (!status && m.join.size > 1)
            status = from_file(&m, file);
    } else if (variable("RANK") && variable("WORLD_SIZE") && variable("MASTER_ADDR") && variable("MASTER_PORT")) {
        how = "through torchrun's variables";
        status = rank_and_size(&m);
        if (!status && m.join.size > 1)
            status = from_torchrun(&m);
    } else if (shunt__boot_pmix_present()) {
        how = "through PMIx";
        status = from_pmix(&m);
    } else if (variable("RANK") && variable("WORLD_SIZE")) {
        status = rank_and_size(&m);
        if (!status && m.join.size > 1)
            status = shunt__fail(SHUNT_ERR_INVALID, "RANK and WORLD_SIZE are set, but nothing says where the %d ranks meet: "
                                 "set MASTER_ADDR and MASTER_PORT, or SHUNT_ID_FILE", m.join.size);
    }
    if (status) {
        char text[1024];
        snprintf(text, sizeof(text), "%s", shunt_error_text());
        shunt__boot_root_fail(got_root, status, text);
        return shunt__fail(status, "%s", text);
    }
    shunt__log(SHUNT__LOG_INFO, "start-up: rank %d of %d, met %s", m.join.rank, m.join.size, how);
    *rank = m.join.rank;
    *size = m.join.size;
    *boot = got_boot;
    *root = got_root;
    memcpy(epoch_id, epoch, sizeof(epoch));
    return SHUNT_OK;
}
