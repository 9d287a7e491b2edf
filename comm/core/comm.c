/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators: made by a meeting, split, ended, freed. */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/boot/boot.h"
#include "comm/core/agree.h"
#include "comm/core/control.h"
#include "comm/core/engine.h"

static unsigned bucket(uint64_t id)
{
    return (unsigned)(id >> 8) % SHUNT__HASH;
}

struct shunt_comm *shunt__comm_find(struct shunt_context *ctx, uint64_t id)
{
    struct shunt_comm *c = ctx->comms[bucket(id)];

    while (c && c->id != id)
        c = c->next;
    return c;
}

int shunt__comm_rank_of(const struct shunt_comm *comm, const struct shunt__peer *peer)
{
    for (int r = 0; r < comm->size; r++)
        if (comm->peers[r] == peer)
            return r;
    return -1;
}

/* Hosts are numbered by their first rank. */
static void number_hosts(struct shunt_comm *comm)
{
    for (int r = 0; r < comm->size; r++) {
        const unsigned char *mine = comm->peers[r] ? comm->peers[r]->card.host : comm->ctx->card.host;
        int h = -1;
        for (int q = 0; q < r && h < 0; q++) {
            const unsigned char *other = comm->peers[q] ? comm->peers[q]->card.host : comm->ctx->card.host;
            if (memcmp(mine, other, 16) == 0)
                h = comm->host_of[q];
        }
        comm->host_of[r] = h < 0 ? comm->hosts++ : h;
    }
}

struct shunt_comm *shunt__comm_new(struct shunt_context *ctx, const unsigned char seed[16], uint32_t epoch, int rank,
                                   int size, struct shunt__peer *const *peers)
{
    struct shunt_comm *comm = calloc(1, sizeof(*comm));
    size_t n = (size_t)size;

    if (!comm)
        return NULL;
    comm->ctx = ctx;
    memcpy(comm->seed, seed, 16);
    comm->id = shunt__hash64(seed, 16) & ~3ull;
    comm->epoch = epoch;
    comm->rank = rank;
    comm->size = size;
    comm->coll_rank = -1;
    comm->peers = calloc(n, sizeof(*comm->peers));
    comm->host_of = calloc(n, sizeof(*comm->host_of));
    comm->parted = calloc(n, 1);
    for (int c = 0; c < SHUNT__CHANNELS; c++)
        comm->streams[c] = calloc(n, sizeof(**comm->streams));
    if (!comm->peers || !comm->host_of || !comm->parted || !comm->streams[0] || !comm->streams[1] || !comm->streams[2]) {
        for (int c = 0; c < SHUNT__CHANNELS; c++)
            free(comm->streams[c]);
        free(comm->peers);
        free(comm->host_of);
        free(comm->parted);
        free(comm);
        return NULL;
    }
    memcpy(comm->peers, peers, n * sizeof(*peers));
    for (int r = 0; r < size; r++)
        if (comm->peers[r])
            comm->peers[r]->refs++;
    number_hosts(comm);
    int here = 0;
    for (int r = 0; r < size; r++)
        here += comm->host_of[r] == comm->host_of[rank];
    if (here > sysconf(_SC_NPROCESSORS_ONLN))
        ctx->crowded = 1;
    shunt__list_init(&comm->self_sends);
    shunt__list_init(&comm->self_recvs);
    shunt__list_append(&ctx->all_comms, &comm->all);
    comm->next = ctx->comms[bucket(comm->id)];
    ctx->comms[bucket(comm->id)] = comm;
    for (int r = 0; r < size; r++)
        if (comm->peers[r] && comm->peers[r]->state != SHUNT_OK && comm->coll_state == SHUNT_OK)
            shunt__comm_break(comm, r, comm->peers[r]->state, comm->peers[r]->why);
    shunt__arrive_orphans(ctx, comm);
    return comm;
}

/* Notes what was received, for senders that have not heard of it. */
static void remember_freed(struct shunt_comm *comm)
{
    struct shunt_context *ctx = comm->ctx;
    struct shunt__freed *f = &ctx->freed[ctx->n_freed++ % SHUNT__FREED];

    free(f->streams);
    f->id = comm->id;
    f->n = 0;
    f->streams = calloc((size_t)comm->size * SHUNT__CHANNELS, sizeof(*f->streams));
    for (int c = 0; c < SHUNT__CHANNELS && f->streams; c++)
        for (int r = 0; r < comm->size; r++)
            if (comm->streams[c][r] && comm->streams[c][r]->rx_acked)
                f->streams[f->n++] = (struct shunt__freed_stream){comm->streams[c][r]->id, comm->streams[c][r]->rx_acked,
                                                                  (uint32_t)r};
}

