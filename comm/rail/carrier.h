/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Watches network interfaces: carrier, administrative state, addresses. One per engine, under its lock; needs no
 * privilege and sees the network namespace it was opened in.
 *
 * The kernel's netlink messages tell most changes at once, but it may hold back the news of a lost carrier for up to
 * a second (they are rate-limited); so tick() also asks each interface that is up, with one cheap ioctl, and looks at
 * the state of RDMA ports, of which netlink says nothing.
 */
#ifndef SHUNT_RAIL_CARRIER_H
#define SHUNT_RAIL_CARRIER_H

#include <stdint.h>
#include <shunt/status.h>
#include "comm/rail/poller.h"

struct shunt__carrier;

/* `up` tells what has become of a watched interface, `why` in words ("eth1 has lost its carrier"). */
typedef void (*shunt__carrier_fn)(void *arg, int key, int up, const char *why);

shunt_status_t shunt__carrier_open(struct shunt__poller *poller, shunt__carrier_fn fn, void *arg,
                                   struct shunt__carrier **carrier);
void shunt__carrier_close(struct shunt__carrier *carrier);
/*
 * From now on changes of `device`, and of its having the address `ip` ("": any state of addresses will do), are told
 * with `key`. What is wrong already is told by the next tick or event. No interface need have that name yet. Of an RDMA
 * device ("mlx5_0:1") its port and the interface behind it are watched.
 */
shunt_status_t shunt__carrier_watch(struct shunt__carrier *carrier, int key, const char *device, const char *ip);
/* Every 10 ms or so while anything goes on. */
void shunt__carrier_tick(struct shunt__carrier *carrier, uint64_t now);

#endif
