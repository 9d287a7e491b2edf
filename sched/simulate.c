/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exact event simulation of a schedule over a profile.
 *
 * Orders are fixed, so times do not depend on the order in which stages are visited: each stage runs
 * its list until an input is missing; the message that it waits for wakes it. That visits every
 * operation once and needs no event queue. A queueing link has one sender (its stage), which sends in
 * program order, so one "free from" time per link and direction is its whole state.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/sched.h"

/* What one kind of operation of one chunk of one stage needs and gives; type I and B are alike. */
struct route {
    double duration, latency, service;
    const double *in; /* per micro-batch: when its input arrives, negative while unknown; NULL: no input */
    const double *in_left; /* when that input left its stage (details only) */
    double *out, *out_left;
    int queue, to;
};

/* An idle span that began while the stage's cap was reached; whether a forward was there is known at the end.
 */
struct held {
    int stage, forward;
    double from, to, link; /* the share of the link in it */
};

struct shunt__simulator {
    int p, v, m, positions, blocking;
    const struct shunt_sched_profile *profile;
    struct route *routes; /* [(stage * v + chunk) * 4 + type] */
    double *arrive;       /* activations [position][microbatch], then gradients */
    double *left;         /* the same, when the message left its stage; NULL without details */
    double *queue_free;   /* [2 * p] */
    double *clock;        /* [stage] */
    size_t *next;         /* [stage] index into ops */
    const double **waits; /* [stage] the input it waits for */
    int *ready;           /* stack of stages to visit */
    struct held *held;
    int n_held, room_held, out_of_memory;
    int *visited; /* the searches' own: operations in the order in which they were visited */
    size_t n_visited;
};

void shunt__simulator_destroy(struct shunt__simulator *sim)
{
    if (!sim)
        return;
    free(sim->routes);
    free(sim->arrive);
    free(sim->left);
    free(sim->queue_free);
    free(sim->next);
    free(sim->waits);
    free(sim->ready);
    free(sim->held);
    free(sim);
}

static void set_route(struct shunt__simulator *sim, int vee, int stage, int chunk, int type)
{
    const struct shunt_sched_profile *pr = sim->profile;
    struct route *r = &sim->routes[(stage * sim->v + chunk) * 4 + type];
    int k = stage * pr->v + chunk, position = shunt__sched_position(sim->p, vee, stage, chunk);
    int gradient = type != SHUNT_SCHED_F, last = sim->positions - 1;
    size_t m = (size_t)sim->m, grads = m * (size_t)sim->positions, in, out;

    r->queue = -1;
    r->to = -1;
    r->duration = type == SHUNT_SCHED_F   ? pr->forward[k]
                  : type == SHUNT_SCHED_B ? pr->backward[k] + pr->weight[k]
                  : type == SHUNT_SCHED_I ? pr->backward[k]
                                          : pr->weight[k];
    if (type == SHUNT_SCHED_W)
        return;
    in = (gradient ? grads : 0) + (size_t)position * m;
    if (gradient || position > 0) {
        r->in = sim->arrive + in;
        r->in_left = sim->left ? sim->left + in : NULL;
    }
    if (gradient && position == 0)
        return;
    if (!gradient && position == last) { /* the loss: its own backward may follow at once */
        out = grads + (size_t)last * m;
        r->to = stage;
    } else {
        struct shunt__hop hop = shunt__sched_hop(pr, vee, position, gradient);
        r->latency = hop.latency;
        r->service = hop.service;
        r->queue = hop.queue;
        r->to = hop.stage;
        out = gradient ? grads + (size_t)(position - 1) * m : (size_t)(position + 1) * m;
    }
    r->out = sim->arrive + out;
    r->out_left = sim->left ? sim->left + out : NULL;
}

