/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that disagree may never exchange a message: each waits for another, or has gone on. A run that gets nowhere for
 * PATIENCE asks the ranks it waits for, by a hello with its own view under a tag of its own, and listens for the others'
 * questions meanwhile. Who is asked and had (or has) another view of that collective says so, and both give up; who has not come to
 * it yet says nothing. A rank that is merely late costs one short message each time, at doubling intervals.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/base/clock.h"
#include "comm/coll/run.h"

#define PATIENCE SHUNT__S
#define MOST_PATIENCE (16 * SHUNT__S)
/* After a run gave up, questions about it are answered for this long. */
#define AFTER_FAILURE (60 * SHUNT__S)

struct shunt__listener {
    struct shunt__op op;
    struct shunt__run_pool *pool;
    struct shunt_comm *comm;
    int peer, posted, wanted;
    struct shunt__coll_hello hello;
};

static void listen_to(struct shunt__listener *l);

void shunt__run_pool_note(struct shunt__run_pool *pool, const struct shunt__call *call, uint64_t number)
{
    struct shunt__coll_hello *h = &pool->past[number % SHUNT__PAST];
    struct shunt__call plain = *call;

    plain.send_counts = NULL; /* they differ from peer to peer */
    shunt__coll_hello_fill(h, &plain, number, 0);
}

static struct shunt__run *find(struct shunt__run_pool *pool, uint64_t number)
{
    for (struct shunt__list *n = pool->runs.next; n != &pool->runs; n = n->next) {
        struct shunt__run *run = shunt__container(n, struct shunt__run, node);

        if (run->p.number == number)
            return run;
    }
    return NULL;
}

/* A collective that is over: was it another one than `asked`? */
static int differs(const struct shunt__coll_hello *past, const struct shunt__coll_hello *asked)
{
    if (past->magic != SHUNT__HELLO_MAGIC || past->number != asked->number)
        return 0;
    return past->kind != asked->kind || past->type != asked->type || past->op != asked->op || past->root != asked->root ||
           (past->count != asked->count && past->kind != SHUNT_COLL_ALLTOALLV);
}

/* `peer` asks about a collective, or answers our question with its view of it. */
static void heard(struct shunt__run_pool *pool, struct shunt_comm *comm, int peer, struct shunt__coll_hello *h)
{
    struct shunt__run *run = find(pool, h->number);
    struct shunt__coll_hello own = pool->past[h->number % SHUNT__PAST];
    int asked = h->status == 0;
    char text[SHUNT__WHY];

    h->status = 0;
    if (run ? shunt__coll_hello_check(h, &run->call, h->number, peer, text, sizeof(text)) == SHUNT_OK
            : !differs(&own, h))
        return;
    if (asked) {
        if (run)
            shunt__coll_hello_fill(&own, &run->call, h->number, peer);
        own.status = SHUNT_ERR_MISMATCH;
        shunt__note_send(pool, comm, peer, SHUNT__INQUIRY_TAG, &own, "", 0);
    }
    if (run && !run->status) {
        shunt__run_fail(run, SHUNT_ERR_MISMATCH, peer, 1, "%s", text);
        shunt__run_settle(run);
    }
    for (int rest = 0; rest < 2 && asked; rest++)
        shunt__drain_start(pool, comm, h->number, peer, rest, UINT32_MAX);
}

static void listener_done(struct shunt__op *op)
{
    struct shunt__listener *l = shunt__container(op, struct shunt__listener, op);
    struct shunt__run_pool *pool = l->pool;
    struct shunt__coll_hello h = l->hello;

    l->posted = 0;
    pool->n_listening--;
    if (op->status == SHUNT_OK && op->bytes == sizeof(h) && h.magic == SHUNT__HELLO_MAGIC && !pool->closed)
        heard(pool, l->comm, l->peer, &h);
    if (l->wanted && !pool->closed && (op->status == SHUNT_OK || op->status == SHUNT_ERR_TRUNCATED))
        listen_to(l);
    shunt__run_pool_put(pool);
}

static void listen_to(struct shunt__listener *l)
{
    if (l->posted)
        return;
    l->posted = 1;
    l->pool->n_listening++;
    l->pool->refs++;
    l->pool->carrier->recv(&l->op, l->comm, SHUNT__CHANNEL_COLL, &l->hello, sizeof(l->hello), l->peer, SHUNT__INQUIRY_TAG,
                           listener_done);
}

static void listen_to_all(struct shunt__run_pool *pool)
{
    if (!pool->listeners) {
        pool->listeners = calloc((size_t)pool->size, sizeof(*pool->listeners));
        if (!pool->listeners)
            return;
        pool->n_listeners = pool->size;
    }
    for (int r = 0; r < pool->n_listeners; r++) {
        struct shunt__listener *l = &pool->listeners[r];

        if (r == pool->rank)
            continue;
        l->pool = pool;
        l->comm = pool->comm;
        l->peer = r;
        l->wanted = 1;
        listen_to(l);
    }
}

static void stop_listening(struct shunt__run_pool *pool)
{
    for (int r = 0; r < pool->n_listeners; r++) {
        struct shunt__listener *l = &pool->listeners[r];

        l->wanted = 0;
        if (l->posted && l->op.status == SHUNT_IN_PROGRESS)
            pool->carrier->cancel(&l->op, SHUNT_ERR_CANCELED);
    }
}

void shunt__listeners_close(struct shunt__run_pool *pool)
{
    stop_listening(pool);
}

/* Asks whoever it waits for: those it still has to receive from, and those who do not take what it sends. */
static void ask(struct shunt__run *run)
{
    const struct shunt__schedule *s = run->p.schedule;
    struct shunt__coll_hello hello;

    for (uint32_t lane = 0; lane < s->n_lanes; lane++) {
        int peer = s->steps[s->lane_first[lane]].peer;

        if (!run->lanes[lane].posted && run->lanes[lane].head < 0)
            continue;
        shunt__coll_hello_fill(&hello, &run->call, run->p.number, peer);
        shunt__note_send(run->p.pool, run->p.comm, peer, SHUNT__INQUIRY_TAG, &hello, "", 0);
    }
}

void shunt__run_pool_tick(struct shunt__run_pool *pool, uint64_t now)
{
    int stalled = 0;

    for (struct shunt__list *n = pool->runs.next; n != &pool->runs; n = n->next) {
        struct shunt__run *run = shunt__container(n, struct shunt__run, node);

        if (run->seen_left != run->left) {
            run->seen_left = run->left;
            run->seen_time = now;
            run->patience = PATIENCE;
            continue;
        }
        stalled |= run->patience > PATIENCE || now - run->seen_time > PATIENCE;
        if (now - run->seen_time < run->patience)
            continue;
        listen_to_all(pool);
        ask(run);
        run->seen_time = now;
        run->patience = run->patience * 2 < MOST_PATIENCE ? run->patience * 2 : MOST_PATIENCE;
    }
    if (pool->failed) {
        pool->failed = 0;
        pool->listen_until = now + AFTER_FAILURE;
        listen_to_all(pool);
    }
    if (pool->n_listening && !stalled && now > pool->listen_until)
        stop_listening(pool);
    if (pool->n_drains)
        shunt__drain_tick(pool, now);
}
