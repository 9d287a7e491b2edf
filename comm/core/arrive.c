/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrival: chunks find their message, messages their receive.
 *
 * A message is matched in the order of its number, whichever rail brought its first chunk. Until then at most
 * SHUNT_EAGER bytes of it are here, in memory of its own. A chunk is accepted once: what comes again (hedged, or sent
 * again after a rail died) is acknowledged again and dropped, also long after the message was handed over. A rail may
 * read a chunk straight into the receive's buffer; when the message is completed by another rail meanwhile, the first is
 * redirected before the buffer is handed back.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/core/engine.h"

#define AHEAD_MAX 65536u             /* messages that one sender may have open at once */
#define ACK_AT_ONCE (32u << 10)      /* messages longer than this are acknowledged as soon as they are complete */
#define SLOT_BYTES 2048u             /* what a message counts beside its bytes before its match is reported */
#define POOL_MAX (4u << 20)           /* bytes of early buffers kept for the next messages */
#define ORPHANS_MAX (16u << 20)      /* bytes of frames kept for communicators to come */

/*
 * Memory for what comes before its receive, kept for the next: fresh pages of malloc would be faulted in for every message.
 * Classes are powers of two from 4 KiB on; at most POOL_MAX bytes are kept.
 */
static unsigned class_of(uint64_t bytes)
{
    unsigned c = 0;

    while (c < SHUNT__POOL_CLASSES && ((uint64_t)4096 << c) < bytes)
        c++;
    return c;
}

static char *early_alloc(struct shunt_context *ctx, uint64_t bytes)
{
    unsigned c = class_of(bytes);
    void **p;

    if (c == SHUNT__POOL_CLASSES)
        return malloc(bytes);
    p = ctx->pool[c];
    if (!p)
        return malloc((size_t)4096 << c);
    ctx->pool[c] = *p;
    ctx->pool_bytes -= (size_t)4096 << c;
    return (char *)p;
}

void shunt__early_free(struct shunt_context *ctx, void *early, uint64_t bytes)
{
    unsigned c = class_of(bytes);

    if (!early || c == SHUNT__POOL_CLASSES || ctx->pool_bytes + ((size_t)4096 << c) > POOL_MAX) {
        free(early);
        return;
    }
    *(void **)early = ctx->pool[c];
    ctx->pool[c] = early;
    ctx->pool_bytes += (size_t)4096 << c;
}

/* The stream a frame belongs to, or NULL: unknown communicator, another epoch, or not a member. */
static struct shunt__stream *stream_of(struct shunt__path *path, const struct shunt__frame *frame)
{
    struct shunt_comm *comm = shunt__comm_find(path->peer->ctx, frame->comm & ~3ull);
    unsigned channel = frame->comm & 3;

    if (!comm || comm->epoch != frame->epoch || channel >= SHUNT__CHANNELS || frame->source >= (uint32_t)comm->size ||
        comm->peers[frame->source] != path->peer)
        return NULL;
    return shunt__stream_get(comm, (enum shunt__channel)channel, (int)frame->source);
}

static int grow_ring(struct shunt__stream *s, uint64_t message)
{
    uint32_t cap = s->rx_cap ? s->rx_cap : 16;
    struct shunt__rx **ring;

    while (message - s->rx_base >= cap)
        cap *= 2;
    if (cap == s->rx_cap)
        return 0;
    ring = calloc(cap, sizeof(*ring));
    if (!ring)
        return -1;
    for (uint64_t m = s->rx_base; m < s->rx_seen; m++)
        ring[m & (cap - 1)] = s->rx_ring[m & (s->rx_cap - 1)];
    free(s->rx_ring);
    s->rx_ring = ring;
    s->rx_cap = cap;
    return 0;
}

static int sane(const struct shunt__frame *f)
{
    if (f->chunk == 0 || f->chunk > SHUNT__FRAME_PAYLOAD_MAX || f->total / f->chunk >= SHUNT__NO_CHUNK - 1)
        return 0;
    if (f->type == SHUNT__FRAME_ANNOUNCE)
        return f->length == 0;
    if (f->offset % f->chunk || f->offset > f->total || f->length > f->chunk)
        return 0;
    return f->length == (f->total - f->offset < f->chunk ? f->total - f->offset : f->chunk) &&
           (f->length || f->total == 0);
}

