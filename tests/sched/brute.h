/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The optimum of a small pipeline over all orders, by branch and bound: tests only, and independent of the
 * library's simulator and planner.
 *
 * Micro-batches are identical, so each type runs in order of micro-batch on every stage without loss. All
 * active orders are enumerated after Giffler and Thompson (1960): the stage that could complete an operation
 * soonest is next, with each operation that could start before that. A branch ends where the work left on a
 * stage, with its way out, can't beat the best known. States already met with no later times are not searched
 * again.
 */
#ifndef SHUNT_TESTS_SCHED_BRUTE_H
#define SHUNT_TESTS_SCHED_BRUTE_H

#include <math.h>
#include <shunt/sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BRUTE_STAGES 4
#define BRUTE_MICROBATCHES 8
#define BRUTE_SLOTS (1 << 18)
#define BRUTE_TIMES (BRUTE_STAGES * (2 * BRUTE_MICROBATCHES + 3))

struct brute_state {
    int n[BRUTE_STAGES][3]; /* F, B or I, W done */
    double clock[BRUTE_STAGES];
    double forward[BRUTE_STAGES][BRUTE_MICROBATCHES],
        backward[BRUTE_STAGES][BRUTE_MICROBATCHES]; /* arrivals */
    double down[BRUTE_STAGES], up[BRUTE_STAGES];    /* queues free from */
};

struct brute_seen {
    uint64_t key;
    int used;
    struct brute_state state;
};

struct brute {
    int p, m, split, cap[BRUTE_STAGES];
    double f[BRUTE_STAGES], b[BRUTE_STAGES], w[BRUTE_STAGES];
    double ld[BRUTE_STAGES], lu[BRUTE_STAGES], sd[BRUTE_STAGES], su[BRUTE_STAGES];
    double below[BRUTE_STAGES],
        above[BRUTE_STAGES]; /* from F's start to B's arrival back; from B's end to the end */
    double best;
    long nodes, limit;
    struct brute_seen *seen;
};

static double brute_bound(const struct brute *x, const struct brute_state *s)
{
    double bound = 0;

    for (int i = 0; i < x->p; i++) {
        const int *n = s->n[i];
        double now = s->clock[i], first = INFINITY;
        double forwards = (x->m - n[0]) * x->f[i], backwards = (x->m - n[1]) * x->b[i],
               weights = x->split ? (x->m - n[2]) * x->w[i] : 0;
        if (n[0] < x->m) { /* the last forward, then its way down and back, then this stage's B */
            double at = fmax(now, s->forward[i][n[0]]);
            if (s->forward[i][n[0]] == INFINITY)
                at = now;
            first = at;
            bound = fmax(bound, at + forwards - x->f[i] + x->below[i] + x->b[i] + x->above[i]);
        }
        if (n[1] < x->m) {
            double at = s->backward[i][n[1]];
            at = at == INFINITY ? now : fmax(now, at);
            if (n[1] == n[0]) /* its forward has yet to run here */
                at = fmax(at, first + x->below[i]);
            bound = fmax(bound, at + backwards + x->above[i]);
            first = fmin(first, at);
            if (x->split && n[2] < n[1])
                first = now;
            bound = fmax(bound, first + forwards + backwards + x->above[i]);
        } else if (x->split)
            first = fmin(first, now);
        if (first < INFINITY)
            bound = fmax(bound, first + forwards + backwards + weights);
        bound = fmax(bound, now);
    }
    return bound;
}

/* Whether a state no worse in every time was met; remembers this one otherwise. */
static int brute_met(struct brute *x, const struct brute_state *s)
{
    uint64_t key = 1469598103934665603ull;

    for (int i = 0; i < x->p; i++)
        for (int k = 0; k < 3; k++)
            key = (key ^ (uint64_t)(s->n[i][k] + 1)) * 1099511628211ull + (key >> 29);
    for (int probe = 0; probe < 24; probe++) {
        struct brute_seen *e =
            &x->seen[(key + (uint64_t)probe * 0x9e3779b97f4a7c15ull) >> 7 & (BRUTE_SLOTS - 1)];
        if (!e->used) {
            e->used = 1;
            e->key = key;
            e->state = *s;
            return 0;
        }
        if (e->key != key || memcmp(e->state.n, s->n, sizeof(s->n)) != 0)
            continue;
        int no_worse = 1;
        for (int i = 0; i < x->p && no_worse; i++) {
            const struct brute_state *o = &e->state;
            no_worse = o->clock[i] <= s->clock[i] && o->down[i] <= s->down[i] && o->up[i] <= s->up[i];
            for (int k = s->n[i][0]; k < x->m && no_worse; k++)
                no_worse = o->forward[i][k] <= s->forward[i][k];
            for (int k = s->n[i][1]; k < x->m && no_worse; k++)
                no_worse = o->backward[i][k] <= s->backward[i][k];
        }
        if (no_worse)
            return 1;
    }
    return 0;
}

