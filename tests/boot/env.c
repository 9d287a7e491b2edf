/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes meet through what stands in their environment. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "comm/boot/id.h"
#include "tests/boot/procs.h"

static char folder[] = "/tmp/shunt-boot-XXXXXX";

/* Listens on this port, or any when it is 0; answers nobody. Sets the port. */
static int occupy(int *port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t len = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&in, sizeof(in)) != 0 || listen(fd, 100) != 0) {
        close(fd);
        return -1;
    }
    getsockname(fd, (struct sockaddr *)&in, &len);
    *port = ntohs(in.sin_port);
    return fd;
}

/* A MASTER_PORT that is taken, with at least 40 ports above it. */
static int taken_port(int *fd)
{
    for (;;) {
        int port = 0;
        *fd = occupy(&port);
        if (*fd >= 0 && port < 65000)
            return port;
        close(*fd);
    }
}

/* The first of n free ports in a row, below those that the kernel gives away. */
static int free_ports(int n)
{
    for (int port = 20000 + (int)(getpid() % 1000) * 8;; port += n) {
        int fd[64], i = 0, taken = 0;

        for (i = 0; i < n; i++) {
            int p = port + i;
            fd[i] = occupy(&p);
            taken |= fd[i] < 0;
        }
        for (i = 0; i < n; i++)
            if (fd[i] >= 0)
                close(fd[i]);
        if (!taken)
            return port;
    }
}

static void alone(void)
{
    struct proc p;

    start_proc(&p, "HOME=/");
    end_proc(&p);
    ok(strcmp(p.status, "OK") == 0 && p.rank == 0 && p.size == 1 && strcmp(p.text, "alone") == 0,
       "without any of it a process is alone: %s", p.line);
    start_proc(&p, "RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1");
    end_proc(&p);
    ok(strcmp(p.status, "OK") == 0 && p.size == 1, "so is the one rank of one");
}

static void wrong(const char *env, const char *status, const char *part)
{
    struct proc p;

    start_proc(&p, env);
    end_proc(&p);
    ok(strcmp(p.status, status) == 0 && strstr(p.text, part), "%s: %s: %s", env, p.status, p.text);
}

static void wrong_environments(void)
{
    wrong("RANK=4 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", "INVALID", "RANK=4");
    wrong("RANK=x WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", "INVALID", "RANK=x");
    wrong("RANK=1 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=70000", "INVALID", "MASTER_PORT=70000");
    wrong("RANK=1 WORLD_SIZE=4", "INVALID", "MASTER_ADDR");
    wrong("SHUNT_ID_FILE=/tmp/none", "INVALID", "RANK and WORLD_SIZE");
    wrong("RANK=0 WORLD_SIZE=2 SHUNT_ID_FILE=/nonexistent/id", "SYSTEM", "/nonexistent/id");
    wrong("RANK=1 WORLD_SIZE=2 SHUNT_ID_FILE=/nonexistent/id SHUNT_BOOTSTRAP_TIMEOUT=200ms", "TIMEOUT", "rank 0 is missing");
    wrong("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 SHUNT_KEY_FILE=/nonexistent", "NOT_FOUND",
          "SHUNT_KEY_FILE");
    wrong("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 SHUNT_PORT_RANGE=9-8", "INVALID", "SHUNT_PORT_RANGE");
    wrong("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 SHUNT_PORT=30 SHUNT_PORT_RANGE=80-90", "INVALID",
          "outside");
    wrong("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 SHUNT_BOOTSTRAP_TIMEOUT=200ms", "TIMEOUT",
          "is rank 0 running");
    wrong("RANK=1 WORLD_SIZE=2 MASTER_ADDR=name.invalid MASTER_PORT=1 SHUNT_BOOTSTRAP_TIMEOUT=200ms", "NOT_FOUND",
          "name.invalid");
}

