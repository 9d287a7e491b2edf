/* SPDX-License-Identifier: BSD-3-Clause */
/* The published and derived figures of pipelines under a slow link, reproduced exactly. */
#include <shunt/sched.h>
#include "tests/sched/cases.h"
#include "tests/tap.h"

/* p = 8, m = 24, f = 1, backward 2 (1 + 1 when split), latency c on link 6-7. */
static void slow_last_link(void)
{
    static const struct {
        double c, f1b1, zbh1, zbh2, adapted, pipemorph, bound;
        int x0;
    } rows[] = {
        {0, 93, 79, 79, 93, 79, 79, 8},      {0.5, 105, 84, 79.5, 94, 79.5, 79.5, 9},
        {1, 117, 96, 80, 95, 80, 80, 9},     {2, 141, 120, 96, 97, 81, 81, 10},
        {4, 189, 168, 128, 101, 83, 83, 11}, {8, 285, 264, 192, 109, 88, 87, 14},
    };

    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        double c = rows[k].c;
        shunt_sched_profile_t *whole = uniform(8, 24, 1, 2, 0), *split = uniform(8, 24, 1, 1, 1);
        int x[8];
        shunt_sched_profile_set_link(whole, 6, c, c, 0, 0);
        shunt_sched_profile_set_link(split, 6, c, c, 0, 0);
        ok(makespan(whole, SHUNT_SCHED_1F1B) == rows[k].f1b1, "c = %g: 1F1B takes %g", c, rows[k].f1b1);
        ok(makespan(split, SHUNT_SCHED_1F1B) == rows[k].f1b1, "c = %g: the same from split times", c);
        ok(makespan(split, SHUNT_SCHED_ZBH1) == rows[k].zbh1, "c = %g: ZB-H1 takes %g", c, rows[k].zbh1);
        ok(makespan(whole, SHUNT_SCHED_ADAPTED) == rows[k].adapted, "c = %g: 1F1B adapted takes %g", c,
           rows[k].adapted);
        shunt_sched_adapted_warmup(whole, x);
        is_int(x[0], rows[k].x0, "c = %g: adapted warms up with %d forwards", c, rows[k].x0);
        ok(shunt_sched_lower_bound(split, 1) == rows[k].bound, "c = %g: the split lower bound is %g", c,
           rows[k].bound);
        ok(makespan(split, SHUNT_SCHED_ZBH2) == rows[k].zbh2, "c = %g: ZB-H2 takes %g", c, rows[k].zbh2);
        ok(makespan(split, SHUNT_SCHED_PIPEMORPH) == rows[k].pipemorph, "c = %g: PipeMorph's plan takes %g",
           c, rows[k].pipemorph);
        ok(shunt_sched_lower_bound(whole, 0) == rows[k].adapted,
           "c = %g: no unsplit schedule is faster than adapted 1F1B", c);
        shunt_sched_plan_t *plan;
        must(shunt_sched_plan_create(split, NULL, &plan));
        ok(shunt_sched_plan_makespan(plan) == rows[k].bound,
           "c = %g: the planner reaches the split bound of %g", c, rows[k].bound);
        shunt_sched_plan_destroy(plan);
        shunt_sched_profile_destroy(whole);
        shunt_sched_profile_destroy(split);
    }
}

int main(void)
{
    slow_last_link();
    return done();
}
