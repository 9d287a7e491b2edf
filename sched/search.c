/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planner's searches over families of orders: 1F1B orders by their warm-up counts, and readiness-first
 * orders by their limits. Both are local searches by single steps and by steps of all stages up to one, which
 * is the shape that a slow link asks for.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/sched.h"

int shunt__search_offer(struct shunt__search *search, struct shunt_sched *schedule, double makespan)
{
    if (makespan < 0 || makespan >= search->makespan * (1 - 1e-12)) {
        shunt_sched_destroy(schedule);
        return 0;
    }
    shunt_sched_destroy(search->best);
    search->best = schedule;
    search->makespan = makespan;
    search->best_family = search->family;
    return 1;
}

static int met(const struct shunt__search *search, double makespan)
{
    return makespan <= search->bound * (1 + 1e-12);
}

/* ---- warm-up counts ---- */

/* Clips to the caps and makes the counts possible: never fewer than the next stage has. */
static void clip(const struct shunt__search *search, int *x)
{
    const struct shunt_sched_profile *pr = search->profile;

    for (int i = 0; i < pr->p; i++) {
        int most = i > 0 ? x[i - 1] : pr->m;
        most = most < search->cap[i] ? most : search->cap[i];
        x[i] = x[i] < 1 ? 1 : x[i] > most ? most : x[i];
    }
}

struct warmup_search {
    struct shunt__search *search;
    double *scratch, best, left, cost; /* cost: operations of one evaluation */
    int *x, *try;
};

static int evaluate(struct warmup_search *w)
{
    const struct shunt_sched_profile *pr = w->search->profile;

    clip(w->search, w->try);
    if (memcmp(w->try, w->x, (size_t)pr->p * sizeof(int)) == 0 && w->best < INFINITY)
        return 0;
    w->left -= pr->p * pr->p / 16.0;
    if (shunt__warmup_bound(pr, w->try) >= w->best)
        return 0;
    w->left -= w->cost;
    double t = shunt__warmup_makespan(pr, w->try, w->scratch);
    if (t >= w->best * (1 - 1e-12))
        return 0;
    w->best = t;
    memcpy(w->x, w->try, (size_t)pr->p * sizeof(int));
    return 1;
}

/* Steps of one stage, then of all stages up to it, until none helps. */
static void climb(struct warmup_search *w)
{
    int p = w->search->profile->p, better = 1;

    while (better) {
        better = 0;
        for (int i = p - 1; i >= 0; i--)
            for (int step = 0; step < 4; step++) {
                if (w->left < 0 || met(w->search, w->best))
                    return;
                memcpy(w->try, w->x, (size_t)p * sizeof(int));
                int by = step & 1 ? -1 : 1;
                for (int k = step < 2 ? 0 : i; k <= i; k++)
                    w->try[k] += by;
                better |= evaluate(w);
            }
    }
}

shunt_status_t shunt__search_warmup(struct shunt__search *search, double share)
{
    const struct shunt_sched_profile *pr = search->profile;
    size_t p = (size_t)pr->p;
    int *x = malloc(3 * p * sizeof(int)), *best = x + 2 * p;
    double overall = INFINITY;
    struct warmup_search w = {search, NULL, INFINITY, search->left * share, 1.4 * pr->p * pr->m, x, x + p};
    shunt_status_t st = SHUNT_OK;

    w.scratch = malloc(shunt__warmup_scratch(pr) * sizeof(double));
    if (!x || !w.scratch)
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to plan %d stages", pr->p);
    double spent = w.left;
    for (int start = 0; start < 3 && st == SHUNT_OK; start++) {
        w.best = INFINITY;
        shunt_sched_adapted_warmup(pr, w.try);
        for (int i = 0, room = pr->m; i < pr->p; i++, room--) {
            room = room < search->cap[i] ? room : search->cap[i];
            if (start == 1 && w.try[i] > room) /* where caps bind, each stage one below the one before it */
                w.try[i] = room;
            if (start == 2)
                w.try[i] = pr->p - i;
        }
        evaluate(&w);
        climb(&w);
        if (w.best < overall) {
            overall = w.best;
            memcpy(best, x, p * sizeof(int));
        }
        if (met(search, overall) || w.left < 0)
            break;
    }
    search->left -= spent - w.left;
    if (st == SHUNT_OK) {
        struct shunt_sched *s;
        st = shunt_sched_create_warmup(pr, best, &s);
        if (st == SHUNT_OK)
            shunt__search_offer(search, s, overall);
    }
    free(w.scratch);
    free(x);
    return st;
}

