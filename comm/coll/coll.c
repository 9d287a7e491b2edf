/* SPDX-License-Identifier: BSD-3-Clause */
/* The public functions: every one becomes a shunt__call and goes through start(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "comm/coll/state.h"
#include "comm/reduce/reduce.h"

/* declared by the engine, which is not included here */
void shunt__progress_kick(struct shunt_context *ctx);

/* Elements times ranks times width stays below, so that no size overflows. */
#define MOST_BYTES ((size_t)1 << 48)

/* What is left to do when the last message is in. */
struct ending {
    struct shunt_request *req;
    void *scratch;  /* scaled copy of the contribution */
    void *out;
    size_t count;   /* elements at `out` to be divided by `divisor`, AVG of integers */
    shunt_type_t type;
    int divisor;
};

static void finish(void *arg, shunt_status_t status, const char *why)
{
    struct ending *e = arg;

    if (status == SHUNT_OK && e->divisor)
        shunt__reduce_avg_final(e->type, e->out, e->count, e->divisor);
    if (why)
        shunt__request_finish(e->req, status, "%s", why);
    else
        shunt__request_finish(e->req, status, NULL);
    free(e->scratch);
    free(e);
}

/* ---- arguments ---- */

static int overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a_bytes && b_bytes && (const char *)a < (const char *)b + b_bytes && (const char *)b < (const char *)a + a_bytes;
}

/* Finds out whether the call is in place as NCCL defines it. */
static shunt_status_t check_buffers(struct shunt__call *call, const void *send, const void *recv)
{
    size_t in = shunt__call_in_bytes(call), out = shunt__call_out_bytes(call);
    const char *name = shunt__coll_name(call->kind), *s = send, *r = recv;

    if (in && !send)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: send is NULL", name);
    if (out && !recv)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: recv is NULL", name);
    switch (call->kind) {
    case SHUNT_COLL_ALLGATHER:
    case SHUNT_COLL_GATHER:
        call->in_place = out && s == r + in * (size_t)call->rank;
        break;
    case SHUNT_COLL_REDUCE_SCATTER:
    case SHUNT_COLL_SCATTER:
        call->in_place = in && r == s + out * (size_t)call->rank;
        break;
    default:
        call->in_place = in && out && s == r && call->kind != SHUNT_COLL_ALLTOALLV;
        break;
    }
    if (!call->in_place && overlap(send, in, recv, out))
        return shunt__fail(SHUNT_ERR_INVALID, "%s: send and recv overlap in a way that is not \"in place\"", name);
    return SHUNT_OK;
}

static shunt_status_t check(const struct shunt__call *call)
{
    const char *name = shunt__coll_name(call->kind);

    if (!call->width)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: %d is not a type", name, (int)call->type);
    if (call->count > MOST_BYTES / call->width / (size_t)call->size)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: %zu elements are more than can be (2^48 bytes)", name, call->count);
    if (call->root < 0 || call->root >= call->size)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: root %d is not in 0..%d", name, call->root, call->size - 1);
    if (shunt__coll_reduces(call->kind) && call->op < 0)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: %d is not an operator", name, (int)call->op);
    for (int r = 0; call->send_counts && r < call->size; r++) {
        size_t most = MOST_BYTES / call->width;

        if (call->send_counts[r] > most || call->send_displs[r] > most || call->recv_counts[r] > most ||
            call->recv_displs[r] > most)
            return shunt__fail(SHUNT_ERR_INVALID, "%s: a count or displacement for rank %d is more than 2^48 bytes", name, r);
        if (r == call->rank && call->send_counts[r] != call->recv_counts[r])
            return shunt__fail(SHUNT_ERR_MISMATCH, "%s: rank %d sends %zu elements to itself and receives %zu", name, r,
                               call->send_counts[r], call->recv_counts[r]);
    }
    return SHUNT_OK;
}

/* ---- operators that scale ---- */

/*
 * AVG of floating-point types and pre-multiplied sums: multiplies this rank's contribution, into `recv` where the
 * collective may start from there, else into scratch. Moves *send there.
 */
static shunt_status_t scale(struct shunt_comm *comm, struct shunt__call *call, const void **send, void *recv,
                            struct ending *e)
{
    const struct shunt__operator *op;
    unsigned char scalar[8];
    size_t in = shunt__call_in_bytes(call);
    void *to = recv;

