/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs: what makes communicators, and what ends one in peace. They block, so several of one group run at once, each in
 * a thread, and those of non-blocking communicators go on when the call has returned.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shim/shim.h"

#define TAG_SHRINK 1 /* operations of the user have tag 0 */

static ncclResult_t run_init(struct shim__job *job)
{
    struct ncclComm *comm = job->comm;
    shunt_comm_t *made = NULL;
    struct shim__seat *seat;
    ncclResult_t result = shim__engine() ? shim__seat_take(&comm->id, &seat) : ncclSystemError;
    shunt_status_t status;
    shunt_id_t id;

    if (result == ncclSuccess) {
        comm->seat = seat;
        memcpy(&id, &comm->id, sizeof(id));
        status = shim__engine()->comm_create_until(shim__seat_context(seat), &id, comm->rank, comm->size,
                                                  &comm->abandoned, &made);
        if (status != SHUNT_OK) {
            char what[64];
            snprintf(what, sizeof(what), "CommInitRank of rank %d of %d", comm->rank, comm->size);
            result = shim__fail_engine(status, what);
        }
    }
    if (!shim__comm_started(comm, NULL, &result, made))
        return result == ncclSuccess ? shim__fail(ncclInternalError, "aborted while it started") : result;
    if (result != ncclSuccess && job->blocking) {
        shim__comm_close(comm, "CommInitRank", 0);
        *job->out = NULL;
    }
    return result;
}

/* A communicator of the engine that came out of another one gets a handle. */
static ncclResult_t adopt(struct shim__job *job, shunt_comm_t *made)
{
    const struct shim__engine *engine = shim__engine();
    struct ncclComm *parent = job->parent, *comm;
    ncclResult_t result = ncclSuccess;

    comm = shim__comm_new(engine->comm_rank(made), engine->comm_size(made), &job->comm->config);
    if (!comm) {
        engine->comm_free(made);
        return ncclSystemError;
    }
    comm->device = parent->device;
    comm->seat = parent->seat;
    shim__seat_hold(comm->seat);
    shim__comm_started(comm, parent, &result, made);
    if (result == ncclSuccess)
        __atomic_store_n(job->out, comm, __ATOMIC_RELEASE);
    else
        shim__comm_close(comm, "making a communicator out of another", 0);
    return result;
}

static ncclResult_t run_split(struct shim__job *job)
{
    const struct shim__engine *engine = shim__engine();
    shunt_comm_t *parent = job->parent->comm, *whole = NULL, *made = NULL;
    shunt_status_t status = SHUNT_OK;
    ncclResult_t result = ncclSuccess;

    /* What was revoked can't carry the exchange of colors: one of the same ranks does. */
    if (engine->comm_error(parent) == SHUNT_ERR_REVOKED) {
        status = engine->comm_shrink(parent, NULL, 0, &whole);
        parent = whole;
    }
    if (status == SHUNT_OK)
        status = engine->comm_split(parent, job->color, job->key, &made);
    if (status != SHUNT_OK)
        result = shim__fail_engine(status, "CommSplit");
    if (whole)
        engine->comm_free(whole);
    return made ? adopt(job, made) : result;
}

/* The survivors of a communicator that is well: the first makes an id and tells the others. The parent stays as it is. */
static shunt_status_t form_again(struct shim__job *job, shunt_comm_t **made)
{
    const struct shim__engine *engine = shim__engine();
    struct ncclComm *parent = job->parent;
    shunt_context_t *ctx = shim__seat_context(parent->seat);
    int first = -1, rank = -1, size = 0;
    shunt_status_t status = SHUNT_OK;
    shunt_id_t id;
    char *out = calloc((size_t)parent->size, 1);

    if (!out)
        return SHUNT_ERR_NO_MEMORY;
    for (int i = 0; i < job->n_exclude; i++)
        out[job->exclude[i]] = 1;
    for (int r = 0; r < parent->size; r++) {
        if (out[r])
            continue;
        if (first < 0)
            first = r;
        if (r == parent->rank)
            rank = size;
        size++;
    }
    if (rank == 0) {
        status = engine->id_create(ctx, &id);
        for (int r = first + 1; r < parent->size && status == SHUNT_OK; r++)
            if (!out[r])
                status = engine->send(parent->comm, &id, sizeof(id), r, TAG_SHRINK);
    } else {
        status = engine->recv(parent->comm, &id, sizeof(id), first, TAG_SHRINK, NULL);
    }
    free(out);
    return status == SHUNT_OK ? engine->comm_create_until(ctx, &id, rank, size, &parent->aborted, made) : status;
}

