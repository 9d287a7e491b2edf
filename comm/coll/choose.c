/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which algorithm a call gets. The limits are where the algorithms' times cross on one host with shared memory and on
 * 10 Gbit/s links between hosts; they move results only through the order of additions, so they never depend on
 * anything but the call and the host map.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "comm/coll/coll.h"

#define KIB ((size_t)1024)
/* Up to here one message more costs more than its bytes. */
#define SHORT (8 * KIB)
/* Groups in which everyone may talk to everyone. */
#define FEW 16
#define SEGMENT (128 * KIB)

const struct shunt__algorithm shunt__algorithms[] = {
    {SHUNT_COLL_ALLREDUCE, "doubling", shunt__allreduce_doubling},
    {SHUNT_COLL_ALLREDUCE, "halving", shunt__allreduce_halving},
    {SHUNT_COLL_ALLREDUCE, "ring", shunt__allreduce_ring},
    {SHUNT_COLL_ALLREDUCE, "direct", shunt__allreduce_direct},
    {SHUNT_COLL_ALLREDUCE, "hierarchical", shunt__allreduce_hierarchical},
    {SHUNT_COLL_REDUCE_SCATTER, "direct", shunt__reduce_scatter_direct},
    {SHUNT_COLL_REDUCE_SCATTER, "halving", shunt__reduce_scatter_halving},
    {SHUNT_COLL_REDUCE_SCATTER, "ring", shunt__reduce_scatter_ring},
    {SHUNT_COLL_ALLGATHER, "direct", shunt__allgather_direct},
    {SHUNT_COLL_ALLGATHER, "bruck", shunt__allgather_bruck},
    {SHUNT_COLL_ALLGATHER, "ring", shunt__allgather_ring},
    {SHUNT_COLL_BROADCAST, "tree", shunt__broadcast_tree},
    {SHUNT_COLL_BROADCAST, "chain", shunt__broadcast_chain},
    {SHUNT_COLL_REDUCE, "tree", shunt__reduce_tree},
    {SHUNT_COLL_REDUCE, "direct", shunt__reduce_direct},
    {SHUNT_COLL_REDUCE, "chain", shunt__reduce_chain},
    {SHUNT_COLL_GATHER, "tree", shunt__gather_tree},
    {SHUNT_COLL_GATHER, "direct", shunt__gather_direct},
    {SHUNT_COLL_SCATTER, "tree", shunt__scatter_tree},
    {SHUNT_COLL_SCATTER, "direct", shunt__scatter_direct},
    {SHUNT_COLL_ALLTOALL, "direct", shunt__alltoall_direct},
    {SHUNT_COLL_ALLTOALLV, "direct", shunt__alltoallv_direct},
    {SHUNT_COLL_BARRIER, "dissemination", shunt__barrier_dissemination},
    {SHUNT_COLL_KINDS, NULL, NULL},
};

const struct shunt__algorithm *shunt__algorithm_find(shunt_coll_t kind, const char *name)
{
    for (const struct shunt__algorithm *a = shunt__algorithms; a->name; a++)
        if (a->kind == kind && strcmp(a->name, name) == 0)
            return a;
    return NULL;
}

const char *shunt__coll_name(shunt_coll_t kind)
{
    static const char *const names[SHUNT_COLL_KINDS] = {"allreduce", "reduce_scatter", "allgather", "broadcast",
                                                        "reduce", "gather", "scatter", "alltoall", "alltoallv",
                                                        "barrier"};

    return (unsigned)kind < SHUNT_COLL_KINDS ? names[kind] : "unknown";
}

int shunt__coll_reduces(shunt_coll_t kind)
{
    return kind == SHUNT_COLL_ALLREDUCE || kind == SHUNT_COLL_REDUCE_SCATTER || kind == SHUNT_COLL_REDUCE;
}

int shunt__coll_rooted(shunt_coll_t kind)
{
    return kind == SHUNT_COLL_BROADCAST || kind == SHUNT_COLL_REDUCE || kind == SHUNT_COLL_GATHER ||
           kind == SHUNT_COLL_SCATTER;
}

static size_t extent(const size_t *counts, const size_t *displs, int n)
{
    size_t most = 0;

    for (int i = 0; i < n; i++)
        if (counts[i] && displs[i] + counts[i] > most)
            most = displs[i] + counts[i];
    return most;
}

size_t shunt__call_in_bytes(const struct shunt__call *call)
{
    size_t one = call->count * call->width, all = one * (size_t)call->size;

    switch (call->kind) {
    case SHUNT_COLL_REDUCE_SCATTER:
    case SHUNT_COLL_ALLTOALL:
        return all;
    case SHUNT_COLL_ALLTOALLV:
        return extent(call->send_counts, call->send_displs, call->size) * call->width;
    case SHUNT_COLL_SCATTER:
        return call->rank == call->root ? all : 0;
    case SHUNT_COLL_BROADCAST:
        return call->rank == call->root ? one : 0;
    case SHUNT_COLL_BARRIER:
        return 0;
    default:
        return one;
    }
}

