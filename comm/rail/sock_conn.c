/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection's life: connecting, greeting, established, gone.
 *
 * Callbacks may disconnect any link, the one in hand too. So a conn that ends is only put aside (a grave) and
 * freed when no handler of the rail is running; whoever calls back looks at c->state afterwards.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "comm/base/clock.h"
#include "comm/base/log.h"
#include "comm/rail/sock.h"

#define TCP_NODELAY 1 /* linux/tcp.h and netinet/tcp.h can't both be included; this one needs just the constant */
#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

static void insert(struct sock_conn **list, struct sock_conn *c)
{
    c->prev = NULL;
    c->next = *list;
    if (*list)
        (*list)->prev = c;
    *list = c;
}

static void take_out(struct sock_conn **list, struct sock_conn *c)
{
    if (c->prev)
        c->prev->next = c->next;
    else
        *list = c->next;
    if (c->next)
        c->next->prev = c->prev;
}

void shunt__sock_mark(struct sock_conn *c)
{
    if (c->is_dirty || c->state == SOCK_CLOSED)
        return;
    c->is_dirty = 1;
    c->dirty_prev = NULL;
    c->dirty_next = c->rail->dirty;
    if (c->dirty_next)
        c->dirty_next->dirty_prev = c;
    c->rail->dirty = c;
}

static void unmark(struct sock_conn *c)
{
    if (!c->is_dirty)
        return;
    c->is_dirty = 0;
    if (c->dirty_prev)
        c->dirty_prev->dirty_next = c->dirty_next;
    else
        c->rail->dirty = c->dirty_next;
    if (c->dirty_next)
        c->dirty_next->dirty_prev = c->dirty_prev;
}

struct sock_conn *shunt__sock_conn_new(struct sock_rail *rail, int fd, enum sock_state state)
{
    struct sock_conn *c = calloc(1, sizeof(*c));
    int one = 1;

    if (!c)
        return NULL;
    c->rail = rail;
    c->state = state;
    c->pollable.fd = fd;
    c->pollable.ready = shunt__sock_ready;
    c->pollable.events = state == SOCK_CONNECTING ? EPOLLOUT : EPOLLIN;
    c->done_end = &c->done;
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        if (shunt__poller_add(rail->rail.params.poller, &c->pollable)) {
            free(c);
            return NULL;
        }
    }
    insert(state == SOCK_STRANGER ? &rail->strangers : &rail->conns, c);
    rail->n_strangers += state == SOCK_STRANGER;
    return c;
}

void shunt__sock_bury(struct sock_conn *c)
{
    struct sock_rail *rail = c->rail;

    if (c->state == SOCK_CLOSED)
        return;
    unmark(c);
    take_out(c->state == SOCK_STRANGER ? &rail->strangers : &rail->conns, c);
    rail->n_strangers -= c->state == SOCK_STRANGER;
    c->state = SOCK_CLOSED;
    if (c->link)
        c->link->conn = NULL;
    c->link = NULL;
    if (c->pollable.fd >= 0) {
        shunt__poller_remove(rail->rail.params.poller, &c->pollable);
        close(c->pollable.fd);
        c->pollable.fd = -1;
        if (rail->accept_at) /* a descriptor is free again */
            rail->accept_at = 1;
    }
    shunt__sock_drop_queue(c);
    shunt__sock_drop_payload(c);
    c->next = rail->graves;
    rail->graves = c;
}

void shunt__sock_fail(struct sock_conn *c, shunt_status_t status, const char *fmt, ...)
{
    va_list ap;

    if (c->failed || c->state == SOCK_CLOSED)
        return;
    c->failed = 1;
    c->status = status;
    va_start(ap, fmt);
    vsnprintf(c->why, sizeof(c->why), fmt, ap);
    va_end(ap);
    shunt__sock_mark(c);
}

