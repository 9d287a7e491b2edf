/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makespan of 1F1B orders from their warm-up counts alone.
 *
 * In round r each stage i runs F of micro-batch r and then B of micro-batch r - x_i + 1. Visiting the
 * forwards of a round downwards and its backwards upwards meets every operation after what it needs,
 * so one pass of 2 p (m + x_0) steps gives the exact times, links that queue included.
 */
#include <math.h>
#include "sched/sched.h"

size_t shunt__warmup_scratch(const struct shunt_sched_profile *profile)
{
    return (size_t)profile->p * ((size_t)profile->m + 5);
}

double shunt__warmup_makespan(const struct shunt_sched_profile *profile, const int *warmup, double *scratch)
{
    const int p = profile->p, m = profile->m, rounds = m + warmup[0] - 1;
    const double *const *latency = (const double *const *)profile->latency;
    const double *const *service = (const double *const *)profile->service;
    double *clock = scratch, *down_free = scratch + p, *up_free = scratch + 2 * p,
           *backward = scratch + 3 * p;
    double *gradients = scratch + 4 * p,
           makespan = 0; /* gradients[i * m + k]: when the gradient reaches stage i */

    for (int i = 0; i < p; i++) {
        clock[i] = down_free[i] = up_free[i] = 0;
        backward[i] = profile->backward[i] + profile->weight[i];
    }
    for (int r = 0; r < rounds; r++) {
        double arrival = 0;
        for (int i = 0; i < p && r < m; i++) {
            double end = (clock[i] > arrival ? clock[i] : arrival) + profile->forward[i];
            clock[i] = end;
            if (service[SHUNT__DOWN][i] > 0)
                end = down_free[i] = (down_free[i] > end ? down_free[i] : end) + service[SHUNT__DOWN][i];
            arrival = end + latency[SHUNT__DOWN][i];
        }
        for (int i = p - 1; i >= 0; i--) {
            int k = r - warmup[i] + 1;
            if (k < 0 || k >= m)
                continue;
            double end = clock[i];
            if (i < p - 1 && gradients[(size_t)i * (size_t)m + (size_t)k] > end)
                end = gradients[(size_t)i * (size_t)m + (size_t)k];
            end += backward[i];
            clock[i] = end;
            if (i == 0)
                continue;
            if (service[SHUNT__UP][i - 1] > 0)
                end = up_free[i] = (up_free[i] > end ? up_free[i] : end) + service[SHUNT__UP][i - 1];
            gradients[(size_t)(i - 1) * (size_t)m + (size_t)k] = end + latency[SHUNT__UP][i - 1];
        }
    }
    for (int i = 0; i < p; i++)
        makespan = fmax(makespan, clock[i]);
    return makespan;
}

double shunt__warmup_bound(const struct shunt_sched_profile *profile, const int *warmup)
{
    const int p = profile->p, m = profile->m;
    double total = 0, bound;

    for (int i = 0; i < p; i++) {
        total += profile->forward[i] + profile->backward[i] + profile->weight[i];
        if (i + 1 < p)
            for (int d = 0; d < 2; d++)
                total += profile->latency[d][i] + profile->service[d][i];
    }
    bound = total;
    for (int i = 0; i < p; i++) {
        double cycle = 0;
        for (int j = i; j < p; j++) {
            if (j > i)
                for (int d = 0; d < 2; d++)
                    cycle += profile->latency[d][j - 1] + profile->service[d][j - 1];
            cycle += profile->forward[j] + profile->backward[j] + profile->weight[j];
            int gain = warmup[i] - warmup[j] + 1, before = warmup[j] - 1, turns = (m - 1 - before) / gain;
            double b = total + before * profile->forward[i] + turns * cycle;
            bound = bound > b ? bound : b;
        }
    }
    return bound;
}
