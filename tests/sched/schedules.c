/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules as objects: what is built, what is refused and with which words, and their text forms. */
#include <math.h>
#include <string.h>
#include "sched/sched.h"
#include "tests/sched/cases.h"
#include "tests/tap.h"

static void refused(shunt_status_t st, shunt_status_t want, const char *words, const char *what)
{
    ok(st == want && strstr(shunt_error_text(), words), "%s: %s", what,
       st == SHUNT_OK ? "accepted" : shunt_error_text());
}

static char *text_of(const shunt_sched_t *schedule, shunt_sched_format_t format, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);

    must(shunt_sched_write(schedule, format, out));
    fclose(out);
    return text;
}

static shunt_sched_profile_t *profile_for(shunt_sched_kind_t kind, int p, int m)
{
    shunt_sched_profile_t *profile;
    int chunks = kind == SHUNT_SCHED_INTERLEAVED ? 3 : kind == SHUNT_SCHED_ZBV ? 2 : 1;

    must(shunt_sched_profile_create(p, chunks, m, &profile));
    for (int i = 0; i < p; i++) {
        must(shunt_sched_profile_set_stage(profile, i, 6, 6, 6));
        must(shunt_sched_profile_set_link(profile, i, i == 1 ? 5 : 0, i == 1 ? 5 : 0, 0, 0));
    }
    return profile;
}

/* Every kind: valid, and the same after being written and read in each form. */
static void kinds(void)
{
    for (int kind = SHUNT_SCHED_GPIPE; kind <= SHUNT_SCHED_READY; kind++)
        for (int size = 0; size < 3; size++) {
            static const int sizes[][2] = {{2, 2}, {4, 8}, {5, 15}};
            int p = sizes[size][0], m = sizes[size][1], same = 0;
            shunt_sched_profile_t *profile = profile_for((shunt_sched_kind_t)kind, p, m);
            shunt_sched_t *schedule, *again;
            must(shunt_sched_create(profile, (shunt_sched_kind_t)kind, &schedule));
            const char *name = shunt_sched_kind_name((shunt_sched_kind_t)kind);
            ok(shunt_sched_check(schedule, profile) == SHUNT_OK, "%s of %d x %d is valid", name, p, m);
            for (int format = SHUNT_SCHED_TEXT; format <= SHUNT_SCHED_PYTORCH_PLAIN; format++) {
                size_t n;
                char *text = text_of(schedule, (shunt_sched_format_t)format, &n);
                if (shunt_sched_read(text, n, (shunt_sched_format_t)format, &again) == SHUNT_OK) {
                    same += shunt_sched_equal(schedule, again);
                    shunt_sched_destroy(again);
                } else
                    printf("# format %d: %s\n", format, shunt_error_text());
                free(text);
            }
            is_int(same, 5, "%s of %d x %d is the same after being written and read in five forms", name, p,
                   m);
            shunt_sched_destroy(schedule);
            shunt_sched_profile_destroy(profile);
        }
}

/* Makespans that the papers of the chunked schedules give. */
static void chunked(void)
{
    shunt_sched_profile_t *profile;

    for (int v = 1; v <= 4; v++) {
        must(shunt_sched_profile_create(4, v, 16, &profile));
        for (int i = 0; i < 4; i++)
            must(shunt_sched_profile_set_stage(profile, i, 12, 24, 0));
        double want = 16 * 36 + 3 * 36.0 / v;
        ok(fabs(makespan(profile, SHUNT_SCHED_INTERLEAVED) - want) < 1e-9,
           "%d chunks divide the fill of interleaved 1F1B by %d", v, v);
        shunt_sched_profile_destroy(profile);
    }
    must(shunt_sched_profile_create(4, 2, 20, &profile));
    for (int i = 0; i < 4; i++)
        must(shunt_sched_profile_set_stage(profile, i, 2, 2, 2));
    shunt_sched_t *schedule;
    must(shunt_sched_create(profile, SHUNT_SCHED_ZBV, &schedule));
    int even = 1;
    for (int i = 0; i < 4; i++)
        even &= shunt_sched_peak_live(schedule, i) <= 4;
    ok(even, "ZB-V keeps p micro-batches alive at most, on every stage");
    ok(makespan(profile, SHUNT_SCHED_ZBV) <= 20 * 6 + 3, "and is idle only while it fills (%g)",
       makespan(profile, SHUNT_SCHED_ZBV));
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
}

static shunt_status_t custom(const char *text)
{
    shunt_sched_t *schedule = NULL;
    shunt_status_t st = shunt_sched_read(text, strlen(text), SHUNT_SCHED_TEXT, &schedule);

    shunt_sched_destroy(schedule);
    return st;
}