void shunt__comm_destroy(struct shunt_comm *comm)
{
    struct shunt_context *ctx = comm->ctx;
    struct shunt_comm **at = &ctx->comms[bucket(comm->id)];

    shunt__coll_free(comm);
    shunt__agree_detach(comm);
    while (*at != comm)
        at = &(*at)->next;
    *at = comm->next;
    shunt__list_remove(&comm->all);
    remember_freed(comm);
    for (int c = 0; c < SHUNT__CHANNELS; c++) {
        for (int r = 0; r < comm->size; r++)
            shunt__stream_free(comm->streams[c][r]);
        free(comm->streams[c]);
    }
    for (int r = 0; r < comm->size; r++)
        if (comm->peers[r])
            shunt__peer_put(comm->peers[r]);
    free(comm->peers);
    free(comm->host_of);
    free(comm->parted);
    free(comm);
}

static void fail_channel(struct shunt_comm *comm, int channel, shunt_status_t status, const char *why)
{
    for (int r = 0; r < comm->size; r++)
        if (comm->streams[channel][r])
            shunt__stream_fail(comm->streams[channel][r], status, why);
}

static void fail_self(struct shunt_comm *comm, struct shunt__list *head, shunt_status_t status, const char *why,
                      int channel)
{
    for (struct shunt__list *n = head->next, *next; n != head; n = next) {
        struct shunt__op *op = shunt__container(n, struct shunt__op, node);
        next = n->next;
        if (channel >= 0 && (int)op->channel != channel)
            continue;
        shunt__list_remove(n);
        shunt__op_complete(op, status, why);
    }
}

void shunt__comm_break(struct shunt_comm *comm, int rank, shunt_status_t status, const char *why)
{
    if (comm->coll_state != SHUNT_OK)
        return;
    comm->coll_state = status;
    comm->coll_rank = rank;
    snprintf(comm->coll_why, sizeof(comm->coll_why), "rank %d (%s): %s", rank,
             rank >= 0 && comm->peers[rank] ? shunt__peer_name(comm->peers[rank]) : "", why);
    fail_channel(comm, SHUNT__CHANNEL_COLL, status, comm->coll_why);
    fail_self(comm, &comm->self_sends, status, comm->coll_why, SHUNT__CHANNEL_COLL);
    fail_self(comm, &comm->self_recvs, status, comm->coll_why, SHUNT__CHANNEL_COLL);
}

void shunt__comm_end(struct shunt_comm *comm, shunt_status_t status, const char *why)
{
    if (comm->state != SHUNT_OK)
        return;
    comm->state = status;
    if (comm->coll_state == SHUNT_OK)
        comm->coll_state = status;
    snprintf(comm->why, sizeof(comm->why), "%s", why && *why ? why : shunt_status_text(status));
    shunt__health_event(comm->ctx, SHUNT_EVENT_COMM_ENDED, NULL, -1, "communicator %04x of %d ranks: %s",
                        (unsigned)(comm->id >> 48), comm->size, comm->why);
    for (int c = 0; c < SHUNT__CHANNELS; c++)
        if (c != SHUNT__CHANNEL_CONTROL || status == SHUNT_ERR_ABORTED)
            fail_channel(comm, c, status, comm->why);
    fail_self(comm, &comm->self_sends, status, comm->why, -1);
    fail_self(comm, &comm->self_recvs, status, comm->why, -1);
}

/* ---- the public functions ---- */

static shunt_status_t unpack_cards(struct shunt_context *ctx, const struct shunt__boot_all *all, int rank,
                                   struct shunt__card **out)
{
    struct shunt__card *cards = calloc((size_t)all->n, sizeof(*cards));

    if (!cards)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for %d ranks", all->n);
    for (int r = 0; r < all->n; r++) {
        shunt_status_t st = shunt__card_unpack(all->data[r], all->len[r], &cards[r]);
        if (st == SHUNT_OK && r != rank && memcmp(cards[r].uid, ctx->card.uid, 16) == 0)
            st = shunt__fail(SHUNT_ERR_INVALID, "ranks %d and %d are one context: each rank needs its own", rank, r);
        for (int q = 0; st == SHUNT_OK && q < r; q++)
            if (memcmp(cards[r].uid, cards[q].uid, 16) == 0)
                st = shunt__fail(SHUNT_ERR_INVALID, "ranks %d and %d are one context: each rank needs its own", q, r);
        if (st != SHUNT_OK) {
            free(cards);
            return st;
        }
    }
    *out = cards;
    return SHUNT_OK;
}

