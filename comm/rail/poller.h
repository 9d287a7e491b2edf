/* SPDX-License-Identifier: BSD-3-Clause */
/* One epoll set per engine; whoever has a descriptor embeds a pollable. Under the engine's lock. */
#ifndef SHUNT_RAIL_POLLER_H
#define SHUNT_RAIL_POLLER_H

#include <stdint.h>

struct shunt__pollable {
    int fd;
    uint32_t events; /* EPOLLIN, EPOLLOUT: what is being waited for (level-triggered) */
    void (*ready)(struct shunt__pollable *self, uint32_t events);
};

struct shunt__poller {
    int epfd;
    int n; /* descriptors in the set */
    /* Pollables removed while a batch of events is being handed out must not be called any more. */
    struct shunt__pollable **batch;
    int batch_len;
};

int shunt__poller_init(struct shunt__poller *p); /* 0, or errno */
void shunt__poller_close(struct shunt__poller *p);
int shunt__poller_add(struct shunt__poller *p, struct shunt__pollable *x);    /* 0, or errno */
int shunt__poller_change(struct shunt__poller *p, struct shunt__pollable *x, uint32_t events);
void shunt__poller_remove(struct shunt__poller *p, struct shunt__pollable *x);
/* Hands out what is ready, waiting at most `timeout_ms` (0: not at all, -1: for ever); number of events. */
int shunt__poller_run(struct shunt__poller *p, int timeout_ms);
/* The same in two halves, so that the wait can happen without the engine's lock. */
#define SHUNT__POLL_BATCH 64

#endif
