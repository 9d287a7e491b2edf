/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress: who drives the engine, and when it sleeps.
 *
 * Whoever waits in a call drives; while nobody does, a helper thread does. A waiting call polls for SHUNT_SPIN, yielding the
 * core when the host has more ranks than cores, then blocks on all descriptors at once. Of several waiting threads one drives
 * and the others wait on a condition. The helper stays out of the way of calls: it looks every few milliseconds whether any
 * came since its last look, and only takes over when none did.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "comm/core/agree.h"
#include "comm/core/control.h"
#include "comm/core/engine.h"
#include "comm/core/report.h"
#include "comm/rail/carrier.h"

#define TICK (10 * SHUNT__MS)
#define ACK_DELAY (100 * SHUNT__US)
#define ACK_BYTES (256u << 10)
enum { LIMITED = 1, UNLIMITED }; /* how long: to the next tick, or until something comes */
enum { HELPER, CALLER }; /* who may be blocked: each has a bell of its own, which only it takes back */
#define YIELD_EVERY 8 /* idle turns between two yields where every rank has a core: a peer that is running answers within that */
#define POLL_EVERY 16 /* turns of spinning between two looks at the descriptors */
#define GLANCES 64    /* at memory alone, between two turns that find nothing */

/* The time as of a few microseconds ago at most: the clock costs more than most of what is done between two looks at it. */
static void look_at_clock(struct shunt_context *ctx)
{
    uint64_t ticks = shunt__ticks();

    if (ticks && ticks - ctx->ticks < SHUNT__TICKS_SOON)
        return;
    ctx->ticks = ticks;
    ctx->now = shunt__now();
}

void shunt__lock(struct shunt_context *ctx)
{
    if (pthread_mutex_trylock(&ctx->lock) == 0)
        goto out;
    atomic_fetch_add(&ctx->contenders, 1);
    pthread_mutex_lock(&ctx->lock);
    atomic_fetch_sub(&ctx->contenders, 1);
out:
    look_at_clock(ctx);
    ctx->fresh = 1;
}

void shunt__unlock(struct shunt_context *ctx)
{
    pthread_mutex_unlock(&ctx->lock);
}

void shunt__op_complete(struct shunt__op *op, shunt_status_t status, const char *why)
{
    struct shunt_context *ctx = op->comm->ctx;

    op->status = status;
    op->why = why;
    shunt__list_append(&ctx->completed, &op->node);
}

static int drain_completed(struct shunt_context *ctx)
{
    int n = 0;

    while (!shunt__list_empty(&ctx->completed)) {
        struct shunt__op *op = shunt__container(ctx->completed.next, struct shunt__op, node);
        shunt__list_remove(&op->node);
        struct shunt_comm *comm = op->comm;
        op->done(op); /* may free it, may post others */
        comm->pending--;
        n++;
    }
    return n;
}

static int acks_due(const struct shunt__peer *peer, uint64_t now, int idle)
{
    return !shunt__list_empty(&peer->acks) &&
           (idle || peer->ack_bytes >= ACK_BYTES || now - peer->ack_time >= ACK_DELAY);
}

/* Peers with something to send; those whose acknowledgements may still wait stay on the list. */
static int pump(struct shunt_context *ctx, int idle)
{
    struct shunt__list todo;
    int n = 0;

    if (shunt__list_empty(&ctx->pump))
        return 0;
    todo = ctx->pump;
    todo.next->prev = todo.prev->next = &todo;
    shunt__list_init(&ctx->pump);
    while (!shunt__list_empty(&todo)) {
        struct shunt__peer *peer = shunt__container(todo.next, struct shunt__peer, pump);
        shunt__list_remove(&peer->pump);
        if (peer->left)
            shunt__peer_leave(peer);
        shunt__schedule(peer);
        if (acks_due(peer, ctx->now, idle))
            n += shunt__ack_flush(peer);
        else if (!shunt__list_empty(&peer->acks))
            shunt__pump_later(peer);
    }
    return n;
}

