/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several ranks as processes of their own, so that they can be killed and stopped. Results come back through shared memory.
 *
 *     static void body(struct proc *p) { ... if (p->rank == 2) raise(SIGKILL); ... }
 *     procs_run(4, settings, body, 30);
 */
#ifndef SHUNT_TESTS_CORE_PROCS_H
#define SHUNT_TESTS_CORE_PROCS_H

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <shunt/coll.h>
#include <shunt/comm.h>
#include <shunt/health.h>
#include <shunt/p2p.h>
#include "tests/tap.h"

#define PROCS_MAX 64

struct procs_shared {
    atomic_int have_id;
    shunt_id_t id;
    atomic_int flag[16]; /* for the bodies */
    struct {
        atomic_int failed, ended;
        pid_t pid;
        char first[600];
        double value;
    } rank[PROCS_MAX];
};

struct proc {
    int rank, size;
    shunt_context_t *ctx;
    shunt_comm_t *comm;
    struct procs_shared *shared;
};

#define pcheck(p, cond, ...) \
    do { \
        if (!(cond) && !(p)->shared->rank[(p)->rank].failed++) \
            snprintf((p)->shared->rank[(p)->rank].first, sizeof((p)->shared->rank[0].first), __VA_ARGS__); \
    } while (0)
#define pcheck_ok(p, st, what) \
    do { \
        shunt_status_t st_ = (st); \
        pcheck(p, st_ == SHUNT_OK, "%s: %s: %s", what, shunt_status_name(st_), shunt_error_text()); \
    } while (0)

__attribute__((unused)) static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Gives up after 20 s, so that a test that is wrong ends. */
__attribute__((unused)) static void wait_flag(struct proc *p, int i, int value)
{
    for (double until = seconds() + 20; p->shared->flag[i] < value && seconds() < until;)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* All `n` processes that are left meet; `i` names the place, each used once. */
__attribute__((unused)) static void gate(struct proc *p, int i, int n)
{
    p->shared->flag[i]++;
    wait_flag(p, i, n);
}

__attribute__((unused)) static void procs_child(struct procs_shared *s, int rank, int n, const char *const *settings,
                                                void (*body)(struct proc *))
{
    struct proc p = {.rank = rank, .size = n, .shared = s};
    char name[32];
    shunt_context_params_t params = {sizeof(params), settings, name};

    snprintf(name, sizeof(name), "rank %d", rank);
    pcheck_ok(&p, shunt_context_create(&params, &p.ctx), "context");
    if (rank == 0 && p.ctx) {
        pcheck_ok(&p, shunt_id_create(p.ctx, &s->id), "id");
        s->have_id = 1;
    }
    for (double until = seconds() + 20; !s->have_id && seconds() < until;)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (p.ctx && s->have_id) {
        shunt_status_t st = shunt_comm_create(p.ctx, &s->id, rank, n, &p.comm);
        pcheck_ok(&p, st, "comm_create");
        if (st == SHUNT_OK)
            body(&p);
    }
    shunt_comm_free(p.comm);
    shunt_context_destroy(p.ctx);
    s->rank[rank].ended = 1;
    _exit(0);
}

/*
 * Runs the body on n processes for at most `limit` seconds; returns failed checks plus ranks that neither ended nor were
 * killed. Whoever is still there is killed.
 */
__attribute__((unused)) static int procs_run(int n, const char *const *settings, void (*body)(struct proc *), int limit,
                                             struct procs_shared **out)
{
    struct procs_shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int bad = 0, left = n;
    double until = seconds() + limit;

    fflush(stdout);
    for (int r = 0; r < n; r++) {
        pid_t pid = fork();
        if (pid == 0)
            procs_child(s, r, n, settings, body);
        s->rank[r].pid = pid;
    }
    while (left && seconds() < until) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid > 0)
            left--;
        else
            nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    for (int r = 0; r < n; r++) {
        if (left && kill(s->rank[r].pid, 0) == 0 && waitpid(s->rank[r].pid, NULL, WNOHANG) == 0) {
            printf("# rank %d did not end in %d s\n", r, limit);
            kill(s->rank[r].pid, SIGKILL);
            waitpid(s->rank[r].pid, NULL, 0);
            bad++;
        }
        if (s->rank[r].failed)
            printf("# rank %d: %d checks failed, the first: %s\n", r, s->rank[r].failed, s->rank[r].first);
        bad += s->rank[r].failed;
    }
    if (out)
        *out = s;
    else
        munmap(s, sizeof(*s));
    return bad;
}

#endif
