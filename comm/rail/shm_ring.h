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
 * the start of the record; no index is read. Before a marker is set, the one that follows has been cleared. A record
 * is contiguous: one that would cross the ring's end is preceded by a SKIP that fills the rest.
 *
 * The marker also reports what its writer has consumed of the other ring, so that of two processes that answer each
 * other neither touches any other line. Without a record to send, the report goes to the shunt__ring_end (tell).
 *
 * A consumer may sleep. `attention` of an end means: whoever changes something for this end (a record, or a report)
 * must say so in its process's bell page (shm.h). Both sides store what they have to say and then load the other's
 * word, sequentially consistent, so at least one of them sees the other.
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
#define SHUNT__RING_MAX (16u << 20) /* lines in flight are then told apart by 20 bits with a bit to spare */

/* Marker, from the lowest bit: kind (4), length in lines (20), frames consumed (20), lines consumed (20). */
enum shunt__ring_kind {
    SHUNT__RING_NONE,
    SHUNT__RING_SKIP,   /* nothing in it */
    SHUNT__RING_FIRST,  /* a frame's header and first bytes */
    SHUNT__RING_MIDDLE, /* more of them */
    SHUNT__RING_LAST,   /* a frame's last bytes */
    SHUNT__RING_ONLY,   /* a whole frame */
    SHUNT__RING_SMALL,  /* a whole frame in one line */
    SHUNT__RING_DIRECT, /* a frame's header and where its payload lies in the sender's memory */
    SHUNT__RING_KINDS
};
#define SHUNT__RING_FIELD 0xfffffu

struct shunt__ring_end {
    _Alignas(2 * SHUNT__RING_LINE) uint64_t attention;
    uint64_t closed; /* this end has gone on purpose */
    uint64_t reads;  /* this end can read the other's memory */
    _Alignas(2 * SHUNT__RING_LINE) uint64_t head; /* bytes of the other's ring that this end has consumed */
    uint64_t frames;                              /* frames among them */
};

struct shunt__ring_producer {
    uint8_t *data;
    uint64_t size;    /* a power of two */
    uint64_t tail;    /* bytes written */
    uint64_t cleared; /* all markers from tail to here are zero */
    uint64_t touched; /* the ring has been used up to here */
    uint64_t head;    /* bytes consumed, as far as known */
    uint64_t frames;  /* frames consumed, as far as known */
    uint64_t sent;    /* frames written or begun */
    const struct shunt__ring_end *other; /* where the consumer tells it */
};

struct shunt__ring_consumer {
    uint8_t *data;
    uint64_t size;
    uint64_t head;   /* bytes consumed */
    uint64_t frames; /* frames consumed */
    uint64_t told;   /* value of `head` that the producer has been told */
    struct shunt__ring_end *own;
};

struct shunt__ring_record {
    uint64_t marker;
    uint8_t *start; /* the marker's place; the content follows it */
    uint32_t length;
    enum shunt__ring_kind kind;
};

enum shunt__ring_state { SHUNT__RING_EMPTY, SHUNT__RING_RECORD, SHUNT__RING_BROKEN = -1 };

static inline uint64_t *shunt__ring_marker(uint8_t *data, uint64_t at)
{
    return (uint64_t *)(void *)(data + at);
}

static inline uint64_t shunt__ring_free(const struct shunt__ring_producer *p)
{
    return p->size - (p->tail - p->head);
}

/* Reads how far the consumer says it is; nonzero when that is impossible. */
static inline int shunt__ring_refresh(struct shunt__ring_producer *p)
{
    uint64_t head = __atomic_load_n(&p->other->head, __ATOMIC_ACQUIRE); /* written after frames */
    uint64_t frames = __atomic_load_n(&p->other->frames, __ATOMIC_RELAXED);

    if (head > p->tail || frames > p->sent)
        return -1;
    /* A report in a record may have been newer. */
    if (head > p->head)
        p->head = head;
    if (frames > p->frames)
        p->frames = frames;
    return 0;
}