/* ---- readiness-first limits ---- */

/* What a dispatch is told: limits per stage, and how long it waits for a backward. */
struct knobs {
    int *in_flight, *live;
    unsigned char *weight_first;
    double patience, pace;
    enum shunt__precedence precedence;
};

struct dispatch_search {
    struct shunt__search *search;
    struct knobs now, try;
    double best, left, cost, work; /* work: of the slowest stage */
};

static void copy_knobs(struct knobs *to, const struct knobs *from, size_t p)
{
    memcpy(to->in_flight, from->in_flight, p * sizeof(int));
    memcpy(to->live, from->live, p * sizeof(int));
    memcpy(to->weight_first, from->weight_first, p);
    to->patience = from->patience;
    to->pace = from->pace;
    to->precedence = from->precedence;
}

static int dispatch(struct dispatch_search *d)
{
    const struct shunt_sched_profile *pr = d->search->profile;
    struct shunt_sched *s;
    double t;

    for (int i = 0; i < pr->p; i++) {
        int *live = &d->try.live[i], *flight = &d->try.in_flight[i];
        *live = *live < 1 ? 1 : *live > d->search->cap[i] ? d->search->cap[i] : *live;
        *flight = *flight < 1 ? 1 : *flight > pr->m ? pr->m : *flight;
    }
    struct shunt__dispatch rule = {d->try.in_flight, d->try.live, d->search->split,   d->try.precedence,
                                   d->try.patience,  d->try.pace, d->try.weight_first};
    d->left -= d->cost;
    if (shunt__sched_dispatch(pr, &rule, &s, &t) != SHUNT_OK)
        return 0;
    int better = t < d->best * (1 - 1e-12);
    shunt__search_offer(d->search, s, t);
    if (better) {
        d->best = t;
        copy_knobs(&d->now, &d->try, (size_t)pr->p);
    }
    return better;
}

/* Where climbs begin, the most promising first. Pace in parts of the slowest stage's work. */
static const struct start {
    double pace, patience;
    enum shunt__precedence precedence;
    int adapted; /* limits of adapted 1F1B (with a split also 2 (p - 1 - i) above it) in place of the caps
                    alone */
    int weight_first;
} starts[] = {
    {0, 0, SHUNT__BACKWARD_FIRST, 0, 0},       {0.88, 0, SHUNT__FORWARD_FIRST, 0, 0},
    {0, 0, SHUNT__BACKWARD_FIRST, 1, 0},       {0, 0, SHUNT__FIRST_COME, 0, 0},
    {0.7, 0, SHUNT__BACKWARD_FIRST, 0, 0},     {0.58, 0.5, SHUNT__FIRST_COME, 0, 0},
    {0.95, 1, SHUNT__BACKWARD_FIRST, 0, 0},    {0, 0, SHUNT__BACKWARD_FIRST, 2, 0},
    {0.85, 0.25, SHUNT__BACKWARD_FIRST, 0, 0}, {0.6, 0.5, SHUNT__FORWARD_FIRST, 0, 0},
    {0.65, 0.25, SHUNT__BACKWARD_FIRST, 0, 0}, {0.6, 1, SHUNT__FIRST_COME, 0, 0},
    {0, 1, SHUNT__BACKWARD_FIRST, 0, 0},       {1, 0, SHUNT__FORWARD_FIRST, 0, 0},
    {0.45, 0.25, SHUNT__BACKWARD_FIRST, 0, 0}, {0.7, 0, SHUNT__BACKWARD_FIRST, 0, 1},
    {0, 0, SHUNT__BACKWARD_FIRST, 1, 1},       {0.35, 0, SHUNT__BACKWARD_FIRST, 0, 0},
    {0.9, 0, SHUNT__FIRST_COME, 0, 0},         {0.75, 0.5, SHUNT__BACKWARD_FIRST, 0, 0},
    {0, 0.5, SHUNT__BACKWARD_FIRST, 1, 0},
};
#define N_STARTS (sizeof(starts) / sizeof(starts[0]))

