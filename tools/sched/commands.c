/* SPDX-License-Identifier: BSD-3-Clause */
/* simulate, plan, draw and export. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/sched/sched.h"

static double get_warmup(const void *schedule, int stage)
{
    return shunt_sched_warmup(schedule, stage);
}

static double get_peak(const void *result, int stage)
{
    return shunt_sched_result_peak_live(result, stage);
}

static double get_dependency(const void *result, int stage)
{
    return shunt_sched_result_idle(result, stage, SHUNT_SCHED_IDLE_DEPENDENCY);
}

static double get_link(const void *result, int stage)
{
    return shunt_sched_result_idle(result, stage, SHUNT_SCHED_IDLE_LINK);
}

static double get_memory(const void *result, int stage)
{
    return shunt_sched_result_idle(result, stage, SHUNT_SCHED_IDLE_MEMORY);
}

static int is_split(const shunt_sched_t *schedule)
{
    for (int k = 0; k < shunt_sched_count(schedule, 0); k++)
        if (shunt_sched_op(schedule, 0, k).type == SHUNT_SCHED_I)
            return 1;
    return 0;
}

static void print_table(const shunt_sched_t *schedule, const shunt_sched_result_t *result)
{
    double makespan = shunt_sched_result_makespan(result);

    printf("\n  stage  warm-up  live      busy   idle, waiting for: stages    links   memory\n");
    for (int i = 0; i < shunt_sched_stages(schedule); i++) {
        double busy = shunt_sched_result_busy(result, i), share = makespan > 0 ? 100 / makespan : 0;
        printf("  %5d  %7d  %4g  %6.1f %%  %20s%6.1f %%  %5.1f %%  %5.1f %%\n", i,
               shunt_sched_warmup(schedule, i), shunt_sched_result_peak_live(result, i), busy * share, "",
               get_dependency(result, i) * share, get_link(result, i) * share, get_memory(result, i) * share);
    }
}

static void print_json(const struct inputs *in, const shunt_sched_t *schedule,
                       const shunt_sched_profile_t *profile, const shunt_sched_result_t *result, double bound,
                       const char *reason)
{
    int p = shunt_sched_stages(schedule);

    printf("{\n  \"schedule\": \"%s\"", shunt_sched_kind_name(shunt_sched_kind(schedule)));
    json_number(stdout, "stages", p);
    json_number(stdout, "microbatches", shunt_sched_microbatches(schedule));
    json_number(stdout, "chunks", shunt_sched_chunks(schedule));
    printf(",\n  \"split\": %s,\n  \"blocking\": %s", is_split(schedule) ? "true" : "false",
           in->blocking ? "true" : "false");
    json_number(stdout, "makespan", shunt_sched_result_makespan(result));
    json_number(stdout, "period", shunt_sched_result_period(result));
    json_number(stdout, "bubble", shunt_sched_result_bubble(result));
    json_number(stdout, "lower_bound", bound);
    json_number(stdout, "little_bound", shunt_sched_little_bound(profile, is_split(schedule)));
    json_stages(stdout, "warmup", p, get_warmup, schedule);
    json_stages(stdout, "peak_live", p, get_peak, result);
    json_stages(stdout, "idle_dependency", p, get_dependency, result);
    json_stages(stdout, "idle_link", p, get_link, result);
    json_stages(stdout, "idle_memory", p, get_memory, result);
    if (*reason)
        json_string(stdout, "reason", reason);
    printf("\n}\n");
}

static void tell_halved(const struct inputs *in)
{
    if (in->halved && !in->json)
        fprintf(stderr, "shunt-sched: %s\n", in->halved);
}

/* Both commands: the schedule of a name, simulated, and what can be said of it. */
static int report(struct inputs *in, const char *name)
{
    char reason[600];
    shunt_sched_profile_t *profile;
    shunt_sched_t *schedule = make_schedule(in, name, &profile, reason, sizeof(reason));
    shunt_sched_result_t *result;

    check(shunt_sched_check(schedule, profile));
    check(shunt_sched_simulate(schedule, profile, in->blocking ? SHUNT_SCHED_BLOCKING_SENDS : 0, &result));
    double bound = shunt_sched_lower_bound(profile, is_split(schedule)),
           makespan = shunt_sched_result_makespan(result);
    double whole = shunt_sched_lower_bound(profile, 0), other = shunt_sched_lower_bound(profile, 1);
    double w = 0, f, b;
    shunt_sched_profile_get_stage(profile, 0, &f, &b, &w);
    if (*reason && !in->no_split &&
        w > 0) /* a plan is free in its choice, so its bound is that of the better form */
        bound = whole < other ? whole : other;
    tell_halved(in);
    if (in->json)
        print_json(in, schedule, profile, result, bound, reason);
    else {
        double little = shunt_sched_little_bound(profile, is_split(schedule));
        if (*reason)
            printf("%s\n\n", reason);
        printf("%-12s %s%s\n", "schedule", shunt_sched_kind_name(shunt_sched_kind(schedule)),
               in->blocking ? ", sends block" : "");
        printf("%-12s %.6g\n%-12s %.6g per micro-batch\n%-12s %.1f %% of the stages' time\n", "makespan",
               makespan, "period", shunt_sched_result_period(result), "bubble",
               100 * shunt_sched_result_bubble(result));
        printf("%-12s %.6g (this is %.2f %% above)", "lower bound", bound,
               bound > 0 ? 100 * (makespan / bound - 1) : 0);
        printf(little > 0 ? "; from the memory caps alone %.6g\n" : "\n", little);
        print_table(schedule, result);
    }
    shunt_sched_result_destroy(result);
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
    return 0;
}

