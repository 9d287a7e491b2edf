/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators: from the call that makes one to the call that destroys it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "shim/shim.h"

#define MAGIC 0x73686e63636f6d6dull

static pthread_mutex_t unused_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *unused;

/* ---- configuration ---- */

ncclResult_t shim__config(const ncclConfig_t *given, const ncclConfig_t *base, ncclConfig_t *config)
{
    const char *blocking = shim__setting("NCCL_COMM_BLOCKING");
    ncclConfig_t c = {
        .size = sizeof(c), .magic = SHIM_CONFIG_MAGIC, .version = SHIM_VERSION,
        .blocking = NCCL_CONFIG_UNDEF_INT, .cgaClusterSize = NCCL_CONFIG_UNDEF_INT, .minCTAs = NCCL_CONFIG_UNDEF_INT,
        .maxCTAs = NCCL_CONFIG_UNDEF_INT, .splitShare = NCCL_CONFIG_UNDEF_INT, .trafficClass = NCCL_CONFIG_UNDEF_INT,
        .collnetEnable = NCCL_CONFIG_UNDEF_INT, .CTAPolicy = NCCL_CONFIG_UNDEF_INT,
        .shrinkShare = NCCL_CONFIG_UNDEF_INT, .nvlsCTAs = NCCL_CONFIG_UNDEF_INT,
        .nChannelsPerNetPeer = NCCL_CONFIG_UNDEF_INT, .nvlinkCentricSched = NCCL_CONFIG_UNDEF_INT};
    const int *numbers[] = {&c.blocking, &c.splitShare, &c.shrinkShare, &c.collnetEnable};

    if (!given && base)
        c = *base;
    if (given) {
        if (given->magic != SHIM_CONFIG_MAGIC || given->size < 24)
            return shim__fail(ncclInvalidArgument, "the configuration is not initialised: magic %#x, size %zu",
                              given->magic, given->size);
        memcpy(&c, given, given->size < sizeof(c) ? given->size : sizeof(c));
        c.size = sizeof(c);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (*numbers[i] != NCCL_CONFIG_UNDEF_INT && *numbers[i] != 0 && *numbers[i] != 1)
            return shim__fail(ncclInvalidArgument, "the configuration has a switch that is %d, neither 0 nor 1",
                              *numbers[i]);
    if ((c.cgaClusterSize != NCCL_CONFIG_UNDEF_INT && (c.cgaClusterSize < 0 || c.cgaClusterSize > 8)) ||
        (c.minCTAs != NCCL_CONFIG_UNDEF_INT && c.minCTAs <= 0) || (c.maxCTAs != NCCL_CONFIG_UNDEF_INT && c.maxCTAs <= 0) ||
        (c.minCTAs != NCCL_CONFIG_UNDEF_INT && c.maxCTAs != NCCL_CONFIG_UNDEF_INT && c.minCTAs > c.maxCTAs))
        return shim__fail(ncclInvalidArgument, "the configuration has cgaClusterSize %d, minCTAs %d, maxCTAs %d",
                          c.cgaClusterSize, c.minCTAs, c.maxCTAs);
    if (blocking && (!strcmp(blocking, "0") || !strcmp(blocking, "1")))
        c.blocking = atoi(blocking);
    *config = c;
    return ncclSuccess;
}

/* ---- life ---- */

struct ncclComm *shim__comm_new(int rank, int size, const ncclConfig_t *config)
{
    struct ncclComm *comm;

    pthread_mutex_lock(&unused_lock);
    comm = unused;
    if (comm)
        unused = comm->next;
    pthread_mutex_unlock(&unused_lock);
    if (!comm) {
        comm = calloc(1, sizeof(*comm));
        if (!comm) {
            shim__fail(ncclSystemError, "no memory for a communicator");
            return NULL;
        }
        pthread_mutex_init(&comm->lock, NULL);
        pthread_cond_init(&comm->changed, NULL);
        comm->magic = MAGIC;
        comm->pending_end = &comm->pending;
    }
    pthread_mutex_lock(&comm->lock);
    comm->generation++;
    comm->state = SHIM_STARTING;
    comm->rank = rank;
    comm->size = size;
    comm->device = 0;
    comm->config = *config;
    comm->blocking = config->blocking != 0;
    comm->failed = ncclSuccess;
    comm->why[0] = '\0';
    comm->users = comm->busy = comm->abandoned = comm->revoked = comm->aborted = 0;
    memset(&comm->id, 0, sizeof(comm->id));
    comm->seat = NULL;
    comm->comm = NULL;
    pthread_mutex_unlock(&comm->lock);
    return comm;
}

/* Nobody is inside any more: gives everything back. */
static void recycle(struct ncclComm *comm)
{
    shim__comm_drain(comm);
    shim__modes_gone(comm);
    if (comm->comm)
        shim__engine()->comm_free(comm->comm);
    if (comm->seat)
        shim__seat_release(comm->seat, &comm->id);
    free(comm->premuls);
    pthread_mutex_lock(&comm->lock);
    comm->premuls = NULL;
    comm->n_premuls = 0;
    comm->comm = NULL;
    comm->seat = NULL;
    comm->generation++;
    comm->state = SHIM_UNUSED;
    pthread_mutex_unlock(&comm->lock);
    pthread_mutex_lock(&unused_lock);
    comm->next = unused;
    unused = comm;
    pthread_mutex_unlock(&unused_lock);
}

ncclResult_t shim__comm_enter(struct ncclComm *comm, int how)
{
    const char *what = NULL;
    enum shim__state state;

    if (!comm || comm->magic != MAGIC) {
        if (!(how & SHIM_QUIET))
            shim__fail(ncclInvalidArgument, comm ? "the communicator %p is none of this library's"
                                                 : "the communicator is NULL", (void *)comm);
        return ncclInvalidArgument;
    }
    pthread_mutex_lock(&comm->lock);
    state = comm->state;
    if (state == SHIM_UNUSED || state == SHIM_CLOSING)
        what = "it was destroyed or aborted";
    else if (state != SHIM_READY && !(how & SHIM_ANY))
        what = state == SHIM_STARTING ? "it is not ready; ask ncclCommGetAsyncError until it says ncclSuccess"
               : state == SHIM_FINALIZED ? "it was finalized" : "it could not be made";
    else
        comm->users++;
    pthread_mutex_unlock(&comm->lock);
    if (what && !(how & SHIM_QUIET))
        shim__fail(ncclInvalidArgument, "the communicator can't be used: %s", what);
    return what ? ncclInvalidArgument : ncclSuccess;
}

void shim__comm_leave(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->users--;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

void shim__comm_note(struct ncclComm *comm, ncclResult_t result)
{
    if (result != ncclRemoteError && result != ncclInternalError && result != ncclSystemError)
        return;
    pthread_mutex_lock(&comm->lock);
    if (comm->failed == ncclSuccess && !comm->revoked && !comm->aborted) {
        comm->failed = result;
        memcpy(comm->why, shim__last_text(), SHIM_TEXT);
    }
    pthread_mutex_unlock(&comm->lock);
}

int shim__comm_started(struct ncclComm *comm, struct ncclComm *parent, ncclResult_t *how, shunt_comm_t *made)
{
    ncclResult_t result = *how;
    int abandoned;

    pthread_mutex_lock(&comm->lock);
    comm->comm = made;
    if (made) {
        comm->rank = shim__engine()->comm_rank(made);
        comm->size = shim__engine()->comm_size(made);
    }
    pthread_mutex_unlock(&comm->lock);
    if (made && result == ncclSuccess)
        *how = result = shim__modes_made(comm, parent);
    pthread_mutex_lock(&comm->lock);
    comm->state = result == ncclSuccess ? SHIM_READY : SHIM_FAILED;
    if (result != ncclSuccess) {
        comm->failed = result;
        memcpy(comm->why, shim__last_text(), SHIM_TEXT);
    }
    abandoned = comm->abandoned;
    if (abandoned)
        comm->state = SHIM_CLOSING;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    if (abandoned) {
        shim__modes_stop(comm);
        if (made)
            shim__engine()->comm_abort(made, "aborted while it started");
        recycle(comm);
    }
    return !abandoned;
}

/* ---- operations that outlive their call ---- */

void shim__comm_keep(struct ncclComm *comm, struct shim__pending *pending)
{
    pending->next = NULL;
    pthread_mutex_lock(&comm->lock);
    *comm->pending_end = pending;
    comm->pending_end = &pending->next;
    comm->copied += pending->bytes;
    pthread_mutex_unlock(&comm->lock);
}

static struct shim__pending *take_first(struct ncclComm *comm)
{
    struct shim__pending *p;

    pthread_mutex_lock(&comm->lock);
    p = comm->pending;
    if (p) {
        comm->pending = p->next;
        if (!comm->pending)
            comm->pending_end = &comm->pending;
        comm->copied -= p->bytes;
    }
    pthread_mutex_unlock(&comm->lock);
    return p;
}

static ncclResult_t ended(struct ncclComm *comm, shunt_status_t status, const shunt_result_t *how)
{
    ncclResult_t result = shim__result_of(status);

    if (status != SHUNT_OK) {
        shim__fail(result, "%s", how->text);
        shim__comm_note(comm, result);
    }
    return result;
}

ncclResult_t shim__comm_drain(struct ncclComm *comm)
{
    ncclResult_t last = ncclSuccess, result;
    struct shim__pending *p;
    shunt_result_t how;

    last = shim__modes_drain(comm);
    while ((p = take_first(comm))) {
        result = ended(comm, shim__engine()->wait(&p->request, &how), &how);
        if (result != ncclSuccess)
            last = result;
        free(p);
    }
    return last;
}

/* Lets go of those that have ended; whether any is left that the caller asks for. */
static int reap(struct ncclComm *comm)
{
    struct shim__pending *p, *list, *kept = NULL, **kept_end = &kept;
    int waited_for = 0;
    shunt_result_t how;
    shunt_status_t status;

    /* Taken away while they are looked at: a request may be waited for by one thread at a time. */
    pthread_mutex_lock(&comm->lock);
    list = comm->pending;
    comm->pending = NULL;
    comm->pending_end = &comm->pending;
    pthread_mutex_unlock(&comm->lock);
    if (!list)
        return 0;
    while ((p = list)) {
        list = p->next;
        status = shim__engine()->test(&p->request, &how);
        if (status == SHUNT_IN_PROGRESS) {
            waited_for |= !p->copied;
            p->next = NULL;
            *kept_end = p;
            kept_end = &p->next;
            continue;
        }
        ended(comm, status, &how);
        pthread_mutex_lock(&comm->lock);
        comm->copied -= p->bytes;
        pthread_mutex_unlock(&comm->lock);
        free(p);
    }
    pthread_mutex_lock(&comm->lock);
    *kept_end = comm->pending;
    comm->pending = kept;
    for (comm->pending_end = &comm->pending; *comm->pending_end; comm->pending_end = &(*comm->pending_end)->next)
        ;
    pthread_mutex_unlock(&comm->lock);
    return waited_for;
}

/* ---- the end ---- */

/* Marks it as closing and waits until other threads have left, at most `seconds` if that isn't negative. */
static int all_left(struct ncclComm *comm, double seconds)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&comm->lock);
    while (comm->users > 0 && rc != ETIMEDOUT)
        rc = seconds < 0 ? pthread_cond_wait(&comm->changed, &comm->lock)
                         : pthread_cond_timedwait(&comm->changed, &comm->lock, &until);
    rc = comm->users == 0;
    pthread_mutex_unlock(&comm->lock);
    return rc;
}

