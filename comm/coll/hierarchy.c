/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hierarchical allreduce, for several ranks per host.
 *
 * With C columns (as many as the host with the fewest ranks has, for short vectors one) the vector is cut into C slices:
 *
 *   A  within the host, every rank sends slice c to the host's c-th rank, which adds the host's contributions
 *   B  across hosts, the c-th ranks add their slices: each of H hosts adds 1/H of the slice for all the others
 *      (two steps); a short vector is sent whole to every other host, where the same sum is made (one step)
 *   C  within the host, the c-th rank gives slice c to all
 *
 * Per host, 2 S (H-1)/H bytes go out and come in, the least possible, spread over C ranks and so over their NICs. Per rank:
 * A S (1 or less), B 2 S/C (H-1)/H, C S/C (n_local - 1). 4 steps, of which 2 cross hosts (short: 3 and 1). Additions go in
 * rank order within a host, then in order of hosts. Large vectors are cut into pieces; the stages of several pieces are under
 * way at once.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/coll/coll.h"
#include "comm/coll/order.h"
#include "comm/coll/schedule.h"

#define SHORT (32 * 1024)
/* Bytes of one slice of a piece. */
#define SLICE (128 * 1024)
#define LOOKAHEAD 3 /* stages that overlap: piece k in A, k-1 in B, k-2 in C */

struct hierarchy {
    struct shunt__schedule *s;
    const struct shunt__call *call;
    struct shunt__host_shape shape;
    int *members;                /* members[h * columns + c]: the rank of column c on host h */
    int *locals;                 /* ranks of this host */
    int columns, host, whole;    /* whole: B sends the slice uncut */
    size_t piece, slice;         /* elements, at most */
    size_t base, length;
    shunt__place_t local_slots, sums, host_slots;
    struct {                     /* per piece under way */
        int *sent;               /* stage A's sends per column: what comes back in C waits, in place */
        int summed;              /* A's addition */
        int finished;            /* B: the slice is complete in SHUNT__OUT */
        int host_added;          /* B's addition: its slots are free */
        int sums_sent;           /* B's sends of the local sum are over: its place is free */
    } live[LOOKAHEAD];
};

static void piece_at(struct hierarchy *h, size_t k)
{
    h->base = k * h->piece;
    h->length = shunt__min(h->piece, h->call->count - h->base);
}

static size_t slice_of(const struct hierarchy *h, int c, size_t *elements)
{
    size_t at = shunt__part(h->length, h->columns, c);

    *elements = shunt__part(h->length, h->columns, c + 1) - at;
    return h->base + at;
}

static void stage_a(struct hierarchy *h, size_t k)
{
    const struct shunt__call *call = h->call;
    int n = h->shape.n_local, me = h->shape.local, all = shunt__step_join(h->s), column = me < h->columns;
    size_t w = call->width, own = 0, at = 0, i_live = k % LOOKAHEAD;
    shunt__place_t *sources = malloc((size_t)n * sizeof(*sources));
    shunt__place_t sum = h->sums + i_live * h->slice * w;

    if (!sources) {
        h->s->failed = 1;
        return;
    }
    if (column)
        at = slice_of(h, me, &own);
    for (int i = 1; i < n; i++) {
        int to = (me + i) % n, from = (me - i + n) % n;
        size_t elements = 0, there;

        if (to < h->columns) {
            there = slice_of(h, to, &elements);
            h->live[i_live].sent[to] = SHUNT__NOW;
            if (elements)
                h->live[i_live].sent[to] =
                    shunt__step_send(h->s, SHUNT__IN + there * w, elements * w, h->locals[to], SHUNT__NOW);
        }
        if (own) {
            sources[from] = h->local_slots + (i_live * (size_t)n + (size_t)from) * h->slice * w;
            shunt__step_after(h->s, all, shunt__step_recv(h->s, sources[from], own * w, h->locals[from],
                                                          h->live[i_live].summed));
        }
    }
    if (own) {
        sources[me] = SHUNT__IN + at * w;
        shunt__step_after(h->s, all, h->live[i_live].sums_sent);
        shunt__step_after(h->s, all, h->live[i_live].host_added);
        h->live[i_live].summed = shunt__step_reduce_n(h->s, sum, sources, n, own * w, all);
    }
    free(sources);
}

