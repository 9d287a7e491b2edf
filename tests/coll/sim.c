/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/coll/sim.h"

struct shunt_comm {
    struct sim *sim;
    int rank;
};

struct entry { /* a send or a receive that is posted */
    struct shunt__op *op;
    struct entry *next, *partner;
    unsigned char *copy; /* sends: what the buffer held */
    size_t bytes;
    int tag, peer, rank;
    int send, over, status, alone; /* alone: nothing will ever match it */
    double at;
};

struct event {
    double time;
    unsigned order;
    struct entry *entry;
};

struct sim {
    int n, races, left;
    enum sim_mode mode;
    unsigned seed, order;
    double now;
    struct shunt_comm *comms;
    struct queue {
        struct entry *first, *last;
    } *sends, *recvs; /* per sender and receiver: those not matched, in order */
    struct event *heap;
    size_t events, cap;
    size_t *bytes, *messages;
    char *dead;
};

static unsigned draw(struct sim *s)
{
    s->seed = s->seed * 1664525u + 1013904223u;
    return s->seed >> 8;
}

static double delay(struct sim *s)
{
    return s->mode == SIM_STEPS ? 1 : 1 + (double)(draw(s) % 1000) / 100;
}

static int before(const struct event *a, const struct event *b)
{
    return a->time != b->time ? a->time < b->time : a->order < b->order;
}

static void push(struct sim *s, double time, struct entry *e)
{
    size_t i = s->events++;

    if (s->events > s->cap) {
        s->cap = s->cap ? s->cap * 2 : 1024;
        s->heap = realloc(s->heap, s->cap * sizeof(*s->heap));
    }
    s->heap[i] = (struct event){time, s->order++, e};
    while (i && before(&s->heap[i], &s->heap[(i - 1) / 2])) {
        struct event t = s->heap[i];

        s->heap[i] = s->heap[(i - 1) / 2];
        s->heap[(i - 1) / 2] = t;
        i = (i - 1) / 2;
    }
}

static struct event pop(struct sim *s)
{
    struct event top = s->heap[0];
    size_t i = 0, child;

    s->heap[0] = s->heap[--s->events];
    while ((child = 2 * i + 1) < s->events) {
        struct event t;

        if (child + 1 < s->events && before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!before(&s->heap[child], &s->heap[i]))
            break;
        t = s->heap[i];
        s->heap[i] = s->heap[child];
        s->heap[child] = t;
        i = child;
    }
    return top;
}

/* Takes the first with this tag, or with this operation, out of the queue. */
static struct entry *take(struct queue *q, int tag, const struct shunt__op *op)
{
    struct entry *before_it = NULL;

    for (struct entry *e = q->first; e; before_it = e, e = e->next) {
        if (op ? e->op != op : e->tag != tag)
            continue;
        if (before_it)
            before_it->next = e->next;
        else
            q->first = e->next;
        if (q->last == e)
            q->last = before_it;
        e->next = NULL;
        return e;
    }
    return NULL;
}

static void append(struct queue *q, struct entry *e)
{
    if (q->first)
        q->last->next = e;
    else
        q->first = e;
    q->last = e;
}

static void match(struct sim *s, struct entry *send, struct entry *recv)
{
    double arrival = s->now + delay(s);

    send->partner = recv;
    recv->partner = send;
    push(s, arrival, recv);
    if (s->mode != SIM_EAGER)
        push(s, arrival + (s->mode == SIM_STEPS ? 0 : delay(s)), send);
}

static struct entry *post(struct shunt__op *op, struct shunt_comm *comm, void *buf, size_t bytes, int peer, int tag,
                          void (*done)(struct shunt__op *), int is_send)
{
    struct sim *s = comm->sim;
    struct entry *e = calloc(1, sizeof(*e));

    memset(op, 0, sizeof(*op));
    op->kind = is_send ? SHUNT__OP_SEND : SHUNT__OP_RECV;
    op->comm = comm;
    op->peer = peer;
    op->tag = tag;
    op->buf = buf;
    op->bytes = bytes;
    op->status = SHUNT_IN_PROGRESS;
    op->done = done;
    *e = (struct entry){.op = op, .bytes = bytes, .tag = tag, .peer = peer, .rank = comm->rank, .send = is_send};
    if (s->dead[peer] || s->dead[comm->rank]) {
        e->status = SHUNT_ERR_PEER;
        push(s, s->now + delay(s), e);
        return NULL;
    }
    return e;
}

