/* SPDX-License-Identifier: BSD-3-Clause */
/* What a communicator does for itself over its control channel. */
#ifndef SHUNT_CORE_CONTROL_H
#define SHUNT_CORE_CONTROL_H

#include "comm/core/op.h"

/*
 * Every rank gives `len` bytes; `all` gets size * len bytes in the order of ranks. Blocks; log2(size) rounds
 * (Bruck et al., "Efficient algorithms for all-to-all communications", 1997). `what` is for the error text.
 */
shunt_status_t shunt__control_allgather(struct shunt_comm *comm, const void *mine, size_t len, void *all,
                                        const char *what);
/* The seed of a communicator made from this one; equal on all members for equal arguments. */
void shunt__comm_child_seed(const struct shunt_comm *comm, int color, uint32_t number, unsigned char seed[16]);

/* An operation that the calling thread waits for. Lock held; let go while it blocks. */
struct shunt__sync_op {
    struct shunt__op op; /* first */
    int finished;
};
void shunt__sync_done(struct shunt__op *op);

/* Frees the collectives' state of a communicator (comm/coll). */
void shunt__coll_free(struct shunt_comm *comm);
/* Before the last operations of a communicator are waited for: what collectives keep posted is taken back. */
void shunt__coll_close(struct shunt_comm *comm);
/* Every tick: asks after collectives that do not get on. */
void shunt__coll_tick(struct shunt_comm *comm, uint64_t now);

#endif
