/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers: the other processes, whether they can be reached, and what happens when they can't any more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/core/engine.h"

#define LEAVING (200 * SHUNT__MS)

static unsigned bucket(const unsigned char uid[16])
{
    return uid[0] % SHUNT__HASH;
}

const char *shunt__peer_name(const struct shunt__peer *peer)
{
    static __thread char text[96];

    snprintf(text, sizeof(text), "%s/%u", peer->card.hostname, peer->card.pid);
    return text;
}

struct shunt__peer *shunt__peer_find(struct shunt_context *ctx, const unsigned char uid[16])
{
    struct shunt__peer *p = ctx->peers[bucket(uid)];

    while (p && memcmp(p->card.uid, uid, 16) != 0)
        p = p->next;
    return p;
}

struct shunt__peer *shunt__peer_get(struct shunt_context *ctx, const struct shunt__card *card)
{
    struct shunt__peer *p = shunt__peer_find(ctx, card->uid);

    if (p) {
        p->refs++;
        return p;
    }
    p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->ctx = ctx;
    p->card = *card;
    p->refs = 1;
    p->local = memcmp(card->host, ctx->card.host, 16) == 0;
    shunt__list_init(&p->sendq);
    shunt__list_init(&p->acks);
    shunt__list_init(&p->notices);
    shunt__list_init(&p->pump);
    shunt__list_append(&ctx->all_peers, &p->all);
    p->next = ctx->peers[bucket(card->uid)];
    ctx->peers[bucket(card->uid)] = p;
    shunt__path_pair(p);
    return p;
}

/* Peers stay until the context is closed: their links may serve the next communicator. */
void shunt__peer_put(struct shunt__peer *peer)
{
    peer->refs--;
}

void shunt__peer_destroy(struct shunt__peer *peer)
{
    struct shunt_context *ctx = peer->ctx;
    struct shunt__peer **at = &ctx->peers[bucket(peer->card.uid)];

    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    shunt__list_remove(&peer->pump);
    shunt__list_remove(&peer->all);
    for (int i = 0; i < SHUNT__MAX_RAILS; i++)
        shunt__path_free(peer->paths[i]);
    while (!shunt__list_empty(&peer->notices)) { /* a notice starts with its node */
        struct shunt__list *n = peer->notices.next;
        shunt__list_remove(n);
        free(n);
    }
    free(peer);
}

void shunt__pump_later(struct shunt__peer *peer)
{
    if (shunt__list_empty(&peer->pump))
        shunt__list_append(&peer->ctx->pump, &peer->pump);
}

void shunt__pump_room(struct shunt__peer *peer)
{
    if (!shunt__list_empty(&peer->sendq) || !shunt__list_empty(&peer->notices) || !shunt__list_empty(&peer->acks))
        shunt__pump_later(peer);
}

/* Shared memory alone where it works; else every rail that leads there. */
void shunt__peer_want(struct shunt__peer *peer)
{
    struct shunt__path *local = NULL;

    if (peer->state != SHUNT_OK)
        return;
    for (int i = 0; i < SHUNT__MAX_RAILS; i++) {
        struct shunt__path *p = peer->paths[i];
        if (p && (p->link.rail->caps & SHUNT__RAIL_LOCAL) && p->state != SHUNT_RAIL_DEAD)
            local = p;
    }
    if (local) {
        if (local->state == SHUNT_RAIL_IDLE)
            shunt__path_connect(local);
        if (local->state != SHUNT_RAIL_DEAD)
            return;
    }
    for (int i = 0; i < SHUNT__MAX_RAILS; i++) {
        struct shunt__path *p = peer->paths[i];
        if (p && p->state == SHUNT_RAIL_IDLE && peer->ctx->rail_up[i])
            shunt__path_connect(p);
    }
}

