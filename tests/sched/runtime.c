/* SPDX-License-Identifier: BSD-3-Clause */
/* What a running job uses: the next operation, plans that follow measurements, micro-batches among replicas.
 */
#include <math.h>
#include <string.h>
#include "sched/sched.h"
#include "tests/sched/cases.h"
#include "tests/tap.h"

/* ---- the run-time rule, driven by a simulated clock ---- */

struct message {
    double at;
    int stage;
    shunt_sched_op_t input;
};

/* Runs all stages by shunt_sched_next(); returns the makespan, or -1 if nothing can go on. */
static double drive(const shunt_sched_profile_t *profile, const shunt_sched_t *schedule, unsigned flags,
                    int credits, int *ahead, double noise, uint64_t *seed)
{
    int p = profile->p, v = profile->v, positions = p * v, vee = schedule->vee, n_messages = 0, left = 0;
    shunt_sched_run_t *runs[16];
    shunt_sched_op_t busy[16];
    double free_at[16], now = 0, makespan = 0;
    struct message *messages = malloc((size_t)(2 * positions * profile->m + 1) * sizeof(*messages));

    for (int i = 0; i < p; i++) {
        must(shunt_sched_run_create(schedule, i, credits, flags, &runs[i]));
        busy[i].microbatch = -1;
        free_at[i] = 0;
        left += shunt_sched_count(schedule, i);
    }
    while (left > 0) {
        for (int k = 0; k < n_messages; k++)
            if (messages[k].at <= now) {
                must(shunt_sched_run_arrived(runs[messages[k].stage], messages[k].input));
                messages[k--] = messages[--n_messages];
            }
        for (int i = 0; i < p; i++) {
            if (busy[i].microbatch >= 0 && free_at[i] <= now) {
                must(shunt_sched_run_done(runs[i], busy[i]));
                int at = shunt__sched_position(p, vee, i, busy[i].chunk),
                    gradient = busy[i].type != SHUNT_SCHED_F;
                int to = gradient ? at - 1 : at + 1;
                if (busy[i].type != SHUNT_SCHED_W && to >= 0 && to < positions) {
                    struct shunt__hop hop = shunt__sched_hop(profile, vee, at, gradient);
                    messages[n_messages++] = (struct message){
                        now + hop.latency,
                        hop.stage,
                        {gradient ? SHUNT_SCHED_B : SHUNT_SCHED_F, to / p, busy[i].microbatch}};
                    if (hop.latency == 0) {
                        must(shunt_sched_run_arrived(runs[hop.stage], messages[n_messages - 1].input));
                        n_messages--;
                    }
                }
                busy[i].microbatch = -1;
                left--;
                makespan = now;
            }
        }
        for (int i = 0; i < p; i++) {
            shunt_sched_op_t op;
            if (busy[i].microbatch >= 0 || shunt_sched_next(runs[i], &op) != SHUNT_OK || op.microbatch < 0)
                continue;
            int k = i * v + op.chunk;
            double t = op.type == SHUNT_SCHED_F   ? profile->forward[k]
                       : op.type == SHUNT_SCHED_W ? profile->weight[k]
                       : op.type == SHUNT_SCHED_I ? profile->backward[k]
                                                  : profile->backward[k] + profile->weight[k];
            busy[i] = op;
            free_at[i] = now + t * (1 + noise * random_int(seed, 0, 100) / 100.0);
        }
        double next = INFINITY;
        for (int i = 0; i < p; i++)
            if (busy[i].microbatch >= 0)
                next = fmin(next, free_at[i]);
        for (int k = 0; k < n_messages; k++)
            next = fmin(next, messages[k].at);
        if (left > 0 && next == INFINITY) {
            makespan = -1;
            break;
        }
        now = next;
    }
    *ahead = 0;
    for (int i = 0; i < p; i++) {
        *ahead += shunt_sched_run_ahead(runs[i]);
        shunt_sched_run_destroy(runs[i]);
    }
    free(messages);
    return makespan;
}

static double simulate(const shunt_sched_t *schedule, const shunt_sched_profile_t *profile)
{
    shunt_sched_result_t *result;

    must(shunt_sched_simulate(schedule, profile, 0, &result));
    double t = shunt_sched_result_makespan(result);
    shunt_sched_result_destroy(result);
    return t;
}

