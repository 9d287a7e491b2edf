/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rails over plain TCP: the rail itself.
 *
 * The listener is bound with IP_FREEBIND, so that a rail whose address is absent when it is opened has its port
 * all the same and works once the address arrives.
 *
 * TCP_USER_TIMEOUT is not used: it also ends connections whose peer has merely stopped reading (a zero window
 * counts as unacknowledged), and a stopped process must not look like a dead rail. Instead tick() asks TCP_INFO
 * whether bytes that did leave have gone unacknowledged for SHUNT_RAIL_TIMEOUT.
 */
#include "comm/rail/sock.h"
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"

#define ACCEPT_PAUSE (100 * SHUNT__MS)
#define LOOK_EVERY (100 * SHUNT__MS)
#define WATCHES_PER_TIMEOUT 16
#define BACKLOG 128

static void accept_ready(struct shunt__pollable *p, uint32_t events);

const char *shunt__sock_limit_text(char *text, size_t size)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        limit.rlim_cur = 0;
    snprintf(text, size, "descriptors of this process (ulimit -n, now %llu)", (unsigned long long)limit.rlim_cur);
    return text;
}

void shunt__sock_enter(struct sock_rail *rail)
{
    rail->depth++;
}

void shunt__sock_leave(struct sock_rail *rail)
{
    if (--rail->depth)
        return;
    while (rail->graves) {
        struct sock_conn *c = rail->graves;
        rail->graves = c->next;
        free(c);
    }
}

/* Opens one listening socket on `local`; errno of the failure. */
static int listen_on(struct sockaddr_storage *local, int *fd_out)
{
    int one = 1, err, fd = socket(local->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t len = shunt__inet_size(local);

    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof(one));
    if (local->ss_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &one, sizeof(one));
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    }
    if (bind(fd, (struct sockaddr *)local, len) || listen(fd, BACKLOG) ||
        getsockname(fd, (struct sockaddr *)local, &len)) {
        err = errno;
        close(fd);
        return err;
    }
    *fd_out = fd;
    return 0;
}

static shunt_status_t open_listener(struct sock_rail *s)
{
    uint16_t first, last;
    char text[SHUNT__INET_NAME], limit[96];
    shunt_status_t st = shunt__port_range(s->rail.params.config, &first, &last);
    int err = EADDRINUSE;

    if (st != SHUNT_OK)
        return st;
    for (unsigned port = first; port <= last && (err == EADDRINUSE || err == EACCES); port++) {
        shunt__inet_set_port(&s->local, (uint16_t)port);
        err = listen_on(&s->local, &s->listener.fd);
    }
    if (!err)
        return SHUNT_OK;
    if (err == EMFILE || err == ENFILE)
        return shunt__fail(SHUNT_ERR_LIMIT, "no socket for rail %s: out of %s", s->rail.name,
                           shunt__sock_limit_text(limit, sizeof(limit)));
    if (err == EADDRINUSE && first)
        return shunt__fail(SHUNT_ERR_LIMIT, "SHUNT_PORT_RANGE=%u-%u: no free port on %s; widen the range", first, last,
                           s->rail.params.ip);
    shunt__inet_set_port(&s->local, 0);
    return shunt__fail_errno(SHUNT_ERR_SYSTEM, err, "rail %s can't listen on %s", s->rail.name,
                             shunt__inet_name(&s->local, text));
}

static shunt_status_t find_address(struct sock_rail *s)
{
    const struct shunt__rail_params *p = &s->rail.params;

    if (*p->ip)
        return shunt__inet_parse(p->ip, p->device, &s->local);
    if (*p->device)
        return shunt__inet_of_device(p->device, &s->local);
    return shunt__fail(SHUNT_ERR_INVALID, "a sock rail needs a device or an IP address");
}

static void sock_close(struct shunt__rail *rail)
{
    struct sock_rail *s = (struct sock_rail *)rail;

    shunt__sock_enter(s);
    while (s->strangers)
        shunt__sock_bury(s->strangers);
    while (s->conns)
        shunt__sock_bury(s->conns);
    shunt__sock_leave(s);
    if (s->listener.fd >= 0) {
        shunt__poller_remove(s->rail.params.poller, &s->listener);
        close(s->listener.fd);
    }
    shunt__sock_pool_free(s);
    free(s->scratch);
    free(s);
}

/* Small chunks keep a slow rail's tail short; large ones cost fewer system calls on a fast one. */
static uint32_t chunk_for(uint64_t rate)
{
    return rate && rate <= 2500000000ull ? 64 * 1024 : 256 * 1024;
}

