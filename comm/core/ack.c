/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Acknowledgements: state, not events. A frame says for a stream which messages have been received whole and matched
 * (two low-water marks) and, for single messages above them, which chunks are here and whether the rest may come. Such a
 * frame may travel on any path, be lost or come twice: whatever comes later says it again.
 *
 * On a rail that reports acceptance by itself (shared memory) no frame is needed for chunks, only to give credit back.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/core/engine.h"

#define ACK_PAYLOAD 8192u
#define MAX_WORDS 64u /* of a bitmap in one entry */

enum { MATCHED = 1, COMPLETE = 2, DAMAGED = 4 };

struct head {
    uint64_t comm;
    uint32_t epoch, entries;
    uint64_t acked, matched;
};

struct entry {
    uint64_t message;
    uint32_t base; /* chunks below are here; with DAMAGED: this one must come again */
    uint16_t words, flags;
};

/* ---- saying ---- */

static void queue(struct shunt__stream *s)
{
    if (shunt__list_empty(&s->ack)) {
        if (shunt__list_empty(&s->peer->acks))
            s->peer->ack_time = s->comm->ctx->now;
        shunt__list_append(&s->peer->acks, &s->ack);
    }
    shunt__pump_later(s->peer);
}

void shunt__ack_note(struct shunt__stream *s, uint64_t message)
{
    if (s->n_dirty == s->cap_dirty) {
        uint32_t cap = s->cap_dirty ? 2 * s->cap_dirty : 8;
        uint64_t *dirty = realloc(s->dirty, cap * sizeof(*dirty));
        if (!dirty)
            return; /* said again when the sender asks */
        s->dirty = dirty;
        s->cap_dirty = cap;
    }
    s->dirty[s->n_dirty++] = message;
    queue(s);
}

void shunt__ack_report(struct shunt__stream *s)
{
    s->report = 1;
    queue(s);
}

void shunt__ack_everything(struct shunt__peer *peer)
{
    struct shunt_context *ctx = peer->ctx;

    for (struct shunt__list *n = ctx->all_comms.next; n != &ctx->all_comms; n = n->next) {
        struct shunt_comm *comm = shunt__container(n, struct shunt_comm, all);
        int rank = shunt__comm_rank_of(comm, peer);
        for (int c = 0; rank >= 0 && c < SHUNT__CHANNELS; c++) {
            struct shunt__stream *s = comm->streams[c][rank];
            if (!s || s->rx_seen == 0)
                continue;
            for (uint64_t m = s->rx_acked; m < s->rx_seen; m++) {
                struct shunt__rx *rx = s->rx_ring[m & (s->rx_cap - 1)];
                if (rx && (rx == SHUNT__RX_DONE || !rx->dirty)) {
                    shunt__ack_note(s, m);
                    if (rx != SHUNT__RX_DONE)
                        rx->dirty = 1;
                }
            }
            shunt__ack_report(s);
        }
    }
}

/* Appends an entry for one message; 0 when it does not fit. */
static size_t put_entry(struct shunt__stream *s, uint64_t message, unsigned char *buf, size_t room)
{
    struct shunt__rx *rx = message >= s->rx_base && message < s->rx_seen ? s->rx_ring[message & (s->rx_cap - 1)] : NULL;
    struct entry e = {message, UINT32_MAX, 0, 0};
    uint64_t bits[MAX_WORDS];

    if (message < s->rx_base || rx == SHUNT__RX_DONE)
        e.flags = COMPLETE | MATCHED;
    else if (!rx)
        return 0;
    else {
        rx->dirty = 0;
        e.flags = (uint16_t)((rx->matched ? MATCHED : 0) | (rx->complete ? COMPLETE : 0));
        if (!rx->complete) {
            uint32_t base = 0, words = (rx->n_chunks + 63) / 64, w = 0;
            while (w < words && rx->got[w] == UINT64_MAX)
                w++;
            base = w * 64;
            while (base < rx->n_chunks && (rx->got[base / 64] >> (base % 64) & 1))
                base++;
            e.base = base;
            /* the words from base's on, up to the last that has a bit */
            uint32_t first = base / 64, last = words;
            while (last > first && rx->got[last - 1] == 0)
                last--;
            e.words = (uint16_t)(last - first > MAX_WORDS ? MAX_WORDS : last - first);
            memcpy(bits, rx->got + first, e.words * 8u);
        }
    }
    if (room < sizeof(e) + e.words * 8u)
        return 0;
    memcpy(buf, &e, sizeof(e));
    memcpy(buf + sizeof(e), bits, e.words * 8u);
    return sizeof(e) + e.words * 8u;
}

