/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every algorithm on every number of ranks from 2 to 33, over several host maps, counts, roots, in and out of place,
 * with random message times: right results, no races, nothing left over, the same bits on every rank and in every run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/coll/sim.h"
#include "tests/tap.h"

#define MOST 33

static struct shunt__run_pool *pools[MOST];
static uint64_t number;

struct layout {
    int host_of[MOST], hosts;
};

/* 0: one host; 1: blocks of 4; 2: round robin over 3; 3: uneven blocks; 4: one rank each */
static int lay_out(struct layout *l, int n, int which)
{
    l->hosts = 0;
    for (int r = 0; r < n; r++) {
        int h = which == 0 ? 0 : which == 1 ? r / 4 : which == 2 ? r % 3 : which == 3 ? (r > 0) + (r > n / 2) : r;

        l->host_of[r] = h;
        if (h >= l->hosts)
            l->hosts = h + 1;
    }
    return which == 0 || l->hosts > 1;
}

static int32_t value(int rank, size_t i)
{
    return (int32_t)((unsigned)(rank + 1) * 1000003u + (unsigned)i * 7919u);
}

struct task {
    struct sim_coll c[MOST];
    char *in[MOST], *out[MOST];
    char *buffers[MOST][2];
};

static int32_t sum_at(int n, size_t i)
{
    uint32_t sum = 0;

    for (int r = 0; r < n; r++)
        sum += (uint32_t)value(r, i);
    return (int32_t)sum;
}

/* The expected element i of `rank`'s out; *known = 0 where it has none. */
static int32_t expected(const struct shunt__call *call, int rank, size_t i)
{
    size_t count = call->count;

    switch (call->kind) {
    case SHUNT_COLL_ALLREDUCE:
    case SHUNT_COLL_REDUCE:
        return sum_at(call->size, i);
    case SHUNT_COLL_REDUCE_SCATTER:
        return sum_at(call->size, (size_t)rank * count + i);
    case SHUNT_COLL_ALLGATHER:
    case SHUNT_COLL_GATHER:
        return value((int)(i / count), i % count);
    case SHUNT_COLL_BROADCAST:
        return value(call->root, i);
    case SHUNT_COLL_SCATTER:
        return value(call->root, (size_t)rank * count + i);
    default: /* alltoall */
        return value((int)(i / count), (size_t)rank * count + i % count);
    }
}

static void set_up(struct task *t, const struct shunt__call *shape, const char *algorithm, int in_place)
{
    memset(t, 0, sizeof(*t));
    number++;
    for (int r = 0; r < shape->size; r++) {
        struct shunt__call call = *shape;
        size_t in, out;

        call.rank = r;
        call.in_place = in_place;
        in = shunt__call_in_bytes(&call);
        out = shunt__call_out_bytes(&call);
        t->buffers[r][0] = malloc((in > out ? in : out) + 1);
        t->buffers[r][1] = malloc(out + 1);
        memset(t->buffers[r][1], 0x77, out + 1);
        t->in[r] = t->buffers[r][0];
        t->out[r] = out ? t->buffers[r][1] : NULL;
        if (in_place && out >= in && out) { /* send lies within recv */
            t->out[r] = t->buffers[r][0];
            if (call.kind == SHUNT_COLL_ALLGATHER || call.kind == SHUNT_COLL_GATHER)
                t->in[r] = t->out[r] + (size_t)r * in;
        } else if (in_place && out) {
            t->out[r] = t->in[r] + (size_t)r * out;
        }
        for (size_t i = 0; i < in / 4; i++)
            ((int32_t *)t->in[r])[i] = value(r, i);
        t->c[r] = (struct sim_coll){.call = call, .algorithm = algorithm, .in = t->in[r], .out = t->out[r],
                                    .number = number, .pool = pools[r]};
    }
}

static void tear_down(struct task *t, int n)
{
    for (int r = 0; r < n; r++) {
        free(t->buffers[r][0]);
        free(t->buffers[r][1]);
    }
}

/* Zero, or what went wrong is in `what`. */
static int wrong(struct sim *s, struct task *t, char *what, size_t len)
{
    int n = t->c[0].call.size;

    if (sim_races(s) || sim_left(s)) {
        snprintf(what, len, "%d races, %d left over", sim_races(s), sim_left(s));
        return 1;
    }
    for (int r = 0; r < n; r++) {
        const struct shunt__call *call = &t->c[r].call;
        size_t out = shunt__call_out_bytes(call);

        if (t->c[r].finished != 1 || t->c[r].status != SHUNT_OK) {
            snprintf(what, len, "rank %d: finished %d, %s %s", r, t->c[r].finished,
                     shunt_status_name(t->c[r].status), t->c[r].why);
            return 1;
        }
        for (size_t i = 0; i < out / 4; i++) {
            if (((int32_t *)t->out[r])[i] != expected(call, r, i)) {
                snprintf(what, len, "rank %d: element %zu of %zu is wrong", r, i, out / 4);
                return 1;
            }
        }
    }
    return 0;
}

static int try_one(const struct shunt__call *shape, const char *algorithm, int in_place, int mode, unsigned seed)
{
    struct sim *s = sim_new(shape->size, (enum sim_mode)mode, seed);
    char what[200];
    struct task t;
    int bad;

    set_up(&t, shape, algorithm, in_place);
    for (int i = 0; i < shape->size; i++)
        sim_start(s, &t.c[(i + (int)seed) % shape->size]);
    sim_run(s);
    bad = wrong(s, &t, what, sizeof(what));
    if (bad)
        printf("# %s %s, %d ranks, %d hosts, count %zu, root %d, segment %zu, in place %d, mode %d, seed %u: %s\n",
               shunt__coll_name(shape->kind), algorithm, shape->size, shape->hosts, shape->count, shape->root,
               shape->segment, in_place, mode, seed, what);
    tear_down(&t, shape->size);
    sim_free(s);
    return bad;
}

