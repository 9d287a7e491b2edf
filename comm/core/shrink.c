/* SPDX-License-Identifier: BSD-3-Clause */
/* Membership: shrink to the survivors, grow by newcomers. */
#include <stdlib.h>
#include <string.h>
#include "comm/core/agree.h"
#include "comm/core/control.h"
#include "comm/core/engine.h"

static shunt_status_t build(struct shunt_comm *comm, const int *ranks, int n, struct shunt_comm **out)
{
    struct shunt__peer **peers = calloc((size_t)n, sizeof(*peers));
    unsigned char seed[16];
    uint32_t sum = 0x53480000u;
    int rank = -1;

    if (!peers)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", n);
    for (int i = 0; i < n; i++) {
        peers[i] = comm->peers[ranks[i]];
        sum = sum * 31 + (uint32_t)ranks[i];
        if (ranks[i] == comm->rank)
            rank = i;
    }
    shunt__comm_child_seed(comm, -2, sum, seed);
    *out = shunt__comm_new(comm->ctx, seed, comm->epoch + 1, rank, n, peers);
    free(peers);
    return *out ? SHUNT_OK : shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", n);
}

shunt_status_t shunt_comm_shrink(shunt_comm_t *comm, const int *exclude, int n_exclude, shunt_comm_t **out)
{
    struct shunt_comm *next = NULL;
    struct shunt__agree *a;
    const int *ranks;
    shunt_status_t st;
    int n;

    if (!comm || !out || n_exclude < 0 || (n_exclude && !exclude))
        return shunt__fail(SHUNT_ERR_INVALID, "comm_shrink: an argument is NULL or negative");
    for (int i = 0; i < n_exclude; i++)
        if (exclude[i] < 0 || exclude[i] >= comm->size)
            return shunt__fail(SHUNT_ERR_INVALID, "comm_shrink: rank %d to exclude is not in 0..%d", exclude[i],
                               comm->size - 1);
    shunt_comm_revoke(comm);
    shunt__lock(comm->ctx);
    if (comm->state == SHUNT_ERR_ABORTED) {
        st = shunt__fail(SHUNT_ERR_ABORTED, "comm_shrink: %s", comm->why);
        goto out;
    }
    a = shunt__agree_start(comm, exclude, n_exclude);
    if (!a) {
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the agreement of %d ranks", comm->size);
        goto out;
    }
    shunt__progress_kick(comm->ctx);
    while (!*shunt__agree_done(a) && comm->state != SHUNT_ERR_ABORTED)
        shunt__progress_until(comm->ctx, shunt__agree_done(a), shunt__now() + 10 * SHUNT__MS);
    st = *shunt__agree_done(a) ? shunt__agree_result(a, &ranks, &n)
                               : shunt__fail(SHUNT_ERR_ABORTED, "comm_shrink: %s", comm->why);
    if (st == SHUNT_OK)
        st = build(comm, ranks, n, &next);
out:
    shunt__unlock(comm->ctx);
    if (st == SHUNT_OK)
        *out = next;
    return st;
}

shunt_status_t shunt_comm_grow(shunt_comm_t *comm, shunt_context_t *ctx, const shunt_id_t *id, int rank, int size,
                               shunt_comm_t **out)
{
    if (comm && (rank != comm->rank || size <= comm->size))
        return shunt__fail(SHUNT_ERR_INVALID, "comm_grow: rank %d of %d; a member keeps its rank %d, and the size exceeds %d",
                           rank, size, comm->rank, comm->size);
    return shunt_comm_create(comm ? comm->ctx : ctx, id, rank, size, out);
}
