/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agreement on the survivors of a communicator.
 *
 * The leader is, for each rank, the lowest rank it can reach and nobody it has heard of wants to leave out: who is left
 * out need not call, and is not waited for. Every participant sends it JOIN (whom it can't reach, who is
 * proven dead, whom to leave out) until it hears back. When all ranks that the leader can reach have joined, or have had
 * SHUNT_PEER_TIMEOUT to do so, it chooses the largest set in which every two reach each other, checks the quorum, and
 * sends DECIDE with a ballot above any it has seen. A participant accepts the highest ballot and answers ACCEPT. When all
 * of the set have accepted, the leader sends CONFIRM; everybody who has it passes it on to whoever still asks, the
 * excluded too. If the leader dies, the next one starts with a higher ballot; whoever already has a CONFIRM answers its
 * DECIDE with it, so a set that one rank has returned is the only one any rank ever returns: a leader confirms only after
 * every member of its set has accepted, and a member that has accepted a higher ballot accepts no lower one.
 *
 * Messages are notices: they may be lost, so each is repeated every 50 ms until its answer comes. Cost without a further
 * failure: 4 messages per rank, of 3 bits per rank at most.
 */
#include "comm/core/agree.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/core/engine.h"

#define REPEAT (50 * SHUNT__MS)
#define REMEMBER (60 * SHUNT__S)

enum kind { JOIN = 16, DECIDE, ACCEPT, CONFIRM };

struct message {
    uint32_t kind, n;
    uint64_t ballot; /* round << 16 | leader's rank */
    /* then bitmaps of (n + 7) / 8 bytes each: JOIN unreachable, dead, exclude; DECIDE and CONFIRM the set */
};

struct shunt__agree {
    struct shunt__list node; /* context's list */
    struct shunt_context *ctx;
    struct shunt_comm *comm; /* NULL once freed */
    uint64_t id;
    uint32_t epoch;
    int rank, n;
    struct shunt__peer **peers;
    int started;         /* this rank has called; before that it only collects what others say */
    int decided;
    uint64_t start, last, decided_at;
    uint64_t ballot;     /* the highest accepted */
    uint64_t proposing;  /* our own ballot, 0: none */
    unsigned char *joined, *accepted, *dead, *exclude, *set, *confirmed;
    unsigned char *unreachable; /* n * n */
    int *ranks, n_ranks;
};

int shunt__agree_choose(int n, const unsigned char *joined, const unsigned char *unreachable,
                        const unsigned char *exclude, unsigned char *set)
{
    int size = 0;

    for (int r = 0; r < n; r++)
        size += set[r] = joined[r] && !exclude[r];
    for (;;) {
        int worst = -1, most = 0;
        for (int a = 0; a < n; a++) {
            int broken = 0;
            for (int b = 0; set[a] && b < n; b++)
                broken += b != a && set[b] && (unreachable[a * n + b] || unreachable[b * n + a]);
            if (broken && broken >= most) {
                worst = a;
                most = broken;
            }
        }
        if (worst < 0)
            return size;
        set[worst] = 0;
        size--;
    }
}

int shunt__agree_quorum(int n, const unsigned char *set, const unsigned char *dead, const unsigned char *exclude)
{
    int alive = 0, size = 0, lowest = -1;

    for (int r = 0; r < n; r++) {
        size += set[r] != 0;
        if (dead[r] || (exclude[r] && !set[r]))
            continue;
        alive++;
        if (lowest < 0)
            lowest = r;
    }
    return 2 * size > alive || (2 * size == alive && lowest >= 0 && set[lowest]);
}

static void pack(unsigned char *out, const unsigned char *set, int n)
{
    memset(out, 0, (size_t)(n + 7) / 8);
    for (int r = 0; r < n; r++)
        if (set[r])
            out[r / 8] |= (unsigned char)(1 << r % 8);
}

static int bit(const unsigned char *in, int r)
{
    return in[r / 8] >> (r % 8) & 1;
}

