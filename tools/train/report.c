/* SPDX-License-Identifier: BSD-3-Clause */
/* What rank 0 prints: a line every few steps, all steps in a JSON file, and a summary. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tools/train/job.h"

struct report {
    struct job *job;
    FILE *json;
    uint64_t first, began, step_began;
    double tokens;                     /* of a step */
    double bigram, recent, n_recent;   /* losses since the last line */
    double last_loss, time, busy, padded, reduce; /* sums over the run, nanoseconds; busy over all ranks */
    double overrun;
    long steps;
    double last[REPORT_SUMS];
    double line_time, line_busy;
    long line_steps;
};

struct report *report_create(struct job *job)
{
    struct report *r = calloc(1, sizeof(*r));
    const struct options *o = &job->options;

    if (!r)
        job_fail(job, NULL, "out of memory");
    r->job = job;
    r->tokens = (double)job->total * o->model.batch * o->model.context;
    r->bigram = text_bigram_loss(&job->text, 0.01);
    if (job->rank == 0 && o->json && !(r->json = fopen(o->json, "we")))
        job_fail(job, o->json, strerror(errno));
    return r;
}

static void describe(const struct report *r)
{
    const struct options *o = &r->job->options;
    size_t parameters = 0;

    for (int s = 0; s < o->stages; s++) {
        model_stage_t *stage;
        int first = o->model.blocks * s / o->stages, next = o->model.blocks * (s + 1) / o->stages;

        if (model_stage_create(&o->model, first, next - first, s == 0, s == o->stages - 1, &stage) == 0) {
            parameters += model_count(stage);
            model_stage_destroy(stage);
        }
    }
    printf("%d ranks on %d host%s: %d stage%s x %d replica%s, %d micro-batches a step, schedule %s%s\n", r->job->size,
           shunt_comm_hosts(r->job->world), shunt_comm_hosts(r->job->world) == 1 ? "" : "s", o->stages,
           o->stages == 1 ? "" : "s", o->replicas, o->replicas == 1 ? "" : "s", r->job->total,
           shunt_sched_kind_name(o->schedule), o->adapt && o->stages > 1 ? ", adapting" : "");
    printf("%zu parameters in %d blocks; %zu bytes of text, whose bigram loss is %.4f\n", parameters, o->model.blocks,
           r->job->text.n, r->bigram);
    if (o->stage_time > 0)
        printf("stages are padded to %g ms for a forward, an input gradient and a weight gradient each\n",
               o->stage_time * 1e3);
    fflush(stdout);
}

void report_start(struct report *r, uint64_t first_step)
{
    const struct options *o = &r->job->options;

    r->first = first_step;
    r->began = r->step_began = now_ns();
    if (r->job->rank != 0)
        return;
    describe(r);
    if (first_step)
        printf("resuming after step %" PRIu64 "\n", first_step);
    if (r->json)
        fprintf(r->json,
                "{\"stages\": %d, \"replicas\": %d, \"micro_batches\": %d, \"schedule\": \"%s\", \"stage_time_ms\": %.17g, "
                "\"bigram_loss\": %.17g,\n \"steps\": [",
                o->stages, o->replicas, r->job->total, shunt_sched_kind_name(o->schedule), o->stage_time * 1e3,
                r->bigram);
}

static void line(struct report *r, uint64_t steps_done)
{
    printf("step %" PRIu64 "  loss %.4f  tokens/s %.0f  iteration %.1f ms  bubble %.1f %%\n", steps_done,
           r->recent / r->n_recent, r->tokens * (double)r->line_steps / r->line_time * 1e9,
           r->line_time / (double)r->line_steps / 1e6, 100 * (1 - r->line_busy / r->line_time / r->job->size));
    fflush(stdout);
    r->recent = r->n_recent = r->line_time = r->line_busy = 0;
    r->line_steps = 0;
}

void report_agree(struct report *r, double loss_sum, double *sums, int n)
{
    struct job *job = r->job;

    sums[0] = loss_sum;
    sums[1] = job->times.busy;
    sums[2] = job->times.padded;
    sums[3] = job->times.reduce;
    sums[4] = job->overrun;
    job_check(job, shunt_allreduce(job->world, sums, sums, (size_t)(REPORT_SUMS + n), SHUNT_FLOAT64, SHUNT_SUM),
              "adding up the losses");
}

void report_last(const struct report *r, double *sums)
{
    memcpy(sums, r->last, sizeof(r->last));
}

void report_step(struct report *r, const double *sums)
{
    struct job *job = r->job;
    const struct options *o = &job->options;
    uint64_t now = now_ns();
    double loss, took;

    took = (double)(now - r->step_began);
    r->step_began = now;
    loss = sums[0] / job->total;
    memcpy(r->last, sums, sizeof(r->last));
    r->last_loss = loss;
    r->time += took;
    r->busy += sums[1];
    r->padded += sums[2];
    r->reduce += sums[3];
    r->overrun += sums[4];
    r->steps++;
    r->recent += loss;
    r->n_recent++;
    r->line_time += took;
    r->line_busy += sums[1];
    r->line_steps++;
    if (!isfinite(loss))
        job_fail(job, NULL, "the loss is no longer a number; try a smaller --learning-rate");
    if (job->rank != 0)
        return;
    if (r->json) {
        fprintf(r->json, "%s\n  {\"step\": %" PRIu64 ", \"loss\": %.17g, \"time_ms\": %.6f, \"bubble\": %.6f}",
                r->steps > 1 ? "," : "", job->step + 1, loss, took / 1e6, 1 - sums[1] / took / job->size);
        fflush(r->json); /* for those who watch it grow */
    }
    if ((job->step + 1) % (uint64_t)o->log_every == 0)
        line(r, job->step + 1);
}

void report_end(struct report *r)
{
    struct job *job = r->job;
    double peak = job->active ? model_peak_live(job->model) : 0, steps = (double)r->steps;

    job_check(job, shunt_allreduce(job->world, &peak, &peak, 1, SHUNT_FLOAT64, SHUNT_MAX), "the summary");
    if (job->rank == 0 && r->steps > 0) {
        if (r->line_steps)
            line(r, job->step);
        printf("done: %ld steps in %.1f s, loss %.4f (bigram %.4f), %.0f tokens/s, iteration %.1f ms, bubble %.1f %%, "
               "at most %.0f live micro-batches on a stage\n",
               r->steps, r->time / 1e9, r->last_loss, r->bigram, r->tokens * steps / r->time * 1e9,
               r->time / steps / 1e6, 100 * (1 - r->busy / r->time / job->size), peak);
        if (job->options.adapt && job->options.stages > 1)
            printf("%d changes of plan\n", job->plan_changes);
        if (job->options.stage_time > 0)
            printf("%.1f %% of the busy time was padding; %.0f operations took longer than they should\n",
                   100 * r->padded / r->busy, r->overrun);
    }
    if (r->json) {
        fprintf(r->json,
                "\n ],\n \"loss\": %.17g, \"tokens_per_second\": %.17g, \"iteration_ms\": %.17g, \"bubble\": %.17g, "
                "\"peak_live\": %.0f, \"overrun\": %.0f, \"plan_changes\": %d}\n",
                r->last_loss, steps > 0 ? r->tokens * steps / r->time * 1e9 : 0, steps > 0 ? r->time / steps / 1e6 : 0,
                steps > 0 ? 1 - r->busy / r->time / job->size : 0, peak, r->overrun, job->plan_changes);
        if (fclose(r->json) != 0)
            job_fail(job, job->options.json, strerror(errno));
    }
    free(r);
}
