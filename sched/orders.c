/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planner's last search: single operations of an order are moved to and fro, by simulated annealing with
 * a fixed seed (Kirkpatrick et al., 1983). Moves are taken from a longest path, where alone they can help. A
 * move is first judged by the longest path through the moved operations, from their neighbours' heads and
 * tails (Balas and Vazacopoulos, 1998); nine in ten end there, and only the others are simulated, exactly.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/sched.h"

/* What a simulated operation costs with heads, tails and path, and what a try costs, in plain simulated
 * operations. */
#define FULL_COST 3.0
#define TRY_COST 25.0

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull; /* splitmix64 (Steele et al., 2014) */

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Whether two neighbours of one stage may change places; their types differ if so. */
static int may_swap(shunt__op_t a, shunt__op_t b, int live, int cap)
{
    shunt_sched_type_t s = SHUNT__OP_TYPE(a), t = SHUNT__OP_TYPE(b);

    if (s == t || SHUNT__OP_MICROBATCH(a) == SHUNT__OP_MICROBATCH(b))
        return 0;
    return !(t == SHUNT_SCHED_F && s != SHUNT_SCHED_I &&
             live >= cap); /* F would come before what makes room for it */
}

/* Live micro-batches before the at-th operation. */
static int live_before(const shunt__op_t *ops, int at)
{
    int live = 0;

    for (int k = 0; k < at; k++) {
        shunt_sched_type_t t = SHUNT__OP_TYPE(ops[k]);
        live += t == SHUNT_SCHED_F ? 1 : t == SHUNT_SCHED_I ? 0 : -1;
    }
    return live;
}

/* Moves the operation at `from` by up to |by| places; returns where it stands then. */
static int move(shunt__op_t *ops, int n, int cap, int from, int by)
{
    int live = live_before(ops, from), at = from;

    for (; by > 0 && at + 1 < n && may_swap(ops[at], ops[at + 1], live, cap); by--, at++) {
        shunt_sched_type_t t = SHUNT__OP_TYPE(ops[at + 1]);
        shunt__op_t op = ops[at];
        ops[at] = ops[at + 1];
        ops[at + 1] = op;
        live += t == SHUNT_SCHED_F ? 1 : t == SHUNT_SCHED_I ? 0 : -1;
    }
    for (; by < 0 && at > 0; by++, at--) {
        shunt_sched_type_t t = SHUNT__OP_TYPE(ops[at - 1]);
        int before = live - (t == SHUNT_SCHED_F ? 1 : t == SHUNT_SCHED_I ? 0 : -1);
        if (!may_swap(ops[at - 1], ops[at], before, cap))
            break;
        shunt__op_t op = ops[at];
        ops[at] = ops[at - 1];
        ops[at - 1] = op;
        live = before;
    }
    return at;
}

/* The order that is being changed, and where everything stands in it. */
struct anneal {
    struct shunt_sched *s;
    struct shunt__simulator *sim;
    double *next_starts; /* of the order that is tried */
    double *starts,
        *tails;     /* per operation: when it starts, and the longest way from its end to the end of all */
    int *visited;   /* an order that respects all dependencies */
    int *where;     /* index of an operation in its stage's list, [(stage * 3 + slot) * m + microbatch] */
    int (*path)[2]; /* a longest path, last operation first: stage, index */
    int n_path;
    int *stage_of;     /* per operation */
    double *durations; /* [stage * 4 + type] */
    const struct shunt_sched_profile *profile;
    uint64_t seed;
};

static int *where(const struct anneal *a, int stage, shunt__op_t op)
{
    int slot = SHUNT__OP_TYPE(op) == SHUNT_SCHED_F ? 0 : SHUNT__OP_TYPE(op) == SHUNT_SCHED_W ? 2 : 1;

    return &a->where[(stage * 3 + slot) * a->s->m + SHUNT__OP_MICROBATCH(op)];
}

static void index_range(const struct anneal *a, int stage, int from, int to)
{
    for (int k = from < to ? from : to; k <= (from < to ? to : from); k++)
        *where(a, stage, a->s->ops[a->s->offset[stage] + (size_t)k]) = k;
}