static void *close_later(void *arg)
{
    all_left(arg, -1);
    recycle(arg);
    return NULL;
}

ncclResult_t shim__comm_close(struct ncclComm *comm, const char *call, int abort)
{
    const char *what = NULL;
    pthread_t thread;

    if (!comm)
        return ncclSuccess;
    if (comm->magic != MAGIC)
        return shim__fail(ncclInvalidArgument, "%s: the communicator %p is none of this library's", call, (void *)comm);
    pthread_mutex_lock(&comm->lock);
    if (comm->state == SHIM_UNUSED || comm->state == SHIM_CLOSING || comm->abandoned) {
        what = "it was destroyed or aborted already";
    } else if (comm->state == SHIM_STARTING) {
        comm->abandoned = 1; /* the thread that makes it frees it */
        pthread_mutex_unlock(&comm->lock);
        return ncclSuccess;
    } else {
        comm->state = SHIM_CLOSING;
        comm->aborted = abort;
    }
    pthread_mutex_unlock(&comm->lock);
    if (what)
        return shim__fail(ncclInvalidArgument, "%s: %s", call, what);
    if (abort && comm->comm) {
        char reason[64];
        snprintf(reason, sizeof(reason), "rank %d called ncclCommAbort", comm->rank);
        shim__modes_stop(comm);
        shim__engine()->comm_abort(comm->comm, reason);
    }
    if (all_left(comm, abort ? 0.5 : -1))
        recycle(comm);
    else if (pthread_create(&thread, NULL, close_later, comm) == 0)
        pthread_detach(thread);
    return ncclSuccess;
}

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    SHIM_FORWARD(CommDestroy, (comm));
    return shim__comm_close(comm, "CommDestroy", 0);
}
SHIM_EXPORT(CommDestroy);

ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    SHIM_FORWARD(CommAbort, (comm));
    return shim__comm_close(comm, "CommAbort", 1);
}
SHIM_EXPORT(CommAbort);

