/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rail over shared memory between processes of one host: two byte rings per link in an anonymous, sealed memory file.
 *
 * No name exists in any file system, so nothing is left behind however a process ends. The end of a peer is seen
 * through its socket and its pidfd, at once. Frames are copied into the ring and out of it, or, where the kernel lets
 * one process read the other's memory and that is faster, read where they lie (shm_direct.c). Nobody writes into
 * another process's user memory, so a closed link is fenced.
 *
 * The ring is ordered and can't be damaged on the way, and the consumer's position in it is the acknowledgement.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "comm/base/log.h"
#include "comm/rail/shm.h"

#define CHUNK (128u << 10)
#define PIECE (16u << 10) /* most of a frame in one record: while one piece is copied out the next is copied in */
#define RECORDS_PER_TURN 32 /* of one link before the next one has its turn */
#define BYTES_PER_TURN (32u << 10) /* likewise: a receiver can post anew while the sender sends on */
#define HOT_ALWAYS 8        /* so few hot links are never cooled: looking at them costs next to nothing */
#define IDLE_TURNS 256

static struct shunt__shm_rail *shm(struct shunt__rail *rail)
{
    return (struct shunt__shm_rail *)(void *)rail;
}

/* Where the content of a record's first and later pieces starts: big ones aligned for the copy. */
static uint32_t first_offset(uint32_t payload)
{
    uint32_t close = (uint32_t)(sizeof(uint64_t) + sizeof(struct shunt__frame));

    return payload > 256 ? 2 * SHUNT__RING_LINE : close;
}
#define LATER_OFFSET SHUNT__RING_LINE

/* A whole message of a few bytes, or none, with what can't be derived of its header: one line. */
struct small {
    uint64_t marker;
    uint64_t comm, message, ack;
    uint32_t epoch;
    int32_t tag;
    uint32_t chunk, source;
    uint16_t flags;
    uint8_t type, length;
    uint8_t payload[12];
};
_Static_assert(sizeof(struct small) == SHUNT__RING_LINE, "a small record is one line");

static int is_small(const struct shunt__frame *f)
{
    return f->length <= sizeof(((struct small *)0)->payload) && f->offset == 0 && f->total == f->length &&
           f->flags <= UINT16_MAX && f->payload_crc == 0;
}

static void pack(struct small *s, const struct shunt__frame *f, const void *payload)
{
    s->comm = f->comm;
    s->message = f->message;
    s->ack = f->ack;
    s->epoch = f->epoch;
    s->tag = f->tag;
    s->chunk = f->chunk;
    s->source = f->source;
    s->flags = (uint16_t)f->flags;
    s->type = f->type;
    s->length = (uint8_t)f->length;
    if (f->length == 8)
        memcpy(s->payload, payload, 8);
    else if (f->length)
        memcpy(s->payload, payload, f->length);
}

static void unpack(const struct small *s, struct shunt__frame *f, uint32_t generation)
{
    *f = (struct shunt__frame){.magic = SHUNT__FRAME_MAGIC,
                               .version = SHUNT__WIRE_VERSION,
                               .type = s->type,
                               .generation = generation,
                               .length = s->length,
                               .comm = s->comm,
                               .epoch = s->epoch,
                               .tag = s->tag,
                               .message = s->message,
                               .total = s->length,
                               .ack = s->ack,
                               .chunk = s->chunk,
                               .source = s->source,
                               .flags = s->flags};
    f->total = f->length;
}

