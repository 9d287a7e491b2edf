/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of communicators: configurations, non-blocking ones, split, shrink, revoke, finalize, destroy, abort from
 * another thread; and that nothing grows.
 */
#include <dirent.h>
#include <malloc.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#include "tests/shim/ranks.h"

static ncclConfig_t config_of(int blocking)
{
    ncclConfig_t c;

    c = (ncclConfig_t){.size = sizeof(c), .magic = SHIM_CONFIG_MAGIC, .version = SHIM_VERSION, .blocking = blocking};
    c.cgaClusterSize = c.minCTAs = c.maxCTAs = c.splitShare = c.trafficClass = c.collnetEnable = NCCL_CONFIG_UNDEF_INT;
    c.CTAPolicy = c.shrinkShare = c.nvlsCTAs = c.nChannelsPerNetPeer = c.nvlinkCentricSched = NCCL_CONFIG_UNDEF_INT;
    return c;
}

/* Polls until it is no longer in progress. */
static ncclResult_t settle(ncclComm_t comm)
{
    ncclResult_t error = ncclInProgress;

    while (ncclCommGetAsyncError(comm, &error) == ncclSuccess && error == ncclInProgress)
        sched_yield();
    return error;
}

static float sum_of(struct rank *r, ncclComm_t comm, float mine)
{
    float x = mine, y = -1;

    check_ok(r, ncclAllReduce(&x, &y, 1, ncclFloat32, ncclSum, comm, NULL));
    return y;
}