/* Exchanges cards over a meeting and makes the communicator; the barrier sees to it that no frame comes too early. */
static shunt_status_t meet(struct shunt_context *ctx, struct shunt__boot *boot, const unsigned char seed[16], int rank,
                           int size, const int *stop, struct shunt_comm **out)
{
    unsigned char packed[SHUNT__CARD_MAX];
    struct shunt__boot_all all = {0};
    struct shunt__card *cards = NULL;
    struct shunt__peer **peers = NULL;
    struct shunt_comm *comm = NULL;
    shunt_status_t st;

    st = shunt__boot_allgather(boot, packed, shunt__card_pack(&ctx->card, packed), stop, &all);
    if (st != SHUNT_OK)
        return st;
    st = unpack_cards(ctx, &all, rank, &cards);
    shunt__boot_all_free(&all);
    if (st != SHUNT_OK)
        return st;
    shunt__lock(ctx);
    peers = calloc((size_t)size, sizeof(*peers));
    for (int r = 0; peers && r < size; r++)
        if (r != rank && !(peers[r] = shunt__peer_get(ctx, &cards[r])))
            st = SHUNT_ERR_NO_MEMORY;
        else if (r != rank)
            shunt__peer_put(peers[r]);
    if (peers && st == SHUNT_OK)
        comm = shunt__comm_new(ctx, seed, 0, rank, size, peers);
    shunt__unlock(ctx);
    free(peers);
    free(cards);
    if (!comm)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", size);
    st = shunt__boot_barrier(boot, stop);
    if (st != SHUNT_OK) {
        shunt__lock(ctx);
        shunt__comm_destroy(comm);
        shunt__unlock(ctx);
        return st;
    }
    *out = comm;
    return SHUNT_OK;
}

static shunt_status_t alone(struct shunt_context *ctx, struct shunt_comm **out)
{
    struct shunt__peer *none = NULL;
    unsigned char seed[16];
    struct shunt_comm *comm;

    randombytes_buf(seed, sizeof(seed));
    shunt__lock(ctx);
    comm = shunt__comm_new(ctx, seed, 0, 0, 1, &none);
    shunt__unlock(ctx);
    if (!comm)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a communicator");
    *out = comm;
    return SHUNT_OK;
}

shunt_status_t shunt_comm_create(shunt_context_t *ctx, const shunt_id_t *id, int rank, int size, shunt_comm_t **out)
{
    return shunt_comm_create_until(ctx, id, rank, size, NULL, out);
}

shunt_status_t shunt_comm_create_until(shunt_context_t *ctx, const shunt_id_t *id, int rank, int size, const int *stop,
                                       shunt_comm_t **out)
{
    struct shunt__boot *boot;
    unsigned char seed[16];
    shunt_status_t st;

    if (!ctx || !id || !out)
        return shunt__fail(SHUNT_ERR_INVALID, "comm_create: %s is NULL", !ctx ? "the context" : !id ? "the id" : "the output");
    if (size < 1 || size > SHUNT__MAX_RANKS || rank < 0 || rank >= size)
        return shunt__fail(SHUNT_ERR_INVALID, "comm_create: rank %d of %d; expected 0 <= rank < size <= %d", rank, size,
                           SHUNT__MAX_RANKS);
    if (!shunt__boot_id_valid((const unsigned char *)id->bytes))
        return shunt__fail(SHUNT_ERR_FORMAT, "comm_create: the id was not made by shunt_id_create() of this version");
    st = shunt__boot_open(&ctx->config, (const unsigned char *)id->bytes, rank, size, stop, &boot, seed);
    if (st != SHUNT_OK)
        return st;
    st = meet(ctx, boot, seed, rank, size, stop, out);
    shunt__boot_close(boot);
    return st;
}

shunt_status_t shunt_comm_create_from_env(shunt_context_t *ctx, shunt_comm_t **out)
{
    struct shunt__boot *boot = NULL;
    struct shunt__boot_root *root = NULL;
    unsigned char seed[16];
    int rank, size, n;
    shunt_status_t st;
    char **ips;

    if (!ctx || !out)
        return shunt__fail(SHUNT_ERR_INVALID, "comm_create_from_env: %s is NULL", ctx ? "the output" : "the context");
    n = shunt__context_ips(ctx, &ips);
    st = shunt__boot_open_env(&ctx->config, (const char *const *)ips, n, NULL, &rank, &size, &boot, &root, seed);
    for (int i = 0; ips && i < n; i++)
        free(ips[i]);
    free(ips);
    if (st == SHUNT_OK)
        st = boot ? meet(ctx, boot, seed, rank, size, NULL, out) : alone(ctx, out);
    shunt__boot_close(boot);
    shunt__boot_root_close(root);
    return st;
}