static void ring_bell(struct shunt__shm_conn *c)
{
    uint64_t one = 1;

    __atomic_fetch_or(&c->bell->ready[c->bell_slot / 64], 1ull << (c->bell_slot % 64), __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&c->bell->sleeping, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&c->bell->sleeping, 0, __ATOMIC_SEQ_CST))
        while (write(c->bell_fd, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
}

/* After a record or a position was published. */
static inline void notify(struct shunt__shm_conn *c)
{
    if (__atomic_load_n(&c->other->attention, __ATOMIC_SEQ_CST))
        ring_bell(c);
}

void shunt__shm_heat(struct shunt__shm_conn *c)
{
    c->idle = 0;
    if (c->hot >= 0)
        return;
    __atomic_store_n(&c->own->attention, 0, __ATOMIC_RELAXED);
    c->hot = c->rail->n_hot;
    c->rail->hot[c->rail->n_hot++] = c;
}

void shunt__shm_cool(struct shunt__shm_conn *c)
{
    struct shunt__shm_rail *r = c->rail;

    if (c->hot < 0)
        return;
    r->hot[c->hot] = r->hot[--r->n_hot];
    r->hot[c->hot]->hot = c->hot;
    c->hot = -1;
}

/* After a send: an answer or an acceptance will come. While somebody sleeps on the bell, it must ring instead. */
static inline void watch(struct shunt__shm_conn *c)
{
    if (!c->rail->armed)
        shunt__shm_heat(c);
}

/* Something for us on this link: records, acceptances, or room that is waited for. */
static int has_news(struct shunt__shm_conn *c)
{
    return shunt__ring_waiting(&c->in) || __atomic_load_n(&c->other->frames, __ATOMIC_SEQ_CST) > c->accepted ||
           ((c->pending.payload || c->refused) &&
            __atomic_load_n(&c->other->head, __ATOMIC_SEQ_CST) > c->out.head);
}

/* ---- receiving ---- */

#define PEER_IS_GONE 2 /* of which the socket or the pidfd will tell */

static int broken(struct shunt__shm_conn *c)
{
    shunt__shm_fail(c, SHUNT_ERR_RAIL, "the shared ring is damaged");
    return -1;
}

/* The first record of a frame that has more; -1 when the conn is gone. */
static int begin(struct shunt__shm_conn *c, const struct shunt__frame *frame)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    uint8_t *at = p->events->land(p->engine, c->link, frame);

    if (c->state == SHUNT__SHM_GONE)
        return -1;
    if (!at) {
        if (!c->arriving.copy)
            c->arriving.copy = malloc(SHUNT__FRAME_PAYLOAD_MAX);
        if (!c->arriving.copy) {
            shunt__shm_fail(c, SHUNT_ERR_RAIL, "no memory for a frame");
            return -1;
        }
        at = c->arriving.copy;
    }
    c->arriving.frame = *frame;
    c->arriving.at = at;
    c->arriving.done = 0;
    return 0;
}

/* A frame whose payload is still where its sender has it. */
static int take_direct(struct shunt__shm_conn *c, const struct shunt__ring_record *record)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    struct shunt__frame frame;
    void *payload;
    int err;

    if (c->arriving.at || record->length < SHUNT__SHM_DIRECT_STATE + sizeof(uint64_t) ||
        !__atomic_load_n(&c->own->reads, __ATOMIC_RELAXED))
        return broken(c);
    memcpy(&frame, record->start + sizeof(uint64_t), sizeof(frame));
    if (!shunt__frame_valid(&c->rail->base, &frame))
        return broken(c);
    if (begin(c, &frame))
        return -1;
    payload = c->arriving.at;
    c->arriving.at = NULL;
    err = shunt__shm_direct_fetch(c, record->start, payload, frame.length);
    if (err == ESRCH)
        return PEER_IS_GONE;
    if (err) {
        if (err != ECANCELED)
            return broken(c);
        shunt__shm_fail(c, SHUNT_ERR_RAIL, "closed by the other side");
        return -1;
    }
    p->events->frame(p->engine, c->link, &frame, payload);
    return c->state == SHUNT__SHM_GONE ? -1 : 1;
}

