/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt/sched.h - pipeline schedules that absorb slow links.
 *
 * A *profile* says how long the stages compute, how slow the links are and how many micro-batches
 * each stage may keep alive. A *schedule* is, per stage, the order of its operations. The
 * *simulator* runs a schedule over a profile, exactly; the *planner* finds a good schedule for a
 * profile and says how far from possible it is; a *run* hands one stage its next operation while
 * messages arrive; *adapt* turns measured profiles into plan changes, the same on every rank.
 *
 * Words: p stages (one per pipeline rank), m micro-batches, v model chunks per stage (1 unless the
 * schedule is interleaved or ZB-V). Link i joins stages i and i + 1; link p - 1 joins the last stage
 * and the first, and only chunked schedules use it. Times are doubles in any one unit that the
 * caller likes; results come in the same unit.
 *
 * Everything here is pure: no clock, no thread, no socket, no file except where a function says so.
 * Different objects may be used from different threads at once; one object by one thread at a time.
 * Outputs are set only on success. Every error has a text (shunt_error_text()) that names the stage
 * and operation it is about.
 */
#ifndef SHUNT_SCHED_H
#define SHUNT_SCHED_H

#include <stddef.h>
#include <stdio.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHUNT_SCHED_MAX_STAGES 4096
#define SHUNT_SCHED_MAX_CHUNKS 64
#define SHUNT_SCHED_MAX_MICROBATCHES 1048576

typedef struct shunt_sched_profile shunt_sched_profile_t;
typedef struct shunt_sched shunt_sched_t;
typedef struct shunt_sched_result shunt_sched_result_t;
typedef struct shunt_sched_plan shunt_sched_plan_t;
typedef struct shunt_sched_run shunt_sched_run_t;
typedef struct shunt_sched_adapt shunt_sched_adapt_t;

/* ---- operations ---- */

typedef enum shunt_sched_type {
    SHUNT_SCHED_F, /* forward */
    SHUNT_SCHED_B, /* whole backward: input and weight gradients */
    SHUNT_SCHED_I, /* input gradient alone; the stage before waits for it */
    SHUNT_SCHED_W  /* weight gradient alone; nobody waits for it */
} shunt_sched_type_t;

typedef struct shunt_sched_op {
    shunt_sched_type_t type;
    int chunk;      /* 0 ... v - 1 */
    int microbatch; /* 0 ... m - 1 */
} shunt_sched_op_t;

/* ---- profile ---- */

/*
 * A profile of `stages` stages with `chunks` model chunks each and `microbatches` micro-batches per
 * iteration; all times 0, no memory caps. The caller destroys it.
 * INVALID: a number below 1 or above its SHUNT_SCHED_MAX. NO_MEMORY.
 */
SHUNT_API shunt_status_t shunt_sched_profile_create(int stages, int chunks, int microbatches,
                                                    shunt_sched_profile_t **profile);
SHUNT_API shunt_status_t shunt_sched_profile_copy(const shunt_sched_profile_t *profile,
                                                  shunt_sched_profile_t **copy);
SHUNT_API void shunt_sched_profile_destroy(shunt_sched_profile_t *profile);

/*
 * Times of one micro-batch on a stage, over all its chunks (each chunk takes a v-th of it): forward,
 * and either the whole backward with weight = 0, or the input gradient as backward and the weight
 * gradient as weight. A schedule without split backward takes backward + weight.
 * INVALID: no such stage; a time negative, infinite or not a number.
 */
SHUNT_API shunt_status_t shunt_sched_profile_set_stage(shunt_sched_profile_t *profile, int stage,
                                                       double forward, double backward, double weight);
/* The same for one chunk of a stage, where chunks differ. */
SHUNT_API shunt_status_t shunt_sched_profile_set_chunk(shunt_sched_profile_t *profile, int stage, int chunk,
                                                       double forward, double backward, double weight);
