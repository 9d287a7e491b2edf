/* SPDX-License-Identifier: BSD-3-Clause */
/* Profiles and short cuts that the tests of schedules share. */
#ifndef SHUNT_TESTS_SCHED_CASES_H
#define SHUNT_TESTS_SCHED_CASES_H

#include <shunt/sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void must(shunt_status_t st)
{
    if (st != SHUNT_OK) {
        printf("Bail out! %s: %s\n", shunt_status_name(st), shunt_error_text());
        exit(1);
    }
}

__attribute__((unused)) static shunt_sched_profile_t *uniform(int p, int m, double f, double b, double w)
{
    shunt_sched_profile_t *profile;

    must(shunt_sched_profile_create(p, 1, m, &profile));
    for (int i = 0; i < p; i++)
        must(shunt_sched_profile_set_stage(profile, i, f, b, w));
    return profile;
}

/* Makespan of a named schedule, checked on the way. */
__attribute__((unused)) static double makespan(const shunt_sched_profile_t *profile, shunt_sched_kind_t kind)
{
    shunt_sched_t *schedule;
    shunt_sched_result_t *result;

    must(shunt_sched_create(profile, kind, &schedule));
    must(shunt_sched_check(schedule, profile));
    must(shunt_sched_simulate(schedule, profile, 0, &result));
    double t = shunt_sched_result_makespan(result);
    shunt_sched_result_destroy(result);
    shunt_sched_destroy(schedule);
    return t;
}

/* A small generator of our own, so that cases are the same everywhere. */
__attribute__((unused)) static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

__attribute__((unused)) static int random_int(uint64_t *state, int from, int to)
{
    return from + (int)(next_random(state) % (uint64_t)(to - from + 1));
}

#endif