shunt_status_t shunt_comm_split(shunt_comm_t *comm, int color, int key, shunt_comm_t **out)
{
    int32_t mine[2] = {color, key}, (*all)[2];
    struct shunt__peer **peers;
    struct shunt_comm *child = NULL;
    unsigned char seed[16];
    shunt_status_t st;
    int *order, n = 0, rank = -1;

    if (!comm || !out)
        return shunt__fail(SHUNT_ERR_INVALID, "comm_split: %s is NULL", comm ? "the output" : "the communicator");
    all = calloc((size_t)comm->size, sizeof(*all));
    order = calloc((size_t)comm->size, sizeof(*order));
    peers = calloc((size_t)comm->size, sizeof(*peers));
    if (!all || !order || !peers) {
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to split a communicator of %d ranks", comm->size);
        goto out;
    }
    st = shunt__control_allgather(comm, mine, sizeof(mine), all, "split");
    for (int r = 0; st == SHUNT_OK && r < comm->size; r++) /* found by all, so that nobody waits */
        if (all[r][0] < 0 && all[r][0] != SHUNT_NO_COLOR)
            st = shunt__fail(SHUNT_ERR_INVALID, "comm_split: color %d of rank %d is neither >= 0 nor SHUNT_NO_COLOR",
                             all[r][0], r);
    if (st != SHUNT_OK)
        goto out;
    for (int r = 0; r < comm->size && color >= 0; r++) { /* insertion keeps equal keys in the order of ranks */
        int i = n;
        if (all[r][0] != color)
            continue;
        for (; i > 0 && all[order[i - 1]][1] > all[r][1]; i--)
            order[i] = order[i - 1];
        order[i] = r;
        n++;
    }
    for (int i = 0; i < n; i++) {
        peers[i] = comm->peers[order[i]];
        if (order[i] == comm->rank)
            rank = i;
    }
    shunt__lock(comm->ctx);
    shunt__comm_child_seed(comm, color, comm->children++, seed);
    if (n)
        child = shunt__comm_new(comm->ctx, seed, 0, rank, n, peers);
    shunt__unlock(comm->ctx);
    if (n && !child) {
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", n);
        goto out;
    }
    st = shunt__control_allgather(comm, mine, 1, all, "split"); /* nobody sends before all have created theirs */
    if (st == SHUNT_OK)
        *out = child;
    else if (child) {
        shunt__lock(comm->ctx);
        shunt__comm_destroy(child);
        shunt__unlock(comm->ctx);
    }
out:
    free(all);
    free(order);
    free(peers);
    return st;
}

void shunt__comm_child_seed(const struct shunt_comm *comm, int color, uint32_t number, unsigned char seed[16])
{
    struct {
        unsigned char seed[16];
        int32_t color;
        uint32_t number;
    } in = {.color = color, .number = number};

    memcpy(in.seed, comm->seed, 16);
    crypto_generichash(seed, 16, (const unsigned char *)&in, sizeof(in), NULL, 0);
}

shunt_status_t shunt_comm_free(shunt_comm_t *comm)
{
    static const char *const freed = "the communicator was freed";
    struct shunt_context *ctx;
    static const int never;
    uint64_t until;

    if (!comm)
        return SHUNT_OK;
    ctx = comm->ctx;
    shunt__lock(ctx);
    comm->freeing = 1;
    until = ctx->now + ctx->peer_timeout;
    shunt__coll_close(comm);
    /* Nobody is left to post the other half of a message to the own rank. */
    fail_self(comm, &comm->self_sends, SHUNT_ERR_ABORTED, freed, SHUNT__CHANNEL_USER);
    fail_self(comm, &comm->self_recvs, SHUNT_ERR_ABORTED, freed, SHUNT__CHANNEL_USER);
    while (comm->pending > 0) {
        shunt__progress_until(ctx, &never, shunt__now() + 5 * SHUNT__MS);
        if (comm->pending > 0 && shunt__now() > until) /* the peer lives, but does not want it */
            shunt__comm_end(comm, SHUNT_ERR_ABORTED, freed);
    }
    for (int r = 0; r < comm->size; r++)
        if (comm->peers[r] && !shunt__list_empty(&comm->peers[r]->acks))
            shunt__ack_flush(comm->peers[r]);
    shunt__notice_freed(comm);
    /* What was accepted last is told in a quiet turn; this process may end right away and leave its senders in doubt. */
    for (int i = 0; i < 8 && !ctx->polling && shunt__progress(ctx) > 0; i++)
        ;
    shunt__comm_destroy(comm);
    shunt__unlock(ctx);
    return SHUNT_OK;
}

