/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans against brute-forced optima of random small pipelines: unequal stages, one or two slow links, with
 * and without caps, whole and split backwards. `optimum N [SEED]` runs N cases instead of 240.
 */
#include <math.h>
#include <string.h>
#include <time.h>
#include "tests/sched/brute.h"
#include "tests/sched/cases.h"
#include "tests/tap.h"

/* The n-th random case: 3 or 4 stages, 5 to 8 micro-batches, 6 at most with a split. */
static shunt_sched_profile_t *random_case(uint64_t *seed, int n, int *split, int *capped)
{
    shunt_sched_profile_t *profile;
    int p, m;

    *split = n & 1;
    *capped = n >> 1 & 1;
    p = random_int(seed, 3, 4);
    m = random_int(seed, 5, *split ? 6 : 8);
    must(shunt_sched_profile_create(p, 1, m, &profile));
    for (int i = 0; i < p; i++) {
        int f = random_int(seed, 1, 10), b = random_int(seed, 1, 12),
            w = *split ? random_int(seed, 1, 10) : 0;
        must(shunt_sched_profile_set_stage(profile, i, f, b, w));
        if (*capped)
            must(shunt_sched_profile_set_cap(profile, i,
                                             random_int(seed, p - i > 2 ? p - i - 1 : 1, p - i + 1)));
    }
    for (int slow = random_int(seed, 1, 2); slow > 0; slow--) {
        int c = random_int(seed, 1, 40), queue = random_int(seed, 0, 4) == 0 ? random_int(seed, 1, 12) : 0;
        must(shunt_sched_profile_set_link(profile, random_int(seed, 0, p - 2), c, c, queue, queue));
    }
    return profile;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 240, unproved = 0, above_bound = 0;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    double sum[4] = {0}, worst[4] = {0};
    int count[4] = {0}, hit[4] = {0}, dead = 0;

    for (int k = 0; k < n; k++) {
        int split, capped, exact;
        shunt_sched_profile_t *profile = random_case(&seed, k, &split, &capped);
        shunt_sched_plan_params_t params = {sizeof(params),
                                            split ? SHUNT_SCHED_ONLY_SPLIT : SHUNT_SCHED_NO_SPLIT, 0, 0};
        shunt_sched_plan_t *plan;
        must(shunt_sched_plan_create(profile, &params, &plan));
        dead += shunt_sched_check(shunt_sched_plan_schedule(plan), profile) != SHUNT_OK;
        double planned = shunt_sched_plan_makespan(plan);
        double best = brute_optimum(profile, split, planned, 3000000, &exact);
        double over = planned / best - 1, bound = shunt_sched_lower_bound(profile, split);
        int class = split + 2 * capped;
        unproved += !exact;
        above_bound += bound > best * (1 + 1e-12);
        count[class]++;
        hit[class] += over < 1e-12;
        sum[class] += over;
        worst[class] = fmax(worst[class], over);
        if (argc > 3)
            printf("# case %d split %d capped %d: plan %g best %g bound %g exact %d\n", k, split, capped,
                   planned, best, bound, exact);
        shunt_sched_plan_destroy(plan);
        shunt_sched_profile_destroy(profile);
    }
    static const char *const names[] = {"whole", "split", "whole, capped", "split, capped"};
    double all = 0, most = 0;
    for (int c = 0; c < 4; c++) {
        printf("# %-14s %4d cases, %4d optimal, mean %.4f %%, worst %.3f %% above the optimum\n", names[c],
               count[c], hit[c], count[c] ? 100 * sum[c] / count[c] : 0, 100 * worst[c]);
        all += sum[c];
        most = fmax(most, worst[c]);
    }
    is_int(dead, 0, "every plan is valid and within its caps");
    is_int(unproved, 0, "every optimum was proved");
    is_int(above_bound, 0, "no lower bound exceeds an optimum");
    ok(all / n <= 0.001, "plans are %.4f %% above the optimum on average (at most 0.1)", 100 * all / n);
    ok(most <= 0.02, "the worst is %.3f %% above it (at most 2)", 100 * most);
    return done();
}
