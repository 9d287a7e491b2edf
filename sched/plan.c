/* SPDX-License-Identifier: BSD-3-Clause */
/* The planner: which searches run on a profile, and what is said of the outcome. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/sched.h"

struct shunt_sched_plan {
    struct shunt_sched *schedule;
    double makespan, bound, little;
    char reason[512];
};

void shunt_sched_plan_destroy(shunt_sched_plan_t *plan)
{
    if (!plan)
        return;
    shunt_sched_destroy(plan->schedule);
    free(plan);
}

const shunt_sched_t *shunt_sched_plan_schedule(const shunt_sched_plan_t *plan)
{
    return plan ? plan->schedule : NULL;
}

double shunt_sched_plan_makespan(const shunt_sched_plan_t *plan)
{
    return plan ? plan->makespan : 0;
}

double shunt_sched_plan_lower_bound(const shunt_sched_plan_t *plan)
{
    return plan ? plan->bound : 0;
}

double shunt_sched_plan_little_bound(const shunt_sched_plan_t *plan)
{
    return plan ? plan->little : 0;
}

const char *shunt_sched_plan_reason(const shunt_sched_plan_t *plan)
{
    return plan ? plan->reason : "";
}

/* All searches of one form of backward. */
static shunt_status_t search_form(struct shunt__search *search, int split, double budget, int with_orders)
{
    const struct shunt_sched_profile *pr = search->profile;
    shunt_status_t st = SHUNT_OK;

    search->split = split;
    search->bound = shunt_sched_lower_bound(pr, split);
    search->left = budget;
    if (!split) {
        search->family = "1F1B order with warm-up counts from the closed form and a local search";
        st = shunt__search_warmup(search, 0.3);
    }
    if (st == SHUNT_OK && search->makespan > search->bound * (1 + 1e-12)) {
        search->family = split ? "split backward, input gradients first, weight gradients in the gaps"
                               : "a readiness-first order";
        st = shunt__search_dispatch(search, with_orders ? 0.3 : 1);
    }
    if (st == SHUNT_OK && with_orders)
        st = shunt__search_orders(search, 1);
    return st;
}

static double total_peak(const struct shunt_sched *s)
{
    double sum = 0;

    for (int i = 0; i < s->p; i++)
        sum += shunt_sched_peak_live(s, i);
    return sum;
}

/* Looks for an order that ends by the limit and keeps fewer micro-batches alive: the least limits above those
 * of 1F1B that still do. */
static shunt_status_t trim(struct shunt__search *search, double budget, double limit)
{
    const struct shunt_sched_profile *pr = search->profile;
    int *live = malloc(2 * (size_t)pr->p * sizeof(int)), low = 0, high = 0;
    struct shunt__dispatch rule = {live + pr->p, live, search->split, SHUNT__BACKWARD_FIRST, 0, 0, NULL};
    shunt_status_t st = SHUNT_OK;

    if (!live)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to plan %d stages", pr->p);
    for (int i = 0; i < pr->p && !shunt__sched_warmup_form(search->best); i++) {
        int above = (int)shunt_sched_peak_live(search->best, i) - (pr->p - i);
        high = above > high ? above : high;
    }
    for (; low < high && st == SHUNT_OK && budget > 0;
         budget -= shunt__dispatch_cost(pr->p) * (double)search->best->offset[pr->p]) {
        int more = (low + high) / 2;
        struct shunt_sched *s;
        double t;
        for (int i = 0; i < pr->p; i++) {
            live[i] = pr->p - i + more < search->cap[i] ? pr->p - i + more : search->cap[i];
            live[pr->p + i] = pr->m;
        }
        st = shunt__sched_dispatch(pr, &rule, &s, &t);
        if (st != SHUNT_OK)
            break;
        if (t > limit) {
            low = more + 1;
            shunt_sched_destroy(s);
            continue;
        }
        high = more;
        if (total_peak(s) < total_peak(search->best)) {
            shunt_sched_destroy(search->best);
            search->best = s;
            search->makespan = t;
        } else
            shunt_sched_destroy(s);
    }
    free(live);
    return st;
}