/*
 * Link `link`, one direction each: latency (messages overlap) and service time per message (bytes /
 * bandwidth; messages queue). A message arrives service + latency after it left the queue.
 * `down` is towards the next stage, `up` towards the previous one.
 */
SHUNT_API shunt_status_t shunt_sched_profile_set_link(shunt_sched_profile_t *profile, int link,
                                                      double latency_down, double latency_up,
                                                      double service_down, double service_up);
/* At most `cap` micro-batches alive on the stage at once (from the start of F to the end of B or W); 0: no
 * cap. */
SHUNT_API shunt_status_t shunt_sched_profile_set_cap(shunt_sched_profile_t *profile, int stage, int cap);

SHUNT_API int shunt_sched_profile_stages(const shunt_sched_profile_t *profile);
SHUNT_API int shunt_sched_profile_chunks(const shunt_sched_profile_t *profile);
SHUNT_API int shunt_sched_profile_microbatches(const shunt_sched_profile_t *profile);
SHUNT_API void shunt_sched_profile_get_stage(const shunt_sched_profile_t *profile, int stage, double *forward,
                                             double *backward, double *weight);
SHUNT_API void shunt_sched_profile_get_link(const shunt_sched_profile_t *profile, int link,
                                            double *latency_down, double *latency_up, double *service_down,
                                            double *service_up);
SHUNT_API int shunt_sched_profile_get_cap(const shunt_sched_profile_t *profile, int stage);

/* ---- schedule ---- */

typedef enum shunt_sched_kind {
    SHUNT_SCHED_GPIPE,       /* all forwards, then all backwards */
    SHUNT_SCHED_1F1B,        /* p - i forwards, then one backward, one forward */
    SHUNT_SCHED_ADAPTED,     /* 1F1B with the warm-up counts that absorb the links' delay */
    SHUNT_SCHED_ZBH1,        /* split backward, memory of 1F1B; order of the zero-bubble paper */
    SHUNT_SCHED_ZBH2,        /* split backward, 2 (p - i) - 1 forwards in flight */
    SHUNT_SCHED_ZBV,         /* split backward, two chunks per stage placed in a V */
    SHUNT_SCHED_INTERLEAVED, /* v chunks per stage placed in a loop, as in Megatron-LM */
    SHUNT_SCHED_PIPEMORPH, /* the published adaptive plan: warm-up from neighbours' times, B before F before W
                            */
    SHUNT_SCHED_READY, /* what the readiness-first rule does under the caps (or p - i live if there are none)
                        */
    SHUNT_SCHED_PLANNED, /* found by shunt_sched_plan_create() */
    SHUNT_SCHED_CUSTOM   /* read from a file or put together by the caller */
} shunt_sched_kind_t;

/* Name as on the command line, e.g. "1f1b"; never NULL. And back: NOT_FOUND lists the names. */
SHUNT_API const char *shunt_sched_kind_name(shunt_sched_kind_t kind);
SHUNT_API shunt_status_t shunt_sched_kind_from_name(const char *name, shunt_sched_kind_t *kind);
/* Whether the kind splits the backward. */
SHUNT_API int shunt_sched_kind_is_split(shunt_sched_kind_t kind);

/*
 * Builds a schedule of one of the named kinds (not PLANNED, not CUSTOM) for the profile. Kinds that split
 * need weight times. Caps limit only READY; shunt_sched_check() tells whether a schedule keeps them. Cost:
 * O(operations); ZBH2, PIPEMORPH and READY O(operations log p). UNSUPPORTED: the kind can't be built for this
 * number of chunks or micro-batches.
 */
SHUNT_API shunt_status_t shunt_sched_create(const shunt_sched_profile_t *profile, shunt_sched_kind_t kind,
                                            shunt_sched_t **schedule);