static void tick(struct shunt_context *ctx)
{
    if (ctx->carrier)
        shunt__carrier_tick(ctx->carrier, ctx->now);
    for (int i = 0; i < ctx->n_rails; i++)
        if (ctx->rails[i]->ops->tick)
            ctx->rails[i]->ops->tick(ctx->rails[i], ctx->now);
    for (struct shunt__list *n = ctx->all_peers.next; n != &ctx->all_peers; n = n->next)
        shunt__peer_tick(shunt__container(n, struct shunt__peer, all), ctx->now);
    for (struct shunt__list *n = ctx->all_comms.next; n != &ctx->all_comms; n = n->next)
        shunt__coll_tick(shunt__container(n, struct shunt_comm, all), ctx->now);
    if (!shunt__list_empty(&ctx->orphans))
        shunt__arrive_orphans(ctx, NULL);
    if (!shunt__list_empty(&ctx->agreements))
        shunt__agree_tick(ctx, ctx->now);
    shunt__health_tick(ctx, ctx->now);
    shunt__report_tick(ctx, ctx->report, ctx->now);
    ctx->next_tick = ctx->now + TICK;
}

static int turn(struct shunt_context *ctx, int descriptors, int idle, const int *flag)
{
    int n = 0;

    if (!ctx->fresh)
        look_at_clock(ctx);
    ctx->fresh = 0;
    if (ctx->memory && ctx->memory->ops->progress(ctx->memory)) {
        n = 1 + drain_completed(ctx);
        ctx->poll_every = POLL_EVERY; /* what is waited for comes through memory */
        if (flag && *(const volatile int *)flag && !descriptors && ctx->now < ctx->next_tick &&
            shunt__list_empty(&ctx->pump))
            return n; /* and is there: the rest when a call comes next */
    }
    for (int i = 0; i < ctx->n_rails; i++)
        if (ctx->rails[i]->ops->progress && ctx->rails[i] != ctx->memory)
            n += ctx->rails[i]->ops->progress(ctx->rails[i]);
    if (descriptors) {
        int events = shunt__poller_run(&ctx->poller, 0);
        n += events;
        if (events)
            ctx->poll_every = 1; /* or through descriptors */
    }
    n += drain_completed(ctx);
    n += pump(ctx, idle);
    n += drain_completed(ctx);
    if (ctx->now >= ctx->next_tick) {
        tick(ctx);
        n += drain_completed(ctx);
        pump(ctx, idle);
    }
    return n;
}

static void ring(int fd)
{
    uint64_t one = 1;

    if (write(fd, &one, sizeof(one)) < 0)
        return; /* full: it has been rung */
}

static void wake(struct shunt_context *ctx, int least)
{
    for (int who = 0; who < 2; who++)
        if (ctx->asleep[who] >= least) {
            ctx->asleep[who] = 0;
            ring(ctx->bell[who]);
        }
}

/*
 * At the start of every call that drives. Its turns disarm the rails' doorbells, on which a helper that is blocked relies:
 * once the call is over nothing would wake it.
 */
static void take_over(struct shunt_context *ctx)
{
    if (ctx->asleep[HELPER])
        wake(ctx, LIMITED);
}

int shunt__progress(struct shunt_context *ctx)
{
    int n;

    if (ctx->draining)
        return 0;
    take_over(ctx);
    ctx->draining = 1;
    n = turn(ctx, 1, 0, NULL);
    ctx->draining = 0;
    return n;
}

/* Whether anything is going on that needs the tick. */
static int busy(const struct shunt_context *ctx)
{
    if (shunt__agree_pending(ctx))
        return 1;
    for (struct shunt__list *n = ctx->all_peers.next; n != &ctx->all_peers; n = n->next) {
        const struct shunt__peer *p = shunt__container(n, struct shunt__peer, all);
        if (p->state != SHUNT_OK)
            continue;
        if (p->wanted || !shunt__list_empty(&p->notices) || !shunt__list_empty(&p->acks))
            return 1;
        for (int i = 0; i < SHUNT__MAX_RAILS; i++) {
            const struct shunt__path *q = p->paths[i];
            if (q && (q->state == SHUNT_RAIL_CONNECTING || q->state == SHUNT_RAIL_PROBING ||
                      (q->state == SHUNT_RAIL_DEAD && q->was_up && q->connect_at != UINT64_MAX)))
                return 1;
        }
    }
    return 0;
}