    if (call->op >= SHUNT_N_OPS) {
        shunt_status_t st = SHUNT_OK;
        struct shunt__coll_state *state;

        shunt__lock(shunt__comm_ctx(comm));
        state = shunt__coll_state_of(comm);
        op = state ? shunt__coll_operator(state, call->op) : NULL;
        if (op && op->type == call->type)
            memcpy(scalar, op->scalar, sizeof(scalar));
        else if (op)
            st = shunt__fail(SHUNT_ERR_INVALID, "%s: the pre-multiplied sum was created for %s, the call is of %s",
                             shunt__coll_name(call->kind), shunt_type_name(op->type), shunt_type_name(call->type));
        else
            st = shunt__fail(SHUNT_ERR_INVALID, "%s: %d is no operator that was created on this communicator",
                             shunt__coll_name(call->kind), (int)call->op);
        shunt__unlock(shunt__comm_ctx(comm));
        if (st != SHUNT_OK)
            return st;
    } else if (call->op != SHUNT_AVG || !shunt__reduce_avg_scalar(call->type, call->size, scalar)) {
        return SHUNT_OK;
    }
    if (!in)
        return SHUNT_OK;
    if (call->kind == SHUNT_COLL_ALLREDUCE) {
        call->in_place = 1;
    } else {
        to = e->scratch = malloc(in);
        if (!to)
            return shunt__fail(SHUNT_ERR_NO_MEMORY, "%s: no memory for a scaled copy of %zu bytes",
                               shunt__coll_name(call->kind), in);
        call->in_place = 0;
    }
    shunt__reduce_premul2(call->type, to, *send, in / call->width, scalar);
    *send = to;
    return SHUNT_OK;
}

/* ---- starting ---- */

/* A communicator of one rank, and calls that move nothing. */
static void do_alone(const struct shunt__call *call, const void *send, void *recv)
{
    size_t bytes = shunt__call_out_bytes(call);

    if (call->send_counts)
        memcpy((char *)recv + call->recv_displs[0] * call->width,
               (const char *)send + call->send_displs[0] * call->width, call->send_counts[0] * call->width);
    else if (bytes && send != recv)
        memcpy(recv, send, bytes);
}

static int moves_nothing(const struct shunt__call *call)
{
    return call->count == 0 && call->kind != SHUNT_COLL_BARRIER && call->kind != SHUNT_COLL_ALLTOALLV;
}

/* No messages; but other ranks may think that there are some. */
static shunt_status_t launch_nothing(struct shunt_comm *comm, const struct shunt__call *call, const void *send, void *recv,
                                     struct ending *e)
{
    struct shunt__coll_state *state = shunt__coll_state_of(comm);

    if (!state)
        return SHUNT_ERR_NO_MEMORY;
    shunt__run_pool_note(state->pool, call, shunt__comm_coll_next(comm));
    if (call->size == 1)
        do_alone(call, send, recv);
    finish(e, SHUNT_OK, NULL);
    return SHUNT_OK;
}

static shunt_status_t launch(struct shunt_comm *comm, const struct shunt__call *call, const void *send, void *recv,
                             struct ending *e)
{
    struct shunt__coll_state *state = shunt__coll_state_of(comm);
    struct shunt__run_params p = {.comm = comm, .call = call, .in = send, .out = recv, .finish = finish, .arg = e};
    shunt_status_t st;

    if (!state)
        return SHUNT_ERR_NO_MEMORY;
    p.schedule = shunt__coll_schedule(state, call);
    if (!p.schedule)
        return SHUNT_ERR_NO_MEMORY;
    p.pool = state->pool;
    p.number = shunt__comm_coll_next(comm);
    st = shunt__run_start(&p);
    shunt__schedule_put(p.schedule);
    return st;
}

