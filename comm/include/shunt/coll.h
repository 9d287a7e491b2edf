/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt/coll.h - collectives.
 *
 * Every rank of the communicator calls the same collective with the same count, type, operator and root, in the
 * same order per communicator. Counts are in elements. `send` and `recv` are host pointers; in place is as NCCL
 * defines it: send == recv for allreduce, broadcast, reduce, alltoall; send == recv + rank * count elements for
 * allgather and gather (root); recv == send + rank * count elements for reduce_scatter and scatter (root).
 *
 * The order in which elements are combined is a function of the communicator's rank-to-host map, the count, the
 * type and the operator: results repeat to the last bit, whatever the rails do.
 *
 * The blocking form waits; the form with i gives a request for shunt/p2p.h's test and wait functions, and the
 * buffers belong to it until it is done. Errors: INVALID; MISMATCH, naming both ranks and what they passed; PEER,
 * TIMEOUT, REVOKED, ABORTED. After PEER or TIMEOUT the contents of `recv` are undefined and the communicator
 * must be shrunk before its next collective.
 */
#ifndef SHUNT_COLL_H
#define SHUNT_COLL_H

#include <shunt/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shunt_coll {
    SHUNT_COLL_ALLREDUCE = 0,
    SHUNT_COLL_REDUCE_SCATTER,
    SHUNT_COLL_ALLGATHER,
    SHUNT_COLL_BROADCAST,
    SHUNT_COLL_REDUCE,
    SHUNT_COLL_GATHER,
    SHUNT_COLL_SCATTER,
    SHUNT_COLL_ALLTOALL,
    SHUNT_COLL_ALLTOALLV,
    SHUNT_COLL_BARRIER,
    SHUNT_COLL_KINDS
} shunt_coll_t;

/*
 * Writes into `text` which algorithm a call of `kind` with these arguments would take on `comm`, and why: one line,
 * e.g. "direct: 8 ranks on one host, 1048576 bytes". `count` is as in the call itself. Local. Errors: INVALID.
 */
SHUNT_API shunt_status_t shunt_coll_explain(shunt_comm_t *comm, shunt_coll_t kind, size_t count, shunt_type_t type,
                                            shunt_op_t op, char *text, size_t len);

/* recv[i] = op over ranks of send[i]; count elements each. */
SHUNT_API shunt_status_t shunt_allreduce(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                         shunt_type_t type, shunt_op_t op);
SHUNT_API shunt_status_t shunt_iallreduce(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                          shunt_type_t type, shunt_op_t op, shunt_request_t **req);

/* send: size * count elements; recv: this rank's count elements of the combined vector. */
SHUNT_API shunt_status_t shunt_reduce_scatter(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                              shunt_type_t type, shunt_op_t op);
SHUNT_API shunt_status_t shunt_ireduce_scatter(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                               shunt_type_t type, shunt_op_t op, shunt_request_t **req);

/* send: count elements; recv: size * count elements, rank r's at r * count. */
SHUNT_API shunt_status_t shunt_allgather(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                         shunt_type_t type);
SHUNT_API shunt_status_t shunt_iallgather(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                          shunt_type_t type, shunt_request_t **req);

/* recv on every rank = send of root; send is read on root only, recv may be NULL nowhere. */
SHUNT_API shunt_status_t shunt_broadcast(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                         shunt_type_t type, int root);
SHUNT_API shunt_status_t shunt_ibroadcast(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                          shunt_type_t type, int root, shunt_request_t **req);

/* recv on root = op over ranks; recv is ignored elsewhere and may be NULL. */
SHUNT_API shunt_status_t shunt_reduce(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                      shunt_type_t type, shunt_op_t op, int root);
SHUNT_API shunt_status_t shunt_ireduce(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                       shunt_type_t type, shunt_op_t op, int root, shunt_request_t **req);

/* Root's recv (size * count elements) gets rank r's count elements at r * count. */
SHUNT_API shunt_status_t shunt_gather(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                      shunt_type_t type, int root);
SHUNT_API shunt_status_t shunt_igather(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                       shunt_type_t type, int root, shunt_request_t **req);

/* Rank r's recv (count elements) gets root's send at r * count. */
SHUNT_API shunt_status_t shunt_scatter(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                       shunt_type_t type, int root);
SHUNT_API shunt_status_t shunt_iscatter(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                        shunt_type_t type, int root, shunt_request_t **req);

/* recv at r * count = rank r's send at (own rank) * count; both size * count elements. */
SHUNT_API shunt_status_t shunt_alltoall(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                        shunt_type_t type);
SHUNT_API shunt_status_t shunt_ialltoall(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                         shunt_type_t type, shunt_request_t **req);

/*
 * The same with own counts and displacements (elements), arrays of one entry per rank, copied at the call:
 * sendcounts[r] here equals recvcounts[me] on rank r.
 */
SHUNT_API shunt_status_t shunt_alltoallv(shunt_comm_t *comm, const void *send, const size_t *sendcounts,
                                         const size_t *senddispls, void *recv, const size_t *recvcounts,
                                         const size_t *recvdispls, shunt_type_t type);
SHUNT_API shunt_status_t shunt_ialltoallv(shunt_comm_t *comm, const void *send, const size_t *sendcounts,
                                          const size_t *senddispls, void *recv, const size_t *recvcounts,
                                          const size_t *recvdispls, shunt_type_t type, shunt_request_t **req);

/* Returns on no rank before all have called it. */
SHUNT_API shunt_status_t shunt_barrier(shunt_comm_t *comm);
SHUNT_API shunt_status_t shunt_ibarrier(shunt_comm_t *comm, shunt_request_t **req);

/*
 * A pre-multiplied sum: every rank's contribution is multiplied by its own scalar before the addition, in the
 * element type. `scalar` points to one element of `type`, copied at once. The operator belongs to `comm`; it may be
 * destroyed as soon as the last call that uses it has returned (also an asynchronous one).
 */
SHUNT_API shunt_status_t shunt_op_create_premul_sum(shunt_comm_t *comm, const void *scalar, shunt_type_t type,
                                                    shunt_op_t *op);
SHUNT_API shunt_status_t shunt_op_destroy(shunt_comm_t *comm, shunt_op_t op);

#ifdef __cplusplus
}
#endif
#endif
