/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank is killed: the others, each a process of its own on this host, learn of it within a second, as documented, by the
 * call they are in or by ncclCommGetAsyncError; ncclGetLastError names the rank; they shrink and go on.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/shim/ranks.h"

enum { RANKS = 4, VICTIM = 2 };
enum how { REDUCING, EXCHANGING, IDLE };

struct shared {
    ncclUniqueId id;
    int have_id, ready;
    double killed;
    double noticed[RANKS];
    char failure[RANKS][1200];
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static ncclResult_t work(ncclComm_t comm, int rank, enum how how, float *x)
{
    ncclResult_t error = ncclSuccess;

    if (how == IDLE)
        return ncclCommGetAsyncError(comm, &error) == ncclSuccess ? error : ncclInternalError;
    if (how == REDUCING)
        return ncclAllReduce(x, x + 1000, 1000, ncclFloat32, ncclSum, comm, NULL);
    ncclGroupStart();
    for (int q = 0; q < RANKS; q++) {
        ncclSend(x, 100, ncclFloat32, q, comm, NULL);
        ncclRecv(x + 1000 + 100 * q, 100, ncclFloat32, q, comm, NULL);
    }
    (void)rank;
    return ncclGroupEnd();
}

#define must(s, rank, cond, ...) \
    do { \
        if (!(cond)) { \
            snprintf((s)->failure[rank], sizeof((s)->failure[rank]), __VA_ARGS__); \
            return; \
        } \
    } while (0)

static void survive(struct shared *s, int rank, enum how how)
{
    ncclResult_t result = ncclSuccess, error = ncclSuccess;
    ncclComm_t comm, smaller = NULL;
    int excluded[] = {VICTIM};
    float x[2000] = {1}, sum = 1;

    must(s, rank, ncclCommInitRank(&comm, RANKS, s->id, rank) == ncclSuccess, "init: %s", ncclGetLastError(NULL));
    must(s, rank, ncclAllReduce(&sum, &sum, 1, ncclFloat32, ncclSum, comm, NULL) == ncclSuccess && sum == RANKS,
         "the first sum: %s", ncclGetLastError(NULL));
    if (how == EXCHANGING)
        must(s, rank, work(comm, rank, how, x) == ncclSuccess, "an exchange: %s", ncclGetLastError(NULL));
    __atomic_fetch_add(&s->ready, 1, __ATOMIC_SEQ_CST);
    for (double until = now() + 20; now() < until && result == ncclSuccess;)
        result = work(comm, rank, how, x);
    while (ncclCommGetAsyncError(comm, &error) == ncclSuccess && error == ncclSuccess && now() < s->killed + 5)
        ;
    s->noticed[rank] = now();
    if (rank == VICTIM)
        return;
    must(s, rank, result == ncclRemoteError, "the call gave %d: %s", result, ncclGetLastError(NULL));
    must(s, rank, error == ncclRemoteError, "the asynchronous error is %d: %s", error, ncclGetLastError(comm));
    must(s, rank, strstr(ncclGetLastError(comm), "rank 2"), "the text names no rank 2: %s", ncclGetLastError(comm));
    must(s, rank, ncclCommShrink(comm, excluded, 1, &smaller, NULL, NCCL_SHRINK_ABORT) == ncclSuccess, "shrink: %s",
         ncclGetLastError(NULL));
    sum = 1;
    must(s, rank, ncclAllReduce(&sum, &sum, 1, ncclFloat32, ncclSum, smaller, NULL) == ncclSuccess && sum == RANKS - 1,
         "the sum of the others: %s", ncclGetLastError(NULL));
    must(s, rank, ncclCommDestroy(smaller) == ncclSuccess && ncclCommAbort(comm) == ncclSuccess, "the end: %s",
         ncclGetLastError(NULL));
}

static void run(enum how how, const char *what)
{
    struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double slowest = 0;
    pid_t pid[RANKS];
    int bad = 0;

    for (int r = 0; r < RANKS; r++)
        if ((pid[r] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (r == 0 && ncclGetUniqueId(&s->id) != ncclSuccess)
                _exit(1);
            if (r == 0)
                __atomic_store_n(&s->have_id, 1, __ATOMIC_RELEASE);
            while (!__atomic_load_n(&s->have_id, __ATOMIC_ACQUIRE))
                usleep(1000);
            survive(s, r, how);
            _exit(s->failure[r][0] != 0);
        }
    for (int i = 0; i < 30000 && __atomic_load_n(&s->ready, __ATOMIC_SEQ_CST) < RANKS; i++)
        usleep(1000);
    usleep(20000); /* somewhere in the middle of it */
    s->killed = now();
    kill(pid[VICTIM], SIGKILL);
    for (int r = 0; r < RANKS; r++) {
        int status;
        waitpid(pid[r], &status, 0);
        if (r == VICTIM)
            continue;
        bad += status != 0;
        if (status != 0)
            printf("# rank %d ended with %#x: %s\n", r, status, s->failure[r]);
        if (s->noticed[r] - s->killed > slowest)
            slowest = s->noticed[r] - s->killed;
    }
    is_int(bad, 0, "rank 2 is killed %s: the others get ncclRemoteError, its name, and go on without it", what);
    ok(slowest < 1, "they knew within 1 s: %.0f ms", slowest * 1e3);
    munmap(s, sizeof(*s));
}

int main(void)
{
    setenv("SHUNT_DEBUG", "", 1);
    run(REDUCING, "in all-reduces");
    run(EXCHANGING, "in groups of send and receive");
    run(IDLE, "while nothing goes on");
    return done();
}