static struct shunt__simulator *create(const struct shunt_sched_profile *profile, int vee, int blocking,
                                       int details)
{
    struct shunt__simulator *sim = calloc(1, sizeof(*sim));
    size_t p = (size_t)profile->p, cells;

    if (!sim)
        return NULL;
    sim->profile = profile;
    sim->p = profile->p;
    sim->v = profile->v;
    sim->m = profile->m;
    sim->positions = sim->p * sim->v;
    sim->blocking = blocking;
    cells = 2 * (size_t)sim->positions * (size_t)sim->m;
    sim->routes = calloc(p * (size_t)sim->v * 4, sizeof(struct route));
    sim->arrive = malloc(cells * sizeof(double));
    sim->left = details ? malloc(cells * sizeof(double)) : NULL;
    sim->queue_free = calloc(3 * p, sizeof(double));
    sim->next = calloc(p, sizeof(size_t));
    sim->waits = calloc(p, sizeof(double *));
    sim->ready = calloc(p, sizeof(int));
    if (!sim->routes || !sim->arrive || (details && !sim->left) || !sim->queue_free || !sim->next ||
        !sim->waits || !sim->ready) {
        shunt__simulator_destroy(sim);
        return NULL;
    }
    sim->clock = sim->queue_free + 2 * p;
    for (int i = 0; i < sim->p; i++)
        for (int c = 0; c < sim->v; c++)
            for (int type = 0; type < 4; type++)
                set_route(sim, vee, i, c, type);
    return sim;
}

struct shunt__simulator *shunt__simulator_create(const struct shunt_sched_profile *profile, int vee,
                                                 int blocking)
{
    return create(profile, vee, blocking, 0);
}

static void hold(struct shunt__simulator *sim, struct held h)
{
    if (sim->n_held == sim->room_held) {
        int room = sim->room_held ? 2 * sim->room_held : 64;
        struct held *more = realloc(sim->held, (size_t)room * sizeof(*more));
        if (!more) {
            sim->out_of_memory = 1;
            return;
        }
        sim->held = more;
        sim->room_held = room;
    }
    sim->held[sim->n_held++] = h;
}

/* Adds the idle span before an operation to the stage's causes. */
static void note_gap(struct shunt__simulator *sim, double *idle, int stage, const struct route *r, int type,
                     int mb, double from, double to, int live, int forwards)
{
    double left = r->in && r->in_left[mb] > from ? r->in_left[mb] : from, link = to - left;
    int cap = sim->profile->cap[stage];

    if (cap > 0 && sim->v == 1 && type != SHUNT_SCHED_F && live >= cap && forwards < sim->m)
        hold(sim, (struct held){stage, forwards, from, to, link});
    idle[SHUNT_SCHED_IDLE_LINK] += link;
    idle[SHUNT_SCHED_IDLE_DEPENDENCY] += to - from - link;
}

/*
 * Runs one stage as far as it can. `starts` and `idle` are NULL in the searches; the compiler makes a
 * version of this for each. Returns the new height of the stack of stages to visit.
 */
static inline __attribute__((always_inline)) int run_stage(struct shunt__simulator *sim,
                                                           const struct shunt_sched *s, int stage, int top,
                                                           double *starts, double *idle, int details)
{
    const struct route *routes = sim->routes + stage * sim->v * 4;
    const size_t end_of_list = s->offset[stage + 1];
    size_t k = sim->next[stage];
    double now = sim->clock[stage];
    int live = 0, forwards = 0;

    if (details && sim->profile->cap[stage] > 0)
        for (size_t j = s->offset[stage]; j < k;
             j++) { /* only stages with a cap need it, and they stop rarely */
            shunt_sched_type_t t = SHUNT__OP_TYPE(s->ops[j]);
            forwards += t == SHUNT_SCHED_F;
            live += t == SHUNT_SCHED_F ? 1 : t == SHUNT_SCHED_I ? 0 : -1;
        }
    sim->waits[stage] = NULL;
    for (; k < end_of_list; k++) {
        shunt__op_t op = s->ops[k];
        size_t mb = op >> 8;
        const struct route *r = &routes[op & 0xff]; /* chunk and type in the low byte are the route's index */
        double start = now, end;
        if (r->in) {
            double arrived = r->in[mb];
            if (arrived < 0) {
                sim->waits[stage] = &r->in[mb];
                break;
            }
            if (arrived > now)
                start = arrived;
        }
        if (details) {
            if (start > now)
                note_gap(sim, idle, stage, r, (int)(op & 3), (int)mb, now, start, live, forwards);
            forwards += (op & 3) == SHUNT_SCHED_F;
            live += (op & 3) == SHUNT_SCHED_F ? 1 : (op & 3) == SHUNT_SCHED_I ? 0 : -1;
        }
        if (starts) {
            starts[k] = start;
            if (!details && sim->visited)
                sim->visited[sim->n_visited++] = (int)k;
        }
        now = end = start + r->duration;
        if (r->out) {
            double arrival = end;
            if (r->queue >= 0) {
                if (r->service > 0) {
                    double *free_from = &sim->queue_free[r->queue];
                    arrival = *free_from = (*free_from > end ? *free_from : end) + r->service;
                }
                arrival += r->latency;
            }
            r->out[mb] = arrival;
            if (details)
                r->out_left[mb] = end;
            if (sim->waits[r->to] == &r->out[mb]) {
                sim->waits[r->to] = NULL;
                sim->ready[top++] = r->to;
            }
            if (sim->blocking && r->queue >= 0) {
                if (details)
                    idle[SHUNT_SCHED_IDLE_LINK] += arrival - end;
                now = arrival;
            }
        }
    }
    sim->next[stage] = k;
    sim->clock[stage] = now;
    return top;
}

