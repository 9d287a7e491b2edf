/* SPDX-License-Identifier: BSD-3-Clause */
/* How a run ends that can't go on, without leaving anyone waiting for it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/clock.h"
#include "comm/coll/run.h"

/* Drains that a communicator keeps; beyond it, what is not received stays with its sender. */
#define MOST_DRAINS 1024
#define DRAIN_TIME (60 * SHUNT__S)

/* ---- notices ---- */

struct notice {
    struct shunt__op op;
    struct shunt__coll_hello hello;
    char text[SHUNT__NOTICE_TEXT];
};

static void notice_done(struct shunt__op *op)
{
    free(shunt__container(op, struct notice, op));
}

void shunt__note_send(struct shunt__run_pool *pool, struct shunt_comm *comm, int peer, int tag,
                      const struct shunt__coll_hello *hello, const char *text, size_t bytes)
{
    struct notice *n = calloc(1, sizeof(*n));

    if (!n)
        return;
    n->hello = *hello;
    n->hello.text = (uint8_t)bytes;
    snprintf(n->text, sizeof(n->text), "%s", text);
    pool->carrier->send(&n->op, comm, SHUNT__CHANNEL_COLL, &n->hello, sizeof(n->hello) + bytes, peer, tag, notice_done);
}

/* In place of `step`, the next message that its peer expects. */
static void send_notice(struct shunt__run *run, const struct shunt__step *step, int blame)
{
    size_t bytes = shunt__min(strlen(run->why), SHUNT__NOTICE_TEXT - 2);
    struct shunt__coll_hello hello;

    if (!step->hello && sizeof(hello) + bytes == step->bytes)
        bytes++; /* its length is how it is told from what was expected */
    shunt__coll_hello_fill(&hello, &run->call, run->p.number, step->peer);
    hello.status = (int8_t)run->status;
    hello.blame = blame;
    shunt__note_send(run->p.pool, run->p.comm, step->peer, shunt__run_tag(run, step), &hello, run->why, bytes);
}

void shunt__run_odd_message(struct shunt__run *run, const struct shunt__step *step, const void *buf, size_t have,
                            size_t bytes)
{
    struct shunt__coll_hello h;
    char text[SHUNT__NOTICE_TEXT];

    if (have >= sizeof(h)) {
        memcpy(&h, buf, sizeof(h));
        if (h.magic == SHUNT__HELLO_MAGIC && h.status < 0 && h.number == run->p.number) {
            snprintf(text, sizeof(text), "%.*s", (int)shunt__min(have - sizeof(h), h.text),
                     (const char *)buf + sizeof(h));
            if (!step->hello && have < bytes && h.text == 0)
                snprintf(text, sizeof(text), "it gave up");
            shunt__run_fail(run, (shunt_status_t)h.status, h.blame, 1, "rank %d ended it: %s", step->peer, text);
            return;
        }
    }
    if (!step->hello)
        shunt__run_fail(run, SHUNT_ERR_MISMATCH, step->peer, 1,
                        "rank %d ended it, or sent %zu bytes where %zu were expected", step->peer, bytes,
                        (size_t)step->bytes);
    else
        shunt__run_fail(run, SHUNT_ERR_MISMATCH, step->peer, 1,
                        "rank %d sent %zu bytes where %zu were expected; do all ranks run the same version?", step->peer,
                        bytes, sizeof(h) + (size_t)step->bytes);
}

/* ---- drains ---- */

struct drain {
    struct shunt__op op;
    struct shunt__list node; /* pool's drains */
    struct shunt__run_pool *pool;
    struct shunt_comm *comm;
    int peer, tag;
    uint32_t left; /* messages that may still come, beyond the one waited for */
    uint64_t since; /* first tick that saw it */
    struct {
        struct shunt__coll_hello hello;
        char text[SHUNT__NOTICE_TEXT];
    } got;
};

static void drain_done(struct shunt__op *op);

static void drain_next(struct drain *d)
{
    memset(&d->got.hello, 0, sizeof(d->got.hello));
    d->pool->carrier->recv(&d->op, d->comm, SHUNT__CHANNEL_COLL, &d->got, sizeof(d->got), d->peer, d->tag, drain_done);
}

