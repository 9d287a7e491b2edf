/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fault wrapper as a rail. Between the engine and the rail it wraps, each connection has a struct fault_conn
 * whose `inner` link is what the wrapped rail sees. Everything that is sent is copied and goes through a queue
 * (fault_play.c), so that whatever the script does to it, the engine's memory is not read later.
 */
#include "comm/rail/fault.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include "comm/base/clock.h"
#include "comm/base/crc32c.h"
#include "comm/base/log.h"

static struct fault_rail *of(struct shunt__rail *rail)
{
    return (struct fault_rail *)rail;
}

void shunt__fault_enter(struct fault_rail *f)
{
    f->depth++;
}

void shunt__fault_leave(struct fault_rail *f)
{
    if (--f->depth)
        return;
    while (f->graves) {
        struct fault_conn *c = f->graves;
        f->graves = c->next;
        free(c);
    }
}

static struct fault_conn *conn_new(struct fault_rail *f, struct shunt__link *outer)
{
    struct fault_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->inner.rail = f->inner;
    c->inner.generation = outer->generation;
    c->outer = outer;
    c->rail = f;
    c->next = f->conns;
    if (c->next)
        c->next->prev = c;
    f->conns = c;
    outer->conn = c;
    return c;
}

/* The wrapped rail has let go of it, or is made to. */
static void bury(struct fault_conn *c)
{
    struct fault_rail *f = c->rail;

    if (c->closed)
        return;
    c->closed = 1;
    if (c->inner.conn)
        f->inner->ops->disconnect(&c->inner);
    if (c->prev)
        c->prev->next = c->next;
    else
        f->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->outer->conn = NULL;
    shunt__fault_drop(&c->waiting);
    shunt__fault_drop(&c->reading);
    shunt__fault_drop(&c->held);
    c->next = f->graves;
    f->graves = c;
}

static void report_down(struct fault_conn *c, shunt_status_t status, const char *why)
{
    struct fault_rail *f = c->rail;
    struct shunt__link *outer = c->outer;

    shunt__fault_enter(f);
    bury(c);
    f->rail.params.events->down(f->rail.params.engine, outer, status, why);
    shunt__fault_leave(f);
}

void shunt__fault_end(struct fault_conn *c, const char *why)
{
    if (!c->ending)
        c->why = why;
    c->ending = 1;
}

void shunt__fault_carrier(struct fault_rail *f, int up, const char *why)
{
    if (f->carrier == up)
        return;
    f->carrier = up;
    f->rail.params.events->carrier(f->rail.params.engine, &f->rail, up, why);
}

/* Events of the wrapped rail */

static void inner_hello(void *engine, struct shunt__link *link, void *buf, size_t *len)
{
    struct fault_rail *f = engine;

    f->rail.params.events->hello(f->rail.params.engine, ((struct fault_conn *)link)->outer, buf, len);
}

static struct shunt__link *inner_incoming(void *engine, struct shunt__rail *rail, const void *hello, size_t len,
                                          void *welcome, size_t *welcome_len)
{
    struct fault_rail *f = engine;
    const struct shunt__rail_params *p = &f->rail.params;
    struct fault_effects now = shunt__fault_effects(f, NULL);
    struct shunt__link *outer;
    struct fault_conn *c;

    if (now.down || now.cut || now.blackhole)
        return NULL;
    outer = p->events->incoming(p->engine, &f->rail, hello, len, welcome, welcome_len);
    if (!outer)
        return NULL;
    now = shunt__fault_effects(f, outer); /* only now is it known who it is */
    c = now.down || now.cut || now.blackhole || outer->conn ? NULL : conn_new(f, outer);
    if (!c) {
        p->events->down(p->engine, outer, SHUNT_ERR_RAIL, "cut by the fault script");
        return NULL;
    }
    return &c->inner;
}

static int inner_welcome(void *engine, struct shunt__link *link, const void *payload, size_t len)
{
    struct fault_rail *f = engine;
    struct shunt__link *outer = ((struct fault_conn *)link)->outer;
    int refused = f->rail.params.events->welcome(f->rail.params.engine, outer, payload, len);

    link->generation = outer->generation; /* the other side may have raised it; it goes into every frame */
    return refused;
}