static ncclResult_t run_shrink(struct shim__job *job)
{
    const struct shim__engine *engine = shim__engine();
    struct ncclComm *parent = job->parent;
    shunt_comm_t *made = NULL;
    shunt_status_t status;

    if (job->flags & NCCL_SHRINK_ABORT || engine->comm_error(parent->comm) == SHUNT_ERR_REVOKED) {
        pthread_mutex_lock(&parent->lock);
        parent->revoked = 1;
        pthread_mutex_unlock(&parent->lock);
        shim__modes_stop(parent);
        status = engine->comm_shrink(parent->comm, job->exclude, job->n_exclude, &made);
    } else {
        status = form_again(job, &made);
    }
    return status == SHUNT_OK ? adopt(job, made) : shim__fail_engine(status, "CommShrink");
}

static ncclResult_t run(struct shim__job *job)
{
    ncclResult_t result = ncclSuccess;

    switch (job->kind) {
    case SHIM_INIT:
        return run_init(job);
    case SHIM_SPLIT:
        result = run_split(job);
        break;
    case SHIM_SHRINK:
        result = run_shrink(job);
        break;
    case SHIM_FINALIZE:
        result = shim__comm_drain(job->parent);
        break;
    }
    if (result != ncclSuccess && job->detached)
        shim__comm_note(job->parent, result == ncclRemoteError ? result : ncclInternalError);
    return result;
}

static void free_job(struct shim__job *job)
{
    if (job->parent) {
        free(job->comm); /* only carries the configuration of the child */
        pthread_mutex_lock(&job->parent->lock);
        job->parent->busy -= job->detached;
        pthread_mutex_unlock(&job->parent->lock);
        shim__comm_leave(job->parent);
    }
    free(job->exclude);
    free(job);
}

static void *thread_main(void *arg)
{
    struct shim__job *job = arg;

    job->result = run(job);
    snprintf(job->text, sizeof(job->text), "%s", job->result != ncclSuccess ? shim__last_text() : "");
    if (job->detached)
        free_job(job);
    return NULL;
}

void shim__job_discard(struct shim__job *job)
{
    if (job->kind == SHIM_INIT) {
        ncclResult_t result = ncclInvalidUsage;
        if (shim__comm_started(job->comm, NULL, &result, NULL))
            shim__comm_close(job->comm, "CommInitRank", 0);
        *job->out = NULL;
    }
    free_job(job);
}

ncclResult_t shim__jobs_run(struct shim__job **jobs, int n)
{
    ncclResult_t last = ncclSuccess;
    int progress = 0;

    if (n == 1 && jobs[0]->blocking) {
        last = run(jobs[0]);
        free_job(jobs[0]);
        return last;
    }
    for (int i = 0; i < n; i++) {
        struct shim__job *job = jobs[i];
        if (!job->blocking) {
            progress = job->detached = 1;
            if (job->parent) {
                pthread_mutex_lock(&job->parent->lock);
                job->parent->busy++;
                pthread_mutex_unlock(&job->parent->lock);
            }
        }
        if (pthread_create(&job->thread, NULL, thread_main, job) != 0) {
            last = shim__fail(ncclSystemError, "no thread for a communicator: the limit on processes is reached");
            shim__job_discard(job);
            jobs[i] = NULL;
        } else if (!job->blocking) {
            pthread_detach(job->thread); /* and it may be gone by now */
            jobs[i] = NULL;
        }
    }
    for (int i = 0; i < n; i++)
        if (jobs[i]) {
            pthread_join(jobs[i]->thread, NULL);
            if (jobs[i]->result != ncclSuccess)
                last = shim__fail(jobs[i]->result, "%s", jobs[i]->text);
            free_job(jobs[i]);
        }
    return last != ncclSuccess ? last : progress ? ncclInProgress : ncclSuccess;
}