/*
 * 1F1B order with the given warm-up counts: stage i runs warmup[i] forwards, then one backward, one
 * forward, and so on. warmup has p entries, clipped to m; one chunk only.
 * INVALID: a count below 1, or a stage with fewer than its successor (it would deadlock).
 */
SHUNT_API shunt_status_t shunt_sched_create_warmup(const shunt_sched_profile_t *profile, const int *warmup,
                                                   shunt_sched_t **schedule);
/*
 * A schedule of the caller's own: counts[i] operations of stage i, one stage's behind the other's in
 * ops. vee = 0 places chunk c of stage i at position c p + i of the model (loop), 1 in a V.
 * FORMAT: an operation missing, twice or out of range, or an order that deadlocks; the text says where.
 */
SHUNT_API shunt_status_t shunt_sched_create_custom(int stages, int chunks, int microbatches, int vee,
                                                   const int *counts, const shunt_sched_op_t *ops,
                                                   shunt_sched_t **schedule);
SHUNT_API shunt_status_t shunt_sched_copy(const shunt_sched_t *schedule, shunt_sched_t **copy);
SHUNT_API void shunt_sched_destroy(shunt_sched_t *schedule);

SHUNT_API int shunt_sched_stages(const shunt_sched_t *schedule);
SHUNT_API int shunt_sched_chunks(const shunt_sched_t *schedule);
SHUNT_API int shunt_sched_microbatches(const shunt_sched_t *schedule);
SHUNT_API int shunt_sched_is_vee(const shunt_sched_t *schedule);
SHUNT_API shunt_sched_kind_t shunt_sched_kind(const shunt_sched_t *schedule);
/* Number of operations of a stage, and one of them. index from 0; out of range gives the last one. */
SHUNT_API int shunt_sched_count(const shunt_sched_t *schedule, int stage);
SHUNT_API shunt_sched_op_t shunt_sched_op(const shunt_sched_t *schedule, int stage, int index);
/* Forwards of a stage before its first backward. */
SHUNT_API int shunt_sched_warmup(const shunt_sched_t *schedule, int stage);
/* Most live micro-batches the order ever asks of a stage, in whole micro-batches (chunks count 1/v). */
SHUNT_API double shunt_sched_peak_live(const shunt_sched_t *schedule, int stage);
/* Position of a stage's chunk in the model, 0 ... p v - 1. */
SHUNT_API int shunt_sched_position(const shunt_sched_t *schedule, int stage, int chunk);
/* 1 if the two have the same operations in the same order. */
SHUNT_API int shunt_sched_equal(const shunt_sched_t *a, const shunt_sched_t *b);

/*
 * Whether the schedule is complete, free of deadlock, fits the profile's numbers and keeps its caps.
 * FORMAT with a text that names the first stage and operation that is wrong. O(operations).
 */
SHUNT_API shunt_status_t shunt_sched_check(const shunt_sched_t *schedule,
                                           const shunt_sched_profile_t *profile);

/* ---- simulation ---- */

#define SHUNT_SCHED_BLOCKING_SENDS 1u /* a stage stands still until its message has arrived */
#define SHUNT_SCHED_TIMELINE 2u       /* keep the start of every operation */

typedef enum shunt_sched_cause {
    SHUNT_SCHED_IDLE_DEPENDENCY, /* the neighbour had not computed it yet; also before the first and after the
                                    last */
    SHUNT_SCHED_IDLE_LINK,       /* it was on its way, or the stage stood in a blocking send */
    SHUNT_SCHED_IDLE_MEMORY      /* a forward was there, but the stage's cap was reached */
} shunt_sched_cause_t;

/*
 * Runs the schedule over the profile: exact event simulation, every operation as early as order, messages and
 * queues allow. Cost O(operations) time (tens of millions a second), 32 bytes per (stage, chunk,
 * micro-batch), and 8 per operation with a timeline. The result is the caller's and keeps no reference to its
 * inputs. FORMAT: the schedule does not fit the profile or deadlocks; the text names stage and operation.
 */