/* Fills `buf` with what the stream has to say; the bytes used. What did not fit stays dirty. */
static size_t put_stream(struct shunt__stream *s, unsigned char *buf, size_t room)
{
    struct head h = {s->id, s->comm->epoch, 0, s->rx_acked, s->rx_matched};
    size_t used = sizeof(h);
    uint32_t i;

    if (room < sizeof(h))
        return 0;
    for (i = 0; i < s->n_dirty; i++) {
        uint64_t m = s->dirty[i];
        if (m < s->rx_acked && m < s->rx_matched)
            continue; /* the marks say so */
        if (room - used < sizeof(struct entry) + MAX_WORDS * 8)
            break;
        size_t n = put_entry(s, m, buf + used, room - used);
        used += n;
        h.entries += n > 0;
    }
    memmove(s->dirty, s->dirty + i, (s->n_dirty - i) * sizeof(*s->dirty));
    s->n_dirty -= i;
    s->report = 0;
    s->match_unreported = 0;
    memcpy(buf, &h, sizeof(h));
    return used;
}

static struct shunt__path *ack_path(struct shunt__peer *peer)
{
    struct shunt__path *best = NULL;

    for (int i = 0; i < peer->ctx->n_rails; i++) {
        struct shunt__path *p = peer->paths[i];
        if (!shunt__path_usable(p) || p->blocked)
            continue;
        if (p->link.rail->caps & SHUNT__RAIL_LOCAL)
            return p;
        /* the least loaded, then the one heard from last */
        if (!best || p->in_flight < best->in_flight ||
            (p->in_flight == best->in_flight && p->last_rx > best->last_rx))
            best = p;
    }
    return best;
}

int shunt__ack_flush(struct shunt__peer *peer)
{
    unsigned char buf[ACK_PAYLOAD];
    int sent = 0;

    while (!shunt__list_empty(&peer->acks)) {
        struct shunt__path *p = ack_path(peer);
        struct shunt__frame frame;
        size_t used = 0;
        if (!p)
            return sent;
        while (!shunt__list_empty(&peer->acks)) {
            struct shunt__stream *s = shunt__container(peer->acks.next, struct shunt__stream, ack);
            size_t n = put_stream(s, buf + used, sizeof(buf) - used);
            used += n;
            if (n == 0 || s->n_dirty)
                break;
            shunt__list_remove(&s->ack);
        }
        memset(&frame, 0, sizeof(frame));
        frame.type = SHUNT__FRAME_ACK;
        frame.length = (uint32_t)used;
        if (shunt__path_send(p, &frame, buf, UINT64_MAX) != 0) {
            shunt__ack_everything(peer); /* not said: all of it again, later */
            if (p->blocked)
                return sent;
            continue;
        }
        sent = 1;
    }
    peer->ack_bytes = 0;
    return sent;
}

void shunt__ack_damaged(struct shunt__stream *s, uint64_t message, uint32_t chunk)
{
    struct {
        struct head h;
        struct entry e;
    } say = {{s->id, s->comm->epoch, 1, s->rx_acked, s->rx_matched}, {message, chunk, 0, DAMAGED}};
    struct shunt__frame frame;

    memset(&frame, 0, sizeof(frame));
    frame.type = SHUNT__FRAME_ACK;
    frame.length = sizeof(say);
    shunt__notice(s->peer, &frame, &say);
}