static void inner_established(void *engine, struct shunt__link *link)
{
    struct fault_rail *f = engine;
    struct fault_conn *c = (struct fault_conn *)link;

    c->up = 1;
    f->rail.params.events->established(f->rail.params.engine, c->outer);
}

static void inner_down(void *engine, struct shunt__link *link, shunt_status_t status, const char *why)
{
    report_down((struct fault_conn *)link, status, why);
}

static void *inner_land(void *engine, struct shunt__link *link, const struct shunt__frame *frame)
{
    struct fault_rail *f = engine;
    struct fault_conn *c = (struct fault_conn *)link;
    void *to;

    if (c->ending || c->held.first || shunt__fault_effects(f, c->outer).blackhole)
        return NULL;
    to = f->rail.params.events->land(f->rail.params.engine, c->outer, frame);
    c->landed = to != NULL;
    return to;
}

static void hand_over(struct fault_conn *c, const struct shunt__frame *frame, const void *payload)
{
    const struct shunt__rail_params *p = &c->rail->rail.params;

    /* A rail that checks for itself does not look at the CRC that a corrupting wrapper has put there. */
    if ((c->inner.rail->caps & SHUNT__RAIL_CHECKED) && (frame->flags & SHUNT__FRAME_CRC) &&
        shunt__crc32c(0, payload, frame->length) != frame->payload_crc)
        p->events->damaged(p->engine, c->outer, frame);
    else
        p->events->frame(p->engine, c->outer, frame, payload);
}

/* What comes in while in a black hole waits, as it would in the other side's kernel. */
static int hold(struct fault_conn *c, const struct shunt__frame *frame, const void *payload)
{
    struct fault_item *item;

    if (c->landed || (!c->held.first && !c->ending && !shunt__fault_effects(c->rail, c->outer).blackhole))
        return 0;
    item = shunt__fault_item(c, frame, payload);
    if (item)
        shunt__fault_append(&c->held, item);
    else
        shunt__fault_end(c, "no memory for a fault wrapper");
    return 1;
}

static void inner_frame(void *engine, struct shunt__link *link, const struct shunt__frame *frame, const void *payload)
{
    struct fault_conn *c = (struct fault_conn *)link;
    int held = hold(c, frame, payload);

    c->landed = 0;
    if (!held)
        hand_over(c, frame, payload);
}

static void inner_damaged(void *engine, struct shunt__link *link, const struct shunt__frame *frame)
{
    struct fault_rail *f = engine;
    struct fault_conn *c = (struct fault_conn *)link;

    c->landed = 0;
    f->rail.params.events->damaged(f->rail.params.engine, c->outer, frame);
}

static void inner_sent(void *engine, struct shunt__link *link, uint64_t ref)
{
    struct fault_item *item = (struct fault_item *)(uintptr_t)ref;

    shunt__fault_remove(&((struct fault_conn *)link)->reading, item);
    free(item);
}

static void inner_consumed(void *engine, struct shunt__link *link, uint64_t count)
{
}

static void inner_writable(void *engine, struct shunt__link *link)
{
    shunt__fault_play(engine);
}

static void inner_carrier(void *engine, struct shunt__rail *rail, int up, const char *why)
{
    struct fault_rail *f = engine;

    if (!f->scopes[0].effects.down)
        shunt__fault_carrier(f, up, why);
}

static const struct shunt__rail_events inner_events = {
    .hello = inner_hello,
    .incoming = inner_incoming,
    .welcome = inner_welcome,
    .established = inner_established,
    .down = inner_down,
    .land = inner_land,
    .frame = inner_frame,
    .damaged = inner_damaged,
    .sent = inner_sent,
    .consumed = inner_consumed,
    .writable = inner_writable,
    .carrier = inner_carrier,
};

/* The wrapper's operations */

static shunt_status_t fault_address(struct shunt__rail *rail, void *buf, size_t *len)
{
    return of(rail)->inner->ops->address(of(rail)->inner, buf, len);
}

static int fault_reach(struct shunt__rail *rail, const void *address, size_t len)
{
    return of(rail)->inner->ops->reach(of(rail)->inner, address, len);
}