static void sim_send(struct shunt__op *op, struct shunt_comm *comm, enum shunt__channel channel, const void *buf,
                     size_t bytes, int peer, int tag, void (*done)(struct shunt__op *))
{
    struct sim *s = comm->sim;
    struct entry *e = post(op, comm, (void *)(uintptr_t)buf, bytes, peer, tag, done, 1), *recv;

    if (!e)
        return;
    e->copy = malloc(bytes + 1);
    if (bytes)
        memcpy(e->copy, buf, bytes);
    s->bytes[comm->rank] += bytes - (tag & 1 ? 0 : sizeof(struct shunt__coll_hello));
    s->messages[comm->rank]++;
    recv = take(&s->recvs[comm->rank * s->n + peer], tag, NULL);
    if (recv)
        match(s, e, recv);
    else
        append(&s->sends[comm->rank * s->n + peer], e);
    if (s->mode == SIM_EAGER)
        push(s, s->now + delay(s), e);
}

static void sim_recv(struct shunt__op *op, struct shunt_comm *comm, enum shunt__channel channel, void *buf,
                     size_t bytes, int peer, int tag, void (*done)(struct shunt__op *))
{
    struct sim *s = comm->sim;
    struct entry *e = post(op, comm, buf, bytes, peer, tag, done, 0), *send;

    if (!e)
        return;
    if (bytes)
        memset(buf, 0xa5, bytes);
    send = take(&s->sends[peer * s->n + comm->rank], tag, NULL);
    if (send)
        match(s, send, e);
    else
        append(&s->recvs[peer * s->n + comm->rank], e);
}

static int sim_cancel(struct shunt__op *op, shunt_status_t status)
{
    struct sim *s = op->comm->sim;
    struct entry *e = take(&s->recvs[op->peer * s->n + op->comm->rank], 0, op);

    if (!e)
        return 1;
    e->status = status;
    push(s, s->now + delay(s), e);
    return 0;
}

static void sim_describe(const struct shunt__op *op, char *text, size_t len)
{
    snprintf(text, len, "%s rank %d: %s", op->kind == SHUNT__OP_SEND ? "send to" : "receive from", op->peer,
             shunt_status_text(op->status));
}

const struct shunt__carrier sim_carrier = {sim_send, sim_recv, sim_cancel, sim_describe};

static void deliver(struct sim *s, struct entry *recv)
{
    struct entry *send = recv->partner;
    unsigned char *buf = recv->op->buf;
    size_t bytes = send->bytes < recv->bytes ? send->bytes : recv->bytes;

    for (size_t i = 0; i < recv->bytes; i++) {
        if (buf[i] != 0xa5) {
            s->races++;
            break;
        }
    }
    if (bytes)
        memcpy(buf, send->copy, bytes);
    recv->op->bytes = send->bytes;
    if (send->bytes > recv->bytes)
        recv->status = SHUNT_ERR_TRUNCATED;
}

/* An entry goes when it is over and so is its partner's need of it. */
static void retire(struct entry *e)
{
    struct entry *p = e->partner;

    e->over = 1;
    if (e->send && !p && !e->alone && !e->status)
        return; /* eager: its receive is still to come */
    if (p && !p->over)
        return;
    if (p) {
        free(p->copy);
        free(p);
    }
    free(e->copy);
    free(e);
}

void sim_run(struct sim *s)
{
    while (s->events) {
        struct event ev = pop(s);
        struct entry *e = ev.entry;
        struct shunt__op *op = e->op;

        s->now = ev.time;
        if (e->status == 0) {
            if (e->send) {
                if (e->bytes && memcmp(e->copy, op->buf, e->bytes) != 0)
                    s->races++;
            } else {
                deliver(s, e);
            }
        }
        op->status = e->status;
        retire(e);
        op->done(op);
    }
    s->left = 0;
    for (int i = 0; i < s->n * s->n; i++) {
        for (struct entry *e = s->sends[i].first; e; e = e->next)
            s->left++;
        for (struct entry *e = s->recvs[i].first; e; e = e->next)
            s->left++;
    }
}