/* Sleeps until a descriptor is ready or the next tick; the lock is let go meanwhile. */
static void block(struct shunt_context *ctx, uint64_t deadline, int who)
{
    struct pollfd p[2] = {{ctx->poller.epfd, POLLIN, 0}, {ctx->bell[who], POLLIN, 0}};
    int timeout = -1;
    uint64_t now, rung;

    pump(ctx, 1); /* nothing else is to be done: say what has arrived */
    for (int i = 0; i < ctx->n_rails; i++)
        if (ctx->rails[i]->ops->arm && ctx->rails[i]->ops->arm(ctx->rails[i]))
            return;
    if (!shunt__list_empty(&ctx->completed))
        return;
    now = shunt__now();
    if (busy(ctx))
        timeout = ctx->next_tick > now ? (int)((ctx->next_tick - now) / SHUNT__MS) + 1 : 0;
    if (deadline && deadline <= now)
        timeout = 0;
    else if (deadline && (timeout < 0 || (deadline - now) / SHUNT__MS < (uint64_t)timeout))
        timeout = (int)((deadline - now) / SHUNT__MS) + 1;
    ctx->asleep[who] = timeout < 0 ? UNLIMITED : LIMITED;
    shunt__unlock(ctx);
    if (poll(p, 2, timeout) < 0 && errno != EINTR)
        sched_yield();
    shunt__lock(ctx);
    ctx->asleep[who] = 0;
    if ((p[1].revents & POLLIN) && read(ctx->bell[who], &rung, sizeof(rung)) < 0)
        return; /* taken back already */
}

void shunt__progress_kick(struct shunt_context *ctx)
{
    wake(ctx, UNLIMITED);
}

static void wait_for_driver(struct shunt_context *ctx, uint64_t deadline)
{
    struct timespec t;
    uint64_t until = shunt__now() + 100 * SHUNT__MS;

    if (deadline && deadline < until)
        until = deadline;
    t.tv_sec = (time_t)(until / SHUNT__S);
    t.tv_nsec = (long)(until % SHUNT__S);
    ctx->cond_waiters++;
    pthread_cond_timedwait(&ctx->cond, &ctx->lock, &t);
    ctx->cond_waiters--;
    ctx->now = shunt__now();
}

/* Between two turns of a call that spins: looks at shared memory alone, if that is where things come from. */
static void glance(struct shunt_context *ctx)
{
    struct shunt__rail *rail = ctx->memory;

    if (!rail || ctx->poll_every <= 1)
        return;
    for (int i = 0; i < GLANCES && !rail->ops->waiting(rail) && !atomic_load(&ctx->contenders); i++)
        if (i > 15)
            shunt__relax();
}

void shunt__progress_until(struct shunt_context *ctx, const int *flag, uint64_t deadline)
{
    uint64_t idle_since = 0, start = ctx->now;
    unsigned idle = 0;

    if (*(const volatile int *)flag)
        return;
    ctx->callers++;
    ctx->calls++;
    take_over(ctx);
    while (!*(const volatile int *)flag && !(deadline && shunt__now() >= deadline)) {
        if (ctx->polling) {
            wait_for_driver(ctx, deadline);
            continue;
        }
        ctx->polling = 1;
        ctx->draining = 1;
        int n = turn(ctx, ctx->poll_every <= 1 || ++ctx->turns % ctx->poll_every == 0, 0, flag);
        ctx->draining = 0;
        if (ctx->cond_waiters && n)
            pthread_cond_broadcast(&ctx->cond);
        if (*(const volatile int *)flag) {
            ctx->polling = 0;
            break;
        }
        if (n) {
            idle_since = 0;
        } else if (idle_since == 0) {
            idle_since = ctx->now;
            glance(ctx);
        } else if (ctx->now - idle_since >= ctx->spin) {
            block(ctx, deadline, CALLER);
            ctx->turns = UINT_MAX; /* look at the descriptors first */
            idle_since = ctx->now;
        } else if (ctx->crowded || ++idle % YIELD_EVERY == 0) {
            ctx->polling = 0;
            shunt__unlock(ctx);
            sched_yield();
            shunt__lock(ctx);
            continue;
        } else {
            glance(ctx);
        }
        ctx->polling = 0;
        if (atomic_load(&ctx->contenders)) {
            shunt__unlock(ctx);
            sched_yield();
            shunt__lock(ctx);
        }
    }
    ctx->callers--;
    ctx->waited += ctx->now - start;
    if (ctx->cond_waiters)
        pthread_cond_broadcast(&ctx->cond); /* somebody else drives now */
}