static void stage_b(struct hierarchy *h, size_t k)
{
    const struct shunt__call *call = h->call;
    int hosts = call->hosts, c = h->shape.local, all, sent_all, done;
    size_t w = call->width, own, at, i_live = k % LOOKAHEAD, mine, mine_at;
    shunt__place_t sum = h->sums + i_live * h->slice * w, *sources;

    if (c >= h->columns)
        return;
    at = slice_of(h, c, &own);
    if (!own)
        return;
    sources = malloc((size_t)hosts * sizeof(*sources));
    if (!sources) {
        h->s->failed = 1;
        return;
    }
    mine_at = h->whole ? 0 : shunt__part(own, hosts, h->host);
    mine = h->whole ? own : shunt__part(own, hosts, h->host + 1) - mine_at;
    all = shunt__step_join(h->s);
    sent_all = shunt__step_join(h->s);
    done = shunt__step_join(h->s);
    shunt__step_after(h->s, all, h->live[i_live].summed);
    for (int i = 1; i < hosts; i++) {
        int to = (h->host + i) % hosts, from = (h->host - i + hosts) % hosts;
        size_t to_at = h->whole ? 0 : shunt__part(own, hosts, to);
        size_t to_n = h->whole ? own : shunt__part(own, hosts, to + 1) - to_at;

        if (to_n)
            shunt__step_after(h->s, sent_all, shunt__step_send(h->s, sum + to_at * w, to_n * w,
                                                               h->members[to * h->columns + c], h->live[i_live].summed));
        if (mine) {
            sources[from] = h->host_slots + (i_live * (size_t)hosts + (size_t)from) * h->slice * w;
            shunt__step_after(h->s, all, shunt__step_recv(h->s, sources[from], mine * w,
                                                          h->members[from * h->columns + c], h->live[i_live].host_added));
        }
    }
    if (mine) {
        sources[h->host] = sum + mine_at * w;
        h->live[i_live].host_added =
            shunt__step_reduce_n(h->s, SHUNT__OUT + (at + mine_at) * w, sources, hosts, mine * w, all);
        shunt__step_after(h->s, done, h->live[i_live].host_added);
    }
    for (int i = 1; i < hosts && !h->whole; i++) {
        int to = (h->host + i) % hosts, from = (h->host - i + hosts) % hosts;
        size_t from_at = shunt__part(own, hosts, from), from_n = shunt__part(own, hosts, from + 1) - from_at;

        if (mine)
            shunt__step_send(h->s, SHUNT__OUT + (at + mine_at) * w, mine * w, h->members[to * h->columns + c],
                             h->live[i_live].host_added);
        if (from_n) /* our own contribution to that part was read by stage A's addition */
            shunt__step_after(h->s, done, shunt__step_recv(h->s, SHUNT__OUT + (at + from_at) * w, from_n * w,
                                                           h->members[from * h->columns + c], h->live[i_live].summed));
    }
    h->live[i_live].sums_sent = sent_all;
    h->live[i_live].finished = done;
    free(sources);
}

static void stage_c(struct hierarchy *h, size_t k)
{
    int n = h->shape.n_local, me = h->shape.local;
    size_t w = h->call->width, own = 0, at = 0, i_live = k % LOOKAHEAD;

    if (me < h->columns)
        at = slice_of(h, me, &own);
    for (int i = 1; i < n; i++) {
        int to = (me + i) % n, from = (me - i + n) % n;
        size_t elements = 0, there = 0;

        if (own)
            shunt__step_send(h->s, SHUNT__OUT + at * w, own * w, h->locals[to], h->live[i_live].finished);
        if (from < h->columns)
            there = slice_of(h, from, &elements);
        if (elements)
            shunt__step_recv(h->s, SHUNT__OUT + there * w, elements * w, h->locals[from],
                             h->call->in_place ? h->live[i_live].sent[from] : SHUNT__NOW);
    }
}

static int prepare(struct hierarchy *h)
{
    const struct shunt__call *call = h->call;
    int *counts = calloc((size_t)call->hosts, sizeof(*counts));

    if (!counts)
        return 0;
    shunt__host_shape(call, counts, &h->shape);
    h->whole = call->count * call->width <= SHORT && call->hosts <= 8;
    h->columns = call->count * call->width <= SHORT ? 1 : h->shape.fewest;
    h->host = call->host_of[call->rank];
    h->members = malloc((size_t)call->hosts * (size_t)h->columns * sizeof(*h->members));
    h->locals = malloc((size_t)h->shape.n_local * sizeof(*h->locals));
    for (int i = 0; i < LOOKAHEAD; i++) {
        h->live[i].sent = malloc((size_t)h->columns * sizeof(int));
        h->live[i].summed = h->live[i].finished = h->live[i].host_added = h->live[i].sums_sent = SHUNT__NOW;
        if (!h->live[i].sent) {
            free(counts);
            return 0;
        }
        memset(h->live[i].sent, -1, (size_t)h->columns * sizeof(int));
    }
    if (h->members && h->locals) {
        memset(counts, 0, (size_t)call->hosts * sizeof(*counts));
        for (int r = 0; r < call->size; r++) {
            int host = call->host_of[r], c = counts[host]++;

            if (c < h->columns)
                h->members[host * h->columns + c] = r;
            if (host == h->host)
                h->locals[c] = r;
        }
    }
    free(counts);
    return h->members && h->locals;
}

void shunt__allreduce_hierarchical(struct shunt__schedule *s, const struct shunt__call *call)
{
    struct hierarchy h = {.s = s, .call = call};
    size_t pieces;

    if (!prepare(&h)) {
        s->failed = 1;
    } else {
        h.slice = shunt__segment_elements(call->segment ? call->segment : SLICE, call->width);
        h.slice = shunt__min(h.slice, (call->count + (size_t)h.columns - 1) / (size_t)h.columns);
        h.piece = h.slice * (size_t)h.columns;
        pieces = (call->count + h.piece - 1) / h.piece;
        if (h.shape.local < h.columns) {
            h.local_slots = shunt__schedule_work(s, LOOKAHEAD * (size_t)h.shape.n_local * h.slice * call->width);
            h.sums = shunt__schedule_work(s, LOOKAHEAD * h.slice * call->width);
            h.host_slots = shunt__schedule_work(s, LOOKAHEAD * (size_t)call->hosts * h.slice * call->width);
        }
        for (size_t k = 0; k < pieces + LOOKAHEAD - 1; k++) {
            for (int stage = 0; stage < LOOKAHEAD; stage++) {
                static void (*const stages[LOOKAHEAD])(struct hierarchy *, size_t) = {stage_a, stage_b, stage_c};

                if (k < (size_t)stage || k - (size_t)stage >= pieces)
                    continue;
                piece_at(&h, k - (size_t)stage);
                stages[stage](&h, k - (size_t)stage);
            }
        }
    }
    for (int i = 0; i < LOOKAHEAD; i++)
        free(h.live[i].sent);
    free(h.members);
    free(h.locals);
}