/* One record; 1: a frame was handed over, 0: not yet a whole one, -1: the conn is gone, or PEER_IS_GONE. */
static int take(struct shunt__shm_conn *c, const struct shunt__ring_record *record)
{
    const struct shunt__rail_params *p = &c->rail->base.params;
    struct shunt__shm_arriving *a = &c->arriving;
    int last = record->kind == SHUNT__RING_LAST;
    uint32_t n, offset = LATER_OFFSET;
    struct shunt__frame frame;
    const void *payload;

    if (record->kind == SHUNT__RING_SMALL) {
        const struct small *s = (const struct small *)(const void *)record->start;

        unpack(s, &frame, c->link->generation);
        if (a->at || frame.length > sizeof(s->payload) || !shunt__frame_valid(&c->rail->base, &frame))
            return broken(c);
        p->events->frame(p->engine, c->link, &frame, s->payload);
        return c->state == SHUNT__SHM_GONE ? -1 : 1;
    }
    if (record->kind == SHUNT__RING_DIRECT)
        return take_direct(c, record);
    if (record->kind == SHUNT__RING_ONLY || record->kind == SHUNT__RING_FIRST) {
        if (a->at || record->length < sizeof(uint64_t) + sizeof(frame))
            return broken(c);
        /* A private copy: what has been checked must not change any more. */
        memcpy(&frame, record->start + sizeof(uint64_t), sizeof(frame));
        offset = first_offset(frame.length);
        if (!shunt__frame_valid(&c->rail->base, &frame) || offset > record->length)
            return broken(c);
        if (record->kind == SHUNT__RING_ONLY) {
            if (frame.length > record->length - offset)
                return broken(c);
            p->events->frame(p->engine, c->link, &frame, record->start + offset);
            return c->state == SHUNT__SHM_GONE ? -1 : 1;
        }
        if (begin(c, &frame))
            return -1;
    } else if (!a->at) {
        return broken(c);
    }
    n = last ? a->frame.length - a->done : record->length - offset;
    if (record->length < offset || n > record->length - offset || n > a->frame.length - a->done)
        return broken(c);
    memcpy(a->at + a->done, record->start + offset, n);
    a->done += n;
    if (!last)
        return 0;
    frame = a->frame;
    payload = a->at;
    a->at = NULL;
    p->events->frame(p->engine, c->link, &frame, payload);
    return c->state == SHUNT__SHM_GONE ? -1 : 1;
}

static void tell(struct shunt__shm_conn *c)
{
    shunt__ring_tell(&c->in);
    notify(c);
}

static int use_acceptances(struct shunt__shm_conn *c);

/*
 * A record that says that what we sent was accepted is left for the next turn, once: whoever waited for that may want to post
 * the receive that the record belongs to, and then nothing needs to be put aside.
 */
static int receive(struct shunt__shm_conn *c, int budget, int draining)
{
    struct shunt__ring_record record;
    int moved = 0, got;
    uint32_t bytes = 0;

    while (budget-- > 0) {
        enum shunt__ring_state state = shunt__ring_next(&c->in, &record);
        if (state == SHUNT__RING_EMPTY)
            break;
        if (state == SHUNT__RING_BROKEN) {
            broken(c);
            return moved + 1;
        }
        if (shunt__ring_reported(&c->out, record.marker)) {
            broken(c);
            return moved + 1;
        }
        if (c->out.frames != c->accepted && moved == 0 && !draining) {
            use_acceptances(c);
            return 1;
        }
        got = take(c, &record);
        if (got < 0)
            return moved + 1;
        if (got == PEER_IS_GONE)
            break;
        moved++;
        shunt__ring_consume(&c->in, &record);
        shunt__ring_hint(&c->in);
        if (c->in.head - c->in.told >= c->in.size / 8 || record.kind == SHUNT__RING_DIRECT)
            tell(c);
        bytes += record.kind == SHUNT__RING_DIRECT ? BYTES_PER_TURN : record.length;
        if (bytes >= BYTES_PER_TURN && !draining)
            break;
    }
    return moved;
}

/* ---- sending ---- */

static uint32_t largest_record(const struct shunt__shm_conn *c)
{
    uint32_t most = shunt__ring_record_max(c->out.size);

    return most < PIECE ? most : PIECE;
}