static shunt_status_t fault_connect(struct shunt__rail *rail, struct shunt__link *link, const void *address, size_t len)
{
    struct fault_rail *f = of(rail);
    struct fault_effects now = shunt__fault_effects(f, link);
    struct fault_conn *c;
    shunt_status_t st;

    if (link->conn)
        return shunt__fail(SHUNT_ERR_INTERNAL, "rail %s: connect on a link that has a connection", rail->name);
    if (f->inner->ops->reach(f->inner, address, len) <= 0)
        return f->inner->ops->connect(f->inner, link, address, len); /* which says what is wrong with it */
    c = conn_new(f, link);
    if (!c)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a fault wrapper");
    if (now.down || now.cut) {
        c->hanging = 1;
        shunt__fault_end(c, "cut by the fault script");
        return SHUNT_OK;
    }
    if (now.blackhole) {
        c->hanging = 1;
        c->deadline = shunt__now() + SHUNT__HELLO_TIME;
        return SHUNT_OK;
    }
    shunt__fault_enter(f);
    st = f->inner->ops->connect(f->inner, &c->inner, address, len);
    if (st != SHUNT_OK)
        bury(c);
    shunt__fault_leave(f);
    return st;
}

static void fault_disconnect(struct shunt__link *link)
{
    struct fault_conn *c = link->conn;
    struct fault_rail *f;

    if (!c)
        return;
    f = c->rail;
    shunt__fault_enter(f);
    /* What has been sent before a goodbye would still get out of a kernel after the close. */
    if (c->up && c->waiting.last && c->waiting.last->frame.type == SHUNT__FRAME_BYE &&
        !shunt__fault_effects(f, link).blackhole)
        shunt__fault_release(c, UINT64_MAX);
    bury(c);
    shunt__fault_leave(f);
}

static shunt_status_t fault_send(struct shunt__link *link, const struct shunt__frame *frame, const void *payload,
                                 uint64_t ref)
{
    struct fault_conn *c = link->conn;

    if (!c || !c->up || c->ending)
        return SHUNT_ERR_AGAIN;
    return shunt__fault_queue(c, frame, payload);
}

static void fault_detach(struct shunt__link *link, uint64_t ref)
{
}

static void fault_redirect(struct shunt__link *link)
{
    struct fault_conn *c = link->conn;

    if (c && c->inner.conn)
        c->rail->inner->ops->redirect(&c->inner);
}

static int fault_progress(struct shunt__rail *rail)
{
    struct fault_rail *f = of(rail);
    int n = shunt__fault_play(f);

    return n + f->inner->ops->progress(f->inner);
}

