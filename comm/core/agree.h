/* SPDX-License-Identifier: BSD-3-Clause */
/* Agreement on who is left of a communicator; see agree.c. Under the engine's lock. */
#ifndef SHUNT_CORE_AGREE_H
#define SHUNT_CORE_AGREE_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/status.h>

struct shunt_comm;
struct shunt_context;
struct shunt__agree;
struct shunt__path;
struct shunt__peer;

/* Takes part: this rank's view and the ranks it wants left out. One agreement per communicator; NULL: no memory. */
struct shunt__agree *shunt__agree_start(struct shunt_comm *comm, const int *exclude, int n_exclude);
/* Nonzero once it is decided; the address is stable. */
const int *shunt__agree_done(const struct shunt__agree *a);
/* After it is decided: OK with the members in order (owned by the agreement), or EXCLUDED with a text set. */
shunt_status_t shunt__agree_result(const struct shunt__agree *a, const int **ranks, int *n);

/* What arrives, and what time brings. */
void shunt__agree_arrived(struct shunt_context *ctx, struct shunt__peer *from, uint64_t comm, uint32_t epoch,
                          const void *payload, size_t len);
/* Whether one is going on. */
int shunt__agree_pending(const struct shunt_context *ctx);
void shunt__agree_tick(struct shunt_context *ctx, uint64_t now);
/* The communicator is freed; a decided agreement stays for a while, for those that ask later. */
void shunt__agree_detach(struct shunt_comm *comm);
void shunt__agree_close(struct shunt_context *ctx);

/* ---- the pure part, for tests: sets are bytes, one per rank ---- */

/*
 * Of the ranks with joined[r] != 0 the largest set in which every two reach each other, found greedily: the rank with the
 * most broken pairs goes first, of equals the highest. unreachable[a * n + b] != 0: a can't reach b. `set` gets 1 for
 * members; returns their number.
 */
int shunt__agree_choose(int n, const unsigned char *joined, const unsigned char *unreachable,
                        const unsigned char *exclude, unsigned char *set);
/*
 * Whether a set may go on: it holds more than half of the ranks that may be alive (all but those in `dead`, whose end is
 * proven, and those excluded on purpose), or just half and the lowest of them. No two disjoint sets can both.
 */
int shunt__agree_quorum(int n, const unsigned char *set, const unsigned char *dead, const unsigned char *exclude);

#endif
