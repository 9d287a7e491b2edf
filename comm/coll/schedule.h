/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A schedule: what one rank does in a collective, as a graph of steps. It names places, not addresses, so one schedule
 * serves every call of the same shape.
 *
 * A pattern adds steps in an order in which they could also be done one after the other; each says after which
 * earlier steps it may start, and nothing else orders them, except that sends to one peer are posted in the order
 * in which they were added, and receives from one peer likewise: the k-th send of a rank to another meets the
 * other's k-th receive from it.
 *
 *     struct shunt__schedule *s = shunt__schedule_new(call->size);
 *     int got = shunt__step_recv(s, work, bytes, peer, SHUNT__NOW);
 *     shunt__step_reduce(s, SHUNT__OUT, SHUNT__IN, work, bytes, got);
 *     if (shunt__schedule_seal(s)) ... ready to run
 *
 * Whoever writes a place that an earlier step reads must come after it; tests/coll/patterns.c looks for races.
 */
#ifndef SHUNT_COLL_SCHEDULE_H
#define SHUNT_COLL_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

/* A buffer in the two upper bits, bytes from its start below. */
typedef uint64_t shunt__place_t;
#define SHUNT__IN ((shunt__place_t)0)         /* the caller's send buffer */
#define SHUNT__OUT ((shunt__place_t)1 << 62)  /* the caller's recv buffer */
#define SHUNT__WORK ((shunt__place_t)2 << 62) /* scratch, from shunt__schedule_work() */
#define SHUNT__SPACE(place) ((int)((place) >> 62))
#define SHUNT__OFFSET(place) ((place) & (((shunt__place_t)1 << 62) - 1))

enum shunt__step_kind {
    SHUNT__STEP_SEND,   /* a .. to peer */
    SHUNT__STEP_RECV,   /* from peer to dst */
    SHUNT__STEP_REDUCE, /* dst = sources[first_source] op ... op sources[first_source + n_sources - 1] */
    SHUNT__STEP_COPY,   /* dst = a */
    SHUNT__STEP_JOIN    /* nothing: stands for all that it comes after */
};

/* Whoever is the first to send to a peer says hello (hello.h), in front of the payload of short messages ... */
#define SHUNT__HELLO_INLINE 1
/* ... or by a message of its own. Such a step has no payload. */
#define SHUNT__HELLO_ALONE 2
/* Payloads up to this many bytes travel behind the hello. */
#define SHUNT__INLINE_BYTES 8192

struct shunt__step {
    uint8_t kind, hello;
    uint16_t n_sources;
    int32_t peer;
    shunt__place_t dst, a;
    uint64_t bytes;
    uint64_t slot;          /* hello steps: offset in the run's slots */
    uint32_t first_source;
    uint32_t needs;         /* steps this one comes after */
    uint32_t first_next, n_next; /* in nexts[]: steps that come after this one */
    uint32_t op;            /* sends and receives: dense number */
    uint32_t lane;          /* the queue of its peer and direction */
    int32_t next_in_lane;
};

struct shunt__schedule {
    int refs;
    int failed;             /* memory ran out */
    const char *algorithm;
    struct shunt__step *steps;
    uint32_t n_steps, cap_steps;
    shunt__place_t *sources;
    uint32_t n_sources, cap_sources;
    struct shunt__edge {
        uint32_t from, to;
    } *edges;               /* until sealed */
    uint32_t n_edges, cap_edges;
    uint32_t *nexts;        /* from here on: once sealed */
    uint32_t n_ops, n_lanes;
    int32_t *lane_first;
    uint32_t most_sources;  /* of one addition */
    size_t work, slots;     /* bytes of scratch, bytes for hellos */
    int size;
    int32_t *last[2];       /* per peer, the last send and receive; until sealed */
};

#define SHUNT__NOW (-1) /* comes after nothing */

struct shunt__schedule *shunt__schedule_new(int size);
/* Ends the building; nonzero when it can be run, zero when memory ran out on the way. */
int shunt__schedule_seal(struct shunt__schedule *s);
/* Drops a reference; the last one frees it. NULL is allowed. */
void shunt__schedule_put(struct shunt__schedule *s);

/* `bytes` of scratch, aligned to 64. */
shunt__place_t shunt__schedule_work(struct shunt__schedule *s, size_t bytes);

/* Each returns the step's number. `after` may be SHUNT__NOW. Messages without bytes are for barriers only. */
int shunt__step_send(struct shunt__schedule *s, shunt__place_t from, size_t bytes, int peer, int after);
int shunt__step_recv(struct shunt__schedule *s, shunt__place_t to, size_t bytes, int peer, int after);
int shunt__step_reduce(struct shunt__schedule *s, shunt__place_t dst, shunt__place_t a, shunt__place_t b,
                       size_t bytes, int after);
/* Each source is read once; dst may be one of them when n is at most SHUNT__REDUCE_SOURCES, else only the first. */
int shunt__step_reduce_n(struct shunt__schedule *s, shunt__place_t dst, const shunt__place_t *sources, int n,
                         size_t bytes, int after);
int shunt__step_copy(struct shunt__schedule *s, shunt__place_t dst, shunt__place_t from, size_t bytes, int after);
int shunt__step_join(struct shunt__schedule *s);
/* `step` comes after `before` too. SHUNT__NOW is ignored. Gives `step` back. */
int shunt__step_after(struct shunt__schedule *s, int step, int before);

/* A large copy, in parts that do not hold up messages for long. */
void shunt__step_copy_parts(struct shunt__schedule *s, shunt__place_t dst, shunt__place_t from, size_t bytes,
                            int after);

/* ---- for patterns ---- */

/* Part i of n nearly equal parts of `count` elements: its first element; part n's is `count`. */
static inline size_t shunt__part(size_t count, int n, int i)
{
    size_t whole = count / (size_t)n, rest = count % (size_t)n;

    return whole * (size_t)i + ((size_t)i < rest ? (size_t)i : rest);
}

/* Elements per segment of about `bytes`, at least one. */
static inline size_t shunt__segment_elements(size_t bytes, size_t width)
{
    return bytes < width ? 1 : bytes / width;
}

static inline size_t shunt__min(size_t a, size_t b)
{
    return a < b ? a : b;
}

#endif
