/* SPDX-License-Identifier: BSD-3-Clause */
/* What is known of pipelines under delays, as formulas, each against the simulator. */
#include <math.h>
#include <string.h>
#include "sched/sched.h"
#include "tests/sched/cases.h"
#include "tests/tap.h"

static double run(const shunt_sched_profile_t *profile, const shunt_sched_t *schedule)
{
    struct shunt__simulator *sim = shunt__simulator_create(profile, shunt_sched_is_vee(schedule), 0);
    double t = shunt__simulator_run(sim, schedule, NULL);

    shunt__simulator_destroy(sim);
    return t;
}

/* Time per micro-batch of 1F1B order, from what 240 micro-batches more take (a multiple of the short cycles).
 */
static double slope(const shunt_sched_profile_t *profile, const int *warmup)
{
    double t[2];

    for (int k = 0; k < 2; k++) {
        shunt_sched_profile_t *longer;
        shunt_sched_t *schedule;
        must(shunt_sched_profile_copy(profile, &longer));
        longer->m = 240 * (k + 1);
        must(shunt_sched_create_warmup(longer, warmup, &schedule));
        t[k] = run(longer, schedule);
        shunt_sched_destroy(schedule);
        shunt_sched_profile_destroy(longer);
    }
    return (t[1] - t[0]) / 240;
}

static void period(void)
{
    uint64_t seed = 9;
    double worst = 0, recurrence = 0;

    for (int k = 0; k < 1000; k++) {
        int p = random_int(&seed, 2, 8), x[8];
        shunt_sched_profile_t *profile = uniform(p, 40, 1, 1, 0);
        for (int i = p - 1; i >= 0; i--) {
            x[i] = i == p - 1 ? 1 : x[i + 1] + random_int(&seed, 0, 3);
            must(shunt_sched_profile_set_stage(profile, i, random_int(&seed, 1, 20), random_int(&seed, 1, 20),
                                               0));
            if (i < p - 1)
                must(shunt_sched_profile_set_link(
                    profile, i, random_int(&seed, 0, 30), random_int(&seed, 0, 30),
                    k % 4 == 0 ? random_int(&seed, 0, 9) : 0, k % 4 == 0 ? random_int(&seed, 0, 9) : 0));
        }
        worst = fmax(worst, fabs(slope(profile, x) / shunt_sched_warmup_period(profile, x) - 1));
        shunt_sched_t *schedule;
        double *scratch = malloc(shunt__warmup_scratch(profile) * sizeof(double));
        must(shunt_sched_create_warmup(profile, x, &schedule));
        recurrence = fmax(recurrence,
                          fabs(run(profile, schedule) - shunt__warmup_makespan(profile, x, scratch)));
        if (shunt__warmup_bound(profile, x) > run(profile, schedule) + 1e-9)
            recurrence = 1;
        shunt_sched_destroy(schedule);
        free(scratch);
        shunt_sched_profile_destroy(profile);
    }
    ok(worst < 0.0044, "the cycle formula is the period of 1,000 random 1F1B orders (worst %.4f %%)",
       100 * worst);
    ok(recurrence == 0, "the recurrence gives the simulator's makespans, and no cycle bound exceeds them");
}

static void one_slow_link(void)
{
    int absorbed = 0, cascades = 0, plain = 0, condition = 0, cases = 0;

    for (int link = 0; link < 5; link++)
        for (int k = 0; k < 4; k++)
            for (int c2 = 1; c2 <= 16; c2++) { /* c in halves */
                int p = 6, m = 200, x[6];
                double T = 3, c = c2 / 2.0, r, bound = (m + p - 1) * T + 2 * c;
                shunt_sched_profile_t *profile = uniform(p, m, 1, 2, 0);
                shunt_sched_t *schedule;
                must(shunt_sched_profile_set_link(profile, link, c, c, 0, 0));
                for (int i = 0; i < p; i++)
                    x[i] = p - i + (i <= link ? k : 0);
                must(shunt_sched_create_warmup(profile, x, &schedule));
                double t = run(profile, schedule), per = shunt_sched_warmup_period(profile, x);
                r = (2 * c - k * T) / (k + 2);
                cases++;
                if (2 * c <= k * T)
                    absorbed += t <= bound + 1e-9 && fabs(per - T) < 1e-9;
                else
                    cascades += fabs(per - (T + r)) < 1e-9 && fabs(slope(profile, x) / (T + r) - 1) < 0.0044;
                plain += k > 0 || (fabs(r - c) < 1e-12 && fabs(per - (T + c)) < 1e-9);
                condition += (T + 2 * c <= (1 + k) * T + 1e-12) == (fabs(per - T) < 1e-9);
                shunt_sched_destroy(schedule);
                shunt_sched_profile_destroy(profile);
            }
    is_int(absorbed + cascades, cases,
           "no cascade iff 2 c <= k T, and then at most fill and drain more; else (2c - kT)/(k + 2) a "
           "micro-batch");
    is_int(plain, cases, "plain 1F1B pays c per micro-batch");
    is_int(condition, cases, "the published absorbing condition is the same thing for equal stages");
}