static void next_follows(void)
{
    int same = 0, cases = 0, ahead, stuck = 0;
    uint64_t seed = 2;

    for (int kind = SHUNT_SCHED_GPIPE; kind <= SHUNT_SCHED_READY; kind++) {
        shunt_sched_profile_t *profile;
        shunt_sched_t *schedule;
        must(shunt_sched_profile_create(4, kind == SHUNT_SCHED_INTERLEAVED || kind == SHUNT_SCHED_ZBV ? 2 : 1,
                                        12, &profile));
        for (int i = 0; i < 4; i++) {
            must(shunt_sched_profile_set_stage(profile, i, 4 + i, 6, 4));
            must(shunt_sched_profile_set_link(profile, i, 3, 3, 0, 0));
        }
        must(shunt_sched_create(profile, (shunt_sched_kind_t)kind, &schedule));
        cases++;
        same += fabs(drive(profile, schedule, SHUNT_SCHED_FOLLOW, 0, &ahead, 0, &seed) -
                     simulate(schedule, profile)) < 1e-9;
        for (int k = 0; k < 20; k++)
            stuck += drive(profile, schedule, 0, k % 3 == 0 ? 14 : 0, &ahead, 3, &seed) < 0;
        shunt_sched_destroy(schedule);
        shunt_sched_profile_destroy(profile);
    }
    is_int(same, cases, "next() in the plan's order takes exactly what the simulator says, for every kind");
    is_int(stuck, 0, "by readiness nothing deadlocks, whatever the operations take");
}

/* A plan made without knowing of a delay: readiness with credits makes up for it. */
static void next_adapts(void)
{
    shunt_sched_profile_t *profile = uniform(8, 24, 1, 2, 0);
    shunt_sched_t *schedule;
    int ahead;
    uint64_t seed = 3;

    must(shunt_sched_create(profile, SHUNT_SCHED_1F1B, &schedule));
    must(shunt_sched_profile_set_link(profile, 6, 4, 4, 0, 0));
    double fixed = drive(profile, schedule, SHUNT_SCHED_FOLLOW, 0, &ahead, 0, &seed);
    ok(fixed == 189 && ahead == 0, "the plain plan under a delay of 4 takes 189");
    double ready = drive(profile, schedule, 0, 24, &ahead, 0, &seed);
    ok(ready <= 103 && ahead > 0,
       "with credits readiness takes %g, near the adapted plan's 101, and ran ahead %d times", ready, ahead);
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
}

static void next_refuses(void)
{
    shunt_sched_profile_t *profile = uniform(2, 3, 1, 1, 0);
    shunt_sched_t *schedule;
    shunt_sched_run_t *run;
    shunt_sched_op_t op, other = {SHUNT_SCHED_F, 0, 2};

    must(shunt_sched_create(profile, SHUNT_SCHED_1F1B, &schedule));
    ok(shunt_sched_run_create(schedule, 2, 0, 0, &run) == SHUNT_ERR_INVALID,
       "a stage beyond the last has no run");
    must(shunt_sched_run_create(schedule, 1, 0, 0, &run));
    ok(shunt_sched_next(run, &op) == SHUNT_IN_PROGRESS, "before the first message there is nothing to run");
    ok(shunt_sched_run_done(run, other) == SHUNT_ERR_INVALID, "what was not given out can't be done");
    other.microbatch = 0;
    must(shunt_sched_run_arrived(run, other));
    must(shunt_sched_run_arrived(run, other));
    ok(shunt_sched_next(run, &op) == SHUNT_OK && op.type == SHUNT_SCHED_F && op.microbatch == 0,
       "then its forward");
    must(shunt_sched_run_done(run, op));
    ok(shunt_sched_run_done(run, op) == SHUNT_ERR_INVALID, "which is done once");
    ok(shunt_sched_next(run, &op) == SHUNT_OK && op.type == SHUNT_SCHED_B,
       "and on the last stage its backward");
    shunt_sched_run_reset(run);
    ok(shunt_sched_next(run, &op) == SHUNT_IN_PROGRESS, "after a reset all begins again");
    other.microbatch = 3;
    ok(shunt_sched_run_arrived(run, other) == SHUNT_ERR_INVALID,
       "a micro-batch beyond the last can't arrive");
    shunt_sched_run_destroy(run);
    shunt_sched_run_destroy(NULL);
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
}

/* ---- adapting ---- */

struct job {
    shunt_sched_adapt_t *adapt;
    int p, m, step;
    double f, b, w, delay; /* seconds; delay of the slow link */
    int link;
    uint64_t seed;
    double noise;
};