size_t shunt__call_out_bytes(const struct shunt__call *call)
{
    size_t one = call->count * call->width, all = one * (size_t)call->size;

    switch (call->kind) {
    case SHUNT_COLL_ALLGATHER:
    case SHUNT_COLL_ALLTOALL:
        return all;
    case SHUNT_COLL_ALLTOALLV:
        return extent(call->recv_counts, call->recv_displs, call->size) * call->width;
    case SHUNT_COLL_GATHER:
        return call->rank == call->root ? all : 0;
    case SHUNT_COLL_REDUCE:
        return call->rank == call->root ? one : 0;
    case SHUNT_COLL_BARRIER:
        return 0;
    default:
        return one;
    }
}

/* Whether a pipelined chain is ahead of a tree, whose root sends everything log2 n times. */
static int chain_pays(const struct shunt__call *call, size_t bytes)
{
    size_t segments = (bytes + SEGMENT - 1) / SEGMENT, depth = 0;

    for (int n = 1; n < call->size; n *= 2)
        depth++;
    return segments + (size_t)call->size - 2 < depth * segments;
}

static const char *pick_allreduce(const struct shunt__call *call, size_t bytes, const char **why)
{
    int several = call->hosts > 1 && call->hosts < call->size;

    if (several && call->hosts <= 32)
        return *why = "several ranks per host: each byte crosses hosts as rarely as it can", "hierarchical";
    if (bytes <= SHORT)
        return *why = "short: the number of steps decides", "doubling";
    if (call->size <= FEW)
        return *why = "few ranks: two steps, fewest passes over memory", "direct";
    if (bytes <= (size_t)call->size * 64 * KIB)
        return *why = "many ranks, parts too short for a ring", "halving";
    return *why = "many ranks, long: neighbours only, fewest bytes", "ring";
}

static const char *pick_reduce_scatter(const struct shunt__call *call, size_t block, const char **why)
{
    int power = (call->size & (call->size - 1)) == 0;

    if (call->size <= FEW)
        return *why = "few ranks: one step", "direct";
    if (power && block <= 64 * KIB)
        return *why = "many ranks, short blocks: log2 n steps", "halving";
    if (block <= SHORT)
        return *why = "short blocks and no power of two: one step", "direct";
    return *why = "many ranks, long: neighbours only", "ring";
}

static const char *pick_allgather(const struct shunt__call *call, size_t block, const char **why)
{
    if (block <= 2 * KIB && call->size > 4)
        return *why = "short blocks: log2 n steps", "bruck";
    if (call->size <= FEW || block <= SHORT)
        return *why = "few ranks: one step", "direct";
    return *why = "many ranks, long: neighbours only", "ring";
}

const struct shunt__algorithm *shunt__coll_choose(const struct shunt__call *call, char *why, size_t len)
{
    size_t bytes = call->count * call->width;
    const char *name, *reason = "the only one";

    switch (call->kind) {
    case SHUNT_COLL_ALLREDUCE:
        name = pick_allreduce(call, bytes, &reason);
        break;
    case SHUNT_COLL_REDUCE_SCATTER:
        name = pick_reduce_scatter(call, bytes, &reason);
        break;
    case SHUNT_COLL_ALLGATHER:
        name = pick_allgather(call, bytes, &reason);
        break;
    case SHUNT_COLL_BROADCAST:
        name = chain_pays(call, bytes) ? "chain" : "tree";
        reason = *name == 'c' ? "long: every rank sends it once" : "the number of steps decides";
        break;
    case SHUNT_COLL_REDUCE:
        if (bytes > SHORT && call->size <= FEW && call->hosts == 1) {
            name = "direct";
            reason = "few ranks on one host: additions are shared evenly";
        } else {
            name = chain_pays(call, bytes) ? "chain" : "tree";
            reason = *name == 'c' ? "long: every rank sends it once" : "the number of steps decides";
        }
        break;
    case SHUNT_COLL_GATHER:
    case SHUNT_COLL_SCATTER:
        name = bytes <= KIB && call->size > 8 ? "tree" : "direct";
        reason = *name == 't' ? "short blocks: log2 n steps" : "each block moves once";
        break;
    case SHUNT_COLL_BARRIER:
        name = "dissemination";
        break;
    default:
        name = "direct";
        break;
    }
    if (why && len)
        snprintf(why, len, "%s: %d ranks on %d host%s, %zu bytes; %s", name, call->size, call->hosts,
                 call->hosts == 1 ? "" : "s", bytes, reason);
    return shunt__algorithm_find(call->kind, name);
}
