/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations: how each is called, and how its bandwidth is counted (as nccl-tests does). */
#include <string.h>
#include "tools/perf/perf.h"

static double same(int n)
{
    return 1;
}

static double all_but_own(int n)
{
    return (double)(n - 1) / n;
}

static double twice_all_but_own(int n)
{
    return 2.0 * (n - 1) / n;
}

static shunt_status_t allreduce(const struct job *j, const void *s, void *r, size_t n)
{
    return shunt_allreduce(j->comm, s, r, n, j->o.type, j->o.op);
}

static shunt_status_t reduce_scatter(const struct job *j, const void *s, void *r, size_t n)
{
    return shunt_reduce_scatter(j->comm, s, r, n, j->o.type, j->o.op);
}

static shunt_status_t allgather(const struct job *j, const void *s, void *r, size_t n)
{
    return shunt_allgather(j->comm, s, r, n, j->o.type);
}

static shunt_status_t broadcast(const struct job *j, const void *s, void *r, size_t n)
{
    return shunt_broadcast(j->comm, s, r, n, j->o.type, j->o.root);
}

static shunt_status_t reduce(const struct job *j, const void *s, void *r, size_t n)
{
    return shunt_reduce(j->comm, s, r, n, j->o.type, j->o.op, j->o.root);
}

static shunt_status_t gather(const struct job *j, const void *s, void *r, size_t n)
{
    return shunt_gather(j->comm, s, r, n, j->o.type, j->o.root);
}

static shunt_status_t scatter(const struct job *j, const void *s, void *r, size_t n)
{
    return shunt_scatter(j->comm, s, r, n, j->o.type, j->o.root);
}

static shunt_status_t alltoall(const struct job *j, const void *s, void *r, size_t n)
{
    return shunt_alltoall(j->comm, s, r, n, j->o.type);
}

static shunt_status_t barrier(const struct job *j, const void *s, void *r, size_t n)
{
    return shunt_barrier(j->comm);
}

/* To the next rank, from the previous one. */
static shunt_status_t sendrecv(const struct job *j, const void *s, void *r, size_t n)
{
    size_t bytes = n * shunt_type_size(j->o.type);

    return shunt_sendrecv(j->comm, s, bytes, (j->rank + 1) % j->size, 0, r, bytes, (j->rank + j->size - 1) % j->size, 0,
                          NULL);
}

static const struct kind kinds[] = {
    {"latency", SHUNT_COLL_KINDS, 0, 0, 1, 0, 0, same, NULL},
    {"bandwidth", SHUNT_COLL_KINDS, 0, 0, 1, 0, 0, same, NULL},
    {"sendrecv", SHUNT_COLL_KINDS, 0, 0, 1, 0, 0, same, sendrecv},
    {"allreduce", SHUNT_COLL_ALLREDUCE, 1, 1, 1, 0, 0, twice_all_but_own, allreduce},
    {"allgather", SHUNT_COLL_ALLGATHER, 0, 1, 1, 0, 1, all_but_own, allgather},
    {"reduce_scatter", SHUNT_COLL_REDUCE_SCATTER, 1, 1, 1, 1, 0, all_but_own, reduce_scatter},
    {"broadcast", SHUNT_COLL_BROADCAST, 0, 1, 1, 0, 0, same, broadcast},
    {"reduce", SHUNT_COLL_REDUCE, 1, 1, 1, 0, 0, same, reduce},
    {"gather", SHUNT_COLL_GATHER, 0, 1, 1, 0, 1, all_but_own, gather},
    {"scatter", SHUNT_COLL_SCATTER, 0, 1, 1, 1, 0, all_but_own, scatter},
    {"alltoall", SHUNT_COLL_ALLTOALL, 0, 1, 1, 1, 1, all_but_own, alltoall},
    {"barrier", SHUNT_COLL_BARRIER, 0, 0, 0, 0, 0, same, barrier},
};

const struct kind *kind_find(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

void kind_list(FILE *f)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        fprintf(f, " %s", kinds[i].name);
}