SHUNT_API shunt_status_t shunt_sched_simulate(const shunt_sched_t *schedule,
                                              const shunt_sched_profile_t *profile, unsigned flags,
                                              shunt_sched_result_t **result);
SHUNT_API void shunt_sched_result_destroy(shunt_sched_result_t *result);
SHUNT_API double shunt_sched_result_makespan(const shunt_sched_result_t *result);
/* Time per micro-batch in the steady state: exact for orders of 1F1B form, else measured over the later half.
 */
SHUNT_API double shunt_sched_result_period(const shunt_sched_result_t *result);
/* Idle share of stages x makespan, 0 ... 1. */
SHUNT_API double shunt_sched_result_bubble(const shunt_sched_result_t *result);
/* Idle time of a stage by cause; the causes of a stage add up to makespan minus its compute time. */
SHUNT_API double shunt_sched_result_idle(const shunt_sched_result_t *result, int stage,
                                         shunt_sched_cause_t cause);
SHUNT_API double shunt_sched_result_peak_live(const shunt_sched_result_t *result, int stage);
SHUNT_API double shunt_sched_result_busy(const shunt_sched_result_t *result, int stage);
/* Start and end of a stage's index-th operation; needs SHUNT_SCHED_TIMELINE, else INVALID. */
SHUNT_API shunt_status_t shunt_sched_result_time(const shunt_sched_result_t *result, int stage, int index,
                                                 double *start, double *end);

/* ---- bounds and closed forms ---- */

/*
 * No schedule of this profile (split: with split backward) is faster: the largest of, over stages, fill + m
 * times the stage's work + drain; over queueing links, fill + m times the service time + drain; under caps
 * Little's law. O(p).
 */
SHUNT_API double shunt_sched_lower_bound(const shunt_sched_profile_t *profile, int split);
/* The part of it that caps cause; 0 without caps. */
SHUNT_API double shunt_sched_little_bound(const shunt_sched_profile_t *profile, int split);
/*
 * Exact steady period of a 1F1B-ordered pipeline: max over i <= j of
 * [sum of f + b over i..j + delays between] / (x_i - x_j + 1), and the service times. O(p^2). One chunk.
 */
SHUNT_API double shunt_sched_warmup_period(const shunt_sched_profile_t *profile, const int *warmup);
/* Smallest warm-up counts that keep 1F1B order at the rate of the slowest stage, clipped to m; p entries.
 * O(p^2). */
SHUNT_API void shunt_sched_adapted_warmup(const shunt_sched_profile_t *profile, int *warmup);

/* ---- text forms ---- */

typedef enum shunt_sched_format {
    SHUNT_SCHED_TEXT,          /* Shunt's own: header lines, then "0: F0 F1 B0 ..." per stage */
    SHUNT_SCHED_JSON,          /* one object with the same content */
    SHUNT_SCHED_PYTORCH,       /* torch.distributed.pipelining, format compute_only */
    SHUNT_SCHED_PYTORCH_COMMS, /* the same, format compute_comms, with the waits that current PyTorch asks for
                                */
    SHUNT_SCHED_PYTORCH_PLAIN  /* compute_comms with sends and receives alone, for PyTorch before it had
                                  WAIT_SEND_F */
} shunt_sched_format_t;

/*
 * Writes a schedule. The two PyTorch forms have one row per rank and cells such as 0F3, 1I0; compute_only
 * shows bubbles as blank cells, compute_comms adds sends and receives in an order that can't deadlock even if
 * both block, a wait for each send once its receive must have been posted, and the reduction of each stage's
 * gradients. SYSTEM: the stream has an error.
 */
SHUNT_API shunt_status_t shunt_sched_write(const shunt_sched_t *schedule, shunt_sched_format_t format,
                                           FILE *out);