static shunt_status_t end(shunt_comm_t *comm, shunt_status_t status, const char *reason)
{
    char text[160];

    if (!comm)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: the communicator is NULL",
                           status == SHUNT_ERR_ABORTED ? "comm_abort" : "comm_revoke");
    shunt__lock(comm->ctx);
    if (comm->state == SHUNT_OK || (comm->state == SHUNT_ERR_REVOKED && status == SHUNT_ERR_ABORTED)) {
        if (!reason && comm->coll_state != SHUNT_OK && comm->coll_state != status)
            reason = comm->coll_why; /* whom it is about: the others may not have noticed yet */
        snprintf(text, sizeof(text), "%s by rank %d%s%.100s", status == SHUNT_ERR_ABORTED ? "aborted" : "revoked",
                 comm->rank, reason && *reason ? ": " : "", reason ? reason : "");
        comm->state = SHUNT_OK;
        shunt__comm_end(comm, status, text);
        shunt__notice_end(comm, NULL, status, text);
        if (!comm->ctx->polling)
            shunt__progress(comm->ctx);
        shunt__progress_kick(comm->ctx);
    }
    shunt__unlock(comm->ctx);
    return SHUNT_OK;
}

shunt_status_t shunt_comm_abort(shunt_comm_t *comm, const char *reason)
{
    return end(comm, SHUNT_ERR_ABORTED, reason);
}

shunt_status_t shunt_comm_revoke(shunt_comm_t *comm)
{
    return end(comm, SHUNT_ERR_REVOKED, NULL);
}

int shunt_comm_rank(const shunt_comm_t *comm)
{
    return comm ? comm->rank : -1;
}

int shunt_comm_size(const shunt_comm_t *comm)
{
    return comm ? comm->size : 0;
}

shunt_context_t *shunt_comm_context(const shunt_comm_t *comm)
{
    return comm ? comm->ctx : NULL;
}

int shunt_comm_hosts(const shunt_comm_t *comm)
{
    return comm ? comm->hosts : 0;
}

int shunt_comm_host_of(const shunt_comm_t *comm, int rank)
{
    return comm && rank >= 0 && rank < comm->size ? comm->host_of[rank] : -1;
}

shunt_status_t shunt_comm_error(const shunt_comm_t *comm)
{
    struct shunt_comm *c = (struct shunt_comm *)(uintptr_t)comm;
    shunt_status_t st;

    if (!comm)
        return shunt__fail(SHUNT_ERR_INVALID, "comm_error: the communicator is NULL");
    shunt__lock(c->ctx);
    st = c->state != SHUNT_OK ? c->state : c->coll_state;
    if (st != SHUNT_OK)
        shunt__fail(st, "%s", c->state != SHUNT_OK ? c->why : c->coll_why);
    shunt__unlock(c->ctx);
    return st;
}

shunt_status_t shunt_comm_peer_state(const shunt_comm_t *comm, int rank, char *why, size_t len)
{
    shunt_status_t st = SHUNT_OK;

    if (!comm || rank < 0 || rank >= comm->size)
        return shunt__fail(SHUNT_ERR_INVALID, "comm_peer_state: rank %d of %d", rank, comm ? comm->size : 0);
    shunt__lock(comm->ctx);
    if (comm->peers[rank])
        st = comm->peers[rank]->state;
    if (why && len)
        snprintf(why, len, "%s", comm->peers[rank] ? comm->peers[rank]->why : "");
    shunt__unlock(comm->ctx);
    return st;
}

/* ---- what collectives ask ---- */

struct shunt_context *shunt__comm_ctx(struct shunt_comm *comm)
{
    return comm->ctx;
}

shunt_status_t shunt__comm_coll_ready(struct shunt_comm *comm)
{
    shunt_status_t st = comm->state != SHUNT_OK ? comm->state : comm->coll_state;

    return st == SHUNT_OK ? SHUNT_OK : shunt__fail(st, "%s", comm->state != SHUNT_OK ? comm->why : comm->coll_why);
}

uint64_t shunt__comm_coll_next(struct shunt_comm *comm)
{
    return comm->coll_count++;
}

const int *shunt__comm_host_map(const struct shunt_comm *comm, int *hosts)
{
    *hosts = comm->hosts;
    return comm->host_of;
}

void **shunt__comm_coll_state(struct shunt_comm *comm)
{
    return &comm->coll;
}
