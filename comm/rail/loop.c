/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails between contexts of one process, for tests and for ranks that are threads.
 *
 * Each rail has a port: an inbox under a small lock, found by number in a list of the process. Whatever goes to
 * another context is a message put into its port: a HELLO, a WELCOME, a frame with a copy of its payload, the news
 * that there is room again, the news that the other end is gone. The receiver handles them in progress(), under its
 * own engine's lock. No function holds the locks of two ports.
 *
 * Ends of connections know each other by number, so a message to an end that is gone is simply dropped.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>
#include "comm/base/log.h"
#include "comm/rail/loop.h"

#define BUCKETS 64
#define DATA_ROOM (2u << 20)    /* bytes of one direction that wait at the receiver */
#define CONTROL_ROOM (16u << 20)
#define SMALL 4096u             /* message sizes that are kept for reuse */
#define LARGE (256u * 1024)
#define SPARES 32
#define ADDRESS 17              /* 'L', the process, the port */

enum kind { HELLO, WELCOME, FRAME, WRITABLE, CLOSED };

/* One direction of a connection: how much waits at the receiver. */
struct flow {
    atomic_int refs;
    atomic_uint_fast64_t queued;
    atomic_int starved; /* the sender wants WRITABLE */
};

struct message {
    struct message *next;
    uint32_t size; /* of data */
    enum kind kind;
    uint64_t to, from;  /* ends */
    struct port *port;  /* HELLO, WELCOME, FRAME: the sender's, a reference */
    struct flow *flow;  /* FRAME: a reference. HELLO, WELCOME: of the sender's frames, a reference */
    struct shunt__frame frame;
    char data[] __attribute__((aligned(64)));
};

struct port {
    struct port *next; /* of all ports; under registry_lock */
    uint64_t number;
    atomic_int refs;
    pthread_mutex_t lock;
    int wake; /* an eventfd */
    int armed, closed;
    struct message *first, **last;
    struct message *spare[2]; /* SMALL, LARGE */
    int n_spare[2];
};

struct end {
    struct end *chain; /* of the bucket */
    struct end *next_failed;
    uint64_t number, other; /* other: 0 while greeting */
    struct shunt__link *link;
    struct port *port; /* the other side's, a reference; NULL: nobody there */
    struct flow *flow; /* of what we send */
    int up, failed;
};