static void closed_form(void)
{
    uint64_t seed = 4;
    int enough = 0, least = 0, n = 500;

    for (int k = 0; k < n; k++) {
        int p = random_int(&seed, 2, 8), x[8], good = 1;
        double rate = 0;
        shunt_sched_profile_t *profile = uniform(p, 1000, 1, 1, 0);
        for (int i = 0; i < p; i++) {
            int f = random_int(&seed, 1, 20), b = random_int(&seed, 1, 20);
            must(shunt_sched_profile_set_stage(profile, i, f, b, 0));
            rate = fmax(rate, f + b);
            if (i < p - 1)
                must(shunt_sched_profile_set_link(profile, i, random_int(&seed, 0, 60),
                                                  random_int(&seed, 0, 60), 0, 0));
        }
        shunt_sched_adapted_warmup(profile, x);
        enough += shunt_sched_warmup_period(profile, x) <= rate * (1 + 1e-12);
        for (int i = 0; i < p - 1; i++) { /* one less on any stage either slows it down or is not in order */
            if (x[i] == x[i + 1])
                continue;
            x[i]--;
            good &= shunt_sched_warmup_period(profile, x) > rate * (1 + 1e-12);
            x[i]++;
        }
        least += good;
        shunt_sched_profile_destroy(profile);
    }
    is_int(enough, n, "the closed form keeps the rate of the slowest stage");
    is_int(least, n, "and no stage could do with one forward less");
}

/* x forwards, then a pattern per micro-batch, then the rest in order; W at the end where the pattern has
 * none. */
static shunt_sched_t *patterned(const shunt_sched_profile_t *profile, const int *x,
                                const char *const *patterns)
{
    int p = profile->p, m = profile->m, n = 0, counts[16];
    shunt_sched_op_t *ops = malloc((size_t)(3 * p * m) * sizeof(*ops));
    shunt_sched_t *schedule;

    for (int i = 0; i < p; i++) {
        int f = 0, b = 0, w = 0;
        for (; f < x[i]; f++)
            ops[n++] = (shunt_sched_op_t){SHUNT_SCHED_F, 0, f};
        while (b < m)
            for (const char *c = patterns[i]; *c; c++) {
                if (*c == 'F' && f < m)
                    ops[n++] = (shunt_sched_op_t){SHUNT_SCHED_F, 0, f++};
                if (*c == 'I')
                    ops[n++] = (shunt_sched_op_t){SHUNT_SCHED_I, 0, b++};
                if (*c == 'W')
                    ops[n++] = (shunt_sched_op_t){SHUNT_SCHED_W, 0, w++};
            }
        while (w < m)
            ops[n++] = (shunt_sched_op_t){SHUNT_SCHED_W, 0, w++};
        counts[i] = 3 * m;
    }
    must(shunt_sched_create_custom(p, 1, m, 0, counts, ops, &schedule));
    free(ops);
    return schedule;
}

