/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/rail/mock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"

/* Real time, whatever clock the test has put in. */
static uint64_t real_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t mock_deadline(void)
{
    return real_now() + 10 * 1000000000ull;
}

int mock_before(uint64_t deadline)
{
    return real_now() < deadline;
}

uint8_t mock_byte(int index, uint64_t message, uint64_t i)
{
    return (uint8_t)(i * 7 + (i >> 8) * 13 + message * 31 + (uint64_t)index * 101);
}

void mock_fill(void *buf, int index, uint64_t message, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)buf)[i] = mock_byte(index, message, i);
}

static int right(const void *buf, int index, uint64_t message, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (((const uint8_t *)buf)[i] != mock_byte(index, message, i))
            return 0;
    return 1;
}

/* "mock", the sender's id, the link's index and generation; the index says which link it is on the other side. */
static void on_hello(void *engine, struct shunt__link *link, void *buf, size_t *len)
{
    struct mock_link *l = (struct mock_link *)link;

    memcpy(buf, "mock", 4);
    ((uint8_t *)buf)[4] = (uint8_t)l->side->id;
    ((uint8_t *)buf)[5] = (uint8_t)l->index;
    memcpy((uint8_t *)buf + 6, &link->generation, 4);
    *len = 10;
}

static struct shunt__link *on_incoming(void *engine, struct shunt__rail *rail, const void *hello, size_t len,
                                       void *welcome, size_t *welcome_len)
{
    struct mock *m = engine;
    const uint8_t *h = hello;
    struct mock_link *l;
    uint32_t generation;

    m->n_incoming++;
    if ((len != 6 && len != 10) || memcmp(h, "mock", 4) != 0 || h[5] >= MOCK_LINKS) {
        m->n_strange++;
        return NULL;
    }
    l = &m->links[h[5]];
    if (m->refuse_hello)
        return NULL;
    /* When both sides connect at once, the connection that side 0 opened stays. */
    if (l->link.conn && m->id == 0 && h[4] == 1 && !l->up) {
        l->n_refused++;
        return NULL;
    }
    generation = l->link.generation + 1;
    if (len == 10) /* tests that write a HELLO by hand may leave it out */
        memcpy(&generation, h + 6, sizeof(generation));
    if (l->link.conn && l->up && generation <= l->link.generation) { /* said before this connection came up */
        l->n_refused++;
        return NULL;
    }
    if (l->link.conn)
        rail->ops->disconnect(&l->link);
    l->up = 0;
    l->link.rail = rail;
    l->link.generation = generation > l->link.generation ? generation : l->link.generation + 1;
    memcpy(welcome, "welcome", 7);
    *welcome_len = 7;
    return &l->link;
}

static int on_welcome(void *engine, struct shunt__link *link, const void *payload, size_t len)
{
    struct mock *m = engine;

    return m->refuse_welcome || len != 7 || memcmp(payload, "welcome", 7) != 0;
}

static void on_established(void *engine, struct shunt__link *link)
{
    struct mock_link *l = (struct mock_link *)link;

    l->wrong += l->up || !link->conn;
    l->up = 1;
    l->n_established++;
    l->next_message = 0;
    l->consumed = 0;
}

static void on_down(void *engine, struct shunt__link *link, shunt_status_t status, const char *why)
{
    struct mock_link *l = (struct mock_link *)link;

    l->wrong += link->conn != NULL;
    l->up = 0;
    l->n_down++;
    l->status = status;
    snprintf(l->why, sizeof(l->why), "%s", why);
}

static void *on_land(void *engine, struct shunt__link *link, const struct shunt__frame *f)
{
    struct mock_link *l = (struct mock_link *)link;

    l->n_land_called++;
    return l->landing && f->length <= MOCK_LAND ? l->land : NULL;
}

static void on_frame(void *engine, struct shunt__link *link, const struct shunt__frame *f, const void *payload)
{
    struct mock_link *l = (struct mock_link *)link;

    l->wrong += !l->up;
    if (f->type == SHUNT__FRAME_BYE)
        l->n_bye++;
    if (f->type != SHUNT__FRAME_DATA)
        return;
    l->n_frames++;
    l->bytes += f->length;
    l->pattern |= f->message < 64 ? 1ull << f->message : 0;
    l->n_landed += payload == l->land;
    if ((link->rail->caps & SHUNT__RAIL_ORDERED) && f->message != l->next_message)
        l->wrong++;
    l->next_message = f->message + 1;
    if (f->comm != 77 || f->tag != -5 || f->epoch != 3 || f->total != f->length || f->chunk != 4711 ||
        f->source != (uint32_t)l->index || !right(payload, l->index, f->message, f->length))
        l->wrong++;
    if (l->close_in_frame && l->n_frames == l->close_in_frame) {
        link->rail->ops->disconnect(link);
        l->up = 0;
    }
}

static void on_damaged(void *engine, struct shunt__link *link, const struct shunt__frame *f)
{
    struct mock_link *l = (struct mock_link *)link;

    l->n_damaged++;
    l->next_message = f->message + 1;
}

static void on_sent(void *engine, struct shunt__link *link, uint64_t ref)
{
    struct mock_link *l = (struct mock_link *)link;

    l->wrong += !l->up;
    if (l->n_sent < 4096)
        l->sent_refs[l->n_sent] = ref;
    l->n_sent++;
}

