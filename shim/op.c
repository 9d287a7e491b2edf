/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives, send and receive: the checks of a call, and how the engine is asked. */
#include <stdlib.h>
#include <string.h>
#include "shim/shim.h"

/* ---- starting ---- */

static shunt_status_t start_reduction(const struct shim__engine *engine, struct shim__task *t, shunt_op_t op)
{
    shunt_comm_t *comm = t->comm->comm;
    shunt_type_t type = (shunt_type_t)t->type;

    if (t->kind == SHIM_ALLREDUCE)
        return engine->iallreduce(comm, t->send, t->recv, t->count, type, op, &t->request);
    if (t->kind == SHIM_REDUCE)
        return engine->ireduce(comm, t->send, t->recv, t->count, type, op, t->peer, &t->request);
    return engine->ireduce_scatter(comm, t->send, t->recv, t->count, type, op, &t->request);
}

/* A scalar in memory is read now; the engine's operator lives for the one call. */
static shunt_status_t start_scaled(const struct shim__engine *engine, struct shim__task *t)
{
    const void *scalar = t->scalar.residence == ncclScalarDevice ? t->scalar.pointer : t->scalar.value;
    shunt_op_t op;
    shunt_status_t status = engine->op_create_premul_sum(t->comm->comm, scalar, (shunt_type_t)t->type, &op);

    if (status != SHUNT_OK)
        return status;
    status = start_reduction(engine, t, op);
    engine->op_destroy(t->comm->comm, op);
    return status;
}

shunt_status_t shim__start(struct shim__task *t)
{
    const struct shim__engine *engine = shim__engine();
    shunt_comm_t *comm = t->comm->comm;
    shunt_type_t type = (shunt_type_t)t->type;
    size_t bytes = t->count * engine->type_size(type);

    switch (t->kind) {
    case SHIM_ALLREDUCE:
    case SHIM_REDUCE:
    case SHIM_REDUCE_SCATTER:
        return t->premul ? start_scaled(engine, t) : start_reduction(engine, t, (shunt_op_t)t->op);
    case SHIM_ALLGATHER:
        return engine->iallgather(comm, t->send, t->recv, t->count, type, &t->request);
    case SHIM_BROADCAST:
        return engine->ibroadcast(comm, t->send, t->recv, t->count, type, t->peer, &t->request);
    case SHIM_GATHER:
        return engine->igather(comm, t->send, t->recv, t->count, type, t->peer, &t->request);
    case SHIM_SCATTER:
        return engine->iscatter(comm, t->send, t->recv, t->count, type, t->peer, &t->request);
    case SHIM_ALLTOALL:
        return engine->ialltoall(comm, t->send, t->recv, t->count, type, &t->request);
    case SHIM_ALLTOALLV:
        return engine->ialltoallv(comm, t->send, t->counts[0], t->counts[1], t->recv, t->counts[2], t->counts[3], type,
                                  &t->request);
    case SHIM_SEND:
        return engine->isend(comm, t->send, bytes, t->peer, 0, &t->request);
    case SHIM_RECV:
        return engine->irecv(comm, t->recv, bytes, t->peer, 0, &t->request);
    case SHIM_JOB:
        break;
    }
    return SHUNT_ERR_INTERNAL;
}

/* ---- checking ---- */

static const char *const names[] = {"AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Reduce", "Gather",
                                    "Scatter", "AlltoAll", "AllToAllv", "Send", "Recv"};

static ncclResult_t check_op(struct shim__task *t)
{
    ncclResult_t result = ncclSuccess;
    unsigned index = (unsigned)t->op - ncclNumOps;

    if ((unsigned)t->op < ncclNumOps)
        return ncclSuccess;
    pthread_mutex_lock(&t->comm->lock);
    if (index >= (unsigned)t->comm->n_premuls || !t->comm->premuls[index].used) {
        result = shim__fail(ncclInvalidArgument, "%s: %d is no operator of this communicator", names[t->kind], (int)t->op);
    } else if (t->comm->premuls[index].type != t->type) {
        result = shim__fail(ncclInvalidArgument, "%s: the operator is for type %d, the data are of type %d",
                            names[t->kind], (int)t->comm->premuls[index].type, (int)t->type);
    } else {
        t->premul = 1;
        t->scalar = t->comm->premuls[index];
    }
    pthread_mutex_unlock(&t->comm->lock);
    return result;
}

