/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations: what the engine works on. A request of the user is one; each send and receive inside a collective is
 * another. The memory belongs to whoever posts it, until done() has been called.
 *
 * Everything here runs under the engine's lock.
 */
#ifndef SHUNT_CORE_OP_H
#define SHUNT_CORE_OP_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/p2p.h>
#include "comm/core/list.h"

/* Messages of different channels of a communicator never match each other. */
enum shunt__channel {
    SHUNT__CHANNEL_USER, /* shunt_isend and shunt_irecv */
    SHUNT__CHANNEL_COLL, /* sends and receives of collectives */
    SHUNT__CHANNEL_CONTROL, /* split, agreement */
    SHUNT__CHANNELS
};

enum shunt__op_kind { SHUNT__OP_SEND, SHUNT__OP_RECV, SHUNT__OP_COLL };

struct shunt__op {
    enum shunt__op_kind kind;
    enum shunt__channel channel;
    struct shunt_comm *comm;
    int peer;
    int tag;
    void *buf; /* receives; for sends cast from const */
    size_t bytes; /* capacity of a receive, length of a send; when done: of the message */
    shunt_status_t status; /* SHUNT_IN_PROGRESS until it has ended */
    uint64_t start;   /* shunt__now() at the post */
    uint64_t message; /* number within the stream; UINT64_MAX until known */
    const char *why;  /* static or the peer's, for error texts; may be NULL */
    /* Called once, from the engine's completion loop, never from inside post. The op may be freed or posted again. */
    void (*done)(struct shunt__op *op);
    struct shunt__list node; /* stream's posted receives, then the engine's completed list */
};

/* Post; errors that are known at once (dead peer, revoked communicator) are reported through done() as well. */
void shunt__op_send(struct shunt__op *op, struct shunt_comm *comm, enum shunt__channel channel, const void *buf,
                    size_t bytes, int peer, int tag, void (*done)(struct shunt__op *));
void shunt__op_recv(struct shunt__op *op, struct shunt_comm *comm, enum shunt__channel channel, void *buf,
                    size_t bytes, int peer, int tag, void (*done)(struct shunt__op *));
/* Ends a receive that has not been matched, with `status`; nonzero when it was matched already and goes on. */
int shunt__op_cancel_recv(struct shunt__op *op, shunt_status_t status);

/* ---- requests, for collectives and whoever else builds on ops ---- */

/* A request that has not ended; NULL when memory is out. Freed by test and wait, or by shunt__request_drop(). */
struct shunt_request *shunt__request_new(struct shunt_comm *comm, const char *what);
/* The op inside (kind COLL until it is posted otherwise). */
struct shunt__op *shunt__request_op(struct shunt_request *req);
/* Ends it; wakes whoever waits. `fmt` (may be NULL) becomes the result's text. */
void shunt__request_finish(struct shunt_request *req, shunt_status_t status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void shunt__request_drop(struct shunt_request *req);
/* Writes "<what> #<n> of communicator <id>, rank <r>, ... rank <peer> ..." for an op that failed. */
void shunt__op_describe(const struct shunt__op *op, char *text, size_t len);

/* The engine's lock, for functions of the public interface. */
void shunt__lock(struct shunt_context *ctx);
void shunt__unlock(struct shunt_context *ctx);

/* ---- what collectives may ask of a communicator ---- */
struct shunt_context *shunt__comm_ctx(struct shunt_comm *comm);
/* SHUNT_OK, or why no collective can run any more (a member died, revoked, ...): text set by shunt__fail(). */
shunt_status_t shunt__comm_coll_ready(struct shunt_comm *comm);
/* Number of the next collective of this communicator, counting from 0. */
uint64_t shunt__comm_coll_next(struct shunt_comm *comm);
/* A collective starts here: whether others have been waiting for this rank, and it for nobody. Lock held. */
void shunt__health_entered(struct shunt_comm *comm);
/* host[r] for every rank: 0 .. hosts-1 in order of first rank; owned by comm. */
const int *shunt__comm_host_map(const struct shunt_comm *comm, int *hosts);
/* Slot in the communicator for the collectives' own state, freed with `destroy` when the communicator is. */
void **shunt__comm_coll_state(struct shunt_comm *comm);

#endif