/* Time per micro-batch until the first stage's last input gradient, over the later half. */
static double gradient_period(const shunt_sched_profile_t *profile, const shunt_sched_t *schedule)
{
    shunt_sched_result_t *result;
    double start[2] = {0, 0}, end;
    int m = profile->m;

    must(shunt_sched_simulate(schedule, profile, SHUNT_SCHED_TIMELINE, &result));
    for (int k = 0; k < shunt_sched_count(schedule, profile->p - 1); k++) {
        shunt_sched_op_t op = shunt_sched_op(schedule, profile->p - 1, k);
        if (op.type == SHUNT_SCHED_F && (op.microbatch == m / 2 || op.microbatch == m - 1))
            must(shunt_sched_result_time(result, profile->p - 1, k, &start[op.microbatch == m - 1], &end));
    }
    shunt_sched_result_destroy(result);
    return (start[1] - start[0]) / (m - 1 - m / 2);
}

static void split_backward(void)
{
    const double f = 2, b = 3, w = 4;
    int good[3] = {0}, cases = 0, peaks = 0;

    for (int link = 0; link < 4; link++)
        for (int delta = 1; delta <= 4; delta++) {
            int p = 5, m = 300, x[5];
            double limit[3] = {(delta - 1) * (f + b) / 2, ((delta - 1) * (f + b) + delta * w) / 2,
                               ((delta - 1) * (f + b) + (delta + 1) * w) / 2};
            cases++;
            for (int i = 0; i < p; i++)
                x[i] = p - i + (i <= link ? delta - 1 : 0);
            for (int order = 0; order < 3; order++) {
                double full = order == 0 ? f + b : f + b + w, period[2];
                const char *patterns[5];
                for (int i = 0; i < p; i++)
                    patterns[i] = order == 0 ? "IF" : order == 1 ? "IWF" : i <= link ? "IFW" : "IWF";
                for (int over = 0; over < 2; over++) {
                    shunt_sched_profile_t *profile = uniform(p, m, f, b, w);
                    must(shunt_sched_profile_set_link(profile, link, limit[order] + over, limit[order] + over,
                                                      0, 0));
                    shunt_sched_t *schedule = patterned(profile, x, patterns);
                    period[over] = gradient_period(profile, schedule);
                    double peak = shunt_sched_peak_live(schedule, 0);
                    peaks += peak == (order == 0 ? m : order == 1 ? x[0] : x[0] + 1);
                    shunt_sched_destroy(schedule);
                    shunt_sched_profile_destroy(profile);
                }
                good[order] += fabs(period[0] - full) < 1e-9 && period[1] > full + 0.05;
            }
        }
    is_int(good[0], cases,
           "weight gradients at the end: a delay of (D - 1)(f + b)/2 is absorbed, and no more");
    is_int(good[1], cases, "B, W, F: [(D - 1)(f + b) + D w]/2");
    is_int(good[2], cases, "B, F, W up to the link and B, W, F beyond: [(D - 1)(f + b) + (D + 1) w]/2");
    is_int(peaks, 6 * cases, "with up to m, x_0 and x_0 + 1 live micro-batches");
    for (int over = 0; over < 2; over++) {
        shunt_sched_profile_t *profile = uniform(6, 400, f, b, w);
        shunt_sched_t *schedule;
        must(shunt_sched_profile_set_link(profile, 0, w / 2 + over * 0.5, w / 2 + over * 0.5, 0, 0));
        must(shunt_sched_create(profile, SHUNT_SCHED_ZBH1, &schedule));
        double period = gradient_period(profile, schedule);
        ok(over ? period > f + b + w + 0.1 : fabs(period - (f + b + w)) < 1e-9, "ZB-H1 tolerates w/2%s",
           over ? " and not more" : "");
        shunt_sched_destroy(schedule);
        shunt_sched_profile_destroy(profile);
    }
}

/* p = 4, m = 12, f = b = w = 10 ms: the published example keeps the order made for slack 2 as the delay
 * grows. */
static void published_example(void)
{
    static const double want[] = {390, 400, 440};
    shunt_sched_profile_t *profile = uniform(4, 12, 10, 10, 10);
    shunt_sched_t *schedule;

    must(shunt_sched_create(profile, SHUNT_SCHED_PIPEMORPH, &schedule));
    for (int k = 0; k < 3; k++) {
        must(shunt_sched_profile_set_link(profile, 0, 10 * k, 10 * k, 0, 0));
        ok(run(profile, schedule) == want[k], "the published example takes %g with %d ms on link 0-1",
           want[k], 10 * k);
    }
    shunt_sched_destroy(schedule);
    ok(makespan(profile, SHUNT_SCHED_PIPEMORPH) == 410, "and 410 with 20 ms if it is planned anew");
    shunt_sched_profile_destroy(profile);
}