/* The message a sane frame belongs to, created at its first frame; NULL: a duplicate (of what is done), or no memory. */
static struct shunt__rx *message_of(struct shunt__stream *s, const struct shunt__frame *f, int *duplicate)
{
    struct shunt__rx *rx;

    *duplicate = 0;
    if (f->message < s->rx_base) {
        *duplicate = 1;
        return NULL;
    }
    if (f->message - s->rx_base >= AHEAD_MAX || grow_ring(s, f->message))
        return NULL;
    if (f->message < s->rx_seen) {
        rx = s->rx_ring[f->message & (s->rx_cap - 1)];
        if (rx == SHUNT__RX_DONE) {
            *duplicate = 1;
            return NULL;
        }
        if (rx)
            return rx->total == f->total && rx->chunk == f->chunk && rx->tag == f->tag ? rx : NULL;
    }
    rx = malloc(sizeof(*rx));
    if (!rx)
        return NULL;
    memset(rx, 0, sizeof(*rx));
    rx->stream = s;
    rx->message = f->message;
    rx->total = f->total;
    rx->chunk = f->chunk;
    rx->tag = f->tag;
    rx->time = s->comm->ctx->now;
    rx->n_chunks = f->total ? (uint32_t)((f->total + f->chunk - 1) / f->chunk) : 1;
    rx->got = &rx->inline_got;
    if (rx->n_chunks > 64 && !(rx->got = calloc((rx->n_chunks + 63) / 64, 8))) {
        free(rx);
        return NULL;
    }
    for (; s->rx_seen <= f->message; s->rx_seen++)
        s->rx_ring[s->rx_seen & (s->rx_cap - 1)] = NULL;
    s->rx_ring[f->message & (s->rx_cap - 1)] = rx;
    return rx;
}

static int has(const struct shunt__rx *rx, uint32_t chunk)
{
    return rx->got[chunk / 64] >> (chunk % 64) & 1;
}

/* No rail writes into this message's buffer any more once this has returned. */
void shunt__rx_abandon(struct shunt__rx *rx)
{
    struct shunt__peer *peer = rx->stream->peer;

    for (int i = 0; i < peer->ctx->n_rails; i++) {
        struct shunt__path *p = peer->paths[i];
        if (!p || p->landing != rx)
            continue;
        if (p->link.conn)
            p->link.rail->ops->redirect(&p->link);
        p->landing = NULL;
    }
}

/* The same for one chunk that has just been accepted from another path. */
static void abandon_chunk(struct shunt__rx *rx, uint32_t chunk)
{
    struct shunt__peer *peer = rx->stream->peer;

    for (int i = 0; i < peer->ctx->n_rails; i++) {
        struct shunt__path *p = peer->paths[i];
        if (!p || p->landing != rx || p->landing_chunk != chunk)
            continue;
        if (p->link.conn)
            p->link.rail->ops->redirect(&p->link);
        p->landing = NULL;
    }
}

/* So many bytes more wait to be acknowledged. */
static void owe(struct shunt__peer *peer, uint64_t bytes)
{
    if (peer->ack_bytes == 0)
        peer->ack_time = peer->ctx->now;
    peer->ack_bytes += bytes;
}

static void note(struct shunt__rx *rx)
{
    if (!rx->dirty) {
        rx->dirty = 1;
        shunt__ack_note(rx->stream, rx->message);
    }
}

static void advance(struct shunt__stream *s)
{
    while (s->rx_acked < s->rx_seen) {
        struct shunt__rx *rx = s->rx_ring[s->rx_acked & (s->rx_cap - 1)];
        if (!rx || (rx != SHUNT__RX_DONE && !rx->complete))
            break;
        s->rx_acked++;
    }
    while (s->rx_base < s->rx_seen && s->rx_ring[s->rx_base & (s->rx_cap - 1)] == SHUNT__RX_DONE)
        s->rx_ring[s->rx_base++ & (s->rx_cap - 1)] = NULL;
    if (s->rx_matched < s->rx_base)
        s->rx_matched = s->rx_base;
}