static void by_file(void)
{
    struct proc p[4];
    char env[300], path[200];
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct stat st;
    int fd;

    snprintf(path, sizeof(path), "%s/id", folder);
    snprintf(env, sizeof(env), "SHUNT_ID_FILE=%s SHUNT_BOOTSTRAP_TIMEOUT=30s", path);
    start_job(p, 4, env, 0);
    ok(end_job(p, 4), "four ranks meet through a file");
    ok(stat(path, &st) != 0, "which is gone when it has served");

    /* An earlier run's file, whose root is gone. */
    shunt__boot_root_close(open_root("SHUNT_BOOTSTRAP_TIMEOUT=30s", "127.0.0.1", id));
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    ok(write(fd, id, sizeof(id)) == sizeof(id), "there is a file of an earlier run");
    close(fd);
    start_job(p, 4, env, 300);
    ok(end_job(p, 4), "it does not confuse, though rank 0 comes last");

    /* A file that is half an id. */
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    ok(write(fd, id, 60) == 60, "there is half a file");
    close(fd);
    start_job(p, 4, env, 100);
    ok(end_job(p, 4), "it does not confuse either");

    /* While rank 1 is awaited the file lies there. */
    snprintf(env, sizeof(env), "SHUNT_ID_FILE=%s SHUNT_BOOTSTRAP_TIMEOUT=30s RANK=0 WORLD_SIZE=2", path);
    start_proc(&p[0], env);
    for (int i = 0; i < 500 && stat(path, &st) != 0; i++)
        sleep_ms(10);
    is_int(st.st_mode & 0777, 0600, "only the user can read it");
    snprintf(env, sizeof(env), "SHUNT_ID_FILE=%s SHUNT_BOOTSTRAP_TIMEOUT=30s RANK=1 WORLD_SIZE=2", path);
    start_proc(&p[1], env);
    ok(end_job(p, 2), "and the second one finds it");
}

static void by_torchrun(void)
{
    struct proc p[20], q[4];
    char env[400];
    int fd, fd2, port, next, free = free_ports(20);

    port = taken_port(&fd);
    snprintf(env, sizeof(env), "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=30s", port);
    start_job(p, 4, env, 0);
    ok(end_job(p, 4), "four ranks meet by torchrun's variables, while another has MASTER_PORT");
    start_job(p, 20, env, 300);
    ok(end_job(p, 20), "twenty do, and rank 0 comes last");
    next = port + 1;
    fd2 = occupy(&next);
    start_job(p, 4, env, 100);
    ok(end_job(p, 4), "somebody who says nothing may have the port after it, too");
    close(fd2);
    snprintf(env, sizeof(env), "MASTER_ADDR=localhost MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=30s", port);
    start_job(p, 3, env, 0);
    ok(end_job(p, 3), "MASTER_ADDR may be a name");
    snprintf(env, sizeof(env), "MASTER_ADDR=::1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=30s", port);
    start_job(p, 3, env, 0);
    ok(end_job(p, 3), "or an IPv6 address");
    snprintf(env, sizeof(env), "MASTER_ADDR=127.0.0.1 MASTER_PORT=65535 SHUNT_BOOTSTRAP_TIMEOUT=30s");
    start_job(p, 3, env, 0);
    ok(end_job(p, 3), "MASTER_PORT may be the last one");
    snprintf(env, sizeof(env), "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=30s TEST_TWICE=1", port);
    start_job(p, 4, env, 0);
    ok(end_job(p, 4), "they may meet again");
    snprintf(env, sizeof(env), "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=30s TEST_TIMER=1", port);
    start_job(p, 4, env, 50);
    ok(end_job(p, 4), "a signal every millisecond does not hinder them");
    snprintf(env, sizeof(env), "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=30s "
             "SHUNT_PORT_RANGE=%d-%d", port, free, free + 19);
    start_job(p, 12, env, 0);
    ok(end_job(p, 12), "they keep to SHUNT_PORT_RANGE");

    /* Two jobs that differ in the run id only. */
    snprintf(env, sizeof(env), "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=30s TORCHELASTIC_RUN_ID=a", port);
    start_job(p, 4, env, 200);
    env[strlen(env) - 1] = 'b';
    start_job(q, 4, env, 50);
    ok(end_job(p, 4) & end_job(q, 4) && strcmp(p[0].epoch, q[0].epoch) != 0, "two jobs at once on one host do not mix");
    close(fd);
}

