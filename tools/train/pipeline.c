/* SPDX-License-Identifier: BSD-3-Clause */
/* One stage's operations of a step, in the order that the plan hints at and the arrivals allow. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include "tools/train/job.h"

struct pipeline {
    struct job *job;
    struct tuning *tuning;
    struct arrivals *arrivals;
    struct trace *trace;
    shunt_sched_run_t *run;
    uint8_t *text;
    double *losses; /* per micro-batch; 0 but in the last stage */
};

static void make_run(struct pipeline *p)
{
    const struct options *o = &p->job->options;
    shunt_sched_run_t *run;

    job_check(p->job,
              shunt_sched_run_create(tuning_schedule(p->tuning), p->job->stage, o->memory_cap,
                                     o->adapt ? 0 : SHUNT_SCHED_FOLLOW, &run),
              "starting the schedule");
    shunt_sched_run_destroy(p->run);
    p->run = run;
}

struct pipeline *pipeline_create(struct job *job)
{
    struct pipeline *p = calloc(1, sizeof(*p));

    if (!p || !(p->text = malloc(model_text_bytes(&job->options.model))) ||
        !(p->losses = calloc((size_t)job->count, sizeof(double))))
        job_fail(job, NULL, "out of memory");
    p->job = job;
    p->tuning = tuning_create(job);
    p->arrivals = arrivals_create(job);
    p->trace = trace_create(job);
    make_run(p);
    return p;
}

void pipeline_destroy(struct pipeline *p)
{
    if (!p)
        return;
    shunt_sched_run_destroy(p->run);
    arrivals_destroy(p->arrivals);
    trace_destroy(p->trace);
    tuning_destroy(p->tuning);
    free(p->text);
    free(p->losses);
    free(p);
}

const shunt_sched_t *pipeline_schedule(const struct pipeline *p)
{
    return tuning_schedule(p->tuning);
}

void pipeline_trace(struct pipeline *p)
{
    if (p->job->options.trace && p->job->replica == 0)
        trace_write(p->trace, p->job);
}

/* Makes an operation that began at `start` take as long as an accelerator is said to. */
static void pad(struct pipeline *p, shunt_sched_op_t op, uint64_t start)
{
    struct job *job = p->job;
    int units = op.type == SHUNT_SCHED_B ? 2 : 1;
    uint64_t end = now_ns(), want = start + (uint64_t)(job->options.stage_time * 1e9 * units);

    if (job->options.stage_time > 0 && end > want)
        job->overrun++;
    if (end < want) {
        struct timespec until = {(time_t)(want / 1000000000), (long)(want % 1000000000)};

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            ;
        job->times.padded += (double)(want - end);
        end = now_ns();
    }
    job->times.busy += (double)(end - start);
    tuning_record(p->tuning, op.type, (double)(end - start) / 1e9);
    trace_add(p->trace, op, start, end);
}

static void forward(struct pipeline *p, int i)
{
    struct job *job = p->job;
    const struct options *o = &job->options;

    if (job->stage == 0 || job->stage == o->stages - 1)
        text_sample(&job->text, o->model.seed, job->step,
                    (uint64_t)job->first + (uint64_t)i, o->model.batch, o->model.context, p->text);
    job_check_model(job, model_forward(job->model, i, p->text, arrivals_data(p->arrivals, ACTIVATION, i),
                                       arrivals_room(p->arrivals, ACTIVATION, i), &p->losses[i]));
}

static void compute(struct pipeline *p, shunt_sched_op_t op)
{
    struct job *job = p->job;
    const float *gradient = arrivals_data(p->arrivals, GRADIENT, op.microbatch);
    float *room = arrivals_room(p->arrivals, GRADIENT, op.microbatch);
    uint64_t start = now_ns();

    switch (op.type) {
    case SHUNT_SCHED_F:
        forward(p, op.microbatch);
        break;
    case SHUNT_SCHED_B:
        job_check_model(job, model_backward(job->model, op.microbatch, gradient, room));
        break;
    case SHUNT_SCHED_I:
        job_check_model(job, model_backward_input(job->model, op.microbatch, gradient, room));
        break;
    case SHUNT_SCHED_W:
        job_check_model(job, model_backward_weight(job->model, op.microbatch));
        break;
    }
    pad(p, op, start);
    if (op.type != SHUNT_SCHED_W)
        arrivals_send(p->arrivals, op.type == SHUNT_SCHED_F ? ACTIVATION : GRADIENT, op.microbatch);
    job_check(job, shunt_sched_run_done(p->run, op), "following the schedule");
}

static bool take_arrival(struct pipeline *p, bool block)
{
    shunt_sched_op_t input = {0};
    enum direction direction;

    if (!arrivals_take(p->arrivals, block, &direction, &input.microbatch))
        return false;
    input.type = direction == ACTIVATION ? SHUNT_SCHED_F : SHUNT_SCHED_B;
    job_check(p->job, shunt_sched_run_arrived(p->run, input), "following the schedule");
    return true;
}

double pipeline_step(struct pipeline *p)
{
    struct job *job = p->job;
    double loss = 0;

    job_check_model(job, model_step_begin(job->model, job->count));
    buckets_begin(job->buckets);
    shunt_sched_run_reset(p->run);
    arrivals_begin(p->arrivals);
    tuning_begin(p->tuning);
    trace_begin(p->trace);
    for (;;) {
        shunt_sched_op_t op;
        shunt_status_t status;

        while (take_arrival(p, false))
            ;
        status = shunt_sched_next(p->run, &op);
        if (status == SHUNT_IN_PROGRESS) {
            if (!take_arrival(p, true))
                job_fail(job, NULL, "the schedule waits for a message that nobody sends");
            continue;
        }
        job_check(job, status, "following the schedule");
        if (op.microbatch < 0)
            break;
        compute(p, op);
    }
    arrivals_finish(p->arrivals);
    buckets_wait(job->buckets);
    for (int i = 0; i < job->count; i++) /* whatever the order in which they were run */
        loss += p->losses[i];
    return loss;
}

void pipeline_measured(struct pipeline *p, double *vector)
{
    tuning_put(p->tuning, arrivals_delay(p->arrivals), vector);
}

void pipeline_adapt(struct pipeline *p, const double *vector)
{
    if (tuning_step(p->tuning, vector))
        make_run(p);
}