static void drain_done(struct shunt__op *op)
{
    struct drain *d = shunt__container(op, struct drain, op);
    int good = op->status == SHUNT_OK || op->status == SHUNT_ERR_TRUNCATED;
    int notice = op->bytes >= sizeof(d->got.hello) && d->got.hello.magic == SHUNT__HELLO_MAGIC && d->got.hello.status;

    if (good && !notice && d->left && !d->pool->closed) {
        d->left -= d->left != UINT32_MAX;
        drain_next(d);
        return;
    }
    shunt__list_remove(&d->node);
    d->pool->n_drains--;
    shunt__run_pool_put(d->pool);
    free(d);
}

void shunt__drain_start(struct shunt__run_pool *pool, struct shunt_comm *comm, uint64_t number, int peer, int rest,
                        uint32_t messages)
{
    struct drain *d = messages && pool->n_drains < MOST_DRAINS && !pool->closed ? calloc(1, sizeof(*d)) : NULL;

    if (!d)
        return;
    d->pool = pool;
    d->comm = comm;
    d->peer = peer;
    d->tag = shunt__coll_tag(number, rest);
    d->left = messages == UINT32_MAX ? messages : messages - 1;
    pool->refs++;
    pool->n_drains++;
    shunt__list_append(&pool->drains, &d->node);
    drain_next(d);
}

void shunt__drain_tick(struct shunt__run_pool *pool, uint64_t now)
{
    for (struct shunt__list *n = pool->drains.next; n != &pool->drains; n = n->next) {
        struct drain *d = shunt__container(n, struct drain, node);

        if (!d->since)
            d->since = now;
        else if (now - d->since > DRAIN_TIME && d->op.status == SHUNT_IN_PROGRESS)
            pool->carrier->cancel(&d->op, SHUNT_ERR_CANCELED);
    }
}

void shunt__run_pool_close(struct shunt__run_pool *pool)
{
    if (!pool)
        return;
    pool->closed = 1;
    shunt__listeners_close(pool);
    while (!shunt__list_empty(&pool->drains)) {
        struct drain *d = shunt__container(pool->drains.next, struct drain, node);

        shunt__list_remove(&d->node);
        pool->carrier->cancel(&d->op, SHUNT_ERR_CANCELED);
    }
    shunt__run_pool_put(pool);
}

/* ---- giving up ---- */

/* Takes back what this peer has not been matched with; the messages that it may still send. */
static void cancel_lane(struct shunt__run *run, uint32_t lane, uint32_t *first, uint32_t *rest)
{
    const struct shunt__schedule *s = run->p.schedule;

    *first = *rest = 0;
    for (int32_t i = s->lane_first[lane]; i >= 0; i = s->steps[i].next_in_lane) {
        const struct shunt__step *step = &s->steps[i];

        if (run->state[i] == SHUNT__DONE)
            continue;
        if (run->state[i] == SHUNT__POSTED) {
            struct shunt__op *op = &run->messages[step->op].op;

            if (op->status != SHUNT_IN_PROGRESS || run->p.pool->carrier->cancel(op, SHUNT_ERR_CANCELED))
                continue;
        }
        if (step->hello)
            ++*first;
        else
            ++*rest;
    }
}

void shunt__run_fail(struct shunt__run *run, shunt_status_t status, int blame, int tell, const char *fmt, ...)
{
    const struct shunt__schedule *s = run->p.schedule;
    int n, odd = status == SHUNT_ERR_MISMATCH ? blame : -1;
    va_list ap;

    if (run->status)
        return;
    run->status = status;
    run->p.pool->failed |= tell;
    n = snprintf(run->why, sizeof(run->why), "%s #%llu, rank %d: ", shunt__coll_name(run->call.kind),
                 (unsigned long long)run->p.number, run->call.rank);
    va_start(ap, fmt);
    vsnprintf(run->why + n, sizeof(run->why) - (size_t)n, fmt, ap);
    va_end(ap);
    for (uint32_t lane = 0; lane < s->n_lanes; lane++) {
        const struct shunt__step *head = &s->steps[s->lane_first[lane]];
        uint32_t first, rest;

        if (head->kind == SHUNT__STEP_SEND) {
            if (tell && run->lanes[lane].head >= 0)
                send_notice(run, &s->steps[run->lanes[lane].head], blame);
        } else {
            cancel_lane(run, lane, &first, &rest);
            if (!tell)
                continue;
            /* A rank that called something else sends nobody knows how much. */
            shunt__drain_start(run->p.pool, run->p.comm, run->p.number, head->peer, 0, head->peer == odd ? UINT32_MAX : first);
            shunt__drain_start(run->p.pool, run->p.comm, run->p.number, head->peer, 1, head->peer == odd ? UINT32_MAX : rest);
        }
    }
}
