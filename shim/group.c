/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups: between GroupStart and the outermost GroupEnd calls of this thread are collected, then all are started, then
 * all are waited for. Several ranks may live in one thread: nothing is waited for before everything has been started,
 * and the engine's helper threads move the ranks that the thread isn't waiting for just now.
 *
 * In host mode an operation is complete when the outermost call returns, with two exceptions. Operations of a
 * non-blocking communicator are complete when ncclCommGetAsyncError says so. And a send of at most 4 MiB that is not
 * in one group with a receive is copied, and complete at once: programs rely on NCCL's stream holding it.
 */
#include <stdlib.h>
#include <string.h>
#include "shim/shim.h"

#define COPY_MAX ((size_t)4 << 20)
#define COPIES_MAX ((size_t)64 << 20) /* of one communicator; beyond, a send waits for earlier ones */

ncclResult_t shim__called(ncclResult_t result)
{
    struct shim__thread *t = shim__thread();

    if (t && t->depth > 0 && result != ncclSuccess && result != ncclInProgress)
        t->error = result;
    return result;
}

void shim__task_free(struct shim__task *task)
{
    if (!task)
        return;
    free(task->copies);
    free(task->pending);
    free(task);
}

struct shim__task *shim__task_copy(const struct shim__task *given)
{
    struct shim__task *task = malloc(sizeof(*task));
    size_t n = given->comm ? (size_t)given->comm->size : 0;

    if (!task)
        return NULL;
    *task = *given;
    task->next = NULL;
    task->copies = NULL;
    task->pending = NULL;
    if (given->kind == SHIM_ALLTOALLV) {
        task->copies = malloc(4 * n * sizeof(size_t));
        if (!task->copies) {
            free(task);
            return NULL;
        }
        for (size_t i = 0; i < 4; i++) {
            memcpy(task->copies + i * n, given->counts[i], n * sizeof(size_t));
            task->counts[i] = task->copies + i * n;
        }
    }
    return task;
}

/* ---- running ---- */

/* Every send to the own rank needs its receive in the same group, or it would wait for ever. */
static ncclResult_t check_self(const struct shim__task *first)
{
    for (const struct shim__task *t = first; t; t = t->next) {
        int sends = 0, receives = 0;
        if (t->kind != SHIM_SEND && t->kind != SHIM_RECV)
            continue;
        for (const struct shim__task *u = first; u; u = u->next)
            if (u->comm == t->comm && t->peer == t->comm->rank && u->peer == t->comm->rank) {
                sends += u->kind == SHIM_SEND;
                receives += u->kind == SHIM_RECV;
            }
        if (sends != receives)
            return shim__fail(ncclInvalidUsage, "rank %d has %d sends to itself and %d receives from itself in one group",
                              t->comm->rank, sends, receives);
    }
    return ncclSuccess;
}

static size_t bytes_of(const struct shim__task *task)
{
    return task->count * shim__engine()->type_size((shunt_type_t)task->type);
}

/* Copies what a send sends, so that its call may return. */
static ncclResult_t copy(struct shim__task *task)
{
    size_t bytes = bytes_of(task);

    if (task->comm->copied + bytes > COPIES_MAX)
        shim__comm_drain(task->comm);
    task->pending = malloc(sizeof(*task->pending) + bytes);
    if (!task->pending)
        return shim__fail(ncclSystemError, "no memory to copy a send of %zu bytes", bytes);
    task->pending->bytes = bytes;
    task->pending->copied = 1;
    if (bytes)
        memcpy(task->pending + 1, task->send, bytes);
    task->send = task->pending + 1;
    return ncclSuccess;
}

static ncclResult_t enter(struct shim__task *task)
{
    ncclResult_t result = shim__comm_enter(task->comm, 0);

    if (result != ncclSuccess)
        return result;
    task->entered = 1;
    if (task->generation != task->comm->generation)
        return shim__fail(ncclInvalidArgument, "a communicator was destroyed while a group was open");
    if (task->comm->revoked)
        return shim__fail(ncclInvalidUsage, "the communicator was revoked; destroy, split or shrink it");
    return ncclSuccess;
}