void shunt__ack_freed(struct shunt__peer *peer, const struct shunt__frame *f)
{
    struct {
        struct head h;
        struct entry e;
    } say = {{f->comm, f->epoch, 1, 0, 0}, {f->message, UINT32_MAX, 0, COMPLETE | MATCHED}};
    struct shunt__frame frame;

    memset(&frame, 0, sizeof(frame));
    frame.type = SHUNT__FRAME_ACK;
    frame.length = sizeof(say);
    shunt__notice(peer, &frame, &say);
}

/* ---- hearing ---- */

static struct shunt__tx_slot *slot_of(struct shunt__stream *s, uint64_t message)
{
    if (message < s->tx_base || message >= s->tx_next)
        return NULL;
    return &s->tx_ring[message & (s->tx_cap - 1)];
}

static void matched(struct shunt__stream *s, struct shunt__tx_slot *slot)
{
    struct shunt__tx *tx = slot->tx;

    if (slot->matched)
        return;
    slot->matched = 1;
    s->peer->unmatched -= slot->credit;
    slot->credit = 0;
    if (tx) {
        tx->granted = 1;
        tx->announce = 3;
        tx->limit = tx->n_chunks;
        shunt__tx_queue(tx);
    }
    shunt__pump_later(s->peer);
}

static void advance(struct shunt__stream *s)
{
    while (s->tx_base < s->tx_next) {
        struct shunt__tx_slot *slot = &s->tx_ring[s->tx_base & (s->tx_cap - 1)];
        if (!slot->done || !(slot->matched || slot->credit == 0))
            break;
        s->tx_base++;
    }
}

void shunt__ack_low(struct shunt__stream *s, uint64_t acked)
{
    for (uint64_t m = s->tx_done; m < acked && m < s->tx_next; m++) {
        struct shunt__tx *tx = s->tx_ring[m & (s->tx_cap - 1)].tx;
        if (!tx)
            continue;
        if (tx->next < tx->n_chunks && !tx->granted)
            continue; /* not even sent: a mark that can't be */
        memset(tx->acked, 0xff, ((tx->n_chunks + 63) / 64) * 8);
        tx->n_acked = tx->n_chunks;
        shunt__tx_finish(tx, SHUNT_OK, NULL);
    }
}

static void hear_entry(struct shunt__stream *s, const struct entry *e, const unsigned char *bits)
{
    struct shunt__tx_slot *slot = slot_of(s, e->message);
    struct shunt__tx *tx = slot ? slot->tx : NULL;

    if (!slot)
        return;
    if (e->flags & DAMAGED) {
        if (tx && e->base < tx->n_chunks)
            shunt__tx_resend(tx, e->base);
        return;
    }
    if (e->flags & MATCHED)
        matched(s, slot);
    if (!tx)
        return;
    if (tx->announce == 1 || tx->announce == 2)
        tx->announce = 3;
    if (e->flags & COMPLETE) {
        memset(tx->acked, 0xff, ((tx->n_chunks + 63) / 64) * 8);
        tx->n_acked = tx->n_chunks;
        shunt__tx_finish(tx, SHUNT_OK, NULL);
        return;
    }
    if (e->base > tx->n_chunks)
        return;
    for (uint32_t c = 0; c < e->base; c++) { /* whole words at once */
        if (c % 64 == 0 && tx->acked[c / 64] == UINT64_MAX) {
            c += 63;
            continue;
        }
        if (!(tx->acked[c / 64] >> (c % 64) & 1)) {
            tx->acked[c / 64] |= 1ull << (c % 64);
            tx->n_acked++;
        }
    }
    for (uint32_t w = 0; w < e->words; w++) {
        uint32_t word = e->base / 64 + w, have = (tx->n_chunks + 63) / 64;
        uint64_t x;
        if (word >= have)
            break;
        memcpy(&x, bits + 8 * w, 8);
        if (word == have - 1 && tx->n_chunks % 64)
            x &= (1ull << (tx->n_chunks % 64)) - 1;
        tx->n_acked += (uint32_t)__builtin_popcountll(x & ~tx->acked[word]);
        tx->acked[word] |= x;
    }
    if (tx->n_acked >= tx->n_chunks)
        shunt__tx_finish(tx, SHUNT_OK, NULL);
}

