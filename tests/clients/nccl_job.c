/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A training job written against nccl.h and nothing else of what carries its bytes: pipeline x data parallel, each stage's
 * forward passes before its backward passes, gradients summed in buckets by grouped all-reduces.
 *
 *     nccl_job STAGES MICRO_BATCHES STEPS BATCH WIDTH LOSSES
 *
 * Started with RANK, WORLD_SIZE and JOB_ID_FILE, a file through which rank 0 hands out the unique id. Rank 0 writes a line
 * per step to LOSSES, as shunt-train's --json has them, and the losses are the same to the last bit.
 */
#include <inttypes.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/train/model.h"
#include "tools/train/text.h"

#define BUCKET ((size_t)(256 << 10) / sizeof(float))
#define SUMS 5 /* the loss and what shunt-train adds up beside it: the same message, so the same order of additions */

struct job {
    struct model_config config;
    int rank, size, stage, stages, replica, replicas, micro_batches, steps;
    ncclComm_t world, group;
    model_stage_t *model;
    struct text text;
    float *in, *out; /* of each micro-batch */
    uint8_t *piece;
};

static void nccl(ncclResult_t result, ncclComm_t comm, const char *what)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "nccl_job: %s: %s: %s\n", what, ncclGetErrorString(result), ncclGetLastError(comm));
    exit(1);
}

static void model(int status)
{
    if (status == 0)
        return;
    fprintf(stderr, "nccl_job: %s\n", model_error());
    exit(1);
}

static int number(const char *name)
{
    const char *value = getenv(name);

    if (!value) {
        fprintf(stderr, "nccl_job: %s is not set\n", name);
        exit(2);
    }
    return atoi(value);
}

static void exchange_id(struct job *job, ncclUniqueId *id)
{
    const char *path = getenv("JOB_ID_FILE");
    char temporary[4096];
    FILE *f = NULL;

    if (!path)
        exit((fprintf(stderr, "nccl_job: JOB_ID_FILE is not set\n"), 2));
    if (job->rank == 0) {
        nccl(ncclGetUniqueId(id), NULL, "ncclGetUniqueId");
        snprintf(temporary, sizeof(temporary), "%s.new", path);
        f = fopen(temporary, "w");
        if (!f || fwrite(id, sizeof(*id), 1, f) != 1 || fclose(f) != 0 || rename(temporary, path) != 0) {
            perror(path);
            exit(1);
        }
        return;
    }
    for (int i = 0; i < 6000 && !(f = fopen(path, "r")); i++)
        usleep(10000);
    if (!f || fread(id, sizeof(*id), 1, f) != 1) {
        perror(path);
        exit(1);
    }
    fclose(f);
}

static void set_up(struct job *job)
{
    struct model_config *c = &job->config;
    int first, next;
    ncclUniqueId id;

    job->rank = number("RANK");
    job->size = number("WORLD_SIZE");
    if (job->stages < 1 || job->size % job->stages != 0) {
        fprintf(stderr, "nccl_job: %d ranks are no %d stages\n", job->size, job->stages);
        exit(2);
    }
    job->replicas = job->size / job->stages;
    job->stage = job->rank / job->replicas;
    job->replica = job->rank % job->replicas;
    exchange_id(job, &id);
    nccl(ncclCommInitRank(&job->world, job->size, id, job->rank), NULL, "ncclCommInitRank");
    nccl(ncclCommSplit(job->world, job->stage, job->replica, &job->group, NULL), job->world, "ncclCommSplit");
    model(text_add(&job->text, TEXT_DEFAULT));
    model(model_config_check(c));
    first = c->blocks * job->stage / job->stages;
    next = c->blocks * (job->stage + 1) / job->stages;
    model(model_stage_create(c, first, next - first, job->stage == 0, job->stage == job->stages - 1, &job->model));
    job->in = calloc((size_t)job->micro_batches * model_activations(c), sizeof(float));
    job->out = calloc(model_activations(c), sizeof(float));
    job->piece = malloc(model_text_bytes(c));
    if (!job->in || !job->out || !job->piece)
        model(model_fail("out of memory"));
}