static ncclResult_t start(struct shim__task *task, int only_sends)
{
    static const char *const names[] = {"AllReduce", "ReduceScatter", "AllGather", "Broadcast", "Reduce", "Gather",
                                        "Scatter", "AlltoAll", "AllToAllv", "Send", "Recv"};
    ncclResult_t result = ncclSuccess;
    shunt_status_t status;

    if (task->count == 0 && task->kind < SHIM_ALLTOALLV)
        return ncclSuccess;
    if (task->kind == SHIM_SEND && only_sends && bytes_of(task) <= COPY_MAX) {
        result = copy(task);
        if (result != ncclSuccess)
            return result;
    } else if (!task->comm->blocking) {
        task->pending = calloc(1, sizeof(*task->pending));
        if (!task->pending)
            return shim__fail(ncclSystemError, "no memory for an operation");
    }
    status = shim__start(task);
    if (status != SHUNT_OK) {
        result = shim__fail_engine(status, names[task->kind]);
        shim__comm_note(task->comm, result);
        return result;
    }
    if (task->pending) {
        task->pending->request = task->request;
        task->request = NULL;
        result = task->pending->copied ? ncclSuccess : ncclInProgress;
        shim__comm_keep(task->comm, task->pending);
        task->pending = NULL;
    }
    return result;
}

static ncclResult_t finish(struct shim__task *task)
{
    shunt_result_t how;
    shunt_status_t status = shim__engine()->wait(&task->request, &how);
    ncclResult_t result = shim__result_of(status);

    if (status == SHUNT_OK)
        return ncclSuccess;
    if (task->comm->aborted)
        return shim__fail(ncclInternalError, "aborted by this rank: %s", how.text);
    if (task->comm->revoked)
        return shim__fail(ncclInvalidUsage, "revoked by this rank: %s", how.text);
    shim__fail(result, "%s", how.text);
    shim__comm_note(task->comm, result);
    return result;
}

/* Host mode: all are started, then all are waited for. */
static ncclResult_t run_here(struct shim__task *first)
{
    ncclResult_t last = ncclSuccess, result;
    int only_sends = 1;

    for (struct shim__task *t = first; t; t = t->next) {
        const void *pointers[] = {t->send, t->recv};
        if (t->taken)
            continue;
        only_sends &= t->kind == SHIM_SEND && t->peer != t->comm->rank;
        result = shim__cuda_check(pointers, 2, t->stream);
        if (result != ncclSuccess)
            return result;
    }
    for (struct shim__task *t = first; t; t = t->next) {
        result = t->taken ? ncclSuccess : start(t, only_sends);
        if (result != ncclSuccess && (result != ncclInProgress || last == ncclSuccess))
            last = result;
    }
    /* Sends last: by then most have ended. */
    for (int sends = 0; sends < 2; sends++)
        for (struct shim__task *t = first; t; t = t->next)
            if (t->request && (t->kind == SHIM_SEND) == sends) {
                result = finish(t);
                if (result != ncclSuccess)
                    last = result;
            }
    return last;
}

/* Runs the operations of the list; the last error wins, ncclInProgress only if there is none. */
static ncclResult_t run(struct shim__task *first)
{
    ncclResult_t last = check_self(first), result;

    for (struct shim__task *t = first; t && last == ncclSuccess; t = t->next)
        last = enter(t);
    if (last == ncclSuccess) {
        last = shim__modes_start(first);
        result = run_here(first);
        if (result != ncclSuccess && (result != ncclInProgress || last == ncclSuccess))
            last = result;
    }
    for (struct shim__task *t = first; t; t = t->next)
        if (t->entered)
            shim__comm_leave(t->comm);
    return last;
}

static ncclResult_t run_jobs(struct shim__task *first, int n)
{
    struct shim__job **jobs = calloc((size_t)n, sizeof(*jobs));
    ncclResult_t result;
    int i = 0;

    for (struct shim__task *t = first; t; t = t->next)
        if (t->kind == SHIM_JOB && jobs)
            jobs[i++] = t->job;
        else if (t->kind == SHIM_JOB)
            shim__job_discard(t->job);
    result = jobs ? shim__jobs_run(jobs, n) : shim__fail(ncclSystemError, "no memory for a group");
    free(jobs);
    return result;
}