static int acknowledged(const struct shunt__record *r)
{
    if (!r->tx || !r->tx->op)
        return 1;
    if (r->chunk == SHUNT__NO_CHUNK)
        return r->tx->announce >= 3;
    return r->tx->acked[r->chunk / 64] >> (r->chunk % 64) & 1;
}

/* Takes a record out: the path's books, its rate, and the message's. */
static void settle(struct shunt__path *p, uint64_t index, int delivered)
{
    struct shunt__record *r = &p->records[index & (p->cap_records - 1)];
    uint64_t now = p->peer->ctx->now;

    if (delivered) {
        if (r->time <= p->delivered_time) { /* one after the other: the path had no pause in between */
            p->busy_bytes += r->bytes;
            p->busy_ns += now - p->delivered_time;
            if (p->busy_bytes >= SHUNT__SAMPLE_BYTES && p->busy_ns >= SHUNT__SAMPLE_NS)
                shunt__health_sample(p, now);
        }
        p->delivered += r->bytes;
        p->delivered_time = now;
        p->last_ack = now;
        uint64_t span = now - r->delivered_time, bytes = p->delivered - r->delivered;
        if (span > 1000 && bytes >= 32768) {
            double sample = (double)bytes / (double)span;
            if (p->rate_recent <= 0)
                p->rate_recent = sample;
            else if (sample > p->rate_recent || p->in_flight * 2 > p->window || !shunt__list_empty(&p->peer->sendq))
                p->rate_recent += (sample - p->rate_recent) / 8;
            p->rate = p->rate * 0.999 > p->rate_recent ? p->rate * 0.999 : p->rate_recent;
        }
        if (r->delivered_time == r->time) { /* sent on an idle path: how long the way is */
            double way = (double)(now - r->time);
            p->latency = p->latency <= 0 || way < p->latency ? way : p->latency + (way - p->latency) / 64;
        }
    }
    p->in_flight -= r->bytes;
    if (r->tx) {
        struct shunt__tx *tx = r->tx;
        if (r->reading) {
            if (p->link.conn)
                p->link.rail->ops->detach(&p->link, index);
            tx->reading--;
        }
        r->tx = NULL;
        r->reading = 0;
        tx->records--;
        shunt__tx_release(tx);
    }
}

/* Removes what is acknowledged from the front; what was overtaken on an ordered rail was lost on the way. */
static void reap(struct shunt__path *p)
{
    uint64_t last = p->head;

    while (p->head < p->tail) {
        if (!acknowledged(&p->records[p->head & (p->cap_records - 1)]))
            break;
        settle(p, p->head, 1);
        p->head++;
    }
    if (!(p->link.rail->caps & SHUNT__RAIL_ORDERED) || p->head == p->tail)
        return;
    for (uint64_t i = p->head, n = 0; i < p->tail && n < 64; i++, n++) /* a short look ahead */
        if (acknowledged(&p->records[i & (p->cap_records - 1)]))
            last = i;
    while (p->head < last) {
        struct shunt__record *r = &p->records[p->head & (p->cap_records - 1)];
        int here = acknowledged(r);
        struct shunt__tx *tx = r->tx;
        uint32_t chunk = r->chunk;
        if (!here && r->hedged == 2)
            break;
        if (!here)
            shunt__tx_resend(tx, chunk);
        settle(p, p->head, here);
        p->head++;
    }
}