static void reset(struct shunt__simulator *sim, const struct shunt_sched *s)
{
    size_t cells = 2 * (size_t)sim->positions * (size_t)sim->m;

    for (size_t k = 0; k < cells; k++)
        sim->arrive[k] = -1;
    memset(sim->queue_free, 0, 3 * (size_t)sim->p * sizeof(double));
    for (int i = 0; i < sim->p; i++) {
        sim->next[i] = s->offset[i];
        sim->waits[i] = NULL;
        sim->ready[i] = sim->p - 1 - i; /* stage 0 on top */
    }
}

static double finish(const struct shunt__simulator *sim, const struct shunt_sched *s)
{
    double makespan = 0;

    for (int i = 0; i < sim->p; i++) {
        if (sim->next[i] != s->offset[i + 1])
            return -1;
        if (sim->clock[i] > makespan)
            makespan = sim->clock[i];
    }
    return makespan;
}

double shunt__simulator_run(struct shunt__simulator *sim, const struct shunt_sched *schedule, double *starts)
{
    int top = sim->p;

    reset(sim, schedule);
    sim->n_visited = 0;
    if (starts)
        while (top > 0)
            top = run_stage(sim, schedule, sim->ready[top - 1], top - 1, starts, NULL, 0);
    else
        while (top > 0)
            top = run_stage(sim, schedule, sim->ready[top - 1], top - 1, NULL, NULL, 0);
    return finish(sim, schedule);
}

void shunt__simulator_record(struct shunt__simulator *sim, int *visited)
{
    sim->visited = visited;
}

void shunt__simulator_unit(struct shunt__simulator *sim)
{
    for (int k = 0; k < sim->p * sim->v * 4; k++)
        sim->routes[k].duration = 1;
}

double shunt__simulator_duration(const struct shunt__simulator *sim, int stage, shunt__op_t op)
{
    return sim->routes[stage * sim->v * 4 + (int)(op & 0xff)].duration;
}

void shunt_sched_result_destroy(shunt_sched_result_t *result)
{
    if (!result)
        return;
    free(result->idle);
    free(result->offset);
    free(result->starts);
    free(result->durations);
    free(result->ops);
    free(result);
}

/* Which stage stands still for what: the text of a deadlock. */
static shunt_status_t deadlock(const struct shunt__simulator *sim, const struct shunt_sched *s)
{
    char text[80];

    for (int i = 0; i < sim->p; i++)
        if (sim->next[i] < s->offset[i + 1]) {
            shunt__op_t op = s->ops[sim->next[i]];
            int forward = SHUNT__OP_TYPE(op) == SHUNT_SCHED_F,
                at = shunt__sched_position(sim->p, s->vee, i, SHUNT__OP_CHUNK(op));
            int from = at == sim->positions - 1 && !forward
                           ? i
                           : shunt__sched_stage_of(sim->p, s->vee, forward ? at - 1 : at + 1);
            return shunt__fail(SHUNT_ERR_FORMAT,
                               "the schedule deadlocks: stage %d, operation %d (%s) waits for %s stage %d, "
                               "which never comes to it",
                               i, (int)(sim->next[i] - s->offset[i]),
                               shunt__sched_op_text(op, sim->v, text, sizeof(text)),
                               forward ? "the activation from" : "the gradient from", from);
        }
    return shunt__fail(SHUNT_ERR_INTERNAL, "no deadlock");
}

