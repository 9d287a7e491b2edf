/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives: what a call is, which algorithm it gets, and the patterns.
 *
 *     coll.c ── the public functions: check arguments, pick up a schedule, start a run
 *     choose.c ── call -> algorithm, with the reason; a pure function
 *     algorithm files ── call -> schedule: a graph of sends, receives, reductions and copies (schedule.h)
 *     run.c ── schedule -> messages, whatever carries them
 *     hello.c ── do both ends of a message mean the same collective? giveup.c ── what if not; inquire.c ── and if no
 *     message comes at all?
 *
 * The algorithms, for n ranks and a vector of S bytes (allgather, reduce-scatter, gather, scatter, alltoall: S is the
 * whole, n times the count). Steps are messages one after the other on the longest way, without segments; bytes are
 * the most that a rank sends. tests/coll/cost.c holds each row against the schedules up to 1,024 ranks.
 *
 *   collective      algorithm     steps              bytes             restrictions
 *   allreduce       doubling      log2 n             S log2 n          n not a power of 2: 2 steps more
 *   allreduce       halving       2 log2 n           2 S (n-1)/n       n not a power of 2: 2 steps and S more
 *   allreduce       ring          2 (n-1)            2 S (n-1)/n
 *   allreduce       direct        2                  2 S (n-1)/n       2 (n-1) messages per segment
 *   allreduce       hierarchical  4                  see hierarchy.c   more than one host; every host's count alike or
 *                                                                      not
 *   reduce-scatter  direct        1                  S (n-1)/n
 *   reduce-scatter  halving       log2 n             S (n-1)/n         n a power of 2
 *   reduce-scatter  ring          n-1                S (n-1)/n
 *   allgather       direct        1                  S (n-1)/n
 *   allgather       bruck         ceil(log2 n)       S (n-1)/n
 *   allgather       ring          n-1                S (n-1)/n
 *   broadcast       tree          ceil(log2 n)       S log2 n
 *   broadcast       chain         n-1                S
 *   reduce          tree          ceil(log2 n)       S
 *   reduce          direct        2                  S                 root: S (n-1)/n
 *   reduce          chain         n-1                S
 *   gather          tree          ceil(log2 n)       S/2
 *   gather          direct        1                  S/n
 *   scatter         tree          ceil(log2 n)       S (n-1)/n
 *   scatter         direct        1                  S (n-1)/n
 *   alltoall(v)     direct        1                  S (n-1)/n         at most SHUNT__PAIRS peers at a time
 *   barrier         dissemination ceil(log2 n)       0
 */
#ifndef SHUNT_COLL_COLL_H
#define SHUNT_COLL_COLL_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/coll.h>

struct shunt__schedule;

/* One rank's view of one call. */
struct shunt__call {
    shunt_coll_t kind;
    int rank, size, root;
    const int *host_of; /* of each rank; hosts are numbered by their first rank */
    int hosts;
    size_t count, width; /* elements as the caller passed them; bytes of one */
    shunt_type_t type;
    shunt_op_t op;
    int in_place;
    size_t segment; /* bytes in which large vectors are cut; 0: the algorithm's own */
    /* alltoallv: elements, one entry per rank */
    const size_t *send_counts, *send_displs, *recv_counts, *recv_displs;
};

/* Emits this rank's steps; a memory failure is kept in the schedule. */
typedef void shunt__pattern_t(struct shunt__schedule *s, const struct shunt__call *call);

struct shunt__algorithm {
    shunt_coll_t kind;
    const char *name;
    shunt__pattern_t *pattern;
};

/* All of them, ending with a NULL name. */
extern const struct shunt__algorithm shunt__algorithms[];

const struct shunt__algorithm *shunt__algorithm_find(shunt_coll_t kind, const char *name);

/*
 * The algorithm for a call of more than one rank, and why (`why` may be NULL). Depends on the host map, size, count,
 * type, operator and root only, not on the calling rank and on nothing measured, so that all ranks choose alike and
 * every run adds in the same order.
 */
const struct shunt__algorithm *shunt__coll_choose(const struct shunt__call *call, char *why, size_t len);

/* "allreduce" and so on; static. */
const char *shunt__coll_name(shunt_coll_t kind);
/* Whether the collective combines elements, and whether it has a root. */
int shunt__coll_reduces(shunt_coll_t kind);
int shunt__coll_rooted(shunt_coll_t kind);
/* Bytes of `send` and `recv` on this rank (zero where it is not used). */
size_t shunt__call_in_bytes(const struct shunt__call *call);
size_t shunt__call_out_bytes(const struct shunt__call *call);

#define SHUNT__PAIRS 8

shunt__pattern_t shunt__allreduce_doubling, shunt__allreduce_halving, shunt__allreduce_ring, shunt__allreduce_direct,
    shunt__allreduce_hierarchical;
shunt__pattern_t shunt__reduce_scatter_direct, shunt__reduce_scatter_halving, shunt__reduce_scatter_ring;
shunt__pattern_t shunt__allgather_direct, shunt__allgather_bruck, shunt__allgather_ring;
shunt__pattern_t shunt__broadcast_tree, shunt__broadcast_chain;
shunt__pattern_t shunt__reduce_tree, shunt__reduce_direct, shunt__reduce_chain;
shunt__pattern_t shunt__gather_tree, shunt__gather_direct, shunt__scatter_tree, shunt__scatter_direct;
shunt__pattern_t shunt__alltoall_direct, shunt__alltoallv_direct, shunt__barrier_dissemination;

#endif