static void reap_all(struct shunt__peer *peer)
{
    for (int i = 0; i < peer->ctx->n_rails; i++)
        if (peer->paths[i] && peer->paths[i]->head < peer->paths[i]->tail &&
            !(peer->paths[i]->link.rail->caps & SHUNT__RAIL_ACKS))
            reap(peer->paths[i]);
    shunt__pump_room(peer);
}

void shunt__ack_piggyback(struct shunt__stream *s, uint64_t acked)
{
    if (acked <= s->tx_done)
        return;
    shunt__ack_low(s, acked);
    reap_all(s->peer);
}

void shunt__ack_arrived(struct shunt__path *path, const void *payload, size_t len)
{
    const unsigned char *p = payload, *end = p + len;
    struct shunt__peer *peer = path->peer;

    while ((size_t)(end - p) >= sizeof(struct head)) {
        struct head h;
        memcpy(&h, p, sizeof(h));
        p += sizeof(h);
        struct shunt_comm *comm = shunt__comm_find(peer->ctx, h.comm & ~3ull);
        int channel = (int)(h.comm & 3), rank = comm ? shunt__comm_rank_of(comm, peer) : -1;
        struct shunt__stream *s = rank >= 0 && channel < SHUNT__CHANNELS && comm->epoch == h.epoch
                                      ? comm->streams[channel][rank] : NULL;
        for (uint32_t i = 0; i < h.entries; i++) {
            struct entry e;
            if ((size_t)(end - p) < sizeof(e))
                return;
            memcpy(&e, p, sizeof(e));
            p += sizeof(e);
            if (e.words > MAX_WORDS || (size_t)(end - p) < e.words * 8u)
                return;
            if (s)
                hear_entry(s, &e, p);
            p += e.words * 8u;
        }
        if (!s)
            continue;
        for (uint64_t m = s->tx_base; m < h.matched && m < s->tx_next; m++)
            matched(s, &s->tx_ring[m & (s->tx_cap - 1)]);
        shunt__ack_low(s, h.acked);
        advance(s);
    }
    reap_all(peer);
}

void shunt__path_consumed(struct shunt__path *path, uint64_t count)
{
    while (path->head < path->tail) {
        struct shunt__record *r = &path->records[path->head & (path->cap_records - 1)];
        struct shunt__tx *tx = r->tx;
        uint32_t chunk = r->chunk;
        if (r->frame > count)
            break;
        if (r->reading && tx) { /* consumed, so the rail reads it no more */
            r->reading = 0;
            tx->reading--;
        }
        if (tx)
            tx->records++; /* keep it while it is being acknowledged */
        settle(path, path->head, 1);
        path->head++;
        if (tx) {
            shunt__tx_acked(tx, chunk);
            tx->records--;
            shunt__tx_release(tx);
        }
    }
    shunt__pump_room(path->peer);
}

void shunt__path_recall(struct shunt__path *path)
{
    while (path->head < path->tail) {
        struct shunt__record *r = &path->records[path->head & (path->cap_records - 1)];
        struct shunt__tx *tx = r->tx;
        uint32_t chunk = r->chunk;
        int here = acknowledged(r);
        if (tx)
            tx->records++;
        settle(path, path->head, 0);
        path->head++;
        if (tx) {
            if (!here) {
                path->bytes_resent += chunk == SHUNT__NO_CHUNK ? 0 : tx->chunk;
                shunt__tx_resend(tx, chunk);
            }
            tx->records--;
            shunt__tx_release(tx);
        }
    }
    path->in_flight = 0;
}

void shunt__path_missed(struct shunt__path *path, uint64_t frame, uint64_t time)
{
    while (path->head < path->tail) {
        struct shunt__record *r = &path->records[path->head & (path->cap_records - 1)];
        struct shunt__tx *tx = r->tx;
        if (r->frame > frame || r->time > time)
            break;
        int here = acknowledged(r);
        if (!here)
            shunt__tx_resend(tx, r->chunk);
        settle(path, path->head, here);
        path->head++;
    }
}