static shunt_status_t start(struct shunt_comm *comm, struct shunt__call *call, const void *send, void *recv,
                            shunt_request_t **req)
{
    struct shunt_context *ctx = shunt__comm_ctx(comm);
    struct ending *e = NULL;
    struct shunt_request *r;
    shunt_status_t st;

    call->rank = shunt_comm_rank(comm);
    call->size = shunt_comm_size(comm);
    call->width = shunt_type_size(call->type);
    call->host_of = shunt__comm_host_map(comm, &call->hosts);
    st = check(call);
    if (st == SHUNT_OK)
        st = check_buffers(call, send, recv);
    if (st != SHUNT_OK)
        return st;
    e = calloc(1, sizeof(*e));
    if (!e)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "%s: no memory", shunt__coll_name(call->kind));
    *e = (struct ending){.out = recv, .type = call->type};
    if (shunt__coll_reduces(call->kind)) {
        e->count = shunt__call_out_bytes(call) / call->width;
        e->divisor = call->op == SHUNT_AVG ? call->size : 0;
        st = scale(comm, call, &send, recv, e);
    }
    shunt__lock(ctx);
    if (st == SHUNT_OK)
        st = shunt__comm_coll_ready(comm);
    if (st == SHUNT_OK && call->size > 1)
        shunt__health_entered(comm);
    r = st == SHUNT_OK ? shunt__request_new(comm, shunt__coll_name(call->kind)) : NULL;
    if (st == SHUNT_OK && !r)
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "%s: no memory for a request", shunt__coll_name(call->kind));
    e->req = r;
    if (st == SHUNT_OK)
        st = call->size == 1 || moves_nothing(call) ? launch_nothing(comm, call, send, recv, e)
                                                    : launch(comm, call, send, recv, e);
    if (st == SHUNT_OK) {
        *req = r;
        shunt__progress_kick(ctx);
    } else {
        shunt__request_drop(r);
        free(e->scratch);
        free(e);
    }
    shunt__unlock(ctx);
    return st;
}

static shunt_status_t begin(struct shunt_comm *comm, struct shunt__call call, const void *send, void *recv,
                            shunt_request_t **req)
{
    if (!comm)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: the communicator is NULL", shunt__coll_name(call.kind));
    if (!req)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: no place for the request (NULL)", shunt__coll_name(call.kind));
    return start(comm, &call, send, recv, req);
}

static shunt_status_t complete(struct shunt_comm *comm, struct shunt__call call, const void *send, void *recv)
{
    shunt_request_t *req = NULL;
    shunt_status_t st = begin(comm, call, send, recv, &req);

    return st == SHUNT_OK ? shunt_wait(&req, NULL) : st;
}

#define CALL(KIND, ...) \
    (struct shunt__call) \
    { \
        .kind = SHUNT_COLL_##KIND, __VA_ARGS__ \
    }

shunt_status_t shunt_allreduce(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                               shunt_op_t op)
{
    return complete(comm, CALL(ALLREDUCE, .count = count, .type = type, .op = op), send, recv);
}

shunt_status_t shunt_iallreduce(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                                shunt_op_t op, shunt_request_t **req)
{
    return begin(comm, CALL(ALLREDUCE, .count = count, .type = type, .op = op), send, recv, req);
}

shunt_status_t shunt_reduce_scatter(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                                    shunt_op_t op)
{
    return complete(comm, CALL(REDUCE_SCATTER, .count = count, .type = type, .op = op), send, recv);
}

shunt_status_t shunt_ireduce_scatter(shunt_comm_t *comm, const void *send, void *recv, size_t count,
                                     shunt_type_t type, shunt_op_t op, shunt_request_t **req)
{
    return begin(comm, CALL(REDUCE_SCATTER, .count = count, .type = type, .op = op), send, recv, req);
}

shunt_status_t shunt_allgather(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type)
{
    return complete(comm, CALL(ALLGATHER, .count = count, .type = type), send, recv);
}

shunt_status_t shunt_iallgather(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                                shunt_request_t **req)
{
    return begin(comm, CALL(ALLGATHER, .count = count, .type = type), send, recv, req);
}

shunt_status_t shunt_broadcast(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                               int root)
{
    return complete(comm, CALL(BROADCAST, .count = count, .type = type, .root = root), send, recv);
}

shunt_status_t shunt_ibroadcast(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                                int root, shunt_request_t **req)
{
    return begin(comm, CALL(BROADCAST, .count = count, .type = type, .root = root), send, recv, req);
}

shunt_status_t shunt_reduce(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                            shunt_op_t op, int root)
{
    return complete(comm, CALL(REDUCE, .count = count, .type = type, .op = op, .root = root), send, recv);
}