/* ---- the calls ---- */

static ncclResult_t submit(struct shim__job *job, struct ncclComm *comm)
{
    struct shim__task task = {.kind = SHIM_JOB, .job = job, .comm = comm};

    return shim__submit(&task);
}

static ncclResult_t init_rank(struct ncclComm **out, int size, const ncclUniqueId *id, int rank, int device,
                              const ncclConfig_t *given, const char *call)
{
    struct shim__job *job;
    struct ncclComm *comm;
    ncclConfig_t config;
    ncclResult_t result;

    if (!out || !id)
        return shim__fail(ncclInvalidArgument, "%s: a pointer is NULL", call);
    *out = NULL;
    if (size < 1 || rank < 0 || rank >= size)
        return shim__fail(ncclInvalidArgument, "%s: rank %d of %d", call, rank, size);
    result = shim__config(given, NULL, &config);
    if (result != ncclSuccess)
        return result;
    job = calloc(1, sizeof(*job));
    comm = job ? shim__comm_new(rank, size, &config) : NULL;
    if (!comm) {
        free(job);
        return shim__fail(ncclSystemError, "%s: no memory", call);
    }
    comm->id = *id;
    comm->device = device;
    job->kind = SHIM_INIT;
    job->comm = comm;
    job->out = out;
    job->blocking = comm->blocking;
    *out = comm;
    return submit(job, NULL);
}

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
    SHIM_FORWARD(CommInitRank, (comm, size, id, rank));
    return shim__called(init_rank(comm, size, &id, rank, 0, NULL, "CommInitRank"));
}
SHIM_EXPORT(CommInitRank);

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    SHIM_FORWARD(CommInitRankConfig, (comm, size, id, rank, config));
    return shim__called(init_rank(comm, size, &id, rank, 0, config, "CommInitRankConfig"));
}
SHIM_EXPORT(CommInitRankConfig);

/* One id is enough here: start-up is a tree already. All ranks take the first. */
ncclResult_t pncclCommInitRankScalable(ncclComm_t *comm, int size, int rank, int n_ids, ncclUniqueId *ids,
                                       ncclConfig_t *config)
{
    SHIM_FORWARD(CommInitRankScalable, (comm, size, rank, n_ids, ids, config));
    if (!ids || n_ids < 1 || n_ids > size)
        return shim__called(shim__fail(ncclInvalidArgument, "CommInitRankScalable: %d ids for %d ranks", n_ids, size));
    return shim__called(init_rank(comm, size, ids, rank, 0, config, "CommInitRankScalable"));
}
SHIM_EXPORT(CommInitRankScalable);

ncclResult_t pncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
    ncclResult_t result = ncclSuccess;
    ncclUniqueId id;

    SHIM_FORWARD(CommInitAll, (comms, n, devices));
    if (!comms || n < 1)
        return shim__called(shim__fail(ncclInvalidArgument, "CommInitAll: %d communicators", n));
    for (int i = 0; devices && i < n; i++)
        for (int k = 0; k <= i; k++)
            if (devices[i] < 0 || (k < i && devices[k] == devices[i]))
                return shim__called(shim__fail(devices[i] < 0 ? ncclInvalidArgument : ncclInvalidUsage,
                                               "CommInitAll: device %d is negative or named twice", devices[i]));
    result = shim__unique_id(&id);
    if (result != ncclSuccess)
        return shim__called(result);
    shim__group_start();
    for (int i = 0; i < n; i++)
        shim__called(init_rank(&comms[i], n, &id, i, devices ? devices[i] : i, NULL, "CommInitAll"));
    return shim__group_end();
}
SHIM_EXPORT(CommInitAll);

