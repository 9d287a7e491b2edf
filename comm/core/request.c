/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: what the public interface hands out for an operation, and the waiting for them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/core/engine.h"

struct shunt_request {
    struct shunt__op op; /* first */
    struct shunt_context *ctx;
    const char *what;
    int finished;
    int *notify; /* of a thread that waits for several: set when this one has finished */
    int rank; /* own */
    uint64_t comm_id;
    shunt_status_t status;
    char *text;
};

/* calloc() passes the allocator's per-thread cache by. */
static void clear(struct shunt_request *req, struct shunt_comm *comm, const char *what)
{
    memset(req, 0, sizeof(*req));
    req->ctx = comm->ctx;
    req->what = what;
    req->rank = comm->rank;
    req->comm_id = comm->id;
    req->op.kind = SHUNT__OP_COLL;
    req->op.comm = comm;
    req->op.peer = -1;
    req->op.start = comm->ctx->now;
    req->op.message = UINT64_MAX;
    req->op.status = SHUNT_IN_PROGRESS;
    shunt__list_init(&req->op.node);
}

struct shunt__op *shunt__request_op(struct shunt_request *req)
{
    return &req->op;
}

struct shunt_request *shunt__request_new(struct shunt_comm *comm, const char *what)
{
    struct shunt_request *req = malloc(sizeof(*req));

    if (req)
        clear(req, comm, what);
    return req;
}

void shunt__request_drop(struct shunt_request *req)
{
    if (!req)
        return;
    free(req->text);
    free(req);
}

void shunt__request_finish(struct shunt_request *req, shunt_status_t status, const char *fmt, ...)
{
    if (fmt) {
        char text[512];
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        req->text = strdup(text);
    }
    req->status = status;
    if (req->notify)
        *req->notify = 1;
    __atomic_store_n(&req->finished, 1, __ATOMIC_RELEASE);
    if (req->ctx->cond_waiters)
        pthread_cond_broadcast(&req->ctx->cond);
}

void shunt__op_describe(const struct shunt__op *op, char *text, size_t len)
{
    const struct shunt_comm *comm = op->comm;
    const struct shunt__peer *peer = op->peer >= 0 && op->peer < comm->size ? comm->peers[op->peer] : NULL;
    char number[32] = "";

    if (op->message != UINT64_MAX)
        snprintf(number, sizeof(number), " #%llu", (unsigned long long)op->message);
    snprintf(text, len, "%s%s of communicator %04x, rank %d %s rank %d (%s), tag %d, after %.3f s: %s%s%s",
             op->kind == SHUNT__OP_SEND ? "send" : "receive", number, (unsigned)(comm->id >> 48), comm->rank,
             op->kind == SHUNT__OP_SEND ? "to" : "from", op->peer, peer ? shunt__peer_name(peer) : "itself", op->tag,
             (double)(shunt__now() - op->start) / 1e9, shunt_status_text(op->status), op->why ? ": " : "",
             op->why ? op->why : "");
}

static void p2p_done(struct shunt__op *op)
{
    struct shunt_request *req = (struct shunt_request *)op;

    if (op->status != SHUNT_OK) {
        char text[512];
        shunt__op_describe(op, text, sizeof(text));
        if (op->status == SHUNT_ERR_TRUNCATED)
            shunt__request_finish(req, op->status, "%s (%zu bytes)", text, op->bytes);
        else
            shunt__request_finish(req, op->status, "%s", text);
    } else
        shunt__request_finish(req, SHUNT_OK, NULL);
}

