/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/rail/poller.h"
#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <unistd.h>

int shunt__poller_init(struct shunt__poller *p)
{
    p->n = 0;
    p->batch = NULL;
    p->batch_len = 0;
    p->epfd = epoll_create1(EPOLL_CLOEXEC);
    return p->epfd < 0 ? errno : 0;
}

void shunt__poller_close(struct shunt__poller *p)
{
    if (p->epfd >= 0)
        close(p->epfd);
    p->epfd = -1;
}

int shunt__poller_add(struct shunt__poller *p, struct shunt__pollable *x)
{
    struct epoll_event e = {.events = x->events, .data.ptr = x};

    if (epoll_ctl(p->epfd, EPOLL_CTL_ADD, x->fd, &e))
        return errno;
    p->n++;
    return 0;
}

int shunt__poller_change(struct shunt__poller *p, struct shunt__pollable *x, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = x};

    if (x->events == events)
        return 0;
    x->events = events;
    return epoll_ctl(p->epfd, EPOLL_CTL_MOD, x->fd, &e) ? errno : 0;
}

void shunt__poller_remove(struct shunt__poller *p, struct shunt__pollable *x)
{
    if (epoll_ctl(p->epfd, EPOLL_CTL_DEL, x->fd, NULL) == 0)
        p->n--;
    for (int i = 0; i < p->batch_len; i++)
        if (p->batch[i] == x)
            p->batch[i] = NULL;
}

int shunt__poller_run(struct shunt__poller *p, int timeout_ms)
{
    struct epoll_event e[SHUNT__POLL_BATCH];
    struct shunt__pollable *batch[SHUNT__POLL_BATCH];
    int n = epoll_wait(p->epfd, e, SHUNT__POLL_BATCH, timeout_ms);

    if (n <= 0)
        return 0;
    for (int i = 0; i < n; i++)
        batch[i] = e[i].data.ptr;
    p->batch = batch;
    p->batch_len = n;
    for (int i = 0; i < n; i++)
        if (batch[i])
            batch[i]->ready(batch[i], e[i].events);
    p->batch = NULL;
    p->batch_len = 0;
    return n;
}
