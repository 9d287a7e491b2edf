/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the shim costs: two processes call an operation through the comm API and through libnccl.so.2 in turns, both on the
 * same kind of engine. For each size the median of the rounds: comm, comm again (the A/A pair: what the measurement is worth),
 * shim, and the ratios.
 *
 *     shim_cost [ROUNDS]             times
 *     shim_cost count N OP BYTES     N operations of one rank through the shim: for callgrind, which counts instructions
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <shunt/coll.h>
#include <shunt/comm.h>
#include <shunt/p2p.h>
#include "shim/abi.h"

enum { MAX_ROUNDS = 200, MAX_BYTES = 4 << 20 };

static shunt_comm_t *comm;
static ncclComm_t nccl;
static char *a, *b;
static int rank;

static void must(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "shim_cost: %s: %s / %s\n", what, shunt_error_text(), ncclGetLastError(NULL));
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void reduce_comm(size_t bytes)
{
    must(shunt_allreduce(comm, a, b, bytes / 4, SHUNT_FLOAT32, SHUNT_SUM) == SHUNT_OK, "allreduce");
}

static void reduce_shim(size_t bytes)
{
    must(ncclAllReduce(a, b, bytes / 4, ncclFloat32, ncclSum, nccl, NULL) == ncclSuccess, "ncclAllReduce");
}

static void exchange_comm(size_t bytes)
{
    shunt_request_t *r[2];

    must(shunt_isend(comm, a, bytes, !rank, 0, &r[0]) == SHUNT_OK, "isend");
    must(shunt_irecv(comm, b, bytes, !rank, 0, &r[1]) == SHUNT_OK, "irecv");
    must(shunt_wait_all(r, 2, NULL) == SHUNT_OK, "wait");
}

static void exchange_shim(size_t bytes)
{
    ncclGroupStart();
    ncclSend(a, bytes, ncclInt8, !rank, nccl, NULL);
    ncclRecv(b, bytes, ncclInt8, !rank, nccl, NULL);
    must(ncclGroupEnd() == ncclSuccess, "ncclGroupEnd");
}

static double timed(void (*op)(size_t), size_t bytes, int n)
{
    double start;

    op(bytes); /* both are there */
    start = now();
    for (int i = 0; i < n; i++)
        op(bytes);
    return (now() - start) / n;
}

static int ascending(const void *x, const void *y)
{
    double d = *(const double *)x - *(const double *)y;

    return d < 0 ? -1 : d > 0;
}

static double median(double *t, int n)
{
    qsort(t, (size_t)n, sizeof(*t), ascending);
    return n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
}

static void compare(const char *name, void (*by_comm)(size_t), void (*by_shim)(size_t), size_t bytes, int rounds)
{
    static double t[3][MAX_ROUNDS];
    int n = bytes < 65536 ? 500 : 20;
    double m[3];

    for (int i = 0; i < rounds; i++) {
        t[0][i] = timed(by_comm, bytes, n);
        t[2][i] = timed(by_shim, bytes, n);
        t[1][i] = timed(by_comm, bytes, n);
    }
    for (int k = 0; k < 3; k++)
        m[k] = median(t[k], rounds);
    if (rank == 0)
        printf("%-10s %8zu  %9.2f  %9.2f  %9.2f  %5.3f  %5.3f\n", name, bytes, m[0] * 1e6, m[1] * 1e6, m[2] * 1e6,
               m[1] / m[0], 2 * m[2] / (m[0] + m[1]));
}

static int count(int n, const char *op, size_t bytes)
{
    ncclComm_t comms[2];

    must(ncclCommInitAll(comms, 2, NULL) == ncclSuccess, "ncclCommInitAll");
    for (int i = 0; i < n; i++) {
        ncclGroupStart();
        for (int r = 0; r < 2; r++) {
            if (strcmp(op, "allreduce") == 0) {
                ncclAllReduce(a, b + (size_t)r * MAX_BYTES, bytes / 4, ncclFloat32, ncclSum, comms[r], NULL);
            } else {
                ncclSend(a, bytes, ncclInt8, !r, comms[r], NULL);
                ncclRecv(b + (size_t)r * MAX_BYTES, bytes, ncclInt8, !r, comms[r], NULL);
            }
        }
        must(ncclGroupEnd() == ncclSuccess, "ncclGroupEnd");
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {8, 4096, 65536, MAX_BYTES};
    int rounds = argc == 2 ? atoi(argv[1]) : 31, ends[2], status;
    shunt_context_t *ctx;
    ncclUniqueId nccl_id = {0};
    shunt_id_t id;
    pid_t child;

    a = calloc(2, MAX_BYTES);
    b = calloc(2, MAX_BYTES);
    if (argc == 5 && strcmp(argv[1], "count") == 0)
        return count(atoi(argv[2]), argv[3], (size_t)atol(argv[4]));
    if (rounds < 1 || rounds > MAX_ROUNDS || pipe(ends) != 0 || (child = fork()) < 0)
        return 2;
    rank = child == 0;
    must(shunt_context_create(NULL, &ctx) == SHUNT_OK, "context_create");
    if (rank == 0) {
        must(shunt_id_create(ctx, &id) == SHUNT_OK && ncclGetUniqueId(&nccl_id) == ncclSuccess, "ids");
        must(write(ends[1], &id, sizeof(id)) == sizeof(id) && write(ends[1], &nccl_id, sizeof(nccl_id)) > 0, "pipe");
    } else {
        must(read(ends[0], &id, sizeof(id)) == sizeof(id) && read(ends[0], &nccl_id, sizeof(nccl_id)) > 0, "pipe");
    }
    must(shunt_comm_create(ctx, &id, rank, 2, &comm) == SHUNT_OK, "comm_create");
    must(ncclCommInitRank(&nccl, 2, nccl_id, rank) == ncclSuccess, "ncclCommInitRank");
    if (rank == 0)
        printf("%-10s %8s  %9s  %9s  %9s  %5s  %5s\n", "operation", "bytes", "comm us", "comm us", "shim us", "A/A", "ratio");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        compare("allreduce", reduce_comm, reduce_shim, sizes[i], rounds);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        compare("exchange", exchange_comm, exchange_shim, sizes[i], rounds);
    must(ncclCommDestroy(nccl) == ncclSuccess, "ncclCommDestroy");
    shunt_comm_free(comm);
    shunt_context_destroy(ctx);
    return rank == 0 && waitpid(child, &status, 0) > 0 ? status != 0 : 0;
}