void shunt__peer_fail(struct shunt__peer *peer, shunt_status_t status, const char *why, int tell)
{
    struct shunt_context *ctx = peer->ctx;

    if (peer->state != SHUNT_OK)
        return;
    peer->state = status;
    snprintf(peer->why, sizeof(peer->why), "%s", why);
    for (int i = 0; i < SHUNT__MAX_RAILS; i++)
        if (peer->paths[i] && (peer->paths[i]->link.conn || peer->paths[i]->state != SHUNT_RAIL_IDLE)) {
            peer->paths[i]->connect_at = UINT64_MAX;
            shunt__path_drop(peer->paths[i], SHUNT_RAIL_DEAD, why);
        }
    if ((peer->wanted || tell) && !peer->left)
        shunt__health_event(ctx, SHUNT_EVENT_PEER_LOST, peer, -1, "%s %s: %s", shunt__peer_name(peer),
                            status == SHUNT_ERR_PEER ? "is gone" : "can't be reached", why);
    for (struct shunt__list *n = ctx->all_comms.next, *next; n != &ctx->all_comms; n = next) {
        struct shunt_comm *comm = shunt__container(n, struct shunt_comm, all);
        int rank = shunt__comm_rank_of(comm, peer);
        next = n->next;
        if (rank < 0)
            continue;
        for (int c = 0; c < SHUNT__CHANNELS; c++)
            if (comm->streams[c][rank])
                shunt__stream_fail(comm->streams[c][rank], status, peer->why);
        /* One that left had done its part in every collective: those that others are still in go on. */
        if (comm->coll_state == SHUNT_OK && !peer->left && !comm->parted[rank]) {
            shunt__comm_break(comm, rank, status, peer->why);
            if (tell)
                shunt__notice_lost(comm, rank, status, peer->why);
        }
    }
    peer->unmatched = 0;
    while (!shunt__list_empty(&peer->acks)) {
        struct shunt__stream *s = shunt__container(peer->acks.next, struct shunt__stream, ack);
        shunt__list_remove(&s->ack);
        s->n_dirty = 0;
    }
}

int shunt__peer_parted(const struct shunt__peer *peer)
{
    for (struct shunt__list *n = peer->ctx->all_comms.next; n != &peer->ctx->all_comms; n = n->next) {
        const struct shunt_comm *comm = shunt__container(n, struct shunt_comm, all);
        int rank = shunt__comm_rank_of(comm, peer);
        if (rank >= 0 && !comm->parted[rank])
            return 0;
    }
    return 1;
}

void shunt__peer_leaving(struct shunt__peer *peer)
{
    uint64_t now = peer->ctx->now;
    int open = 0;

    for (int i = 0; i < SHUNT__MAX_RAILS; i++)
        open |= shunt__path_usable(peer->paths[i]) && !peer->paths[i]->bye;
    if (!peer->left)
        peer->left_at = now + LEAVING; /* acknowledgements may still be on their way over another rail */
    if (!open)
        peer->left_at = now;
    peer->left = 1;
    shunt__pump_later(peer);
}

void shunt__peer_leave(struct shunt__peer *peer)
{
    if (peer->left && peer->state == SHUNT_OK && peer->ctx->now >= peer->left_at)
        shunt__peer_fail(peer, SHUNT_ERR_PEER, "it has closed its context", 0);
}

void shunt__peer_tick(struct shunt__peer *peer, uint64_t now)
{
    uint64_t heard = 0;
    int usable = 0;

    shunt__peer_leave(peer);
    if (peer->state != SHUNT_OK)
        return;
    for (int i = 0; i < SHUNT__MAX_RAILS; i++) {
        struct shunt__path *p = peer->paths[i];
        if (!p)
            continue;
        shunt__path_tick(p, now);
        if (peer->state != SHUNT_OK)
            return;
        usable |= shunt__path_usable(p);
        if (p->last_rx > heard)
            heard = p->last_rx;
    }
    if (peer->wanted || !shunt__list_empty(&peer->notices))
        shunt__peer_want(peer); /* rails that have appeared since; all rails when shared memory has failed */
    if (!peer->wanted) {
        peer->unreachable_since = 0;
        return;
    }
    /* Silent for too long, whether every rail is lost or the process stands still; pings see to it that it answers. */
    if (peer->unreachable_since == 0 || heard > peer->unreachable_since || (usable && now - heard < SHUNT__S))
        peer->unreachable_since = now;
    if (now - peer->unreachable_since > peer->ctx->peer_timeout) {
        char why[120];
        snprintf(why, sizeof(why), "%s for %.1f s (SHUNT_PEER_TIMEOUT)",
                 usable ? "its process has not answered" : "no rail has led to it",
                 (double)(now - peer->unreachable_since) / 1e9);
        shunt__peer_fail(peer, SHUNT_ERR_TIMEOUT, why, 1);
        return;
    }
    shunt__schedule_hedge(peer, now);
}
