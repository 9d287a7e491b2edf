/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct: every rank sends to every other.
 *
 * Reduce-scatter: part r of each rank's vector goes straight to rank r, which adds all n contributions at once, in rank
 * order, so each is read once and the sum written once. Allreduce and reduce add a second step in which the sums
 * go to everyone, or to the root. Bytes are the least possible, S (n-1)/n per step; messages are n-1 per step, which
 * is why larger groups take a ring or halving. Large vectors are cut into pieces of n segments that fit into the
 * cache; LOOKAHEAD pieces are under way at once, so that transfers and additions overlap.
 *
 * Within a host this is what shared memory likes best: few dependent steps, few passes over memory.
 * Source: the "pairwise" and "linear" reduce-scatter and allgather of R. Thakur, R. Rabenseifner, W. Gropp,
 * "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005, section 4.2.
 */
#include <stdlib.h>
#include "comm/coll/coll.h"
#include "comm/coll/schedule.h"
#include "comm/reduce/reduce.h"

#define LOOKAHEAD 3
/* Bytes of one rank's contributions that are in the cache at once. */
#define CACHE (768 * 1024)

struct direct {
    struct shunt__schedule *s;
    const struct shunt__call *call;
    size_t segment;              /* elements of a part, at most */
    size_t total;                /* elements of the vector, or of each rank's block */
    size_t piece;                /* elements of the vector or block that make one piece */
    shunt__place_t slots, sums;  /* LOOKAHEAD x (n - 1) segments; LOOKAHEAD segments, where the sum has no other place */
    int *contributions;          /* per slot and peer: the send of our contribution; in place, what comes back waits */
    int reduced[LOOKAHEAD];      /* the addition that used the slots last */
    int delivered[LOOKAHEAD];    /* the join of sends that read the sum */
};

/* Part of rank r in piece k: its place within the vector in elements, and how many. */
static size_t part_of(const struct direct *d, size_t k, int r, size_t *elements)
{
    size_t base = k * d->piece, length = shunt__min(d->piece, d->total - base);

    if (d->call->kind == SHUNT_COLL_REDUCE_SCATTER) {
        *elements = length;
        return d->call->count * (size_t)r + base;
    }
    *elements = shunt__part(length, d->call->size, r + 1) - shunt__part(length, d->call->size, r);
    return base + shunt__part(length, d->call->size, r);
}

static shunt__place_t slot_of(const struct direct *d, size_t k, int peer)
{
    int n = d->call->size, index = (peer - d->call->rank - 1 + n) % n;

    return d->slots + ((k % LOOKAHEAD) * (size_t)(n - 1) + (size_t)index) * d->segment * d->call->width;
}

/* Where this rank's sum of piece k is made. */
static shunt__place_t sum_of(const struct direct *d, size_t k)
{
    const struct shunt__call *call = d->call;
    size_t elements, at = part_of(d, k, call->rank, &elements);

    if (call->kind == SHUNT_COLL_REDUCE_SCATTER)
        at -= call->count * (size_t)call->rank;
    if (d->sums)
        return d->sums + (k % LOOKAHEAD) * d->segment * call->width;
    return SHUNT__OUT + at * call->width;
}

static void scatter_contributions(struct direct *d, size_t k)
{
    const struct shunt__call *call = d->call;
    int n = call->size, sum, all = shunt__step_join(d->s);
    shunt__place_t *sources = malloc((size_t)n * sizeof(*sources));
    size_t own, at = part_of(d, k, call->rank, &own);

    if (!sources) {
        d->s->failed = 1;
        return;
    }
    for (int i = 1; i < n; i++) {
        int to = (call->rank + i) % n, from = (call->rank - i + n) % n;
        size_t elements, there = part_of(d, k, to, &elements);

        d->contributions[(k % LOOKAHEAD) * (size_t)n + (size_t)to] = SHUNT__NOW;
        if (elements)
            d->contributions[(k % LOOKAHEAD) * (size_t)n + (size_t)to] =
                shunt__step_send(d->s, SHUNT__IN + there * call->width, elements * call->width, to, SHUNT__NOW);
        if (own)
            shunt__step_after(d->s, all, shunt__step_recv(d->s, slot_of(d, k, from), own * call->width, from,
                                                          d->reduced[k % LOOKAHEAD]));
    }
    for (int r = 0; r < n; r++)
        sources[r] = r == call->rank ? SHUNT__IN + at * call->width : slot_of(d, k, r);
    if (own) {
        sum = shunt__step_reduce_n(d->s, sum_of(d, k), sources, n, own * call->width, all);
        if (d->sums)
            shunt__step_after(d->s, sum, d->delivered[k % LOOKAHEAD]);
        d->reduced[k % LOOKAHEAD] = sum;
    }
    free(sources);
}