static void fail_queue(struct sim *s, struct queue *q)
{
    while (q->first) {
        struct entry *e = q->first;

        q->first = e->next;
        e->alone = 1;
        if (e->send && s->mode == SIM_EAGER) { /* those end by themselves */
            if (e->over)
                retire(e);
            continue;
        }
        e->status = SHUNT_ERR_PEER;
        push(s, s->now + delay(s), e);
    }
}

void sim_kill(struct sim *s, int rank)
{
    s->dead[rank] = 1;
    for (int i = 0; i < s->n * s->n; i++) {
        if (i / s->n == rank || i % s->n == rank) {
            fail_queue(s, &s->sends[i]);
            fail_queue(s, &s->recvs[i]);
        }
    }
}

struct sim *sim_new(int n, enum sim_mode mode, unsigned seed)
{
    struct sim *s = calloc(1, sizeof(*s));

    s->n = n;
    s->mode = mode;
    s->seed = seed * 2654435761u + 1;
    s->comms = calloc((size_t)n, sizeof(*s->comms));
    s->sends = calloc((size_t)n * (size_t)n, sizeof(*s->sends));
    s->recvs = calloc((size_t)n * (size_t)n, sizeof(*s->recvs));
    s->bytes = calloc((size_t)n, sizeof(*s->bytes));
    s->messages = calloc((size_t)n, sizeof(*s->messages));
    s->dead = calloc((size_t)n, 1);
    for (int r = 0; r < n; r++)
        s->comms[r] = (struct shunt_comm){s, r};
    return s;
}

void sim_free(struct sim *s)
{
    memset(s->dead, 1, (size_t)s->n);
    for (int i = 0; i < s->n * s->n; i++) {
        fail_queue(s, &s->sends[i]);
        fail_queue(s, &s->recvs[i]);
    }
    sim_run(s);
    for (int i = 0; i < s->n * s->n; i++) {
        for (int which = 0; which < 2; which++) {
            for (struct entry *e = which ? s->recvs[i].first : s->sends[i].first, *next; e; e = next) {
                next = e->next;
                free(e->copy);
                free(e);
            }
        }
    }
    free(s->comms);
    free(s->sends);
    free(s->recvs);
    free(s->bytes);
    free(s->messages);
    free(s->dead);
    free(s->heap);
    free(s);
}

struct shunt_comm *sim_comm(struct sim *s, int rank)
{
    return &s->comms[rank];
}

double sim_time(const struct sim *s)
{
    return s->now;
}

int sim_races(const struct sim *s)
{
    return s->races;
}

int sim_left(const struct sim *s)
{
    return s->left;
}

size_t sim_bytes(const struct sim *s, int rank)
{
    return s->bytes[rank];
}

size_t sim_messages(const struct sim *s, int rank)
{
    return s->messages[rank];
}

static void finish(void *arg, shunt_status_t status, const char *why)
{
    struct sim_coll *c = arg;

    c->finished++;
    c->status = status;
    c->time = c->sim->now;
    snprintf(c->why, sizeof(c->why), "%s", why ? why : "");
}

void sim_start(struct sim *s, struct sim_coll *c)
{
    const struct shunt__algorithm *a = c->algorithm ? shunt__algorithm_find(c->call.kind, c->algorithm)
                                                    : shunt__coll_choose(&c->call, NULL, 0);
    struct shunt__schedule *schedule = shunt__schedule_new(c->call.size);
    struct shunt__run_params p = {.pool = c->pool, .comm = sim_comm(s, c->call.rank), .schedule = schedule,
                                  .call = &c->call, .number = c->number, .in = c->in, .out = c->out,
                                  .finish = finish, .arg = c};

    c->sim = s;
    a->pattern(schedule, &c->call);
    if (!shunt__schedule_seal(schedule) || shunt__run_start(&p) != SHUNT_OK)
        abort();
    shunt__schedule_put(schedule);
}