/* Copies as much of the pending frame as there is room for; nonzero when all of it is in the ring. */
static int push(struct shunt__shm_conn *c)
{
    struct shunt__shm_pending *q = &c->pending;
    uint32_t most = largest_record(c) - LATER_OFFSET;

    while (q->done < q->length) {
        uint32_t left = q->length - q->done, n = left < most ? left : most;
        uint8_t *record = shunt__ring_reserve(&c->out, LATER_OFFSET + n);
        if (!record)
            break;
        memcpy(record + LATER_OFFSET, q->payload + q->done, n);
        q->done += n;
        shunt__ring_publish(&c->out, LATER_OFFSET + n, q->done == q->length ? SHUNT__RING_LAST : SHUNT__RING_MIDDLE,
                            &c->in);
        notify(c);
    }
    return q->done == q->length;
}

static int wants_direct(struct shunt__shm_conn *c, const struct shunt__frame *frame)
{
    return frame->length >= SHUNT__SHM_DIRECT_MIN && frame->length <= c->rail->direct &&
           frame->total <= c->rail->direct && __atomic_load_n(&c->other->reads, __ATOMIC_RELAXED);
}

static shunt_status_t send_direct(struct shunt__shm_conn *c, const struct shunt__frame *frame, const void *payload,
                                  uint64_t ref)
{
    uint32_t length = SHUNT__SHM_DIRECT_STATE + sizeof(uint64_t);
    uint8_t *record = NULL;
    struct shunt__frame *head;

    if (!c->pending.payload && c->n_direct < SHUNT__SHM_DIRECT)
        record = shunt__ring_reserve(&c->out, length);
    if (!record) {
        c->refused = shunt__ring_round(length);
        watch(c);
        return SHUNT_ERR_AGAIN;
    }
    head = (struct shunt__frame *)(void *)(record + sizeof(uint64_t));
    *head = *frame;
    shunt__frame_seal(&c->rail->base, c->link, head, payload);
    c->out.sent++;
    shunt__shm_direct_offer(c, record, payload, frame->length, ref);
    shunt__ring_publish(&c->out, length, SHUNT__RING_DIRECT, &c->in);
    notify(c);
    watch(c);
    return SHUNT_IN_PROGRESS;
}

static shunt_status_t send_frame(struct shunt__link *link, const struct shunt__frame *frame, const void *payload,
                                 uint64_t ref)
{
    struct shunt__shm_conn *c = link->conn;
    uint32_t offset = first_offset(frame->length), most, n = frame->length;
    struct shunt__frame *head;
    uint8_t *record;

    if (!c || c->state != SHUNT__SHM_UP)
        return shunt__fail(SHUNT_ERR_RAIL, "%s: not connected", link->rail->name);
    if (is_small(frame) && !c->pending.payload && (record = shunt__ring_reserve(&c->out, sizeof(struct small)))) {
        pack((struct small *)(void *)record, frame, payload);
        c->out.sent++;
        shunt__ring_publish(&c->out, sizeof(struct small), SHUNT__RING_SMALL, &c->in);
        notify(c);
        watch(c);
        return SHUNT_OK;
    }
    if (wants_direct(c, frame))
        return send_direct(c, frame, payload, ref);
    most = largest_record(c) - offset;
    if (n > most)
        n = most;
    record = c->pending.payload ? NULL : shunt__ring_reserve(&c->out, offset + n);
    if (!record) {
        c->refused = shunt__ring_round(offset + n);
        watch(c);
        return SHUNT_ERR_AGAIN;
    }
    head = (struct shunt__frame *)(void *)(record + sizeof(uint64_t));
    *head = *frame;
    shunt__frame_seal(link->rail, link, head, payload);
    if (n)
        memcpy(record + offset, payload, n);
    c->out.sent++;
    shunt__ring_publish(&c->out, offset + n, n == frame->length ? SHUNT__RING_ONLY : SHUNT__RING_FIRST, &c->in);
    notify(c);
    watch(c);
    if (n == frame->length)
        return SHUNT_OK;
    c->pending = (struct shunt__shm_pending){.payload = payload, .done = n, .length = frame->length, .ref = ref};
    if (!push(c))
        return SHUNT_IN_PROGRESS;
    c->pending.payload = NULL;
    return SHUNT_OK;
}