static ncclResult_t check(struct shim__task *t)
{
    int rooted = t->kind == SHIM_BROADCAST || t->kind == SHIM_REDUCE || t->kind == SHIM_GATHER ||
                 t->kind == SHIM_SCATTER || t->kind == SHIM_SEND || t->kind == SHIM_RECV;

    if ((unsigned)t->type >= ncclNumTypes)
        return shim__fail(ncclInvalidArgument, "%s: %d is no data type", names[t->kind], (int)t->type);
    if (rooted && (t->peer < 0 || t->peer >= t->comm->size))
        return shim__fail(ncclInvalidArgument, "%s: rank %d of %d", names[t->kind], t->peer, t->comm->size);
    if (t->count > SIZE_MAX / 8 / (size_t)t->comm->size)
        return shim__fail(ncclInvalidArgument, "%s: a count of %zu", names[t->kind], t->count);
    if (t->kind == SHIM_ALLTOALLV && (!t->counts[0] || !t->counts[1] || !t->counts[2] || !t->counts[3]))
        return shim__fail(ncclInvalidArgument, "AllToAllv: counts or displacements are NULL");
    return check_op(t);
}

static ncclResult_t call(struct shim__task t)
{
    ncclResult_t result = shim__comm_enter(t.comm, 0);

    if (result != ncclSuccess)
        return shim__called(result);
    t.generation = t.comm->generation;
    result = check(&t);
    if (result == ncclSuccess)
        result = shim__submit(&t);
    shim__comm_leave(t.comm);
    return shim__called(result);
}

/* ---- the calls ---- */

#define CALL(...) call((struct shim__task){__VA_ARGS__})

ncclResult_t pncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream)
{
    SHIM_FORWARD(AllReduce, (send, recv, count, type, op, comm, stream));
    return CALL(.kind = SHIM_ALLREDUCE, .send = send, .recv = recv, .count = count, .type = type, .op = op,
                .comm = comm, .stream = stream);
}
SHIM_EXPORT(AllReduce);

ncclResult_t pncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                ncclComm_t comm, cudaStream_t stream)
{
    SHIM_FORWARD(ReduceScatter, (send, recv, count, type, op, comm, stream));
    return CALL(.kind = SHIM_REDUCE_SCATTER, .send = send, .recv = recv, .count = count, .type = type, .op = op,
                .comm = comm, .stream = stream);
}
SHIM_EXPORT(ReduceScatter);

ncclResult_t pncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                         ncclComm_t comm, cudaStream_t stream)
{
    SHIM_FORWARD(Reduce, (send, recv, count, type, op, root, comm, stream));
    return CALL(.kind = SHIM_REDUCE, .send = send, .recv = recv, .count = count, .type = type, .op = op, .peer = root,
                .comm = comm, .stream = stream);
}
SHIM_EXPORT(Reduce);

ncclResult_t pncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                            cudaStream_t stream)
{
    SHIM_FORWARD(Broadcast, (send, recv, count, type, root, comm, stream));
    return CALL(.kind = SHIM_BROADCAST, .send = send, .recv = recv, .count = count, .type = type, .peer = root,
                .comm = comm, .stream = stream);
}
SHIM_EXPORT(Broadcast);

ncclResult_t pncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    SHIM_FORWARD(Bcast, (buffer, count, type, root, comm, stream));
    return CALL(.kind = SHIM_BROADCAST, .send = buffer, .recv = buffer, .count = count, .type = type, .peer = root,
                .comm = comm, .stream = stream);
}
SHIM_EXPORT(Bcast);

ncclResult_t pncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream)
{
    SHIM_FORWARD(AllGather, (send, recv, count, type, comm, stream));
    return CALL(.kind = SHIM_ALLGATHER, .send = send, .recv = recv, .count = count, .type = type, .comm = comm,
                .stream = stream);
}
SHIM_EXPORT(AllGather);

ncclResult_t pncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    SHIM_FORWARD(AlltoAll, (send, recv, count, type, comm, stream));
    return CALL(.kind = SHIM_ALLTOALL, .send = send, .recv = recv, .count = count, .type = type, .comm = comm,
                .stream = stream);
}
SHIM_EXPORT(AlltoAll);

ncclResult_t pncclAllToAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    SHIM_FORWARD(AllToAll, (send, recv, count, type, comm, stream));
    return CALL(.kind = SHIM_ALLTOALL, .send = send, .recv = recv, .count = count, .type = type, .comm = comm,
                .stream = stream);
}
SHIM_EXPORT(AllToAll);