static void configurations(struct rank *r)
{
    static const size_t sizes[] = {24, 40, 48, 72, 80, 88, 96};
    union {
        ncclConfig_t c;
        char bytes[96];
    } u;
    ncclComm_t comm, two[2];
    ncclUniqueId id;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        memset(&u, 0x7f, sizeof(u)); /* nonsense beyond what the caller's version has */
        ncclConfig_t good = config_of(1);
        memcpy(&u, &good, sizes[i] < sizeof(good) ? sizes[i] : sizeof(good));
        u.c.size = sizes[i];
        check_ok(r, ncclGetUniqueId(&id));
        check_ok(r, ncclCommInitRankConfig(&comm, 1, id, 0, &u.c));
        check(r, sum_of(r, comm, 5) == 5, "a configuration of %zu bytes", sizes[i]);
        check_ok(r, ncclCommDestroy(comm));
    }
    check_ok(r, ncclGetUniqueId(&id));
    check_ok(r, ncclCommInitRankScalable(&comm, 1, 0, 1, &id, NULL));
    check(r, sum_of(r, comm, 5) == 5, "a scalable init");
    check_ok(r, ncclCommDestroy(comm));
    check_result(r, ncclCommInitRankScalable(&comm, 1, 0, 2, &id, NULL), ncclInvalidArgument);
    check_result(r, ncclCommInitRankScalable(&comm, 1, 0, 1, NULL, NULL), ncclInvalidArgument);
    check_result(r, ncclCommInitAll(&comm, 0, NULL), ncclInvalidArgument);
    check_result(r, ncclCommInitAll(two, 2, (int[]){3, 3}), ncclInvalidUsage);
    u.c = config_of(1);
    u.c.magic = 1;
    check_result(r, ncclCommInitRankConfig(&comm, 1, id, 0, &u.c), ncclInvalidArgument);
    u.c = config_of(7);
    check_result(r, ncclCommInitRankConfig(&comm, 1, id, 0, &u.c), ncclInvalidArgument);
    check_result(r, ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
    check_result(r, ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
    check_result(r, ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument);
    memset(&id, 0x5a, sizeof(id)); /* an id of another library */
    check_result(r, ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage);
    check(r, comm == NULL, "a failed init left a handle");
}

static void non_blocking(struct rank *r)
{
    ncclConfig_t config = config_of(0);
    ncclComm_t comm = NULL, half = NULL;
    float x[100], y[100];
    ncclUniqueId id;
    ncclResult_t result;

    memset(&id, 0, sizeof(id));
    if (r->rank == 0)
        check_ok(r, ncclGetUniqueId(&id));
    check_ok(r, ncclBcast(&id, sizeof(id), ncclInt8, 0, r->comm, NULL));
    result = ncclCommInitRankConfig(&comm, r->size, id, r->rank, &config);
    check(r, result == ncclInProgress && comm, "init gave %d and %p", result, (void *)comm);
    check(r, settle(comm) == ncclSuccess, "init: %s", ncclGetLastError(comm));
    for (int i = 0; i < 100; i++)
        x[i] = (float)i;
    check_ok(r, ncclGroupStart());
    result = ncclAllReduce(x, y, 100, ncclFloat32, ncclSum, comm, NULL);
    check(r, result == ncclSuccess || result == ncclInProgress, "allreduce in a group gave %d", result);
    result = ncclGroupEnd();
    check(r, result == ncclInProgress, "GroupEnd gave %d", result);
    check(r, settle(comm) == ncclSuccess && y[99] == (float)(99 * r->size), "allreduce gave %g", y[99]);
    result = ncclCommSplit(comm, r->rank % 2, -r->rank, &half, NULL);
    check(r, result == ncclInProgress, "split gave %d", result);
    check(r, settle(comm) == ncclSuccess && half, "split: %s", ncclGetLastError(comm));
    result = ncclAllReduce(x, y, 100, ncclFloat32, ncclSum, half, NULL);
    check(r, (result == ncclInProgress || result == ncclSuccess) && settle(half) == ncclSuccess, "in the half: %d", result);
    check(r, y[99] == (float)(99 * ((r->size + 1 - r->rank % 2) / 2)), "allreduce of the half %g", y[99]);
    ncclComm_t smaller = NULL;
    int out[] = {r->size - 1};
    if (r->rank != out[0]) {
        result = ncclCommShrink(comm, out, 1, &smaller, NULL, NCCL_SHRINK_DEFAULT);
        check(r, result == ncclInProgress, "shrink gave %d", result);
        check(r, settle(comm) == ncclSuccess && smaller, "shrink: %s", ncclGetLastError(comm));
        result = ncclAllReduce(x, y, 100, ncclFloat32, ncclSum, smaller, NULL);
        check(r, settle(smaller) == ncclSuccess && y[99] == (float)(99 * (r->size - 1)), "of the smaller one %g", y[99]);
        check_ok(r, ncclCommDestroy(smaller));
    }
    result = ncclCommFinalize(half);
    check(r, result == ncclInProgress && settle(half) == ncclSuccess, "finalize gave %d", result);
    check_ok(r, ncclCommDestroy(half));
    check_ok(r, ncclCommDestroy(comm));
}

/* Ranks of one thread: what waits for the others is in groups, and destroying them one after the other must not wait. */
static void family(struct rank *r)
{
    enum { N = 3 };
    ncclComm_t all[N], part[N];
    float x[N] = {1, 2, 4};

    check_ok(r, ncclCommInitAll(all, N, NULL));
    check_ok(r, ncclGroupStart());
    for (int i = 0; i < N; i++)
        check_ok(r, ncclCommSplit(all[i], i == 1 ? NCCL_SPLIT_NOCOLOR : 0, -i, &part[i], NULL));
    check_ok(r, ncclGroupEnd());
    check(r, part[0] && !part[1] && part[2], "split gave %p %p %p", (void *)part[0], (void *)part[1], (void *)part[2]);
    check_ok(r, ncclGroupStart());
    for (int i = 0; i < N; i += 2)
        check_ok(r, ncclAllReduce(&x[i], &x[i], 1, ncclFloat32, ncclSum, part[i], NULL));
    check_ok(r, ncclGroupEnd());
    check(r, x[0] == 5 && x[1] == 2 && x[2] == 5, "sums %g %g %g", x[0], x[1], x[2]);
    check_ok(r, ncclGroupStart());
    for (int i = 0; i < N; i++)
        check_ok(r, ncclCommFinalize(all[i]));
    check_ok(r, ncclGroupEnd());
    check_ok(r, ncclCommDestroy(part[0]));
    check_ok(r, ncclCommDestroy(part[2]));
    for (int i = 0; i < N; i++)
        check_ok(r, ncclCommDestroy(all[i]));
}

static void split_and_shrink(struct rank *r)
{
    ncclComm_t part = (ncclComm_t)1, smaller = NULL;
    int excluded[] = {1}, rank = -1, size = -1;
    float sum;

    /* equal keys keep the order; a rank without a color calls too and gets NULL */
    check_ok(r, ncclCommSplit(r->comm, r->rank == 1 ? NCCL_SPLIT_NOCOLOR : 5, 0, &part, NULL));
    if (r->rank == 1) {
        check(r, part == NULL, "no color gave %p", (void *)part);
    } else {
        check_ok(r, ncclCommUserRank(part, &rank));
        check_ok(r, ncclCommCount(part, &size));
        check(r, rank == (r->rank > 1 ? r->rank - 1 : r->rank) && size == r->size - 1, "rank %d of %d", rank, size);
        check_ok(r, ncclCommDestroy(part));
    }
    check_result(r, ncclCommSplit(r->comm, -2, 0, &part, NULL), ncclInvalidArgument);
    /* shrink: those who are excluded don't call, the parent lives on */
    if (r->rank != 1) {
        check_ok(r, ncclCommShrink(r->comm, excluded, 1, &smaller, NULL, NCCL_SHRINK_DEFAULT));
        sum = sum_of(r, smaller, (float)r->rank);
        check(r, sum == (float)(r->size * (r->size - 1) / 2 - 1), "the smaller one's sum %g", sum);
        check_ok(r, ncclCommDestroy(smaller));
    }
    sum = sum_of(r, r->comm, 1);
    check(r, sum == (float)r->size, "the parent's sum %g", sum);
    if (r->rank == 1)
        check_result(r, ncclCommShrink(r->comm, excluded, 1, &smaller, NULL, 0), ncclInvalidArgument);
}

/* All but one are inside an operation that can't end; shrinking aborts it. The one that is left out doesn't call. */
static void *stuck(void *arg)
{
    struct rank *r = arg;
    float x = 1;
    ncclResult_t result = ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, r->comm, NULL);

    check(r, result != ncclSuccess, "an allreduce of two of three ranks ended well");
    return NULL;
}

