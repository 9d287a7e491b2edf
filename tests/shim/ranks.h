/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks as threads of one process, on NCCL's functions: ranks_run(4, body) gives the number of failed checks. */
#ifndef SHUNT_TESTS_SHIM_RANKS_H
#define SHUNT_TESTS_SHIM_RANKS_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "shim/abi.h"
#include "tests/tap.h"

struct rank {
    int rank, size, failed;
    char first[1200];
    ncclUniqueId id;
    ncclComm_t comm;
    void (*body)(struct rank *r);
    pthread_barrier_t *gate;
};

#define check(r, cond, ...) \
    do { \
        if (!(cond) && !(r)->failed++) \
            snprintf((r)->first, sizeof((r)->first), __VA_ARGS__); \
    } while (0)
#define check_result(r, call, want) \
    do { \
        ncclResult_t result_ = (call); \
        check(r, result_ == (want), "line %d: %s gave %d, not %d: %s", __LINE__, #call, result_, want, \
              ncclGetLastError(NULL)); \
    } while (0)
#define check_ok(r, call) check_result(r, call, ncclSuccess)

static void *rank_main(void *arg)
{
    struct rank *r = arg;

    check_ok(r, ncclCommInitRank(&r->comm, r->size, r->id, r->rank));
    if (r->comm)
        r->body(r);
    pthread_barrier_wait(r->gate);
    check_ok(r, ncclCommDestroy(r->comm));
    return NULL;
}

__attribute__((unused)) static int ranks_run(int n, void (*body)(struct rank *))
{
    struct rank *r = calloc((size_t)n, sizeof(*r));
    pthread_t *threads = calloc((size_t)n, sizeof(*threads));
    pthread_barrier_t gate;
    ncclUniqueId id;
    int failed = 0;

    if (ncclGetUniqueId(&id) != ncclSuccess) {
        printf("# %s\n", ncclGetLastError(NULL));
        exit(1);
    }
    pthread_barrier_init(&gate, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        r[i] = (struct rank){.rank = i, .size = n, .id = id, .body = body, .gate = &gate};
        pthread_create(&threads[i], NULL, rank_main, &r[i]);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        if (r[i].failed)
            printf("# rank %d: %d checks failed, the first: %s\n", i, r[i].failed, r[i].first);
        failed += r[i].failed;
    }
    pthread_barrier_destroy(&gate);
    free(r);
    free(threads);
    return failed;
}

#endif