static shunt_status_t sock_open(const struct shunt__rail_params *params, struct shunt__rail **rail)
{
    struct sock_rail *s = calloc(1, sizeof(*s));
    shunt_status_t st;
    int err;

    if (!s || !(s->scratch = malloc(SOCK_SCRATCH))) {
        free(s);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a sock rail");
    }
    shunt__rail_init(&s->rail, &shunt__sock_ops, params, SHUNT__RAIL_ORDERED, chunk_for(params->rate));
    s->listener.fd = -1;
    s->timeout = (uint64_t)shunt__config_int(params->config, SHUNT__RAIL_TIMEOUT);
    st = find_address(s);
    if (st == SHUNT_OK)
        st = open_listener(s);
    if (st == SHUNT_OK) {
        s->listener.events = EPOLLIN;
        s->listener.ready = accept_ready;
        err = shunt__poller_add(params->poller, &s->listener);
        if (err) {
            close(s->listener.fd);
            s->listener.fd = -1;
            st = shunt__fail_errno(SHUNT_ERR_SYSTEM, err, "can't watch the listener of rail %s", s->rail.name);
        }
    }
    if (st != SHUNT_OK) {
        sock_close(&s->rail);
        return st;
    }
    s->prefix = shunt__inet_prefix(&s->local);
    if (s->prefix < 0)
        shunt__log(SHUNT__LOG_WARN, "rail %s: address %s is absent; waiting for it", s->rail.name, params->ip);
    *rail = &s->rail;
    return SHUNT_OK;
}

static shunt_status_t sock_address(struct shunt__rail *rail, void *buf, size_t *len)
{
    struct sock_rail *s = (struct sock_rail *)rail;
    uint8_t wire[SHUNT__INET_WIRE];

    if (*len < sizeof(wire))
        return shunt__fail(SHUNT_ERR_INVALID, "an address of a sock rail takes %zu bytes", sizeof(wire));
    shunt__inet_pack(&s->local, wire);
    memcpy(buf, wire, sizeof(wire));
    *len = sizeof(wire);
    return SHUNT_OK;
}

static int sock_reach(struct shunt__rail *rail, const void *address, size_t len)
{
    struct sock_rail *s = (struct sock_rail *)rail;
    struct sockaddr_storage to;

    if (shunt__inet_unpack(address, len, s->rail.params.device, &to))
        return 0;
    return shunt__inet_reach(&s->local, s->prefix, &to);
}

void shunt__sock_adopt(struct sock_rail *rail, int fd)
{
    struct sock_conn *c, *oldest;

    shunt__sock_enter(rail);
    if (rail->n_strangers >= SHUNT__STRANGERS) { /* whoever has been silent longest goes: the honest speak at once */
        for (oldest = rail->strangers; oldest->next;)
            oldest = oldest->next;
        shunt__sock_bury(oldest);
    }
    c = shunt__sock_conn_new(rail, fd, SOCK_STRANGER);
    if (c) {
        c->deadline = shunt__now() + SHUNT__HELLO_TIME;
        shunt__sock_read_stranger(c); /* its HELLO is often there already */
    } else
        close(fd);
    shunt__sock_leave(rail);
}

