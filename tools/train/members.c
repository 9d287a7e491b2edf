/* SPDX-License-Identifier: BSD-3-Clause */
/* Places of ranks in the pipelines, at the start and after the loss of some. */
#include <stdlib.h>
#include <string.h>
#include "tools/train/job.h"

/* What each survivor tells the others. */
struct member {
    int32_t rank; /* before */
    int32_t stage, replica;
    int32_t current; /* its stage's state is that of `step` */
    int64_t step;
    double sums[REPORT_SUMS]; /* of the step it finished last */
};

static void *need(struct job *job, size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);

    if (!memory)
        job_fail(job, NULL, "out of memory");
    return memory;
}

float members_rate(const struct job *job)
{
    float ramp = (float)(job->step + 1) / 20;

    return (float)job->options.learning_rate * (ramp < 1 ? ramp : 1);
}

static void make_model(struct job *job, int stage)
{
    const struct options *o = &job->options;
    int first = o->model.blocks * stage / o->stages, next = o->model.blocks * (stage + 1) / o->stages;

    job_check_model(job, model_stage_create(&o->model, first, next - first, stage == 0, stage == o->stages - 1,
                                            &job->model));
}

void members_place(struct job *job, const int *rank_at)
{
    int stages = job->options.stages, share = job->total / job->replicas, rest = job->total % job->replicas;

    job->active = false;
    job->before = job->after = -1;
    for (int i = 0; i < stages * job->replicas; i++) {
        if (rank_at[i] != job->rank)
            continue;
        job->active = true;
        job->stage = i / job->replicas;
        job->replica = i % job->replicas;
        job->before = job->stage > 0 ? rank_at[i - job->replicas] : -1;
        job->after = job->stage < stages - 1 ? rank_at[i + job->replicas] : -1;
    }
    job_check(job,
              shunt_comm_split(job->world, job->active ? job->stage : SHUNT_NO_COLOR, job->replica, &job->group),
              "splitting");
    job_check(job,
              shunt_comm_split(job->world, job->active ? job->replica : SHUNT_NO_COLOR, job->stage, &job->pipe),
              "splitting");
    if (!job->active)
        return;
    job->count = share + (job->replica < rest);
    job->first = job->replica * share + (job->replica < rest ? job->replica : rest);
    if (!job->model)
        make_model(job, job->stage);
    job->pipeline = pipeline_create(job);
    job->buckets = buckets_create(job);
}

/* ---- after a loss ---- */

/* Frees everybody who waits for this rank on the old communicators, and everything that was built on them. */
static void leave(struct job *job)
{
    shunt_comm_revoke(job->world);
    if (job->group)
        shunt_comm_revoke(job->group);
    if (job->pipe)
        shunt_comm_revoke(job->pipe);
    pipeline_destroy(job->pipeline);
    buckets_destroy(job->buckets);
    job->pipeline = NULL;
    job->buckets = NULL;
    if (job->model)
        model_step_abandon(job->model);
    shunt_comm_free(job->group);
    shunt_comm_free(job->pipe);
    job->group = job->pipe = NULL;
}

static void shrink(struct job *job)
{
    shunt_comm_t *old = job->world, *smaller;

    job_check(job, shunt_comm_shrink(old, NULL, 0, &smaller), "agreeing on who is left");
    job->world = smaller;
    job->rank = shunt_comm_rank(smaller);
    job->size = shunt_comm_size(smaller);
    shunt_comm_free(old);
}

/*
 * A rank that has applied a step got it agreed on, so every survivor's sum of gradients for it is complete: who has not
 * applied it does so now.
 */
static void catch_up(struct job *job, const struct member *members, bool current)
{
    const struct member *ahead = &members[0];

    for (int r = 1; r < job->size; r++)
        if (members[r].step > ahead->step)
            ahead = &members[r];
    if (ahead->step == (int64_t)job->step)
        return;
    if (current)
        model_update(job->model, job->step, 1.0f / (float)job->total, members_rate(job));
    report_step(job->report, ahead->sums);
    job->step = (uint64_t)ahead->step;
}

static bool whole(const struct job *job, const struct member *members, int replica)
{
    int n = 0;

    for (int r = 0; r < job->size; r++)
        n += members[r].current && members[r].replica == replica;
    return n == job->options.stages;
}

/* Fills the places: first with ranks that hold the stage, those of whole pipelines before others, so that as few as
 * possible move; then with whoever is free. taken[rank] is set for all that get a place. */
