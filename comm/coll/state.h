/* SPDX-License-Identifier: BSD-3-Clause */
/* What collectives keep in a communicator: schedules used lately, memory of runs, pre-multiplied sums. */
#ifndef SHUNT_COLL_STATE_H
#define SHUNT_COLL_STATE_H

#include "comm/coll/run.h"

#define SHUNT__KEPT_SCHEDULES 16

struct shunt__coll_state {
    struct shunt__run_pool *pool;
    struct shunt__kept {
        struct shunt__schedule *schedule; /* NULL: free */
        shunt_coll_t kind;
        size_t count;
        shunt_type_t type;
        int root, in_place;
        uint64_t used;
    } kept[SHUNT__KEPT_SCHEDULES];
    uint64_t uses;
    struct shunt__operator {
        int used;
        shunt_type_t type;
        unsigned char scalar[8];
    } *operators;
    int n_operators;
};

/* The communicator's; NULL when memory is out. Lock held. */
struct shunt__coll_state *shunt__coll_state_of(struct shunt_comm *comm);
/* A reference to the schedule of `call`, made now or kept from an earlier call; sets the text when it gives NULL. */
struct shunt__schedule *shunt__coll_schedule(struct shunt__coll_state *state, const struct shunt__call *call);
/* The pre-multiplied sum of this value, NULL when there is none. */
const struct shunt__operator *shunt__coll_operator(const struct shunt__coll_state *state, shunt_op_t op);

/* Called by the engine: every tick, before it waits for a communicator's last operations, and when it destroys it. */
void shunt__coll_tick(struct shunt_comm *comm, uint64_t now);
void shunt__coll_close(struct shunt_comm *comm);
void shunt__coll_free(struct shunt_comm *comm);

#endif