/* One step; the sum of this stage's losses. */
static double pass(struct job *job, uint64_t step)
{
    const struct model_config *c = &job->config;
    size_t n = model_activations(c);
    int before = job->rank - job->replicas, after = job->rank + job->replicas;
    bool first = job->stage == 0, last = job->stage == job->stages - 1;
    double loss, sum = 0;

    model(model_step_begin(job->model, job->micro_batches));
    for (int i = 0; i < job->micro_batches; i++) {
        float *in = job->in + (size_t)i * n;
        if (!first)
            nccl(ncclRecv(in, n, ncclFloat32, before, job->world, NULL), job->world, "receiving an activation");
        if (first || last)
            text_sample(&job->text, c->seed, step, (uint64_t)(job->replica * job->micro_batches + i), c->batch,
                        c->context, job->piece);
        loss = 0;
        model(model_forward(job->model, i, job->piece, in, job->out, &loss));
        sum += last ? loss : 0;
        if (!last)
            nccl(ncclSend(job->out, n, ncclFloat32, after, job->world, NULL), job->world, "sending an activation");
    }
    for (int i = 0; i < job->micro_batches; i++) {
        if (!last)
            nccl(ncclRecv(job->in, n, ncclFloat32, after, job->world, NULL), job->world, "receiving a gradient");
        model(model_backward(job->model, i, job->in, job->out));
        if (!first)
            nccl(ncclSend(job->out, n, ncclFloat32, before, job->world, NULL), job->world, "sending a gradient");
    }
    return sum;
}

static void sum_gradients(struct job *job)
{
    float *gradients = model_gradients(job->model);
    size_t count = model_count(job->model);

    nccl(ncclGroupStart(), NULL, "ncclGroupStart");
    for (size_t at = 0; at < count; at += BUCKET) {
        size_t n = count - at < BUCKET ? count - at : BUCKET;
        nccl(ncclAllReduce(gradients + at, gradients + at, n, ncclFloat32, ncclSum, job->group, NULL), job->group,
             "summing gradients");
    }
    nccl(ncclGroupEnd(), job->group, "summing gradients");
}

static void train(struct job *job, FILE *losses)
{
    int total = job->micro_batches * job->replicas;

    for (int step = 0; step < job->steps; step++) {
        float ramp = (float)(step + 1) / 20;
        double sums[SUMS] = {pass(job, (uint64_t)step)};
        ncclResult_t error;

        if (job->replicas > 1)
            sum_gradients(job);
        nccl(ncclAllReduce(sums, sums, SUMS, ncclFloat64, ncclSum, job->world, NULL), job->world, "adding up the losses");
        nccl(ncclCommGetAsyncError(job->world, &error), job->world, "ncclCommGetAsyncError");
        nccl(error, job->world, "the communicator");
        model_update(job->model, (uint64_t)step, 1.0f / (float)total, 0.004f * (ramp < 1 ? ramp : 1));
        if (losses) {
            fprintf(losses, "\"step\": %d, \"loss\": %.17g\n", step + 1, sums[0] / total);
            fflush(losses);
        }
    }
}

int main(int argc, char **argv)
{
    struct job job = {.config = {.context = 32, .heads = 4, .blocks = 4, .seed = 1}};
    FILE *losses = NULL;

    if (argc != 7) {
        fprintf(stderr, "usage: nccl_job STAGES MICRO_BATCHES STEPS BATCH WIDTH LOSSES\n");
        return 2;
    }
    job.stages = atoi(argv[1]);
    job.micro_batches = atoi(argv[2]);
    job.steps = atoi(argv[3]);
    job.config.batch = atoi(argv[4]);
    job.config.width = atoi(argv[5]);
    set_up(&job);
    if (job.rank == 0 && !(losses = fopen(argv[6], "w"))) {
        perror(argv[6]);
        return 1;
    }
    train(&job, losses);
    if (losses && fclose(losses) != 0) {
        perror(argv[6]);
        return 1;
    }
    nccl(ncclCommFinalize(job.world), job.world, "ncclCommFinalize");
    nccl(ncclCommDestroy(job.group), NULL, "ncclCommDestroy");
    nccl(ncclCommDestroy(job.world), NULL, "ncclCommDestroy");
    model_stage_destroy(job.model);
    text_free(&job.text);
    free(job.in);
    free(job.out);
    free(job.piece);
    return 0;
}
