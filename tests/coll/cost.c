/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Holds every row of the table in comm/coll/coll.h against the schedules: the steps that a collective takes when each
 * message takes one, and the payload bytes of the rank that sends most, up to 1,024 ranks (256 where every rank
 * talks to every other).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/coll/sim.h"
#include "tests/tap.h"

#define WIDTH 4

/* n ranks, h hosts of l ranks each; S: bytes of the whole vector. */
struct shape {
    int n, h, l;
    double S;
};

static double rounds(const struct shape *s)
{
    return ceil(log2(s->n));
}

static int power(const struct shape *s)
{
    return (s->n & (s->n - 1)) == 0;
}

static double share(const struct shape *s)
{
    return s->S * (s->n - 1) / s->n;
}

#define FUNCTION(name, expression) \
    static double name(const struct shape *s) \
    { \
        return expression; \
    }
FUNCTION(one, 1)
FUNCTION(two, 2)
FUNCTION(none, 0)
FUNCTION(all_but_one, s->n - 1)
FUNCTION(twice_all_but_one, 2 * (s->n - 1))
FUNCTION(doubling_steps, floor(log2(s->n)) + (power(s) ? 0 : 2))
FUNCTION(doubling_bytes, s->S * (floor(log2(s->n)) + (power(s) ? 0 : 1)))
FUNCTION(halving_steps, 2 * floor(log2(s->n)) + (power(s) ? 0 : 2))
FUNCTION(halving_bytes, 2 * share(s) + (power(s) ? 0 : s->S))
FUNCTION(twice_share, 2 * share(s))
FUNCTION(tree_bytes, s->S * rounds(s))
FUNCTION(whole, s->S)
FUNCTION(half, s->S / 2 + s->S / s->n)
FUNCTION(block, s->S / s->n)
/* Stages A, B and C; C columns of one per rank of a host. */
FUNCTION(hierarchical_bytes, s->S * (s->l - 1) / s->l + 2 * s->S / s->l * (s->h - 1) / s->h + s->S / s->l * (s->l - 1))
FUNCTION(four, 4)

static const struct row {
    shunt_coll_t kind;
    const char *algorithm;
    double (*steps)(const struct shape *), (*bytes)(const struct shape *);
    int most; /* ranks */
} rows[] = {
    {SHUNT_COLL_ALLREDUCE, "doubling", doubling_steps, doubling_bytes, 1024},
    {SHUNT_COLL_ALLREDUCE, "halving", halving_steps, halving_bytes, 1024},
    {SHUNT_COLL_ALLREDUCE, "ring", twice_all_but_one, twice_share, 1024},
    {SHUNT_COLL_ALLREDUCE, "direct", two, twice_share, 256},
    {SHUNT_COLL_ALLREDUCE, "hierarchical", four, hierarchical_bytes, 256},
    {SHUNT_COLL_REDUCE_SCATTER, "direct", one, share, 256},
    {SHUNT_COLL_REDUCE_SCATTER, "halving", rounds, share, 1024},
    {SHUNT_COLL_REDUCE_SCATTER, "ring", all_but_one, share, 1024},
    {SHUNT_COLL_ALLGATHER, "direct", one, share, 256},
    {SHUNT_COLL_ALLGATHER, "bruck", rounds, share, 1024},
    {SHUNT_COLL_ALLGATHER, "ring", all_but_one, share, 1024},
    {SHUNT_COLL_BROADCAST, "tree", rounds, tree_bytes, 1024},
    {SHUNT_COLL_BROADCAST, "chain", all_but_one, whole, 1024},
    {SHUNT_COLL_REDUCE, "tree", rounds, whole, 1024},
    {SHUNT_COLL_REDUCE, "direct", two, whole, 256},
    {SHUNT_COLL_REDUCE, "chain", all_but_one, whole, 1024},
    {SHUNT_COLL_GATHER, "tree", rounds, half, 1024},
    {SHUNT_COLL_GATHER, "direct", one, block, 1024},
    {SHUNT_COLL_SCATTER, "tree", rounds, share, 1024},
    {SHUNT_COLL_SCATTER, "direct", one, share, 1024},
    {SHUNT_COLL_BARRIER, "dissemination", rounds, none, 1024},
};