static void gather_sums(struct direct *d, size_t k)
{
    const struct shunt__call *call = d->call;
    int n = call->size, all, to_all = call->kind == SHUNT_COLL_ALLREDUCE;
    size_t own, at = part_of(d, k, call->rank, &own);
    int reduced = d->reduced[k % LOOKAHEAD];

    if (call->kind == SHUNT_COLL_REDUCE_SCATTER && !d->sums)
        return;
    all = shunt__step_join(d->s);
    for (int i = 1; i < n; i++) {
        int to = (call->rank + i) % n, from = (call->rank - i + n) % n;
        size_t elements, there = part_of(d, k, from, &elements);

        if (own && (to_all || (call->kind == SHUNT_COLL_REDUCE && to == call->root)))
            shunt__step_after(d->s, all, shunt__step_send(d->s, sum_of(d, k), own * call->width, to, reduced));
        if (elements && (to_all || (call->kind == SHUNT_COLL_REDUCE && call->rank == call->root)))
            shunt__step_recv(d->s, SHUNT__OUT + there * call->width, elements * call->width, from,
                             call->in_place ? d->contributions[(k % LOOKAHEAD) * (size_t)n + (size_t)from] : SHUNT__NOW);
    }
    if (own && d->sums && (call->kind != SHUNT_COLL_REDUCE || call->rank == call->root)) {
        if (call->kind == SHUNT_COLL_REDUCE_SCATTER)
            at -= call->count * (size_t)call->rank;
        shunt__step_after(d->s, all, shunt__step_copy(d->s, SHUNT__OUT + at * call->width, sum_of(d, k),
                                                      own * call->width, reduced));
    }
    d->delivered[k % LOOKAHEAD] = all;
}

static void run_pieces(struct shunt__schedule *s, const struct shunt__call *call)
{
    struct direct d = {.s = s, .call = call, .total = call->count};
    int n = call->size, scatter = call->kind == SHUNT_COLL_REDUCE_SCATTER;
    size_t segment = call->segment, pieces;

    if (!segment) {
        segment = CACHE / LOOKAHEAD / (size_t)n;
        segment = segment < 32 * 1024 ? 32 * 1024 : segment;
    }
    d.segment = shunt__min(shunt__segment_elements(segment, call->width),
                           scatter ? call->count : (call->count + (size_t)n - 1) / (size_t)n);
    d.piece = scatter ? d.segment : d.segment * (size_t)n;
    pieces = (d.total + d.piece - 1) / d.piece;
    d.slots = shunt__schedule_work(s, LOOKAHEAD * (size_t)(n - 1) * d.segment * call->width);
    /* Adding more sources than a kernel takes at once into one of them would destroy it. */
    if ((call->in_place && n > SHUNT__REDUCE_SOURCES) || (call->kind == SHUNT_COLL_REDUCE && call->rank != call->root))
        d.sums = shunt__schedule_work(s, LOOKAHEAD * d.segment * call->width);
    d.contributions = malloc(LOOKAHEAD * (size_t)n * sizeof(*d.contributions));
    if (!d.contributions) {
        s->failed = 1;
        return;
    }
    for (int i = 0; i < LOOKAHEAD; i++)
        d.reduced[i] = d.delivered[i] = SHUNT__NOW;
    /* A piece's sums are delivered after the next pieces' contributions were sent: messages to a peer keep their order. */
    for (size_t k = 0; k < pieces + LOOKAHEAD - 1; k++) {
        if (k < pieces)
            scatter_contributions(&d, k);
        if (k >= LOOKAHEAD - 1)
            gather_sums(&d, k - (LOOKAHEAD - 1));
    }
    free(d.contributions);
}

void shunt__allreduce_direct(struct shunt__schedule *s, const struct shunt__call *call)
{
    run_pieces(s, call);
}

void shunt__reduce_scatter_direct(struct shunt__schedule *s, const struct shunt__call *call)
{
    run_pieces(s, call);
}

void shunt__reduce_direct(struct shunt__schedule *s, const struct shunt__call *call)
{
    run_pieces(s, call);
}

/* ---- without arithmetic: one message per pair, whatever its size ---- */

/* The own block, unless it is there already. */
static void keep_own(struct shunt__schedule *s, const struct shunt__call *call, shunt__place_t to, shunt__place_t from,
                     size_t bytes)
{
    if (!call->in_place)
        shunt__step_copy_parts(s, to, from, bytes, SHUNT__NOW);
}

void shunt__allgather_direct(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t block = call->count * call->width;
    int n = call->size, r = call->rank;

    for (int i = 1; i < n; i++) {
        int to = (r + i) % n, from = (r - i + n) % n;

        shunt__step_recv(s, SHUNT__OUT + block * (size_t)from, block, from, SHUNT__NOW);
        shunt__step_send(s, SHUNT__IN, block, to, SHUNT__NOW);
    }
    keep_own(s, call, SHUNT__OUT + block * (size_t)r, SHUNT__IN, block);
}

void shunt__gather_direct(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t block = call->count * call->width;

    if (call->rank != call->root) {
        shunt__step_send(s, SHUNT__IN, block, call->root, SHUNT__NOW);
        return;
    }
    for (int i = 1; i < call->size; i++) {
        int from = (call->rank + i) % call->size;

        shunt__step_recv(s, SHUNT__OUT + block * (size_t)from, block, from, SHUNT__NOW);
    }
    keep_own(s, call, SHUNT__OUT + block * (size_t)call->rank, SHUNT__IN, block);
}

void shunt__scatter_direct(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t block = call->count * call->width;

    if (call->rank != call->root) {
        shunt__step_recv(s, SHUNT__OUT, block, call->root, SHUNT__NOW);
        return;
    }
    for (int i = 1; i < call->size; i++) {
        int to = (call->rank + i) % call->size;

        shunt__step_send(s, SHUNT__IN + block * (size_t)to, block, to, SHUNT__NOW);
    }
    keep_own(s, call, SHUNT__OUT, SHUNT__IN + block * (size_t)call->rank, block);
}
