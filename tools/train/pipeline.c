/* SPDX-License-Identifier: BSD-3-Clause */
/* One stage's operations of a step, in the schedule's order, with the messages between stages. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tools/train/job.h"

struct pipeline {
    struct job *job;
    shunt_sched_profile_t *profile;
    shunt_sched_t *schedule;
    int n;            /* micro-batches */
    int before, after; /* ranks of the neighbouring stages, or -1 */
    size_t floats;
    uint8_t *text;
    /* n buffers each: from the stage before, to the one after, and the gradients the other way */
    float *in, *out, *grad_out, *grad_in;
    shunt_request_t **receive_in, **receive_grad, **sends;
    int n_sends;
    double loss;
};

enum direction { ACTIVATION, GRADIENT };

/* Messages of one step differ in their tag; those of neighbouring steps are told apart by their order. */
static int tag(int micro_batch, enum direction direction)
{
    return 2 * micro_batch + (int)direction;
}

/* All stages alike: forward 1, input gradient 1, weight gradient 1. */
static shunt_status_t make_schedule(struct pipeline *p)
{
    const struct options *o = &p->job->options;
    shunt_status_t status = shunt_sched_profile_create(o->stages, 1, o->micro_batches, &p->profile);

    for (int s = 0; s < o->stages && status == SHUNT_OK; s++)
        status = shunt_sched_profile_set_stage(p->profile, s, 1, 1, 1);
    for (int s = 0; s < o->stages && status == SHUNT_OK && o->memory_cap; s++)
        status = shunt_sched_profile_set_cap(p->profile, s, o->memory_cap);
    if (status == SHUNT_OK)
        status = shunt_sched_create(p->profile, o->schedule, &p->schedule);
    if (status == SHUNT_OK)
        status = shunt_sched_check(p->schedule, p->profile);
    if (status == SHUNT_OK && shunt_sched_chunks(p->schedule) != 1) {
        fprintf(stderr, "shunt-train: the schedule %s needs several model chunks per stage; a stage here is one\n",
                shunt_sched_kind_name(o->schedule));
        exit(2);
    }
    return status;
}

static void *need(struct pipeline *p, size_t n, size_t size)
{
    void *memory = calloc(n, size);

    if (!memory)
        job_fail(p->job, NULL, "out of memory for the pipeline's buffers");
    return memory;
}

struct pipeline *pipeline_create(struct job *job)
{
    const struct options *o = &job->options;
    struct pipeline *p = calloc(1, sizeof(*p));
    size_t n = (size_t)o->micro_batches;

    if (!p)
        job_fail(job, NULL, "out of memory");
    p->job = job;
    p->n = o->micro_batches;
    p->before = job->stage > 0 ? job->rank - o->replicas : -1;
    p->after = job->stage < o->stages - 1 ? job->rank + o->replicas : -1;
    p->floats = model_activations(&o->model);
    job_check(job, make_schedule(p), "making the schedule");
    p->text = need(p, 1, model_text_bytes(&o->model));
    p->in = need(p, n * p->floats, sizeof(float));
    p->out = need(p, n * p->floats, sizeof(float));
    p->grad_out = need(p, n * p->floats, sizeof(float));
    p->grad_in = need(p, n * p->floats, sizeof(float));
    p->receive_in = need(p, n, sizeof(shunt_request_t *));
    p->receive_grad = need(p, n, sizeof(shunt_request_t *));
    p->sends = need(p, 2 * n, sizeof(shunt_request_t *));
    return p;
}

void pipeline_destroy(struct pipeline *p)
{
    if (!p)
        return;
    shunt_sched_destroy(p->schedule);
    shunt_sched_profile_destroy(p->profile);
    free(p->text);
    free(p->in);
    free(p->out);
    free(p->grad_out);
    free(p->grad_in);
    free(p->receive_in);
    free(p->receive_grad);
    free(p->sends);
    free(p);
}

const shunt_sched_t *pipeline_schedule(const struct pipeline *p)
{
    return p->schedule;
}

static void send_to(struct pipeline *p, int peer, const float *buffer, int i, enum direction direction)
{
    if (peer >= 0)
        job_check(p->job,
                  shunt_isend(p->job->world, buffer, p->floats * sizeof(float), peer, tag(i, direction),
                              &p->sends[p->n_sends++]),
                  "sending to a neighbouring stage");
}