static void brute_search(struct brute *x, const struct brute_state *s)
{
    double start[BRUTE_STAGES][3], soonest[BRUTE_STAGES];
    int left = 0;

    if (x->limit > 0 && x->nodes >= x->limit)
        return;
    x->nodes++;
    if (brute_bound(x, s) >= x->best - 1e-9)
        return;
    for (int i = 0; i < x->p; i++) {
        const int *n = s->n[i];
        int held = n[0] - (x->split ? n[2] : n[1]);
        double dur[3] = {x->f[i], x->b[i], x->w[i]};
        start[i][0] = n[0] < x->m && held < x->cap[i] ? fmax(s->clock[i], s->forward[i][n[0]]) : INFINITY;
        start[i][1] = n[1] < n[0] ? fmax(s->clock[i], s->backward[i][n[1]]) : INFINITY;
        start[i][2] = x->split && n[2] < n[1] ? s->clock[i] : INFINITY;
        left += n[0] < x->m || n[1] < x->m || (x->split && n[2] < x->m);
        soonest[i] = INFINITY;
        for (int k = 0; k < 3; k++)
            soonest[i] = fmin(soonest[i], start[i][k] + dur[k]);
    }
    if (!left) {
        double end = 0;
        for (int i = 0; i < x->p; i++)
            end = fmax(end, s->clock[i]);
        x->best = fmin(x->best, end);
        return;
    }
    if (brute_met(x, s))
        return;
    int i = 0;
    for (int k = 1; k < x->p; k++)
        i = soonest[k] < soonest[i] ? k : i;
    static const int order[3] = {1, 0, 2};
    for (int o = 0; o < 3; o++) {
        int k = order[o];
        double first = start[i][k];
        if (first >= soonest[i])
            continue;
        struct brute_state t = *s;
        int mb = t.n[i][k]++;
        double end = first + (k == 0 ? x->f[i] : k == 1 ? x->b[i] : x->w[i]);
        t.clock[i] = end;
        if (k == 0 && i + 1 < x->p) {
            double sent = x->sd[i] > 0 ? (t.down[i] = fmax(t.down[i], end) + x->sd[i]) : end;
            t.forward[i + 1][mb] = sent + x->ld[i];
        } else if (k == 0)
            t.backward[i][mb] = end;
        else if (k == 1 && i > 0) {
            double sent = x->su[i - 1] > 0 ? (t.up[i] = fmax(t.up[i], end) + x->su[i - 1]) : end;
            t.backward[i - 1][mb] = sent + x->lu[i - 1];
        }
        brute_search(x, &t);
    }
}

/*
 * The shortest makespan, given that `known` can be reached (INFINITY if nothing is known). At most `limit`
 * nodes are searched (0: no limit); *exact says whether that was enough.
 */
static double brute_optimum(const shunt_sched_profile_t *profile, int split, double known, long limit,
                            int *exact)
{
    static struct brute x;
    struct brute_state s;
    double back = 0;

    x.p = shunt_sched_profile_stages(profile);
    x.m = shunt_sched_profile_microbatches(profile);
    x.split = split;
    x.best = known;
    x.nodes = 0;
    x.limit = limit;
    if (!x.seen)
        x.seen = malloc(BRUTE_SLOTS * sizeof(x.seen[0]));
    for (int k = 0; k < BRUTE_SLOTS; k++)
        x.seen[k].used = 0;
    memset(&s, 0, sizeof(s));
    for (int i = 0; i < x.p; i++) {
        double w;
        shunt_sched_profile_get_stage(profile, i, &x.f[i], &x.b[i], &w);
        shunt_sched_profile_get_link(profile, i, &x.ld[i], &x.lu[i], &x.sd[i], &x.su[i]);
        x.w[i] = w;
        if (!split)
            x.b[i] += w;
        x.cap[i] = shunt_sched_profile_get_cap(profile, i);
        if (x.cap[i] == 0)
            x.cap[i] = x.m;
        for (int k = 0; k < x.m; k++) {
            s.forward[i][k] = i == 0 ? 0 : INFINITY;
            s.backward[i][k] = INFINITY;
        }
    }
    for (int i = x.p - 1; i >= 0; i--) {
        if (i + 1 < x.p)
            back += x.ld[i] + x.sd[i] + x.lu[i] + x.su[i] + x.f[i + 1] + x.b[i + 1];
        x.below[i] = x.f[i] + back;
    }
    x.above[0] = 0;
    for (int i = 1; i < x.p; i++)
        x.above[i] = x.above[i - 1] + x.lu[i - 1] + x.su[i - 1] + x.b[i - 1];
    brute_search(&x, &s);
    if (exact)
        *exact = !(limit > 0 && x.nodes >= limit);
    return x.best;
}

#endif
