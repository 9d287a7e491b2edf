/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ranks, round trips: `pingpong [BYTES [ROUNDS]]` prints the median one-way time and the rate. For experiments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <shunt/coll.h>
#include <shunt/p2p.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 0) : 8;
    int rounds = argc > 2 ? atoi(argv[2]) : 2000;
    shunt_context_t *ctx;
    shunt_comm_t *comm;
    char *buf = calloc(1, bytes + 1);
    double *t = calloc((size_t)rounds, sizeof(*t));

    if (shunt_context_create(NULL, &ctx) != SHUNT_OK || shunt_comm_create_from_env(ctx, &comm) != SHUNT_OK) {
        fprintf(stderr, "pingpong: %s\n", shunt_error_text());
        return 1;
    }
    int me = shunt_comm_rank(comm);
    for (int i = -rounds / 10; i < rounds && me < 2; i++) {
        double start = now();
        if (me == 0) {
            shunt_send(comm, buf, bytes, 1, 0);
            shunt_recv(comm, buf, bytes, 1, 0, NULL);
        } else {
            shunt_recv(comm, buf, bytes, 0, 0, NULL);
            shunt_send(comm, buf, bytes, 0, 0);
        }
        if (i >= 0)
            t[i] = (now() - start) / 2;
    }
    shunt_barrier(comm);
    if (me == 0) {
        qsort(t, (size_t)rounds, sizeof(*t), order);
        printf("%zu bytes: median %.2f us, best %.2f us, %.2f GB/s\n", bytes, t[rounds / 2] * 1e6, t[0] * 1e6,
               (double)bytes / t[rounds / 2] / 1e9);
    }
    shunt_comm_free(comm);
    shunt_context_destroy(ctx);
    return 0;
}
