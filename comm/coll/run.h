/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A run: one collective on its way. Posts the messages of a schedule as they become ready and does its additions and
 * copies from inside the messages' done(). Everything under the engine's lock.
 *
 * Messages carry two tags per collective, made of its number: the first message to a peer has the even one, the rest
 * the odd one; in each the order of posting is the order of matching. So any number of collectives of a communicator
 * may be under way and never mix.
 *
 * When something fails the run posts no more, takes back the receives that are not matched, tells those who wait for
 * its messages (hello.h), and ends when nothing of it is left in the engine. What others still send to it is received into
 * nothing by a drain, which outlives the run.
 */
#ifndef SHUNT_COLL_RUN_H
#define SHUNT_COLL_RUN_H

#include "comm/coll/hello.h"
#include "comm/coll/schedule.h"
#include "comm/core/op.h"

/* What carries the messages: the engine, or a test's simulator. The functions are those of comm/core/op.h. */
struct shunt__carrier {
    void (*send)(struct shunt__op *op, struct shunt_comm *comm, enum shunt__channel channel, const void *buf,
                 size_t bytes, int peer, int tag, void (*done)(struct shunt__op *));
    void (*recv)(struct shunt__op *op, struct shunt_comm *comm, enum shunt__channel channel, void *buf, size_t bytes,
                 int peer, int tag, void (*done)(struct shunt__op *));
    int (*cancel)(struct shunt__op *op, shunt_status_t status);
    void (*describe)(const struct shunt__op *op, char *text, size_t len);
};

#define SHUNT__WHY 400

struct shunt__run;

/* Collectives whose arguments are remembered. */
#define SHUNT__PAST 64

/* What the runs of a communicator share: memory of those that ended, kept for the next ones, and drains. */
struct shunt__run_pool {
    int refs; /* the owner, and each run and drain */
    int closed;
    const struct shunt__carrier *carrier;
    struct shunt__run *free;
    size_t bytes;
    struct shunt__list runs; /* that have not finished */
    struct shunt__list drains;
    int n_drains;
    /* inquire.c */
    struct shunt__listener *listeners; /* one per rank, once something has stalled */
    int n_listeners, n_listening;
    int failed;              /* a run gave up since the last tick: others may want to know */
    uint64_t listen_until;
    struct shunt_comm *comm;
    int rank, size;
    struct shunt__coll_hello past[SHUNT__PAST]; /* what the latest collectives were, by number */
};

struct shunt__run_pool *shunt__run_pool_new(const struct shunt__carrier *carrier);
/* Remembers a call that needs no messages, in case other ranks think it does. */
void shunt__run_pool_note(struct shunt__run_pool *pool, const struct shunt__call *call, uint64_t number);
/* Now and then, `now` in nanoseconds: asks after collectives that do not get on. */
void shunt__run_pool_tick(struct shunt__run_pool *pool, uint64_t now);
/* Takes the drains back; the pool goes when its last run has ended. NULL is allowed. */
void shunt__run_pool_close(struct shunt__run_pool *pool);

struct shunt__run_params {
    struct shunt__run_pool *pool;
    struct shunt_comm *comm;
    struct shunt__schedule *schedule; /* a reference is taken */
    const struct shunt__call *call;   /* copied, but for host_of */
    uint64_t number;
    const void *in;
    void *out;
    /* Called once, when the buffers are the caller's again; possibly from inside shunt__run_start(). */
    void (*finish)(void *arg, shunt_status_t status, const char *why);
    void *arg;
};

/* SHUNT_OK, or NO_MEMORY with nothing started. */
shunt_status_t shunt__run_start(const struct shunt__run_params *params);

/* ---- between run.c, giveup.c and inquire.c ---- */

enum shunt__step_state { SHUNT__WAITING, SHUNT__READY, SHUNT__POSTED, SHUNT__DONE };

struct shunt__run_message {
    struct shunt__op op;
    struct shunt__run *run;
    uint32_t step;
};

struct shunt__run_lane {
    int32_t head;   /* next step to be posted, -1 */
    uint32_t posted; /* sends in the engine */
};

struct shunt__run {
    struct shunt__run *next; /* in the pool's free ones */
    struct shunt__list node; /* in the pool's runs */
    size_t capacity;         /* bytes of the whole block */
    struct shunt__run_params p;
    struct shunt__call call;
    shunt_op_t op;           /* what the kernels are told */
    char *space[3];
    char *slots;
    const void **pointers;
    struct shunt__run_message *messages;
    struct shunt__run_lane *lanes;
    uint32_t *needs, *queue, *lazy; /* queue: steps to be looked at; lazy: copies that nothing waits for */
    uint32_t queue_head, queue_tail, lazy_head, lazy_tail;
    uint8_t *state;
    uint32_t left;           /* steps that are not done */
    uint32_t attached;       /* messages in the engine that use the caller's or the run's working memory */
    uint32_t posted;         /* all messages in the engine */
    shunt_status_t status;
    uint8_t finished;
    uint32_t seen_left;      /* inquire.c: steps left when progress was last seen, and when that was */
    uint64_t seen_time, patience;
    char why[SHUNT__WHY];
};

/* Two tags per collective; the largest of all is for inquiries. */
static inline int shunt__coll_tag(uint64_t number, int rest)
{
    return (int)(number % 0x3fffff00) * 2 + rest;
}
#define SHUNT__INQUIRY_TAG 0x7fffffff

static inline int shunt__run_tag(const struct shunt__run *run, const struct shunt__step *step)
{
    return shunt__coll_tag(run->p.number, !step->hello);
}

/* `blame`: the rank that is the cause, -1; `tell`: those who wait for this rank do not know by themselves. */
void shunt__run_fail(struct shunt__run *run, shunt_status_t status, int blame, int tell, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* A message that is not what was expected: a notice of the sender's, or a length that can't be. */
void shunt__run_odd_message(struct shunt__run *run, const struct shunt__step *step, const void *buf, size_t have,
                            size_t bytes);
void shunt__run_pool_put(struct shunt__run_pool *pool);
/* Finishes the run if it can; to be called last after shunt__run_fail(), the run may be gone afterwards. */
void shunt__run_settle(struct shunt__run *run);
/* Sends a hello with `bytes` of text behind it. */
void shunt__note_send(struct shunt__run_pool *pool, struct shunt_comm *comm, int peer, int tag,
                      const struct shunt__coll_hello *hello, const char *text, size_t bytes);
/* Takes and forgets what `peer` sends for a collective: `messages` of its first or other ones, UINT32_MAX: all. */
void shunt__drain_start(struct shunt__run_pool *pool, struct shunt_comm *comm, uint64_t number, int peer, int rest,
                        uint32_t messages);
/* Drains that had their time. */
void shunt__drain_tick(struct shunt__run_pool *pool, uint64_t now);
void shunt__listeners_close(struct shunt__run_pool *pool);

#endif
