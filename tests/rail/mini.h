/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The smallest engine that a rail can be driven with: one rail, links that find each other by a number in HELLO.
 * Tests and benchmarks of single backends replace the hooks they care about.
 */
#ifndef SHUNT_TESTS_RAIL_MINI_H
#define SHUNT_TESTS_RAIL_MINI_H

#include <stdio.h>
#include <string.h>
#include "comm/base/clock.h"
#include "comm/base/config.h"
#include "comm/rail/rail.h"

#define MINI_LINKS 64

struct mini {
    struct shunt__config config;
    struct shunt__poller poller;
    struct shunt__rail *rail;
    struct shunt__link links[MINI_LINKS]; /* HELLO says which one */
    int up[MINI_LINKS], downs[MINI_LINKS];
    shunt_status_t down_status[MINI_LINKS];
    char down_why[MINI_LINKS][160];
    uint64_t consumed, frames, sent, damaged, writable, hellos;
    int refuse_hello, refuse_welcome;
    /* Called for each frame; may be NULL. */
    void (*frame)(struct mini *m, int link, const struct shunt__frame *frame, const void *payload);
    void *(*land)(struct mini *m, int link, const struct shunt__frame *frame);
    void (*sent_hook)(struct mini *m, int link, uint64_t ref);
    uint64_t last_tick;
};

static int mini_index(struct mini *m, struct shunt__link *link)
{
    return (int)(link - m->links);
}

static void mini_hello(void *engine, struct shunt__link *link, void *buf, size_t *len)
{
    struct mini *m = engine;
    int32_t index = mini_index(m, link);

    memcpy(buf, "mini", 4);
    memcpy((char *)buf + 4, &index, 4);
    memcpy((char *)buf + 8, &link->generation, 4);
    *len = 12;
}

static struct shunt__link *mini_incoming(void *engine, struct shunt__rail *rail, const void *hello, size_t len,
                                         void *welcome, size_t *welcome_len)
{
    struct mini *m = engine;
    struct shunt__link *link;
    int32_t index;

    m->hellos++;
    if (m->refuse_hello || len != 12 || memcmp(hello, "mini", 4))
        return NULL;
    memcpy(&index, (const char *)hello + 4, 4);
    if (index < 0 || index >= MINI_LINKS)
        return NULL;
    link = &m->links[index];
    if (link->conn)
        rail->ops->disconnect(link);
    m->up[index] = 0;
    link->rail = rail;
    memcpy(&link->generation, (const char *)hello + 8, 4);
    memcpy(welcome, "welcome", 7);
    *welcome_len = 7;
    return link;
}

static int mini_welcome(void *engine, struct shunt__link *link, const void *payload, size_t len)
{
    struct mini *m = engine;

    return m->refuse_welcome || len != 7 || memcmp(payload, "welcome", 7);
}

static void mini_established(void *engine, struct shunt__link *link)
{
    struct mini *m = engine;

    m->up[mini_index(m, link)] = 1;
}

static void mini_down(void *engine, struct shunt__link *link, shunt_status_t status, const char *why)
{
    struct mini *m = engine;
    int i = mini_index(m, link);

    m->up[i] = 0;
    m->downs[i]++;
    m->down_status[i] = status;
    snprintf(m->down_why[i], sizeof(m->down_why[i]), "%s", why);
}

static void *mini_land(void *engine, struct shunt__link *link, const struct shunt__frame *frame)
{
    struct mini *m = engine;

    return m->land ? m->land(m, mini_index(m, link), frame) : NULL;
}

static void mini_frame(void *engine, struct shunt__link *link, const struct shunt__frame *frame, const void *payload)
{
    struct mini *m = engine;

    m->frames++;
    if (m->frame)
        m->frame(m, mini_index(m, link), frame, payload);
}

static void mini_damaged(void *engine, struct shunt__link *link, const struct shunt__frame *frame)
{
    ((struct mini *)engine)->damaged++;
}

static void mini_sent(void *engine, struct shunt__link *link, uint64_t ref)
{
    struct mini *m = engine;

    m->sent++;
    if (m->sent_hook)
        m->sent_hook(m, mini_index(m, link), ref);
}

static void mini_consumed(void *engine, struct shunt__link *link, uint64_t count)
{
    ((struct mini *)engine)->consumed = count;
}

static void mini_writable(void *engine, struct shunt__link *link)
{
    ((struct mini *)engine)->writable++;
}

static void mini_carrier(void *engine, struct shunt__rail *rail, int up, const char *why)
{
}

static const struct shunt__rail_events mini_events = {
    .hello = mini_hello,
    .incoming = mini_incoming,
    .welcome = mini_welcome,
    .established = mini_established,
    .down = mini_down,
    .land = mini_land,
    .frame = mini_frame,
    .damaged = mini_damaged,
    .sent = mini_sent,
    .consumed = mini_consumed,
    .writable = mini_writable,
    .carrier = mini_carrier,
};

__attribute__((unused)) static shunt_status_t mini_open(struct mini *m, const char *backend, const char *device, const char *ip)
{
    const struct shunt__rail_ops *ops = shunt__rail_backend(backend);
    struct shunt__rail_params p = {
        .config = &m->config, .poller = &m->poller, .events = &mini_events, .engine = m, .device = device, .ip = ip};
    shunt_status_t status;

    memset(m, 0, sizeof(*m));
    if (!ops)
        return SHUNT_ERR_UNSUPPORTED;
    status = shunt__config_load(&m->config, NULL);
    if (status != SHUNT_OK)
        return status;
    if (shunt__poller_init(&m->poller))
        return SHUNT_ERR_SYSTEM;
    status = ops->open(&p, &m->rail);
    for (int i = 0; i < MINI_LINKS; i++)
        m->links[i].rail = m->rail;
    return status;
}

__attribute__((unused)) static void mini_close(struct mini *m)
{
    if (m->rail) {
        for (int i = 0; i < MINI_LINKS; i++)
            if (m->links[i].conn)
                m->rail->ops->disconnect(&m->links[i]);
        m->rail->ops->close(m->rail);
    }
    shunt__poller_close(&m->poller);
    shunt__config_free(&m->config);
}

/* One round of what an engine does; with `block` it sleeps until something happens, at most that many ms. */
__attribute__((unused)) static int mini_turn(struct mini *m, int block_ms)
{
    int n = m->rail->ops->progress(m->rail);
    uint64_t now;

    if (n == 0 && block_ms && !(m->rail->ops->arm && m->rail->ops->arm(m->rail))) {
        n = shunt__poller_run(&m->poller, block_ms);
        n += m->rail->ops->progress(m->rail);
    } else {
        n += shunt__poller_run(&m->poller, 0);
    }
    now = shunt__now();
    if (now - m->last_tick > 10 * SHUNT__MS) {
        m->last_tick = now;
        m->rail->ops->tick(m->rail, now);
    }
    return n;
}

#endif
