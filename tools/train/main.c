/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt-train: trains a small language model, pipeline x data parallel. */
#include <stdlib.h>
#include <string.h>
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

void job_lost(struct job *job, shunt_status_t status, const char *what, const char *why)
{
    bool lost = status == SHUNT_ERR_PEER || status == SHUNT_ERR_TIMEOUT || status == SHUNT_ERR_REVOKED;

    if (job->recoverable && lost)
        longjmp(job->escape, 1);
    job_fail(job, what, why);
}

void job_check(struct job *job, shunt_status_t status, const char *what)
{
    if (status != SHUNT_OK)
        job_lost(job, status, what, shunt_error_text());
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
    job->replicas = o->replicas;
    job->total = o->total ? o->total : o->micro_batches * o->replicas;
    if (job->total < job->replicas) {
        if (job->rank == 0)
            fprintf(stderr, "shunt-train: %d micro-batches are too few for %d replicas\n", job->total, job->replicas);
        exit(2);
    }
}

static void set_up(struct job *job)
{
    struct options *o = &job->options;
    int *rank_at;

    for (int i = 0; i < o->n_texts; i++)
        job_check_model(job, text_add(&job->text, o->texts[i]));
    if (job->text.n <= model_text_bytes(&o->model) / (size_t)o->model.batch)
        job_fail(job, NULL, "the text is shorter than one sequence; use --text or a smaller --context");
    job_check(job, shunt_context_create(NULL, &job->context), "starting");
    job_check(job, shunt_comm_create_from_env(job->context, &job->world), "joining");
    job->rank = shunt_comm_rank(job->world);
    job->size = shunt_comm_size(job->world);
    lay_out(job);
    job->sums = calloc(REPORT_SUMS + (size_t)tuning_entries(job), sizeof(double));
    rank_at = calloc((size_t)job->size, sizeof(int));
    if (!rank_at || !job->sums)
        job_fail(job, NULL, "out of memory");
    for (int r = 0; r < job->size; r++)
        rank_at[r] = r;
    members_place(job, rank_at);
    free(rank_at);
}

/* The step that was agreed on takes effect. */
static void apply(struct job *job, const double *sums)
{
    uint64_t start = now_ns();

    if (job->active)
        model_update(job->model, job->step, 1.0f / (float)job->total, members_rate(job));
    job->times = (struct times){.busy = (double)(now_ns() - start)}; /* counts in the next one */
    job->overrun = 0;
    report_step(job->report, sums);
    job->step++;
}

static void one_step(struct job *job)
{
    int n = tuning_entries(job);
    double loss = job->active ? pipeline_step(job->pipeline) : 0;

    memset(job->sums, 0, (size_t)(REPORT_SUMS + n) * sizeof(double));
    if (job->active)
        pipeline_measured(job->pipeline, job->sums + REPORT_SUMS);
    report_agree(job->report, loss, job->sums, n);
    if (job->active)
        pipeline_adapt(job->pipeline, job->sums + REPORT_SUMS);
    apply(job, job->sums);
}

static void train(struct job *job)
{
    const struct options *o = &job->options;
    uint64_t first = o->resume ? load_checkpoint(job) : 0;

    job->step = first;
    job->report = report_create(job);
    report_start(job->report, first);
    job->recoverable = job->size > 1;
    if (setjmp(job->escape))
        members_recover(job);
    while (job->step < (uint64_t)o->steps) {
        one_step(job);
        if (o->checkpoint_every && job->step % (uint64_t)o->checkpoint_every == 0 && job->step < (uint64_t)o->steps)
            save_checkpoint(job, job->step);
    }
    job->recoverable = false;
    if (o->checkpoint && job->step > first)
        save_checkpoint(job, job->step);
    if (job->active && job->step > first)
        pipeline_trace(job->pipeline);
    report_end(job->report);
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
    free(job.sums);
    return 0;
}