/*
 * Reads a schedule from `size` bytes of text and checks it as shunt_sched_create_custom() does. From
 * PyTorch's forms the placement is found, sends and receives are checked to be of operations that exist and
 * are left out. FORMAT with the line and what is wrong there.
 */
SHUNT_API shunt_status_t shunt_sched_read(const char *text, size_t size, shunt_sched_format_t format,
                                          shunt_sched_t **schedule);

/* Chrome's trace event form (chrome://tracing, Perfetto), one thread per stage; `us` microseconds per unit of
 * time. */
SHUNT_API shunt_status_t shunt_sched_result_write_trace(const shunt_sched_result_t *result, double us,
                                                        FILE *out);
/* A Gantt chart as SVG, with the title above it; needs a timeline. */
SHUNT_API shunt_status_t shunt_sched_result_write_svg(const shunt_sched_result_t *result, const char *title,
                                                      FILE *out);
/* A Gantt chart of text, at most `columns` wide; colours as ANSI sequences if `colour`. Needs a timeline. */
SHUNT_API shunt_status_t shunt_sched_result_write_text(const shunt_sched_result_t *result, int columns,
                                                       int colour, FILE *out);

/*
 * Reads a trace of a run in Chrome's form: complete events ("ph": "X") whose args name stage, microbatch and
 * optionally chunk, step and type, or whose name is the operation ("F3") and whose tid is the stage. Of
 * several steps the last complete one is taken. Gives the order that was run, the profile that the run shows
 * (median times per stage; half the smallest there-and-back delay per link, which needs no synchronised
 * clocks) and its makespan, in microseconds. Each output may be NULL. FORMAT: not such a trace, or an
 * operation is missing; the text says which.
 */
SHUNT_API shunt_status_t shunt_sched_trace_read(const char *text, size_t size, shunt_sched_t **schedule,
                                                shunt_sched_profile_t **profile, double *makespan);

/* ---- planner ---- */

#define SHUNT_SCHED_NO_SPLIT 1u   /* only whole backwards, even if the profile has weight times */
#define SHUNT_SCHED_ONLY_SPLIT 2u /* only split backwards */

typedef struct shunt_sched_plan_params {
    size_t size; /* sizeof(shunt_sched_plan_params_t) */
    unsigned flags;
    double effort; /* times the default amount of search; 0 is 1. Planning time grows with it */
    double thrift; /* relative time that may be given up for memory, e.g. 0.01; 0: none */
} shunt_sched_plan_params_t;

/*
 * The best schedule found for the profile under its caps: warm-up counts in closed form with a local search
 * over them, readiness-first orders under varied limits, orders of W, and a search over single operations of
 * the best of them. Deterministic: equal profiles give equal plans on every machine (the amount of search is
 * counted in operations, not in time). params may be NULL. One chunk; a profile with more chunks gets the
 * better of the schedules that are known for it. The plan is the caller's and keeps no reference to the
 * profile. Cost: bounded; a few ms at p = 16, m = 128. INVALID: flags ask for a split without weight times,
 * or exclude all.
 */
SHUNT_API shunt_status_t shunt_sched_plan_create(const shunt_sched_profile_t *profile,
                                                 const shunt_sched_plan_params_t *params,
                                                 shunt_sched_plan_t **plan);
SHUNT_API void shunt_sched_plan_destroy(shunt_sched_plan_t *plan);
/* The schedule stays the plan's. */
SHUNT_API const shunt_sched_t *shunt_sched_plan_schedule(const shunt_sched_plan_t *plan);
SHUNT_API double shunt_sched_plan_makespan(const shunt_sched_plan_t *plan);
/* The largest lower bound of the case (with the split that was allowed), and its part that caps cause. */
SHUNT_API double shunt_sched_plan_lower_bound(const shunt_sched_plan_t *plan);
SHUNT_API double shunt_sched_plan_little_bound(const shunt_sched_plan_t *plan);
/* Why this plan: what was compared and what decided. Static for the plan's life. */
SHUNT_API const char *shunt_sched_plan_reason(const shunt_sched_plan_t *plan);