static void accept_ready(struct shunt__pollable *p, uint32_t events)
{
    struct sock_rail *s = (struct sock_rail *)((char *)p - offsetof(struct sock_rail, listener));
    char limit[96];

    for (int i = 0; i < 16; i++) {
        int fd = accept4(p->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            shunt__sock_adopt(s, fd);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            return;
        /* The connection stays in the backlog, so a level-triggered listener would spin: look again later. */
        if (!s->warned_limit)
            shunt__log(SHUNT__LOG_WARN, "rail %s can't accept connections: out of %s", s->rail.name,
                       shunt__sock_limit_text(limit, sizeof(limit)));
        s->warned_limit = 1;
        shunt__poller_change(s->rail.params.poller, p, 0);
        s->accept_at = shunt__now() + ACCEPT_PAUSE;
        return;
    }
}

static int sock_progress(struct shunt__rail *rail)
{
    struct sock_rail *s = (struct sock_rail *)rail;
    int n = 0;

    if (!s->dirty)
        return 0;
    shunt__sock_enter(s);
    /* What becomes dirty from here on (answers sent by callbacks) is done in the same call, but not for ever. */
    for (int i = 0; i < 1000 && s->dirty; i++) {
        struct sock_conn *c = s->dirty;

        c->is_dirty = 0;
        s->dirty = c->dirty_next;
        if (s->dirty)
            s->dirty->dirty_prev = NULL;
        if (!c->failed)
            n += shunt__sock_flush(c);
        shunt__sock_report(c);
        shunt__sock_settle(c);
    }
    shunt__sock_leave(s);
    return n;
}

static int sock_arm(struct shunt__rail *rail)
{
    return ((struct sock_rail *)rail)->dirty != NULL;
}

/* Has anything that left gone unacknowledged for too long? */
static void watch(struct sock_conn *c, uint64_t now)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);

    c->watch_at = now + c->rail->timeout / WATCHES_PER_TIMEOUT;
    memset(&info, 0, sizeof(info));
    if (getsockopt(c->pollable.fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        return;
    if (info.tcpi_unacked == 0) {
        c->stalled_since = 0;
        c->watched = c->head != NULL || info.tcpi_notsent_bytes > 0;
    } else if (!c->stalled_since || info.tcpi_bytes_acked != c->acked) {
        c->acked = info.tcpi_bytes_acked;
        c->stalled_since = now;
    } else if (now - c->stalled_since >= c->rail->timeout && info.tcpi_last_ack_recv * SHUNT__MS >= c->rail->timeout)
        /* an acknowledgement that repeats itself is one of a kernel that is there but has no room */
        shunt__sock_fail(c, SHUNT_ERR_RAIL, "nothing was acknowledged for %.1f s",
                         (double)(now - c->stalled_since) / 1e9);
}

/* Finds one conn that has run out of time, or that must be asked for its acknowledgements. */
static int look_at_conns(struct sock_rail *s, uint64_t now)
{
    for (struct sock_conn *c = s->conns; c; c = c->next) {
        if (c->deadline && now >= c->deadline)
            shunt__sock_fail(c, SHUNT_ERR_RAIL, "no %s within %.1f s",
                             c->state == SOCK_CONNECTING ? "connection" : "answer",
                             (double)SHUNT__HELLO_TIME / 1e9);
        else if (c->state == SOCK_UP && c->watched && now >= c->watch_at)
            watch(c, now);
        if (c->failed && shunt__sock_settle(c))
            return 1; /* the callback may have changed the list */
    }
    return 0;
}

static void look_for_address(struct sock_rail *s, uint64_t now)
{
    if (s->prefix >= 0 || now < s->look_at)
        return;
    s->look_at = now + LOOK_EVERY;
    s->prefix = shunt__inet_prefix(&s->local);
    if (s->prefix >= 0)
        s->rail.params.events->carrier(s->rail.params.engine, &s->rail, 1, "its address has arrived");
}

static void sock_tick(struct shunt__rail *rail, uint64_t now)
{
    struct sock_rail *s = (struct sock_rail *)rail;

    shunt__sock_enter(s);
    if (s->accept_at && now >= s->accept_at) {
        s->accept_at = 0;
        shunt__poller_change(s->rail.params.poller, &s->listener, EPOLLIN);
    }
    for (struct sock_conn *c = s->strangers, *next; c; c = next) {
        next = c->next;
        if (now >= c->deadline)
            shunt__sock_bury(c);
    }
    while (look_at_conns(s, now))
        ;
    look_for_address(s, now);
    shunt__sock_leave(s);
    sock_progress(rail);
}

static void sock_stats(struct shunt__link *link, struct shunt__link_stats *stats)
{
    struct sock_conn *c = link->conn;
    struct tcp_info info;
    socklen_t len = sizeof(info);

    memset(stats, 0, sizeof(*stats));
    memset(&info, 0, sizeof(info));
    if (!c || c->state != SOCK_UP || getsockopt(c->pollable.fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        return;
    stats->queued = c->queued + info.tcpi_notsent_bytes;
    if (info.tcpi_bytes_sent > info.tcpi_bytes_retrans + info.tcpi_bytes_acked)
        stats->unacked = info.tcpi_bytes_sent - info.tcpi_bytes_retrans - info.tcpi_bytes_acked;
    if (info.tcpi_unacked == 0)
        stats->unacked = 0;
    stats->retransmits = info.tcpi_total_retrans;
    stats->rtt_ns = (uint64_t)info.tcpi_rtt * 1000;
}

const struct shunt__rail_ops shunt__sock_ops = {
    .name = "sock",
    .open = sock_open,
    .close = sock_close,
    .address = sock_address,
    .reach = sock_reach,
    .connect = shunt__sock_connect,
    .disconnect = shunt__sock_disconnect,
    .send = shunt__sock_send,
    .detach = shunt__sock_detach,
    .redirect = shunt__sock_redirect,
    .progress = sock_progress,
    .arm = sock_arm,
    .tick = sock_tick,
    .stats = sock_stats,
    .describe = shunt__sock_describe,
};