static void set_start(struct dispatch_search *d, const struct start *start)
{
    const struct shunt_sched_profile *pr = d->search->profile;

    d->try.patience = start->patience;
    d->try.pace = start->pace * d->work;
    d->try.precedence = start->precedence;
    shunt_sched_adapted_warmup(pr, d->try.in_flight);
    for (int i = 0; i < pr->p; i++) {
        int *flight = &d->try.in_flight[i], *live = &d->try.live[i];
        *live = d->search->cap[i];
        d->try.weight_first[i] = (unsigned char)start->weight_first;
        if (!start->adapted)
            *flight = pr->m;
        else if (!d->search->split)
            *live = *flight < *live ? *flight : *live;
        else if (start->adapted == 2)
            *flight += pr->p - 1 - i;
    }
}

/* One step of the pace, the patience, the precedence, or of the limits of one stage or of all up to it; 0: no
 * such step. */
static int step_knobs(struct dispatch_search *d, int stage, int step)
{
    static const double paces[] = {0.1, -0.1, 0.03, -0.03};
    int by = step & 1 ? -1 : 1;

    copy_knobs(&d->try, &d->now, (size_t)d->search->profile->p);
    if (step < 4) {
        d->try.pace += paces[step] * d->work;
        return stage == 0 && d->try.pace >= 0;
    }
    if (step < 6) {
        d->try.patience += 0.25 * by;
        return stage == 0 && d->try.patience >= 0 && d->try.patience <= 1.5;
    }
    if (step < 8) {
        d->try.precedence = (enum shunt__precedence)((d->try.precedence + 1 + step % 2) %
                                                     SHUNT__N_PRECEDENCES);
        return stage == 0;
    }
    for (int k = step & 2 ? 0 : stage; k <= stage; k++)
        if (step < 12)
            d->try.live[k] += by;
        else if (step < 16)
            d->try.in_flight[k] += by;
        else
            d->try.weight_first[k] = by > 0;
    return 1;
}

static void climb_dispatch(struct dispatch_search *d)
{
    int better = 1, steps = d->search->split ? 20 : 12;

    while (better) {
        better = 0;
        for (int i = 0; i < d->search->profile->p; i++)
            for (int step = 0; step < steps; step++) {
                if (d->left < 0 || met(d->search, d->search->makespan))
                    return;
                if (step_knobs(d, i, step))
                    better |= dispatch(d);
            }
    }
}

shunt_status_t shunt__search_dispatch(struct shunt__search *search, double share)
{
    const struct shunt_sched_profile *pr = search->profile;
    size_t p = (size_t)pr->p;
    int *limits = malloc(4 * p * sizeof(int));
    unsigned char *flags = malloc(2 * p);
    struct dispatch_search d = {search,
                                {limits, limits + p, flags, 0, 0, 0},
                                {limits + 2 * p, limits + 3 * p, flags + p, 0, 0, 0},
                                INFINITY,
                                search->left * share,
                                shunt__dispatch_cost(pr->p) * pr->p * pr->m * (search->split ? 3 : 2),
                                0};
    double spent = d.left, whole = d.left;

    if (!limits || !flags) {
        free(limits);
        free(flags);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to plan %d stages", pr->p);
    }
    for (int i = 0; i < pr->p; i++)
        d.work = fmax(d.work, pr->forward[i] + pr->backward[i] + pr->weight[i]);
    for (size_t k = 0; k < N_STARTS && d.left > 0.3 * whole && !met(search, search->makespan); k++) {
        set_start(&d, &starts[k]);
        dispatch(&d); /* the best of them is where the climb begins */
    }
    climb_dispatch(&d);
    search->left -= spent - d.left;
    free(limits);
    free(flags);
    return SHUNT_OK;
}