#define HEAD "shunt-schedule 1\nstages 2\nmicrobatches 2\n"

static void bad_schedules(void)
{
    ok(custom(HEAD "0: F0 F1 B0 B1\n1: F0 B0 F1 B1\n") == SHUNT_OK, "a good schedule is taken");
    refused(custom(HEAD "0: F0 B0 F1 B1\n1: F0 F1 B0 B1\n"), SHUNT_ERR_FORMAT,
            "stage 0, operation 1 (B of micro-batch 0) waits", "a deadlock");
    refused(custom(HEAD "0: F0 F1 B0\n1: F0 B0 F1 B1\n"), SHUNT_ERR_FORMAT,
            "stage 0 lacks B of micro-batch 1", "a backward that is missing");
    refused(custom(HEAD "0: F0 F0 B0 B1\n1: F0 B0 F1 B1\n"), SHUNT_ERR_FORMAT,
            "stage 0, operation 1: F of micro-batch 0 stands there", "one twice");
    refused(custom(HEAD "0: F0 B1 F1 B0\n1: F0 B0 F1 B1\n"), SHUNT_ERR_FORMAT, "before its forward",
            "a backward before its forward");
    refused(custom(HEAD "0: F0 W0 I0 F1 B1\n1: F0 B0 F1 B1\n"), SHUNT_ERR_FORMAT, "before its input gradient",
            "W before I");
    refused(custom(HEAD "0: F0 B0 I0 W0 F1 B1\n1: F0 B0 F1 B1\n"), SHUNT_ERR_FORMAT, "both B and I",
            "B and I of one");
    refused(custom(HEAD "0: F0 I0 F1 B1\n1: F0 B0 F1 B1\n"), SHUNT_ERR_FORMAT, "lacks W", "I without W");
    refused(custom(HEAD "0: F0 F2 B0 B2\n1: F0 B0 F1 B1\n"), SHUNT_ERR_FORMAT, "out of range",
            "a micro-batch beyond the last");
    refused(custom(HEAD "0: F0 F1 B0 B1\n"), SHUNT_ERR_FORMAT, "1 of 2 stages", "a stage too few");
    refused(custom(HEAD "0: F0 X1\n"), SHUNT_ERR_FORMAT, "\"X1\" is no operation", "an operation of no type");
    refused(custom("hello"), SHUNT_ERR_FORMAT, "shunt-schedule", "another file");
    refused(custom("shunt-schedule 1\nstages 99999999\n"), SHUNT_ERR_FORMAT, "line 2", "too many stages");
    const char *table = "0F0,0F1,0B0,0B1\n0F0,0B0,0F1,0B1\n";
    shunt_sched_t *schedule;
    refused(shunt_sched_read(table, strlen(table), SHUNT_SCHED_PYTORCH, &schedule), SHUNT_ERR_FORMAT,
            "row 1, column 1", "a stage on the wrong rank");
    table = "0F0,0Q1\n";
    refused(shunt_sched_read(table, strlen(table), SHUNT_SCHED_PYTORCH, &schedule), SHUNT_ERR_FORMAT,
            "\"0Q1\" is no cell", "a cell of no type");
}