/* The same for 1F1B orders: warm-up counts go down, from the first stage on, as long as the limit allows. */
static shunt_status_t trim_warmup(struct shunt__search *search, double limit)
{
    const struct shunt_sched_profile *pr = search->profile;
    int *x = malloc(2 * (size_t)pr->p * sizeof(int)), *try = x + pr->p, less = 1;
    double *scratch = malloc(shunt__warmup_scratch(pr) * sizeof(double));
    shunt_status_t st = SHUNT_OK;

    if (!x || !scratch)
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to plan %d stages", pr->p);
    for (int i = 0; i < pr->p && st == SHUNT_OK; i++)
        x[i] = shunt_sched_warmup(search->best, i);
    while (st == SHUNT_OK && less) {
        less = 0;
        for (int i = pr->p - 1; i >= 0 && !less; i--) {
            int possible = 1;
            for (int k = 0; k < pr->p; k++) {
                try[k] = x[k] - (k <= i);
                possible &= try[k] >= 1 && (k == 0 || try[k] <= try[k - 1]);
            }
            if (!possible || shunt__warmup_bound(pr, try) > limit)
                continue;
            double t = shunt__warmup_makespan(pr, try, scratch);
            if (t > limit)
                continue;
            for (int k = 0; k < pr->p; k++)
                x[k] = try[k];
            search->makespan = t;
            less = 1;
        }
    }
    if (st == SHUNT_OK) {
        struct shunt_sched *s;
        st = shunt_sched_create_warmup(pr, x, &s);
        if (st == SHUNT_OK) {
            shunt_sched_destroy(search->best);
            search->best = s;
        }
    }
    free(x);
    free(scratch);
    return st;
}

/* The same order with each backward taken apart: never slower, as gradients leave earlier. */
static shunt_status_t take_apart(const struct shunt_sched_profile *pr, const struct shunt_sched *whole,
                                 struct shunt_sched **split)
{
    shunt_status_t st = shunt__sched_alloc_even(pr, 1, 0, whole->kind, 1, split);

    for (int i = 0; i < pr->p && st == SHUNT_OK; i++) {
        shunt__op_t *to = (*split)->ops + (*split)->offset[i];
        for (size_t k = whole->offset[i]; k < whole->offset[i + 1]; k++) {
            shunt__op_t op = whole->ops[k];
            int mb = SHUNT__OP_MICROBATCH(op);
            if (SHUNT__OP_TYPE(op) == SHUNT_SCHED_F)
                *to++ = op;
            else {
                *to++ = SHUNT__OP(SHUNT_SCHED_I, 0, mb);
                *to++ = SHUNT__OP(SHUNT_SCHED_W, 0, mb);
            }
        }
    }
    return st;
}

static shunt_status_t offer_apart(struct shunt__search *split, const struct shunt_sched *whole)
{
    struct shunt__simulator *sim = shunt__simulator_create(split->profile, 0, 0);
    struct shunt_sched *s = NULL;
    shunt_status_t st = sim ? take_apart(split->profile, whole, &s)
                            : shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to plan %d stages",
                                          split->profile->p);

    if (st == SHUNT_OK) {
        split->family = "1F1B order with split backwards";
        shunt__search_offer(split, s, shunt__simulator_run(sim, s, NULL));
    }
    shunt__simulator_destroy(sim);
    return st;
}

/* "7,6,5,1"; long lists are cut in the middle. */
static const char *list_warmup(const struct shunt_sched *s, char *text, size_t size)
{
    size_t n = 0;

    for (int i = 0; i < s->p && n + 16 < size; i++) {
        if (s->p > 20 && i == 10) {
            n += (size_t)snprintf(text + n, size - n, ",...");
            i = s->p - 4;
        }
        n += (size_t)snprintf(text + n, size - n, "%s%d", i > 0 ? "," : "", shunt_sched_warmup(s, i));
    }
    return text;
}