/* Moves the operation at `at` back to `from`. */
static void put_back(shunt__op_t *ops, int from, int at)
{
    shunt__op_t op = ops[at];

    if (at > from)
        memmove(ops + from + 1, ops + from, (size_t)(at - from) * sizeof(*ops));
    else
        memmove(ops + at, ops + at + 1, (size_t)(from - at) * sizeof(*ops));
    ops[from] = op;
}

/* Follows what held each operation up, from the last one to end. */
static void trace(struct anneal *a)
{
    const struct shunt_sched *s = a->s;
    int stage = 0, k;
    double latest = -1;

    for (int i = 0; i < s->p; i++) {
        size_t last = s->offset[i + 1] - 1;
        double end = a->starts[last] + shunt__simulator_duration(a->sim, i, s->ops[last]);
        if (end > latest) {
            latest = end;
            stage = i;
        }
    }
    k = shunt_sched_count(s, stage) - 1;
    for (a->n_path = 0; k >= 0; a->n_path++) {
        size_t at = s->offset[stage] + (size_t)k;
        shunt__op_t op = s->ops[at];
        a->path[a->n_path][0] = stage;
        a->path[a->n_path][1] = k;
        if (k > 0 &&
            a->starts[at - 1] + shunt__simulator_duration(a->sim, stage, s->ops[at - 1]) >= a->starts[at]) {
            k--;
            continue;
        }
        if (SHUNT__OP_TYPE(op) == SHUNT_SCHED_F)
            stage--;
        else if (stage < s->p - 1)
            stage++;
        else
            op = SHUNT__OP(SHUNT_SCHED_F, 0, SHUNT__OP_MICROBATCH(op));
        if (stage < 0)
            return;
        k = *where(a, stage, op);
    }
}

/* Picks a stage, an operation of it and how far to move it; mostly on the longest path, where it can matter.
 */
static void pick(struct anneal *a, int *stage, int *from, int *by)
{
    uint64_t r = next_random(&a->seed);

    *by = 1 + (int)(r >> 8 & 3);
    if (r & 1)
        *by = -*by;
    if ((r >> 1 & 7) && a->n_path > 0) {
        int k = (int)((r >> 16) % (uint64_t)a->n_path);
        *stage = a->path[k][0];
        *from = a->path[k][1];
    } else {
        *stage = (int)((r >> 16) % (uint64_t)a->s->p);
        *from = (int)((r >> 32) % (uint64_t)shunt_sched_count(a->s, *stage));
    }
}

/* The operation that waits for this one's message, as an index into ops, and the delay; -1 if there is none.
 */
static long successor(const struct anneal *a, int stage, shunt__op_t op, double *delay)
{
    const struct shunt_sched *s = a->s;
    shunt_sched_type_t type = SHUNT__OP_TYPE(op);
    int to = type == SHUNT_SCHED_F ? stage + 1 : stage - 1, link = type == SHUNT_SCHED_F ? stage : to;

    if (type == SHUNT_SCHED_W || to < 0 || to >= s->p)
        return -1;
    int dir = type == SHUNT_SCHED_F ? SHUNT__DOWN : SHUNT__UP;
    *delay = a->profile->latency[dir][link] + a->profile->service[dir][link];
    return (long)s->offset[to] + *where(a, to, op);
}

/* The same for the operation that this one waits for. */
static long predecessor(const struct anneal *a, int stage, shunt__op_t op, double *delay)
{
    const struct shunt_sched *s = a->s;
    shunt_sched_type_t type = SHUNT__OP_TYPE(op);
    int from = type == SHUNT_SCHED_F ? stage - 1 : stage + 1, link = type == SHUNT_SCHED_F ? from : stage;

    if (type == SHUNT_SCHED_W || from < 0 || from >= s->p)
        return -1;
    int dir = type == SHUNT_SCHED_F ? SHUNT__DOWN : SHUNT__UP;
    *delay = a->profile->latency[dir][link] + a->profile->service[dir][link];
    return (long)s->offset[from] + *where(a, from, op);
}

static double duration(const struct anneal *a, int stage, shunt__op_t op)
{
    return a->durations[stage * 4 + (int)SHUNT__OP_TYPE(op)];
}