/* A frame can't be completed any more: the link ends, which progress() will say. */
static void out_of_memory(struct shunt__shm_conn *c)
{
    c->pending.payload = NULL;
    c->failed = SHUNT_ERR_RAIL;
    c->state = SHUNT__SHM_FAILED;
    c->rail->n_failed++;
    snprintf(c->text, sizeof(c->text), "no memory for the rest of a frame");
}

static void detach(struct shunt__link *link, uint64_t ref)
{
    struct shunt__shm_conn *c = link->conn;
    struct shunt__shm_pending *q;
    uint32_t left;

    if (!c || c->state != SHUNT__SHM_UP)
        return;
    q = &c->pending;
    if (!q->payload || q->copy || q->ref != ref) {
        if (shunt__shm_direct_detach(c, ref))
            out_of_memory(c);
        return;
    }
    left = q->length - q->done;
    q->copy = malloc(left);
    if (!q->copy) {
        out_of_memory(c);
        return;
    }
    memcpy(q->copy, q->payload + q->done, left);
    q->payload = q->copy;
    q->length = left;
    q->done = 0;
}

static void redirect(struct shunt__link *link)
{
    struct shunt__shm_conn *c = link->conn;
    struct shunt__shm_arriving *a;

    if (!c || !c->arriving.at || c->arriving.at == c->arriving.copy || c->state != SHUNT__SHM_UP)
        return;
    a = &c->arriving;
    if (!a->copy)
        a->copy = malloc(SHUNT__FRAME_PAYLOAD_MAX);
    if (!a->copy) {
        out_of_memory(c);
        return;
    }
    memcpy(a->copy, a->at, a->done);
    a->at = a->copy;
}

/* What the other side has accepted, and what the room that came with it allows; -1 when the conn is gone. */
static int use_acceptances(struct shunt__shm_conn *c)
{
    const struct shunt__rail_params *p = &c->rail->base.params;

    if (c->out.frames != c->accepted) {
        c->accepted = c->out.frames;
        p->events->consumed(p->engine, c->link, c->accepted);
        if (c->state == SHUNT__SHM_GONE)
            return -1;
    }
    if (c->n_direct && shunt__shm_direct_settle(c))
        return -1;
    if (c->pending.payload && push(c)) {
        struct shunt__shm_pending done = c->pending;

        c->pending = (struct shunt__shm_pending){0};
        free(done.copy);
        if (!done.copy)
            p->events->sent(p->engine, c->link, done.ref);
        if (c->state == SHUNT__SHM_GONE)
            return -1;
    }
    if (c->refused && !c->pending.payload && c->n_direct < SHUNT__SHM_DIRECT &&
        shunt__ring_free(&c->out) >= 2ull * c->refused + SHUNT__RING_LINE) {
        c->refused = 0;
        p->events->writable(p->engine, c->link);
        if (c->state == SHUNT__SHM_GONE)
            return -1;
    }
    return 0;
}

void shunt__shm_drain(struct shunt__shm_conn *c)
{
    receive(c, INT32_MAX, 1);
    if (c->state != SHUNT__SHM_UP)
        return;
    if (shunt__ring_refresh(&c->out))
        broken(c);
    else
        use_acceptances(c);
}

/* ---- progress ---- */

static int turn(struct shunt__shm_conn *c)
{
    int moved;

    if (c->state != SHUNT__SHM_UP)
        return 0;
    moved = receive(c, RECORDS_PER_TURN, 0);
    if (c->state != SHUNT__SHM_UP)
        return moved;
    if (c->out.sent != c->accepted || c->refused) {
        if (shunt__ring_refresh(&c->out)) {
            broken(c);
            return moved + 1;
        }
        if (use_acceptances(c))
            return moved + 1;
    }
    if (moved) {
        c->idle = 0;
        return moved;
    }
    if (c->in.head != c->in.told)
        tell(c); /* no answer took the report along */
    if (c->rail->n_hot > HOT_ALWAYS && ++c->idle > IDLE_TURNS && c->hot >= 0) {
        __atomic_store_n(&c->own->attention, 1, __ATOMIC_SEQ_CST);
        if (has_news(c)) {
            __atomic_store_n(&c->own->attention, 0, __ATOMIC_RELAXED);
            c->idle = 0;
        } else {
            shunt__shm_cool(c);
        }
    }
    return 0;
}