static void timer_ready(struct shunt__pollable *self, uint32_t events)
{
    struct fault_rail *f = (struct fault_rail *)((char *)self - offsetof(struct fault_rail, timer));
    uint64_t n;

    if (read(self->fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
        shunt__log(SHUNT__LOG_ERROR, "can't read the timer of a fault wrapper");
    f->timer_at = 0;
    fault_progress(&f->rail);
}

static int fault_arm(struct shunt__rail *rail)
{
    struct fault_rail *f = of(rail);
    uint64_t due = shunt__fault_due(f), now = shunt__now();
    struct itimerspec t = {.it_value = {.tv_nsec = 1}};
    struct timespec base;

    if (due <= now || (f->inner->ops->arm && f->inner->ops->arm(f->inner)))
        return 1;
    if (due == UINT64_MAX || due == f->timer_at)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &base); /* the script's clock may be a test's */
    t.it_value.tv_sec = base.tv_sec + (time_t)((due - now + (uint64_t)base.tv_nsec) / SHUNT__S);
    t.it_value.tv_nsec = (long)((due - now + (uint64_t)base.tv_nsec) % SHUNT__S);
    if (timerfd_settime(f->timer.fd, TFD_TIMER_ABSTIME, &t, NULL))
        return 1;
    f->timer_at = due;
    return 0;
}

static void fault_tick(struct shunt__rail *rail, uint64_t now)
{
    struct fault_rail *f = of(rail);

    for (struct fault_conn *c = f->conns; c; c = c->next)
        if (c->hanging && c->deadline && now >= c->deadline)
            shunt__fault_end(c, "no connection within 5 s");
    shunt__fault_play(f);
    f->inner->ops->tick(f->inner, now);
}

static void fault_stats(struct shunt__link *link, struct shunt__link_stats *stats)
{
    struct fault_conn *c = link->conn;

    memset(stats, 0, sizeof(*stats));
    if (!c)
        return;
    if (c->inner.conn && c->rail->inner->ops->stats)
        c->rail->inner->ops->stats(&c->inner, stats);
    if (shunt__fault_effects(c->rail, c->outer).blackhole && c->queued) { /* as a kernel would see it */
        stats->unacked += c->queued;
        stats->retransmits++;
    } else
        stats->queued += c->queued;
}

static const char *fault_describe(struct shunt__link *link)
{
    struct fault_conn *c = link->conn;

    if (!c || !c->inner.conn || !c->rail->inner->ops->describe)
        return "no connection";
    return c->rail->inner->ops->describe(&c->inner);
}

static void fault_close(struct shunt__rail *rail)
{
    struct fault_rail *f = of(rail);

    shunt__fault_enter(f);
    while (f->conns)
        bury(f->conns);
    shunt__fault_leave(f);
    if (f->inner)
        f->inner->ops->close(f->inner);
    if (f->timer.fd >= 0) {
        shunt__poller_remove(rail->params.poller, &f->timer);
        close(f->timer.fd);
    }
    shunt__fault_free(&f->script);
    free(f);
}

static const struct shunt__rail_ops wrapper_ops = {
    .close = fault_close,
    .address = fault_address,
    .reach = fault_reach,
    .connect = fault_connect,
    .disconnect = fault_disconnect,
    .send = fault_send,
    .detach = fault_detach,
    .redirect = fault_redirect,
    .progress = fault_progress,
    .arm = fault_arm,
    .tick = fault_tick,
    .stats = fault_stats,
    .describe = fault_describe,
};

/* What is left of the inner rail's promises under this script. A wrapped loop plays a rail between hosts. */
static unsigned caps_under(const struct shunt__rail *inner, unsigned used)
{
    unsigned caps = inner->caps & ~(SHUNT__RAIL_ACKS | SHUNT__RAIL_USERMEM);

    if (strcmp(inner->ops->name, "loop") == 0)
        caps &= ~SHUNT__RAIL_LOCAL;
    if (used & (1u << SHUNT__FAULT_CORRUPT))
        caps &= ~SHUNT__RAIL_CHECKED;
    if (used & (1u << SHUNT__FAULT_REORDER | 1u << SHUNT__FAULT_DUPLICATE))
        caps &= ~SHUNT__RAIL_ORDERED;
    return caps;
}

shunt_status_t shunt__fault_open(const struct shunt__rail_ops *inner, const struct shunt__rail_params *params,
                                 const char *script, struct shunt__rail **rail)
{
    struct fault_rail *f = calloc(1, sizeof(*f));
    struct shunt__rail_params p = *params;
    shunt_status_t st;
    int err;

    if (!f)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a fault wrapper");
    f->ops = wrapper_ops;
    f->ops.name = inner->name;
    shunt__rail_init(&f->rail, &f->ops, params, 0, 0);
    f->inner_events = inner_events;
    p.events = &f->inner_events;
    p.engine = f;
    f->carrier = 1;
    f->n_scopes = 1;
    strcpy(f->scopes[0].peer, "*");
    f->timer.fd = -1;
    gethostname(f->host, sizeof(f->host) - 1);
    if (*shunt__config_str(params->config, SHUNT__HOSTID))
        strncpy(f->host, shunt__config_str(params->config, SHUNT__HOSTID), sizeof(f->host) - 1);
    st = shunt__fault_load(script, &f->script);
    if (st == SHUNT_OK)
        st = inner->open(&p, &f->inner);
    if (st == SHUNT_OK) {
        f->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        f->timer.events = EPOLLIN;
        f->timer.ready = timer_ready;
        err = f->timer.fd < 0 ? errno : shunt__poller_add(params->poller, &f->timer);
        if (err)
            st = shunt__fail_errno(SHUNT_ERR_LIMIT, err, "no timer for a fault wrapper");
    }
    if (st != SHUNT_OK) {
        fault_close(&f->rail);
        return st;
    }
    shunt__rail_init(&f->rail, &f->ops, params, caps_under(f->inner, f->script.used), f->inner->chunk);
    f->opened = shunt__now();
    f->random = f->script.seed * 0x9e3779b97f4a7c15ull + (uint64_t)params->index * 0x2545f4914f6cdd1dull + 1;
    *rail = &f->rail;
    return SHUNT_OK;
}
