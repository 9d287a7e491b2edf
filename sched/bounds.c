/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Closed forms: lower bounds, the exact period of 1F1B orders, and the warm-up counts that absorb delays.
 *
 * The period is the maximum cycle mean of the max-plus system that a 1F1B order is: a cycle goes down
 * as activations from stage i to j, back as gradients, and gains x_i - x_j + 1 micro-batches.
 * The warm-up counts compare each such cycle with the slowest stage, not with the next stage as the
 * PipeMorph paper (NSDI '26, section 4) does, which matters as soon as stages are unequal.
 */
#include <math.h>
#include <stdlib.h>
#include "sched/sched.h"

/* Work of one micro-batch on a whole stage. */
static double work(const struct shunt_sched_profile *pr, int stage)
{
    double t = 0;

    for (int k = stage * pr->v; k < (stage + 1) * pr->v; k++)
        t += pr->forward[k] + pr->backward[k] + pr->weight[k];
    return t;
}

static double slowest(const struct shunt_sched_profile *pr)
{
    double t = 0;

    for (int i = 0; i < pr->p; i++) {
        t = fmax(t, work(pr, i));
        if (i + 1 < pr->p)
            t = fmax(t, fmax(pr->service[SHUNT__DOWN][i], pr->service[SHUNT__UP][i]));
    }
    return t;
}

/* Delay of link i, there and back. */
static double round_trip(const struct shunt_sched_profile *pr, int i)
{
    return pr->latency[SHUNT__DOWN][i] + pr->latency[SHUNT__UP][i] + pr->service[SHUNT__DOWN][i] +
           pr->service[SHUNT__UP][i];
}

double shunt_sched_warmup_period(const shunt_sched_profile_t *profile, const int *warmup)
{
    double period;

    if (!profile || !warmup)
        return 0;
    period = slowest(profile);
    for (int i = 0; i < profile->p; i++) {
        double cycle = work(profile, i);
        for (int j = i + 1; j < profile->p; j++) {
            cycle += round_trip(profile, j - 1) + work(profile, j);
            period = fmax(period, cycle / (warmup[i] - warmup[j] + 1));
        }
    }
    return period;
}

void shunt_sched_adapted_warmup(const shunt_sched_profile_t *profile, int *warmup)
{
    double rate;

    if (!profile || !warmup)
        return;
    rate = slowest(profile);
    for (int i = profile->p - 1; i >= 0; i--) {
        double cycle = work(profile, i);
        int x = i + 1 < profile->p ? warmup[i + 1] : 1;

        for (int j = i + 1; j < profile->p && rate > 0; j++) {
            cycle += round_trip(profile, j - 1) + work(profile, j);
            double need = warmup[j] - 1 + ceil(cycle / rate - 1e-9);
            if (need > x)
                x = need < profile->m ? (int)need : profile->m;
        }
        warmup[i] = x < profile->m ? x : profile->m;
    }
}

/* Along the model: what must pass before a position's first forward, and after its last backward. */
struct path {
    double *fill, *drain; /* [position] */
    double total;         /* all forwards, backwards (or input gradients) and delays of one micro-batch */
};

static int walk(const struct shunt_sched_profile *pr, int vee, int split, struct path *path)
{
    int n = pr->p * pr->v;
    double fill = 0, drain = 0;

    path->fill = malloc(2 * (size_t)n * sizeof(double));
    if (!path->fill)
        return -1;
    path->drain = path->fill + n;
    for (int k = 0; k < n; k++) {
        int stage = shunt__sched_stage_of(pr->p, vee, k), at = stage * pr->v + k / pr->p;
        path->fill[k] = fill;
        path->drain[k] = drain;
        fill += pr->forward[at];
        drain += pr->backward[at] + (split ? 0 : pr->weight[at]);
        if (k + 1 < n) {
            struct shunt__hop down = shunt__sched_hop(pr, vee, k, 0),
                              up = shunt__sched_hop(pr, vee, k + 1, 1);
            fill += down.latency + down.service;
            drain += up.latency + up.service;
        }
    }
    path->total = fill + drain;
    return 0;
}

/* Little's law: of the micro-batches on a capped stage every cap-th waits for the one that many before it. */
static double capped(const struct shunt_sched_profile *pr, const struct path *path, int split)
{
    double bound = 0;

    for (int i = 0; i < pr->p && pr->v == 1; i++) {
        int cap = pr->cap[i];
        if (cap <= 0 || cap >= pr->m)
            continue;
        /* from the start of F on the stage to the end of its own B or I, and of W */
        double until_gradient = path->total - path->fill[i] - path->drain[i];
        double sojourn = until_gradient + (split ? pr->weight[i] : 0);
        int turns = (pr->m - 1) / cap, first = (pr->m - 1) % cap;
        double t = path->fill[i] + first * pr->forward[i] + turns * sojourn;
        double end = fmax(path->drain[i] + (split ? pr->weight[0] : 0), split ? pr->weight[i] : 0);
        bound = fmax(bound, t + until_gradient + end);
    }
    return bound;
}

static double queued(const struct shunt_sched_profile *pr, const struct path *path, int split)
{
    double bound = 0;

    for (int i = 0; i + 1 < pr->p && pr->v == 1; i++)
        for (int d = 0; d < 2; d++) /* m - 1 messages more than the one on the longest path */
            bound = fmax(bound, path->total + (pr->m - 1) * pr->service[d][i]);
    return bound > 0 && split ? bound + pr->weight[0] : bound;
}

static double bound_of(const struct shunt_sched_profile *pr, int split, int vee, int caps_only)
{
    struct path path;
    double bound = 0;

    if (walk(pr, vee, split, &path) != 0)
        return 0;
    bound = capped(pr, &path, split);
    for (int i = 0; i < pr->p && !caps_only; i++) {
        double all = pr->m * work(pr, i), weights = 0;
        for (int k = i * pr->v; k < (i + 1) * pr->v; k++)
            weights += pr->m * pr->weight[k];
        if (split) { /* position i is the first of the stage, 0 the first of all */
            bound = fmax(bound, path.fill[i] + all);
            bound = fmax(bound, path.fill[i] + all - weights + path.drain[i] + pr->weight[0]);
        } else
            bound = fmax(bound, path.fill[i] + all + path.drain[i]);
    }
    if (!caps_only)
        bound = fmax(bound, fmax(path.total + (split ? pr->weight[0] : 0), queued(pr, &path, split)));
    free(path.fill);
    return bound;
}

double shunt_sched_lower_bound(const shunt_sched_profile_t *profile, int split)
{
    if (!profile)
        return 0;
    /* With chunks the V is the placement with less on its way, so its bound holds for both. */
    return profile->v == 1 ? bound_of(profile, split, 0, 0)
                           : fmin(bound_of(profile, split, 0, 0), bound_of(profile, split, 1, 0));
}

double shunt_sched_little_bound(const shunt_sched_profile_t *profile, int split)
{
    return profile ? bound_of(profile, split, 0, 1) : 0;
}