static void bad_profiles(void)
{
    shunt_sched_profile_t *profile;
    shunt_sched_t *schedule;
    int low[] = {2, 3, 1}, zero[] = {2, 0, 1};

    refused(shunt_sched_profile_create(0, 1, 1, &profile), SHUNT_ERR_INVALID, "0 stages", "no stages");
    refused(shunt_sched_profile_create(3, 1, 0, &profile), SHUNT_ERR_INVALID, "0 micro-batches",
            "no micro-batches");
    refused(shunt_sched_profile_create(3, 99, 1, &profile), SHUNT_ERR_INVALID, "99 chunks",
            "too many chunks");
    must(shunt_sched_profile_create(3, 1, 6, &profile));
    refused(shunt_sched_profile_set_stage(profile, 1, -1, 1, 0), SHUNT_ERR_INVALID, "forward of stage 1",
            "a negative time");
    refused(shunt_sched_profile_set_stage(profile, 1, 1, NAN, 0), SHUNT_ERR_INVALID, "backward of stage 1",
            "a time that is no number");
    refused(shunt_sched_profile_set_stage(profile, 3, 1, 1, 0), SHUNT_ERR_INVALID, "stage 3",
            "a stage beyond the last");
    refused(shunt_sched_profile_set_link(profile, 1, INFINITY, 0, 0, 0), SHUNT_ERR_INVALID,
            "latency of link 1", "an infinite latency");
    refused(shunt_sched_profile_set_cap(profile, 0, -1), SHUNT_ERR_INVALID, "cap of -1", "a negative cap");
    refused(shunt_sched_create(profile, SHUNT_SCHED_ZBH1, &schedule), SHUNT_ERR_INVALID, "no weight gradient",
            "ZB-H1 without weight times");
    refused(shunt_sched_create_warmup(profile, low, &schedule), SHUNT_ERR_INVALID, "stage 0 warms up with 2",
            "warm-up counts that rise");
    refused(shunt_sched_create_warmup(profile, zero, &schedule), SHUNT_ERR_INVALID, "stage 1: a warm-up of 0",
            "a warm-up of nothing");
    must(shunt_sched_create(profile, SHUNT_SCHED_GPIPE, &schedule));
    must(shunt_sched_profile_set_cap(profile, 1, 4));
    refused(shunt_sched_check(schedule, profile), SHUNT_ERR_FORMAT,
            "stage 1, operation 4: F of micro-batch 4", "a cap that is exceeded");
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
    must(shunt_sched_profile_create(4, 2, 6, &profile));
    refused(shunt_sched_create(profile, SHUNT_SCHED_INTERLEAVED, &schedule), SHUNT_ERR_UNSUPPORTED,
            "stages divide", "interleaved with a remainder");
    refused(shunt_sched_create(profile, SHUNT_SCHED_1F1B, &schedule), SHUNT_ERR_UNSUPPORTED, "one chunk",
            "1F1B with chunks");
    shunt_sched_profile_destroy(profile);
    shunt_sched_kind_t kind;
    refused(shunt_sched_kind_from_name("fastest", &kind), SHUNT_ERR_NOT_FOUND, "zb-h1", "a kind of no name");
    shunt_sched_profile_destroy(NULL);
    shunt_sched_destroy(NULL);
}

/* Idle time adds up, and is put down to what caused it. */
static void causes(void)
{
    shunt_sched_profile_t *profile = uniform(4, 16, 1, 2, 0);
    shunt_sched_t *schedule;
    shunt_sched_result_t *result;
    double gap = 0, memory = 0, link;

    must(shunt_sched_profile_set_link(profile, 2, 3, 3, 0, 0));
    for (int i = 0; i < 4; i++)
        must(shunt_sched_profile_set_cap(profile, i, 4 - i));
    must(shunt_sched_create(profile, SHUNT_SCHED_1F1B, &schedule));
    must(shunt_sched_simulate(schedule, profile, SHUNT_SCHED_TIMELINE, &result));
    for (int i = 0; i < 4; i++) {
        double sum = shunt_sched_result_busy(result, i);
        for (int c = 0; c < 3; c++)
            sum += shunt_sched_result_idle(result, i, (shunt_sched_cause_t)c);
        gap = fmax(gap, fabs(sum - shunt_sched_result_makespan(result)));
        memory += shunt_sched_result_idle(result, i, SHUNT_SCHED_IDLE_MEMORY);
    }
    link = shunt_sched_result_idle(result, 3, SHUNT_SCHED_IDLE_LINK);
    ok(gap < 1e-9, "busy and idle time by cause add up to the makespan on every stage");
    ok(memory > 0, "a stage that may not hold more waits for memory (%g)", memory);
    ok(link > 0 && link <= 16 * 3 && shunt_sched_result_idle(result, 0, SHUNT_SCHED_IDLE_LINK) == 0,
       "stages beside the slow link wait for it (%g), others for their neighbours", link);
    double start, end, last = 0;
    for (int k = 0; k < shunt_sched_count(schedule, 0); k++) {
        must(shunt_sched_result_time(result, 0, k, &start, &end));
        last = end;
    }
    ok(last == shunt_sched_result_makespan(result), "the timeline ends at the makespan");
    ok(shunt_sched_result_time(result, 4, 0, &start, &end) == SHUNT_ERR_INVALID,
       "a stage beyond the last has no timeline");
    shunt_sched_result_destroy(result);
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
}

