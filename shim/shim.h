/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shim.h - what the files of libnccl.so.2 share.
 *
 *     abi.h, *.def   the interface of NCCL, in our own words
 *     engine.c       opens libshunt.so at the first call, privately
 *     conf.c         NCCL's configuration files
 *     real.c         SHUNT_NCCL=off: finds another NCCL and hands every call to it
 *     error.c        result codes, the last error's text, what each thread remembers
 *     seat.c         contexts: one for each rank of a communicator in this process
 *     comm.c         communicators: their life
 *     job.c          init, split, shrink, finalize: what blocks, and may run in a thread of its own
 *     group.c        groups of operations and jobs; host mode
 *     mode.c         other modes than host mode: the table of them
 *     op.c           collectives, send and receive
 *     memory.c       MemAlloc, registration, windows
 *     cuda.c         pointers and streams, if this process has a CUDA driver
 *     device.c, later.c   the device API, and what came after 2.28.9
 *
 * Nothing here runs before the first NCCL call, and no NCCL function is called from inside.
 */
#ifndef SHUNT_SHIM_SHIM_H
#define SHUNT_SHIM_SHIM_H

#include <pthread.h>
#include <shunt/coll.h>
#include <shunt/comm.h>
#include <shunt/p2p.h>
#include "shim/abi.h"

/* ---- engine.c ---- */

#define SHIM_ENGINE(X) \
    X(context_create) X(id_create) X(comm_create_until) X(comm_split) X(comm_free) X(comm_abort) X(comm_revoke) \
    X(comm_shrink) X(comm_rank) X(comm_size) X(comm_error) X(error_text) \
    X(status_name) X(type_size) X(isend) X(irecv) X(send) X(recv) X(test) X(wait) X(iallreduce) X(ireduce_scatter) \
    X(iallgather) X(ibroadcast) X(ireduce) X(igather) X(iscatter) X(ialltoall) X(ialltoallv) \
    X(op_create_premul_sum) X(op_destroy)

struct shim__engine {
#define SHIM_MEMBER(name) __typeof__(shunt_##name) *name;
    SHIM_ENGINE(SHIM_MEMBER)
#undef SHIM_MEMBER
};

/* The engine, opened if this is the first call; NULL, with the error's text set, when that failed. */
const struct shim__engine *shim__engine(void);

/* ---- conf.c ---- */

/* Brings NCCL's configuration files into the environment, once. */
void shim__conf(void);
/* An NCCL setting: from the environment, else from the files; NULL when unset. */
const char *shim__setting(const char *name);

/* ---- real.c ---- */

struct shim__real {
#define NCCL(type, name, arguments) type(*name) arguments;
#include "shim/functions.def"
#include "shim/functions-device.def"
#include "shim/functions-later.def"
#undef NCCL
};

/* With SHUNT_NCCL=off the functions of the NCCL that was found (members may be NULL), else NULL. */
const struct shim__real *shim__real(void);
/* Nonzero with SHUNT_NCCL=off. */
int shim__off(void);

/* First in each exported function: with SHUNT_NCCL=off the call goes to the other library. */
#define SHIM_FORWARD(name, arguments) \
    do { \
        const struct shim__real *real_ = shim__real(); \
        if (real_ && real_->name) \
            return real_->name arguments; \
    } while (0)

/* ---- error.c ---- */

#define SHIM_TEXT 1024

struct shim__task;

/* What one thread remembers: its group and its last error. */
struct shim__thread {
    int depth;
    ncclResult_t error; /* of the group; the last one wins */
    struct shim__task *first, **end;
    char text[SHIM_TEXT];
    char shown[SHIM_TEXT]; /* what GetLastError gave out */
};