static void heat_ready(struct shunt__shm_rail *r)
{
    for (uint32_t w = 0; w < r->words; w++) {
        uint64_t bits;

        if (!__atomic_load_n(&r->bell->ready[w], __ATOMIC_RELAXED))
            continue;
        bits = __atomic_exchange_n(&r->bell->ready[w], 0, __ATOMIC_SEQ_CST);
        for (; bits; bits &= bits - 1) {
            uint32_t slot = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if (slot < r->n_slots && r->slots[slot] && r->slots[slot]->state == SHUNT__SHM_UP)
                shunt__shm_heat(r->slots[slot]);
        }
    }
}

static void report_failed(struct shunt__shm_rail *r)
{
    struct shunt__shm_conn *next;

    for (struct shunt__shm_conn *c = r->conns; c && r->n_failed; c = next) {
        next = c->next;
        if (c->state == SHUNT__SHM_FAILED) {
            shunt__shm_fail(c, c->failed, c->text);
            next = r->conns; /* the callback may have changed the list */
        }
    }
}

static int progress(struct shunt__rail *rail)
{
    struct shunt__shm_rail *r = shm(rail);
    int moved = 0;

    if (r->armed) {
        r->armed = 0;
        __atomic_store_n(&r->bell->sleeping, 0, __ATOMIC_RELAXED);
    }
    if (r->grave)
        shunt__shm_bury(r);
    if (r->n_failed)
        report_failed(r);
    heat_ready(r);
    for (int i = r->n_hot - 1; i >= 0; i--)
        if (i < r->n_hot)
            moved += turn(r->hot[i]);
    return moved;
}

/* To be asked after a progress() that moved nothing: that has told what is to be told. */
static int waiting(struct shunt__rail *rail)
{
    const struct shunt__shm_rail *r = shm(rail);

    for (uint32_t w = 0; w < r->words; w++)
        if (__atomic_load_n(&r->bell->ready[w], __ATOMIC_RELAXED))
            return 1;
    for (int i = 0; i < r->n_hot; i++)
        if (has_news(r->hot[i]))
            return 1;
    return r->n_failed != 0;
}

/* From here until the next progress() whoever has news for this process rings its bell. */
static int arm(struct shunt__rail *rail)
{
    struct shunt__shm_rail *r = shm(rail);

    if (r->n_failed)
        return 1;
    __atomic_store_n(&r->bell->sleeping, 1, __ATOMIC_SEQ_CST);
    for (uint32_t w = 0; w < r->words; w++)
        if (__atomic_load_n(&r->bell->ready[w], __ATOMIC_SEQ_CST))
            goto awake;
    while (r->n_hot) {
        struct shunt__shm_conn *c = r->hot[r->n_hot - 1];

        if (c->in.head != c->in.told)
            tell(c);
        __atomic_store_n(&c->own->attention, 1, __ATOMIC_SEQ_CST);
        if (has_news(c)) {
            __atomic_store_n(&c->own->attention, 0, __ATOMIC_RELAXED);
            goto awake;
        }
        shunt__shm_cool(c);
    }
    r->armed = 1;
    return 0;
awake:
    __atomic_store_n(&r->bell->sleeping, 0, __ATOMIC_RELAXED);
    return 1;
}

static void rung(struct shunt__pollable *self, uint32_t events)
{
    uint64_t count;

    (void)events;
    while (read(self->fd, &count, sizeof(count)) < 0 && errno == EINTR)
        ;
}

/* ---- the rest of the operations ---- */

static void disconnect(struct shunt__link *link)
{
    if (link->conn)
        shunt__shm_teardown(link->conn);
}