/* ---- the run-time rule ---- */

/*
 * Keep strictly to the plan's order, waiting where it says so. Measured with operations that take up to 40 %
 * longer by chance: with memory to spare readiness is 1 to 4 % faster than following; where a cap binds and
 * the plan paces its forwards for that, following is up to 8 % faster.
 */
#define SHUNT_SCHED_FOLLOW 1u

/*
 * One stage's operations in the running job. The plan is a hint, readiness is the rule: the plan's next
 * operation if its input is there, else the first backward, forward or weight gradient in the plan's order
 * that can run, with at most `credits` live micro-batches (0, or fewer than the plan needs: the plan's own
 * peak). It can't deadlock: each type keeps the plan's order, and the plan's next forward always finds a
 * credit (proof in sched/run.c). Use: arrived() for each message, next(), run the operation, done(), and
 * again. One thread at a time; no allocation after create; each call O(1) amortised. The schedule may be
 * destroyed afterwards. INVALID: no such stage.
 */
SHUNT_API shunt_status_t shunt_sched_run_create(const shunt_sched_t *schedule, int stage, int credits,
                                                unsigned flags, shunt_sched_run_t **run);
SHUNT_API void shunt_sched_run_destroy(shunt_sched_run_t *run);
/* Begins the next iteration: nothing has arrived, nothing is done. */
SHUNT_API void shunt_sched_run_reset(shunt_sched_run_t *run);
/* An activation (type F) or gradient (B or I) for the chunk and micro-batch is there; twice does no harm. */
SHUNT_API shunt_status_t shunt_sched_run_arrived(shunt_sched_run_t *run, shunt_sched_op_t input);
/*
 * The operation to run now. SHUNT_IN_PROGRESS: none is ready; a message or an operation of this stage must be
 * awaited. When all have been given out: SHUNT_OK with microbatch -1.
 */
SHUNT_API shunt_status_t shunt_sched_next(shunt_sched_run_t *run, shunt_sched_op_t *op);
/* The operation has been computed. INVALID: next() has not given it out, or it was done before. */
SHUNT_API shunt_status_t shunt_sched_run_done(shunt_sched_run_t *run, shunt_sched_op_t op);
/* How many operations next() gave out before the plan's order had them. */
SHUNT_API int shunt_sched_run_ahead(const shunt_sched_run_t *run);

/* ---- adapting while the job runs ---- */

typedef struct shunt_sched_adapt_params {
    size_t size;      /* sizeof(shunt_sched_adapt_params_t) */
    unsigned flags;   /* of the planner */
    double effort;    /* of the planner; 0: 4 */
    double thrift;    /* of the planner; 0: 0.01, negative: none */
    double deviation; /* relative change of a time that counts; 0: 0.1 */
    double gain;      /* predicted gain below which the plan stays; 0: 0.03 */
    int calm; /* iterations for which a leaner plan must do before it is taken; 0: 5. Doubles each time */
} shunt_sched_adapt_params_t;

typedef struct shunt_sched_event {
    int step;
    int changed;             /* 1: the plan is a new one from the next iteration on */
    double predicted_before; /* seconds: the old plan under the new profile */
    double predicted;        /* seconds: the plan that holds now */
    const char *text; /* what happened, e.g. "link 2-3: 0.2 -> 31 ms since step 41; ..."; "" if nothing */
} shunt_sched_event_t;

/*
 * Follows the measured profile of a running job, from one iteration boundary to the next, and changes the
 * plan when that pays. Times are in seconds. It is pure and deterministic: ranks that feed it equal vectors
 * (one small all-reduce with sum) hold equal plans, without further agreement. Hysteresis: a time counts as
 * changed when two iterations in a row differ by `deviation` in the same direction (and by 2 % of the slowest
 * stage's work, so that noise of short links does not count); a new plan is taken if it is predicted to gain
 * `gain`; a plan that only needs less memory is taken when it would have done for `calm` iterations.
 * `profile` is what the first plan is made for: the caller's expectation, or what was measured first.
 */
