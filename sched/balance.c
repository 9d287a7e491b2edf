/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Micro-batches among data-parallel replicas.
 *
 * The relaxed optimum (fractions of micro-batches) bounds the finish from below, so the whole micro-batches
 * that fit into it belong to their replicas in some optimum; the at most `replicas` left are given one by one
 * to whoever would end first.
 */
#include <math.h>
#include <stdlib.h>
#include "comm/base/log.h"
#include "sched/sched.h"

static shunt_status_t check_times(int replicas, const double *times, const double *fixed)
{
    int alive = 0;

    for (int r = 0; r < replicas; r++) {
        if (!(times[r] > 0) || (fixed && (!(fixed[r] >= 0) || isinf(fixed[r]))))
            return shunt__fail(SHUNT_ERR_INVALID,
                               "replica %d: times are positive, infinite for one that failed", r);
        alive += !isinf(times[r]);
    }
    return alive > 0 ? SHUNT_OK : shunt__fail(SHUNT_ERR_INVALID, "none of %d replicas is alive", replicas);
}

/* Gives one micro-batch to the replica that ends first with it; equal ones in their order. */
static int give(int replicas, const double *times, const double *fixed, int *counts)
{
    int best = -1;
    double end = INFINITY;

    for (int r = 0; r < replicas; r++) {
        double t = (fixed ? fixed[r] : 0) + (counts[r] + 1) * times[r];
        if (t < end) {
            end = t;
            best = r;
        }
    }
    counts[best]++;
    return best;
}

shunt_status_t shunt_sched_rebalance(int replicas, const double *times, const double *fixed, int microbatches,
                                     int *counts, double *weights)
{
    double low = 0, high = 0;
    int given = 0;

    if (replicas < 1 || !times || microbatches < 0 || !counts)
        return shunt__fail(SHUNT_ERR_INVALID, "rebalance: %d replicas, %d micro-batches, or a NULL array",
                           replicas, microbatches);
    shunt_status_t st = check_times(replicas, times, fixed);
    if (st != SHUNT_OK)
        return st;
    for (int r = 0; r < replicas; r++)
        if (!isinf(times[r]))
            high = fmax(high, (fixed ? fixed[r] : 0) + microbatches * times[r]);
    for (int k = 0; k < 100; k++) { /* the relaxed finish, to the last bit that matters */
        double middle = (low + high) / 2, sum = 0;
        for (int r = 0; r < replicas; r++)
            sum += fmax(0, middle - (fixed ? fixed[r] : 0)) / times[r];
        if (sum > microbatches)
            high = middle;
        else
            low = middle;
    }
    for (int r = 0; r < replicas; r++) {
        counts[r] = (int)fmax(0, floor((low - (fixed ? fixed[r] : 0)) / times[r]));
        given += counts[r];
    }
    for (; given < microbatches; given++)
        give(replicas, times, fixed, counts);
    for (int r = 0; weights && r < replicas; r++)
        weights[r] = microbatches > 0 ? (double)counts[r] / microbatches : 0;
    return SHUNT_OK;
}

shunt_status_t shunt_sched_move(int replicas, const double *times, int microbatches, int *owner)
{
    int *counts;
    shunt_status_t st;

    if (replicas < 1 || !times || microbatches < 0 || !owner)
        return shunt__fail(SHUNT_ERR_INVALID, "move: %d replicas, %d micro-batches, or a NULL array",
                           replicas, microbatches);
    st = check_times(replicas, times, NULL);
    if (st != SHUNT_OK)
        return st;
    counts = calloc((size_t)replicas, sizeof(int));
    if (!counts)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to move micro-batches");
    for (int k = 0; k < microbatches && st == SHUNT_OK; k++) {
        if (owner[k] < 0 || owner[k] >= replicas)
            st = shunt__fail(SHUNT_ERR_INVALID, "micro-batch %d belongs to replica %d of %d", k, owner[k],
                             replicas);
        else
            counts[owner[k]]++;
    }
    for (int k = 0; k < microbatches && st == SHUNT_OK; k++)
        if (isinf(times[owner[k]]))
            owner[k] = give(replicas, times, NULL, counts);
    free(counts);
    return st;
}
