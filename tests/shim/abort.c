/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ncclCommAbort from a second thread, whatever the first is stuck in: init, split, shrink, an operation, a group, finalize. It
 * returns within a second, as documented, and so does what was stuck.
 */
#include <sched.h>
#include <time.h>
#include <unistd.h>
#include "tests/shim/ranks.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct victim {
    struct rank *r;
    ncclComm_t comm, made;
    ncclResult_t result;
    void (*stuck)(struct victim *v);
    ncclConfig_t config;
    char *big;
    int returned;
};

enum { BIG = 64 << 20 };

static void in_init(struct victim *v)
{
    ncclUniqueId id;

    v->result = ncclGetUniqueId(&id); /* the other rank never comes */
    v->result = ncclCommInitRank(&v->comm, 2, id, 0);
}

static void in_grouped_init(struct victim *v)
{
    ncclUniqueId id;

    v->result = ncclGetUniqueId(&id);
    ncclGroupStart();
    v->result = ncclCommInitRank(&v->comm, 2, id, 0);
    v->result = ncclGroupEnd();
}

static void in_split(struct victim *v)
{
    v->result = ncclCommSplit(v->comm, 0, 0, &v->made, NULL);
}

static void in_shrink(struct victim *v)
{
    int out = 2;

    v->result = ncclCommShrink(v->comm, &out, 1, &v->made, NULL, NCCL_SHRINK_DEFAULT);
}

static void in_allreduce(struct victim *v)
{
    v->result = ncclAllReduce(v->big, v->big, BIG / 4, ncclFloat32, ncclSum, v->comm, NULL);
}

static void in_recv(struct victim *v)
{
    v->result = ncclRecv(v->big, 100, ncclInt8, 1, v->comm, NULL);
}

static void in_send(struct victim *v)
{
    v->result = ncclSend(v->big, BIG, ncclInt8, 1, v->comm, NULL);
}

static void in_group(struct victim *v)
{
    ncclGroupStart();
    for (int q = 1; q < v->r->size; q++) {
        ncclSend(v->big, BIG, ncclInt8, q, v->comm, NULL);
        ncclRecv(v->big, 100, ncclInt8, q, v->comm, NULL);
    }
    v->result = ncclGroupEnd();
}

/* A small send returns without its receive; finalize waits for that. */
static void in_finalize(struct victim *v)
{
    ncclSend(v->big, 4 << 20, ncclInt8, 1, v->comm, NULL);
    v->result = ncclCommFinalize(v->comm);
}

static void *victim_main(void *arg)
{
    struct victim *v = arg;

    v->stuck(v);
    __atomic_store_n(&v->returned, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Rank 0 gets stuck and is aborted; the others only wait. */
static void run(struct rank *r, void (*stuck)(struct victim *), int own)
{
    struct victim v = {.r = r, .stuck = stuck};
    ncclComm_t target;
    pthread_t thread;
    double start;

    if (r->rank == 0) {
        v.big = calloc(BIG, 1);
        v.comm = own ? NULL : r->comm;
        pthread_create(&thread, NULL, victim_main, &v);
        while (!(target = __atomic_load_n(&v.comm, __ATOMIC_ACQUIRE)))
            sched_yield();
        usleep(50000);
        check(r, !__atomic_load_n(&v.returned, __ATOMIC_ACQUIRE), "it was not stuck: it gave %d", v.result);
        start = now();
        check_ok(r, ncclCommAbort(target));
        check(r, now() - start < 1, "the abort took %.2f s", now() - start);
        pthread_join(thread, NULL);
        check(r, now() - start < 1, "what was stuck returned after %.2f s", now() - start);
        check(r, v.result != ncclSuccess && v.result != ncclInProgress, "what was stuck gave %d", v.result);
        check(r, v.made == NULL, "a communicator came out of it");
        check_result(r, ncclCommAbort(target), ncclInvalidArgument);
        if (!own)
            r->comm = NULL;
        free(v.big);
    }
    pthread_barrier_wait(r->gate);
}

#define STATE(name, own) \
    static void abort_##name(struct rank *r) \
    { \
        run(r, name, own); \
    }
STATE(in_init, 1)
STATE(in_grouped_init, 1)
STATE(in_split, 0)
STATE(in_shrink, 0)
STATE(in_allreduce, 0)
STATE(in_recv, 0)
STATE(in_send, 0)
STATE(in_group, 0)
STATE(in_finalize, 0)

/* Non-blocking: Abort while operations and finalize are in progress, and GetAsyncError afterwards. */
static void non_blocking(struct rank *r)
{
    ncclConfig_t config = {.size = sizeof(config), .magic = SHIM_CONFIG_MAGIC, .version = SHIM_VERSION};
    ncclResult_t error = ncclSuccess;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    char x[100];
    double start;

    config.cgaClusterSize = config.minCTAs = config.maxCTAs = config.splitShare = config.trafficClass =
        config.collnetEnable = config.CTAPolicy = config.shrinkShare = config.nvlsCTAs = config.nChannelsPerNetPeer =
            config.nvlinkCentricSched = NCCL_CONFIG_UNDEF_INT;
    memset(&id, 0, sizeof(id));
    if (r->rank == 0)
        check_ok(r, ncclGetUniqueId(&id));
    check_ok(r, ncclBcast(&id, sizeof(id), ncclInt8, 0, r->comm, NULL));
    check_result(r, ncclCommInitRankConfig(&comm, r->size, id, r->rank, &config), ncclInProgress);
    while (ncclCommGetAsyncError(comm, &error) == ncclSuccess && error == ncclInProgress)
        sched_yield();
    check(r, error == ncclSuccess, "init: %s", ncclGetLastError(comm));
    if (r->rank == 0) {
        check_result(r, ncclRecv(x, sizeof(x), ncclInt8, 1, comm, NULL), ncclInProgress);
        check_ok(r, ncclCommGetAsyncError(comm, &error));
        check(r, error == ncclInProgress, "a receive without its send is %d", error);
        check_result(r, ncclCommFinalize(comm), ncclInProgress);
    }
    pthread_barrier_wait(r->gate);
    start = now();
    check_ok(r, ncclCommAbort(comm));
    check(r, now() - start < 1, "the abort took %.2f s", now() - start);
    check_result(r, ncclCommGetAsyncError(comm, &error), ncclInvalidArgument); /* asked, it answers and does not crash */
}

int main(void)
{
    is_int(ranks_run(1, abort_in_init), 0, "in init");
    is_int(ranks_run(1, abort_in_grouped_init), 0, "in an init in a group");
    is_int(ranks_run(2, abort_in_split), 0, "in split");
    is_int(ranks_run(3, abort_in_shrink), 0, "in shrink");
    is_int(ranks_run(3, abort_in_allreduce), 0, "in an all-reduce");
    is_int(ranks_run(2, abort_in_recv), 0, "in a receive");
    is_int(ranks_run(2, abort_in_send), 0, "in a large send");
    is_int(ranks_run(3, abort_in_group), 0, "in a group");
    is_int(ranks_run(2, abort_in_finalize), 0, "in finalize");
    is_int(ranks_run(2, non_blocking), 0, "with operations and finalize in progress");
    return done();
}
