/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting: how a send becomes a tx and a receive is queued for its match; the life of both. */
#include <stdlib.h>
#include <string.h>
#include "comm/core/engine.h"

#define CHUNK_MIN 4096u

struct shunt__stream *shunt__stream_get(struct shunt_comm *comm, enum shunt__channel channel, int rank)
{
    struct shunt__stream *s = comm->streams[channel][rank];

    if (s)
        return s;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->comm = comm;
    s->peer = comm->peers[rank];
    s->rank = rank;
    s->channel = channel;
    s->id = comm->id + channel;
    shunt__list_init(&s->posted);
    shunt__list_init(&s->ack);
    comm->streams[channel][rank] = s;
    return s;
}

/* The slot of message number tx_next, or NULL when memory is out. */
static struct shunt__tx_slot *new_slot(struct shunt__stream *s)
{
    if (s->tx_next - s->tx_base >= s->tx_cap) {
        uint32_t cap = s->tx_cap ? 2 * s->tx_cap : 16;
        struct shunt__tx_slot *ring = calloc(cap, sizeof(*ring));
        if (!ring)
            return NULL;
        for (uint64_t m = s->tx_base; m < s->tx_next; m++)
            ring[m & (cap - 1)] = s->tx_ring[m & (s->tx_cap - 1)];
        free(s->tx_ring);
        s->tx_ring = ring;
        s->tx_cap = cap;
    }
    struct shunt__tx_slot *slot = &s->tx_ring[s->tx_next & (s->tx_cap - 1)];
    memset(slot, 0, sizeof(*slot));
    return slot;
}

static uint32_t chunk_size(const struct shunt__peer *peer, uint64_t total)
{
    struct shunt_context *ctx = peer->ctx;
    uint32_t chunk = ctx->chunk;

    if (!chunk) { /* the smallest that a usable rail likes */
        for (int i = 0; i < ctx->n_rails; i++) {
            if (!peer->paths[i] || (peer->local && !(ctx->rails[i]->caps & SHUNT__RAIL_LOCAL)))
                continue;
            if (!chunk || ctx->rails[i]->chunk < chunk)
                chunk = ctx->rails[i]->chunk;
        }
        if (!chunk)
            chunk = 65536;
    }
    if (chunk < CHUNK_MIN)
        chunk = CHUNK_MIN;
    if (chunk > SHUNT__FRAME_PAYLOAD_MAX)
        chunk = SHUNT__FRAME_PAYLOAD_MAX;
    while (total / chunk >= SHUNT__NO_CHUNK - 1 && chunk < SHUNT__FRAME_PAYLOAD_MAX)
        chunk *= 2;
    return chunk;
}

/* What of this message may travel before it is matched. */
static uint32_t eager_chunks(const struct shunt__tx *tx, uint64_t room)
{
    uint64_t bytes = tx->total < tx->stream->comm->ctx->eager ? tx->total : tx->stream->comm->ctx->eager;

    if (bytes == tx->total)
        return room >= bytes ? tx->n_chunks : (uint32_t)(room / tx->chunk);
    if (bytes > room)
        bytes = room;
    return (uint32_t)(bytes / tx->chunk);
}

static void send_to_self(struct shunt__op *op);
static void recv_from_self(struct shunt__op *op);

static void prepare(struct shunt__op *op, enum shunt__op_kind kind, struct shunt_comm *comm, enum shunt__channel channel,
                    void *buf, size_t bytes, int peer, int tag, void (*done)(struct shunt__op *))
{
    op->kind = kind;
    op->channel = channel;
    op->comm = comm;
    op->peer = peer;
    op->tag = tag;
    op->buf = buf;
    op->bytes = bytes;
    op->status = SHUNT_IN_PROGRESS;
    op->start = comm->ctx->now;
    op->message = UINT64_MAX;
    op->why = NULL;
    op->done = done;
    shunt__list_init(&op->node);
    comm->pending++;
}