static void shrink_abort(struct rank *r, int out)
{
    ncclComm_t smaller = NULL;
    int excluded[] = {out};
    pthread_t thread;
    ncclResult_t error;

    if (r->rank == out)
        return;
    pthread_create(&thread, NULL, stuck, r);
    check_ok(r, ncclCommShrink(r->comm, excluded, 1, &smaller, NULL, NCCL_SHRINK_ABORT));
    pthread_join(thread, NULL);
    if (smaller) {
        check(r, sum_of(r, smaller, 2) == 4, "the smaller one's sum");
        check_ok(r, ncclCommGetAsyncError(smaller, &error));
        check(r, error == ncclSuccess, "its error %d", error);
        check_ok(r, ncclCommDestroy(smaller));
    }
}

static void shrink_abort_first(struct rank *r)
{
    shrink_abort(r, 0);
}

static void shrink_abort_second(struct rank *r)
{
    shrink_abort(r, 1);
}

static void revoking(struct rank *r)
{
    ncclComm_t again = NULL;
    float x = 1;

    check(r, sum_of(r, r->comm, 1) == (float)r->size, "the sum before");
    pthread_barrier_wait(r->gate); /* who is done first must not revoke what others are in */
    check_result(r, ncclCommRevoke(r->comm, 1), ncclInvalidArgument);
    check_ok(r, ncclCommRevoke(r->comm, 0));
    check_result(r, ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, r->comm, NULL), ncclInvalidUsage);
    check_result(r, ncclCommFinalize(r->comm), ncclInvalidUsage);
    check_ok(r, ncclCommSplit(r->comm, 0, r->rank, &again, NULL));
    if (again) {
        check(r, sum_of(r, again, 1) == (float)r->size, "the sum after");
        check_ok(r, ncclCommDestroy(again));
    }
}

static void finalizing(struct rank *r)
{
    ncclComm_t twin = NULL;
    ncclResult_t error = 99;
    float x = 1;

    check_ok(r, ncclCommSplit(r->comm, 0, 0, &twin, NULL));
    check_ok(r, ncclSend(&x, 1, ncclFloat32, !r->rank, twin, NULL));
    check_ok(r, ncclRecv(&x, 1, ncclFloat32, !r->rank, twin, NULL));
    check_ok(r, ncclCommFinalize(twin));
    check_result(r, ncclCommFinalize(twin), ncclInvalidArgument);
    check_ok(r, ncclCommGetAsyncError(twin, &error));
    check(r, error == ncclSuccess, "after finalize: %d", error);
    check_result(r, ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, twin, NULL), ncclInvalidArgument);
    check_ok(r, ncclCommDestroy(twin));
    check_result(r, ncclCommDestroy(twin), ncclInvalidArgument);
    check_result(r, ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, twin, NULL), ncclInvalidArgument);
}

