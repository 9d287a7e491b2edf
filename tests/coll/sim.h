/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * n ranks in one thread, joined by a simulated network: a carrier for comm/coll/run.h with virtual time.
 *
 * Messages of a pair are matched by tag in the order of posting. A send's buffer must not change before it ends and
 * a receive's buffer is not anybody's before it ends: the simulator keeps a copy of the one, fills the other with
 * rubbish, and counts the times it finds them touched.
 */
#ifndef SHUNT_TESTS_COLL_SIM_H
#define SHUNT_TESTS_COLL_SIM_H

#include "comm/coll/coll.h"
#include "comm/coll/run.h"

enum sim_mode {
    SIM_STEPS, /* each message takes one unit of time from when both ends are posted; nothing is random */
    SIM_EAGER, /* random times; a send ends whether or not it was matched */
    SIM_LATE   /* random times; a send ends some time after it was matched and has arrived */
};

struct sim;

struct sim *sim_new(int n, enum sim_mode mode, unsigned seed);
void sim_free(struct sim *s);
extern const struct shunt__carrier sim_carrier;
struct shunt_comm *sim_comm(struct sim *s, int rank);
/* Until nothing moves any more. */
void sim_run(struct sim *s);
double sim_time(const struct sim *s);
int sim_races(const struct sim *s);
/* Messages and receives that found no partner. */
int sim_left(const struct sim *s);
/* From here on every operation of `rank` with another fails with PEER. */
void sim_kill(struct sim *s, int rank);
/* Payload bytes that a rank has sent, without hellos; messages. */
size_t sim_bytes(const struct sim *s, int rank);
size_t sim_messages(const struct sim *s, int rank);

/* ---- a collective on all ranks ---- */

struct sim_coll {
    struct shunt__call call; /* as seen by this rank; filled by the caller */
    const char *algorithm;   /* NULL: what is chosen */
    const void *in;
    void *out;
    uint64_t number;
    struct shunt__run_pool *pool;
    /* results */
    int finished;
    shunt_status_t status;
    char why[SHUNT__WHY];
    double time;
    struct sim *sim;
};

/* Starts `c` on its rank. */
void sim_start(struct sim *s, struct sim_coll *c);

#endif
