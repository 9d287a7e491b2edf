/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt/comm.h - contexts and communicators.
 *
 * A context is one rank's end of everything: its settings, its rails, its progress engine. A communicator is
 * an ordered set of ranks that can exchange messages (shunt/p2p.h) and run collectives (shunt/coll.h).
 *
 *     shunt_context_t *ctx;
 *     shunt_comm_t *comm;
 *     if (shunt_context_create(NULL, &ctx) != SHUNT_OK || shunt_comm_create_from_env(ctx, &comm) != SHUNT_OK)
 *         errx(1, "%s", shunt_error_text());
 *     shunt_allreduce(comm, x, x, 1000, SHUNT_FLOAT32, SHUNT_SUM);
 *     shunt_comm_free(comm);
 *     shunt_context_destroy(ctx);
 *
 * Unless a function says otherwise it may be called from any thread, at any time, on any number of
 * communicators at once. Outputs are set only when SHUNT_OK (or SHUNT_IN_PROGRESS) is returned; the text of an
 * error is shunt_error_text().
 */
#ifndef SHUNT_COMM_H
#define SHUNT_COMM_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/status.h>
#include <shunt/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shunt_context shunt_context_t;
typedef struct shunt_comm shunt_comm_t;
typedef struct shunt_request shunt_request_t;

/* How ranks find each other: opaque, copied freely, as large as an ncclUniqueId. */
typedef struct shunt_id {
    char bytes[128];
} shunt_id_t;

#define SHUNT_ID_BYTES 128

typedef struct shunt_context_params {
    size_t size;                 /* sizeof(shunt_context_params_t) */
    const char *const *settings; /* "SHUNT_NAME=VALUE" strings, NULL-terminated; they win over the environment */
    const char *name;            /* shown by shunt-status, and before log lines if the process has one; may be NULL */
} shunt_context_params_t;

/* The version of the library, "major.minor.patch". Static. */
SHUNT_API const char *shunt_version(void);

/*
 * Opens the rails of this rank and starts its engine. `params` may be NULL. Several contexts may live in one
 * process, each standing for one rank. Errors: INVALID (a setting), LIMIT, PERMISSION, SYSTEM, NOT_FOUND (no
 * usable rail; the text lists what exists and why each was refused).
 */
SHUNT_API shunt_status_t shunt_context_create(const shunt_context_params_t *params, shunt_context_t **ctx);

/*
 * Closes it. Communicators that are left are aborted here and freed, without waiting. No thread may be inside a
 * call with the context or anything of it; requests that were not waited for are lost. NULL is allowed.
 */
SHUNT_API void shunt_context_destroy(shunt_context_t *ctx);

/*
 * Makes an id on one rank, to be handed to all ranks by the caller's own means (a file, MPI, a store). A thread
 * of this process answers the ranks that join, until all of them have, or SHUNT_BOOTSTRAP_TIMEOUT passed.
 * The id holds a secret: who knows it can join. Errors: INVALID, LIMIT, SYSTEM, NO_MEMORY.
 */
SHUNT_API shunt_status_t shunt_id_create(shunt_context_t *ctx, shunt_id_t *id);

/*
 * Joins `size` ranks into a communicator; blocks until all have joined. 0 <= rank < size, each rank exactly once,
 * one context per rank. Errors: INVALID, TIMEOUT (the text lists the missing ranks), AUTH, VERSION, FORMAT (not
 * an id of Shunt).
 */
SHUNT_API shunt_status_t shunt_comm_create(shunt_context_t *ctx, const shunt_id_t *id, int rank, int size,
                                           shunt_comm_t **comm);

/*
 * The same, and returns ABORTED within 100 ms once another thread has made `*stop` nonzero (NULL: never); the ranks that
 * have come get ABORTED, too. `stop` is read until the call returns.
 */
SHUNT_API shunt_status_t shunt_comm_create_until(shunt_context_t *ctx, const shunt_id_t *id, int rank, int size,
                                                 const int *stop, shunt_comm_t **comm);

/*
 * The same, meeting through the environment: SHUNT_ID_FILE with RANK and WORLD_SIZE, torchrun's variables (RANK,
 * WORLD_SIZE, MASTER_ADDR, MASTER_PORT), or PMIx under mpirun, srun and prun, in this order. A process without
 * any of them becomes a communicator of size 1. Errors: as shunt_comm_create(); NOT_FOUND (a file, an address).
 */
SHUNT_API shunt_status_t shunt_comm_create_from_env(shunt_context_t *ctx, shunt_comm_t **comm);