ncclResult_t pncclCommRevoke(ncclComm_t comm, int flags)
{
    ncclResult_t result;

    SHIM_FORWARD(CommRevoke, (comm, flags));
    if (!comm)
        return ncclSuccess;
    if (flags != 0)
        return shim__fail(ncclInvalidArgument, "CommRevoke: flags %d, not 0", flags);
    result = shim__comm_enter(comm, 0);
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    comm->revoked = 1;
    pthread_mutex_unlock(&comm->lock);
    shim__modes_stop(comm);
    shim__engine()->comm_revoke(comm->comm);
    shim__comm_drain(comm);
    shim__comm_leave(comm);
    return ncclSuccess;
}
SHIM_EXPORT(CommRevoke);

/* ---- questions ---- */

/* What the engine knows about it. A rank that has destroyed it and ended is no error. */
static void look(struct ncclComm *comm)
{
    shunt_status_t status = shim__engine()->comm_error(comm->comm);

    if (status != SHUNT_OK)
        shim__comm_note(comm, shim__fail_engine(status, "the communicator ended"));
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    ncclResult_t result;
    enum shim__state state;
    int waited_for, busy;

    SHIM_FORWARD(CommGetAsyncError, (comm, error));
    if (!error)
        return shim__fail(ncclInvalidArgument, "CommGetAsyncError: the pointer is NULL");
    result = shim__comm_enter(comm, SHIM_ANY);
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    state = comm->state;
    busy = comm->busy;
    pthread_mutex_unlock(&comm->lock);
    if (state == SHIM_STARTING) {
        *error = ncclInProgress;
    } else {
        waited_for = state == SHIM_FAILED ? 0 : reap(comm);
        result = state == SHIM_FAILED ? ncclSuccess : shim__modes_poll(comm);
        waited_for |= result == ncclInProgress;
        shim__comm_note(comm, result);
        pthread_mutex_lock(&comm->lock);
        result = comm->failed;
        pthread_mutex_unlock(&comm->lock);
        if (result == ncclSuccess && state == SHIM_READY && !comm->revoked)
            look(comm);
        *error = comm->failed != ncclSuccess ? comm->failed : busy || waited_for ? ncclInProgress : ncclSuccess;
    }
    shim__comm_leave(comm);
    return ncclSuccess;
}
SHIM_EXPORT(CommGetAsyncError);

static ncclResult_t ask(struct ncclComm *comm, int *value, const char *call, size_t member)
{
    ncclResult_t result;

    if (!value)
        return shim__fail(ncclInvalidArgument, "%s: the pointer is NULL", call);
    result = shim__comm_enter(comm, 0);
    if (result != ncclSuccess)
        return result;
    memcpy(value, (char *)comm + member, sizeof(*value));
    shim__comm_leave(comm);
    return ncclSuccess;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    SHIM_FORWARD(CommCount, (comm, count));
    return ask(comm, count, "CommCount", offsetof(struct ncclComm, size));
}
SHIM_EXPORT(CommCount);

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    SHIM_FORWARD(CommUserRank, (comm, rank));
    return ask(comm, rank, "CommUserRank", offsetof(struct ncclComm, rank));
}
SHIM_EXPORT(CommUserRank);

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    SHIM_FORWARD(CommCuDevice, (comm, device));
    return ask(comm, device, "CommCuDevice", offsetof(struct ncclComm, device));
}
SHIM_EXPORT(CommCuDevice);
