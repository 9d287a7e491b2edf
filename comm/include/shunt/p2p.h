/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt/p2p.h - asynchronous tagged messages between two ranks of a communicator.
 *
 * Messages of one (sender, receiver, communicator) are matched in the order in which they were sent, per tag.
 * A message may have any length, zero included. A send completes when the receiver has accepted all of it into
 * memory (not when the local library has taken it), so a completed send has been delivered whatever happens to
 * the rail afterwards. Before its receive is posted at most SHUNT_EAGER bytes of a message travel.
 */
#ifndef SHUNT_P2P_H
#define SHUNT_P2P_H

#include <shunt/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tags of the user are 0 .. SHUNT_TAG_MAX. */
#define SHUNT_TAG_MAX 0x3fffffff
/* A receive with this tag takes the next message whatever its tag. */
#define SHUNT_TAG_ANY (-1)

/* What a finished request was. */
typedef struct shunt_result {
    shunt_status_t status; /* how it ended */
    int peer;              /* the other rank, -1 for collectives */
    int tag;               /* the message's tag */
    size_t bytes;          /* length of the message that arrived or was sent */
    char text[256];        /* for errors: operation, sequence number, own rank, peer, rail, elapsed time */
} shunt_result_t;

/*
 * Starts sending `bytes` bytes at `buf` to rank `peer`. `buf` belongs to the request until it has completed.
 * A message to the own rank is allowed. Errors: INVALID, REVOKED, ABORTED, PEER.
 */
SHUNT_API shunt_status_t shunt_isend(shunt_comm_t *comm, const void *buf, size_t bytes, int peer, int tag,
                                     shunt_request_t **req);

/*
 * Starts receiving a message of at most `bytes` bytes from rank `peer` with `tag`. A longer message is consumed
 * and the request ends with SHUNT_ERR_TRUNCATED, the first `bytes` bytes of it in `buf`. Errors: as shunt_isend().
 */
SHUNT_API shunt_status_t shunt_irecv(shunt_comm_t *comm, void *buf, size_t bytes, int peer, int tag,
                                     shunt_request_t **req);

/* The same, waiting for the end. `result` may be NULL. */
SHUNT_API shunt_status_t shunt_send(shunt_comm_t *comm, const void *buf, size_t bytes, int peer, int tag);
SHUNT_API shunt_status_t shunt_recv(shunt_comm_t *comm, void *buf, size_t bytes, int peer, int tag,
                                    shunt_result_t *result);
SHUNT_API shunt_status_t shunt_sendrecv(shunt_comm_t *comm, const void *sendbuf, size_t sendbytes, int dest,
                                        int sendtag, void *recvbuf, size_t recvbytes, int source, int recvtag,
                                        shunt_result_t *result);

/*
 * Requests. A function that reports a request as done frees it and sets *req to NULL; NULL requests count as
 * done. The status that is returned is the request's own; `result` (may be NULL) has the details. One request
 * may be waited for by one thread at a time. A request outlives its communicator, but not its context.
 *
 *   test      SHUNT_IN_PROGRESS while it runs; never blocks
 *   wait      blocks; bounded, since every operation ends at the latest SHUNT_PEER_TIMEOUT after its peer is lost
 *   wait_all  returns the first error among them, after all are done; `results` (may be NULL) has n entries
 *   wait_any  blocks until one is done, sets *index; *index = -1 when all are NULL
 *   wait_some blocks until at least one is done; sets *n_done and the first *n_done entries of `indices`
 *   cancel    takes back a receive that has not been matched; then wait ends with SHUNT_ERR_CANCELED. A receive
 *             that was matched goes on and ends as usual. Sends can't be cancelled (SHUNT_ERR_UNSUPPORTED).
 */
SHUNT_API shunt_status_t shunt_test(shunt_request_t **req, shunt_result_t *result);
SHUNT_API shunt_status_t shunt_wait(shunt_request_t **req, shunt_result_t *result);
SHUNT_API shunt_status_t shunt_wait_all(shunt_request_t **reqs, int n, shunt_result_t *results);
SHUNT_API shunt_status_t shunt_wait_any(shunt_request_t **reqs, int n, int *index, shunt_result_t *result);
SHUNT_API shunt_status_t shunt_wait_some(shunt_request_t **reqs, int n, int *indices, int *n_done,
                                         shunt_result_t *results);
SHUNT_API shunt_status_t shunt_cancel(shunt_request_t *req);

#ifdef __cplusplus
}
#endif
#endif
