/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory two processes share: one byte ring in each direction, single producer, single consumer.
 *
 *     page 0          struct shunt__ring_end of end 0, then of end 1
 *     page 1 ...      ring written by end 0
 *     then            ring written by end 1
 *
 * A ring holds records. A record starts on a cache line with its marker, one word that is zero until the record is
 * whole. The consumer looks at the marker where the next record will be, so one cache line brings both the news and
 * the start of the record; no index is read. Before a marker is set, the producer has cleared the one that follows.
 * A record is contiguous: one that would cross the ring's end is preceded by a SKIP record that fills the rest.
 *
 * A consumer may sleep. `attention` of an end means: whoever changes something for this end (a record, or room and
 * acceptances in the ring it writes) must say so in its process's bell page (shm.h). Both sides store what they have
 * to say and then load the other's word, sequentially consistent, so at least one of them sees the other.
 *
 * Nothing read from the other process is trusted beyond bounds: SHUNT__RING_BROKEN instead of a wild access.
 */
#ifndef SHUNT_RAIL_SHM_RING_H
#define SHUNT_RAIL_SHM_RING_H

#include <stddef.h>
#include <stdint.h>

#define SHUNT__RING_LINE 64u
#define SHUNT__RING_HEADER 4096u
#define SHUNT__RING_MIN (32u << 10)
#define SHUNT__RING_MAX (64u << 20)

/* Marker: length in the low half, these above. */
#define SHUNT__RING_WHOLE (1ull << 32) /* always set, so that no marker is zero */
#define SHUNT__RING_SKIP (1ull << 33)  /* nothing in it */
#define SHUNT__RING_FIRST (1ull << 34) /* a frame's header and first bytes */
#define SHUNT__RING_LAST (1ull << 35)  /* a frame's last bytes */

struct shunt__ring_end {
    _Alignas(2 * SHUNT__RING_LINE) uint64_t attention;
    uint64_t closed; /* this end has gone on purpose */
    _Alignas(2 * SHUNT__RING_LINE) uint64_t head; /* bytes of the other's ring that this end has consumed */
    uint64_t frames;                              /* frames among them */
};

struct shunt__ring_producer {
    uint8_t *data;
    uint64_t size;                       /* a power of two */
    uint64_t tail;                       /* bytes written */
    uint64_t head;                       /* bytes consumed, as last read */
    const struct shunt__ring_end *other; /* where the consumer says so */
};

struct shunt__ring_consumer {
    uint8_t *data;
    uint64_t size;
    uint64_t head;   /* bytes consumed */
    uint64_t frames; /* frames consumed */
    uint64_t told;   /* value of `head` that the producer can see */
    struct shunt__ring_end *own;
};

struct shunt__ring_record {
    uint64_t marker;
    uint8_t *start; /* the marker's place; the content follows it */
    uint32_t length;
};

enum shunt__ring_state { SHUNT__RING_EMPTY, SHUNT__RING_RECORD, SHUNT__RING_BROKEN = -1 };

static inline uint64_t *shunt__ring_marker(uint8_t *data, uint64_t at)
{
    return (uint64_t *)(void *)(data + at);
}

/* Reads how far the consumer is; nonzero when that is impossible. */
static inline int shunt__ring_refresh(struct shunt__ring_producer *p)
{
    uint64_t head = __atomic_load_n(&p->other->head, __ATOMIC_ACQUIRE);

    if (head < p->head || head > p->tail)
        return -1;
    p->head = head;
    return 0;
}

/* The longest record that always fits at last, whatever the position. */
static inline uint32_t shunt__ring_record_max(uint64_t size)
{
    return (uint32_t)(size / 4);
}

/*
 * Room for a contiguous record of `length` bytes (rounded up to lines, at most shunt__ring_record_max), or NULL.
 * When everything has been consumed it may start over at the ring's beginning: the smaller the part of the ring in
 * use, the more of it stays in the caches, and pages of a ring that carries little are never touched.
 */
uint8_t *shunt__ring_reserve(struct shunt__ring_producer *p, uint32_t length);

static inline uint32_t shunt__ring_round(uint32_t length)
{
    return (length + SHUNT__RING_LINE - 1) & ~(SHUNT__RING_LINE - 1);
}

/* Makes the record that reserve() gave visible. Sequentially consistent: load the consumer's attention after it. */
static inline void shunt__ring_publish(struct shunt__ring_producer *p, uint32_t length, uint64_t flags)
{
    uint64_t at = p->tail & (p->size - 1);

    length = shunt__ring_round(length);
    *shunt__ring_marker(p->data, (at + length) & (p->size - 1)) = 0;
    p->tail += length;
    __atomic_store_n(shunt__ring_marker(p->data, at), SHUNT__RING_WHOLE | flags | length, __ATOMIC_SEQ_CST);
}

/* The next record, without consuming it; skips are consumed on the way. */
enum shunt__ring_state shunt__ring_next(struct shunt__ring_consumer *c, struct shunt__ring_record *record);

/* Cheap question whether there is anything. Sequentially consistent: may follow a store of `attention`. */
static inline int shunt__ring_waiting(const struct shunt__ring_consumer *c)
{
    return __atomic_load_n(shunt__ring_marker(c->data, c->head & (c->size - 1)), __ATOMIC_SEQ_CST) != 0;
}

static inline void shunt__ring_consume(struct shunt__ring_consumer *c, const struct shunt__ring_record *record)
{
    c->head += record->length;
    c->frames += (record->marker & SHUNT__RING_LAST) != 0;
}

/* Tells the producer. Sequentially consistent: load the producer's attention after it. */
static inline void shunt__ring_tell(struct shunt__ring_consumer *c)
{
    c->told = c->head;
    __atomic_store_n(&c->own->frames, c->frames, __ATOMIC_RELEASE);
    __atomic_store_n(&c->own->head, c->head, __ATOMIC_SEQ_CST);
}

#endif