int shunt__sock_settle(struct sock_conn *c)
{
    struct shunt__link *link = c->link;

    if (c->state == SOCK_CLOSED)
        return 1;
    if (!c->failed)
        return 0;
    if (c->state == SOCK_STRANGER) {
        /* Whoever left or was refused may be a peer whose attempt has crossed ours; the engine warns of forged ones. */
        int quiet = c->rail->warned_stranger || strstr(c->why, "HELLO") != NULL;
        shunt__log(quiet ? SHUNT__LOG_INFO : SHUNT__LOG_WARN,
                   "rail %s: a connection that is not this job's was closed: %s", c->rail->rail.name, c->why);
        c->rail->warned_stranger |= !quiet;
    }
    shunt__sock_bury(c);
    if (link)
        c->rail->rail.params.events->down(c->rail->rail.params.engine, link, c->status, c->why);
    return 1;
}

/* Opens a socket bound to the rail's address and starts the handshake; errno, EINPROGRESS when it goes on. */
static int start_connecting(struct sock_rail *rail, const struct sockaddr_storage *to, int *fd_out)
{
    struct sockaddr_storage from = rail->local;
    int one = 1, err, fd = socket(from.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return errno;
    *fd_out = fd;
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    shunt__inet_set_port(&from, 0);
    if (bind(fd, (struct sockaddr *)&from, shunt__inet_size(&from)))
        return errno;
    do
        err = connect(fd, (const struct sockaddr *)to, shunt__inet_size(to)) ? errno : 0;
    while (err == EINTR);
    return err == 0 ? EINPROGRESS : err; /* done at once: EPOLLOUT says so too */
}

static void connect_failed(struct sock_conn *c, int err)
{
    char reason[100], limit[96];

    if (err == EMFILE || err == ENFILE)
        shunt__sock_fail(c, SHUNT_ERR_RAIL, "no socket: out of %s", shunt__sock_limit_text(limit, sizeof(limit)));
    else if (err == EADDRNOTAVAIL)
        shunt__sock_fail(c, SHUNT_ERR_RAIL, "this host does not have the address %s now (or no free port on it)",
                         c->rail->rail.params.ip);
    else
        shunt__sock_fail(c, err == ECONNREFUSED ? SHUNT_ERR_PEER : SHUNT_ERR_RAIL, "can't connect: %s",
                         strerror_r(err, reason, sizeof(reason)));
}

shunt_status_t shunt__sock_connect(struct shunt__rail *r, struct shunt__link *link, const void *address, size_t len)
{
    struct sock_rail *rail = (struct sock_rail *)r;
    struct sockaddr_storage to;
    struct sock_conn *c;
    int fd = -1, err;

    if (link->conn)
        return shunt__fail(SHUNT_ERR_INTERNAL, "rail %s: connect on a link that has a connection", r->name);
    if (shunt__inet_unpack(address, len, r->params.device, &to) || to.ss_family != rail->local.ss_family)
        return shunt__fail(SHUNT_ERR_INVALID, "rail %s: a peer's address is not one of this rail's kind", r->name);
    err = start_connecting(rail, &to, &fd);
    if (err != EINPROGRESS && fd >= 0) {
        close(fd);
        fd = -1;
    }
    c = shunt__sock_conn_new(rail, fd, SOCK_CONNECTING);
    if (!c) {
        if (fd >= 0)
            close(fd);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a connection of rail %s", r->name);
    }
    link->conn = c;
    c->link = link;
    c->deadline = shunt__now() + SHUNT__HELLO_TIME;
    if (fd < 0)
        connect_failed(c, err);
    return SHUNT_OK;
}

void shunt__sock_disconnect(struct shunt__link *link)
{
    struct sock_conn *c = link->conn;
    struct sock_rail *rail;
    long n;

    if (!c)
        return;
    rail = c->rail;
    shunt__sock_enter(rail);
    if (c->state == SOCK_UP && !c->failed) {
        /* A goodbye should get out; and unread bytes would turn the close into a reset that overtakes it. */
        if (!c->blocked)
            shunt__sock_flush(c);
        shutdown(c->pollable.fd, SHUT_WR);
        for (int i = 0; i < 16; i++) {
            /* MSG_TRUNC throws bytes away without writing them; sanitizers' recv() does not know that. */
            n = syscall(SYS_recvfrom, c->pollable.fd, NULL, 1 << 20, MSG_TRUNC | MSG_DONTWAIT, NULL, NULL);
            if (n <= 0)
                break;
        }
    }
    shunt__sock_bury(c);
    shunt__sock_leave(rail);
}

/* The TCP handshake is over: say HELLO, or learn why not. */
static void connected(struct sock_conn *c)
{
    const struct shunt__rail_params *p = &c->rail->rail.params;
    uint8_t hello[SHUNT__HELLO_MAX];
    size_t size = sizeof(hello);
    int err = 0;
    socklen_t len = sizeof(err);

    if (getsockopt(c->pollable.fd, SOL_SOCKET, SO_ERROR, &err, &len))
        err = errno;
    if (err) {
        connect_failed(c, err);
        return;
    }
    c->state = SOCK_GREETING;
    p->events->hello(p->engine, c->link, hello, &size);
    if (c->state == SOCK_CLOSED)
        return;
    shunt__poller_change(p->poller, &c->pollable, EPOLLIN);
    if (shunt__sock_control(c, SHUNT__FRAME_HELLO, hello, size))
        shunt__sock_fail(c, SHUNT_ERR_NO_MEMORY, "no memory for a HELLO");
    shunt__sock_flush(c);
}

void shunt__sock_greet(struct sock_conn *c)
{
    struct sock_rail *rail = c->rail;
    const struct shunt__rail_params *p = &rail->rail.params;
    uint8_t welcome[SHUNT__HELLO_MAX];
    size_t size = sizeof(welcome);
    struct shunt__link *link = p->events->incoming(p->engine, &rail->rail, c->hello, c->header.length, welcome, &size);

    if (c->state == SOCK_CLOSED)
        return;
    if (!link || link->conn) {
        shunt__sock_fail(c, SHUNT_ERR_AUTH, link ? "its link has a connection already" : "its HELLO was not accepted");
        return;
    }
    take_out(&rail->strangers, c);
    rail->n_strangers--;
    insert(&rail->conns, c);
    c->state = SOCK_UP;
    c->deadline = 0;
    c->header_have = 0;
    c->link = link;
    link->conn = c;
    if (shunt__sock_control(c, SHUNT__FRAME_WELCOME, welcome, size)) {
        shunt__sock_fail(c, SHUNT_ERR_NO_MEMORY, "no memory for a WELCOME");
        return;
    }
    shunt__sock_flush(c);
    p->events->established(p->engine, link);
}

void shunt__sock_ready(struct shunt__pollable *p, uint32_t events)
{
    struct sock_conn *c = (struct sock_conn *)p;
    struct sock_rail *rail = c->rail;

    shunt__sock_enter(rail);
    if (c->state == SOCK_CONNECTING)
        connected(c);
    else if (c->state == SOCK_STRANGER)
        shunt__sock_read_stranger(c);
    else {
        if (events & EPOLLOUT) {
            c->blocked = 0;
            shunt__sock_flush(c);
            if (!c->blocked && c->state != SOCK_CLOSED)
                shunt__poller_change(rail->rail.params.poller, p, EPOLLIN);
            shunt__sock_report(c);
        }
        if ((events & ~(uint32_t)EPOLLOUT) && c->state != SOCK_CLOSED)
            shunt__sock_read(c);
    }
    shunt__sock_settle(c);
    shunt__sock_leave(rail);
}

const char *shunt__sock_describe(struct shunt__link *link)
{
    struct sock_conn *c = link->conn;
    struct sockaddr_storage a;
    char here[SHUNT__INET_NAME], there[SHUNT__INET_NAME];
    socklen_t len = sizeof(a);

    if (!c || c->state != SOCK_UP)
        return "no connection";
    if (!*c->name) {
        memset(&a, 0, sizeof(a));
        getsockname(c->pollable.fd, (struct sockaddr *)&a, &len);
        shunt__inet_name(&a, here);
        memset(&a, 0, sizeof(a));
        len = sizeof(a);
        getpeername(c->pollable.fd, (struct sockaddr *)&a, &len);
        shunt__inet_name(&a, there);
        snprintf(c->name, sizeof(c->name), "%s to %s", here, there);
    }
    return c->name;
}