/* Nonzero when the op can't start: it has been completed with the reason. */
static int refused(struct shunt__op *op)
{
    struct shunt_comm *comm = op->comm;
    struct shunt__peer *peer = comm->peers[op->peer];

    if (comm->state != SHUNT_OK && op->channel != SHUNT__CHANNEL_CONTROL) {
        shunt__op_complete(op, comm->state, comm->why);
        return 1;
    }
    if (op->channel == SHUNT__CHANNEL_COLL && comm->coll_state != SHUNT_OK) {
        shunt__op_complete(op, comm->coll_state, comm->why);
        return 1;
    }
    if (peer && peer->state != SHUNT_OK && op->kind == SHUNT__OP_SEND) {
        shunt__op_complete(op, peer->state, peer->why);
        return 1;
    }
    return 0;
}

void shunt__op_send(struct shunt__op *op, struct shunt_comm *comm, enum shunt__channel channel, const void *buf,
                    size_t bytes, int peer, int tag, void (*done)(struct shunt__op *))
{
    struct shunt__stream *s;
    struct shunt__tx_slot *slot;
    struct shunt__tx *tx;

    prepare(op, SHUNT__OP_SEND, comm, channel, (void *)(uintptr_t)buf, bytes, peer, tag, done);
    if (refused(op))
        return;
    if (peer == comm->rank) {
        send_to_self(op);
        return;
    }
    s = shunt__stream_get(comm, channel, peer);
    slot = s ? new_slot(s) : NULL;
    tx = slot ? malloc(sizeof(*tx)) : NULL;
    if (!tx) {
        shunt__op_complete(op, SHUNT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    memset(tx, 0, sizeof(*tx)); /* not calloc(), which passes the allocator's per-thread cache by */
    tx->stream = s;
    tx->op = op;
    tx->buf = buf;
    tx->total = bytes;
    tx->tag = tag;
    tx->message = op->message = s->tx_next++;
    tx->chunk = chunk_size(s->peer, bytes);
    tx->n_chunks = bytes ? (uint32_t)((bytes + tx->chunk - 1) / tx->chunk) : 1;
    tx->acked = &tx->inline_acked;
    if (tx->n_chunks > 64) {
        tx->acked = calloc((tx->n_chunks + 63) / 64, 8);
        if (!tx->acked) {
            s->tx_next--;
            free(tx);
            shunt__op_complete(op, SHUNT_ERR_NO_MEMORY, "out of memory");
            return;
        }
    }
    slot->tx = tx;
    shunt__list_init(&tx->node);
    s->peer->wanted++;

    uint64_t room = s->peer->unmatched < comm->ctx->unmatched_max ? comm->ctx->unmatched_max - s->peer->unmatched : 0;
    tx->limit = eager_chunks(tx, room);
    if (tx->limit == 0)
        tx->announce = 1;
    else {
        uint64_t credit = (uint64_t)tx->limit * tx->chunk;
        slot->credit = (uint32_t)(credit < bytes ? credit : bytes);
        s->peer->unmatched += slot->credit;
    }
    shunt__tx_queue(tx);
    shunt__peer_want(s->peer);
    shunt__schedule(s->peer);
}

void shunt__tx_queue(struct shunt__tx *tx)
{
    if (tx->queued || !(tx->n_lost || tx->next < tx->limit || tx->announce == 1))
        return;
    tx->queued = 1;
    shunt__list_append(&tx->stream->peer->sendq, &tx->node);
}

void shunt__tx_resend(struct shunt__tx *tx, uint32_t chunk)
{
    if (tx->op == NULL)
        return;
    if (chunk == SHUNT__NO_CHUNK) {
        if (tx->announce == 2)
            tx->announce = 1;
    } else {
        if (tx->acked[chunk / 64] >> (chunk % 64) & 1)
            return;
        if (tx->n_lost == tx->cap_lost) {
            uint32_t cap = tx->cap_lost ? 2 * tx->cap_lost : 8;
            uint32_t *lost = realloc(tx->lost, cap * sizeof(*lost));
            if (!lost) {
                shunt__tx_finish(tx, SHUNT_ERR_NO_MEMORY, "out of memory");
                return;
            }
            tx->lost = lost;
            tx->cap_lost = cap;
        }
        tx->lost[tx->n_lost++] = chunk;
    }
    shunt__tx_queue(tx);
    shunt__pump_later(tx->stream->peer);
}

void shunt__tx_acked(struct shunt__tx *tx, uint32_t chunk)
{
    if (tx->announce == 1 || tx->announce == 2)
        tx->announce = 3;
    if (chunk == SHUNT__NO_CHUNK || tx->op == NULL || chunk >= tx->n_chunks)
        return;
    uint64_t bit = 1ull << (chunk % 64);
    if (tx->acked[chunk / 64] & bit)
        return;
    tx->acked[chunk / 64] |= bit;
    if (++tx->n_acked == tx->n_chunks)
        shunt__tx_finish(tx, SHUNT_OK, NULL);
}

/* Rails that still read from a buffer about to be handed back are told to stop. */
static void stop_reading(struct shunt__tx *tx)
{
    struct shunt__peer *peer = tx->stream->peer;

    for (int i = 0; i < SHUNT__MAX_RAILS && tx->reading; i++) {
        struct shunt__path *p = peer->paths[i];
        if (!p)
            continue;
        for (uint64_t r = p->head; r < p->tail && tx->reading; r++) {
            struct shunt__record *rec = &p->records[r & (p->cap_records - 1)];
            if (rec->tx != tx || !rec->reading)
                continue;
            if (p->link.conn)
                p->link.rail->ops->detach(&p->link, r);
            rec->reading = 0;
            tx->reading--;
        }
    }
}

void shunt__tx_finish(struct shunt__tx *tx, shunt_status_t status, const char *why)
{
    struct shunt__stream *s = tx->stream;
    struct shunt__op *op = tx->op;

    if (!op)
        return;
    tx->op = NULL;
    if (tx->reading)
        stop_reading(tx);
    if (tx->queued) {
        shunt__list_remove(&tx->node);
        tx->queued = 0;
    }
    tx->n_lost = 0;
    tx->next = tx->limit;
    tx->announce = 0;
    s->peer->wanted--;

    struct shunt__tx_slot *slot = &s->tx_ring[tx->message & (s->tx_cap - 1)];
    slot->tx = NULL;
    slot->done = 1;
    if (status != SHUNT_OK) { /* nobody will match it: its credit comes back now */
        s->peer->unmatched -= slot->credit;
        slot->credit = 0;
        slot->matched = 1;
    }
    while (s->tx_done < s->tx_next && s->tx_ring[s->tx_done & (s->tx_cap - 1)].done)
        s->tx_done++;
    while (s->tx_base < s->tx_next) {
        slot = &s->tx_ring[s->tx_base & (s->tx_cap - 1)];
        if (!slot->done || !(slot->matched || slot->credit == 0))
            break;
        s->tx_base++;
    }
    op->message = tx->message;
    shunt__op_complete(op, status, why);
    shunt__tx_release(tx);
}

void shunt__tx_release(struct shunt__tx *tx)
{
    if (tx->op || tx->records)
        return;
    if (tx->acked != &tx->inline_acked)
        free(tx->acked);
    free(tx->lost);
    free(tx);
}

void shunt__op_recv(struct shunt__op *op, struct shunt_comm *comm, enum shunt__channel channel, void *buf,
                    size_t bytes, int peer, int tag, void (*done)(struct shunt__op *))
{
    struct shunt__stream *s;

    prepare(op, SHUNT__OP_RECV, comm, channel, buf, bytes, peer, tag, done);
    if (refused(op))
        return;
    if (peer == comm->rank) {
        recv_from_self(op);
        return;
    }
    s = shunt__stream_get(comm, channel, peer);
    if (!s) {
        shunt__op_complete(op, SHUNT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    shunt__list_append(&s->posted, &op->node);
    s->peer->wanted++;
    shunt__arrive_match(s);
    if (op->status == SHUNT_IN_PROGRESS && s->peer->state != SHUNT_OK && !shunt__list_empty(&op->node)) {
        /* Nothing that had arrived matched, and nothing more will come. */
        shunt__list_remove(&op->node);
        s->peer->wanted--;
        shunt__op_complete(op, s->peer->state, s->peer->why);
        return;
    }
    if (op->status == SHUNT_IN_PROGRESS)
        shunt__peer_want(s->peer);
}

int shunt__op_cancel_recv(struct shunt__op *op, shunt_status_t status)
{
    if (op->kind != SHUNT__OP_RECV || op->status != SHUNT_IN_PROGRESS || shunt__list_empty(&op->node))
        return 1;
    shunt__list_remove(&op->node);
    if (op->peer != op->comm->rank)
        op->comm->peers[op->peer]->wanted--;
    shunt__op_complete(op, status, NULL);
    return 0;
}

/* ---- messages to the own rank: no rail, the sender waits for its receive ---- */

static void self_copy(struct shunt__op *send, struct shunt__op *recv)
{
    size_t n = send->bytes < recv->bytes ? send->bytes : recv->bytes;
    int truncated = send->bytes > recv->bytes;

    if (n && recv->buf != send->buf)
        memmove(recv->buf, send->buf, n);
    recv->bytes = send->bytes;
    recv->tag = send->tag;
    shunt__op_complete(send, SHUNT_OK, NULL);
    shunt__op_complete(recv, truncated ? SHUNT_ERR_TRUNCATED : SHUNT_OK, NULL);
}

static int tags_match(const struct shunt__op *send, const struct shunt__op *recv)
{
    return send->channel == recv->channel && (recv->tag == SHUNT_TAG_ANY || recv->tag == send->tag);
}

static void send_to_self(struct shunt__op *op)
{
    struct shunt__list *head = &op->comm->self_recvs;

    for (struct shunt__list *n = head->next; n != head; n = n->next) {
        struct shunt__op *recv = shunt__container(n, struct shunt__op, node);
        if (tags_match(op, recv)) {
            shunt__list_remove(&recv->node);
            self_copy(op, recv);
            return;
        }
    }
    shunt__list_append(&op->comm->self_sends, &op->node);
}

static void recv_from_self(struct shunt__op *op)
{
    struct shunt__list *head = &op->comm->self_sends;

    for (struct shunt__list *n = head->next; n != head; n = n->next) {
        struct shunt__op *send = shunt__container(n, struct shunt__op, node);
        if (tags_match(send, op)) {
            shunt__list_remove(&send->node);
            self_copy(send, op);
            return;
        }
    }
    shunt__list_append(&op->comm->self_recvs, &op->node);
}

/* ---- the end of a stream ---- */

void shunt__stream_fail(struct shunt__stream *s, shunt_status_t status, const char *why)
{
    for (uint64_t m = s->tx_base; m < s->tx_next; m++) {
        struct shunt__tx *tx = s->tx_cap ? s->tx_ring[m & (s->tx_cap - 1)].tx : NULL;
        if (tx)
            shunt__tx_finish(tx, status, why);
    }
    while (!shunt__list_empty(&s->posted)) {
        struct shunt__op *op = shunt__container(s->posted.next, struct shunt__op, node);
        shunt__list_remove(&op->node);
        s->peer->wanted--;
        shunt__op_complete(op, status, why);
    }
    for (uint64_t m = s->rx_base; m < s->rx_seen; m++) {
        struct shunt__rx *rx = s->rx_ring[m & (s->rx_cap - 1)];
        if (rx && rx != SHUNT__RX_DONE && rx->op) {
            struct shunt__op *op = rx->op;
            shunt__rx_abandon(rx);
            rx->op = NULL;
            s->peer->wanted--;
            shunt__op_complete(op, status, why);
        }
    }
}

void shunt__stream_free(struct shunt__stream *s)
{
    if (!s)
        return;
    for (uint64_t m = s->tx_base; m < s->tx_next; m++)
        s->peer->unmatched -= s->tx_ring[m & (s->tx_cap - 1)].credit;
    for (uint64_t m = s->rx_base; m < s->rx_seen; m++) {
        struct shunt__rx *rx = s->rx_ring[m & (s->rx_cap - 1)];
        if (!rx || rx == SHUNT__RX_DONE)
            continue;
        shunt__rx_abandon(rx);
        if (rx->got != &rx->inline_got)
            free(rx->got);
        shunt__early_free(s->comm->ctx, rx->early, rx->early_cap);
        free(rx);
    }
    shunt__list_remove(&s->ack);
    free(s->tx_ring);
    free(s->rx_ring);
    free(s->dirty);
    free(s);
}
