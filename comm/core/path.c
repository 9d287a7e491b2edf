/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths: connecting, failing, coming back.
 *
 *     IDLE ─► CONNECTING ─► UP ◄─► SLOW            a path is made when something is first wanted of its peer
 *                 │          │ ▲
 *                 │          ▼ │ heard from again
 *                 │       SUSPECT                  silent, while another path to the same peer is not
 *                 ▼          ▼
 *               DEAD ◄────────  ─► PROBING ─► UP   carrier lost, connection lost, or SUSPECT for too long
 *
 * Whatever was in flight on a path that leaves UP is queued again at once; the receiver drops what came twice.
 */
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/core/engine.h"
#include "comm/core/hello.h"

#define CONNECT_GIVE_UP (1000 * SHUNT__MS) /* while nothing else leads to the peer */
#define PROBE_GIVE_UP (300 * SHUNT__MS)
#define PROBE_FIRST (50 * SHUNT__MS)
#define PROBE_LATER (500 * SHUNT__MS)
#define PROBE_LATE (5 * SHUNT__S) /* from a minute after the loss */
#define OVERTAKEN (250 * SHUNT__MS)
#define CROSSING (200 * SHUNT__MS)
#define PATIENCE_MAX (400 * SHUNT__MS)
#define PATIENCE_FADES 2048 /* ticks, about: 20 s */
#define WINDOW_FIRST (512u << 10)