static void say(struct shunt__agree *a, int to, enum kind kind, uint64_t ballot, const unsigned char *s1,
                const unsigned char *s2, const unsigned char *s3)
{
    size_t map = (size_t)(a->n + 7) / 8, len = sizeof(struct message) + 3 * map;
    struct message m = {kind, (uint32_t)a->n, ballot};
    struct shunt__frame f;
    unsigned char *buf;

    if (!a->peers[to] || a->peers[to]->state != SHUNT_OK || !(buf = calloc(1, len)))
        return;
    memcpy(buf, &m, sizeof(m));
    if (s1)
        pack(buf + sizeof(m), s1, a->n);
    if (s2)
        pack(buf + sizeof(m) + map, s2, a->n);
    if (s3)
        pack(buf + sizeof(m) + 2 * map, s3, a->n);
    memset(&f, 0, sizeof(f));
    f.type = SHUNT__FRAME_NOTICE;
    f.length = (uint32_t)len;
    f.comm = a->id;
    f.epoch = a->epoch;
    shunt__notice(a->peers[to], &f, buf);
    free(buf);
}

static struct shunt__agree *find(struct shunt_context *ctx, uint64_t id, uint32_t epoch)
{
    for (struct shunt__list *n = ctx->agreements.next; n != &ctx->agreements; n = n->next) {
        struct shunt__agree *a = shunt__container(n, struct shunt__agree, node);
        if (a->id == id && a->epoch == epoch)
            return a;
    }
    return NULL;
}

static void drop(struct shunt__agree *a)
{
    shunt__list_remove(&a->node);
    free(a->joined);
    free(a->unreachable);
    free(a->peers);
    free(a->ranks);
    free(a);
}

static struct shunt__agree *get(struct shunt_comm *comm)
{
    struct shunt__agree *a = find(comm->ctx, comm->id, comm->epoch);
    size_t n = (size_t)comm->size;

    if (a)
        return a;
    a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    a->joined = calloc(6 * n, 1);
    a->unreachable = calloc(n, n);
    a->peers = calloc(n, sizeof(*a->peers));
    a->ranks = calloc(n, sizeof(*a->ranks));
    if (!a->joined || !a->unreachable || !a->peers || !a->ranks) {
        free(a->joined);
        free(a->unreachable);
        free(a->peers);
        free(a->ranks);
        free(a);
        return NULL;
    }
    a->accepted = a->joined + n;
    a->dead = a->joined + 2 * n;
    a->exclude = a->joined + 3 * n;
    a->set = a->joined + 4 * n;
    a->confirmed = a->joined + 5 * n;
    a->ctx = comm->ctx;
    a->comm = comm;
    a->id = comm->id;
    a->epoch = comm->epoch;
    a->rank = comm->rank;
    a->n = comm->size;
    memcpy(a->peers, comm->peers, n * sizeof(*a->peers));
    shunt__list_init(&a->node);
    shunt__list_append(&comm->ctx->agreements, &a->node);
    return a;
}

/* What this rank sees itself, into its own row. */
static void look(struct shunt__agree *a)
{
    for (int r = 0; r < a->n; r++) {
        shunt_status_t st = a->peers[r] ? a->peers[r]->state : SHUNT_OK;
        a->unreachable[a->rank * a->n + r] = st != SHUNT_OK;
        if (st == SHUNT_ERR_PEER)
            a->dead[r] = 1;
    }
}

static int leader(const struct shunt__agree *a)
{
    for (int r = 0; r < a->n; r++)
        if (!a->exclude[r] && (r == a->rank || a->peers[r]->state == SHUNT_OK))
            return r;
    return a->rank;
}