/* A job on `comm` that makes another one; both functions below end here. */
static struct shim__job *child_job(struct ncclComm *comm, struct ncclComm **out, const ncclConfig_t *given,
                                   enum shim__job_kind kind, ncclResult_t *result)
{
    struct shim__job *job;
    ncclConfig_t config;

    *result = shim__comm_enter(comm, 0);
    if (*result != ncclSuccess)
        return NULL;
    *result = shim__config(given, &comm->config, &config);
    job = *result == ncclSuccess ? calloc(1, sizeof(*job)) : NULL;
    if (job && !(job->comm = calloc(1, sizeof(*job->comm)))) {
        free(job);
        job = NULL;
    }
    if (!job) {
        if (*result == ncclSuccess)
            *result = shim__fail(ncclSystemError, "no memory for a communicator");
        shim__comm_leave(comm);
        return NULL;
    }
    job->comm->config = config;
    job->kind = kind;
    job->parent = comm;
    job->out = out;
    job->blocking = comm->blocking;
    return job;
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    struct shim__job *job;
    ncclResult_t result;

    SHIM_FORWARD(CommSplit, (comm, color, key, out, config));
    if (!out || color < NCCL_SPLIT_NOCOLOR)
        return shim__called(shim__fail(ncclInvalidArgument, "CommSplit: color %d, or a pointer that is NULL", color));
    *out = NULL;
    job = child_job(comm, out, config, SHIM_SPLIT, &result);
    if (!job)
        return shim__called(result);
    job->color = color;
    job->key = key;
    return shim__called(submit(job, comm));
}
SHIM_EXPORT(CommSplit);

ncclResult_t pncclCommShrink(ncclComm_t comm, int *exclude, int n_exclude, ncclComm_t *out, ncclConfig_t *config,
                             int flags)
{
    struct shim__job *job;
    ncclResult_t result;

    SHIM_FORWARD(CommShrink, (comm, exclude, n_exclude, out, config, flags));
    if (!out || n_exclude < 1 || !exclude || (flags & ~NCCL_SHRINK_ABORT))
        return shim__called(shim__fail(ncclInvalidArgument, "CommShrink: %d ranks to exclude, flags %d", n_exclude,
                                       flags));
    *out = NULL;
    job = child_job(comm, out, config, SHIM_SHRINK, &result);
    if (!job)
        return shim__called(result);
    job->flags = flags;
    job->exclude = malloc((size_t)n_exclude * sizeof(int));
    job->n_exclude = n_exclude;
    for (int i = 0; i < n_exclude && result == ncclSuccess; i++) {
        if (!job->exclude)
            result = shim__fail(ncclSystemError, "no memory for a communicator");
        else if (exclude[i] < 0 || exclude[i] >= comm->size || exclude[i] == comm->rank)
            result = shim__fail(ncclInvalidArgument, "CommShrink: rank %d excludes rank %d of %d", comm->rank, exclude[i],
                                comm->size);
        else
            job->exclude[i] = exclude[i];
    }
    if (result != ncclSuccess) {
        free_job(job);
        return shim__called(result);
    }
    return shim__called(submit(job, comm));
}
SHIM_EXPORT(CommShrink);

ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    struct shim__job *job;
    ncclResult_t result;

    SHIM_FORWARD(CommFinalize, (comm));
    if (!comm)
        return ncclSuccess;
    job = child_job(comm, NULL, NULL, SHIM_FINALIZE, &result);
    if (!job)
        return shim__called(result);
    pthread_mutex_lock(&comm->lock);
    if (comm->revoked)
        result = shim__fail(ncclInvalidUsage, "CommFinalize: the communicator was revoked");
    else if (comm->state == SHIM_FINALIZED)
        result = shim__fail(ncclInvalidArgument, "CommFinalize: the communicator was finalized");
    else
        comm->state = SHIM_FINALIZED;
    pthread_mutex_unlock(&comm->lock);
    if (result != ncclSuccess) {
        free_job(job);
        return shim__called(result);
    }
    return shim__called(submit(job, comm));
}
SHIM_EXPORT(CommFinalize);