/* A member of no part calls shunt_comm_split() with this color and gets NULL. */
#define SHUNT_NO_COLOR (-1)

/*
 * Collective over `comm`: ranks of one `color` (>= 0) form a new communicator, ordered by `key`, ties by rank
 * in `comm`. Cost: one allgather of 8 bytes per rank and one barrier. Errors: INVALID (on all ranks when one passes
 * another negative color); PEER, TIMEOUT, REVOKED, ABORTED.
 */
SHUNT_API shunt_status_t shunt_comm_split(shunt_comm_t *comm, int color, int key, shunt_comm_t **out);

/*
 * Frees the communicator once its operations have ended; those that can't end fail first: with the own rank at
 * once, with others after SHUNT_PEER_TIMEOUT, with SHUNT_ERR_ABORTED where the peer lives but does not match them.
 * Their requests can still be waited for. Local: other ranks are not waited for, beyond what they must still
 * acknowledge. NULL is allowed. No thread may be inside a call with `comm`.
 */
SHUNT_API shunt_status_t shunt_comm_free(shunt_comm_t *comm);

/*
 * Ends all operations of `comm` on every rank with SHUNT_ERR_ABORTED; within 1 s here and on the ranks that can
 * be reached. May be called while other threads are inside calls with `comm`; those return. `reason` (may be
 * NULL) is put into the other ranks' error texts. The communicator must still be freed.
 */
SHUNT_API shunt_status_t shunt_comm_abort(shunt_comm_t *comm, const char *reason);

/*
 * Ends all operations of `comm` on every rank with SHUNT_ERR_REVOKED, so that ranks which wait for a rank that
 * has left the common path are set free. Afterwards only shrink, split by shrink's result, and free work.
 */
SHUNT_API shunt_status_t shunt_comm_revoke(shunt_comm_t *comm);

/*
 * The ranks that are alive agree on who is left and form a communicator of them, in the old order. Called by
 * every live rank of `comm`, usually after an operation failed with SHUNT_ERR_PEER or SHUNT_ERR_TIMEOUT.
 * `exclude` (may be NULL) names `n_exclude` ranks of `comm` to leave out although they may live; every caller's
 * list counts. A rank that the others left out gets SHUNT_ERR_EXCLUDED. Outstanding operations of `comm` end
 * with SHUNT_ERR_REVOKED. Tolerates further deaths while it runs. `comm` must still be freed. Other errors:
 * INVALID, ABORTED, NO_MEMORY.
 */
SHUNT_API shunt_status_t shunt_comm_shrink(shunt_comm_t *comm, const int *exclude, int n_exclude,
                                           shunt_comm_t **out);

/*
 * A larger communicator: the members of `comm` keep their ranks, newcomers (with `comm` NULL and their own `ctx`) take
 * the ranks from its size to size - 1. Everybody passes the same `id`, made by one of them with shunt_id_create().
 * `comm` stays as it is. Errors as shunt_comm_create().
 */
SHUNT_API shunt_status_t shunt_comm_grow(shunt_comm_t *comm, shunt_context_t *ctx, const shunt_id_t *id, int rank,
                                         int size, shunt_comm_t **out);

/* Rank and size (-1 and 0 for NULL), and what `comm` has come to: SHUNT_OK, or the error that ended it, with its text. */
SHUNT_API int shunt_comm_rank(const shunt_comm_t *comm);
SHUNT_API int shunt_comm_size(const shunt_comm_t *comm);
SHUNT_API shunt_status_t shunt_comm_error(const shunt_comm_t *comm);
/* The context it belongs to. */
SHUNT_API shunt_context_t *shunt_comm_context(const shunt_comm_t *comm);
/* Number of different hosts, and for each rank the index (0..hosts-1, by first rank) of its host, -1 for no rank of it. */
SHUNT_API int shunt_comm_hosts(const shunt_comm_t *comm);
SHUNT_API int shunt_comm_host_of(const shunt_comm_t *comm, int rank);

/*
 * Whether `rank` is known to be dead (SHUNT_ERR_PEER), unreachable (SHUNT_ERR_TIMEOUT) or fine (SHUNT_OK), with
 * the reason as text in `why` (at most `len` bytes, may be NULL). INVALID for no rank of it.
 */
SHUNT_API shunt_status_t shunt_comm_peer_state(const shunt_comm_t *comm, int rank, char *why, size_t len);

/* Moves operations on for those who don't wait in a call; never blocks. Not needed with SHUNT_THREAD=1. */
SHUNT_API void shunt_progress(shunt_context_t *ctx);

#ifdef __cplusplus
}
#endif
#endif