/* Makespan of a named schedule that keeps the caps, or a negative number. */
static double compared(const struct shunt_sched_profile *pr, shunt_sched_kind_t kind)
{
    shunt_sched_t *s;
    shunt_sched_result_t *r;
    double t = -1;

    if (shunt_sched_create(pr, kind, &s) != SHUNT_OK)
        return -1;
    if (shunt_sched_check(s, pr) == SHUNT_OK && shunt_sched_simulate(s, pr, 0, &r) == SHUNT_OK) {
        t = shunt_sched_result_makespan(r);
        shunt_sched_result_destroy(r);
    }
    shunt_sched_destroy(s);
    return t;
}

static void explain(struct shunt_sched_plan *plan, const struct shunt_sched_profile *pr, const char *family)
{
    char warmup[160];
    size_t n, size = sizeof(plan->reason);
    double plain = compared(pr, SHUNT_SCHED_1F1B);

    n = (size_t)snprintf(plan->reason, size, "%s; warm-up %s", family,
                         list_warmup(plan->schedule, warmup, sizeof(warmup)));
    if (plain >= 0 && n < size)
        n += (size_t)snprintf(plan->reason + n, size - n, "; 1F1B would take %.6g", plain);
    if (n < size && plan->bound > 0) {
        double over = 100 * (plan->makespan / plan->bound - 1);
        if (over < 0.005)
            n += (size_t)snprintf(plan->reason + n, size - n, "; no schedule can be faster");
        else
            n += (size_t)snprintf(plan->reason + n, size - n, "; %.2f %% above the lower bound%s", over,
                                  plan->little >= plan->bound ? ", which the memory caps set" : "");
    }
}

/*
 * The amount of search is counted in simulated operations: a constant, more for large pipelines, whose
 * operations are many, and more for small ones, where each order can still be improved.
 */
static double budget_of(const struct shunt_sched_profile *pr)
{
    double size = (double)pr->p * pr->m;

    return 0.6e6 + 220 * size + 5e6 / (1 + size * size / 160000);
}

/* Both forms where they are allowed; a split order is searched from the best whole one, too. */
static shunt_status_t search_forms(struct shunt__search *whole, struct shunt__search *split, int may_whole,
                                   int may_split, double effort, double thrift)
{
    const struct shunt_sched_profile *pr = whole->profile;
    double budget = effort * budget_of(pr);
    shunt_status_t st = search_form(whole, 0, may_split ? budget / 5 : budget, !may_split);

    if (st == SHUNT_OK && may_split) {
        st = offer_apart(split, whole->best);
        if (st == SHUNT_OK)
            st = search_form(split, 1, budget * 0.8, 1);
        if (st == SHUNT_OK)
            st = trim(split, budget / 4, split->makespan * (1 + fmax(thrift, 1e-9)));
    }
    if (st == SHUNT_OK && may_whole) {
        double limit = whole->makespan * (1 + fmax(thrift, 1e-9));
        st = shunt__sched_warmup_form(whole->best) ? trim_warmup(whole, limit)
                                                   : trim(whole, budget / 4, limit);
    }
    return st;
}

static shunt_status_t plan_one_chunk(const struct shunt_sched_profile *pr, unsigned flags, double effort,
                                     double thrift, struct shunt_sched_plan *plan)
{
    int *cap = malloc((size_t)pr->p * sizeof(int));
    int may_split = shunt__sched_has_weight(pr) && !(flags & SHUNT_SCHED_NO_SPLIT),
        may_whole = !(flags & SHUNT_SCHED_ONLY_SPLIT);
    struct shunt__search whole = {.profile = pr, .cap = cap, .makespan = INFINITY}, split = whole;

    if (!cap)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to plan %d stages", pr->p);
    for (int i = 0; i < pr->p; i++)
        cap[i] = pr->cap[i] > 0 && pr->cap[i] < pr->m ? pr->cap[i] : pr->m;
    shunt_status_t st = search_forms(&whole, &split, may_whole, may_split, effort, thrift);
    free(cap);
    if (st != SHUNT_OK) {
        shunt_sched_destroy(whole.best);
        shunt_sched_destroy(split.best);
        return st;
    }
    /* As fast without a split is simpler, and needs less memory. */
    struct shunt__search *best = !may_split || (may_whole &&
                                                whole.makespan <= split.makespan * (1 + fmax(thrift, 1e-9)))
                                     ? &whole
                                     : &split;
    plan->schedule = best->best;
    plan->makespan = best->makespan;
    plan->bound = fmin(may_split ? shunt_sched_lower_bound(pr, 1) : INFINITY,
                       may_whole ? shunt_sched_lower_bound(pr, 0) : INFINITY);
    plan->little = fmin(may_split ? shunt_sched_little_bound(pr, 1) : INFINITY,
                        may_whole ? shunt_sched_little_bound(pr, 0) : INFINITY);
    shunt_sched_destroy(best == &split ? whole.best : split.best);
    explain(plan, pr, best->best_family);
    return SHUNT_OK;
}