/* ---- abort ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *waits_for_ever(void *arg)
{
    struct rank *r = arg;
    float x = 1;
    ncclResult_t result = ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, r->comm, NULL);

    check(r, result != ncclSuccess, "an aborted allreduce ended well");
    return NULL;
}

static void abort_inside(struct rank *r)
{
    ncclResult_t error = ncclSuccess;
    pthread_t thread;
    double start;

    if (r->rank == 0) {
        pthread_create(&thread, NULL, waits_for_ever, r);
        usleep(20000);
        start = now();
        check_ok(r, ncclCommAbort(r->comm));
        check(r, now() - start < 1, "the abort took %.2f s", now() - start);
        pthread_join(thread, NULL);
        r->comm = NULL;
    } else {
        /* the others learn of it without an operation of theirs */
        start = now();
        while (error == ncclSuccess && now() - start < 5)
            check_ok(r, ncclCommGetAsyncError(r->comm, &error));
        check(r, error == ncclRemoteError, "the others see %d", error);
        check(r, strstr(ncclGetLastError(r->comm), "rank 0") != NULL, "the text: %s", ncclGetLastError(r->comm));
    }
}

static void abort_init(struct rank *r)
{
    ncclConfig_t config = config_of(0);
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    double start;

    if (r->rank != 0)
        return;
    check_ok(r, ncclGetUniqueId(&id)); /* the other rank never comes */
    check_result(r, ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
    usleep(20000);
    start = now();
    check_ok(r, ncclCommAbort(comm));
    check(r, now() - start < 1, "the abort took %.2f s", now() - start);
}

/* ---- growth ---- */

static int entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static int rounds(int n, int abort)
{
    int bad = 0;

    for (int i = 0; i < n && !bad; i++) {
        ncclComm_t comms[2];
        float x[2] = {1, 2};
        bad += ncclCommInitAll(comms, 2, NULL) != ncclSuccess;
        if (bad)
            break;
        ncclGroupStart();
        for (int k = 0; k < 2; k++)
            ncclAllReduce(&x[k], &x[k], 1, ncclFloat32, ncclSum, comms[k], NULL);
        bad += ncclGroupEnd() != ncclSuccess || x[0] != 3;
        for (int k = 0; k < 2; k++)
            bad += (abort ? ncclCommAbort(comms[k]) : ncclCommDestroy(comms[k])) != ncclSuccess;
    }
    if (bad)
        printf("# %s\n", ncclGetLastError(NULL));
    return bad;
}

static void growth(const char *what, int abort)
{
    int n = getenv("SHUNT_TEST_FULL") ? 1000 : 200, fds, threads, shm;
    size_t heap;

    is_int(rounds(20, abort), 0, "20 rounds of init and %s", what);
    usleep(100000);
    fds = entries("/proc/self/fd");
    threads = entries("/proc/self/task");
    shm = entries("/dev/shm");
    heap = mallinfo2().uordblks;
    is_int(rounds(n, abort), 0, "%d rounds of init and %s", n, what);
    usleep(100000);
    /* The last few meetings stay a little while for late comers. */
    ok(entries("/proc/self/fd") <= fds + 20, "%d descriptors, before %d", entries("/proc/self/fd"), fds);
    ok(entries("/proc/self/task") <= threads + 6, "%d threads, before %d", entries("/proc/self/task"), threads);
    ok(entries("/dev/shm") <= shm + 2, "nothing left in /dev/shm");
    ok(mallinfo2().uordblks < heap + (size_t)n * 100, "%zu bytes of memory, before %zu", (size_t)mallinfo2().uordblks,
       heap);
}

int main(void)
{
    is_int(ranks_run(1, configurations), 0, "configurations of every size, and wrong ones");
    is_int(ranks_run(3, non_blocking), 0, "non-blocking communicators");
    is_int(ranks_run(1, family), 0, "split, finalize and destroy of ranks in one thread");
    is_int(ranks_run(3, split_and_shrink), 0, "split and shrink");
    is_int(ranks_run(3, shrink_abort_second), 0, "shrink in the middle of an operation");
    is_int(ranks_run(3, shrink_abort_first), 0, "also without rank 0");
    is_int(ranks_run(3, revoking), 0, "revoke, then split");
    is_int(ranks_run(2, finalizing), 0, "finalize and destroy");
    is_int(ranks_run(3, abort_inside), 0, "abort from another thread");
    is_int(ranks_run(2, abort_init), 0, "abort while it starts");
    growth("destroy", 0);
    growth("abort", 1);
    return done();
}
