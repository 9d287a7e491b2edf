/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt-train: trains a small language model, pipeline x data parallel. */
#include <math.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include "tools/train/job.h"

uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void job_fail(struct job *job, const char *what, const char *why)
{
    fprintf(stderr, "shunt-train: rank %d, step %llu: %s%s%s\n", job->rank, (unsigned long long)job->step + 1,
            what ? what : "", what ? ": " : "", why);
    if (job->world)
        shunt_comm_abort(job->world, why);
    exit(1);
}

void job_check(struct job *job, shunt_status_t status, const char *what)
{
    if (status != SHUNT_OK)
        job_fail(job, what, shunt_error_text());
}

void job_check_model(struct job *job, int status)
{
    if (status != 0)
        job_fail(job, NULL, model_error());
}

/* Stages and replicas must make up the ranks. */
static void lay_out(struct job *job)
{
    struct options *o = &job->options;

    if (o->replicas == 0 && job->size % o->stages == 0)
        o->replicas = job->size / o->stages;
    if (o->replicas * o->stages != job->size) {
        if (job->rank == 0)
            fprintf(stderr, "shunt-train: %d ranks can't be %d stages x %d replicas\n", job->size, o->stages,
                    o->replicas ? o->replicas : job->size / o->stages);
        exit(2);
    }
    if (o->stages > o->model.blocks) {
        if (job->rank == 0)
            fprintf(stderr, "shunt-train: %d blocks can't fill %d stages; use --blocks\n", o->model.blocks, o->stages);
        exit(2);
    }
    job->stage = job->rank / o->replicas;
    job->replica = job->rank % o->replicas;
}

static void set_up(struct job *job)
{
    struct options *o = &job->options;
    int first, next;

    for (int i = 0; i < o->n_texts; i++)
        job_check_model(job, text_add(&job->text, o->texts[i]));
    if (job->text.n <= model_text_bytes(&o->model) / (size_t)o->model.batch)
        job_fail(job, NULL, "the text is shorter than one sequence; use --text or a smaller --context");
    job_check(job, shunt_context_create(NULL, &job->context), "starting");
    job_check(job, shunt_comm_create_from_env(job->context, &job->world), "joining");
    job->rank = shunt_comm_rank(job->world);
    job->size = shunt_comm_size(job->world);
    lay_out(job);
    job_check(job, shunt_comm_split(job->world, job->stage, job->replica, &job->group), "splitting");
    job_check(job, shunt_comm_split(job->world, job->replica, job->stage, &job->pipe), "splitting");
    first = o->model.blocks * job->stage / o->stages;
    next = o->model.blocks * (job->stage + 1) / o->stages;
    job_check_model(job, model_stage_create(&o->model, first, next - first, job->stage == 0, job->stage == o->stages - 1,
                                            &job->model));
    job->pipeline = pipeline_create(job);
    job->buckets = buckets_create(job);
}

static void train(struct job *job)
{
    const struct options *o = &job->options;
    struct report *report = report_create(job);
    uint64_t first = o->resume ? load_checkpoint(job) : 0;

    report_start(report, first);
    for (job->step = first; job->step < (uint64_t)o->steps; job->step++) {
        float rate = (float)o->learning_rate * fminf(1.0f, (float)(job->step + 1) / 20);
        uint64_t start;
        double loss;

        job->times = (struct times){0};
        job->overrun = 0;
        loss = pipeline_step(job->pipeline);
        start = now_ns();
        model_update(job->model, job->step, 1.0f / (float)(o->replicas * o->micro_batches), rate);
        job->times.busy += (double)(now_ns() - start);
        report_step(report, loss);
        if (o->checkpoint_every && (job->step + 1) % (uint64_t)o->checkpoint_every == 0 &&
            job->step + 1 < (uint64_t)o->steps)
            save_checkpoint(job, job->step + 1);
    }
    if (o->checkpoint && job->step > first)
        save_checkpoint(job, job->step);
    report_end(report);
}

int main(int argc, char **argv)
{
    struct job job = {0};

    options_parse(&job.options, argc, argv);
    prctl(PR_SET_TIMERSLACK, 1); /* stated times end when they should, not 50 us later */
    set_up(&job);
    train(&job);
    buckets_destroy(job.buckets);
    pipeline_destroy(job.pipeline);
    model_stage_destroy(job.model);
    text_free(&job.text);
    shunt_comm_free(job.pipe);
    shunt_comm_free(job.group);
    shunt_comm_free(job.world);
    shunt_context_destroy(job.context);
    free((void *)job.options.texts);
    return 0;
}