static void on_consumed(void *engine, struct shunt__link *link, uint64_t count)
{
    struct mock_link *l = (struct mock_link *)link;

    l->wrong += count < l->consumed;
    l->consumed = count;
}

static void on_writable(void *engine, struct shunt__link *link)
{
    ((struct mock_link *)link)->n_writable++;
}

static void on_carrier(void *engine, struct shunt__rail *rail, int up, const char *why)
{
    struct mock *m = engine;

    m->n_carrier++;
    m->carrier = up;
}

static const char *on_peer(void *engine, const struct shunt__link *link)
{
    static char name[2][12];
    const struct mock_link *l = (const struct mock_link *)link;

    snprintf(name[l->side->id], sizeof(name[0]), "link%d", l->index);
    return name[l->side->id];
}

const struct shunt__rail_events mock_events = {
    .hello = on_hello,
    .incoming = on_incoming,
    .welcome = on_welcome,
    .established = on_established,
    .down = on_down,
    .land = on_land,
    .frame = on_frame,
    .damaged = on_damaged,
    .sent = on_sent,
    .consumed = on_consumed,
    .writable = on_writable,
    .carrier = on_carrier,
    .peer = on_peer,
};

shunt_status_t mock_open(struct mock *m, int id, const char *backend, const char *device, const char *ip,
                         const char *faults, const char *const *settings)
{
    const struct shunt__rail_ops *ops = shunt__rail_backend(backend);
    struct shunt__rail_params params = {.config = &m->config, .poller = &m->poller, .events = &mock_events,
                                        .engine = m, .device = device, .ip = ip, .index = 0};
    shunt_status_t st;

    memset(m, 0, sizeof(*m));
    m->id = id;
    if (!ops)
        return shunt__fail(SHUNT_ERR_NOT_FOUND, "no backend %s in this build", backend);
    st = shunt__config_load(&m->config, settings);
    if (st != SHUNT_OK)
        return st;
    if (shunt__poller_init(&m->poller))
        return SHUNT_ERR_SYSTEM;
    st = faults ? shunt__fault_open(ops, &params, faults, &m->rail) : ops->open(&params, &m->rail);
    if (st != SHUNT_OK) {
        shunt__poller_close(&m->poller);
        shunt__config_free(&m->config);
        m->rail = NULL;
        return st;
    }
    for (int i = 0; i < MOCK_LINKS; i++) {
        m->links[i].link.rail = m->rail;
        m->links[i].side = m;
        m->links[i].index = i;
        m->links[i].land = calloc(1, MOCK_LAND);
    }
    m->address_len = sizeof(m->address);
    return m->rail->ops->address(m->rail, m->address, &m->address_len);
}

void mock_close(struct mock *m)
{
    if (!m->rail)
        return;
    for (int i = 0; i < MOCK_LINKS; i++) {
        m->rail->ops->disconnect(&m->links[i].link);
        free(m->links[i].land);
    }
    m->rail->ops->close(m->rail);
    m->rail = NULL;
    shunt__poller_close(&m->poller);
    shunt__config_free(&m->config);
}

static int half_turn(struct mock *m, int wait)
{
    int n = m->rail->ops->progress(m->rail);

    if (m->rail->ops->arm && m->rail->ops->arm(m->rail))
        wait = 0;
    n += shunt__poller_run(&m->poller, wait);
    return n + m->rail->ops->progress(m->rail);
}

static void tick(struct mock *m)
{
    if (m)
        m->rail->ops->tick(m->rail, shunt__now());
}

int mock_turn(struct mock *a, struct mock *b)
{
    static __thread int idle;
    int n = half_turn(a, 0) + (b ? half_turn(b, 0) : 0);

    idle = n ? 0 : idle + 1;
    if (idle > 20) {
        half_turn(a, 1);
        tick(a);
        tick(b);
    }
    return n;
}

void mock_turns(struct mock *a, struct mock *b, int n)
{
    while (n-- > 0) {
        half_turn(a, 0);
        if (b)
            half_turn(b, 0);
    }
    tick(a);
    tick(b);
}

int mock_connect(struct mock *from, struct mock *to, int index)
{
    struct mock_link *x = &from->links[index], *y = &to->links[index];

    x->link.generation++;
    if (from->rail->ops->connect(from->rail, &x->link, to->address, to->address_len) != SHUNT_OK)
        return 0;
    return mock_until(from, to, x->up && y->up);
}

shunt_status_t mock_send(struct mock_link *l, uint64_t message, const void *buf, size_t len)
{
    struct shunt__frame f = {.type = SHUNT__FRAME_DATA, .length = (uint32_t)len, .comm = 77, .epoch = 3, .tag = -5,
                             .message = message, .total = len, .chunk = 4711, .source = (uint32_t)l->index};

    return l->link.rail->ops->send(&l->link, &f, buf, message);
}

shunt_status_t mock_send_patiently(struct mock_link *l, uint64_t message, const void *buf, size_t len,
                                   struct mock *other)
{
    shunt_status_t st = SHUNT_ERR_AGAIN;

    (void)mock_until(l->side, other, !l->up || (st = mock_send(l, message, buf, len)) != SHUNT_ERR_AGAIN);
    return st;
}
