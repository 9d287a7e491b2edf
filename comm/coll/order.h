/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks in an order that keeps those of one host together, so that a ring or tree crosses hosts as rarely as it can. */
#ifndef SHUNT_COLL_ORDER_H
#define SHUNT_COLL_ORDER_H

#include "comm/coll/coll.h"

/*
 * order[0 .. size-1]: hosts by their first rank, ranks rising within; with `first` >= 0 that rank's host comes first,
 * and that rank first in it. Returns the position of `call->rank`.
 */
int shunt__host_order(const struct shunt__call *call, int first, int *order);

/* This rank's place among those of its host, and the fewest and most ranks that a host has. */
struct shunt__host_shape {
    int local, n_local;
    int fewest, most;
};
/* `counts` has room for one int per host. */
void shunt__host_shape(const struct shunt__call *call, int *counts, struct shunt__host_shape *shape);

#endif