/* Tails of all operations, backwards through the order of the last run. */
static void set_tails(struct anneal *a)
{
    const struct shunt_sched *s = a->s;
    size_t n = s->offset[s->p];

    for (size_t k = n; k-- > 0;) {
        size_t at = (size_t)a->visited[k];
        int stage = a->stage_of[at];
        double tail = 0, delay = 0;
        if (at + 1 < s->offset[stage + 1])
            tail = duration(a, stage, s->ops[at + 1]) + a->tails[at + 1];
        long next = successor(a, stage, s->ops[at], &delay);
        if (next >= 0)
            tail = fmax(tail, delay + duration(a, a->stage_of[next], s->ops[next]) + a->tails[next]);
        a->tails[at] = tail;
    }
}

/* Longest path through the operations lo ... hi of a stage, which were just reordered; the index is still the
 * old one. */
static double estimate(const struct anneal *a, int stage, int lo, int hi)
{
    const struct shunt_sched *s = a->s;
    size_t base = s->offset[stage], count = s->offset[stage + 1] - base;
    const shunt__op_t *ops = s->ops + base;
    double heads[8], now = 0, tail = 0, longest = 0, delay = 0;

    if (lo > 0)
        now = a->starts[base + (size_t)lo - 1] + duration(a, stage, ops[lo - 1]);
    for (int k = lo; k <= hi; k++) {
        long from = predecessor(a, stage, ops[k], &delay);
        if (from >= 0)
            now = fmax(now, a->starts[from] + duration(a, a->stage_of[from], s->ops[from]) + delay);
        heads[k - lo] = now;
        now += duration(a, stage, ops[k]);
    }
    if ((size_t)hi + 1 < count)
        tail = duration(a, stage, ops[hi + 1]) + a->tails[base + (size_t)hi + 1];
    for (int k = hi; k >= lo; k--) {
        long to = successor(a, stage, ops[k], &delay);
        if (to >= 0)
            tail = fmax(tail, delay + duration(a, a->stage_of[to], s->ops[to]) + a->tails[to]);
        tail += duration(a, stage, ops[k]);
        longest = fmax(longest, heads[k - lo] + tail);
    }
    return longest;
}

/* The makespan, and with `flow` the mean start of stage 0's backwards added: that rewards progress which does
 * not show in the makespan yet, and leads over the plateaus of long pipelines. */
static double value(const struct anneal *a, double makespan, int flow)
{
    double sum = 0;

    for (int k = 0; flow && k < a->s->m; k++)
        sum += a->starts[a->s->offset[0] + (size_t)*where(a, 0, SHUNT__OP(SHUNT_SCHED_B, 0, k))];
    return makespan + sum / a->s->m;
}

/* One annealing from the best order so far, as long as `budget` lasts; hot = 0 only walks along plateaus and
 * down. */
static void anneal(struct shunt__search *search, struct anneal *a, double budget, double hot, int flow)
{
    const struct shunt_sched *s = a->s;
    const double cost = FULL_COST * (double)s->offset[s->p] + 60;
    int stage, from, by;

    memcpy(s->ops, search->best->ops, s->offset[s->p] * sizeof(s->ops[0]));
    for (int i = 0; i < s->p; i++)
        index_range(a, i, 0, shunt_sched_count(s, i) - 1);
    double makespan = shunt__simulator_run(a->sim, s, a->starts), now = value(a, makespan, flow),
           left = budget;
    set_tails(a);
    trace(a);
    while (left > 0 && search->makespan > search->bound * (1 + 1e-12)) {
        double chance = (double)(next_random(&a->seed) >> 11) / 9007199254740992.0;
        double more = hot > 0 ? -hot * left / budget * log(chance + 1e-300)
                              : 0; /* this much worse is taken */
        pick(a, &stage, &from, &by);
        shunt__op_t *ops = s->ops + s->offset[stage];
        int at = move(ops, shunt_sched_count(s, stage), search->cap[stage], from, by);
        left -= TRY_COST;
        if (at == from)
            continue;
        if (estimate(a, stage, from < at ? from : at, from < at ? at : from) >
            makespan * (1 + 1e-12) + more) {
            put_back(ops, from, at);
            continue;
        }
        left -= cost;
        double t = shunt__simulator_run(a->sim, s, a->next_starts), then;
        index_range(a, stage, from, at);
        double *swap = a->starts;
        a->starts = a->next_starts;
        a->next_starts = swap;
        then = t < 0 ? INFINITY : value(a, t, flow);
        if (then > now + more) {
            put_back(ops, from, at);
            index_range(a, stage, from, at);
            a->next_starts = a->starts;
            a->starts = swap;
            continue;
        }
        now = then;
        makespan = t;
        set_tails(a);
        trace(a);
        if (t < search->makespan * (1 - 1e-12)) {
            memcpy(search->best->ops, s->ops, s->offset[s->p] * sizeof(s->ops[0]));
            search->makespan = t;
            search->best_family = "an order found by moving single operations";
        }
    }
    search->left -= budget - left;
}

