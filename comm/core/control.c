/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/core/control.h"
#include <stdlib.h>
#include <string.h>
#include "comm/core/engine.h"

void shunt__sync_done(struct shunt__op *op)
{
    ((struct shunt__sync_op *)op)->finished = 1;
    if (op->comm->ctx->cond_waiters)
        pthread_cond_broadcast(&op->comm->ctx->cond);
}

static shunt_status_t exchange(struct shunt_comm *comm, const void *send, void *recv, size_t n, int to, int from, int tag,
                               const char *what)
{
    struct shunt__sync_op s = {.finished = 0}, r = {.finished = 0};
    struct shunt__op *bad;
    char text[512];

    shunt__lock(comm->ctx);
    shunt__op_recv(&r.op, comm, SHUNT__CHANNEL_CONTROL, recv, n, from, tag, shunt__sync_done);
    shunt__op_send(&s.op, comm, SHUNT__CHANNEL_CONTROL, send, n, to, tag, shunt__sync_done);
    shunt__progress_kick(comm->ctx);
    shunt__progress_until(comm->ctx, &r.finished, 0);
    shunt__progress_until(comm->ctx, &s.finished, 0);
    shunt__unlock(comm->ctx);
    bad = r.op.status != SHUNT_OK ? &r.op : s.op.status != SHUNT_OK ? &s.op : NULL;
    if (!bad)
        return SHUNT_OK;
    shunt__op_describe(bad, text, sizeof(text));
    return shunt__fail(bad->status, "%s: %s", what, text);
}

shunt_status_t shunt__control_allgather(struct shunt_comm *comm, const void *mine, size_t len, void *all,
                                        const char *what)
{
    int n = comm->size, rank = comm->rank, have = 1;
    char *blocks = malloc((size_t)n * len); /* block i is rank (rank + i) % n's */
    shunt_status_t st = SHUNT_OK;

    if (!blocks)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for %d ranks", n);
    memcpy(blocks, mine, len);
    while (have < n && st == SHUNT_OK) {
        int count = have < n - have ? have : n - have;
        st = exchange(comm, blocks, blocks + (size_t)have * len, (size_t)count * len, (rank - have + n) % n,
                      (rank + have) % n, 0, what);
        have += count;
    }
    for (int i = 0; i < n && st == SHUNT_OK; i++)
        memcpy((char *)all + (size_t)((rank + i) % n) * len, blocks + (size_t)i * len, len);
    free(blocks);
    return st;
}