/* Forwards of 1F1B order on every stage, or 0 if the schedule is of another form. */
static int warmup_form(const struct shunt_sched *s, int *warmup)
{
    if (s->v != 1)
        return 0;
    for (int i = 0; i < s->p; i++) {
        const shunt__op_t *ops = s->ops + s->offset[i];
        int x = shunt_sched_warmup(s, i), f = 0, b = 0;

        if (shunt_sched_count(s, i) != 2 * s->m || (i > 0 && x > warmup[i - 1]))
            return 0;
        warmup[i] = x;
        for (int k = 0; k < 2 * s->m; k++) {
            int forward = f < x || (f < s->m && f - b < x);
            if (ops[k] != (forward ? SHUNT__OP(SHUNT_SCHED_F, 0, f) : SHUNT__OP(SHUNT_SCHED_B, 0, b)))
                return 0;
            f += forward;
            b += !forward;
        }
    }
    return 1;
}

int shunt__sched_warmup_form(const struct shunt_sched *schedule)
{
    int *warmup = malloc((size_t)schedule->p * sizeof(int)), is = warmup && warmup_form(schedule, warmup);

    free(warmup);
    return is;
}

static double find_period(const struct shunt__simulator *sim, const struct shunt_sched *s, const int *warmup)
{
    /* The last position's forwards end at steady intervals to the very last, as no drain reaches them. */
    const double *ends = sim->arrive + (size_t)(2 * sim->positions - 1) * (size_t)sim->m;
    int m = sim->m, h = m / 2;

    if (warmup && !sim->blocking)
        return shunt_sched_warmup_period(sim->profile, warmup);
    double period =
        0; /* no order is faster than its stages; one that puts weight gradients off only looks so */
    for (int i = 0; i < sim->p; i++) {
        double work = 0;
        for (int k = i * sim->v; k < (i + 1) * sim->v; k++)
            work += sim->profile->forward[k] + sim->profile->backward[k] + sim->profile->weight[k];
        period = fmax(period, work);
    }
    h = h == m - 1 ? 0 : h;
    return m < 2 ? period : fmax(period, (ends[m - 1] - ends[h]) / (m - 1 - h));
}

static void settle(struct shunt__simulator *sim, const struct shunt_sched *s, struct shunt_sched_result *r)
{
    double idle = 0;

    for (int i = 0; i < sim->p; i++) {
        double *cause = r->idle + 3 * i;
        for (size_t k = s->offset[i]; k < s->offset[i + 1]; k++)
            r->busy[i] += sim->routes[i * sim->v * 4 + (int)(s->ops[k] & 0xff)].duration;
        r->peak[i] = shunt_sched_peak_live(s, i);
        cause[SHUNT_SCHED_IDLE_DEPENDENCY] += r->makespan - sim->clock[i];
        idle += r->makespan - r->busy[i];
    }
    for (int h = 0; h < sim->n_held; h++) {
        const struct held *g = &sim->held[h];
        double *cause = r->idle + 3 * g->stage;
        double there = g->stage == 0 ? g->from
                                     : sim->arrive[(size_t)g->stage * (size_t)sim->m + (size_t)g->forward];
        double memory = g->to - (there > g->from ? there : g->from);
        if (memory <= 0)
            continue;
        double from_link = memory < g->link ? memory : g->link; /* the later part of the gap is the link's */
        cause[SHUNT_SCHED_IDLE_MEMORY] += memory;
        cause[SHUNT_SCHED_IDLE_LINK] -= from_link;
        cause[SHUNT_SCHED_IDLE_DEPENDENCY] -= memory - from_link;
    }
    r->bubble = r->makespan > 0 ? idle / (r->makespan * sim->p) : 0;
}

static shunt_status_t keep_timeline(const struct shunt__simulator *sim, const struct shunt_sched *s,
                                    struct shunt_sched_result *r)
{
    size_t n = s->offset[s->p], routes = (size_t)(sim->p * sim->v * 4);

    r->ops = malloc((n + 1) * sizeof(r->ops[0]));
    r->durations = malloc(routes * sizeof(double));
    if (!r->ops || !r->durations)
        return SHUNT_ERR_NO_MEMORY;
    memcpy(r->ops, s->ops, n * sizeof(r->ops[0]));
    for (size_t k = 0; k < routes; k++)
        r->durations[k] = sim->routes[k].duration;
    return SHUNT_OK;
}

static int fits(const struct shunt_sched *s, const struct shunt_sched_profile *pr)
{
    return s->p == pr->p && s->v == pr->v && s->m == pr->m;
}