/* A trace that was written is read as what it was written from. */
static void traces(void)
{
    for (int kind = SHUNT_SCHED_1F1B; kind <= SHUNT_SCHED_INTERLEAVED; kind++) {
        shunt_sched_profile_t *profile = profile_for((shunt_sched_kind_t)kind, 4, 12), *read;
        shunt_sched_t *schedule, *again;
        shunt_sched_result_t *result;
        char *text = NULL;
        size_t size;
        double makespan, f, b, w, delay = 0;
        FILE *out = open_memstream(&text, &size);
        must(shunt_sched_create(profile, (shunt_sched_kind_t)kind, &schedule));
        must(shunt_sched_simulate(schedule, profile, SHUNT_SCHED_TIMELINE, &result));
        must(shunt_sched_result_write_trace(result, 1000, out));
        fclose(out);
        must(shunt_sched_trace_read(text, size, &again, &read, &makespan));
        const char *name = shunt_sched_kind_name((shunt_sched_kind_t)kind);
        ok(shunt_sched_equal(schedule, again), "the trace of %s shows the order that was run", name);
        ok(fabs(makespan - 1000 * shunt_sched_result_makespan(result)) < 1, "and its duration");
        shunt_sched_profile_get_stage(read, 2, &f, &b, &w);
        ok(fabs(f - 6000) < 1 && fabs(b + w - 12000) < 1, "and the stages' times");
        shunt_sched_profile_get_link(read, 1, &delay, NULL, NULL, NULL);
        if (kind == SHUNT_SCHED_1F1B || kind == SHUNT_SCHED_ADAPTED)
            ok(fabs(delay - 5000) < 1, "and the delay of the link (%g)", delay);
        free(text);
        shunt_sched_result_destroy(result);
        shunt_sched_destroy(schedule);
        shunt_sched_destroy(again);
        shunt_sched_profile_destroy(profile);
        shunt_sched_profile_destroy(read);
    }
    const char *bad =
        "{\"traceEvents\": [{\"name\": \"F0\", \"ph\": \"X\", \"ts\": 1, \"dur\": 2, \"tid\": 0}]}";
    refused(shunt_sched_trace_read(bad, strlen(bad), NULL, NULL, NULL), SHUNT_ERR_FORMAT, "stage 0 lacks B",
            "a trace without backwards");
    refused(shunt_sched_trace_read("[]", 2, NULL, NULL, NULL), SHUNT_ERR_FORMAT, "no operations",
            "an empty trace");
    refused(shunt_sched_trace_read("[{", 2, NULL, NULL, NULL), SHUNT_ERR_FORMAT, "not JSON", "half a trace");
}

static void plans(void)
{
    shunt_sched_profile_t *profile = uniform(8, 24, 1, 1, 1);
    shunt_sched_plan_params_t params = {sizeof(params), 0, 0, 0};
    shunt_sched_plan_t *a, *b;
    int caps = 1;

    must(shunt_sched_profile_set_link(profile, 3, 4, 4, 0, 0));
    for (int i = 0; i < 8; i++)
        must(shunt_sched_profile_set_cap(profile, i, 8));
    must(shunt_sched_plan_create(profile, &params, &a));
    must(shunt_sched_plan_create(profile, &params, &b));
    ok(shunt_sched_equal(shunt_sched_plan_schedule(a), shunt_sched_plan_schedule(b)),
       "equal profiles give equal plans");
    for (int i = 0; i < 8; i++)
        caps &= shunt_sched_peak_live(shunt_sched_plan_schedule(a), i) <= 8;
    ok(caps && shunt_sched_check(shunt_sched_plan_schedule(a), profile) == SHUNT_OK, "a plan keeps its caps");
    ok(strstr(shunt_sched_plan_reason(a), "1F1B would take"), "it says why: %s", shunt_sched_plan_reason(a));
    shunt_sched_plan_destroy(a);
    shunt_sched_plan_destroy(b);
    params.flags = SHUNT_SCHED_NO_SPLIT | SHUNT_SCHED_ONLY_SPLIT;
    refused(shunt_sched_plan_create(profile, &params, &a), SHUNT_ERR_INVALID, "also excluded",
            "a split that is asked for and excluded");
    params.size = 1;
    refused(shunt_sched_plan_create(profile, &params, &a), SHUNT_ERR_INVALID, "params.size",
            "parameters of another version");
    for (int i = 0; i < 8; i++)
        must(shunt_sched_profile_set_cap(profile, i, 1));
    must(shunt_sched_plan_create(profile, NULL, &a));
    ok(shunt_sched_check(shunt_sched_plan_schedule(a), profile) == SHUNT_OK, "even a cap of one is kept");
    shunt_sched_plan_destroy(a);
    shunt_sched_profile_destroy(profile);
    must(shunt_sched_profile_create(1, 1, 1, &profile));
    must(shunt_sched_plan_create(profile, NULL, &a));
    ok(shunt_sched_plan_makespan(a) == 0, "one stage, one micro-batch, no times: planned");
    shunt_sched_plan_destroy(a);
    shunt_sched_profile_destroy(profile);
}

int main(void)
{
    kinds();
    chunked();
    bad_schedules();
    bad_profiles();
    causes();
    traces();
    plans();
    return done();
}
