/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks as processes: the test program starts itself with the argument "rank" and an environment, and reads the one line
 * that each prints: "STATUS rank size epoch text".
 */
#ifndef SHUNT_TESTS_BOOT_PROCS_H
#define SHUNT_TESTS_BOOT_PROCS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/boot/ranks.h"

struct proc {
    pid_t pid;
    int out;
    char line[2048];
    char status[32], epoch[40], *text;
    int rank, size;
};

static void on_alarm(int sig)
{
}

/* What a rank does about its surroundings before it meets, by the variables TEST_... */
static void surroundings(void)
{
    const char *delay = getenv("TEST_DELAY"), *files = getenv("TEST_FILES");

    if (getenv("TEST_TIMER")) { /* a signal every millisecond, system calls not restarted */
        struct sigaction act = {.sa_handler = on_alarm};
        struct itimerval each = {{0, 1000}, {0, 1000}};
        sigaction(SIGALRM, &act, NULL);
        setitimer(ITIMER_REAL, &each, NULL);
    }
    if (files) {
        struct rlimit limit = {(rlim_t)atoi(files), (rlim_t)atoi(files)};
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (delay)
        sleep_ms(atoi(delay));
}

/* The program as a rank. */
static int be_rank(void)
{
    struct shunt__config config;
    struct shunt__boot *boot = NULL;
    struct shunt__boot_root *root = NULL;
    struct rank me = {.bytes = 300};
    unsigned char epoch[16] = {0};
    shunt_status_t status;
    int times = getenv("TEST_TWICE") ? 2 : 1;
    char hex[33], line[2048];

    surroundings();
    status = shunt__config_load(&config, NULL);
    for (int i = 0; i < times && !status; i++) {
        shunt__boot_close(boot);
        shunt__boot_root_close(root);
        boot = NULL;
        status = shunt__boot_open_env(&config, NULL, 0, NULL, &me.rank, &me.size, &boot, &root, epoch);
        if (getenv("TEST_DIE"))
            _exit(9);
        if (!status && boot && !check_gather(boot, &me))
            status = me.status ? me.status : SHUNT_ERR_FORMAT;
        if (!status && boot)
            status = shunt__boot_barrier(boot, NULL);
    }
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", epoch[i]);
    int n = snprintf(line, sizeof(line), "%s %d %d %s %s\n", shunt_status_name(status), me.rank, me.size,
                     hex, status ? shunt_error_text() : boot ? "met" : "alone");
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        return 2;
    shunt__boot_close(boot);
    shunt__boot_root_close(root);
    shunt__config_free(&config);
    return 0;
}

/* Starts a rank; `env` is a list of "NAME=VALUE" separated by blanks, added to a clean environment. */
__attribute__((unused)) static void start_proc(struct proc *p, const char *env)
{
    char *copy = strdup(env), *vars[32], *save = NULL, *word;
    int n = 0, pipes[2];

    memset(p, 0, sizeof(*p));
    if (pipe2(pipes, O_CLOEXEC) != 0)
        abort();
    for (word = strtok_r(copy, " ", &save); word && n < 28; word = strtok_r(NULL, " ", &save))
        vars[n++] = word;
    if (getenv("SHUNT_DEBUG"))
        vars[n++] = (char *)"SHUNT_DEBUG=trace";
    vars[n] = NULL;
    p->pid = fork();
    if (p->pid == 0) {
        char *argv[] = {(char *)"rank", (char *)"rank", NULL};
        dup2(pipes[1], STDOUT_FILENO);
        execve("/proc/self/exe", argv, vars);
        _exit(127);
    }
    free(copy);
    close(pipes[1]);
    p->out = pipes[0];
}

/* Waits for the line and the end of the process. */
__attribute__((unused)) static void end_proc(struct proc *p)
{
    size_t n = 0;
    ssize_t got;
    int used = 0;

    while (n < sizeof(p->line) - 1 && ((got = read(p->out, p->line + n, sizeof(p->line) - 1 - n)) > 0 ||
                                       (got < 0 && errno == EINTR)))
        n += got > 0 ? (size_t)got : 0;
    close(p->out);
    while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    p->line[n] = 0;
    p->line[strcspn(p->line, "\n")] = 0;
    if (sscanf(p->line, "%31s %d %d %39s %n", p->status, &p->rank, &p->size, p->epoch, &used) < 4)
        snprintf(p->status, sizeof(p->status), "NOTHING");
    p->text = p->line + used;
}

/* Starts ranks 0..n-1 with `env`, rank 0 `delay` ms later than the others. */
__attribute__((unused)) static void start_job(struct proc *p, int n, const char *env, int delay)
{
    char text[2048];

    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof(text), "RANK=%d WORLD_SIZE=%d TEST_DELAY=%d %s", i, n, i == 0 ? delay : 0, env);
        start_proc(&p[i], text);
    }
}

/* Whether all have met, in one meeting. */
__attribute__((unused)) static int end_job(struct proc *p, int n)
{
    int good = 1;

    for (int i = 0; i < n; i++)
        end_proc(&p[i]);
    for (int i = 0; i < n; i++)
        if (strcmp(p[i].status, "OK") != 0 || strcmp(p[i].text, "met") != 0 || strcmp(p[i].epoch, p[0].epoch) != 0 ||
            p[i].rank != i || p[i].size != n) {
            printf("# rank %d says: %s\n", i, p[i].line);
            good = 0;
        }
    return good;
}

#endif
