/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial trees, for vectors that are so short that the number of steps decides.
 *
 * Positions count from the root, hosts together (order.h), so most edges stay within a host. The parent of position p
 * is p without its lowest set bit; its children are p + 1, p + 2, p + 4 ... below that bit. A broadcast starts
 * with the farthest child, whose subtree is the largest; a reduction ends with it. Subtrees are contiguous ranges of
 * positions, which is what gather and scatter move as one block. ceil(log2 n) steps.
 *
 * In a reduction a rank adds its children's sums in rising order of positions behind its own contribution.
 * Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
 * IJHPCA 19(1), 2005, section 4.3.
 */
#include <stdlib.h>
#include "comm/coll/coll.h"
#include "comm/coll/order.h"
#include "comm/coll/schedule.h"

#define SEGMENT (128 * 1024)
#define SLOTS 3

struct tree {
    int *order, position, n;
    int low; /* the position's lowest set bit: children are at distances below it; for the root, n rounded up */
};

/* Zero when memory is out. */
static int plant(struct tree *t, struct shunt__schedule *s, const struct shunt__call *call)
{
    t->n = call->size;
    t->order = malloc((size_t)t->n * sizeof(*t->order));
    if (!t->order) {
        s->failed = 1;
        return 0;
    }
    t->position = shunt__host_order(call, call->root, t->order);
    for (t->low = 1; t->low < t->n && !(t->position & t->low); t->low *= 2)
        ;
    return 1;
}

static int parent(const struct tree *t)
{
    return t->order[t->position - t->low];
}

/* Positions in the subtree of the child at this distance. */
static int below(const struct tree *t, int distance)
{
    int rest = t->n - (t->position + distance);

    return rest < distance ? rest : distance;
}

void shunt__broadcast_tree(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t bytes = call->count * call->width, segment = call->segment ? call->segment : SEGMENT;
    shunt__place_t from = call->rank == call->root ? SHUNT__IN : SHUNT__OUT;
    struct tree t;

    if (!plant(&t, s, call))
        return;
    for (size_t at = 0; at < bytes; at += segment) {
        size_t part = shunt__min(segment, bytes - at);
        int have = SHUNT__NOW;

        if (t.position)
            have = shunt__step_recv(s, SHUNT__OUT + at, part, parent(&t), SHUNT__NOW);
        for (int d = t.low / 2; d >= 1; d /= 2)
            if (t.position + d < t.n)
                shunt__step_send(s, from + at, part, t.order[t.position + d], have);
    }
    if (call->rank == call->root && !call->in_place)
        shunt__step_copy_parts(s, SHUNT__OUT, SHUNT__IN, bytes, SHUNT__NOW);
    free(t.order);
}

void shunt__reduce_tree(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t bytes = call->count * call->width;
    size_t segment = shunt__segment_elements(call->segment ? call->segment : SEGMENT, call->width) * call->width;
    int sent[SLOTS] = {SHUNT__NOW, SHUNT__NOW, SHUNT__NOW}, added[32][SLOTS], children = 0, k = 0;
    shunt__place_t slots, sums = SHUNT__OUT;
    struct tree t;

    if (!plant(&t, s, call))
        return;
    segment = shunt__min(segment, bytes);
    for (int d = 1; d < t.low && t.position + d < t.n; d *= 2, children++)
        for (int i = 0; i < SLOTS; i++)
            added[children][i] = SHUNT__NOW;
    slots = shunt__schedule_work(s, (size_t)children * SLOTS * segment);
    if (t.position)
        sums = shunt__schedule_work(s, SLOTS * segment);
    for (size_t at = 0; at < bytes; at += segment, k = (k + 1) % SLOTS) {
        size_t part = shunt__min(segment, bytes - at);
        shunt__place_t mine = SHUNT__IN + at, sum = t.position ? sums + (size_t)k * segment : sums + at;
        int have = SHUNT__NOW;

        for (int c = 0; c < children; c++) {
            shunt__place_t slot = slots + ((size_t)c * SLOTS + (size_t)k) * segment;
            int got = shunt__step_recv(s, slot, part, t.order[t.position + (1 << c)], added[c][k]);
            int add = shunt__step_reduce(s, sum, mine, slot, part, got);

            shunt__step_after(s, add, c ? have : sent[k]);
            have = added[c][k] = add;
            mine = sum;
        }
        if (t.position)
            sent[k] = shunt__step_send(s, mine, part, parent(&t), have);
    }
    free(t.order);
}

void shunt__gather_tree(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t block = call->count * call->width;
    shunt__place_t work;
    struct tree t;
    int all, n;

    if (!plant(&t, s, call))
        return;
    n = t.position + t.low <= t.n ? t.low : t.n - t.position; /* ranks in the own subtree */
    if (t.position && n == 1) {
        shunt__step_send(s, SHUNT__IN, block, parent(&t), SHUNT__NOW);
        free(t.order);
        return;
    }
    work = shunt__schedule_work(s, (size_t)n * block);
    all = shunt__step_join(s);
    for (int d = 1; d < t.low && t.position + d < t.n; d *= 2) {
        int got = shunt__step_recv(s, work + (size_t)d * block, (size_t)below(&t, d) * block, t.order[t.position + d],
                                   SHUNT__NOW);

        shunt__step_after(s, all, got);
        for (int i = d; i < d + below(&t, d) && !t.position; i++)
            shunt__step_copy(s, SHUNT__OUT + block * (size_t)t.order[i], work + (size_t)i * block, block, got);
    }
    if (t.position) {
        shunt__step_after(s, all, shunt__step_copy(s, work, SHUNT__IN, block, SHUNT__NOW));
        shunt__step_send(s, work, (size_t)n * block, parent(&t), all);
    } else if (!call->in_place) {
        shunt__step_copy_parts(s, SHUNT__OUT + block * (size_t)call->rank, SHUNT__IN, block, SHUNT__NOW);
    }
    free(t.order);
}

void shunt__scatter_tree(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t block = call->count * call->width;
    int have = SHUNT__NOW, n;
    shunt__place_t work;
    struct tree t;

    if (!plant(&t, s, call))
        return;
    n = t.position + t.low <= t.n ? t.low : t.n - t.position;
    if (t.position && n == 1) {
        shunt__step_recv(s, SHUNT__OUT, block, parent(&t), SHUNT__NOW);
        free(t.order);
        return;
    }
    work = shunt__schedule_work(s, (size_t)n * block);
    if (t.position)
        have = shunt__step_recv(s, work, (size_t)n * block, parent(&t), SHUNT__NOW);
    for (int d = t.low / 2; d >= 1; d /= 2) {
        int ready = have;

        if (t.position + d >= t.n)
            continue;
        if (!t.position) {
            ready = shunt__step_join(s);
            for (int i = d; i < d + below(&t, d); i++)
                shunt__step_after(s, ready, shunt__step_copy(s, work + (size_t)i * block,
                                                             SHUNT__IN + block * (size_t)t.order[i], block, SHUNT__NOW));
        }
        shunt__step_send(s, work + (size_t)d * block, (size_t)below(&t, d) * block, t.order[t.position + d], ready);
    }
    if (t.position)
        shunt__step_copy(s, SHUNT__OUT, work, block, have);
    else if (!call->in_place)
        shunt__step_copy_parts(s, SHUNT__OUT, SHUNT__IN + block * (size_t)call->rank, block, SHUNT__NOW);
    free(t.order);
}