/* Complete and matched: to the user with it. */
static void hand_over(struct shunt__rx *rx)
{
    struct shunt__stream *s = rx->stream;
    struct shunt__op *op = rx->op;

    shunt__rx_abandon(rx);
    s->rx_ring[rx->message & (s->rx_cap - 1)] = SHUNT__RX_DONE;
    if (rx->got != &rx->inline_got)
        free(rx->got);
    shunt__early_free(s->comm->ctx, rx->early, rx->early_cap);
    if (op) {
        op->bytes = rx->total;
        op->tag = rx->tag;
        op->message = rx->message;
        s->peer->wanted--;
        shunt__op_complete(op, rx->total > rx->cap ? SHUNT_ERR_TRUNCATED : SHUNT_OK, NULL);
    }
    free(rx);
    advance(s);
}

/* The sender's room for what is not matched comes back now and then, and with it its record of small messages. */
static void credit(struct shunt__stream *s, uint64_t bytes)
{
    s->match_unreported += bytes + SLOT_BYTES;
    if (s->match_unreported * 16 >= s->comm->ctx->unmatched_max)
        shunt__ack_report(s);
}

static void match(struct shunt__rx *rx, struct shunt__op *op)
{
    struct shunt__stream *s = rx->stream;
    uint64_t early = rx->source_eager;

    rx->matched = 1;
    rx->op = op;
    rx->buf = op->buf;
    rx->cap = op->bytes;
    op->message = rx->message;
    if (rx->early) {
        shunt__rx_abandon(rx); /* a rail that is writing there goes on in memory of its own */
        uint64_t n = rx->early_cap < rx->cap ? rx->early_cap : rx->cap;
        for (uint32_t c = 0; c < rx->n_chunks && (uint64_t)c * rx->chunk < n; c++) {
            uint64_t at = (uint64_t)c * rx->chunk, len = n - at < rx->chunk ? n - at : rx->chunk;
            if (has(rx, c))
                memcpy(rx->buf + at, rx->early + at, len);
        }
        shunt__early_free(s->comm->ctx, rx->early, rx->early_cap);
        rx->early = NULL;
    }
    if (!rx->complete) {
        note(rx); /* the rest may come, */
        if (rx->total > s->comm->ctx->eager)
            owe(s->peer, SHUNT__FRAME_PAYLOAD_MAX); /* for which its sender is waiting */
    }
    credit(s, early);
}

/* The first posted receive that takes this tag, or NULL. */
static struct shunt__op *receive_for(const struct shunt__stream *s, int tag)
{
    for (struct shunt__list *n = s->posted.next; n != &s->posted; n = n->next) {
        struct shunt__op *op = shunt__container(n, struct shunt__op, node);
        if (op->tag == tag || op->tag == SHUNT_TAG_ANY)
            return op;
    }
    return NULL;
}

void shunt__arrive_match(struct shunt__stream *s)
{
    while (!shunt__list_empty(&s->posted)) {
        struct shunt__rx *rx = NULL;
        struct shunt__op *op = NULL;
        uint64_t m;
        /*
         * Messages whose number is not known to be next in line can't be matched: an earlier one with the same tag may
         * still be on its way over a slower rail.
         */
        while (s->rx_matched < s->rx_seen) {
            rx = s->rx_ring[s->rx_matched & (s->rx_cap - 1)];
            if (!rx || (rx != SHUNT__RX_DONE && !rx->matched))
                break;
            s->rx_matched++;
        }
        for (m = s->rx_matched; m < s->rx_seen && !op; m++) {
            rx = s->rx_ring[m & (s->rx_cap - 1)];
            if (!rx)
                return;
            if (rx == SHUNT__RX_DONE || rx->matched)
                continue;
            op = receive_for(s, rx->tag);
        }
        if (!op)
            return;
        shunt__list_remove(&op->node);
        match(rx, op);
        if (rx->message == s->rx_matched)
            s->rx_matched++;
        if (rx->complete)
            hand_over(rx);
    }
}

/* The message's memory for what comes before its match; nonzero: there is none. */
static int early_ready(struct shunt__rx *rx)
{
    struct shunt_context *ctx = rx->stream->comm->ctx;

    if (rx->early)
        return 0;
    rx->early_cap = rx->total < ctx->eager ? rx->total : ctx->eager;
    rx->early = early_alloc(ctx, rx->early_cap);
    return rx->early == NULL;
}