/* ---- collecting ---- */

static ncclResult_t collect(struct shim__thread *thread, const struct shim__task *given)
{
    struct shim__task *task = shim__task_copy(given);

    if (!task) {
        if (given->kind == SHIM_JOB)
            shim__job_discard(given->job);
        return shim__fail(ncclSystemError, "no memory for a group");
    }
    *thread->end = task;
    thread->end = &task->next;
    return ncclSuccess;
}

ncclResult_t shim__submit(struct shim__task *task)
{
    struct shim__thread *thread = shim__thread();

    if (!thread)
        return ncclSystemError;
    if (thread->depth > 0)
        return collect(thread, task);
    return task->kind == SHIM_JOB ? shim__jobs_run(&task->job, 1) : run(task);
}

ncclResult_t shim__group_start(void)
{
    struct shim__thread *thread = shim__thread();

    if (!thread)
        return ncclSystemError;
    thread->depth++;
    return ncclSuccess;
}

/* Ends a level; the tasks and the error of the outermost one are handed over, and the state is clean. */
static ncclResult_t end_level(struct shim__task **tasks, ncclResult_t *error)
{
    struct shim__thread *thread = shim__thread();

    *tasks = NULL;
    *error = ncclSuccess;
    if (!thread || thread->depth == 0)
        return shim__fail(ncclInvalidUsage, "GroupEnd without its GroupStart");
    if (--thread->depth > 0)
        return ncclSuccess;
    *tasks = thread->first;
    *error = thread->error;
    thread->first = NULL;
    thread->end = &thread->first;
    thread->error = ncclSuccess;
    return ncclSuccess;
}

static void discard(struct shim__task *tasks, int jobs_too)
{
    struct shim__task *next;

    for (; tasks; tasks = next) {
        next = tasks->next;
        if (jobs_too && tasks->kind == SHIM_JOB)
            shim__job_discard(tasks->job);
        shim__task_free(tasks);
    }
}

ncclResult_t shim__group_end(void)
{
    struct shim__task *tasks, *operations = NULL, **end = &operations, *jobs = NULL, **jobs_end = &jobs;
    ncclResult_t error, result = end_level(&tasks, &error), last = ncclSuccess;
    int n_jobs = 0;

    if (result != ncclSuccess)
        return result;
    if (error != ncclSuccess) {
        discard(tasks, 1);
        return error;
    }
    while (tasks) {
        struct shim__task *t = tasks;
        tasks = t->next;
        t->next = NULL;
        if (t->kind == SHIM_JOB) {
            *jobs_end = t;
            jobs_end = &t->next;
            n_jobs++;
        } else {
            *end = t;
            end = &t->next;
        }
    }
    if (jobs) {
        last = run_jobs(jobs, n_jobs);
        discard(jobs, 0);
    }
    if (operations) {
        result = last == ncclSuccess || last == ncclInProgress ? run(operations) : last;
        discard(operations, 0);
        if (result != ncclSuccess)
            last = result;
    }
    return last;
}

ncclResult_t pncclGroupStart(void)
{
    SHIM_FORWARD(GroupStart, ());
    return shim__group_start();
}
SHIM_EXPORT(GroupStart);

ncclResult_t pncclGroupEnd(void)
{
    SHIM_FORWARD(GroupEnd, ());
    return shim__group_end();
}
SHIM_EXPORT(GroupEnd);

/* The group is dropped. How long it would have taken isn't known beforehand, and is left unset. */
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    struct shim__task *tasks;
    ncclResult_t error, result;

    SHIM_FORWARD(GroupSimulateEnd, (info));
    if (info && (info->magic != SHIM_SIM_MAGIC || info->size < sizeof(*info)))
        return shim__fail(ncclInvalidArgument, "GroupSimulateEnd: the struct is not initialised");
    result = end_level(&tasks, &error);
    discard(tasks, 1);
    if (info)
        info->estimatedTime = -1.0f;
    return result != ncclSuccess ? result : error;
}
SHIM_EXPORT(GroupSimulateEnd);