struct loop_rail {
    struct shunt__rail rail; /* first */
    struct shunt__pollable wake;
    struct port *port;
    struct end *ends[BUCKETS];
    struct end *failed;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct port *registry;
static uint64_t process_token;
static pid_t process_pid;
static atomic_uint_fast64_t last_number;

/* A random number that a forked child does not share. Under registry_lock. */
static uint64_t this_process(void)
{
    if (process_pid != getpid()) {
        process_pid = getpid();
        if (getrandom(&process_token, sizeof(process_token), 0) != sizeof(process_token))
            process_token = (uint64_t)process_pid << 32 | (uint32_t)time(NULL);
    }
    return process_token;
}

/* Ports, flows and messages */

static void port_release(struct port *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) != 1)
        return;
    for (int i = 0; i < 2; i++)
        while (p->spare[i]) {
            struct message *m = p->spare[i];
            p->spare[i] = m->next;
            free(m);
        }
    close(p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static struct port *port_hold(struct port *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

static struct port *port_find(uint64_t number)
{
    struct port *p;

    pthread_mutex_lock(&registry_lock);
    for (p = registry; p && p->number != number;)
        p = p->next;
    if (p)
        port_hold(p);
    pthread_mutex_unlock(&registry_lock);
    return p;
}

static void flow_release(struct flow *f)
{
    if (f && atomic_fetch_sub(&f->refs, 1) == 1)
        free(f);
}

static struct flow *flow_hold(struct flow *f)
{
    atomic_fetch_add(&f->refs, 1);
    return f;
}

static int class_of(uint32_t size)
{
    return size <= SMALL ? 0 : size <= LARGE ? 1 : 2;
}

/* A message for `p` with room for `size` bytes, NULL without memory. */
static struct message *message_new(struct port *p, enum kind kind, uint64_t to, uint32_t size)
{
    int c = class_of(size);
    struct message *m = NULL;

    if (c < 2) {
        pthread_mutex_lock(&p->lock);
        m = p->spare[c];
        if (m) {
            p->spare[c] = m->next;
            p->n_spare[c]--;
        }
        pthread_mutex_unlock(&p->lock);
        size = c ? LARGE : SMALL;
    }
    if (!m) {
        m = aligned_alloc(64, (sizeof(*m) + size + 63) & ~(size_t)63);
        if (!m)
            return NULL;
        m->size = size;
    }
    m->kind = kind;
    m->to = to;
    m->from = 0;
    m->port = NULL;
    m->flow = NULL;
    return m;
}

/* Gives a message that came to `p` back to it. */
static void message_free(struct port *p, struct message *m)
{
    int c = class_of(m->size);

    port_release(m->port);
    flow_release(m->flow);
    if (c < 2) {
        pthread_mutex_lock(&p->lock);
        if (p->n_spare[c] < SPARES) {
            m->next = p->spare[c];
            p->spare[c] = m;
            p->n_spare[c]++;
            m = NULL;
        }
        pthread_mutex_unlock(&p->lock);
    }
    free(m);
}

/* Puts a message into the inbox of `p`; nonzero (and the message freed) when `p` is closed. */
static int post(struct port *p, struct message *m)
{
    uint64_t one = 1;
    int closed, wake = 0;

    m->next = NULL;
    pthread_mutex_lock(&p->lock);
    closed = p->closed;
    if (!closed) {
        *p->last = m;
        p->last = &m->next;
        wake = p->armed;
        p->armed = 0;
    }
    pthread_mutex_unlock(&p->lock);
    if (closed)
        message_free(p, m);
    else if (wake && write(p->wake, &one, sizeof(one)) < 0)
        shunt__log(SHUNT__LOG_ERROR, "can't wake a context of this process");
    return closed;
}

static void post_closed(struct port *p, uint64_t to)
{
    struct message *m = p ? message_new(p, CLOSED, to, 0) : NULL;

    if (m)
        post(p, m);
}

/* Ends */

static struct end *end_find(struct loop_rail *s, uint64_t number)
{
    struct end *e = s->ends[number % BUCKETS];

    while (e && e->number != number)
        e = e->chain;
    return e;
}

static struct end *end_new(struct loop_rail *s, struct shunt__link *link)
{
    struct end *e = calloc(1, sizeof(*e));
    struct flow *f = calloc(1, sizeof(*f));

    if (!e || !f) {
        free(e);
        free(f);
        return NULL;
    }
    atomic_init(&f->refs, 1);
    e->flow = f;
    e->number = atomic_fetch_add(&last_number, 1) + 1;
    e->link = link;
    e->chain = s->ends[e->number % BUCKETS];
    s->ends[e->number % BUCKETS] = e;
    link->conn = e;
    return e;
}

static void end_free(struct loop_rail *s, struct end *e)
{
    struct end **at;

    for (at = &s->ends[e->number % BUCKETS]; *at != e;)
        at = &(*at)->chain;
    *at = e->chain;
    if (e->failed) {
        for (at = &s->failed; *at != e;)
            at = &(*at)->next_failed;
        *at = e->next_failed;
    }
    e->link->conn = NULL;
    port_release(e->port);
    flow_release(e->flow);
    free(e);
}

static void end_fail(struct loop_rail *s, struct end *e)
{
    if (e->failed)
        return;
    e->failed = 1;
    e->next_failed = s->failed;
    s->failed = e;
}

static void end_down(struct loop_rail *s, struct end *e, shunt_status_t status, const char *why)
{
    struct shunt__link *link = e->link;

    end_free(s, e);
    s->rail.params.events->down(s->rail.params.engine, link, status, why);
}

/* A HELLO or WELCOME to `e`'s other side. */
static int greet(struct loop_rail *s, struct end *e, enum kind kind, const void *payload, size_t len)
{
    struct message *m = e->port ? message_new(e->port, kind, e->other, SHUNT__HELLO_MAX) : NULL;

    if (!m)
        return -1;
    m->from = e->number;
    m->port = port_hold(s->port);
    memset(&m->frame, 0, sizeof(m->frame));
    m->frame.length = (uint32_t)len;
    memcpy(m->data, payload, len);
    return post(e->port, m);
}

static void got_hello(struct loop_rail *s, struct message *m)
{
    const struct shunt__rail_params *p = &s->rail.params;
    char welcome[SHUNT__HELLO_MAX];
    size_t len = sizeof(welcome);
    struct shunt__link *link = p->events->incoming(p->engine, &s->rail, m->data, m->frame.length, welcome, &len);
    struct end *e = link && !link->conn ? end_new(s, link) : NULL;

    if (!e) {
        post_closed(m->port, m->from);
        return;
    }
    e->port = m->port;
    m->port = NULL;
    e->other = m->from;
    e->up = 1;
    if (greet(s, e, WELCOME, welcome, len))
        end_fail(s, e);
    p->events->established(p->engine, link);
}

static void got_welcome(struct loop_rail *s, struct end *e, struct message *m)
{
    const struct shunt__rail_params *p = &s->rail.params;
    uint64_t number = m->to;

    if (!e || e->up) {
        post_closed(m->port, m->from);
        return;
    }
    e->other = m->from;
    if (p->events->welcome(p->engine, e->link, m->data, m->frame.length)) {
        post_closed(m->port, m->from);
        e = end_find(s, number);
        if (e)
            end_down(s, e, SHUNT_ERR_AUTH, "the WELCOME was not accepted");
    } else if ((e = end_find(s, number)) != NULL) {
        e->up = 1;
        p->events->established(p->engine, e->link);
    }
}

static void got_frame(struct loop_rail *s, struct end *e, struct message *m)
{
    const struct shunt__rail_params *p = &s->rail.params;
    struct message *room;

    if (e && e->up)
        p->events->frame(p->engine, e->link, &m->frame, m->data);
    if (atomic_fetch_sub(&m->flow->queued, sizeof(m->frame) + m->frame.length) < DATA_ROOM &&
        atomic_exchange(&m->flow->starved, 0)) {
        room = message_new(m->port, WRITABLE, m->from, 0);
        if (room)
            post(m->port, room);
        else
            atomic_store(&m->flow->starved, 1); /* with the next frame, then */
    }
}

static void handle(struct loop_rail *s, struct message *m)
{
    const struct shunt__rail_params *p = &s->rail.params;
    struct end *e = end_find(s, m->to);

    switch (m->kind) {
    case HELLO:
        got_hello(s, m);
        break;
    case WELCOME:
        got_welcome(s, e, m);
        break;
    case FRAME:
        got_frame(s, e, m);
        break;
    case WRITABLE:
        if (e && e->up)
            p->events->writable(p->engine, e->link);
        break;
    case CLOSED:
        if (e)
            end_down(s, e, SHUNT_ERR_RAIL, "closed by the other side");
        break;
    }
}

static int loop_progress(struct shunt__rail *rail)
{
    struct loop_rail *s = (struct loop_rail *)rail;
    struct port *p = s->port;
    struct message *m;
    int n = 0;

    while (s->failed)
        end_down(s, s->failed, SHUNT_ERR_PEER, "the other context is closed");
    for (; n < 256; n++) {
        pthread_mutex_lock(&p->lock);
        m = p->first;
        if (m) {
            p->first = m->next;
            if (!p->first)
                p->last = &p->first;
        }
        pthread_mutex_unlock(&p->lock);
        if (!m)
            break;
        handle(s, m);
        message_free(p, m);
    }
    return n;
}

static int loop_arm(struct shunt__rail *rail)
{
    struct loop_rail *s = (struct loop_rail *)rail;
    int work;

    pthread_mutex_lock(&s->port->lock);
    work = s->port->first || s->failed;
    s->port->armed = !work;
    pthread_mutex_unlock(&s->port->lock);
    return work;
}

static void loop_tick(struct shunt__rail *rail, uint64_t now)
{
}

static void woken(struct shunt__pollable *self, uint32_t events)
{
    uint64_t n;

    if (read(self->fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
        shunt__log(SHUNT__LOG_ERROR, "can't read the wake-up of a loop rail");
    loop_progress((struct shunt__rail *)((char *)self - offsetof(struct loop_rail, wake)));
}

static void loop_close(struct shunt__rail *rail)
{
    struct loop_rail *s = (struct loop_rail *)rail;
    struct port *p = s->port, **at;
    struct message *m, *next;

    pthread_mutex_lock(&registry_lock);
    for (at = &registry; *at != p;)
        at = &(*at)->next;
    *at = p->next;
    pthread_mutex_unlock(&registry_lock);
    pthread_mutex_lock(&p->lock);
    p->closed = 1;
    m = p->first;
    p->first = NULL;
    p->last = &p->first;
    pthread_mutex_unlock(&p->lock);
    for (; m; m = next) {
        next = m->next;
        if (m->kind == HELLO)
            post_closed(m->port, m->from);
        message_free(p, m);
    }
    for (int i = 0; i < BUCKETS; i++)
        while (s->ends[i]) {
            struct end *e = s->ends[i];
            if (e->other)
                post_closed(e->port, e->other);
            end_free(s, e);
        }
    shunt__poller_remove(rail->params.poller, &s->wake);
    port_release(p);
    free(s);
}

static struct port *port_new(void)
{
    struct port *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (p->wake < 0) {
        free(p);
        return NULL;
    }
    p->last = &p->first;
    atomic_init(&p->refs, 1);
    pthread_mutex_init(&p->lock, NULL);
    p->number = atomic_fetch_add(&last_number, 1) + 1;
    return p;
}

static shunt_status_t loop_open(const struct shunt__rail_params *params, struct shunt__rail **rail)
{
    struct loop_rail *s = calloc(1, sizeof(*s));
    int err;

    if (s)
        s->port = port_new();
    if (!s || !s->port) {
        free(s);
        return shunt__fail_errno(SHUNT_ERR_LIMIT, errno, "no memory or descriptor for a loop rail");
    }
    shunt__rail_init(&s->rail, &shunt__loop_ops, params,
                     SHUNT__RAIL_CHECKED | SHUNT__RAIL_ORDERED | SHUNT__RAIL_LOCAL, 128 * 1024);
    s->wake.fd = s->port->wake;
    s->wake.events = EPOLLIN;
    s->wake.ready = woken;
    err = shunt__poller_add(params->poller, &s->wake);
    if (err) {
        port_release(s->port);
        free(s);
        return shunt__fail_errno(SHUNT_ERR_SYSTEM, err, "can't watch the inbox of a loop rail");
    }
    pthread_mutex_lock(&registry_lock);
    s->port->next = registry;
    registry = s->port;
    pthread_mutex_unlock(&registry_lock);
    *rail = &s->rail;
    return SHUNT_OK;
}

static shunt_status_t loop_address(struct shunt__rail *rail, void *buf, size_t *len)
{
    struct loop_rail *s = (struct loop_rail *)rail;
    uint64_t process;
    char *to = buf;

    if (*len < ADDRESS)
        return shunt__fail(SHUNT_ERR_INVALID, "an address of a loop rail takes %d bytes", ADDRESS);
    pthread_mutex_lock(&registry_lock);
    process = this_process();
    pthread_mutex_unlock(&registry_lock);
    to[0] = 'L';
    memcpy(to + 1, &process, 8);
    memcpy(to + 9, &s->port->number, 8);
    *len = ADDRESS;
    return SHUNT_OK;
}

static int loop_reach(struct shunt__rail *rail, const void *address, size_t len)
{
    const char *from = address;
    uint64_t process;

    if (len != ADDRESS || from[0] != 'L')
        return 0;
    pthread_mutex_lock(&registry_lock);
    process = this_process();
    pthread_mutex_unlock(&registry_lock);
    return memcmp(from + 1, &process, 8) == 0 ? 3 : 0;
}

static shunt_status_t loop_connect(struct shunt__rail *rail, struct shunt__link *link, const void *address, size_t len)
{
    struct loop_rail *s = (struct loop_rail *)rail;
    const struct shunt__rail_params *p = &rail->params;
    char hello[SHUNT__HELLO_MAX];
    size_t size = sizeof(hello);
    uint64_t number;
    struct end *e;

    if (link->conn)
        return shunt__fail(SHUNT_ERR_INTERNAL, "rail %s: connect on a link that has a connection", rail->name);
    if (!loop_reach(rail, address, len))
        return shunt__fail(SHUNT_ERR_INVALID, "rail %s: a peer's address is not one of this process", rail->name);
    memcpy(&number, (const char *)address + 9, 8);
    e = end_new(s, link);
    if (!e)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a connection of rail %s", rail->name);
    e->port = port_find(number);
    p->events->hello(p->engine, link, hello, &size);
    if (greet(s, e, HELLO, hello, size))
        end_fail(s, e);
    return SHUNT_OK;
}

static void loop_disconnect(struct shunt__link *link)
{
    struct end *e = link->conn;

    if (!e)
        return;
    if (e->other)
        post_closed(e->port, e->other);
    end_free((struct loop_rail *)link->rail, e);
}

static shunt_status_t loop_send(struct shunt__link *link, const struct shunt__frame *frame, const void *payload,
                                uint64_t ref)
{
    struct loop_rail *s = (struct loop_rail *)link->rail;
    struct end *e = link->conn;
    uint64_t bytes = sizeof(*frame) + frame->length;
    uint64_t room = frame->length <= SHUNT__SEND_COPIED ? CONTROL_ROOM : DATA_ROOM;
    struct message *m;

    if (!e || !e->up || e->failed)
        return SHUNT_ERR_AGAIN;
    if (atomic_load(&e->flow->queued) >= room) {
        atomic_store(&e->flow->starved, 1);
        /* The receiver may have drained it all meanwhile, and then nobody would look at `starved`. */
        if (atomic_load(&e->flow->queued) >= room || !atomic_exchange(&e->flow->starved, 0))
            return SHUNT_ERR_AGAIN;
    }
    m = message_new(e->port, FRAME, e->other, frame->length);
    if (!m)
        return SHUNT_ERR_AGAIN;
    m->from = e->number;
    m->port = port_hold(s->port);
    m->flow = flow_hold(e->flow);
    m->frame = *frame;
    shunt__frame_seal(&s->rail, link, &m->frame, payload);
    if (frame->length)
        memcpy(m->data, payload, frame->length);
    atomic_fetch_add(&e->flow->queued, bytes);
    if (post(e->port, m))
        end_fail(s, e);
    return SHUNT_OK;
}

static void loop_detach(struct shunt__link *link, uint64_t ref)
{
}

static void loop_redirect(struct shunt__link *link)
{
}

static void loop_stats(struct shunt__link *link, struct shunt__link_stats *stats)
{
    struct end *e = link->conn;

    memset(stats, 0, sizeof(*stats));
    if (e)
        stats->queued = atomic_load(&e->flow->queued);
}

static const char *loop_describe(struct shunt__link *link)
{
    return "within this process";
}

const struct shunt__rail_ops shunt__loop_ops = {
    .name = "loop",
    .open = loop_open,
    .close = loop_close,
    .address = loop_address,
    .reach = loop_reach,
    .connect = loop_connect,
    .disconnect = loop_disconnect,
    .send = loop_send,
    .detach = loop_detach,
    .redirect = loop_redirect,
    .progress = loop_progress,
    .arm = loop_arm,
    .tick = loop_tick,
    .stats = loop_stats,
    .describe = loop_describe,
};