/* ---- the helper thread ---- */

static void *helper(void *arg)
{
    struct shunt_context *ctx = arg;
    unsigned seen = 0, quiet = 0;

    shunt__lock(ctx);
    while (!ctx->stop) {
        unsigned calls = ctx->calls;
        if (calls != seen || ctx->callers || ctx->polling) {
            /* Calls drive. Look again in 1 to 5 ms. */
            struct timespec t = {0, quiet == 0 ? 5000000 : 1000000};
            quiet = calls == seen;
            seen = calls;
            shunt__unlock(ctx);
            nanosleep(&t, NULL);
            shunt__lock(ctx);
            continue;
        }
        ctx->polling = 1;
        ctx->draining = 1;
        int n = turn(ctx, 1, 1, NULL);
        ctx->draining = 0;
        ctx->polling = 0;
        if (n) {
            if (ctx->cond_waiters)
                pthread_cond_broadcast(&ctx->cond);
            if (atomic_load(&ctx->contenders)) {
                shunt__unlock(ctx);
                sched_yield();
                shunt__lock(ctx);
            }
            continue;
        }
        block(ctx, 0, HELPER);
    }
    shunt__unlock(ctx);
    return NULL;
}

shunt_status_t shunt__progress_start(struct shunt_context *ctx)
{
    pthread_condattr_t attr;
    int err;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&ctx->cond, &attr);
    pthread_condattr_destroy(&attr);
    for (int who = 0; who < 2; who++)
        if ((ctx->bell[who] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
            return shunt__fail_errno(SHUNT_ERR_LIMIT, errno, "no descriptor left for the engine (ulimit -n)");
    if (!shunt__config_int(&ctx->config, SHUNT__THREAD))
        return SHUNT_OK;
    err = pthread_create(&ctx->helper, NULL, helper, ctx);
    if (err)
        return shunt__fail_errno(SHUNT_ERR_LIMIT, err, "no thread for the engine (ulimit -u)");
    ctx->helper_running = 1;
    if (ctx->binding.bound) { /* advice: a cpuset that forbids it changes nothing else */
        err = pthread_setaffinity_np(ctx->helper, sizeof(ctx->binding.cpus), &ctx->binding.cpus);
        if (err)
            shunt__log(SHUNT__LOG_INFO, "helper thread: anywhere after all: %s", strerror(err));
    }
    return SHUNT_OK;
}

void shunt__progress_stop(struct shunt_context *ctx)
{
    if (ctx->helper_running) {
        shunt__lock(ctx);
        ctx->stop = 1;
        ring(ctx->bell[HELPER]);
        shunt__unlock(ctx);
        pthread_join(ctx->helper, NULL);
        ctx->helper_running = 0;
    }
    for (int who = 0; who < 2; who++)
        if (ctx->bell[who] >= 0)
            close(ctx->bell[who]);
    ctx->bell[HELPER] = ctx->bell[CALLER] = -1;
    pthread_cond_destroy(&ctx->cond);
}

void shunt_progress(shunt_context_t *ctx)
{
    if (!ctx)
        return;
    shunt__lock(ctx);
    if (!ctx->polling)
        shunt__progress(ctx);
    shunt__unlock(ctx);
}