static void readiness(void)
{
    static const struct {
        int cap;
        double c, fixed, ready, little;
    } rows[] = {
        {8, 4, 6.94, 4.17, 4.00}, {10, 4, 3.48, 3.47, 3.20}, {14, 4, 3, 3, 3}, {8, 1, 3.98, 3.94, 3.25}};

    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        int p = 8, m = 128, x[8];
        double fill = (p - 1) * 3 + 2 * rows[k].c; /* what every schedule pays once */
        shunt_sched_profile_t *profile = uniform(p, m, 1, 2, 0);
        shunt_sched_t *schedule;
        must(shunt_sched_profile_set_link(profile, 6, rows[k].c, rows[k].c, 0, 0));
        shunt_sched_adapted_warmup(profile, x);
        for (int i = 0; i < p; i++) {
            must(shunt_sched_profile_set_cap(profile, i, rows[k].cap));
            x[i] = x[i] < rows[k].cap - i ? x[i] : rows[k].cap - i > 1 ? rows[k].cap - i : 1;
        }
        must(shunt_sched_create_warmup(profile, x, &schedule));
        double fixed = (run(profile, schedule) - fill) / m,
               ready = (makespan(profile, SHUNT_SCHED_READY) - fill) / m;
        double little = fmax(3, (p * 3 + 2 * rows[k].c) / rows[k].cap);
        ok(fabs(fixed - rows[k].fixed) < 0.005, "cap %d, c = %g: a fixed order has %.2f (%.3f)", rows[k].cap,
           rows[k].c, rows[k].fixed, fixed);
        ok(fabs(ready - rows[k].ready) < 0.005, "cap %d, c = %g: readiness-first has a period of %.2f (%.3f)",
           rows[k].cap, rows[k].c, rows[k].ready, ready);
        ok(fabs(little - rows[k].little) < 0.005, "cap %d, c = %g: Little's bound is %.2f", rows[k].cap,
           rows[k].c, rows[k].little);
        shunt_sched_plan_t *plan;
        must(shunt_sched_plan_create(profile, NULL, &plan));
        double planned = (shunt_sched_plan_makespan(plan) - fill) / m;
        ok(planned <= ready + 1e-9 && planned >= little - 1e-9,
           "cap %d, c = %g: the plan's %.3f is between both", rows[k].cap, rows[k].c, planned);
        printf("# cap %d, c %g: fixed order %.3f (reference %.2f), ready %.3f, plan %.3f, Little %.3f\n",
               rows[k].cap, rows[k].c, fixed, rows[k].fixed, ready, planned, little);
        shunt_sched_plan_destroy(plan);
        shunt_sched_destroy(schedule);
        shunt_sched_profile_destroy(profile);
    }
}

static void sends_and_queues(void)
{
    int p = 4, m = 400, x[] = {42, 41, 2, 1}; /* much slack on link 1 */
    shunt_sched_profile_t *profile = uniform(p, m, 1, 2, 0);
    shunt_sched_t *schedule;
    shunt_sched_result_t *result;

    must(shunt_sched_profile_set_link(profile, 1, 5, 5, 0, 0));
    must(shunt_sched_create_warmup(profile, x, &schedule));
    must(shunt_sched_simulate(schedule, profile, SHUNT_SCHED_BLOCKING_SENDS, &result));
    double blocked = shunt_sched_result_period(result);
    ok(fabs(blocked - (1 + 2 + 5)) < 0.05,
       "a blocking send makes the sender's loop f + b + c (%.3f), whatever the slack", blocked);
    shunt_sched_result_destroy(result);
    must(shunt_sched_profile_set_link(profile, 1, 0, 0, 7, 0));
    must(shunt_sched_simulate(schedule, profile, 0, &result));
    ok(shunt_sched_warmup_period(profile, x) == 7 && shunt_sched_result_makespan(result) >= m * 7.0,
       "a link with a service time of 7 bounds the period");
    ok(shunt_sched_lower_bound(profile, 0) > (m - 1) * 7.0 &&
           shunt_sched_lower_bound(profile, 0) <= shunt_sched_result_makespan(result),
       "and the lower bound knows");
    shunt_sched_result_destroy(result);
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
}