static void decide(struct shunt__agree *a, const unsigned char *set)
{
    if (a->decided)
        return;
    a->n_ranks = 0;
    for (int r = 0; r < a->n; r++) {
        a->confirmed[r] = set[r] != 0;
        if (set[r])
            a->ranks[a->n_ranks++] = r;
    }
    a->decided_at = a->ctx->now;
    a->decided = 1;
    shunt__log(SHUNT__LOG_INFO, "agreed: %d of %d ranks go on, this one %s", a->n_ranks, a->n,
               a->confirmed[a->rank] ? "too" : "not");
    for (int r = 0; r < a->n; r++) /* the excluded learn it here, and who has lost the leader's word */
        if (r != a->rank)
            say(a, r, CONFIRM, a->ballot, a->confirmed, NULL, NULL);
    if (a->ctx->cond_waiters)
        pthread_cond_broadcast(&a->ctx->cond);
}

/* As leader: propose when everybody who can has joined. */
static void propose(struct shunt__agree *a)
{
    int late = a->ctx->now - a->start > a->ctx->peer_timeout, size;
    const char *quorum = shunt__config_str(&a->ctx->config, SHUNT__QUORUM);

    for (int r = 0; r < a->n && !late; r++)
        if (!a->joined[r] && !a->exclude[r] && a->peers[r]->state == SHUNT_OK)
            return;
    size = shunt__agree_choose(a->n, a->joined, a->unreachable, a->exclude, a->set);
    if (strcmp(quorum, "any") != 0 && !shunt__agree_quorum(a->n, a->set, a->dead, a->exclude)) {
        shunt__log(SHUNT__LOG_EVENT, "%d of %d ranks are left here, the others may be alive elsewhere: this side gives up "
                   "(SHUNT_QUORUM=any lets it go on)", size, a->n);
        memset(a->set, 0, (size_t)a->n);
        decide(a, a->set);
        return;
    }
    a->proposing = ((a->ballot >> 16) + 1) << 16 | (unsigned)a->rank;
    memset(a->accepted, 0, (size_t)a->n);
    a->ballot = a->proposing;
    a->accepted[a->rank] = 1;
}

static void lead(struct shunt__agree *a)
{
    int waiting = 0;

    a->joined[a->rank] = 1;
    if (a->proposing) /* somebody of the set has gone since: once more */
        for (int r = 0; r < a->n; r++)
            if (a->set[r] && r != a->rank && a->peers[r]->state != SHUNT_OK)
                a->proposing = 0;
    if (a->proposing != a->ballot)
        a->proposing = 0;
    if (!a->proposing)
        propose(a);
    if (!a->proposing || a->decided)
        return;
    for (int r = 0; r < a->n; r++) {
        if (!a->set[r] || a->accepted[r])
            continue;
        waiting = 1;
        say(a, r, DECIDE, a->proposing, a->set, NULL, NULL);
    }
    if (!waiting)
        decide(a, a->set);
}

static void join(struct shunt__agree *a, int to)
{
    say(a, to, JOIN, a->ballot, a->unreachable + a->rank * a->n, a->dead, a->exclude);
}

void shunt__agree_tick(struct shunt_context *ctx, uint64_t now)
{
    for (struct shunt__list *n = ctx->agreements.next, *next; n != &ctx->agreements; n = next) {
        struct shunt__agree *a = shunt__container(n, struct shunt__agree, node);
        next = n->next;
        if (a->decided) {
            if (!a->comm && now - a->decided_at > REMEMBER)
                drop(a);
            continue;
        }
        if (!a->started || now - a->last < REPEAT)
            continue;
        a->last = now;
        look(a);
        int l = leader(a);
        if (l == a->rank)
            lead(a);
        for (int r = 0; r <= l; r++) /* those who would lead if they were not left out are told that they are */
            if (r != a->rank && (r == l || a->exclude[r]))
                join(a, r);
    }
}

