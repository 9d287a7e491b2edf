/* SPDX-License-Identifier: BSD-3-Clause */
/* The training program: what its files share. */
#ifndef SHUNT_TRAIN_JOB_H
#define SHUNT_TRAIN_JOB_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <shunt/coll.h>
#include <shunt/comm.h>
#include <shunt/p2p.h>
#include <shunt/sched.h>
#include "tools/train/model.h"
#include "tools/train/text.h"

struct options {
    int stages, replicas; /* 0: from the number of ranks */
    int micro_batches;    /* per replica and step */
    int total;            /* per step over all replicas; 0: micro_batches * replicas */
    long steps;
    struct model_config model;
    double learning_rate;
    double stage_time; /* seconds that a stage's forward, input gradient and weight gradient take each; 0: as they do */
    shunt_sched_kind_t schedule; /* SHUNT_SCHED_PLANNED: whatever the planner finds */
    bool adapt;
    int memory_cap; /* live micro-batches per stage; 0: as the schedule likes */
    size_t bucket;  /* bytes of gradients reduced at once */
    const char *const *texts;
    int n_texts;
    const char *checkpoint; /* a folder that all ranks see */
    long checkpoint_every;
    bool resume;
    long log_every;
    const char *json, *trace;
};

/* Times of one step on one rank, nanoseconds. */
struct times {
    double busy;   /* computing, padding included */
    double padded; /* of that, waiting for the stated time */
    double wait;   /* for activations and gradients of neighbours */
    double reduce; /* for the sum of gradients, after the last backward */
};

struct job {
    struct options options;
    shunt_context_t *context;
    shunt_comm_t *world, *group, *pipe; /* all ranks; the replicas of this stage; the stages of this replica */
    int rank, size, stage, replica;
    int replicas, total;  /* of the pipeline now; micro-batches of a step over all of them */
    int first, count;     /* this replica's micro-batches among them */
    int before, after;    /* ranks of the neighbouring stages, -1 at the ends */
    bool active;          /* false: a spare, which waits for a place to become free */
    bool recoverable;     /* a lost rank is survived: escape leads to the training loop */
    jmp_buf escape;
    struct report *report;
    double *sums;         /* what is added up over all ranks at the end of a step */
    model_stage_t *model;
    struct text text;
    struct pipeline *pipeline;
    struct buckets *buckets;
    struct times times;
    int plan_changes; /* since the start */
    int overrun; /* operations of this step that took longer than --stage-time */
    uint64_t step;
};

uint64_t now_ns(void);

/* Fills the options or ends the program (--help, wrong usage). */
void options_parse(struct options *options, int argc, char **argv);

/* Prints why and ends the program, telling the other ranks. `what` may be NULL. */
void job_fail(struct job *job, const char *what, const char *why) __attribute__((noreturn));
/* Ends the program if a call into libshunt or the model failed; after the loss of a rank it goes to job->escape. */
void job_check(struct job *job, shunt_status_t status, const char *what);
void job_lost(struct job *job, shunt_status_t status, const char *what, const char *why) __attribute__((noreturn));
void job_check_model(struct job *job, int status);

/*
 * One stage's part of a step: runs its operations, the next one being the plan's if its input is there, else another
 * that can run (with --adapt off always the plan's). No stage ever stands still for a message it does not need.
 */
struct pipeline *pipeline_create(struct job *job);
void pipeline_destroy(struct pipeline *p);
/* Sum of this stage's losses over its micro-batches (0 but in the last stage). */
double pipeline_step(struct pipeline *p);
/* Around the agreement on the step: enters what was measured, and makes a new plan if it pays. */
void pipeline_measured(struct pipeline *p, double *vector);
void pipeline_adapt(struct pipeline *p, const double *vector);
const shunt_sched_t *pipeline_schedule(const struct pipeline *p);
/* Writes the last step's operations to --trace. Collective over the first replica's pipeline. */
void pipeline_trace(struct pipeline *p);