int run_simulate(struct inputs *in)
{
    return report(in, in->schedule ? in->schedule : "1f1b");
}

int run_plan(struct inputs *in)
{
    if (in->schedule)
        usage_error("plan chooses the schedule itself; simulate takes --schedule");
    return report(in, "plan");
}

/* The format named, else the one that the output's suffix names, else the default. */
static const char *format_of(const struct inputs *in, const char *svg, const char *json, const char *csv,
                             const char *otherwise)
{
    const char *suffix = in->output ? strrchr(in->output, '.') : NULL;

    if (in->format)
        return in->format;
    if (suffix && svg && strcmp(suffix, ".svg") == 0)
        return svg;
    if (suffix && json && strcmp(suffix, ".json") == 0)
        return json;
    if (suffix && csv && strcmp(suffix, ".csv") == 0)
        return csv;
    return otherwise;
}

int run_draw(struct inputs *in)
{
    const char *name = in->schedule ? in->schedule : "plan",
               *format = format_of(in, "svg", "trace", NULL, "text");
    char title[200];
    shunt_sched_profile_t *profile;
    shunt_sched_result_t *result;
    FILE *out;

    if (strcmp(format, "text") != 0 && strcmp(format, "svg") != 0 && strcmp(format, "trace") != 0)
        usage_error("--format %s: draw knows text, svg and trace", format);
    shunt_sched_t *schedule = make_schedule(in, name, &profile, NULL, 0);
    check(shunt_sched_check(schedule, profile));
    check(shunt_sched_simulate(
        schedule, profile, SHUNT_SCHED_TIMELINE | (in->blocking ? SHUNT_SCHED_BLOCKING_SENDS : 0), &result));
    snprintf(title, sizeof(title), "%s, %d stages, %d micro-batches",
             shunt_sched_kind_name(shunt_sched_kind(schedule)), in->stages, in->microbatches);
    for (int k = 0; k < in->n_links; k++) {
        size_t n = strlen(title);
        const struct link *l = &in->links[k];
        if (l->latency[0] > 0)
            n += (size_t)snprintf(title + n, sizeof(title) - n, ", link %d-%d late by %g", l->index,
                                  (l->index + 1) % in->stages, l->latency[0]);
        if (l->service[0] > 0 && n < sizeof(title))
            snprintf(title + n, sizeof(title) - n, ", link %d-%d takes %g a message", l->index,
                     (l->index + 1) % in->stages, l->service[0]);
    }
    tell_halved(in);
    out = open_output(in);
    if (strcmp(format, "svg") == 0)
        check(shunt_sched_result_write_svg(result, in->title ? in->title : title, out));
    else if (strcmp(format, "trace") == 0)
        check(shunt_sched_result_write_trace(result, in->us, out));
    else {
        fprintf(out, "%s\n", in->title ? in->title : title);
        check(shunt_sched_result_write_text(result, in->columns, isatty(fileno(out)) && !getenv("NO_COLOR"),
                                            out));
    }
    close_output(in, out);
    shunt_sched_result_destroy(result);
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
    return 0;
}

int run_export(struct inputs *in)
{
    static const struct {
        const char *name;
        shunt_sched_format_t format;
    } formats[] = {{"pytorch-csv", SHUNT_SCHED_PYTORCH},
                   {"pytorch-csv-comms", SHUNT_SCHED_PYTORCH_COMMS},
                   {"pytorch-csv-comms-plain", SHUNT_SCHED_PYTORCH_PLAIN},
                   {"json", SHUNT_SCHED_JSON},
                   {"text", SHUNT_SCHED_TEXT}};
    const char *name = format_of(in, NULL, "json", "pytorch-csv", "text");

    for (size_t k = 0; k < sizeof(formats) / sizeof(formats[0]); k++)
        if (strcmp(name, formats[k].name) == 0) {
            shunt_sched_profile_t *profile;
            shunt_sched_t *schedule = make_schedule(in, in->schedule ? in->schedule : "plan", &profile, NULL,
                                                    0);
            check(shunt_sched_check(schedule, profile));
            tell_halved(in);
            FILE *out = open_output(in);
            check(shunt_sched_write(schedule, formats[k].format, out));
            close_output(in, out);
            shunt_sched_destroy(schedule);
            shunt_sched_profile_destroy(profile);
            return 0;
        }
    usage_error(
        "--format %s: export knows pytorch-csv, pytorch-csv-comms, pytorch-csv-comms-plain, json and text",
        name);
}
