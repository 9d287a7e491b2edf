/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring: every rank receives from one neighbour and sends to the other.
 *
 * Reduce-scatter: the vector is n parts. The part that ends at position p of the ring starts at position p + 1 and
 * goes once around, each rank adding its own. Allgather: each part goes once around. Allreduce is one after the
 * other. Bytes are the least possible (S (n-1)/n for each), each host is entered and left by one pair of neighbours only;
 * but n-1 or 2 (n-1) messages follow one after the other. For large vectors on many hosts.
 *
 * A vector larger than n x SEGMENTS segments is cut into pieces; within a piece SEGMENTS messages are on each edge at
 * once, so that additions overlap with transfers.
 * Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2),
 * 2009.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/coll/coll.h"
#include "comm/coll/order.h"
#include "comm/coll/schedule.h"

#define SEGMENT (128 * 1024)
#define SEGMENTS 4
/* Twice a step's segments: with fewer, all ranks could wait for each other's slots. */
#define SLOTS (2 * SEGMENTS)

struct ring {
    struct shunt__schedule *s;
    const struct shunt__call *call;
    int *order, n, position, next, previous;
    size_t segment;        /* elements */
    size_t base, length;   /* the piece, in elements of the vector or of each block */
    shunt__place_t slots;
    int slot_free[SLOTS];  /* the step after which a slot may be written again */
    size_t used;           /* slots taken so far */
    int *read;             /* per position and segment of the piece: the step that read its contribution */
    int have[SEGMENTS];    /* the step after which the partial sums, or the parts, to be sent next are there */
};

/* Segment j of the part at position q: offset in elements from the vector's (allreduce) or block's start. */
static size_t part_of(const struct ring *g, int q, int j, size_t *elements)
{
    size_t from = 0, length = g->length, at = (size_t)j * g->segment;

    q = (q % g->n + g->n) % g->n;
    if (g->call->kind == SHUNT_COLL_ALLREDUCE) {
        from = shunt__part(g->length, g->n, q);
        length = shunt__part(g->length, g->n, q + 1) - from;
    }
    *elements = at < length ? shunt__min(g->segment, length - at) : 0;
    return g->base + from + at;
}

/* The same as a place in a buffer that holds all ranks' parts. */
static shunt__place_t place_of(const struct ring *g, shunt__place_t buffer, int q, int j, size_t *elements)
{
    size_t at = part_of(g, q, j, elements);

    if (g->call->kind != SHUNT_COLL_ALLREDUCE)
        at += g->call->count * (size_t)g->order[(q % g->n + g->n) % g->n];
    return buffer + at * g->call->width;
}

static int *read_of(const struct ring *g, int q, int j)
{
    return &g->read[((q % g->n + g->n) % g->n) * SEGMENTS + j];
}

/* Afterwards the own part's sum is in SHUNT__OUT, when the steps in have[] are done. */
static void reduce_piece(struct ring *g)
{
    shunt__place_t partial[SEGMENTS] = {0};
    size_t slot[SEGMENTS] = {0};

    for (int step = 0; step < g->n - 1; step++) {
        for (int j = 0; j < SEGMENTS; j++) {
            size_t out, in, w = g->call->width;
            shunt__place_t from = place_of(g, SHUNT__IN, g->position - 1 - step, j, &out);
            shunt__place_t own = place_of(g, SHUNT__IN, g->position - 2 - step, j, &in), sum;
            int sent, got, last = step == g->n - 2;

            if (out) {
                sent = shunt__step_send(g->s, step ? partial[j] : from, out * w, g->next, step ? g->have[j] : SHUNT__NOW);
                if (step)
                    g->slot_free[slot[j]] = sent;
                else
                    *read_of(g, g->position - 1, j) = sent;
            }
            if (!in)
                continue;
            slot[j] = g->used++ % SLOTS;
            partial[j] = g->slots + slot[j] * g->segment * w;
            got = shunt__step_recv(g->s, partial[j], in * w, g->previous, g->slot_free[slot[j]]);
            sum = partial[j];
            if (last)
                sum = SHUNT__OUT + part_of(g, g->position, j, &in) * w;
            g->have[j] = shunt__step_reduce(g->s, sum, partial[j], own, in * w, got);
            g->slot_free[slot[j]] = g->have[j];
            *read_of(g, g->position - 2 - step, j) = g->have[j];
        }
    }
}

/* The own part is at `own` when have[] is done; all others arrive in SHUNT__OUT. */
static void gather_piece(struct ring *g, shunt__place_t own, int own_is_block)
{
    for (int step = 0; step < g->n - 1; step++) {
        for (int j = 0; j < SEGMENTS; j++) {
            size_t out, in, w = g->call->width;
            shunt__place_t from = place_of(g, SHUNT__OUT, g->position - step, j, &out);
            shunt__place_t to = place_of(g, SHUNT__OUT, g->position - 1 - step, j, &in);

            if (step == 0 && own_is_block)
                from = own + part_of(g, g->position, j, &out) * w;
            if (out)
                shunt__step_send(g->s, from, out * w, g->next, g->have[j]);
            if (in)
                g->have[j] = shunt__step_recv(g->s, to, in * w, g->previous,
                                              g->call->in_place ? *read_of(g, g->position - 1 - step, j) : SHUNT__NOW);
        }
    }
}

static void run_ring(struct shunt__schedule *s, const struct shunt__call *call, int reduce, int gather)
{
    struct ring g = {.s = s, .call = call, .n = call->size};
    size_t parts = call->kind == SHUNT_COLL_ALLREDUCE ? (size_t)call->size : 1, piece;

    g.segment = shunt__segment_elements(call->segment ? call->segment : SEGMENT, call->width);
    g.segment = shunt__min(g.segment, ((call->count + parts - 1) / parts + SEGMENTS - 1) / SEGMENTS);
    if (call->count * call->width <= parts * 16 * 1024) /* too short to be cut */
        g.segment = (call->count + parts - 1) / parts;
    piece = g.segment * SEGMENTS * parts;
    g.order = malloc((size_t)g.n * sizeof(*g.order));
    g.read = malloc((size_t)g.n * SEGMENTS * sizeof(*g.read));
    if (!g.order || !g.read) {
        s->failed = 1;
    } else {
        g.position = shunt__host_order(call, -1, g.order);
        g.next = g.order[(g.position + 1) % g.n];
        g.previous = g.order[(g.position - 1 + g.n) % g.n];
        if (reduce)
            g.slots = shunt__schedule_work(s, SLOTS * g.segment * call->width);
        memset(g.slot_free, -1, sizeof(g.slot_free));
        for (g.base = 0; g.base < call->count; g.base += piece) {
            g.length = shunt__min(piece, call->count - g.base);
            memset(g.read, -1, (size_t)g.n * SEGMENTS * sizeof(*g.read));
            memset(g.have, -1, sizeof(g.have));
            if (reduce)
                reduce_piece(&g);
            if (gather)
                gather_piece(&g, SHUNT__IN, !reduce);
        }
    }
    free(g.order);
    free(g.read);
}

void shunt__allreduce_ring(struct shunt__schedule *s, const struct shunt__call *call)
{
    run_ring(s, call, 1, 1);
}

void shunt__reduce_scatter_ring(struct shunt__schedule *s, const struct shunt__call *call)
{
    run_ring(s, call, 1, 0);
}

void shunt__allgather_ring(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t block = call->count * call->width;

    run_ring(s, call, 0, 1);
    if (!call->in_place)
        shunt__step_copy_parts(s, SHUNT__OUT + block * (size_t)call->rank, SHUNT__IN, block, SHUNT__NOW);
}
