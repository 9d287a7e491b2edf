/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * List simulation: stages run what is ready, and the order that results is the schedule.
 *
 * The stage with the earliest time at which it has something to decide goes first; its operation's message
 * is entered at the receiver at once, as all earlier events are known by then. A tree of winners over the
 * stages' look-up times finds the next one: log p steps without branches for each change.
 */
#include <math.h>
#include <stdlib.h>
#include "comm/base/log.h"
#include "sched/sched.h"

struct stage {
    /* Arrival per micro-batch, INFINITY while unknown; forward_in is NULL where all are there. */
    const double *forward_in, *backward_in;
    double *forward_out, *backward_out;
    double forward_delay, forward_service, forward_queue;
    double backward_delay, backward_service, backward_queue;
    double free_at; /* end of the operation it runs */
    double f, b, w; /* durations; b includes w if the backward is not split */
    int forwards, backwards, weights, in_flight, live;
    shunt__op_t *next;
};

struct dispatcher {
    struct stage *stages;
    double *look, *cells; /* look[stage]: when it may next have something to run */
    int *winner;          /* [1 ... leaves - 1]: the stage below that node which looks first; 1 is the root */
    int p, m, split, leaves;
    enum shunt__precedence precedence;
    double patience, pace, next_forward; /* next_forward: when stage 0 may start one, at its pace */
    const unsigned char *weight_first;
};

/* What the stage runs at `now`: an operation's type, or -1 with *again set to the time to look next. */
static int choose(const struct dispatcher *d, int i, double now, double *again)
{
    const struct stage *s = &d->stages[i];
    double backward = s->backwards < s->forwards ? s->backward_in[s->backwards] : INFINITY;
    int held = s->forwards - (d->split ? s->weights : s->backwards);
    int may = s->forwards < d->m && s->forwards - s->backwards < s->in_flight && held < s->live;
    double forward = !may ? INFINITY : s->forward_in ? s->forward_in[s->forwards] : d->next_forward;
    int has_weight = d->split && s->weights < s->backwards;

    if (forward <= now &&
        (d->precedence == SHUNT__FORWARD_FIRST || (d->precedence == SHUNT__FIRST_COME && forward < backward)))
        return SHUNT_SCHED_F;
    if (backward <= now)
        return d->split ? SHUNT_SCHED_I : SHUNT_SCHED_B;
    if (has_weight && d->weight_first && d->weight_first[i])
        return SHUNT_SCHED_W;
    if (forward <= now) {
        if (backward >= now + d->patience * s->f)
            return SHUNT_SCHED_F;
        forward = INFINITY;
    }
    if (has_weight && backward >= now + d->patience * s->w)
        return SHUNT_SCHED_W;
    *again = fmin(backward, forward);
    return -1;
}

static void set_look(struct dispatcher *d, int stage, double when)
{
    d->look[stage] = when;
    for (int node = (stage + d->leaves) / 2; node > 0; node /= 2) {
        int left = 2 * node >= d->leaves ? 2 * node - d->leaves : d->winner[2 * node];
        int right = 2 * node >= d->leaves ? 2 * node + 1 - d->leaves : d->winner[2 * node + 1];
        d->winner[node] = d->look[right] < d->look[left] ? right : left;
    }
}

static void deliver(struct dispatcher *d, double *cell, int to, double arrival)
{
    *cell = arrival;
    double when = arrival > d->stages[to].free_at ? arrival : d->stages[to].free_at;
    if (when < d->look[to])
        set_look(d, to, when);
}

/* Runs `type` on stage i from `now`; returns its end. */
static double perform(struct dispatcher *d, int i, int type, double now)
{
    struct stage *s = &d->stages[i];
    double end;

    if (type == SHUNT_SCHED_F) {
        end = now + s->f;
        if (i == 0)
            d->next_forward = now + d->pace;
        *s->next++ = SHUNT__OP(SHUNT_SCHED_F, 0, s->forwards);
        if (i + 1 < d->p) {
            double sent = s->forward_service > 0 ? fmax(end, s->forward_queue) + s->forward_service : end;
            s->forward_queue = sent;
            deliver(d, &s->forward_out[s->forwards], i + 1, sent + s->forward_delay);
        } else
            s->forward_out[s->forwards] = end;
        s->forwards++;
    } else if (type == SHUNT_SCHED_W) {
        end = now + s->w;
        *s->next++ = SHUNT__OP(SHUNT_SCHED_W, 0, s->weights++);
    } else {
        end = now + s->b;
        *s->next++ = SHUNT__OP(type, 0, s->backwards);
        if (i > 0) {
            double sent = s->backward_service > 0 ? fmax(end, s->backward_queue) + s->backward_service : end;
            s->backward_queue = sent;
            deliver(d, &s->backward_out[s->backwards], i - 1, sent + s->backward_delay);
        }
        s->backwards++;
    }
    return end;
}

