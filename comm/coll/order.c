/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>
#include "comm/coll/order.h"

static int put_host(const struct shunt__call *call, int host, int first, int *order, int n)
{
    if (first >= 0 && call->host_of[first] == host)
        order[n++] = first;
    for (int r = 0; r < call->size; r++)
        if (r != first && call->host_of[r] == host)
            order[n++] = r;
    return n;
}

int shunt__host_order(const struct shunt__call *call, int first, int *order)
{
    int n = 0, start = first >= 0 ? call->host_of[first] : 0;

    if (call->hosts == call->size) { /* one rank each: rotate */
        for (int i = 0; i < call->size; i++)
            order[i] = ((first >= 0 ? first : 0) + i) % call->size;
    } else {
        for (int i = 0; i < call->hosts; i++)
            n = put_host(call, (start + i) % call->hosts, first, order, n);
    }
    for (int i = 0; i < call->size; i++)
        if (order[i] == call->rank)
            return i;
    return 0;
}

void shunt__host_shape(const struct shunt__call *call, int *counts, struct shunt__host_shape *shape)
{
    memset(counts, 0, (size_t)call->hosts * sizeof(*counts));
    shape->local = 0;
    for (int r = 0; r < call->size; r++) {
        if (call->host_of[r] == call->host_of[call->rank] && r < call->rank)
            shape->local++;
        counts[call->host_of[r]]++;
    }
    shape->n_local = counts[call->host_of[call->rank]];
    shape->fewest = shape->most = counts[0];
    for (int h = 1; h < call->hosts; h++) {
        if (counts[h] < shape->fewest)
            shape->fewest = counts[h];
        if (counts[h] > shape->most)
            shape->most = counts[h];
    }
}