static void fill(struct job *job, const struct member *members, int *rank_at, bool *taken)
{
    int stages = job->options.stages;

    for (int s = 0; s < stages; s++) {
        int n = 0;

        for (int pass = 0; pass < 2; pass++)
            for (int r = 0; r < job->size && n < job->replicas; r++)
                if (members[r].current && members[r].stage == s && !taken[r] &&
                    (pass == 1 || whole(job, members, members[r].replica))) {
                    rank_at[s * job->replicas + n++] = r;
                    taken[r] = true;
                }
        while (n < job->replicas)
            rank_at[s * job->replicas + n++] = -1;
    }
    for (int i = 0, r = 0; i < stages * job->replicas; i++) {
        if (rank_at[i] >= 0)
            continue;
        while (taken[r])
            r++;
        rank_at[i] = r;
        taken[r] = true;
    }
}

static int holder(const struct job *job, const struct member *members, int stage)
{
    for (int r = 0; r < job->size; r++)
        if (members[r].current && members[r].stage == stage)
            return r;
    return -1;
}

enum { STATE_TAG = 1 << 24 };

static void send_state(struct job *job, int to)
{
    float *parts[3] = {model_parameters(job->model), model_moment(job->model, 1), model_moment(job->model, 2)};

    for (int k = 0; k < 3; k++)
        job_check(job, shunt_send(job->world, parts[k], model_count(job->model) * sizeof(float), to, STATE_TAG + k),
                  "handing over a stage");
}

static void receive_state(struct job *job, int stage, int from)
{
    float *parts[3];

    job->active = false; /* until it is complete, should another rank be lost meanwhile */
    model_stage_destroy(job->model);
    job->model = NULL;
    make_model(job, stage);
    parts[0] = model_parameters(job->model);
    parts[1] = model_moment(job->model, 1);
    parts[2] = model_moment(job->model, 2);
    for (int k = 0; k < 3; k++)
        job_check(job,
                  shunt_recv(job->world, parts[k], model_count(job->model) * sizeof(float), from, STATE_TAG + k, NULL),
                  "taking over a stage");
}

static void hand_over(struct job *job, const struct member *members, const int *rank_at)
{
    for (int i = 0; i < job->options.stages * job->replicas; i++) {
        int stage = i / job->replicas, to = rank_at[i], from = holder(job, members, stage);

        if (members[to].current && members[to].stage == stage)
            continue;
        if (from == job->rank)
            send_state(job, to);
        if (to == job->rank)
            receive_state(job, stage, from);
    }
}

static void announce(const struct job *job, const struct member *members, int old_size, int old_replicas)
{
    if (job->rank != 0)
        return;
    printf("step %llu: lost rank", (unsigned long long)job->step + 1);
    for (int old = 0; old < old_size; old++) {
        bool alive = false;

        for (int r = 0; r < job->size; r++)
            alive |= members[r].rank == old;
        if (!alive)
            printf(" %d", old);
    }
    printf("; going on with %d of %d replicas on %d ranks, %d spare, still %d micro-batches a step\n", job->replicas,
           old_replicas, job->size, job->size - job->replicas * job->options.stages, job->total);
    fflush(stdout);
}

void members_recover(struct job *job)
{
    struct member me = {.rank = job->rank, .stage = job->stage, .replica = job->replica, .current = job->active,
                        .step = (int64_t)job->step};
    int old_size = job->size, old_replicas = job->replicas, stages = job->options.stages;
    struct member *members;
    int *rank_at;
    bool *taken;

    leave(job);
    shrink(job);
    report_last(job->report, me.sums);
    members = need(job, (size_t)job->size, sizeof(*members));
    job_check(job, shunt_allgather(job->world, &me, members, sizeof(me), SHUNT_UINT8), "meeting again");
    catch_up(job, members, me.current);
    job->replicas = job->size / stages < job->options.replicas ? job->size / stages : job->options.replicas;
    for (int s = 0; s < stages; s++)
        if (job->replicas == 0 || holder(job, members, s) < 0)
            job_fail(job, NULL, "too few ranks are left, or none of some stage; start again with --resume");
    rank_at = need(job, (size_t)(stages * job->replicas), sizeof(int));
    taken = need(job, (size_t)job->size, sizeof(bool));
    fill(job, members, rank_at, taken);
    hand_over(job, members, rank_at);
    announce(job, members, old_size, old_replicas);
    members_place(job, rank_at);
    free(members);
    free(rank_at);
    free(taken);
}
