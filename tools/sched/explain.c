/* SPDX-License-Identifier: BSD-3-Clause */
/* explain: where the time of a traced run went, and what another schedule would make of it. */
#include <stdlib.h>
#include <string.h>
#include "tools/sched/sched.h"

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* The times of a trace are microseconds. */
static const char *time_text(double us, char *text, size_t size)
{
    if (us >= 1e6)
        snprintf(text, size, "%.4g s", us / 1e6);
    else if (us >= 1e3)
        snprintf(text, size, "%.4g ms", us / 1e3);
    else
        snprintf(text, size, "%.4g us", us);
    return text;
}

/* Memory that the run used is memory that a plan may use, unless --cap says otherwise. */
static void set_caps(const struct inputs *in, shunt_sched_profile_t *profile, const shunt_sched_t *schedule)
{
    int p = shunt_sched_stages(schedule);

    if (in->cap.n > 1 && in->cap.n != p)
        usage_error("--cap has %d entries; the trace has %d stages", in->cap.n, p);
    for (int i = 0; i < p; i++) {
        double cap = in->cap.n == 0 ? 0 : in->cap.values[in->cap.n == 1 ? 0 : i];
        if (in->cap.n > 0 && (cap < 1 || cap != (int)cap))
            usage_error("--cap, stage %d: %g is no number of live micro-batches", i, cap);
        check(shunt_sched_profile_set_cap(profile, i, (int)cap));
    }
}

static void print_stages(const shunt_sched_t *schedule, const shunt_sched_profile_t *profile,
                         const shunt_sched_result_t *result)
{
    double makespan = shunt_sched_result_makespan(result);

    printf("\n  stage   forward  backward    weight  warm-up  live   busy   idle, waiting for: stages    "
           "links\n");
    for (int i = 0; i < shunt_sched_stages(schedule); i++) {
        char f[24], b[24], w[24];
        double forward, backward, weight;
        shunt_sched_profile_get_stage(profile, i, &forward, &backward, &weight);
        printf("  %5d  %8s  %8s  %8s  %7d  %4g  %4.1f %%  %20s%6.1f %%  %5.1f %%\n", i,
               time_text(forward, f, sizeof(f)), time_text(backward, b, sizeof(b)),
               time_text(weight, w, sizeof(w)), shunt_sched_warmup(schedule, i),
               shunt_sched_result_peak_live(result, i), share(shunt_sched_result_busy(result, i), makespan),
               "", share(shunt_sched_result_idle(result, i, SHUNT_SCHED_IDLE_DEPENDENCY), makespan),
               share(shunt_sched_result_idle(result, i, SHUNT_SCHED_IDLE_LINK), makespan));
    }
    for (int i = 0; i < shunt_sched_stages(schedule); i++) {
        double delay = 0;
        char text[24];
        shunt_sched_profile_get_link(profile, i, &delay, NULL, NULL, NULL);
        if (delay > 0)
            printf("  link %d-%d: %s each way\n", i, (i + 1) % shunt_sched_stages(schedule),
                   time_text(delay, text, sizeof(text)));
    }
}

int run_explain(struct inputs *in)
{
    size_t size;
    shunt_sched_t *schedule;
    shunt_sched_profile_t *profile;
    shunt_sched_result_t *result;
    shunt_sched_plan_t *plan;
    shunt_sched_plan_params_t params = {sizeof(params), in->no_split ? SHUNT_SCHED_NO_SPLIT : 0, in->effort,
                                        0};
    double makespan;
    char a[24], b[24], c[24];

    if (!in->trace)
        usage_error("explain needs a trace: shunt-sched explain TRACE");
    char *text = read_file(in->trace, &size);
    if (shunt_sched_trace_read(text, size, &schedule, &profile, &makespan) != SHUNT_OK) {
        fprintf(stderr, "shunt-sched: %s: %s\n", in->trace, shunt_error_text());
        return 1;
    }
    free(text);
    set_caps(in, profile, schedule);
    check(shunt_sched_simulate(schedule, profile, 0, &result));
    check(shunt_sched_plan_create(profile, &params, &plan));
    double predicted = shunt_sched_result_makespan(result), better = shunt_sched_plan_makespan(plan);
    double bound = shunt_sched_plan_lower_bound(plan);
    if (in->json) {
        printf("{\n  \"stages\": %d", shunt_sched_stages(schedule));
        json_number(stdout, "microbatches", shunt_sched_microbatches(schedule));
        json_number(stdout, "measured", makespan);
        json_number(stdout, "makespan", predicted);
        json_number(stdout, "period", shunt_sched_result_period(result));
        json_number(stdout, "bubble", shunt_sched_result_bubble(result));
        json_number(stdout, "lower_bound", bound);
        json_number(stdout, "planned", better);
        json_string(stdout, "reason", shunt_sched_plan_reason(plan));
        printf(",\n  \"links\": [");
        for (int i = 0; i < shunt_sched_stages(schedule); i++) {
            double delay = 0;
            shunt_sched_profile_get_link(profile, i, &delay, NULL, NULL, NULL);
            printf("%s%.10g", i ? ", " : "", delay);
        }
        printf("],\n  \"warmup\": [");
        for (int i = 0; i < shunt_sched_stages(schedule); i++)
            printf("%s%d", i ? ", " : "", shunt_sched_warmup(schedule, i));
        printf("],\n  \"peak_live\": [");
        for (int i = 0; i < shunt_sched_stages(schedule); i++)
            printf("%s%g", i ? ", " : "", shunt_sched_result_peak_live(result, i));
        printf("]\n}\n");
    } else {
        printf("%d stages, %d micro-batches: measured %s; the order that was run, with median times, takes "
               "%s (%.1f %% idle)\n",
               shunt_sched_stages(schedule), shunt_sched_microbatches(schedule),
               time_text(makespan, a, sizeof(a)), time_text(predicted, b, sizeof(b)),
               100 * shunt_sched_result_bubble(result));
        print_stages(schedule, profile, result);
        if (better < predicted * 0.99)
            printf("\na plan would take %s (%.2f times as fast): %s\n", time_text(better, c, sizeof(c)),
                   predicted / better, shunt_sched_plan_reason(plan));
        else
            printf("\nno plan is faster by 1 %%; the lower bound is %s\n", time_text(bound, c, sizeof(c)));
    }
    shunt_sched_plan_destroy(plan);
    shunt_sched_result_destroy(result);
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
    return 0;
}