const char *shunt_rail_state_name(shunt_rail_state_t state)
{
    static const char *const names[] = {"idle", "connecting", "up", "slow", "suspect", "dead", "probing"};

    return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

struct shunt__path *shunt__path_of(struct shunt__link *link)
{
    return shunt__container(link, struct shunt__path, link);
}

void shunt__path_move(struct shunt__path *path, shunt_rail_state_t state, const char *fmt, ...)
{
    struct shunt__peer *peer = path->peer;
    shunt_rail_state_t old = path->state;
    int was_usable = shunt__path_usable(path), lost;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(path->why, sizeof(path->why), fmt, ap);
    va_end(ap);
    if (old == state)
        return;
    path->state = state;
    path->since = peer->ctx->now;
    lost = was_usable && !shunt__path_usable(path);
    shunt__log(SHUNT__LOG_INFO, "rail %s to %s: %s -> %s (%s)", path->link.rail->name, shunt__peer_name(peer),
               shunt_rail_state_name(old), shunt_rail_state_name(state), path->why);
    if (state == SHUNT_RAIL_UP && path->was_up && old != SHUNT_RAIL_SLOW)
        shunt__health_event(peer->ctx, SHUNT_EVENT_RAIL_UP, peer, path->rail, "rail %s to %s is back: %s",
                            path->link.rail->name, shunt__peer_name(peer), path->why);
    if (state == SHUNT_RAIL_DEAD && (was_usable || old == SHUNT_RAIL_SUSPECT) && peer->state == SHUNT_OK && !peer->left &&
        !shunt__peer_parted(peer))
        shunt__health_event(peer->ctx, SHUNT_EVENT_RAIL_DOWN, peer, path->rail, "rail %s to %s is dead: %s",
                            path->link.rail->name, shunt__peer_name(peer), path->why);
    if (state == SHUNT_RAIL_SUSPECT)
        shunt__health_event(peer->ctx, SHUNT_EVENT_RAIL_SUSPECT, peer, path->rail, "rail %s to %s is suspect: %s",
                            path->link.rail->name, shunt__peer_name(peer), path->why);
    if (lost) {
        shunt__path_recall(path);
        shunt__ack_everything(peer); /* what was said over it may not have been heard */
    }
    shunt__pump_later(peer);
}

static struct shunt__path *new_path(struct shunt__peer *peer, int rail, int remote)
{
    struct shunt__path *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->link.rail = peer->ctx->rails[rail];
    p->peer = peer;
    p->rail = rail;
    p->remote = remote;
    p->since = peer->ctx->now;
    p->window = WINDOW_FIRST < peer->ctx->window_max ? WINDOW_FIRST : peer->ctx->window_max;
    snprintf(p->why, sizeof(p->why), "not needed yet");
    peer->paths[rail] = p;
    peer->n_paths++;
    return p;
}

/* How well our rail i reaches the peer's rail j: 0 not at all. */
static int reach(const struct shunt__peer *peer, int i, int j)
{
    struct shunt__rail *rail = peer->ctx->rails[i];
    const struct shunt__card_rail *r = &peer->card.rails[j];

    if (strcmp(r->backend, rail->ops->name) != 0 || ((rail->caps & SHUNT__RAIL_LOCAL) && !peer->local))
        return 0;
    return rail->ops->reach(rail, r->address, r->len);
}

/*
 * Rail-aligned: pairs of one subnet before routed ones, equal indices before others, each rail once. Both sides come to
 * the same pairs, since both go through them in the order of the lower uid's rails.
 */
void shunt__path_pair(struct shunt__peer *peer)
{
    struct shunt_context *ctx = peer->ctx;
    int mine_first = memcmp(ctx->card.uid, peer->card.uid, 16) < 0;
    unsigned char taken[SHUNT__MAX_RAILS] = {0};

    for (int pass = 0; pass < 4; pass++) {
        for (int ab = 0; ab < SHUNT__MAX_RAILS * SHUNT__MAX_RAILS; ab++) {
            int a = ab / SHUNT__MAX_RAILS, b = ab % SHUNT__MAX_RAILS;
            int i = mine_first ? a : b, j = mine_first ? b : a, same_index = pass % 2 == 0;
            if (i >= ctx->n_rails || j >= peer->card.n_rails || peer->paths[i] || taken[j] || (same_index && i != j))
                continue;
            if (reach(peer, i, j) >= 2 - pass / 2 && new_path(peer, i, j))
                taken[j] = 1;
        }
    }
}

void shunt__path_free(struct shunt__path *path)
{
    if (!path)
        return;
    if (path->link.conn)
        path->link.rail->ops->disconnect(&path->link);
    shunt__path_recall(path);
    free(path->records);
    free(path);
}

int shunt__path_connect(struct shunt__path *path)
{
    struct shunt__peer *peer = path->peer;
    const struct shunt__card_rail *r = &peer->card.rails[path->remote];
    int first = path->state == SHUNT_RAIL_IDLE || path->state == SHUNT_RAIL_CONNECTING;
    shunt_status_t st;

    path->connect_at = 0;
    path->attempts++;
    path->refused = 0;
    path->connect_start = peer->ctx->now;
    path->link.generation++;
    shunt__path_move(path, first ? SHUNT_RAIL_CONNECTING : SHUNT_RAIL_PROBING, "attempt %u", path->attempts);
    st = path->link.rail->ops->connect(path->link.rail, &path->link, r->address, r->len);
    if (st != SHUNT_OK) {
        shunt__path_drop(path, SHUNT_RAIL_DEAD, shunt_error_text());
        return -1;
    }
    return 0;
}

/* When to try again a path that is down. */
static uint64_t next_attempt(const struct shunt__path *p)
{
    uint64_t now = p->peer->ctx->now, wait = PROBE_FIRST << (p->attempts < 4 ? p->attempts : 4);

    if (now - p->since > 60 * SHUNT__S)
        return now + PROBE_LATE;
    return now + (wait > PROBE_LATER ? PROBE_LATER : wait);
}

void shunt__path_drop(struct shunt__path *path, shunt_rail_state_t state, const char *why)
{
    char text[sizeof(path->why)];

    snprintf(text, sizeof(text), "%s", why); /* may be path->why itself */
    if (path->link.conn)
        path->link.rail->ops->disconnect(&path->link);
    path->landing = NULL;
    path->blocked = 0;
    path->ping_open = 0;
    shunt__path_move(path, state, "%s", text);
    shunt__path_recall(path);
    if (state == SHUNT_RAIL_DEAD && path->connect_at == 0)
        path->connect_at = next_attempt(path);
}

/* ---- events from the rails ---- */

static void on_hello(void *engine, struct shunt__link *link, void *buf, size_t *len)
{
    struct shunt__path *p = shunt__path_of(link);
    struct shunt_context *ctx = engine;
    struct shunt__hello h = {.generation = link->generation, .rail_from = (uint8_t)p->rail,
                             .rail_to = (uint8_t)p->remote};

    memcpy(h.from, ctx->card.uid, 16);
    memcpy(h.to, p->peer->card.uid, 16);
    randombytes_buf(h.nonce, sizeof(h.nonce));
    *len = shunt__hello_pack(&h, p->peer->card.secret, buf);
}

static int replayed(struct shunt__path *p, const unsigned char nonce[16])
{
    for (int i = 0; i < 8; i++)
        if (memcmp(p->nonces[i], nonce, 16) == 0)
            return 1;
    memcpy(p->nonces[p->n_nonces++ % 8], nonce, 16);
    return 0;
}

static struct shunt__link *on_incoming(void *engine, struct shunt__rail *rail, const void *payload, size_t len,
                                       void *welcome, size_t *welcome_len)
{
    struct shunt_context *ctx = engine;
    unsigned char from[16];
    struct shunt__hello h;
    struct shunt__peer *peer;
    struct shunt__path *p = NULL;

    if (shunt__hello_peek(payload, len, from) || shunt__hello_unpack(payload, len, ctx->card.secret, &h) ||
        memcmp(h.to, ctx->card.uid, 16) != 0 || !(peer = shunt__peer_find(ctx, from)) || peer->state != SHUNT_OK) {
        shunt__log_once(SHUNT__LOG_WARN, "%s: a connection that is not of this job was refused (said once)", rail->name);
        return NULL;
    }
    for (int i = 0; i < SHUNT__MAX_RAILS; i++)
        if (peer->paths[i] && peer->paths[i]->rail == h.rail_to && peer->paths[i]->remote == h.rail_from &&
            peer->paths[i]->link.rail == rail)
            p = peer->paths[i];
    if (!p || replayed(p, h.nonce))
        return NULL;
    if ((p->state == SHUNT_RAIL_CONNECTING || p->state == SHUNT_RAIL_PROBING) && p->link.conn &&
        memcmp(ctx->card.uid, peer->card.uid, 16) < 0 && ctx->now - p->connect_start < CROSSING)
        return NULL; /* both connect at once: the lower uid's attempt stays */
    if (p->link.conn && (shunt__path_usable(p) || p->state == SHUNT_RAIL_SUSPECT) && h.generation <= p->link.generation)
        return NULL; /* what it said before this connection came up, read late */
    if (p->link.conn) {
        if (shunt__path_usable(p) || p->state == SHUNT_RAIL_SUSPECT)
            shunt__path_drop(p, SHUNT_RAIL_DEAD, "the other side opened a new connection");
        else
            p->link.rail->ops->disconnect(&p->link);
    }
    if (h.generation > p->link.generation)
        p->link.generation = h.generation;
    else
        p->link.generation++;
    p->connect_at = 0;
    p->connect_start = ctx->now;
    shunt__path_move(p, p->was_up ? SHUNT_RAIL_PROBING : SHUNT_RAIL_CONNECTING, "the other side connects");
    struct shunt__hello answer = {.generation = p->link.generation, .rail_from = h.rail_to, .rail_to = h.rail_from};
    memcpy(answer.from, ctx->card.uid, 16);
    memcpy(answer.to, peer->card.uid, 16);
    memcpy(answer.nonce, h.nonce, 16);
    *welcome_len = shunt__hello_pack(&answer, peer->card.secret, welcome);
    return &p->link;
}

static int on_welcome(void *engine, struct shunt__link *link, const void *payload, size_t len)
{
    struct shunt__path *p = shunt__path_of(link);
    struct shunt_context *ctx = engine;
    struct shunt__hello h;

    if (shunt__hello_unpack(payload, len, ctx->card.secret, &h) || memcmp(h.from, p->peer->card.uid, 16) != 0)
        return -1;
    link->generation = h.generation;
    return 0;
}

static void on_established(void *engine, struct shunt__link *link)
{
    struct shunt__path *p = shunt__path_of(link);
    struct shunt__peer *peer = p->peer;

    p->attempts = 0;
    p->refused = 0;
    p->connect_at = 0;
    p->frames = 0;
    p->blocked = 0;
    p->ping_open = 0;
    p->landing = NULL;
    p->bye = 0;
    p->generations++;
    p->patience = 0;
    p->last_rx = p->last_ack = p->last_ping = peer->ctx->now;
    peer->unreachable_since = 0;
    shunt__path_move(p, SHUNT_RAIL_UP, "connected%s%s", link->rail->ops->describe ? " to " : "",
                     link->rail->ops->describe ? link->rail->ops->describe(link) : "");
    p->was_up = 1;
    shunt__ack_everything(peer);
}

static void on_down(void *engine, struct shunt__link *link, shunt_status_t status, const char *why)
{
    struct shunt__path *p = shunt__path_of(link);
    struct shunt__peer *peer = p->peer;
    struct shunt_context *ctx = engine;
    int was_up = shunt__path_usable(p) || p->state == SHUNT_RAIL_SUSPECT;

    p->connect_at = was_up ? ctx->now : 0; /* a connection that broke is tried again at once */
    p->refused = status == SHUNT_ERR_PEER;
    if (status == SHUNT_ERR_PEER && !peer->left && shunt__peer_parted(peer)) {
        peer->left = 1; /* it had nothing left to say goodbye to */
        peer->left_at = ctx->now;
    }
    shunt__path_drop(p, SHUNT_RAIL_DEAD, why);
    if (peer->left) {
        p->connect_at = UINT64_MAX;
        shunt__peer_leaving(peer);
        return;
    }
    if (peer->state != SHUNT_OK || status != SHUNT_ERR_PEER)
        return;
    if (link->rail->caps & SHUNT__RAIL_LOCAL && was_up) {
        shunt__peer_fail(peer, SHUNT_ERR_PEER, "its process has ended", 1);
        return;
    }
    for (int i = 0; i < SHUNT__MAX_RAILS; i++)
        if (shunt__path_usable(peer->paths[i]))
            return;
    /* Its host answers that nobody listens any more, and nothing else leads to it. */
    for (int i = 0; i < SHUNT__MAX_RAILS; i++)
        if (peer->paths[i] && peer->paths[i]->was_up) {
            shunt__peer_fail(peer, SHUNT_ERR_PEER, "its host answers that the process is gone", 1);
            return;
        }
    /* Never connected: it may have ended between the bootstrap and now. */
    if (!(link->rail->caps & SHUNT__RAIL_LOCAL))
        shunt__peer_fail(peer, SHUNT_ERR_PEER, "its host answers that the process is gone", 1);
}

static void *on_land(void *engine, struct shunt__link *link, const struct shunt__frame *frame)
{
    struct shunt__path *p = shunt__path_of(link);

    return frame->generation == link->generation ? shunt__arrive_land(p, frame) : NULL;
}

struct ping {
    uint64_t frame, time;
};

/*
 * What was taken for lost was late. A path whose answers take long (a delay on the way, a queue) would be suspected for every
 * one of them, so it is given twice the time that it took, for a while; black holes are still found in time.
 */
static void back_from_silence(struct shunt__path *p, uint64_t now)
{
    uint64_t silence = now - p->silent_since, patience = 2 * silence < PATIENCE_MAX ? 2 * silence : PATIENCE_MAX;

    if (patience > p->patience)
        p->patience = patience;
    shunt__path_move(p, SHUNT_RAIL_UP, "heard from again after %d ms", (int)(silence / SHUNT__MS));
}

static void on_frame(void *engine, struct shunt__link *link, const struct shunt__frame *f, const void *payload)
{
    struct shunt__path *p = shunt__path_of(link);
    struct shunt__peer *peer = p->peer;

    if (f->generation != link->generation)
        return;
    p->last_rx = peer->ctx->now;
    if (p->state == SHUNT_RAIL_SUSPECT)
        back_from_silence(p, peer->ctx->now);
    switch (f->type) {
    case SHUNT__FRAME_DATA:
    case SHUNT__FRAME_ANNOUNCE:
        shunt__arrive_data(p, f, payload);
        break;
    case SHUNT__FRAME_ACK:
        shunt__ack_arrived(p, payload, f->length);
        break;
    case SHUNT__FRAME_PING: {
        struct shunt__frame pong;
        if (f->length > 64)
            break;
        shunt__ack_flush(peer);
        memset(&pong, 0, sizeof(pong));
        pong.type = SHUNT__FRAME_PONG;
        pong.length = f->length;
        shunt__path_send(p, &pong, payload, UINT64_MAX);
        break;
    }
    case SHUNT__FRAME_PONG: {
        struct ping ping;
        if (f->length != sizeof(ping))
            break;
        memcpy(&ping, payload, sizeof(ping));
        p->ping_open = 0;
        if (link->rail->caps & SHUNT__RAIL_ACKS)
            break;
        if (link->rail->caps & SHUNT__RAIL_ORDERED)
            shunt__path_missed(p, ping.frame, UINT64_MAX);
        else if (ping.time > OVERTAKEN) /* nothing is overtaken by so much: it was lost, or what asked for it again was */
            shunt__path_missed(p, ping.frame, ping.time - OVERTAKEN);
        break;
    }
    case SHUNT__FRAME_NOTICE:
        shunt__notice_arrived(p, f, payload);
        break;
    case SHUNT__FRAME_BYE:
        p->bye = 1;
        shunt__peer_leaving(peer);
        break;
    default:
        break;
    }
}

static void on_damaged(void *engine, struct shunt__link *link, const struct shunt__frame *frame)
{
    struct shunt__path *p = shunt__path_of(link);

    if (frame->generation != link->generation)
        return;
    if (frame->type == SHUNT__FRAME_DATA)
        shunt__arrive_damaged(p, frame);
    else if (frame->type != SHUNT__FRAME_PING && frame->type != SHUNT__FRAME_PONG) {
        /* What it said may never be said again; a new connection begins by saying everything. */
        p->chunks_damaged++;
        p->connect_at = p->peer->ctx->now;
        shunt__path_drop(p, SHUNT_RAIL_DEAD, "a control frame arrived damaged");
    }
}

static void on_sent(void *engine, struct shunt__link *link, uint64_t ref)
{
    struct shunt__path *p = shunt__path_of(link);
    struct shunt__record *r;

    if (ref < p->head || ref >= p->tail)
        return;
    r = &p->records[ref & (p->cap_records - 1)];
    if (r->reading) {
        r->reading = 0;
        if (r->tx)
            r->tx->reading--;
    }
}

static void on_consumed(void *engine, struct shunt__link *link, uint64_t count)
{
    shunt__path_consumed(shunt__path_of(link), count);
}

static void on_writable(void *engine, struct shunt__link *link)
{
    struct shunt__path *p = shunt__path_of(link);

    p->blocked = 0;
    shunt__pump_later(p->peer);
}

static void on_carrier(void *engine, struct shunt__rail *rail, int up, const char *why)
{
    shunt__path_carrier(engine, rail->params.index, up, why);
}

/* The peer's rank in the largest communicator that it shares with this process. */
static const char *on_peer(void *engine, const struct shunt__link *link)
{
    static __thread char name[12];
    const struct shunt__peer *peer = shunt__path_of((struct shunt__link *)(uintptr_t)link)->peer;
    struct shunt_context *ctx = engine;
    int size = 0, rank;

    snprintf(name, sizeof(name), "?");
    for (struct shunt__list *n = ctx->all_comms.next; n != &ctx->all_comms; n = n->next) {
        const struct shunt_comm *comm = shunt__container(n, struct shunt_comm, all);
        if (comm->size > size && (rank = shunt__comm_rank_of(comm, peer)) >= 0) {
            size = comm->size;
            snprintf(name, sizeof(name), "%d", rank);
        }
    }
    return name;
}

void shunt__path_carrier(struct shunt_context *ctx, int rail, int up, const char *why)
{
    if (ctx->rail_up[rail] == up)
        return;
    ctx->rail_up[rail] = up;
    for (struct shunt__list *n = ctx->all_peers.next; n != &ctx->all_peers; n = n->next) {
        struct shunt__path *p = shunt__container(n, struct shunt__peer, all)->paths[rail];
        if (!p || p->state == SHUNT_RAIL_IDLE)
            continue;
        if (!up && (p->link.conn || shunt__path_usable(p))) {
            p->connect_at = UINT64_MAX; /* until the carrier is back */
            shunt__path_drop(p, SHUNT_RAIL_DEAD, why);
        } else if (up && !p->link.conn) {
            p->attempts = 0;
            p->connect_at = ctx->now;
        }
    }
}

void shunt__path_events(struct shunt__rail_events *e)
{
    *e = (struct shunt__rail_events){
        .hello = on_hello, .incoming = on_incoming, .welcome = on_welcome, .established = on_established,
        .down = on_down, .land = on_land, .frame = on_frame, .damaged = on_damaged, .sent = on_sent,
        .consumed = on_consumed, .writable = on_writable, .carrier = on_carrier,
        .peer = on_peer};
}

/* ---- what time brings ---- */

#define PING_EVERY (100 * SHUNT__MS)   /* to a peer with operations in flight that is silent */
#define PING_LOCAL (1000 * SHUNT__MS)
#define STALL_MIN (50 * SHUNT__MS)
#define SUSPECT_MAX (200 * SHUNT__MS)

static void send_ping(struct shunt__path *p, uint64_t now)
{
    struct ping ping = {p->frames, now};
    struct shunt__frame f;

    memset(&f, 0, sizeof(f));
    f.type = SHUNT__FRAME_PING;
    f.length = sizeof(ping);
    p->last_ping = now;
    if (shunt__path_send(p, &f, &ping, UINT64_MAX) == 0 && p->ping_open == 0)
        p->ping_open = now;
}

/* Whether another path to the same peer has been heard from since `time`. */
static const struct shunt__path *other_alive(const struct shunt__path *p, uint64_t time)
{
    for (int i = 0; i < SHUNT__MAX_RAILS; i++) {
        const struct shunt__path *o = p->peer->paths[i];
        if (o && o != p && shunt__path_usable(o) && o->last_rx > time)
            return o;
    }
    return NULL;
}

static void watch(struct shunt__path *p, uint64_t now)
{
    struct shunt__peer *peer = p->peer;
    const struct shunt__record *oldest = p->head < p->tail ? &p->records[p->head & (p->cap_records - 1)] : NULL;
    int local = (p->link.rail->caps & SHUNT__RAIL_LOCAL) != 0;
    uint64_t every = local ? PING_LOCAL : PING_EVERY, stall = STALL_MIN, since;
    const struct shunt__path *other;

    if (oldest && p->rate_recent > 0) /* what a healthy path of this rate may take for its oldest chunk */
        stall += (uint64_t)(4 * (oldest->bytes / p->rate_recent + p->latency));
    if (stall < p->patience)
        stall = p->patience;
    p->patience -= p->patience / PATIENCE_FADES;
    /* the oldest thing that should have been answered */
    since = p->ping_open;
    if (oldest && (since == 0 || oldest->time < since) && p->last_ack < oldest->time + stall)
        since = oldest->time > p->last_ack ? oldest->time : p->last_ack;
    if (peer->wanted && !p->blocked && now - p->last_ping > every / (oldest && now - since > stall / 2 ? 4 : 1) &&
        (now - p->last_rx > every || (oldest && since && now - since > stall / 2)))
        send_ping(p, now);
    if (since == 0 || local || now - since <= stall || p->last_rx > since)
        return;
    other = other_alive(p, since + stall / 4);
    if (p->state != SHUNT_RAIL_SUSPECT && other)
        p->silent_since = since;
    if (p->state != SHUNT_RAIL_SUSPECT) {
        if (other)
            shunt__path_move(p, SHUNT_RAIL_SUSPECT, "silent for %d ms while rail %s is not",
                             (int)((now - since) / SHUNT__MS), other->link.rail->name);
    } else if (other && now - p->since > SUSPECT_MAX) {
        struct shunt__link_stats st = {0};
        p->link.rail->ops->stats(&p->link, &st);
        if (st.unacked || st.queued || p->ping_open) { /* the other side's kernel does not answer either */
            char why[sizeof(p->why)];
            snprintf(why, sizeof(why), "nothing came back for %d ms (%llu retransmissions)",
                     (int)((now - since) / SHUNT__MS), (unsigned long long)st.retransmits);
            shunt__path_drop(p, SHUNT_RAIL_DEAD, why);
        }
    }
}

static void adapt_window(struct shunt__path *p)
{
    uint64_t max = p->peer->ctx->window_max, want;

    if (p->rate <= 0)
        return;
    want = (uint64_t)(p->rate * (double)(50 * SHUNT__MS)); /* 50 ms of traffic: outlasts a descheduled receiver */
    if (want < 256u << 10)
        want = 256u << 10;
    p->window = want > max ? max : want;
}

void shunt__path_tick(struct shunt__path *p, uint64_t now)
{
    switch (p->state) {
    case SHUNT_RAIL_CONNECTING:
    case SHUNT_RAIL_PROBING:
        if (now - p->connect_start > (other_alive(p, 0) ? PROBE_GIVE_UP : CONNECT_GIVE_UP)) {
            p->connect_at = next_attempt(p);
            shunt__path_drop(p, SHUNT_RAIL_DEAD, "no answer to the attempt to connect");
        }
        break;
    case SHUNT_RAIL_DEAD:
        if (p->connect_at && now >= p->connect_at && (p->peer->wanted || p->was_up))
            shunt__path_connect(p);
        break;
    case SHUNT_RAIL_UP:
    case SHUNT_RAIL_SLOW:
    case SHUNT_RAIL_SUSPECT:
        adapt_window(p);
        watch(p, now);
        break;
    case SHUNT_RAIL_IDLE:
        break;
    }
}
