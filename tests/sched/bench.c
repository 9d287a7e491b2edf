/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Speed of the simulator and the planner. `bench` prints a table; it judges nothing.
 *
 *     bench            simulation and planning at several sizes
 *     bench huge       also 1,024 stages x 8,192 micro-batches
 */
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include "sched/sched.h"
#include "tests/sched/cases.h"

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static shunt_sched_profile_t *random_profile(uint64_t *seed, int p, int m, int split, int cap)
{
    shunt_sched_profile_t *profile;

    must(shunt_sched_profile_create(p, 1, m, &profile));
    for (int i = 0; i < p; i++) {
        must(shunt_sched_profile_set_stage(profile, i, random_int(seed, 80, 120),
                                           random_int(seed, split ? 80 : 160, split ? 120 : 240),
                                           split ? random_int(seed, 80, 120) : 0));
        must(shunt_sched_profile_set_cap(profile, i, cap));
    }
    for (int slow = 0; slow < 2; slow++) {
        int c = random_int(seed, 20, 800);
        must(shunt_sched_profile_set_link(profile, random_int(seed, 0, p - 2), c, c, 0, 0));
    }
    return profile;
}

static void planning(int p, int m, int split, int cap)
{
    uint64_t seed = 5;
    double sum = 0, worst = 0, gap = 0;
    int n = 10;

    for (int k = 0; k < n; k++) {
        shunt_sched_profile_t *profile = random_profile(&seed, p, m, split, cap);
        shunt_sched_plan_params_t params = {sizeof(params), split ? SHUNT_SCHED_ONLY_SPLIT : 0, 0, 0};
        shunt_sched_plan_t *plan;
        double start = seconds();
        must(shunt_sched_plan_create(profile, &params, &plan));
        double t = seconds() - start;
        sum += t;
        worst = t > worst ? t : worst;
        gap += shunt_sched_plan_makespan(plan) / shunt_sched_plan_lower_bound(plan) - 1;
        shunt_sched_plan_destroy(plan);
        shunt_sched_profile_destroy(profile);
    }
    printf("plan      %5d %6d %-6s %-9s mean %8.2f ms, worst %8.2f ms, %.2f %% above the lower bound\n", p, m,
           split ? "split" : "whole", cap ? "capped p" : "no cap", 1e3 * sum / n, 1e3 * worst, 100 * gap / n);
}

static void simulating(int p, int m, shunt_sched_kind_t kind, int split)
{
    uint64_t seed = 3;
    shunt_sched_profile_t *profile = random_profile(&seed, p, m, split, 0);
    shunt_sched_t *schedule;
    shunt_sched_result_t *result;
    struct rusage usage;
    int rounds = 0;

    must(shunt_sched_create(profile, kind, &schedule));
    double ops = (double)schedule->offset[p], start = seconds(), t;
    do {
        must(shunt_sched_simulate(schedule, profile, 0, &result));
        shunt_sched_result_destroy(result);
        rounds++;
    } while ((t = seconds() - start) < 0.3);
    getrusage(RUSAGE_SELF, &usage);
    printf("simulate  %5d %6d %-16s %8.1f million operations/s, %.3f s each, peak memory %.0f MB\n", p, m,
           shunt_sched_kind_name(kind), ops * rounds / t / 1e6, t / rounds, (double)usage.ru_maxrss / 1024);
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
}

int main(int argc, char **argv)
{
    static const int sizes[][2] = {{4, 12}, {8, 24}, {8, 128}, {16, 64}, {16, 128}, {32, 128}, {64, 512}};

    printf("what      stages  m\n");
    simulating(8, 24, SHUNT_SCHED_1F1B, 0);
    simulating(16, 128, SHUNT_SCHED_1F1B, 0);
    simulating(16, 128, SHUNT_SCHED_ZBH1, 1);
    simulating(64, 512, SHUNT_SCHED_1F1B, 0);
    if (argc > 1 && strcmp(argv[1], "huge") == 0) {
        simulating(1024, 8192, SHUNT_SCHED_1F1B, 0);
        simulating(1024, 8192, SHUNT_SCHED_ZBH1, 1);
    }
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
        for (int form = 0; form < 4; form++)
            planning(sizes[k][0], sizes[k][1], form & 1, form & 2 ? sizes[k][0] : 0);
    return 0;
}