static shunt_status_t address(struct shunt__rail *rail, void *buf, size_t *len)
{
    if (*len < shm(rail)->address_len)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: an address takes %zu bytes", rail->name, shm(rail)->address_len);
    memcpy(buf, shm(rail)->address, shm(rail)->address_len);
    *len = shm(rail)->address_len;
    return SHUNT_OK;
}

static void stats(struct shunt__link *link, struct shunt__link_stats *s)
{
    struct shunt__shm_conn *c = link->conn;

    *s = (struct shunt__link_stats){0};
    if (!c || c->state != SHUNT__SHM_UP)
        return;
    s->queued = c->pending.payload ? c->pending.length - c->pending.done : 0;
    for (uint32_t i = 0; i < c->n_direct; i++)
        s->queued += c->direct[(c->direct_first + i) % SHUNT__SHM_DIRECT].length;
    s->unacked = c->out.tail - c->out.head;
}

static const char *describe(struct shunt__link *link)
{
    struct shunt__shm_conn *c = link->conn;

    return c ? c->text : "not connected";
}

static void close_rail(struct shunt__rail *rail)
{
    struct shunt__shm_rail *r = shm(rail);

    if (!r)
        return;
    while (r->conns)
        shunt__shm_teardown(r->conns);
    shunt__shm_bury(r);
    for (int i = 0; i < 2; i++) {
        struct shunt__pollable *x = i ? &r->bell_fd : &r->listener;
        if (x->fd >= 0) {
            shunt__poller_remove(r->base.params.poller, x);
            close(x->fd);
        }
    }
    if (r->bell)
        munmap(r->bell, SHUNT__SHM_PAGE);
    if (r->bell_page_fd >= 0)
        close(r->bell_page_fd);
    free(r->slots);
    free(r->hot);
    free(r);
}

static shunt_status_t open_rail(const struct shunt__rail_params *params, struct shunt__rail **rail)
{
    int64_t wanted = shunt__config_int(params->config, SHUNT__SHM_RING);
    struct shunt__shm_rail *r;
    shunt_status_t status;

    if (wanted < SHUNT__RING_MIN || wanted > SHUNT__RING_MAX)
        return shunt__fail(SHUNT_ERR_INVALID, "SHUNT_SHM_RING: a ring has %u to %u bytes", SHUNT__RING_MIN,
                           SHUNT__RING_MAX);
    r = aligned_alloc(SHUNT__RING_LINE, (sizeof(*r) + SHUNT__RING_LINE - 1) & ~(size_t)(SHUNT__RING_LINE - 1));
    if (!r)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the shared memory rail");
    memset(r, 0, sizeof(*r));
    r->listener.fd = r->bell_fd.fd = r->bell_page_fd = -1;
    r->bell_fd.ready = rung;
    r->direct = (uint64_t)shunt__config_int(params->config, SHUNT__SHM_DIRECT_MAX);
    for (r->ring = SHUNT__RING_MIN; r->ring < (uint64_t)wanted;)
        r->ring *= 2;
    shunt__rail_init(&r->base, &shunt__shm_ops, params,
                     SHUNT__RAIL_CHECKED | SHUNT__RAIL_ACKS | SHUNT__RAIL_LOCAL | SHUNT__RAIL_ORDERED, CHUNK);
    status = shunt__shm_listen(r);
    if (status != SHUNT_OK) {
        close_rail(&r->base);
        return status;
    }
    *rail = &r->base;
    return SHUNT_OK;
}

const struct shunt__rail_ops shunt__shm_ops = {
    .name = "shm",
    .open = open_rail,
    .close = close_rail,
    .address = address,
    .reach = shunt__shm_reach,
    .connect = shunt__shm_connect,
    .disconnect = disconnect,
    .send = send_frame,
    .detach = detach,
    .redirect = redirect,
    .progress = progress,
    .arm = arm,
    .waiting = waiting,
    .tick = shunt__shm_tick,
    .stats = stats,
    .describe = describe,
};
