/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans against the best order that a long simulated annealing finds, on pipelines too large for brute force.
 *
 *     anneal                       a bounded subset, counted in steps, as a test
 *     anneal CASES SECONDS [P M]   the benchmark: that many cases of each size, that long per case
 *
 * The annealing has moves and starts of its own: each restart begins from another schedule (the plan,
 * PipeMorph's plan, readiness-first, 1F1B adapted, ZB-H2), moves one operation by up to eight places, and
 * cools from 3 % of the makespan.
 */
#include <math.h>
#include <string.h>
#include <time.h>
#include "sched/sched.h"
#include "tests/sched/cases.h"
#include "tests/tap.h"

struct annealed {
    const shunt_sched_profile_t *profile;
    int split, p, m, *cap;
    struct shunt__simulator *sim;
    uint64_t seed;
    double best, deadline;
    long steps; /* per restart, where no deadline is set */
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether one stage's list keeps F before B or I before W, order of micro-batches, and the cap. */
static int possible(const shunt__op_t *ops, int n, int cap, int split)
{
    int f = 0, b = 0, w = 0;

    for (int k = 0; k < n; k++) {
        shunt_sched_type_t t = SHUNT__OP_TYPE(ops[k]);
        int *count = t == SHUNT_SCHED_F ? &f : t == SHUNT_SCHED_W ? &w : &b;
        if (SHUNT__OP_MICROBATCH(ops[k]) != *count)
            return 0;
        ++*count;
        if (b > f || w > b || f - (split ? w : b) > cap)
            return 0;
    }
    return 1;
}

static void walk(struct annealed *a, struct shunt_sched *s, double seconds_left)
{
    double now = shunt__simulator_run(a->sim, s, NULL), hot = 0.03 * now, begin = seconds(), part = 0;

    a->best = fmin(a->best, now);
    for (long k = 0; part < 1; k++) {
        if (a->deadline <= 0)
            part = (double)k / (double)a->steps;
        else if (k % 64 == 0)
            part = (seconds() - begin) / seconds_left;
        int i = random_int(&a->seed, 0, a->p - 1), n = shunt_sched_count(s, i);
        int from = random_int(&a->seed, 0, n - 1),
            by = random_int(&a->seed, 1, 8) * (random_int(&a->seed, 0, 1) ? 1 : -1);
        int to = from + by < 0 ? 0 : from + by >= n ? n - 1 : from + by;
        shunt__op_t *ops = s->ops + s->offset[i], op = ops[from];
        if (to == from)
            continue;
        if (to > from)
            memmove(ops + from, ops + from + 1, (size_t)(to - from) * sizeof(*ops));
        else
            memmove(ops + to + 1, ops + to, (size_t)(from - to) * sizeof(*ops));
        ops[to] = op;
        double t = possible(ops, n, a->cap[i], a->split) ? shunt__simulator_run(a->sim, s, NULL) : -1;
        double temperature = hot * (1 - part) * (1 - part);
        if (t < 0 || (t > now && (double)random_int(&a->seed, 0, 1000000) / 1e6 >=
                                     exp((now - t) / (temperature + 1e-9)))) {
            if (to > from)
                memmove(ops + from + 1, ops + from, (size_t)(to - from) * sizeof(*ops));
            else
                memmove(ops + to, ops + to + 1, (size_t)(from - to) * sizeof(*ops));
            ops[from] = op;
            continue;
        }
        now = t;
        a->best = fmin(a->best, now);
    }
}

/* A schedule to start from that keeps the caps; NULL if there is none of the kind. */
static struct shunt_sched *start_from(const struct annealed *a, int which, const shunt_sched_plan_t *plan)
{
    static const shunt_sched_kind_t kinds[2][3] = {
        {SHUNT_SCHED_ADAPTED, SHUNT_SCHED_1F1B, SHUNT_SCHED_READY},
        {SHUNT_SCHED_PIPEMORPH, SHUNT_SCHED_ZBH1, SHUNT_SCHED_ZBH2}};
    struct shunt_sched *s;

    if (which % 4 == 0)
        must(shunt_sched_copy(shunt_sched_plan_schedule(plan), &s));
    else {
        must(shunt_sched_create(a->profile, kinds[a->split != 0][which % 4 - 1], &s));
        if (shunt_sched_check(s, a->profile) != SHUNT_OK) {
            shunt_sched_destroy(s);
            return NULL;
        }
    }
    return s;
}

static double anneal(const shunt_sched_profile_t *profile, int split, const shunt_sched_plan_t *plan,
                     double limit, long steps)
{
    struct annealed a = {profile,
                         split,
                         profile->p,
                         profile->m,
                         malloc((size_t)profile->p * sizeof(int)),
                         shunt__simulator_create(profile, 0, 0),
                         11,
                         INFINITY,
                         limit,
                         steps};

    for (int i = 0; i < a.p; i++)
        a.cap[i] = profile->cap[i] > 0 ? profile->cap[i] : a.m;
    for (int which = 0; which < 4; which++) {
        struct shunt_sched *s = start_from(&a, which, plan);
        if (s)
            walk(&a, s, limit / 4);
        shunt_sched_destroy(s);
    }
    shunt__simulator_destroy(a.sim);
    free(a.cap);
    return a.best;
}

static shunt_sched_profile_t *random_case(uint64_t *seed, int p, int m, int k, int *split)
{
    shunt_sched_profile_t *profile;
    int uneven = random_int(seed, 0, 2);

    *split = k & 1;
    must(shunt_sched_profile_create(p, 1, m, &profile));
    for (int i = 0; i < p; i++) {
        int by = uneven == 0 ? 0 : uneven == 1 ? 10 : 50;
        must(shunt_sched_profile_set_stage(profile, i, 100 + random_int(seed, -by, by),
                                           (*split ? 100 : 200) + random_int(seed, -by, by),
                                           *split ? 100 + random_int(seed, -by, by) : 0));
        if (k >> 1 & 1)
            must(shunt_sched_profile_set_cap(profile, i, k >> 2 & 1 ? p : p - i + 1));
    }
    for (int slow = random_int(seed, 1, 2); slow > 0; slow--) {
        int c = random_int(seed, 20, 800);
        must(shunt_sched_profile_set_link(profile, random_int(seed, 0, p - 2), c, c, 0, 0));
    }
    return profile;
}

static double compare(int p, int m, int cases, double limit, long steps, int verbose)
{
    uint64_t seed = (uint64_t)(p * 1000 + m);
    double worst = 0, sum = 0, over_bound = 0;
    int ahead = 0;

    for (int k = 0; k < cases; k++) {
        int split;
        shunt_sched_profile_t *profile = random_case(&seed, p, m, k, &split);
        shunt_sched_plan_params_t params = {sizeof(params),
                                            split ? SHUNT_SCHED_ONLY_SPLIT : SHUNT_SCHED_NO_SPLIT, 0, 0};
        shunt_sched_plan_t *plan;
        must(shunt_sched_plan_create(profile, &params, &plan));
        double planned = shunt_sched_plan_makespan(plan), best = anneal(profile, split, plan, limit, steps);
        double over = planned / best - 1, bound = planned / shunt_sched_plan_lower_bound(plan) - 1;
        if (verbose)
            printf("# (%d, %d) case %d%s%s: planned %.6g, annealed %.6g (%.3f %%), bound %.6g (%.3f %%)\n", p,
                   m, k, split ? " split" : " whole",
                   k >> 1 & 1 ? k >> 2 & 1 ? " cap p" : " cap p - i + 1" : "", planned, best, 100 * over,
                   shunt_sched_plan_lower_bound(plan), 100 * bound);
        worst = fmax(worst, over);
        sum += over;
        over_bound += bound;
        ahead += over <= 0;
        shunt_sched_plan_destroy(plan);
        shunt_sched_profile_destroy(profile);
    }
    printf("# (%d, %d): %d cases, annealing found nothing better in %d; mean %.3f %%, worst %.3f %% above "
           "it; mean %.2f %% above the lower "
           "bound\n",
           p, m, cases, ahead, 100 * sum / cases, 100 * worst, 100 * over_bound / cases);
    return worst;
}

int main(int argc, char **argv)
{
    static const int sizes[][2] = {{8, 24}, {16, 64}, {32, 128}};
    int cases = argc > 1 ? atoi(argv[1]) : 8;
    double limit = argc > 2 ? atof(argv[2]) : 0;

    if (argc > 4) {
        double worst = compare(atoi(argv[3]), atoi(argv[4]), cases, limit, 2000, 1);
        ok(worst <= 0.01, "the worst plan is %.3f %% above the annealed one", 100 * worst);
        return done();
    }
    for (int k = 0; k < 3; k++) {
        double worst = compare(sizes[k][0], sizes[k][1], cases, limit, 6000 >> 2 * k, argc > 2);
        ok(worst <= 0.01, "(%d, %d): the worst plan is %.3f %% above the annealed one (at most 1)",
           sizes[k][0], sizes[k][1], 100 * worst);
    }
    return done();
}
