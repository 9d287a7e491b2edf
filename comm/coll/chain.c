/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pipelined chains, for large vectors with one root.
 *
 * The ranks stand in a row that begins with the root, hosts together. A broadcast passes segments down the row, a
 * reduction passes sums up it, each rank adding the sum of those behind it to its own contribution. Every rank sends and
 * receives S once, every host is entered once; the last rank is n-1 segments behind the first.
 */
#include <stdlib.h>
#include "comm/coll/coll.h"
#include "comm/coll/order.h"
#include "comm/coll/schedule.h"

#define SEGMENT (128 * 1024)
#define SLOTS 4

/* The neighbours' ranks, -1 at the ends. */
static int stand(struct shunt__schedule *s, const struct shunt__call *call, int *before, int *behind)
{
    int *order = malloc((size_t)call->size * sizeof(*order)), position;

    if (!order) {
        s->failed = 1;
        return 0;
    }
    position = shunt__host_order(call, call->root, order);
    *before = position ? order[position - 1] : -1;
    *behind = position + 1 < call->size ? order[position + 1] : -1;
    free(order);
    return 1;
}

void shunt__broadcast_chain(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t bytes = call->count * call->width, segment = call->segment ? call->segment : SEGMENT;
    int before, behind;

    if (!stand(s, call, &before, &behind))
        return;
    for (size_t at = 0; at < bytes; at += segment) {
        size_t part = shunt__min(segment, bytes - at);
        int have = SHUNT__NOW;

        if (before >= 0)
            have = shunt__step_recv(s, SHUNT__OUT + at, part, before, SHUNT__NOW);
        if (behind >= 0)
            shunt__step_send(s, (before < 0 ? SHUNT__IN : SHUNT__OUT) + at, part, behind, have);
    }
    if (before < 0 && !call->in_place)
        shunt__step_copy_parts(s, SHUNT__OUT, SHUNT__IN, bytes, SHUNT__NOW);
}

void shunt__reduce_chain(struct shunt__schedule *s, const struct shunt__call *call)
{
    size_t bytes = call->count * call->width;
    size_t segment = shunt__segment_elements(call->segment ? call->segment : SEGMENT, call->width) * call->width;
    int before, behind, freed[SLOTS] = {SHUNT__NOW, SHUNT__NOW, SHUNT__NOW, SHUNT__NOW}, k = 0;
    shunt__place_t slots = 0;

    if (!stand(s, call, &before, &behind))
        return;
    segment = shunt__min(segment, bytes);
    if (behind >= 0)
        slots = shunt__schedule_work(s, SLOTS * segment);
    for (size_t at = 0; at < bytes; at += segment, k = (k + 1) % SLOTS) {
        size_t part = shunt__min(segment, bytes - at);
        shunt__place_t sum = SHUNT__IN + at;
        int have = SHUNT__NOW;

        if (behind >= 0) {
            shunt__place_t slot = slots + (size_t)k * segment;
            int got = shunt__step_recv(s, slot, part, behind, freed[k]);

            sum = before < 0 ? SHUNT__OUT + at : slot;
            have = freed[k] = shunt__step_reduce(s, sum, SHUNT__IN + at, slot, part, got);
        }
        if (before >= 0)
            freed[k] = shunt__step_send(s, sum, part, before, have);
    }
}