static void try_algorithm(const struct shunt__algorithm *a)
{
    static const size_t counts[] = {1, 2, 7, 33, 250, 5000};
    int bad = 0, tried = 0;

    for (int n = 2; n <= MOST && bad < 5; n++) {
        int power = (n & (n - 1)) == 0;

        if (a->pattern == shunt__reduce_scatter_halving && !power)
            continue;
        for (int which = 0; which < 5; which++) {
            struct layout l;

            if (!lay_out(&l, n, which) || (a->pattern == shunt__allreduce_hierarchical && l.hosts < 2))
                continue;
            for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && bad < 5; i++) {
                struct shunt__call shape = {.kind = a->kind, .size = n, .host_of = l.host_of, .hosts = l.hosts,
                                            .count = counts[i], .width = 4, .type = SHUNT_INT32, .op = SHUNT_SUM};
                unsigned seed = (unsigned)(n * 31 + which * 7) + (unsigned)i;

                if (n > 9 && (which + (int)i) % 5 != n % 5) /* beyond, a fifth of them */
                    continue;
                shape.root = shunt__coll_rooted(a->kind) ? (int)(seed % (unsigned)n) : 0;
                shape.segment = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 64 : 400;
                for (int in_place = 0; in_place < 2; in_place++, tried++)
                    bad += try_one(&shape, a->name, in_place, seed % 2 ? SIM_EAGER : SIM_LATE, seed);
            }
        }
    }
    ok(!bad, "%s by %s: %d layouts, counts and roots", shunt__coll_name(a->kind), a->name, tried);
}

/* Floating-point results are the same on each rank and in each run. */
static void try_bits(const char *algorithm)
{
    int differ = 0;

    for (int n = 2; n <= 17; n++) {
        float first[777], *in[MOST], *out[MOST];
        struct layout l;

        lay_out(&l, n, n % 4);
        if (strcmp(algorithm, "hierarchical") == 0 && l.hosts < 2)
            continue;
        for (unsigned seed = 0; seed < 3; seed++) {
            struct sim *s = sim_new(n, SIM_LATE, seed);
            struct sim_coll c[MOST];

            number++;
            for (int r = 0; r < n; r++) {
                in[r] = malloc(sizeof(first));
                out[r] = malloc(sizeof(first));
                for (int i = 0; i < 777; i++)
                    in[r][i] = 1.0f / (float)(1 + (i * 37 + r * 101) % 1009) * (float)(1 + r);
                c[r] = (struct sim_coll){.call = {.kind = SHUNT_COLL_ALLREDUCE, .rank = r, .size = n,
                                                  .host_of = l.host_of, .hosts = l.hosts, .count = 777, .width = 4,
                                                  .type = SHUNT_FLOAT32, .segment = 256},
                                         .algorithm = algorithm, .in = in[r], .out = out[r], .number = number,
                                         .pool = pools[r]};
            }
            for (int r = 0; r < n; r++)
                sim_start(s, &c[r]);
            sim_run(s);
            if (seed == 0)
                memcpy(first, out[0], sizeof(first));
            for (int r = 0; r < n; r++) {
                differ += memcmp(first, out[r], sizeof(first)) != 0;
                free(in[r]);
                free(out[r]);
            }
            sim_free(s);
        }
    }
    ok(!differ, "allreduce by %s: the same bits on every rank and in every run", algorithm);
}

/* Six collectives of one communicator at once, started in another order of ranks each. */
static void try_overlap(void)
{
    static const shunt_coll_t kinds[6] = {SHUNT_COLL_ALLREDUCE, SHUNT_COLL_ALLGATHER, SHUNT_COLL_BARRIER,
                                          SHUNT_COLL_REDUCE_SCATTER, SHUNT_COLL_ALLREDUCE, SHUNT_COLL_BROADCAST};
    int bad = 0;

    for (int n = 2; n < 12; n++) {
        struct sim *s = sim_new(n, SIM_LATE, (unsigned)n);
        struct task *t = calloc(6, sizeof(*t));
        struct layout l;
        char what[200];

        lay_out(&l, n, 0);
        for (int k = 0; k < 6; k++) {
            struct shunt__call shape = {.kind = kinds[k], .size = n, .host_of = l.host_of, .hosts = l.hosts,
                                        .count = k == 0 ? 40000 : 300, .width = 4, .type = SHUNT_INT32};

            set_up(&t[k], &shape, NULL, 0);
        }
        for (int r = 0; r < n; r++)
            for (int k = 0; k < 6; k++)
                sim_start(s, &t[k].c[(r + n / 2) % n]);
        sim_run(s);
        for (int k = 0; k < 6; k++) {
            bad += wrong(s, &t[k], what, sizeof(what));
            tear_down(&t[k], n);
        }
        free(t);
        sim_free(s);
    }
    ok(!bad, "six collectives of one communicator at once");
}

int main(void)
{
    for (int r = 0; r < MOST; r++)
        pools[r] = shunt__run_pool_new(&sim_carrier);
    for (const struct shunt__algorithm *a = shunt__algorithms; a->name; a++)
        if (a->kind != SHUNT_COLL_ALLTOALLV)
            try_algorithm(a);
    try_bits("doubling");
    try_bits("halving");
    try_bits("ring");
    try_bits("direct");
    try_bits("hierarchical");
    try_overlap();
    for (int r = 0; r < MOST; r++)
        shunt__run_pool_close(pools[r]);
    return done();
}
