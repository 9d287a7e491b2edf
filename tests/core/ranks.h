/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several ranks in one test program: one context and one thread each, over the rails that `settings` ask for.
 *
 *     static void body(struct rank *r) { ... r->comm ... }
 *     ranks_run(4, settings, body, NULL);
 */
#ifndef SHUNT_TESTS_CORE_RANKS_H
#define SHUNT_TESTS_CORE_RANKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/coll.h>
#include <shunt/comm.h>
#include <shunt/health.h>
#include <shunt/p2p.h>
#include "tests/tap.h"

struct rank {
    int rank, size;
    shunt_context_t *ctx;
    shunt_comm_t *comm;
    void *arg;
    int failed;      /* checks that failed on this rank */
    char first[512]; /* the first of them */
    const char *const *settings;
    const shunt_id_t *id;
    void (*body)(struct rank *r);
    pthread_barrier_t *gate;
};

/* A check inside a body: counted per rank, reported once by ranks_run's caller. */
#define check(r, cond, ...) \
    do { \
        if (!(cond)) { \
            if (!(r)->failed++) \
                snprintf((r)->first, sizeof((r)->first), __VA_ARGS__); \
        } \
    } while (0)
#define check_ok(r, st, what) \
    do { \
        shunt_status_t st_ = (st); \
        check(r, st_ == SHUNT_OK, "%s: %s: %s", what, shunt_status_name(st_), shunt_error_text()); \
    } while (0)

static void *ranks_thread(void *arg)
{
    struct rank *r = arg;
    shunt_status_t st = shunt_comm_create(r->ctx, r->id, r->rank, r->size, &r->comm);

    check(r, st == SHUNT_OK, "comm_create: %s: %s", shunt_status_name(st), shunt_error_text());
    if (st == SHUNT_OK)
        r->body(r);
    pthread_barrier_wait(r->gate);
    if (st == SHUNT_OK && r->comm)
        shunt_comm_free(r->comm);
    return NULL;
}

/* Runs `body` on n ranks; the number of failed checks, the first of which is printed. */
__attribute__((unused)) static int ranks_run(int n, const char *const *settings, void (*body)(struct rank *), void *arg)
{
    struct rank *r = calloc((size_t)n, sizeof(*r));
    pthread_t *threads = calloc((size_t)n, sizeof(*threads));
    pthread_barrier_t gate;
    shunt_id_t id;
    int failed = 0;

    pthread_barrier_init(&gate, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        char name[32];
        shunt_context_params_t p = {sizeof(p), settings, name};
        snprintf(name, sizeof(name), "rank %d", i);
        r[i] = (struct rank){.rank = i, .size = n, .arg = arg, .settings = settings, .id = &id, .body = body,
                             .gate = &gate};
        if (shunt_context_create(&p, &r[i].ctx) != SHUNT_OK) {
            printf("# context %d: %s\n", i, shunt_error_text());
            exit(1);
        }
    }
    if (shunt_id_create(r[0].ctx, &id) != SHUNT_OK) {
        printf("# id: %s\n", shunt_error_text());
        exit(1);
    }
    for (int i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, ranks_thread, &r[i]);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < n; i++) {
        if (r[i].failed)
            printf("# rank %d: %d checks failed, the first: %s\n", i, r[i].failed, r[i].first);
        failed += r[i].failed;
        shunt_context_destroy(r[i].ctx);
    }
    pthread_barrier_destroy(&gate);
    free(r);
    free(threads);
    return failed;
}

/* The settings of one kind of rail: "loop", "sock", "shm", "ucx", "ofi"; NULL-terminated, static. */
__attribute__((unused)) static const char *const *ranks_settings(const char *rail)
{
    static char backend[64];
    static const char *set[8];
    int n = 0;

    snprintf(backend, sizeof(backend), "SHUNT_BACKEND=%s", rail);
    set[n++] = backend;
    if (strcmp(rail, "shm") != 0)
        set[n++] = "SHUNT_SHM=0";
    set[n++] = "SHUNT_RAILS=lo";
    set[n] = NULL;
    return set;
}

/* A pattern that differs for every (sender, message, offset). */
__attribute__((unused)) static void fill(unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)((i * 2654435761u + seed * 97u) >> 13 ^ i);
}

__attribute__((unused)) static int same(const unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (unsigned char)((i * 2654435761u + seed * 97u) >> 13 ^ i))
            return 0;
    return 1;
}

#endif