void shunt__agree_arrived(struct shunt_context *ctx, struct shunt__peer *peer, uint64_t id, uint32_t epoch,
                          const void *payload, size_t len)
{
    struct shunt__agree *a = find(ctx, id, epoch);
    struct shunt_comm *comm = shunt__comm_find(ctx, id);
    const unsigned char *p = payload;
    struct message m;
    int from = -1, unheard = 0;

    if (!a && comm && comm->epoch == epoch)
        a = get(comm);
    if (!a || len < sizeof(m))
        return;
    memcpy(&m, p, sizeof(m));
    p += sizeof(m);
    size_t map = (size_t)(a->n + 7) / 8;
    for (int r = 0; r < a->n; r++)
        if (a->peers[r] == peer)
            from = r;
    if (from < 0 || m.n != (uint32_t)a->n || len != sizeof(m) + 3 * map)
        return;
    if (a->decided) {
        if (m.kind != CONFIRM)
            say(a, from, CONFIRM, a->ballot, a->confirmed, NULL, NULL);
        return;
    }
    unsigned char *s = malloc((size_t)a->n);
    if (!s)
        return;
    for (int r = 0; r < a->n; r++)
        s[r] = (unsigned char)bit(p, r);
    switch (m.kind) {
    case JOIN:
        a->joined[from] = 1;
        for (int r = 0; r < a->n; r++) {
            unheard |= a->exclude[r] && !bit(p + 2 * map, r);
            a->unreachable[from * a->n + r] = s[r];
            a->dead[r] |= (unsigned char)bit(p + map, r);
            a->exclude[r] |= (unsigned char)bit(p + 2 * map, r);
        }
        a->dead[from] = 0;
        if (unheard && a->started && leader(a) != a->rank) /* it may be asking the wrong one to lead */
            join(a, from);
        if (m.ballot > a->ballot && a->rank == leader(a))
            a->ballot = m.ballot;
        break;
    case DECIDE:
        /* A rank that has not called yet accepts nothing: its caller may want someone excluded. */
        if (a->started && m.ballot >= a->ballot) {
            a->ballot = m.ballot;
            say(a, from, ACCEPT, m.ballot, NULL, NULL, NULL);
        }
        break;
    case ACCEPT:
        if (a->proposing && m.ballot == a->proposing) {
            a->accepted[from] = 1;
            int all = 1;
            for (int r = 0; r < a->n; r++)
                all &= !a->set[r] || a->accepted[r];
            if (all)
                decide(a, a->set);
        }
        break;
    case CONFIRM:
        if (a->started || !s[a->rank])
            decide(a, s);
        break;
    default:
        break;
    }
    free(s);
}

struct shunt__agree *shunt__agree_start(struct shunt_comm *comm, const int *exclude, int n_exclude)
{
    struct shunt__agree *a = get(comm);

    if (!a)
        return NULL;
    for (int i = 0; i < n_exclude; i++)
        a->exclude[exclude[i]] = 1;
    if (!a->started)
        a->start = comm->ctx->now;
    a->started = 1;
    a->last = 0;
    shunt__agree_tick(comm->ctx, comm->ctx->now);
    return a;
}

const int *shunt__agree_done(const struct shunt__agree *a)
{
    return &a->decided;
}

shunt_status_t shunt__agree_result(const struct shunt__agree *a, const int **ranks, int *n)
{
    if (!a->confirmed[a->rank])
        return shunt__fail(SHUNT_ERR_EXCLUDED, a->n_ranks ? "rank %d was left out: %d of %d ranks go on without it"
                                                          : "rank %d: too few ranks can be reached from here to go on "
                                                            "(%d of %d; SHUNT_QUORUM)", a->rank, a->n_ranks, a->n);
    *ranks = a->ranks;
    *n = a->n_ranks;
    return SHUNT_OK;
}

int shunt__agree_pending(const struct shunt_context *ctx)
{
    for (struct shunt__list *n = ctx->agreements.next; n != &ctx->agreements; n = n->next)
        if (!shunt__container(n, struct shunt__agree, node)->decided)
            return 1;
    return 0;
}

void shunt__agree_detach(struct shunt_comm *comm)
{
    struct shunt__agree *a = find(comm->ctx, comm->id, comm->epoch);

    if (!a)
        return;
    a->comm = NULL;
    if (!a->decided)
        drop(a);
}

void shunt__agree_close(struct shunt_context *ctx)
{
    while (!shunt__list_empty(&ctx->agreements))
        drop(shunt__container(ctx->agreements.next, struct shunt__agree, node));
}