shunt_status_t shunt_ireduce(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                             shunt_op_t op, int root, shunt_request_t **req)
{
    return begin(comm, CALL(REDUCE, .count = count, .type = type, .op = op, .root = root), send, recv, req);
}

shunt_status_t shunt_gather(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                            int root)
{
    return complete(comm, CALL(GATHER, .count = count, .type = type, .root = root), send, recv);
}

shunt_status_t shunt_igather(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                             int root, shunt_request_t **req)
{
    return begin(comm, CALL(GATHER, .count = count, .type = type, .root = root), send, recv, req);
}

shunt_status_t shunt_scatter(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                             int root)
{
    return complete(comm, CALL(SCATTER, .count = count, .type = type, .root = root), send, recv);
}

shunt_status_t shunt_iscatter(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                              int root, shunt_request_t **req)
{
    return begin(comm, CALL(SCATTER, .count = count, .type = type, .root = root), send, recv, req);
}

shunt_status_t shunt_alltoall(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type)
{
    return complete(comm, CALL(ALLTOALL, .count = count, .type = type), send, recv);
}

shunt_status_t shunt_ialltoall(shunt_comm_t *comm, const void *send, void *recv, size_t count, shunt_type_t type,
                               shunt_request_t **req)
{
    return begin(comm, CALL(ALLTOALL, .count = count, .type = type), send, recv, req);
}

shunt_status_t shunt_ialltoallv(shunt_comm_t *comm, const void *send, const size_t *sendcounts,
                                const size_t *senddispls, void *recv, const size_t *recvcounts,
                                const size_t *recvdispls, shunt_type_t type, shunt_request_t **req)
{
    if (!sendcounts || !senddispls || !recvcounts || !recvdispls)
        return shunt__fail(SHUNT_ERR_INVALID, "alltoallv: %s is NULL",
                           !sendcounts ? "sendcounts" : !senddispls ? "senddispls" : !recvcounts ? "recvcounts" : "recvdispls");
    return begin(comm, CALL(ALLTOALLV, .type = type, .send_counts = sendcounts, .send_displs = senddispls,
                            .recv_counts = recvcounts, .recv_displs = recvdispls), send, recv, req);
}

shunt_status_t shunt_alltoallv(shunt_comm_t *comm, const void *send, const size_t *sendcounts, const size_t *senddispls,
                               void *recv, const size_t *recvcounts, const size_t *recvdispls, shunt_type_t type)
{
    shunt_request_t *req = NULL;
    shunt_status_t st = shunt_ialltoallv(comm, send, sendcounts, senddispls, recv, recvcounts, recvdispls, type, &req);

    return st == SHUNT_OK ? shunt_wait(&req, NULL) : st;
}

shunt_status_t shunt_barrier(shunt_comm_t *comm)
{
    return complete(comm, CALL(BARRIER, .type = SHUNT_UINT8), NULL, NULL);
}

shunt_status_t shunt_ibarrier(shunt_comm_t *comm, shunt_request_t **req)
{
    return begin(comm, CALL(BARRIER, .type = SHUNT_UINT8), NULL, NULL, req);
}

shunt_status_t shunt_coll_explain(shunt_comm_t *comm, shunt_coll_t kind, size_t count, shunt_type_t type,
                                  shunt_op_t op, char *text, size_t len)
{
    struct shunt__call call = {.kind = kind, .count = count, .type = type, .op = op};
    shunt_status_t st;

    if (!comm || !text || (unsigned)kind >= SHUNT_COLL_KINDS)
        return shunt__fail(SHUNT_ERR_INVALID, "coll_explain: %s", !comm ? "the communicator is NULL" : !text
                           ? "the text is NULL" : "this is no kind of collective");
    call.rank = shunt_comm_rank(comm);
    call.size = shunt_comm_size(comm);
    call.width = shunt_type_size(type);
    call.host_of = shunt__comm_host_map(comm, &call.hosts);
    st = check(&call);
    if (st != SHUNT_OK)
        return st;
    if (call.size == 1)
        snprintf(text, len, "copy: one rank");
    else
        shunt__coll_choose(&call, text, len);
    return SHUNT_OK;
}