/* This thread's; NULL without memory. */
struct shim__thread *shim__thread(void);
/* Sets the text of the last error, returns `result`. */
ncclResult_t shim__fail(ncclResult_t result, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for a function of the engine that failed on this thread just now. */
ncclResult_t shim__fail_engine(shunt_status_t status, const char *what);
ncclResult_t shim__result_of(shunt_status_t status);
/* The last error of this thread, or of the process. */
const char *shim__last_text(void);

/* ---- seat.c ---- */

/* A context that ranks of this process sit on: never two ranks of one communicator. */
struct shim__seat;

/* One that no rank of the communicator `id` uses. Released by shim__seat_release(). */
ncclResult_t shim__seat_take(const ncclUniqueId *id, struct shim__seat **seat);
void shim__seat_hold(struct shim__seat *seat);
void shim__seat_release(struct shim__seat *seat, const ncclUniqueId *id);
/* The same seat for one more communicator. INVALID_USAGE if a rank of `id` uses it already. */
ncclResult_t shim__seat_claim(struct shim__seat *seat, const ncclUniqueId *id);
shunt_context_t *shim__seat_context(struct shim__seat *seat);
ncclResult_t shim__unique_id(ncclUniqueId *id);

/* ---- comm.c ---- */

enum shim__state {
    SHIM_UNUSED = 0,
    SHIM_STARTING, /* a job makes it */
    SHIM_READY,
    SHIM_FINALIZED,
    SHIM_FAILED,   /* could not be made; to be destroyed */
    SHIM_CLOSING   /* destroyed or aborted, while calls are leaving */
};

/* Operations whose call has returned: those of non-blocking communicators, and sends that were copied. */
struct shim__pending {
    struct shim__pending *next;
    shunt_request_t *request;
    size_t bytes; /* of the copy behind this struct */
    int copied;   /* the caller does not ask for its end */
};

struct shim__premul {
    int used;
    ncclDataType_t type;
    ncclScalarResidence_t residence;
    void *pointer;
    unsigned char value[8];
};

/*
 * The structs are recycled, never given back to the system, so that a handle that was freed is recognised: its
 * generation has moved on.
 */
struct ncclComm {
    uint64_t magic;
    struct ncclComm *next; /* in the list of unused ones */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned generation;
    enum shim__state state;
    int users;     /* threads inside a call */
    int busy;      /* jobs of a non-blocking communicator */
    int abandoned; /* destroyed while it was starting: the making of it stops */
    int revoked, aborted;
    struct shim__seat *seat;
    ncclUniqueId id; /* zero for a child */
    shunt_comm_t *comm;
    int rank, size, device, blocking;
    ncclConfig_t config;
    ncclResult_t failed; /* its asynchronous error */
    char why[SHIM_TEXT];
    struct shim__pending *pending, **pending_end;
    size_t copied;
    struct shim__premul *premuls;
    int n_premuls;
    void *of_mode[2]; /* what a mode remembers of it, by the mode's slot */
};

/* A fresh one in state STARTING. NULL without memory. */
struct ncclComm *shim__comm_new(int rank, int size, const ncclConfig_t *config);
/* A call begins: the communicator must be READY; with SHIM_ANY it may be in any state but UNUSED and CLOSING. */
#define SHIM_ANY 1
#define SHIM_QUIET 2 /* leave the last error's text as it is */
ncclResult_t shim__comm_enter(struct ncclComm *comm, int how);
void shim__comm_leave(struct ncclComm *comm);
/* The job that made it is done: `result` and, if it succeeded, the engine's communicator. The modes may still refuse,
 * and change the result. Zero: it was destroyed meanwhile, and is gone. */
int shim__comm_started(struct ncclComm *comm, struct ncclComm *parent, ncclResult_t *result, shunt_comm_t *made);
/* Notes an error of the engine that damages more than one operation. */
void shim__comm_note(struct ncclComm *comm, ncclResult_t result);
/* Keeps a request whose call returns before it has ended. `pending` becomes the communicator's. */
void shim__comm_keep(struct ncclComm *comm, struct shim__pending *pending);
/* Waits for those. */
ncclResult_t shim__comm_drain(struct ncclComm *comm);
/* Reads the caller's configuration over `base`'s (may be NULL). */
ncclResult_t shim__config(const ncclConfig_t *given, const ncclConfig_t *base, ncclConfig_t *config);

/* Destroys or aborts; NULL is allowed. `call` for the error's text. */
ncclResult_t shim__comm_close(struct ncclComm *comm, const char *call, int abort);

/* ---- group.c ---- */

enum shim__kind {
    SHIM_ALLREDUCE, SHIM_REDUCE_SCATTER, SHIM_ALLGATHER, SHIM_BROADCAST, SHIM_REDUCE, SHIM_GATHER, SHIM_SCATTER,
    SHIM_ALLTOALL, SHIM_ALLTOALLV, SHIM_SEND, SHIM_RECV, SHIM_JOB
};

struct shim__job;

struct shim__task {
    struct shim__task *next;
    enum shim__kind kind;
    struct ncclComm *comm;
    unsigned generation;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
    cudaStream_t stream;
    int premul; /* the operator is this one */
    struct shim__premul scalar;
    const size_t *counts[4]; /* alltoallv: send counts and displacements, receive counts and displacements */
    size_t *copies;          /* of these, if the call is in a group */
    struct shim__job *job;
    shunt_request_t *request;
    struct shim__pending *pending;
    int entered;
    int taken; /* a mode does it: not for host mode */
};

/* Puts a checked task into the thread's group, or runs it. The task is copied. */
ncclResult_t shim__submit(struct shim__task *task);
ncclResult_t shim__group_start(void);
ncclResult_t shim__group_end(void);
/* In a group, an error of a call is the group's. Returns `result`. */
ncclResult_t shim__called(ncclResult_t result);

/* A copy that outlives the call, and its end. NULL without memory. */
struct shim__task *shim__task_copy(const struct shim__task *task);
void shim__task_free(struct shim__task *task);

/* ---- mode.c ---- */

/*
 * Who carries out operations. Host mode (group.c) does what no mode of the table takes. Members may be NULL. The
 * functions may be called by several threads at once.
 */
struct shim__mode {
    const char *name;
    int slot; /* its place in ncclComm.of_mode */
    /* A communicator was made and the engine's works; on all ranks, before it is given to the caller, in the thread of
     * the job. An error fails the call that makes it. `parent` is NULL unless it comes out of a split or shrink. */
    ncclResult_t (*made)(struct ncclComm *comm, struct ncclComm *parent);
    /* The checked operations of an outermost group (one without a group), in the order of their calls, their
     * communicators entered: begins those it wants and sets `taken`, before anything else is done about the others.
     * The tasks are the caller's: copied if needed after the return. What it returns counts like an error of one of
     * the operations; ncclInProgress for those of a non-blocking communicator that go on. */
    ncclResult_t (*start)(struct shim__task *tasks);
    /* From GetAsyncError: moves things on; ncclInProgress while the caller has to wait, or the error. */
    ncclResult_t (*poll)(struct ncclComm *comm);
    /* From Finalize and Destroy: waits until all it has begun on the communicator has ended. */
    ncclResult_t (*drain)(struct ncclComm *comm);
    /* From Abort, Revoke and SHRINK_ABORT, before the engine is told: all it has begun ends soon, and it doesn't wait
     * for that. */
    void (*stop)(struct ncclComm *comm);
    /* The last: nobody is inside, the engine's communicator is still there; frees its slot. */
    void (*gone)(struct ncclComm *comm);
};

ncclResult_t shim__modes_made(struct ncclComm *comm, struct ncclComm *parent);
ncclResult_t shim__modes_start(struct shim__task *tasks);
ncclResult_t shim__modes_poll(struct ncclComm *comm);
ncclResult_t shim__modes_drain(struct ncclComm *comm);
void shim__modes_stop(struct ncclComm *comm);
void shim__modes_gone(struct ncclComm *comm);

/* ---- op.c ---- */

/* Starts the task; its request is set. */
shunt_status_t shim__start(struct shim__task *task);

/* ---- job.c ---- */

enum shim__job_kind { SHIM_INIT, SHIM_SPLIT, SHIM_SHRINK, SHIM_FINALIZE };

struct shim__job {
    enum shim__job_kind kind;
    struct ncclComm *comm;   /* what it makes; or what it finalizes */
    struct ncclComm *parent; /* entered until the job is done */
    struct ncclComm **out;
    int color, key, flags;
    int *exclude, n_exclude;
    int blocking, detached;
    ncclResult_t result;
    char text[SHIM_TEXT];
    pthread_t thread;
};

/* Runs all: blocking ones are waited for, the others go on in a thread. Frees them. */
ncclResult_t shim__jobs_run(struct shim__job **jobs, int n);
/* Undoes what the call of a job has done; for a group that fails. Frees it. */
void shim__job_discard(struct shim__job *job);

/* ---- cuda.c ---- */

/* Refuses device memory; waits for the stream's earlier work. Without a CUDA driver in this process: nothing. */
ncclResult_t shim__cuda_check(const void *const *pointers, int n, cudaStream_t stream);

#endif