ncclResult_t pncclAllToAllv(const void *send, const size_t sendcounts[], const size_t senddispls[], void *recv,
                            const size_t recvcounts[], const size_t recvdispls[], ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream)
{
    SHIM_FORWARD(AllToAllv, (send, sendcounts, senddispls, recv, recvcounts, recvdispls, type, comm, stream));
    return CALL(.kind = SHIM_ALLTOALLV, .send = send, .recv = recv, .type = type, .comm = comm, .stream = stream,
                .counts = {sendcounts, senddispls, recvcounts, recvdispls});
}
SHIM_EXPORT(AllToAllv);

ncclResult_t pncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream)
{
    SHIM_FORWARD(Gather, (send, recv, count, type, root, comm, stream));
    return CALL(.kind = SHIM_GATHER, .send = send, .recv = recv, .count = count, .type = type, .peer = root,
                .comm = comm, .stream = stream);
}
SHIM_EXPORT(Gather);

ncclResult_t pncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                          cudaStream_t stream)
{
    SHIM_FORWARD(Scatter, (send, recv, count, type, root, comm, stream));
    return CALL(.kind = SHIM_SCATTER, .send = send, .recv = recv, .count = count, .type = type, .peer = root,
                .comm = comm, .stream = stream);
}
SHIM_EXPORT(Scatter);

ncclResult_t pncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       cudaStream_t stream)
{
    SHIM_FORWARD(Send, (send, count, type, peer, comm, stream));
    return CALL(.kind = SHIM_SEND, .send = send, .count = count, .type = type, .peer = peer, .comm = comm,
                .stream = stream);
}
SHIM_EXPORT(Send);

ncclResult_t pncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    SHIM_FORWARD(Recv, (recv, count, type, peer, comm, stream));
    return CALL(.kind = SHIM_RECV, .recv = recv, .count = count, .type = type, .peer = peer, .comm = comm,
                .stream = stream);
}
SHIM_EXPORT(Recv);

/* ---- operators ---- */

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                       ncclScalarResidence_t residence, ncclComm_t comm)
{
    struct shim__premul made = {.used = 1, .type = type, .residence = residence, .pointer = scalar};
    ncclResult_t result;
    int i;

    SHIM_FORWARD(RedOpCreatePreMulSum, (op, scalar, type, residence, comm));
    result = shim__comm_enter(comm, 0);
    if (result != ncclSuccess)
        return shim__called(result);
    if (!op || !scalar || (unsigned)type >= ncclNumTypes ||
        (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)) {
        shim__comm_leave(comm);
        return shim__called(shim__fail(ncclInvalidArgument, "RedOpCreatePreMulSum: a pointer is NULL, or type %d or "
                                       "residence %d is none", (int)type, (int)residence));
    }
    if (residence == ncclScalarHostImmediate)
        memcpy(made.value, scalar, shim__engine()->type_size((shunt_type_t)type));
    pthread_mutex_lock(&comm->lock);
    for (i = 0; i < comm->n_premuls && comm->premuls[i].used; i++)
        ;
    if (i == comm->n_premuls) {
        struct shim__premul *more = realloc(comm->premuls, (size_t)(2 * i + 8) * sizeof(*more));
        if (more) {
            memset(more + i, 0, (size_t)(i + 8) * sizeof(*more));
            comm->premuls = more;
            comm->n_premuls = 2 * i + 8;
        } else {
            result = shim__fail(ncclSystemError, "no memory for an operator");
        }
    }
    if (result == ncclSuccess) {
        comm->premuls[i] = made;
        *op = (ncclRedOp_t)(ncclNumOps + i);
    }
    pthread_mutex_unlock(&comm->lock);
    shim__comm_leave(comm);
    return shim__called(result);
}
SHIM_EXPORT(RedOpCreatePreMulSum);

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    unsigned index = (unsigned)op - ncclNumOps;
    ncclResult_t result;

    SHIM_FORWARD(RedOpDestroy, (op, comm));
    result = shim__comm_enter(comm, 0);
    if (result != ncclSuccess)
        return shim__called(result);
    pthread_mutex_lock(&comm->lock);
    if ((unsigned)op < ncclNumOps || index >= (unsigned)comm->n_premuls || !comm->premuls[index].used)
        result = shim__fail(ncclInvalidArgument, "RedOpDestroy: %d is no operator of this communicator", (int)op);
    else
        comm->premuls[index].used = 0;
    pthread_mutex_unlock(&comm->lock);
    shim__comm_leave(comm);
    return shim__called(result);
}
SHIM_EXPORT(RedOpDestroy);
