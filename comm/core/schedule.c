/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which path carries the next chunk.
 *
 * Chunks are pulled, not dealt out: a path takes the next one only while its window has room, so a slow path slows
 * nobody. Among paths with room the one that would finish the chunk first takes it (its backlog plus the chunk, over its
 * rate). When a path that has no room just now would still finish it earlier, the chunk waits for that one, unless there
 * is so much left to send that both are needed until then anyway: the chunk would end before
 *
 *     T = (everything in flight + everything left) / (sum of the rates),
 *
 * the time at which all paths together can be through. That rule decides the tail of a message, where a chunk on a
 * path of a tenth of the rate would otherwise keep everybody waiting. What the estimates got wrong is mended by hedging:
 * when nothing is left to send, an idle path sends again what another one will not deliver soon.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/core/engine.h"

#define GUESS 0.125      /* bytes/ns: 1 Gbit/s until a path has shown its rate */
#define RECORD_BYTES 128 /* what a frame costs beside its payload, for the window */
#define MAX_RECORDS 4096u

/* What waits to be sent on each communicator's behalf and belongs to no message. */
struct notice {
    struct shunt__list node;
    struct shunt__frame frame;
    char payload[];
};

static double rate_of(const struct shunt__path *p)
{
    return p->rate_recent > 0 ? p->rate_recent : GUESS;
}

static int has_room(const struct shunt__path *p, uint32_t len)
{
    if (p->blocked || p->tail - p->head >= MAX_RECORDS)
        return 0;
    return p->in_flight == 0 || p->in_flight + len <= p->window;
}

/* Bytes that the peer's queue still has to send; a queue of several messages counts as endless. */
static double left(const struct shunt__peer *peer)
{
    const struct shunt__tx *tx = shunt__container(peer->sendq.next, struct shunt__tx, node);

    if (peer->sendq.next->next != &peer->sendq)
        return 1e18;
    return (double)(tx->n_lost + (tx->limit - tx->next)) * tx->chunk;
}

/* Shared memory, when it is there, carries everything: it is faster than any NIC by an order of magnitude. */
static struct shunt__path *local_path(const struct shunt__peer *peer)
{
    for (int i = 0; i < peer->ctx->n_rails; i++) {
        struct shunt__path *p = peer->paths[i];
        if (shunt__path_usable(p) && (p->link.rail->caps & SHUNT__RAIL_LOCAL))
            return p;
    }
    return NULL;
}

static struct shunt__path *choose(const struct shunt__peer *peer, uint32_t len)
{
    struct shunt__path *best = local_path(peer);
    double best_time = 0, first = 1e300, rates = 0, backlog = 0;

    if (best)
        return has_room(best, len) ? best : NULL;
    for (int i = 0; i < peer->ctx->n_rails; i++) {
        struct shunt__path *p = peer->paths[i];
        if (!shunt__path_usable(p))
            continue;
        double t = ((double)p->in_flight + len) / rate_of(p) + p->latency;
        rates += rate_of(p);
        backlog += (double)p->in_flight;
        if (t < first)
            first = t;
        if (has_room(p, len) && (!best || t < best_time)) {
            best = p;
            best_time = t;
        }
    }
    if (!best || best_time <= first)
        return best;
    return best_time <= (backlog + left(peer)) / rates ? best : NULL;
}

int shunt__path_send(struct shunt__path *path, struct shunt__frame *frame, const void *payload, uint64_t ref)
{
    struct shunt__rail *rail = path->link.rail;
    shunt_status_t st = rail->ops->send(&path->link, frame, payload, ref);

    if (st != SHUNT_OK && st != SHUNT_IN_PROGRESS) { /* no room, or the rail is about to report the link as down */
        path->blocked = 1;
        return -1;
    }
    path->frames++;
    path->bytes_sent += frame->length + sizeof(*frame);
    if (st == SHUNT_IN_PROGRESS && frame->type != SHUNT__FRAME_DATA) {
        rail->ops->detach(&path->link, ref); /* copies what it still needs: our payload lives for this call only */
        return 0;
    }
    return st == SHUNT_IN_PROGRESS;
}

static struct shunt__record *new_record(struct shunt__path *p)
{
    if (p->tail - p->head >= p->cap_records) {
        uint32_t cap = p->cap_records ? 2 * p->cap_records : 32;
        struct shunt__record *ring = calloc(cap, sizeof(*ring));
        if (!ring)
            return NULL;
        for (uint64_t i = p->head; i < p->tail; i++)
            ring[i & (cap - 1)] = p->records[i & (p->cap_records - 1)];
        free(p->records);
        p->records = ring;
        p->cap_records = cap;
    }
    return &p->records[p->tail & (p->cap_records - 1)];
}