/* Nonzero when the schedules of this shape cost more than the table says. */
static int too_much(const struct row *row, const struct shape *shape, size_t count, int *host_of)
{
    struct sim *s = sim_new(shape->n, SIM_STEPS, 1);
    struct sim_coll *c = calloc((size_t)shape->n, sizeof(*c));
    struct shunt__run_pool *pool = shunt__run_pool_new(&sim_carrier);
    char *in = calloc(count * (size_t)shape->n, WIDTH), *out = calloc(count * (size_t)shape->n, WIDTH);
    double most = 0, steps, rounding = (double)WIDTH * 4 * shape->n;
    int bad = 0;

    for (int r = 0; r < shape->n; r++) {
        /* Results do not matter here, but ranks must not see each other's writes as races: each has its own out. */
        c[r] = (struct sim_coll){.call = {.kind = row->kind, .rank = r, .size = shape->n, .host_of = host_of,
                                          .hosts = shape->h, .count = count, .width = WIDTH, .type = SHUNT_INT32,
                                          .segment = (size_t)1 << 40},
                                 .algorithm = row->algorithm, .in = in, .out = malloc(count * (size_t)shape->n * WIDTH + 1),
                                 .number = 1, .pool = pool};
        sim_start(s, &c[r]);
    }
    sim_run(s);
    steps = sim_time(s);
    for (int r = 0; r < shape->n; r++) {
        bad |= c[r].finished != 1 || c[r].status != SHUNT_OK;
        most = (double)sim_bytes(s, r) > most ? (double)sim_bytes(s, r) : most;
        free(c[r].out);
    }
    bad |= steps > row->steps(shape) || most > row->bytes(shape) + (row->bytes == none ? 0 : rounding);
    if (bad)
        printf("# %d ranks: %g steps, %g expected; %g bytes, %g expected\n", shape->n, steps, row->steps(shape), most,
               row->bytes(shape));
    shunt__run_pool_close(pool);
    sim_free(s);
    free(c);
    free(in);
    free(out);
    return bad;
}

int main(void)
{
    static const int sizes[] = {2, 3, 4, 5, 7, 8, 13, 16, 24, 64, 100, 256, 1024};
    static int host_of[1024];
    /* Rows whose work grows with the square of the ranks take minutes at 1,024: that is for tests/run --full. */
    int full = getenv("SHUNT_TEST_FULL") != NULL;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        int several = row->steps == four, bad = 0;
        int blocks = row->kind == SHUNT_COLL_REDUCE_SCATTER || row->kind == SHUNT_COLL_ALLGATHER ||
                     row->kind == SHUNT_COLL_GATHER || row->kind == SHUNT_COLL_SCATTER;

        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            struct shape shape = {.n = sizes[k], .h = 1, .l = sizes[k]};
            /* Long enough that every part has elements and the hierarchy its columns. */
            size_t count = row->kind == SHUNT_COLL_BARRIER ? 0 : blocks ? 3 : several ? 16384 : 2 * (size_t)shape.n + 1;

            int square = row->steps == all_but_one || row->steps == twice_all_but_one;

            if (shape.n > row->most || (!full && shape.n > (square ? 100 : 256)) || (several && shape.n % 4) ||
                (row->kind == SHUNT_COLL_REDUCE_SCATTER && row->steps == rounds && !power(&shape)))
                continue;
            if (several) {
                shape.l = shape.n > 4 ? 4 : 2;
                shape.h = shape.n / shape.l;
            }
            for (int r = 0; r < shape.n; r++)
                host_of[r] = several ? r / shape.l : 0;
            shape.S = (double)(blocks ? count * (size_t)shape.n : count) * WIDTH;
            bad += too_much(row, &shape, count, host_of);
        }
        ok(!bad, "%s by %s costs what the table says", shunt__coll_name(row->kind), row->algorithm);
    }
    return done();
}