void *shunt__arrive_land(struct shunt__path *path, const struct shunt__frame *frame)
{
    struct shunt__stream *s;
    struct shunt__rx *rx;
    uint32_t chunk;
    int duplicate;

    if (frame->type != SHUNT__FRAME_DATA || !sane(frame) || !(s = stream_of(path, frame)))
        return NULL;
    rx = message_of(s, frame, &duplicate);
    if (!rx)
        return NULL;
    if (!rx->matched)
        shunt__arrive_match(s); /* may hand nothing over: the message is not complete */
    chunk = (uint32_t)(frame->offset / frame->chunk);
    if (frame->length == 0 || has(rx, chunk) || (!rx->matched && early_ready(rx)) ||
        frame->offset + frame->length > (rx->matched ? rx->cap : rx->early_cap))
        return NULL;
    for (int i = 0; i < path->peer->ctx->n_rails; i++) { /* never two writers of one chunk: the second may bring damage */
        const struct shunt__path *p = path->peer->paths[i];
        if (p && p != path && p->landing == rx && p->landing_chunk == chunk)
            return NULL;
    }
    path->landing = rx;
    path->landing_chunk = chunk;
    return (rx->matched ? rx->buf : rx->early) + frame->offset;
}

/* Where an accepted payload goes; nonzero when there is no place for it now: not accepted, not acknowledged. */
static int place(struct shunt__rx *rx, const struct shunt__frame *f, const void *payload)
{
    if (rx->matched) {
        if (f->offset < rx->cap && f->length) {
            uint64_t n = rx->cap - f->offset < f->length ? rx->cap - f->offset : f->length;
            if (rx->buf + f->offset != payload)
                memcpy(rx->buf + f->offset, payload, n);
        }
        return 0;
    }
    if (f->length == 0)
        return 0;
    if (early_ready(rx) || f->offset + f->length > rx->early_cap)
        return -1;
    if (rx->early + f->offset != payload)
        memcpy(rx->early + f->offset, payload, f->length);
    rx->source_eager += f->length;
    return 0;
}

static const struct shunt__freed *recently_freed(const struct shunt_context *ctx, uint64_t id)
{
    for (int i = 0; i < SHUNT__FREED; i++)
        if (ctx->freed[i].id == id)
            return &ctx->freed[i];
    return NULL;
}

static void keep_orphan(struct shunt__path *path, const struct shunt__frame *f, const void *payload)
{
    struct shunt_context *ctx = path->peer->ctx;
    const struct shunt__freed *freed = recently_freed(ctx, f->comm & ~3ull);
    struct shunt__orphan *o;

    for (unsigned i = 0; freed && i < freed->n; i++)
        if (freed->streams[i].id == f->comm && freed->streams[i].rank == f->source && f->message < freed->streams[i].acked)
            shunt__ack_freed(path->peer, f);
    if (shunt__comm_find(ctx, f->comm & ~3ull) || freed || ctx->orphan_bytes + f->length + sizeof(*o) > ORPHANS_MAX)
        return;
    o = malloc(sizeof(*o) + f->length);
    if (!o)
        return;
    o->path = path;
    o->time = ctx->now;
    o->frame = *f;
    memcpy(o->payload, payload, f->length);
    shunt__list_init(&o->node);
    shunt__list_append(&ctx->orphans, &o->node);
    ctx->orphan_bytes += f->length + sizeof(*o);
}

void shunt__arrive_orphans(struct shunt_context *ctx, struct shunt_comm *comm)
{
    for (struct shunt__list *n = ctx->orphans.next, *next; n != &ctx->orphans; n = next) {
        struct shunt__orphan *o = shunt__container(n, struct shunt__orphan, node);
        int old = ctx->now - o->time > 60 * SHUNT__S;
        next = n->next;
        if (!old && (!comm || (o->frame.comm & ~3ull) != comm->id))
            continue;
        shunt__list_remove(n);
        ctx->orphan_bytes -= o->frame.length + sizeof(*o);
        if (!old)
            shunt__arrive_data(o->path, &o->frame, o->payload);
        free(o);
    }
}