/* With chunks: the best of the schedules that are known for them and keep the caps. */
static shunt_status_t plan_chunks(const struct shunt_sched_profile *pr, unsigned flags,
                                  struct shunt_sched_plan *plan)
{
    static const shunt_sched_kind_t kinds[] = {SHUNT_SCHED_INTERLEAVED, SHUNT_SCHED_ZBV};
    double times[2] = {-1, -1};
    int split = shunt__sched_has_weight(pr) && !(flags & SHUNT_SCHED_NO_SPLIT);

    if (!(flags & SHUNT_SCHED_ONLY_SPLIT))
        times[0] = compared(pr, kinds[0]);
    if (split && pr->v == 2)
        times[1] = compared(pr, kinds[1]);
    int best = times[1] >= 0 && (times[0] < 0 || times[1] < times[0]);
    if (times[best] < 0)
        return shunt__fail(SHUNT_ERR_UNSUPPORTED,
                           "no schedule is known for %d chunks, %d stages and %d micro-batches under these "
                           "caps: %s",
                           pr->v, pr->p, pr->m, shunt_error_text());
    shunt_status_t st = shunt_sched_create(pr, kinds[best], &plan->schedule);
    if (st != SHUNT_OK)
        return st;
    plan->makespan = times[best];
    plan->bound = shunt_sched_lower_bound(pr, split);
    explain(plan, pr, best ? "zb-v" : "interleaved");
    return SHUNT_OK;
}

shunt_status_t shunt_sched_plan_create(const shunt_sched_profile_t *profile,
                                       const shunt_sched_plan_params_t *params, shunt_sched_plan_t **plan)
{
    struct shunt_sched_plan *pl;
    unsigned flags = params ? params->flags : 0;
    double effort = params && params->effort > 0 ? params->effort : 1;
    double thrift = params && params->thrift > 0 ? params->thrift : 0;
    shunt_status_t st;

    if (!profile || !plan)
        return shunt__fail(SHUNT_ERR_INVALID, "plan: the profile or the output pointer is NULL");
    if (params && params->size < sizeof(*params))
        return shunt__fail(SHUNT_ERR_INVALID,
                           "plan: params.size is %zu; set it to sizeof(shunt_sched_plan_params_t)",
                           params->size);
    if ((flags & SHUNT_SCHED_ONLY_SPLIT) &&
        ((flags & SHUNT_SCHED_NO_SPLIT) || !shunt__sched_has_weight(profile)))
        return shunt__fail(SHUNT_ERR_INVALID, "plan: a split backward was asked for, but %s",
                           flags & SHUNT_SCHED_NO_SPLIT ? "also excluded"
                                                        : "the profile has no weight gradient times");
    pl = calloc(1, sizeof(*pl));
    if (!pl)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a plan");
    st = profile->v > 1 ? plan_chunks(profile, flags, pl)
                        : plan_one_chunk(profile, flags, effort, thrift, pl);
    if (st != SHUNT_OK) {
        free(pl);
        return st;
    }
    if (profile->v == 1)
        pl->schedule->kind = shunt__sched_warmup_form(pl->schedule) ? SHUNT_SCHED_ADAPTED
                                                                    : SHUNT_SCHED_PLANNED;
    *plan = pl;
    return SHUNT_OK;
}
