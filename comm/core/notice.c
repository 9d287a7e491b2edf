/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices: a communicator was revoked or aborted, a member was lost. They are hints that spread what is anyhow
 * found out (a frame for an ended communicator is answered with one), so none needs an acknowledgement.
 */
#include <stdio.h>
#include <string.h>
#include "comm/core/agree.h"
#include "comm/core/engine.h"

enum kind { ENDED = 1, LOST, FREED };

struct notice {
    uint32_t kind;
    int32_t status;
    int32_t rank; /* LOST: who */
    char why[116];
};

static void send_to(struct shunt_comm *comm, int rank, const struct notice *n)
{
    struct shunt__frame f;

    if (!comm->peers[rank] || comm->peers[rank]->state != SHUNT_OK)
        return;
    memset(&f, 0, sizeof(f));
    f.type = SHUNT__FRAME_NOTICE;
    f.length = sizeof(*n);
    f.comm = comm->id;
    f.epoch = comm->epoch;
    f.source = (uint32_t)comm->rank;
    shunt__notice(comm->peers[rank], &f, n);
}

void shunt__notice_end(struct shunt_comm *comm, struct shunt__peer *to, shunt_status_t status, const char *why)
{
    struct notice n = {.kind = ENDED, .status = status, .rank = -1};

    snprintf(n.why, sizeof(n.why), "%s", why ? why : "");
    for (int r = 0; r < comm->size; r++)
        if (!to || comm->peers[r] == to)
            send_to(comm, r, &n);
}

void shunt__notice_lost(struct shunt_comm *comm, int rank, shunt_status_t status, const char *why)
{
    struct notice n = {.kind = LOST, .status = status, .rank = rank};

    snprintf(n.why, sizeof(n.why), "%.115s", why);
    for (int r = 0; r < comm->size; r++)
        if (r != rank)
            send_to(comm, r, &n);
}

/*
 * This rank frees the communicator and will never receive what some ranks have announced to it: without a word their
 * sends would wait for ever. The words carry, per channel, below which message everything was received. Those who are
 * connected are told in any case: this process may end now, which is no death to them.
 */
void shunt__notice_freed(struct shunt_comm *comm)
{
    for (int r = 0; r < comm->size; r++) {
        struct notice n = {.kind = FREED, .status = SHUNT_ERR_PEER, .rank = comm->rank};
        uint64_t acked[SHUNT__CHANNELS] = {0};
        int open = 0;
        for (int c = 0; c < SHUNT__CHANNELS; c++) {
            const struct shunt__stream *s = comm->streams[c][r];
            if (!s)
                continue;
            acked[c] = s->rx_acked;
            open |= s->rx_acked < s->rx_seen;
        }
        memcpy(n.why, acked, sizeof(acked));
        for (int i = 0; comm->peers[r] && i < SHUNT__MAX_RAILS; i++)
            open |= shunt__path_usable(comm->peers[r]->paths[i]);
        if (open)
            send_to(comm, r, &n);
    }
}

static void freed(struct shunt_comm *comm, int rank, const struct notice *n)
{
    uint64_t acked[SHUNT__CHANNELS];

    comm->parted[rank] = 1;
    memcpy(acked, n->why, sizeof(acked));
    for (int c = 0; c < SHUNT__CHANNELS; c++) {
        struct shunt__stream *s = comm->streams[c][rank];
        if (!s)
            continue;
        shunt__ack_low(s, acked[c]);
        for (uint64_t m = s->tx_base; m < s->tx_next; m++) {
            struct shunt__tx *tx = s->tx_ring[m & (s->tx_cap - 1)].tx;
            if (tx && (tx->next < tx->n_chunks || tx->n_acked < tx->n_chunks))
                shunt__tx_finish(tx, SHUNT_ERR_PEER, "the receiver has freed the communicator without receiving it");
        }
    }
}

void shunt__notice_arrived(struct shunt__path *path, const struct shunt__frame *f, const void *payload)
{
    struct shunt_comm *comm = shunt__comm_find(path->peer->ctx, f->comm & ~3ull);
    struct notice n;

    if (f->length >= 4 && (memcpy(&n.kind, payload, 4), n.kind == SHUNT__NOTICE_LINKS)) {
        shunt__health_heard(path->peer->ctx, path->peer, payload, f->length);
        return;
    }
    if (f->length >= 4 && n.kind > FREED) {
        shunt__agree_arrived(path->peer->ctx, path->peer, f->comm, f->epoch, payload, f->length);
        return;
    }
    if (f->length != sizeof(n) || !comm || comm->epoch != f->epoch || shunt__comm_rank_of(comm, path->peer) < 0)
        return;
    memcpy(&n, payload, sizeof(n));
    if (n.kind == FREED) {
        freed(comm, shunt__comm_rank_of(comm, path->peer), &n);
        return;
    }
    n.why[sizeof(n.why) - 1] = 0;
    if (n.kind == ENDED && (n.status == SHUNT_ERR_REVOKED || n.status == SHUNT_ERR_ABORTED)) {
        if (comm->state == SHUNT_OK)
            shunt__comm_end(comm, (shunt_status_t)n.status, n.why);
    } else if (n.kind == LOST && n.rank >= 0 && n.rank < comm->size && n.rank != comm->rank) {
        shunt_status_t status = n.status == SHUNT_ERR_PEER ? SHUNT_ERR_PEER : SHUNT_ERR_TIMEOUT;
        struct shunt__peer *lost = comm->peers[n.rank];
        if (status == SHUNT_ERR_PEER && lost->state == SHUNT_OK) {
            for (int i = 0; i < SHUNT__MAX_RAILS; i++)
                if (lost->paths[i] && shunt__path_usable(lost->paths[i]) &&
                    path->peer->ctx->now - lost->paths[i]->last_rx < 50 * SHUNT__MS)
                    return; /* we hear it ourselves */
            shunt__peer_fail(lost, status, n.why, 0);
        }
        if (comm->coll_state == SHUNT_OK)
            shunt__comm_break(comm, n.rank, status, n.why);
    }
}