/* Sends one chunk (or the announcement) of tx over p; nonzero when the rail had no room. */
static int send_chunk(struct shunt__path *p, struct shunt__tx *tx, uint32_t chunk, int hedged)
{
    struct shunt__stream *s = tx->stream;
    struct shunt__record *rec = new_record(p);
    struct shunt__frame frame;
    uint64_t offset = chunk == SHUNT__NO_CHUNK ? 0 : (uint64_t)chunk * tx->chunk;
    int reading;

    if (!rec)
        return -1;
    memset(&frame, 0, sizeof(frame));
    frame.type = chunk == SHUNT__NO_CHUNK ? SHUNT__FRAME_ANNOUNCE : SHUNT__FRAME_DATA;
    if (chunk != SHUNT__NO_CHUNK)
        frame.length = (uint32_t)(tx->total - offset < tx->chunk ? tx->total - offset : tx->chunk);
    frame.comm = s->id;
    frame.epoch = s->comm->epoch;
    frame.tag = tx->tag;
    frame.message = tx->message;
    frame.offset = offset;
    frame.total = tx->total;
    frame.ack = s->rx_acked;
    frame.chunk = tx->chunk;
    frame.source = (uint32_t)s->comm->rank;
    reading = shunt__path_send(p, &frame, tx->buf + offset, p->tail);
    if (reading < 0)
        return -1;

    uint64_t now = s->comm->ctx->now;
    if (p->head == p->tail) /* the path was idle: its delivery rate starts here */
        p->delivered_time = now;
    rec->tx = tx;
    rec->chunk = chunk;
    rec->bytes = frame.length + RECORD_BYTES;
    rec->time = now;
    rec->frame = p->frames;
    rec->delivered = p->delivered;
    rec->delivered_time = p->delivered_time;
    rec->reading = (uint8_t)reading;
    rec->hedged = (uint8_t)hedged;
    p->tail++;
    p->in_flight += rec->bytes;
    tx->records++;
    tx->reading += (uint32_t)reading;
    if (hedged)
        p->bytes_resent += frame.length;
    return 0;
}

/* The next thing this message has to send, or -1. */
static int64_t next_chunk(struct shunt__tx *tx)
{
    while (tx->n_lost) {
        uint32_t c = tx->lost[tx->n_lost - 1];
        if (!(tx->acked[c / 64] >> (c % 64) & 1))
            return c;
        tx->n_lost--;
    }
    if (tx->announce == 1)
        return SHUNT__NO_CHUNK;
    while (tx->next < tx->limit && (tx->acked[tx->next / 64] >> (tx->next % 64) & 1))
        tx->next++;
    return tx->next < tx->limit ? (int64_t)tx->next : -1;
}

static void took(struct shunt__tx *tx, uint32_t chunk)
{
    if (tx->n_lost && tx->lost[tx->n_lost - 1] == chunk)
        tx->n_lost--;
    else if (chunk == SHUNT__NO_CHUNK)
        tx->announce = 2;
    else
        tx->next = chunk + 1;
}

static void send_notices(struct shunt__peer *peer)
{
    while (!shunt__list_empty(&peer->notices)) {
        struct notice *n = shunt__container(peer->notices.next, struct notice, node);
        struct shunt__path *best = local_path(peer);
        for (int i = 0; !best && i < peer->ctx->n_rails; i++)
            if (shunt__path_usable(peer->paths[i]) && !peer->paths[i]->blocked)
                best = peer->paths[i];
        if (!best || best->blocked)
            return;
        if (shunt__path_send(best, &n->frame, n->payload, 0) < 0)
            return;
        shunt__list_remove(&n->node);
        free(n);
    }
}

void shunt__notice(struct shunt__peer *peer, const struct shunt__frame *frame, const void *payload)
{
    struct notice *n = malloc(sizeof(*n) + frame->length);

    if (!n)
        return;
    n->frame = *frame;
    memcpy(n->payload, payload, frame->length);
    shunt__list_init(&n->node);
    shunt__list_append(&peer->notices, &n->node);
    shunt__peer_want(peer);
    shunt__pump_later(peer);
}

void shunt__schedule(struct shunt__peer *peer)
{
    if (!shunt__list_empty(&peer->notices))
        send_notices(peer);
    while (!shunt__list_empty(&peer->sendq)) {
        struct shunt__tx *tx = shunt__container(peer->sendq.next, struct shunt__tx, node);
        int64_t chunk = next_chunk(tx);
        if (chunk < 0) {
            shunt__list_remove(&tx->node);
            tx->queued = 0;
            continue;
        }
        struct shunt__path *p = choose(peer, chunk == SHUNT__NO_CHUNK ? 0 : tx->chunk);
        if (!p)
            return;
        if (send_chunk(p, tx, (uint32_t)chunk, 0))
            continue; /* blocked now: choose another */
        took(tx, (uint32_t)chunk);
    }
}

/*
 * Nothing is left to send, but chunks are under way on a path that will take much longer than another one would: send the
 * last few again on that one. Only from the tick, so at most every few milliseconds.
 */
void shunt__schedule_hedge(struct shunt__peer *peer, uint64_t now)
{
    if (!shunt__list_empty(&peer->sendq) || local_path(peer))
        return;
    for (int i = 0; i < peer->ctx->n_rails; i++) {
        struct shunt__path *slow = peer->paths[i];
        if (!slow || slow->head == slow->tail || slow->state == SHUNT_RAIL_IDLE)
            continue;
        for (uint64_t r = slow->head; r < slow->tail; r++) {
            struct shunt__record *rec = &slow->records[r & (slow->cap_records - 1)];
            struct shunt__tx *tx = rec->tx;
            if (!tx || !tx->op || rec->hedged || rec->chunk == SHUNT__NO_CHUNK ||
                (tx->acked[rec->chunk / 64] >> (rec->chunk % 64) & 1))
                continue;
            double ahead = (double)(r - slow->head + 1) * rec->bytes / rate_of(slow);
            double expected = slow->state == SHUNT_RAIL_SUSPECT ? 1e18 : ahead + slow->latency;
            struct shunt__path *quick = NULL;
            for (int j = 0; j < peer->ctx->n_rails; j++) {
                struct shunt__path *p = peer->paths[j];
                if (j == i || !shunt__path_usable(p) || !has_room(p, tx->chunk))
                    continue;
                if (2 * (((double)p->in_flight + tx->chunk) / rate_of(p) + p->latency) + 2e6 < expected)
                    quick = p;
            }
            if (!quick || now - rec->time < 2000000)
                continue;
            rec->hedged = 1;
            if (send_chunk(quick, tx, rec->chunk, 1))
                return;
        }
    }
}