static void receive_from(struct pipeline *p, int peer, float *buffer, int i, enum direction direction,
                         shunt_request_t **request)
{
    if (peer >= 0)
        job_check(p->job,
                  shunt_irecv(p->job->world, buffer, p->floats * sizeof(float), peer, tag(i, direction), request),
                  "receiving from a neighbouring stage");
}

static void wait_for(struct pipeline *p, shunt_request_t **request)
{
    uint64_t start = now_ns();

    if (!*request)
        return;
    job_check(p->job, shunt_wait(request, NULL), "receiving from a neighbouring stage");
    p->job->times.wait += (double)(now_ns() - start);
}

/* Makes an operation that began at `start` take as long as an accelerator is said to. */
static void pad(struct job *job, uint64_t start, int units)
{
    uint64_t end = now_ns(), want = start + (uint64_t)(job->options.stage_time * 1e9 * units);

    if (job->options.stage_time > 0 && end > want)
        job->overrun++;
    if (end < want) {
        struct timespec until = {(time_t)(want / 1000000000), (long)(want % 1000000000)};

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            ;
        job->times.padded += (double)(want - end);
    }
    job->times.busy += (double)(now_ns() - start);
}

static void forward(struct pipeline *p, int i)
{
    struct job *job = p->job;
    const struct options *o = &job->options;
    size_t at = (size_t)i * p->floats;
    double loss = 0;
    uint64_t start;

    wait_for(p, &p->receive_in[i]);
    start = now_ns();
    if (p->before < 0 || p->after < 0)
        text_sample(&job->text, o->model.seed, job->step, (uint64_t)job->replica * (uint64_t)p->n + (uint64_t)i,
                    o->model.batch, o->model.context, p->text);
    job_check_model(job, model_forward(job->model, i, p->text, p->in + at, p->out + at, &loss));
    p->loss += loss;
    pad(job, start, 1);
    send_to(p, p->after, p->out + at, i, ACTIVATION);
}

static void backward(struct pipeline *p, int i, bool weights)
{
    struct job *job = p->job;
    size_t at = (size_t)i * p->floats;
    uint64_t start;

    wait_for(p, &p->receive_grad[i]);
    start = now_ns();
    job_check_model(job, (weights ? model_backward : model_backward_input)(job->model, i, p->grad_out + at,
                                                                           p->grad_in + at));
    pad(job, start, weights ? 2 : 1);
    send_to(p, p->before, p->grad_in + at, i, GRADIENT);
}

static void weight_gradient(struct pipeline *p, int i)
{
    uint64_t start = now_ns();

    job_check_model(p->job, model_backward_weight(p->job->model, i));
    pad(p->job, start, 1);
}

double pipeline_step(struct pipeline *p)
{
    struct job *job = p->job;
    int count = shunt_sched_count(p->schedule, job->stage);

    p->loss = 0;
    p->n_sends = 0;
    job_check_model(job, model_step_begin(job->model, p->n));
    buckets_begin(job->buckets);
    for (int i = 0; i < p->n; i++) {
        receive_from(p, p->before, p->in + (size_t)i * p->floats, i, ACTIVATION, &p->receive_in[i]);
        receive_from(p, p->after, p->grad_out + (size_t)i * p->floats, i, GRADIENT, &p->receive_grad[i]);
    }
    for (int k = 0; k < count; k++) {
        shunt_sched_op_t op = shunt_sched_op(p->schedule, job->stage, k);

        switch (op.type) {
        case SHUNT_SCHED_F:
            forward(p, op.microbatch);
            break;
        case SHUNT_SCHED_B:
            backward(p, op.microbatch, true);
            break;
        case SHUNT_SCHED_I:
            backward(p, op.microbatch, false);
            break;
        case SHUNT_SCHED_W:
            weight_gradient(p, op.microbatch);
            break;
        }
    }
    buckets_wait(job->buckets);
    job_check(job, shunt_wait_all(p->sends, p->n_sends, NULL), "sending to a neighbouring stage");
    return p->loss;
}
