/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/rail/shm_ring.h"

/* With less than this in use there is nothing to gain from starting over. */
#define START_OVER (16u << 10)

/*
 * Whether to start over before the ring's end. A page that nobody has touched costs both sides a fault, so none is begun
 * while almost all of what has been touched is free. (Until the consumer is here, that is all the ring there is.)
 */
static int start_over(struct shunt__ring_producer *p, uint64_t at, uint32_t length)
{
    if (at < START_OVER)
        return 0;
    if (p->head == p->tail)
        return 1;
    if (at < 2 * START_OVER || at + length <= p->touched)
        return 0;
    if (p->tail - p->head > at / 2 && shunt__ring_refresh(p))
        return 0;
    return p->tail - p->head <= at / 2 &&
           shunt__ring_free(p) >= length + SHUNT__RING_LINE + p->size - at;
}

uint8_t *shunt__ring_reserve(struct shunt__ring_producer *p, uint32_t length)
{
    uint64_t at = p->tail & (p->size - 1), rest = p->size - at;
    int wrap;

    length = shunt__ring_round(length);
    wrap = rest < length || start_over(p, at, length);
    /* One line more than the record: the marker behind it is cleared too. */
    if (shunt__ring_free(p) < length + SHUNT__RING_LINE + (wrap ? rest : 0)) {
        if (shunt__ring_refresh(p))
            return NULL;
        wrap = rest < length; /* starting over is for free or not at all */
        if (shunt__ring_free(p) < length + SHUNT__RING_LINE + (wrap ? rest : 0))
            return NULL;
    }
    if (wrap) {
        p->tail += rest;
        if (p->cleared < p->tail) {
            *shunt__ring_marker(p->data, 0) = 0;
            p->cleared = p->tail;
        }
        __atomic_store_n(shunt__ring_marker(p->data, at), SHUNT__RING_SKIP | rest / SHUNT__RING_LINE << 4,
                         __ATOMIC_RELEASE);
        at = 0;
    }
    if (at + length > p->touched)
        p->touched = at + length;
    return p->data + at;
}

enum shunt__ring_state shunt__ring_next(struct shunt__ring_consumer *c, struct shunt__ring_record *record)
{
    for (;;) {
        uint64_t at = c->head & (c->size - 1);
        uint64_t marker = __atomic_load_n(shunt__ring_marker(c->data, at), __ATOMIC_ACQUIRE);
        uint64_t length = (marker >> 4 & SHUNT__RING_FIELD) * SHUNT__RING_LINE;
        enum shunt__ring_kind kind = (enum shunt__ring_kind)(marker & 15);

        if (marker == 0)
            return SHUNT__RING_EMPTY;
        if (kind == SHUNT__RING_NONE || kind >= SHUNT__RING_KINDS || length == 0 || length > c->size - at)
            return SHUNT__RING_BROKEN;
        if (kind != SHUNT__RING_SKIP) {
            *record = (struct shunt__ring_record){
                .marker = marker, .start = c->data + at, .length = (uint32_t)length, .kind = kind};
            return SHUNT__RING_RECORD;
        }
        if (length != c->size - at || at == 0)
            return SHUNT__RING_BROKEN; /* nobody skips the whole ring, and doing so would never end */
        c->head += length;
    }
}