static shunt_status_t check(const shunt_comm_t *comm, const void *buf, size_t bytes, int peer, int tag, int any,
                            const char *what)
{
    if (!comm)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: the communicator is NULL", what);
    if (peer < 0 || peer >= comm->size)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: rank %d is not in 0..%d", what, peer, comm->size - 1);
    if (!buf && bytes)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: the buffer of %zu bytes is NULL", what, bytes);
    if (bytes > (uint64_t)1 << 48)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: %zu bytes are more than a message can have (2^48)", what, bytes);
    if ((tag < 0 && !(any && tag == SHUNT_TAG_ANY)) || tag > SHUNT_TAG_MAX)
        return shunt__fail(SHUNT_ERR_INVALID, "%s: tag %d is not in 0..%d", what, tag, SHUNT_TAG_MAX);
    return SHUNT_OK;
}

static void launch(struct shunt_request *req, shunt_comm_t *comm, int is_send, void *buf, size_t bytes, int peer, int tag)
{
    if (is_send)
        shunt__op_send(&req->op, comm, SHUNT__CHANNEL_USER, buf, bytes, peer, tag, p2p_done);
    else
        shunt__op_recv(&req->op, comm, SHUNT__CHANNEL_USER, buf, bytes, peer, tag, p2p_done);
    shunt__progress_kick(comm->ctx);
}

static shunt_status_t post(shunt_comm_t *comm, int is_send, void *buf, size_t bytes, int peer, int tag,
                           shunt_request_t **out)
{
    struct shunt_request *req;
    shunt_status_t st = check(comm, buf, bytes, peer, tag, !is_send, is_send ? "send" : "receive");

    if (st == SHUNT_OK && !out)
        st = shunt__fail(SHUNT_ERR_INVALID, "%s: no place for the request (NULL)", is_send ? "isend" : "irecv");
    if (st != SHUNT_OK)
        return st;
    shunt__lock(comm->ctx);
    req = shunt__request_new(comm, is_send ? "send" : "receive");
    if (!req) {
        shunt__unlock(comm->ctx);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a request");
    }
    launch(req, comm, is_send, buf, bytes, peer, tag);
    *out = req;
    shunt__unlock(comm->ctx);
    return SHUNT_OK;
}

shunt_status_t shunt_isend(shunt_comm_t *comm, const void *buf, size_t bytes, int peer, int tag, shunt_request_t **req)
{
    return post(comm, 1, (void *)(uintptr_t)buf, bytes, peer, tag, req);
}

shunt_status_t shunt_irecv(shunt_comm_t *comm, void *buf, size_t bytes, int peer, int tag, shunt_request_t **req)
{
    return post(comm, 0, buf, bytes, peer, tag, req);
}

static shunt_status_t result_of(const struct shunt_request *req, shunt_result_t *result)
{
    shunt_status_t st = req->status;

    if (result) {
        result->status = st;
        result->peer = req->op.peer;
        result->tag = req->op.tag;
        result->bytes = req->op.bytes;
        snprintf(result->text, sizeof(result->text), "%s", req->text ? req->text : "");
    }
    if (st != SHUNT_OK)
        shunt__fail(st, "%s", req->text ? req->text : shunt_status_text(st));
    return st;
}

/* Hands out the result of a finished request and frees it. */
static shunt_status_t reap(shunt_request_t **reqp, shunt_result_t *result)
{
    shunt_status_t st = result_of(*reqp, result);

    shunt__request_drop(*reqp);
    *reqp = NULL;
    return st;
}

static void nothing(shunt_result_t *result)
{
    if (!result)
        return;
    memset(result, 0, sizeof(*result));
    result->peer = -1;
}

shunt_status_t shunt_test(shunt_request_t **req, shunt_result_t *result)
{
    struct shunt_context *ctx;
    int finished;

    if (!req)
        return shunt__fail(SHUNT_ERR_INVALID, "test: no request (NULL)");
    if (!*req) {
        nothing(result);
        return SHUNT_OK;
    }
    ctx = (*req)->ctx;
    shunt__lock(ctx);
    ctx->calls++;
    if (!(*req)->finished && !ctx->polling)
        shunt__progress(ctx);
    finished = (*req)->finished;
    shunt__unlock(ctx);
    return finished ? reap(req, result) : SHUNT_IN_PROGRESS;
}