/*
 * A message in one chunk, next in line, and its receive is there: most of the small ones. It goes where it belongs without
 * ever being a message on record. Nonzero when it was such a one.
 */
static int straight(struct shunt__stream *s, struct shunt__path *path, const struct shunt__frame *f, const void *payload)
{
    struct shunt__peer *peer = path->peer;
    struct shunt__op *op;
    uint64_t n;

    if (f->length != f->total || f->message != s->rx_base || s->rx_seen != s->rx_base || f->type != SHUNT__FRAME_DATA)
        return 0;
    op = receive_for(s, f->tag);
    if (!op)
        return 0;
    n = op->bytes < f->length ? op->bytes : f->length;
    if (n)
        memcpy(op->buf, payload, n);
    path->bytes_received += f->length;
    s->rx_base++;
    s->rx_seen++;
    s->rx_acked++;
    s->rx_matched++;
    credit(s, f->length);
    if (!(path->link.rail->caps & SHUNT__RAIL_ACKS)) {
        shunt__ack_note(s, f->message);
        owe(peer, f->length + 1);
        if (f->length > ACK_AT_ONCE)
            owe(peer, SHUNT__FRAME_PAYLOAD_MAX);
    }
    shunt__list_remove(&op->node);
    op->message = f->message;
    op->tag = f->tag;
    peer->wanted--;
    n = op->bytes;
    op->bytes = f->length;
    shunt__op_complete(op, f->length > n ? SHUNT_ERR_TRUNCATED : SHUNT_OK, NULL);
    return 1;
}

void shunt__arrive_data(struct shunt__path *path, const struct shunt__frame *f, const void *payload)
{
    struct shunt__stream *s = stream_of(path, f);
    struct shunt__peer *peer = path->peer;
    struct shunt__rx *rx;
    uint32_t chunk;
    int duplicate;

    path->landing = NULL;
    if (!s) {
        keep_orphan(path, f, payload);
        return;
    }
    if (s->comm->state != SHUNT_OK && s->channel != SHUNT__CHANNEL_CONTROL) {
        shunt__notice_end(s->comm, peer, s->comm->state, s->comm->why);
        return;
    }
    if (!sane(f))
        return;
    shunt__ack_piggyback(s, f->ack);
    if (straight(s, path, f, payload))
        return;
    rx = message_of(s, f, &duplicate);
    if (!rx) {
        if (duplicate) {
            path->duplicates++;
            shunt__ack_note(s, f->message);
        }
        return;
    }
    if (f->type == SHUNT__FRAME_ANNOUNCE) {
        note(rx);
        shunt__arrive_match(s);
        return;
    }
    chunk = (uint32_t)(f->offset / f->chunk);
    if (has(rx, chunk)) {
        path->duplicates++;
        note(rx);
        return;
    }
    if (!rx->matched && !rx->complete && !shunt__list_empty(&s->posted))
        shunt__arrive_match(s); /* the first chunk of a message whose receive waits goes straight there */
    abandon_chunk(rx, chunk);
    if (place(rx, f, payload))
        return;
    rx->got[chunk / 64] |= 1ull << (chunk % 64);
    rx->n_got++;
    path->bytes_received += f->length;
    if (!(path->link.rail->caps & SHUNT__RAIL_ACKS)) {
        note(rx);
        owe(peer, f->length + 1);
    }
    if (rx->n_got == rx->n_chunks) {
        if (rx->total > ACK_AT_ONCE && peer->ack_bytes) /* its sender may be waiting for just this */
            owe(peer, SHUNT__FRAME_PAYLOAD_MAX);
        rx->complete = 1;
        if (rx->matched)
            hand_over(rx);
        else {
            advance(s);
            shunt__arrive_match(s);
        }
    }
}

void shunt__arrive_damaged(struct shunt__path *path, const struct shunt__frame *f)
{
    struct shunt__stream *s = stream_of(path, f);

    path->landing = NULL;
    path->chunks_damaged++;
    if (s && f->type == SHUNT__FRAME_DATA && sane(f))
        shunt__ack_damaged(s, f->message, (uint32_t)(f->offset / f->chunk));
}
