/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peers with MPI's interface, timed as shunt-perf times Shunt: the same buffers, counts, warm-up and averages.
 * usage: mpi OPERATION MINBYTES MAXBYTES FACTOR ITERS WARMUP; prints "size microseconds" per size.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void once(const char *op, char *a, char *b, size_t bytes)
{
    int count = (int)(bytes / sizeof(float)), part = count / size;

    if (!strcmp(op, "allreduce"))
        MPI_Allreduce(a, b, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (!strcmp(op, "allgather"))
        MPI_Allgather(a, part, MPI_FLOAT, b, part, MPI_FLOAT, MPI_COMM_WORLD);
    else if (!strcmp(op, "reduce_scatter"))
        MPI_Reduce_scatter_block(a, b, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (!strcmp(op, "broadcast"))
        MPI_Bcast(a, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else if (!strcmp(op, "alltoall"))
        MPI_Alltoall(a, part, MPI_FLOAT, b, part, MPI_FLOAT, MPI_COMM_WORLD);
    else if (!strcmp(op, "reduce"))
        MPI_Reduce(a, b, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    else if (!strcmp(op, "barrier"))
        MPI_Barrier(MPI_COMM_WORLD);
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
}

static double latency(char *a, size_t bytes, int iters)
{
    double start = MPI_Wtime();

    for (int i = 0; i < iters && rank < 2; i++) {
        if (rank == 0)
            MPI_Send(a, (int)bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(a, (int)bytes, MPI_BYTE, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(a, (int)bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - start) / iters / 2;
}

/* 8 messages in flight from rank 0 to rank 1, until rank 1 has them all. */
static double bandwidth(char *a, size_t bytes, int iters)
{
    MPI_Request reqs[8];
    double start = MPI_Wtime();

    for (int i = 0; i < 8; i++)
        reqs[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < iters && rank < 2; i++) {
        MPI_Wait(&reqs[i % 8], MPI_STATUS_IGNORE);
        if (rank == 0)
            MPI_Isend(a, (int)bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &reqs[i % 8]);
        else
            MPI_Irecv(a, (int)bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &reqs[i % 8]);
    }
    MPI_Waitall(8, reqs, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (rank == 1)
        MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / iters;
}

static double repeat(const char *op, char *a, char *b, size_t bytes, int iters)
{
    double start;

    if (!iters)
        return 0;
    if (!strcmp(op, "latency"))
        return latency(a, bytes, iters);
    if (!strcmp(op, "bandwidth"))
        return bandwidth(a, bytes, iters);
    start = MPI_Wtime();
    for (int i = 0; i < iters; i++)
        once(op, a, b, bytes);
    return (MPI_Wtime() - start) / iters;
}

int main(int argc, char **argv)
{
    size_t min, max, factor;
    int iters, warmup;
    char *a, *b;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 7)
        MPI_Abort(MPI_COMM_WORLD, 2);
    min = strtoull(argv[2], NULL, 10);
    max = strtoull(argv[3], NULL, 10);
    factor = strtoull(argv[4], NULL, 10);
    iters = atoi(argv[5]);
    warmup = atoi(argv[6]);
    if (posix_memalign((void **)&a, 4096, max + 64) || posix_memalign((void **)&b, 4096, max + 64))
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(a, 0, max + 64);
    memset(b, 0, max + 64);
    for (size_t bytes = min; bytes <= max; bytes *= factor) {
        double time, sum;
        int p2p = !strcmp(argv[1], "latency") || !strcmp(argv[1], "bandwidth");

        repeat(argv[1], a, b, bytes, warmup);
        MPI_Barrier(MPI_COMM_WORLD);
        time = repeat(argv[1], a, b, bytes, iters);
        MPI_Reduce(&time, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("%zu %.4f\n", bytes, (p2p ? time : sum / size) * 1e6);
    }
    MPI_Finalize();
    return 0;
}