/*
 * Rounds of annealing. Where there are many steps for each operation a warm round between two cold ones finds
 * the optimum of small pipelines; where there are few only the cold ones pay.
 */
static void rounds(struct shunt__search *search, struct anneal *a, double budget)
{
    const struct shunt_sched_profile *pr = search->profile;
    double n = (double)a->s->offset[pr->p], operation = 0, many = budget / (FULL_COST * n * 20 * n);

    for (int i = 0; i < pr->p; i++)
        operation += (pr->forward[i] + pr->backward[i] + pr->weight[i]) / (pr->p * (search->split ? 3 : 2));
    if (many < 0.25) {
        anneal(search, a, budget / 2, 0, 1);
        anneal(search, a, budget / 2, operation * 0.1, 0);
        return;
    }
    anneal(search, a, budget / 4, 0, 1);
    anneal(search, a, budget / 2, operation * (many < 1 ? many : 1), 0);
    anneal(search, a, budget / 4, 0, 0);
}

static shunt_status_t set_up(struct anneal *a, const struct shunt__search *search)
{
    const struct shunt_sched_profile *pr = search->profile;
    size_t n = search->best->offset[pr->p];
    shunt_status_t st = shunt_sched_copy(search->best, &a->s);

    if (st != SHUNT_OK)
        return st;
    a->profile = pr;
    a->sim = shunt__simulator_create(pr, 0, 0);
    a->starts = malloc(n * sizeof(double));
    a->next_starts = malloc(n * sizeof(double));
    a->tails = malloc(n * sizeof(double));
    a->durations = malloc(4 * (size_t)pr->p * sizeof(double));
    a->where = malloc(3 * (size_t)pr->p * (size_t)pr->m * sizeof(int));
    a->visited = malloc(n * sizeof(int));
    a->stage_of = malloc(n * sizeof(int));
    a->path = malloc(n * sizeof(a->path[0]));
    if (!a->sim || !a->starts || !a->next_starts || !a->tails || !a->durations || !a->where || !a->visited ||
        !a->stage_of || !a->path)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to plan %d stages", pr->p);
    shunt__simulator_record(a->sim, a->visited);
    for (int i = 0; i < pr->p; i++) {
        for (int type = 0; type < 4; type++)
            a->durations[4 * i + type] = shunt__simulator_duration(a->sim, i, SHUNT__OP(type, 0, 0));
        for (size_t k = a->s->offset[i]; k < a->s->offset[i + 1]; k++)
            a->stage_of[k] = i;
    }
    return SHUNT_OK;
}

shunt_status_t shunt__search_orders(struct shunt__search *search, double share)
{
    struct anneal a = {.seed = 1};
    double budget = search->left * share;
    shunt_status_t st;

    if (!search->best || search->makespan <= search->bound * (1 + 1e-12))
        return SHUNT_OK;
    if (budget < 50 * FULL_COST * (double)search->best->offset[search->profile->p])
        return SHUNT_OK;
    st = set_up(&a, search);
    if (st == SHUNT_OK)
        rounds(search, &a, budget);
    shunt__simulator_destroy(a.sim);
    shunt_sched_destroy(a.s);
    free(a.starts);
    free(a.next_starts);
    free(a.tails);
    free(a.durations);
    free(a.where);
    free(a.visited);
    free(a.stage_of);
    free(a.path);
    return st;
}