shunt_status_t shunt_wait(shunt_request_t **req, shunt_result_t *result)
{
    struct shunt_context *ctx;

    if (!req)
        return shunt__fail(SHUNT_ERR_INVALID, "wait: no request (NULL)");
    if (!*req) {
        nothing(result);
        return SHUNT_OK;
    }
    ctx = (*req)->ctx;
    shunt__lock(ctx);
    shunt__progress_until(ctx, &(*req)->finished, 0);
    shunt__unlock(ctx);
    return reap(req, result);
}

shunt_status_t shunt_wait_all(shunt_request_t **reqs, int n, shunt_result_t *results)
{
    shunt_status_t first = SHUNT_OK;
    char text[1024] = "";

    if (n < 0 || (n && !reqs))
        return shunt__fail(SHUNT_ERR_INVALID, "wait_all: %d requests at %p", n, (void *)reqs);
    for (int i = 0; i < n; i++) {
        shunt_status_t st = shunt_wait(&reqs[i], results ? &results[i] : NULL);
        if (st != SHUNT_OK && first == SHUNT_OK) {
            first = st;
            snprintf(text, sizeof(text), "%s", shunt_error_text());
        }
    }
    return first == SHUNT_OK ? SHUNT_OK : shunt__fail(first, "%s", text);
}

/* Sleeps until one of the requests, all of one context, has finished. */
static void wait_in_context(struct shunt_context *ctx, shunt_request_t **reqs, int n)
{
    int flag = 0;

    shunt__lock(ctx);
    for (int i = 0; i < n; i++)
        if (reqs[i]) {
            flag |= reqs[i]->finished;
            reqs[i]->notify = &flag;
        }
    shunt__progress_until(ctx, &flag, 0);
    for (int i = 0; i < n; i++)
        if (reqs[i])
            reqs[i]->notify = NULL;
    shunt__unlock(ctx);
}

/* Blocks until one of the requests has finished; nonzero when all are NULL. Requests may belong to several contexts. */
static int wait_for_any(shunt_request_t **reqs, int n)
{
    for (;;) {
        struct shunt_context *ctx = NULL;
        int several = 0;
        for (int i = 0; i < n; i++) {
            if (!reqs[i])
                continue;
            if (__atomic_load_n(&reqs[i]->finished, __ATOMIC_ACQUIRE))
                return 0;
            several |= ctx && ctx != reqs[i]->ctx;
            ctx = reqs[i]->ctx;
        }
        if (!ctx)
            return 1;
        if (!several)
            wait_in_context(ctx, reqs, n);
        for (int i = 0; i < n && several; i++) {
            if (!reqs[i])
                continue;
            shunt__lock(reqs[i]->ctx);
            shunt__progress_until(reqs[i]->ctx, &reqs[i]->finished, shunt__now() + 50 * SHUNT__US); /* a slice on each */
            shunt__unlock(reqs[i]->ctx);
        }
    }
}

shunt_status_t shunt_wait_any(shunt_request_t **reqs, int n, int *index, shunt_result_t *result)
{
    if (n < 0 || (n && !reqs) || !index)
        return shunt__fail(SHUNT_ERR_INVALID, "wait_any: %d requests at %p, index %p", n, (void *)reqs, (void *)index);
    if (wait_for_any(reqs, n)) {
        *index = -1;
        nothing(result);
        return SHUNT_OK;
    }
    for (int i = 0; i < n; i++)
        if (reqs[i] && __atomic_load_n(&reqs[i]->finished, __ATOMIC_ACQUIRE)) {
            shunt__lock(reqs[i]->ctx); /* whoever finished it has let go of it */
            shunt__unlock(reqs[i]->ctx);
            *index = i;
            return reap(&reqs[i], result);
        }
    return SHUNT_ERR_INTERNAL;
}