/*
 * The messages between neighbouring stages: activations come from the stage before and go to the one after, gradients the
 * other way. Receives of the whole step are posted at its start and sends are waited for at its end.
 */
enum direction { ACTIVATION, GRADIENT };
struct arrivals *arrivals_create(struct job *job);
void arrivals_destroy(struct arrivals *a);
void arrivals_begin(struct arrivals *a);
/* The next message that has arrived, in the order of arrival; false if there is none. With `block` it waits for one, and
 * false means that all of the step have been taken. */
bool arrivals_take(struct arrivals *a, bool block, enum direction *direction, int *micro_batch);
/* What came for a micro-batch, and room for what is to be sent. */
const float *arrivals_data(const struct arrivals *a, enum direction direction, int micro_batch);
float *arrivals_room(struct arrivals *a, enum direction direction, int micro_batch);
/* Sends what was put into the room, unless there is no stage in that direction. */
void arrivals_send(struct arrivals *a, enum direction direction, int micro_batch);
void arrivals_finish(struct arrivals *a);
/* Delay of the link to the next stage in this step, one way, in seconds. */
double arrivals_delay(struct arrivals *a);

/* What was run when, of the step that was begun last. */
struct trace *trace_create(struct job *job);
void trace_destroy(struct trace *t);
void trace_begin(struct trace *t);
void trace_add(struct trace *t, shunt_sched_op_t op, uint64_t start, uint64_t end);
/* Collective over the pipeline. */
void trace_write(struct trace *t, struct job *job);

/* The plan, and what it is made from. */
struct tuning *tuning_create(struct job *job);
void tuning_destroy(struct tuning *t);
const shunt_sched_t *tuning_schedule(const struct tuning *t);
void tuning_begin(struct tuning *t);
void tuning_record(struct tuning *t, shunt_sched_type_t type, double took);
/* Doubles of all pipelines' measurements of a step, 0 with --adapt off. Each rank enters its own, the rest are zero;
 * from their sum follows the plan: true if it is another one now. */
int tuning_entries(const struct job *job);
void tuning_put(struct tuning *t, double delay, double *vector);
bool tuning_step(struct tuning *t, const double *vector);

/*
 * Sums the gradients over the replicas of the stage, bucket by bucket: the reduction of a bucket starts as soon as its
 * last gradient is final, while the backward pass goes on. The buckets' borders depend on nothing but their size.
 */
struct buckets *buckets_create(struct job *job);
void buckets_destroy(struct buckets *b);
void buckets_begin(struct buckets *b);
void buckets_wait(struct buckets *b);

/*
 * Who does what. rank_at[stage * replicas + replica] is the rank in that place; the micro-batches are shared out evenly,
 * consecutive ones to each replica. Makes the communicators, the pipeline and the buckets.
 */
void members_place(struct job *job, const int *rank_at);
/*
 * After the loss of ranks: those that live agree on who they are, bring the step that some of them had finished to its
 * end, and take places again: as many whole pipelines as there are ranks for, the rest spares. Who gets another stage
 * receives its state from a rank that has it. Needs, for each stage, one survivor of it.
 */
void members_recover(struct job *job);
float members_rate(const struct job *job);

/* Files of a step in the checkpoint folder, and a file `latest` that names them once all are there. */
void save_checkpoint(struct job *job, uint64_t steps_done);
/* Steps done by the latest one; 0 when there is none. */
uint64_t load_checkpoint(struct job *job);

/* Progress lines, the JSON file and the summary; only rank 0 prints. */
struct report *report_create(struct job *job);
void report_start(struct report *r, uint64_t first_step);
/* Adds the step up over all ranks, and `n` measurements behind it; when this succeeds on any rank, every rank has its
 * sum of gradients. */
#define REPORT_SUMS 5
void report_agree(struct report *r, double loss_sum, double *sums, int n);
void report_step(struct report *r, const double *sums);
/* The sums of the last step that was reported. */
void report_last(const struct report *r, double *sums);
void report_end(struct report *r);

#endif