static void set_up(struct dispatcher *d, const struct shunt_sched_profile *pr,
                   const struct shunt__dispatch *rule, struct shunt_sched *out)
{
    size_t m = (size_t)pr->m, p = (size_t)pr->p;

    for (size_t k = 0; k < 2 * m * p; k++)
        d->cells[k] = INFINITY;
    for (int i = 0; i < pr->p; i++) {
        struct stage *s = &d->stages[i];
        double *gradients = d->cells + m * p;
        s->forward_in = i > 0 ? d->cells + (size_t)i * m : NULL;
        s->forward_out = i + 1 < pr->p ? d->cells + (size_t)(i + 1) * m : gradients + (size_t)i * m;
        s->backward_in = gradients + (size_t)i * m;
        s->backward_out = i > 0 ? gradients + (size_t)(i - 1) * m : NULL;
        s->forward_delay = pr->latency[SHUNT__DOWN][i];
        s->forward_service = pr->service[SHUNT__DOWN][i];
        if (i > 0) {
            s->backward_delay = pr->latency[SHUNT__UP][i - 1];
            s->backward_service = pr->service[SHUNT__UP][i - 1];
        }
        s->f = pr->forward[i];
        s->b = pr->backward[i] + (d->split ? 0 : pr->weight[i]);
        s->w = pr->weight[i];
        s->in_flight = rule->in_flight[i];
        s->live = rule->live[i];
        s->next = out->ops + out->offset[i];
    }
    for (int i = 0; i < d->leaves; i++)
        d->look[i] = i == 0 ? 0 : INFINITY;
    for (int i = 0; i < d->leaves; i += 2)
        set_look(d, i, d->look[i]);
}

/* Returns the makespan; every stage ends with all its operations, or it is negative (a limit below 1). */
static double dispatch(struct dispatcher *d)
{
    int left = d->p * d->m * (d->split ? 3 : 2);
    double makespan = 0;

    while (left > 0) {
        int i = d->winner[1];
        double now = d->look[i], again = INFINITY;
        if (now == INFINITY)
            return -1;
        int type = choose(d, i, now, &again);
        if (type < 0) {
            set_look(d, i, again);
            continue;
        }
        double end = perform(d, i, type, now);
        d->stages[i].free_at = end;
        set_look(d, i, end);
        makespan = fmax(makespan, end);
        left--;
    }
    return makespan;
}

double shunt__dispatch_cost(int p)
{
    return 5 + 2 * log2(p);
}

shunt_status_t shunt__sched_dispatch(const struct shunt_sched_profile *profile,
                                     const struct shunt__dispatch *rule, struct shunt_sched **schedule,
                                     double *makespan)
{
    struct dispatcher d = {.p = profile->p,
                           .m = profile->m,
                           .split = rule->split,
                           .patience = rule->patience,
                           .pace = rule->pace,
                           .precedence = rule->precedence,
                           .weight_first = rule->weight_first};
    struct shunt_sched *s = NULL;
    size_t p = (size_t)profile->p;
    double end = -1;
    shunt_status_t st = shunt__sched_alloc_even(profile, 1, 0, SHUNT_SCHED_READY, rule->split, &s);

    if (st != SHUNT_OK)
        return st;
    d.stages = calloc(p, sizeof(struct stage));
    for (d.leaves = 2; d.leaves < profile->p;)
        d.leaves *= 2;
    d.look = malloc((size_t)d.leaves * sizeof(double));
    d.winner = calloc((size_t)d.leaves, sizeof(int));
    d.cells = malloc(2 * p * (size_t)profile->m * sizeof(double));
    if (!d.stages || !d.look || !d.winner || !d.cells)
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to dispatch %d stages", profile->p);
    else {
        set_up(&d, profile, rule, s);
        end = dispatch(&d);
        if (end < 0)
            st = shunt__fail(SHUNT_ERR_INVALID,
                             "no order keeps these limits: a stage may not hold a single micro-batch");
    }
    free(d.stages);
    free(d.look);
    free(d.winner);
    free(d.cells);
    if (st != SHUNT_OK) {
        shunt_sched_destroy(s);
        return st;
    }
    if (makespan)
        *makespan = end;
    *schedule = s;
    return SHUNT_OK;
}