/* The same from the report in a record's marker. */
static inline int shunt__ring_reported(struct shunt__ring_producer *p, uint64_t marker)
{
    uint64_t frames = ((marker >> 24) - p->frames) & SHUNT__RING_FIELD;
    uint64_t lines = ((marker >> 44) - p->head / SHUNT__RING_LINE) & SHUNT__RING_FIELD;

    if (frames > SHUNT__RING_FIELD / 2) /* older than what the consumer told since */
        frames = 0;
    if (lines > SHUNT__RING_FIELD / 2)
        lines = 0;
    if (p->frames + frames > p->sent || p->head + lines * SHUNT__RING_LINE > p->tail)
        return -1;
    p->frames += frames;
    p->head += lines * SHUNT__RING_LINE;
    return 0;
}

/* The longest record that always fits at last, whatever the position. */
static inline uint32_t shunt__ring_record_max(uint64_t size)
{
    return (uint32_t)(size / 4);
}

static inline uint32_t shunt__ring_round(uint32_t length)
{
    return (length + SHUNT__RING_LINE - 1) & ~(SHUNT__RING_LINE - 1);
}

/*
 * Room for a contiguous record of `length` bytes (rounded up to lines, at most shunt__ring_record_max), or NULL.
 * It may start over at the ring's beginning: the smaller the part of the ring in use, the more of it stays in the
 * caches, and pages of a ring that carries little are never touched.
 */
uint8_t *shunt__ring_reserve(struct shunt__ring_producer *p, uint32_t length);

/*
 * Makes the record that reserve() gave visible, with a report of what `in` has consumed. Sequentially consistent:
 * load the consumer's attention after it.
 */
static inline void shunt__ring_publish(struct shunt__ring_producer *p, uint32_t length, enum shunt__ring_kind kind,
                                       struct shunt__ring_consumer *in)
{
    uint64_t at = p->tail & (p->size - 1), lines = shunt__ring_round(length) / SHUNT__RING_LINE;
    uint64_t end = p->tail + lines * SHUNT__RING_LINE;
    uint64_t marker = (uint64_t)kind | lines << 4 | (in->frames & SHUNT__RING_FIELD) << 24 |
                      (in->head / SHUNT__RING_LINE & SHUNT__RING_FIELD) << 44;

    if (end > p->cleared) {
        *shunt__ring_marker(p->data, end & (p->size - 1)) = 0;
        p->cleared = end;
    }
    p->tail = end;
    in->told = in->head;
    __atomic_store_n(shunt__ring_marker(p->data, at), marker, __ATOMIC_SEQ_CST);
    /* One marker ahead, so that the next small record need not wait for that line. */
    if (p->cleared == end && shunt__ring_free(p) >= 2 * SHUNT__RING_LINE) {
        *shunt__ring_marker(p->data, (end + SHUNT__RING_LINE) & (p->size - 1)) = 0;
        p->cleared = end + SHUNT__RING_LINE;
    }
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
    c->frames += record->kind >= SHUNT__RING_LAST;
}

/*
 * Lets a producer that happens to look see how far the consumer is, without the fence that a sleeping one would need: what
 * it waits for is then behind it when the answer comes. Counts as told only when shunt__ring_tell() or a record has said it.
 */
static inline void shunt__ring_hint(struct shunt__ring_consumer *c)
{
    __atomic_store_n(&c->own->frames, c->frames, __ATOMIC_RELAXED);
    __atomic_store_n(&c->own->head, c->head, __ATOMIC_RELEASE);
}

/* Tells the producer without a record. Sequentially consistent: load the producer's attention after it. */
static inline void shunt__ring_tell(struct shunt__ring_consumer *c)
{
    c->told = c->head;
    __atomic_store_n(&c->own->frames, c->frames, __ATOMIC_RELEASE);
    __atomic_store_n(&c->own->head, c->head, __ATOMIC_SEQ_CST);
}

#endif