SHUNT_API shunt_status_t shunt_sched_adapt_create(const shunt_sched_profile_t *profile,
                                                  const shunt_sched_adapt_params_t *params,
                                                  shunt_sched_adapt_t **adapt);
SHUNT_API void shunt_sched_adapt_destroy(shunt_sched_adapt_t *adapt);
/* Doubles in a vector: 3 p v + 3 p. */
SHUNT_API int shunt_sched_adapt_entries(const shunt_sched_adapt_t *adapt);
/*
 * Enters one stage's (one chunk's) measured times, medians over the iteration's micro-batches, into a vector
 * that the caller zeroed. Each rank enters its own; the sum over ranks is the whole profile.
 */
SHUNT_API shunt_status_t shunt_sched_adapt_put_stage(const shunt_sched_adapt_t *adapt, double *vector,
                                                     int stage, int chunk, double forward, double backward,
                                                     double weight);
/*
 * Enters link `link`: half the there-and-back delay (no clocks need agree for that), and service times per
 * message if the link is limited by bandwidth, else 0. One end of the link enters it.
 */
SHUNT_API shunt_status_t shunt_sched_adapt_put_link(const shunt_sched_adapt_t *adapt, double *vector,
                                                    int link, double latency, double service_down,
                                                    double service_up);
/*
 * One iteration boundary: step counts iterations, vector is the summed one, took the iteration's duration (0:
 * unknown). The event's text is valid until the next call. Cost: O(p) unless something changed; then a plan
 * (see shunt_sched_plan_create()). INVALID: a time in the vector is negative or not finite.
 */
SHUNT_API shunt_status_t shunt_sched_adapt_step(shunt_sched_adapt_t *adapt, int step, const double *vector,
                                                double took, shunt_sched_event_t *event);
/* After a death or a regrouping: goes on with another profile (other stages, other micro-batches); `why`
 * opens the text. */
SHUNT_API shunt_status_t shunt_sched_adapt_replace(shunt_sched_adapt_t *adapt, int step,
                                                   const shunt_sched_profile_t *profile, const char *why,
                                                   shunt_sched_event_t *event);
/* The plan that holds and the profile it is held for; both stay the object's, until its next step. */
SHUNT_API const shunt_sched_t *shunt_sched_adapt_schedule(const shunt_sched_adapt_t *adapt);
SHUNT_API const shunt_sched_profile_t *shunt_sched_adapt_profile(const shunt_sched_adapt_t *adapt);
/* Mean of |took / predicted - 1| over the iterations since the last change; 0 if none was timed. */
SHUNT_API double shunt_sched_adapt_error(const shunt_sched_adapt_t *adapt);

/* ---- data-parallel replicas ---- */

/*
 * Shares `microbatches` out among replicas so that the slowest ends as early as possible: replica r takes
 * fixed[r] (NULL: 0)
 * + counts[r] times[r]. A replica with an infinite time gets none. weights[r] (may be NULL) is counts[r] /
 * microbatches: with the mean gradient of its own micro-batches scaled by it, the sum over replicas is the
 * mean over all, as before. O(replicas + log). INVALID: a time that is not positive, no replica alive.
 */
SHUNT_API shunt_status_t shunt_sched_rebalance(int replicas, const double *times, const double *fixed,
                                               int microbatches, int *counts, double *weights);
/*
 * A replica failed: each micro-batch whose owner[k] has an infinite time moves to the replica that would end
 * earliest with it; the others keep theirs. Owners are changed only on success; deterministic.
 */
SHUNT_API shunt_status_t shunt_sched_move(int replicas, const double *times, int microbatches, int *owner);

#ifdef __cplusplus
}
#endif
#endif
