/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which order the stages' operations take, and how that follows what is measured. Stage times and link delays travel
 * with the all-reduce that ends a step; from its own pipeline's every stage derives the same plan.
 */
#include <stdlib.h>
#include <string.h>
#include "tools/train/job.h"

enum { FORWARD, BACKWARD, WEIGHT, KINDS };

struct tuning {
    struct job *job;
    shunt_sched_profile_t *expected; /* before anything is measured */
    shunt_sched_t *fixed;            /* --adapt off */
    shunt_sched_plan_t *plan;        /* --adapt off with --schedule planned */
    shunt_sched_adapt_t *adapt;
    int entries;
    double *took[KINDS]; /* of this step's operations, seconds */
    int n[KINDS];
    uint64_t began, ended;
};

static void *need(struct job *job, size_t n, size_t size)
{
    void *memory = calloc(n, size);

    if (!memory)
        job_fail(job, NULL, "out of memory");
    return memory;
}

/* All stages alike: forward, input gradient and weight gradient take the stated time, or the same unknown one. */
static shunt_status_t expect(struct tuning *t)
{
    const struct options *o = &t->job->options;
    double unit = o->stage_time > 0 ? o->stage_time : 0.01;
    shunt_status_t status = shunt_sched_profile_create(o->stages, 1, t->job->count, &t->expected);

    for (int s = 0; s < o->stages && status == SHUNT_OK; s++) {
        status = shunt_sched_profile_set_stage(t->expected, s, unit, unit, unit);
        if (status == SHUNT_OK && o->memory_cap)
            status = shunt_sched_profile_set_cap(t->expected, s, o->memory_cap);
    }
    return status;
}

static shunt_status_t choose(struct tuning *t)
{
    const struct options *o = &t->job->options;
    unsigned flags = o->schedule == SHUNT_SCHED_PLANNED               ? 0
                     : shunt_sched_kind_is_split(o->schedule)         ? SHUNT_SCHED_ONLY_SPLIT
                                                                      : SHUNT_SCHED_NO_SPLIT;
    shunt_sched_adapt_params_t adapt = {.size = sizeof(adapt), .flags = flags};
    shunt_status_t status = expect(t);

    if (status == SHUNT_OK && o->adapt && o->stages > 1)
        status = shunt_sched_adapt_create(t->expected, &adapt, &t->adapt);
    else if (status == SHUNT_OK && o->schedule == SHUNT_SCHED_PLANNED)
        status = shunt_sched_plan_create(t->expected, NULL, &t->plan);
    else if (status == SHUNT_OK)
        status = shunt_sched_create(t->expected, o->schedule, &t->fixed);
    return status == SHUNT_OK ? shunt_sched_check(tuning_schedule(t), t->expected) : status;
}

struct tuning *tuning_create(struct job *job)
{
    struct tuning *t = need(job, 1, sizeof(*t));

    t->job = job;
    job_check(job, choose(t), "making the schedule");
    if (shunt_sched_chunks(tuning_schedule(t)) != 1) {
        fprintf(stderr, "shunt-train: the schedule %s needs several model chunks per stage; a stage here is one\n",
                shunt_sched_kind_name(job->options.schedule));
        exit(2);
    }
    if (t->adapt)
        t->entries = shunt_sched_adapt_entries(t->adapt);
    if (t->adapt && tuning_entries(job) != job->replicas * (t->entries + 1))
        job_fail(job, NULL, "the planner's vectors have another length than expected");
    for (int k = 0; k < KINDS; k++)
        t->took[k] = need(job, (size_t)job->count, sizeof(double));
    return t;
}

void tuning_destroy(struct tuning *t)
{
    if (!t)
        return;
    shunt_sched_adapt_destroy(t->adapt);
    shunt_sched_plan_destroy(t->plan);
    shunt_sched_destroy(t->fixed);
    shunt_sched_profile_destroy(t->expected);
    for (int k = 0; k < KINDS; k++)
        free(t->took[k]);
    free(t);
}

const shunt_sched_t *tuning_schedule(const struct tuning *t)
{
    return t->adapt ? shunt_sched_adapt_schedule(t->adapt) : t->plan ? shunt_sched_plan_schedule(t->plan) : t->fixed;
}

void tuning_begin(struct tuning *t)
{
    memset(t->n, 0, sizeof(t->n));
    t->began = now_ns();
}

void tuning_record(struct tuning *t, shunt_sched_type_t type, double took)
{
    switch (type) {
    case SHUNT_SCHED_F:
        t->took[FORWARD][t->n[FORWARD]++] = took;
        break;
    case SHUNT_SCHED_B: /* its halves do about the same products */
        t->took[BACKWARD][t->n[BACKWARD]++] = took / 2;
        t->took[WEIGHT][t->n[WEIGHT]++] = took / 2;
        break;
    case SHUNT_SCHED_I:
        t->took[BACKWARD][t->n[BACKWARD]++] = took;
        break;
    default:
        t->took[WEIGHT][t->n[WEIGHT]++] = took;
    }
    t->ended = now_ns();
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* The lower quartile: an operation that is preempted says nothing about its stage, one that is slow always does. */
static double typical(struct tuning *t, int kind)
{
    qsort(t->took[kind], (size_t)t->n[kind], sizeof(double), by_value);
    return t->n[kind] ? t->took[kind][t->n[kind] / 4] : 0;
}

int tuning_entries(const struct job *job)
{
    const struct options *o = &job->options;

    /* per stage three times, per link three delays, and what the step took */
    return o->adapt && o->stages > 1 ? job->replicas * (6 * o->stages + 1) : 0;
}

void tuning_put(struct tuning *t, double delay, double *vector)
{
    struct job *job = t->job;

    if (!t->adapt)
        return;
    vector += job->replica * (t->entries + 1);
    job_check(job,
              shunt_sched_adapt_put_stage(t->adapt, vector, job->stage, 0, typical(t, FORWARD), typical(t, BACKWARD),
                                          typical(t, WEIGHT)),
              "adapting");
    if (job->stage < job->options.stages - 1)
        job_check(job, shunt_sched_adapt_put_link(t->adapt, vector, job->stage, delay, 0, 0), "adapting");
    if (job->stage == 0) /* where the last backward ends */
        vector[t->entries] = (double)(t->ended - t->began) / 1e9;
}

bool tuning_step(struct tuning *t, const double *vector)
{
    struct job *job = t->job;
    shunt_sched_event_t event;

    if (!t->adapt)
        return false;
    vector += job->replica * (t->entries + 1);
    job_check(job, shunt_sched_adapt_step(t->adapt, (int)job->step + 1, vector, vector[t->entries], &event), "adapting");
    if (event.changed && job->stage == 0) {
        char of[32] = "";

        if (job->replicas > 1)
            snprintf(of, sizeof(of), " of replica %d", job->replica);
        printf("plan%s: %s\n", of, event.text);
        fflush(stdout);
    }
    job->plan_changes += event.changed;
    return event.changed;
}