static void by_key(void)
{
    struct proc p[3];
    char env[600], key[2][100];
    int fd, port = taken_port(&fd);

    for (int i = 0; i < 2; i++) {
        int f;
        snprintf(key[i], sizeof(key[i]), "%s/key%d", folder, i);
        f = open(key[i], O_WRONLY | O_CREAT, 0600);
        ok(write(f, i ? "another secret of the job" : "the secret of this job...", 25) == 25, "there is a key");
        close(f);
    }
    snprintf(env, sizeof(env), "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=30s SHUNT_KEY_FILE=%s", port,
             key[0]);
    start_job(p, 3, env, 0);
    ok(end_job(p, 3), "three ranks meet with a key");
    snprintf(env, sizeof(env), "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=1s "
             "SHUNT_KEY_FILE=%s", port, key[0]);
    start_proc(&p[0], env);
    snprintf(env, sizeof(env), "RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=1s "
             "SHUNT_KEY_FILE=%s", port, key[1]);
    start_proc(&p[1], env);
    end_proc(&p[0]);
    end_proc(&p[1]);
    ok(strcmp(p[0].status, "TIMEOUT") == 0 && strstr(p[0].text, "rank 1 is missing"), "one with another key is none: %s",
       p[0].text);
    ok(strcmp(p[1].status, "TIMEOUT") == 0 && strstr(p[1].text, "another job answers"), "and is told so: %s", p[1].text);
    close(fd);
}

static void ports(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root[8];
    struct shunt__boot_id parts;
    struct shunt__config config;
    const char *ip = "127.0.0.1", *settings[2] = {NULL};
    char range[64];
    int port = free_ports(8), inside = 0;
    shunt_status_t status;

    snprintf(range, sizeof(range), "SHUNT_PORT_RANGE=%d-%d", port, port + 7);
    settings[0] = range;
    shunt__config_load(&config, settings);
    for (int i = 0; i < 8; i++) {
        root[i] = open_root(range, ip, id);
        inside += shunt__boot_id_unpack(id, &parts) == 0 && parts.address[0].port >= port && parts.address[0].port < port + 8;
    }
    is_int(inside, 8, "eight roots take the eight ports of SHUNT_PORT_RANGE");
    status = shunt__boot_root_open(&config, &ip, 1, id, &root[0]);
    ok(status == SHUNT_ERR_LIMIT && strstr(shunt_error_text(), "any port from"), "a ninth is told that all are taken: %s",
       shunt_error_text());
    for (int i = 0; i < 8; i++)
        shunt__boot_root_close(root[i]);
    shunt__config_free(&config);
}

static void descriptors(void)
{
    struct proc p[3];
    char env[400];
    int fd, port = taken_port(&fd);

    snprintf(env, sizeof(env), "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d TEST_FILES=5", port);
    start_proc(&p[0], env);
    end_proc(&p[0]);
    ok(strcmp(p[0].status, "LIMIT") == 0 && strstr(p[0].text, "RLIMIT_NOFILE"), "without descriptors the limit is named: %s",
       p[0].text);
    snprintf(env, sizeof(env), "WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d SHUNT_BOOTSTRAP_TIMEOUT=30s", port);
    for (int i = 0; i < 3; i++) {
        char each[500];
        snprintf(each, sizeof(each), "%s RANK=%d%s", env, i, i == 0 ? " TEST_FILES=9" : "");
        start_proc(&p[i], each);
    }
    for (int i = 0; i < 3; i++)
        end_proc(&p[i]);
    ok(strcmp(p[0].status, "LIMIT") == 0 && strcmp(p[1].status, "LIMIT") == 0 && strcmp(p[2].status, "LIMIT") == 0,
       "and when it is the root that lacks them, everyone hears it: %s", p[2].text);
    close(fd);
}

int main(int argc, char **argv)
{
    char rm[100];

    if (argc > 1 && strcmp(argv[1], "rank") == 0)
        return be_rank();
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(folder))
        return 1;
    alone();
    wrong_environments();
    by_file();
    by_torchrun();
    by_key();
    ports();
    descriptors();
    snprintf(rm, sizeof(rm), "rm -rf %s", folder);
    ok(system(rm) == 0, "nothing is left behind");
    return done();
}