/* One iteration: what it would measure, and what it takes. */
static shunt_sched_event_t iterate(struct job *job)
{
    shunt_sched_profile_t *truth = uniform(job->p, job->m, job->f, job->b, job->w);
    double *vector = calloc((size_t)shunt_sched_adapt_entries(job->adapt), sizeof(double));
    shunt_sched_event_t event;

    for (int i = 0; i < job->p; i++) {
        double f = job->f * (1 + job->noise * random_int(&job->seed, -100, 100) / 100.0);
        double b = job->b * (1 + job->noise * random_int(&job->seed, -100, 100) / 100.0);
        must(shunt_sched_adapt_put_stage(job->adapt, vector, i, 0, f, b, job->w));
        must(shunt_sched_adapt_put_link(job->adapt, vector, i, i == job->link ? job->delay : 0.0002, 0, 0));
    }
    must(shunt_sched_profile_set_link(truth, job->link, job->delay, job->delay, 0, 0));
    double took = simulate(shunt_sched_adapt_schedule(job->adapt), truth);
    must(shunt_sched_adapt_step(job->adapt, job->step++, vector, took, &event));
    free(vector);
    shunt_sched_profile_destroy(truth);
    return event;
}

static void adapts(void)
{
    shunt_sched_profile_t *profile = uniform(4, 12, 0.010, 0.020, 0);
    struct job job = {NULL, 4, 12, 0, 0.010, 0.020, 0, 0.0002, 2, 7, 0.05};
    shunt_sched_event_t event = {0};
    int changes = 0, before[4], after;

    for (int i = 0; i < 3; i++)
        must(shunt_sched_profile_set_link(profile, i, 0.0002, 0.0002, 0, 0));
    must(shunt_sched_adapt_create(profile, NULL, &job.adapt));
    for (int i = 0; i < 4; i++)
        before[i] = shunt_sched_warmup(shunt_sched_adapt_schedule(job.adapt), i);
    for (int k = 0; k < 500; k++)
        changes += iterate(&job).changed;
    is_int(changes, 0, "500 clean iterations with noise of 5 %% change nothing");
    job.delay = 0.031;
    event = iterate(&job);
    ok(!event.changed, "one late iteration changes nothing");
    event = iterate(&job);
    ok(event.changed, "the second does: %s", event.text);
    ok(strstr(event.text, "link 2-3: 0.2 \xe2\x86\x92 31 ms since step 500; warm-up 4,3,2,1 \xe2\x86\x92 ") &&
           strstr(event.text, "; predicted "),
       "the event names the link, the delays, the step, the counts and the prediction");
    ok(event.predicted < 0.75 * event.predicted_before,
       "the new plan is predicted to take %.3g instead of %.3g s", event.predicted, event.predicted_before);
    after = shunt_sched_warmup(shunt_sched_adapt_schedule(job.adapt), 0);
    ok(after > before[0], "it warms up with more forwards (%d)", after);
    for (int k = 0; k < 5; k++)
        changes += iterate(&job).changed;
    ok(changes == 0 && shunt_sched_adapt_error(job.adapt) < 0.1,
       "it stays, and the prediction is off by %.1f %%", 100 * shunt_sched_adapt_error(job.adapt));
    job.delay = 0.0002;
    for (int k = 0; k < 12 && !changes; k++) {
        event = iterate(&job);
        changes += event.changed;
    }
    ok(changes == 1, "the link recovers, and so does the plan: %s", event.text);
    is_int(shunt_sched_warmup(shunt_sched_adapt_schedule(job.adapt), 0), before[0],
           "it is the first one again");
    job.delay = 0.040;
    iterate(&job);
    job.delay = 0.0002;
    changes = 0;
    for (int k = 0; k < 4; k++)
        changes += iterate(&job).changed;
    is_int(changes, 0, "a single spike changes nothing");
    shunt_sched_profile_t *smaller = uniform(3, 12, 0.013, 0.027, 0);
    must(shunt_sched_adapt_replace(job.adapt, job.step, smaller, "stage 3 died", &event));
    ok(event.changed && strstr(event.text, "stage 3 died; 4 \xe2\x86\x92 3 stages"), "after a death: %s",
       event.text);
    is_int(shunt_sched_stages(shunt_sched_adapt_schedule(job.adapt)), 3, "the survivors have a plan");
    double *bad = calloc((size_t)shunt_sched_adapt_entries(job.adapt), sizeof(double));
    bad[4] = -1;
    ok(shunt_sched_adapt_step(job.adapt, 1, bad, 0, &event) == SHUNT_ERR_INVALID &&
           strstr(shunt_error_text(), "stage 1"),
       "a negative measurement is refused: %s", shunt_error_text());
    free(bad);
    shunt_sched_profile_destroy(smaller);
    shunt_sched_profile_destroy(profile);
    shunt_sched_adapt_destroy(job.adapt);
    shunt_sched_adapt_destroy(NULL);
}