/* No schedule that keeps M micro-batches alive on stage 0 runs faster than one sojourn per M. */
static void little(void)
{
    uint64_t seed = 21;
    int kept = 0, n = 300;

    for (int k = 0; k < n; k++) {
        int p = random_int(&seed, 2, 6), cap = random_int(&seed, 1, p + 2), m = 40;
        shunt_sched_profile_t *profile = uniform(p, m, 1, 1, 0);
        double sojourn = 0;
        for (int i = 0; i < p; i++) {
            int f = random_int(&seed, 1, 9), b = random_int(&seed, 1, 9), c = random_int(&seed, 0, 20);
            must(shunt_sched_profile_set_stage(profile, i, f, b, 0));
            must(shunt_sched_profile_set_cap(profile, i, i == 0 ? cap : 0));
            sojourn += f + b;
            if (i < p - 1) {
                must(shunt_sched_profile_set_link(profile, i, c, c, 0, 0));
                sojourn += 2 * c;
            }
        }
        double t = makespan(profile, SHUNT_SCHED_READY);
        kept += t >= sojourn * (double)(m / cap) - 1e-9 && shunt_sched_lower_bound(profile, 0) <= t + 1e-9 &&
                shunt_sched_little_bound(profile, 0) <= t + 1e-9;
        shunt_sched_profile_destroy(profile);
    }
    is_int(kept, n, "Little's law holds for what readiness-first does under a cap");
}

/* The planner is never worse than the schedules that it competes with, under the memory that those take. */
static void never_worse(void)
{
    static const shunt_sched_kind_t kinds[] = {SHUNT_SCHED_1F1B, SHUNT_SCHED_ADAPTED, SHUNT_SCHED_ZBH1,
                                               SHUNT_SCHED_ZBH2, SHUNT_SCHED_PIPEMORPH};
    uint64_t seed = 33;
    double worst = 0, best = 0;

    for (int k = 0; k < 60; k++) {
        int p = random_int(&seed, 3, 8), m = random_int(&seed, 2 * p + 2, 3 * p + 6);
        shunt_sched_profile_t *profile = uniform(p, m, 1, 1, 1);
        for (int i = 0; i < p; i++)
            must(shunt_sched_profile_set_stage(profile, i, random_int(&seed, 5, 15), random_int(&seed, 5, 15),
                                               random_int(&seed, 5, 15)));
        int c = random_int(&seed, 0, 80);
        must(shunt_sched_profile_set_link(profile, random_int(&seed, 0, p - 2), c, c, 0, 0));
        shunt_sched_kind_t kind = kinds[k % 5];
        shunt_sched_t *other;
        shunt_sched_plan_t *plan;
        must(shunt_sched_create(profile, kind, &other));
        double t = run(profile, other);
        for (int i = 0; i < p; i++)
            must(shunt_sched_profile_set_cap(profile, i, (int)shunt_sched_peak_live(other, i)));
        must(shunt_sched_plan_create(profile, NULL, &plan));
        must(shunt_sched_check(shunt_sched_plan_schedule(plan), profile));
        worst = fmax(worst, shunt_sched_plan_makespan(plan) / t - 1);
        best = fmin(best, shunt_sched_plan_makespan(plan) / t - 1);
        shunt_sched_plan_destroy(plan);
        shunt_sched_destroy(other);
        shunt_sched_profile_destroy(profile);
    }
    ok(worst <= 1e-9,
       "no plan is slower than 1F1B, adapted 1F1B, ZB-H1, ZB-H2 or PipeMorph's with the same memory (worst "
       "%+.2f %%, best %+.1f %%)",
       100 * worst, 100 * best);
}

int main(void)
{
    period();
    one_slow_link();
    closed_form();
    split_backward();
    published_example();
    readiness();
    sends_and_queues();
    little();
    never_worse();
    return done();
}