shunt_status_t shunt_sched_simulate(const shunt_sched_t *schedule, const shunt_sched_profile_t *profile,
                                    unsigned flags, shunt_sched_result_t **result)
{
    struct shunt__simulator *sim;
    struct shunt_sched_result *r;
    shunt_status_t st = SHUNT_OK;
    int top, *warmup;

    if (!schedule || !profile || !result)
        return shunt__fail(SHUNT_ERR_INVALID, "simulate: schedule, profile or result is NULL");
    if (!fits(schedule, profile))
        return shunt__fail(SHUNT_ERR_FORMAT,
                           "the schedule has %d stages, %d chunks, %d micro-batches, the profile %d, %d, %d",
                           schedule->p, schedule->v, schedule->m, profile->p, profile->v, profile->m);
    sim = create(profile, schedule->vee, (flags & SHUNT_SCHED_BLOCKING_SENDS) != 0, 1);
    r = calloc(1, sizeof(*r));
    warmup = calloc((size_t)profile->p, sizeof(int));
    if (r) {
        r->p = profile->p;
        r->v = profile->v;
        r->idle = calloc(5 * (size_t)profile->p, sizeof(double));
        r->offset = malloc(((size_t)profile->p + 1) * sizeof(size_t));
        r->starts = flags & SHUNT_SCHED_TIMELINE ? malloc((schedule->offset[profile->p] + 1) * sizeof(double))
                                                 : NULL;
    }
    if (!sim || !warmup || !r || !r->idle || !r->offset || ((flags & SHUNT_SCHED_TIMELINE) && !r->starts))
        st = SHUNT_ERR_NO_MEMORY;
    if (st == SHUNT_OK) {
        r->busy = r->idle + 3 * r->p;
        r->peak = r->idle + 4 * r->p;
        memcpy(r->offset, schedule->offset, ((size_t)profile->p + 1) * sizeof(size_t));
        reset(sim, schedule);
        for (top = sim->p; top > 0;) {
            int stage = sim->ready[top - 1];
            top = run_stage(sim, schedule, stage, top - 1, r->starts, r->idle + 3 * stage, 1);
        }
        r->makespan = finish(sim, schedule);
        if (sim->out_of_memory)
            st = SHUNT_ERR_NO_MEMORY;
        else if (r->makespan < 0)
            st = deadlock(sim, schedule);
    }
    if (st == SHUNT_OK) {
        r->period = find_period(sim, schedule, warmup_form(schedule, warmup) ? warmup : NULL);
        settle(sim, schedule, r);
        if (r->starts)
            st = keep_timeline(sim, schedule, r);
    }
    shunt__simulator_destroy(sim);
    free(warmup);
    if (st != SHUNT_OK) {
        shunt_sched_result_destroy(r);
        return st == SHUNT_ERR_NO_MEMORY
                   ? shunt__fail(st, "no memory to simulate %d stages x %d micro-batches", profile->p,
                                 profile->m)
                   : st;
    }
    *result = r;
    return SHUNT_OK;
}

double shunt_sched_result_makespan(const shunt_sched_result_t *result)
{
    return result ? result->makespan : 0;
}

double shunt_sched_result_period(const shunt_sched_result_t *result)
{
    return result ? result->period : 0;
}

double shunt_sched_result_bubble(const shunt_sched_result_t *result)
{
    return result ? result->bubble : 0;
}

double shunt_sched_result_idle(const shunt_sched_result_t *result, int stage, shunt_sched_cause_t cause)
{
    return result && stage >= 0 && stage < result->p && (unsigned)cause < 3
               ? result->idle[3 * stage + (int)cause]
               : 0;
}

double shunt_sched_result_peak_live(const shunt_sched_result_t *result, int stage)
{
    return result && stage >= 0 && stage < result->p ? result->peak[stage] : 0;
}

double shunt_sched_result_busy(const shunt_sched_result_t *result, int stage)
{
    return result && stage >= 0 && stage < result->p ? result->busy[stage] : 0;
}

shunt_status_t shunt_sched_result_time(const shunt_sched_result_t *result, int stage, int index,
                                       double *start, double *end)
{
    if (!result || !start || !end || !result->starts)
        return shunt__fail(SHUNT_ERR_INVALID, "no timeline: simulate with SHUNT_SCHED_TIMELINE");
    if (stage < 0 || stage >= result->p || index < 0 ||
        (size_t)index >= result->offset[stage + 1] - result->offset[stage])
        return shunt__fail(SHUNT_ERR_INVALID, "stage %d has no operation %d", stage, index);
    size_t k = result->offset[stage] + (size_t)index;
    *start = result->starts[k];
    *end = *start + result->durations[stage * result->v * 4 + (int)(result->ops[k] & 0xff)];
    return SHUNT_OK;
}