shunt_status_t shunt_wait_some(shunt_request_t **reqs, int n, int *indices, int *n_done, shunt_result_t *results)
{
    shunt_status_t first = SHUNT_OK;
    char text[1024] = "";
    int k = 0;

    if (n < 0 || (n && !reqs) || !indices || !n_done)
        return shunt__fail(SHUNT_ERR_INVALID, "wait_some: %d requests at %p, indices %p", n, (void *)reqs,
                           (void *)indices);
    if (!wait_for_any(reqs, n)) {
        for (int i = 0; i < n; i++) {
            if (!reqs[i] || !__atomic_load_n(&reqs[i]->finished, __ATOMIC_ACQUIRE))
                continue;
            shunt__lock(reqs[i]->ctx);
            shunt__unlock(reqs[i]->ctx);
            shunt_status_t st = reap(&reqs[i], results ? &results[k] : NULL);
            if (st != SHUNT_OK && first == SHUNT_OK) {
                first = st;
                snprintf(text, sizeof(text), "%s", shunt_error_text());
            }
            indices[k++] = i;
        }
    }
    *n_done = k;
    return first == SHUNT_OK ? SHUNT_OK : shunt__fail(first, "%s", text);
}

shunt_status_t shunt_cancel(shunt_request_t *req)
{
    shunt_status_t st = SHUNT_OK;

    if (!req)
        return SHUNT_OK;
    shunt__lock(req->ctx);
    if (req->op.kind != SHUNT__OP_RECV)
        st = shunt__fail(SHUNT_ERR_UNSUPPORTED, "cancel: a %s can't be cancelled", req->what);
    else if (!req->finished)
        shunt__op_cancel_recv(&req->op, SHUNT_ERR_CANCELED);
    shunt__progress_kick(req->ctx);
    shunt__unlock(req->ctx);
    return st;
}

/* ---- the blocking forms ---- */

/* Post and wait with the lock taken once, and a request that needs no memory. */
static shunt_status_t complete(shunt_comm_t *comm, int is_send, void *buf, size_t bytes, int peer, int tag,
                               shunt_result_t *result)
{
    struct shunt_request req;
    shunt_status_t st = check(comm, buf, bytes, peer, tag, !is_send, is_send ? "send" : "receive");

    if (st != SHUNT_OK)
        return st;
    shunt__lock(comm->ctx);
    clear(&req, comm, is_send ? "send" : "receive");
    launch(&req, comm, is_send, buf, bytes, peer, tag);
    shunt__progress_until(comm->ctx, &req.finished, 0);
    shunt__unlock(comm->ctx);
    st = result_of(&req, result);
    free(req.text);
    return st;
}

shunt_status_t shunt_send(shunt_comm_t *comm, const void *buf, size_t bytes, int peer, int tag)
{
    return complete(comm, 1, (void *)(uintptr_t)buf, bytes, peer, tag, NULL);
}

shunt_status_t shunt_recv(shunt_comm_t *comm, void *buf, size_t bytes, int peer, int tag, shunt_result_t *result)
{
    return complete(comm, 0, buf, bytes, peer, tag, result);
}

shunt_status_t shunt_sendrecv(shunt_comm_t *comm, const void *sendbuf, size_t sendbytes, int dest, int sendtag,
                              void *recvbuf, size_t recvbytes, int source, int recvtag, shunt_result_t *result)
{
    shunt_request_t *reqs[2] = {NULL, NULL};
    shunt_result_t results[2];
    shunt_status_t st = shunt_irecv(comm, recvbuf, recvbytes, source, recvtag, &reqs[0]);

    if (st != SHUNT_OK)
        return st;
    st = shunt_isend(comm, sendbuf, sendbytes, dest, sendtag, &reqs[1]);
    if (st != SHUNT_OK) {
        shunt_cancel(reqs[0]);
        shunt_wait(&reqs[0], NULL);
        return st;
    }
    st = shunt_wait_all(reqs, 2, results);
    if (result)
        *result = results[0];
    return st;
}