/* Two ranks that see the same vectors hold the same plans at every step. */
static void agrees(void)
{
    shunt_sched_profile_t *profile = uniform(4, 16, 0.010, 0.010, 0.010);
    struct job a = {NULL, 4, 16, 0, 0.010, 0.010, 0.010, 0.0002, 1, 5, 0.03}, b;
    int same = 0, changes = 0;

    must(shunt_sched_adapt_create(profile, NULL, &a.adapt));
    b = a;
    must(shunt_sched_adapt_create(profile, NULL, &b.adapt));
    for (int k = 0; k < 60; k++) {
        a.delay = b.delay = k / 12 % 2 ? 0.02 + 0.01 * (k / 12) : 0.0002;
        changes += iterate(&a).changed;
        iterate(&b);
        same += shunt_sched_equal(shunt_sched_adapt_schedule(a.adapt), shunt_sched_adapt_schedule(b.adapt));
    }
    is_int(same, 60, "equal vectors give equal plans, over %d changes", changes);
    ok(changes >= 2, "and plans did change");
    shunt_sched_adapt_destroy(a.adapt);
    shunt_sched_adapt_destroy(b.adapt);
    shunt_sched_profile_destroy(profile);
}

/* ---- replicas ---- */

static double slowest(int n, const double *times, const double *fixed, const int *counts)
{
    double t = 0;

    for (int r = 0; r < n; r++)
        if (counts[r] > 0)
            t = fmax(t, fixed[r] + counts[r] * times[r]);
    return t;
}

static void rebalances(void)
{
    uint64_t seed = 8;
    int best = 0, whole = 0, weighted = 0, n = 300;

    for (int k = 0; k < n; k++) {
        int counts[3], total = random_int(&seed, 0, 14), sum = 0;
        double times[3], fixed[3], weights[3], least = INFINITY, w = 0;
        for (int r = 0; r < 3; r++) {
            times[r] = random_int(&seed, 1, 9);
            fixed[r] = random_int(&seed, 0, 6);
        }
        must(shunt_sched_rebalance(3, times, fixed, total, counts, weights));
        for (int a = 0; a <= total; a++)
            for (int b = 0; a + b <= total; b++) {
                int other[] = {a, b, total - a - b};
                least = fmin(least, slowest(3, times, fixed, other));
            }
        for (int r = 0; r < 3; r++) {
            sum += counts[r];
            w += weights[r];
        }
        best += fabs(slowest(3, times, fixed, counts) - least) < 1e-9;
        whole += sum == total;
        weighted += total == 0 || fabs(w - 1) < 1e-15 * 3;
    }
    is_int(best, n, "the shares end as early as any (brute force)");
    is_int(whole, n, "and are all of the micro-batches");
    is_int(weighted, n, "and their gradients' weights add up to one");
    double equal[] = {1, 1, 1, 1}, slow[] = {1, 1, 1, 2}, dead[] = {1, INFINITY, 1, 1},
           none[] = {INFINITY, INFINITY};
    int counts[4], owner[12], kept = 1;
    must(shunt_sched_rebalance(4, equal, NULL, 48, counts, NULL));
    ok(counts[0] == 12 && counts[3] == 12, "equal replicas share equally");
    must(shunt_sched_rebalance(4, slow, NULL, 49, counts, NULL));
    ok(counts[3] == 7 && counts[0] == 14, "one of half the speed gets half");
    ok(shunt_sched_rebalance(2, none, NULL, 4, counts, NULL) == SHUNT_ERR_INVALID, "nobody alive: %s",
       shunt_error_text());
    for (int k = 0; k < 12; k++)
        owner[k] = k / 3;
    must(shunt_sched_move(4, dead, 12, owner));
    for (int k = 0; k < 12; k++)
        kept &= k / 3 == 1 ? owner[k] != 1 : owner[k] == k / 3;
    ok(kept && owner[3] == 0 && owner[4] == 2 && owner[5] == 3,
       "a failed replica's micro-batches go to the others, one each");
    owner[0] = 9;
    ok(shunt_sched_move(4, dead, 12, owner) == SHUNT_ERR_INVALID, "an owner that does not exist is refused");
}

int main(void)
{
    next_follows();
    next_adapts();
    next_refuses();
    adapts();
    agrees();
    rebalances();
    return done();
}
