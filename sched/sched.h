/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of sched/ share: layouts of profile and schedule, and the searches' inner loops. */
#ifndef SHUNT_SCHED_SCHED_H
#define SHUNT_SCHED_SCHED_H

#include <stdint.h>
#include <shunt/sched.h>

struct shunt_sched_profile {
    int p, v, m;
    double *forward, *backward, *weight; /* [stage * v + chunk] */
    double *latency[2], *service[2];     /* [DOWN or UP][link] */
    int *cap;                            /* [stage], 0: none */
};
enum { SHUNT__DOWN, SHUNT__UP };

/* One operation in 32 bits, so that 25 million of them stay in 100 MB. */
typedef uint32_t shunt__op_t;
#define SHUNT__OP(type, chunk, microbatch)                                                                   \
    ((shunt__op_t)(type) | (shunt__op_t)(chunk) << 2 | (shunt__op_t)(microbatch) << 8)
#define SHUNT__OP_TYPE(op) ((shunt_sched_type_t)((op)&3))
#define SHUNT__OP_CHUNK(op) ((int)((op) >> 2 & 63))
#define SHUNT__OP_MICROBATCH(op) ((int)((op) >> 8))

struct shunt_sched {
    int p, v, m, vee;
    shunt_sched_kind_t kind;
    size_t *offset; /* stage i's operations are ops[offset[i]] ... ops[offset[i + 1] - 1] */
    shunt__op_t *ops;
};

/* What a simulation found; with a timeline also what it ran. */
struct shunt_sched_result {
    int p, v;
    double makespan, period, bubble;
    double *idle;        /* [stage][cause] */
    double *busy, *peak; /* [stage] */
    size_t *offset;      /* as in the schedule */
    double *starts;      /* [op]; NULL without a timeline, as the next two */
    double *durations;   /* [(stage * v + chunk) * 4 + type] */
    shunt__op_t *ops;
};

/* Where a message from one position of the model to the next goes. */
struct shunt__hop {
    int stage; /* that receives */
    double latency, service;
    int queue; /* index of the queue, 2 * link + direction; -1: same stage, no message */
};

/* Letter of a type, 'F', 'B', 'I' or 'W'. */
char shunt__sched_letter(shunt_sched_type_t type);
/* Text like "F of micro-batch 3" (", chunk 1" with chunks); `size` bytes of `text` are used, text is
 * returned. */
const char *shunt__sched_op_text(shunt__op_t op, int chunks, char *text, size_t size);

/* Stage that holds a position of the model, and position of a stage's chunk. */
int shunt__sched_stage_of(int p, int vee, int position);
int shunt__sched_position(int p, int vee, int stage, int chunk);
/* The hop of an activation from `position` to the next (dir 0), or of a gradient to the previous (dir 1). */
struct shunt__hop shunt__sched_hop(const struct shunt_sched_profile *profile, int vee, int position,
                                   int gradient);

/* An empty schedule with room for counts[i] operations per stage; offsets are set, operations are not. */
shunt_status_t shunt__sched_alloc(int p, int v, int m, int vee, shunt_sched_kind_t kind, const int *counts,
                                  struct shunt_sched **schedule);
/* Room for 2 m v (unsplit) or 3 m v operations on every stage. */
shunt_status_t shunt__sched_alloc_even(const struct shunt_sched_profile *profile, int v, int vee,
                                       shunt_sched_kind_t kind, int split, struct shunt_sched **schedule);
/* Completeness of a schedule: every operation once, F before B or I, I before W. FORMAT with the place. */
shunt_status_t shunt__sched_complete(const struct shunt_sched *schedule);
/* Whether the order is that of 1F1B with some warm-up counts. */
int shunt__sched_warmup_form(const struct shunt_sched *schedule);
/* Whether the profile has weight gradients to split off. */
int shunt__sched_has_weight(const struct shunt_sched_profile *profile);

/*
 * A simulator that is set up once per profile shape and then runs many schedules of it: the searches' inner
 * loop. One chunk or several. run() gives the makespan (negative: deadlock) and, if starts is not NULL, the
 * start of every operation in the order of schedule->ops.
 */
struct shunt__simulator;
struct shunt__simulator *shunt__simulator_create(const struct shunt_sched_profile *profile, int vee,
                                                 int blocking);
double shunt__simulator_run(struct shunt__simulator *sim, const struct shunt_sched *schedule, double *starts);
double shunt__simulator_duration(const struct shunt__simulator *sim, int stage, shunt__op_t op);
/* From now on runs with starts also note, in `visited`, the operations' indices in an order that respects all
 * dependencies. */
void shunt__simulator_record(struct shunt__simulator *sim, int *visited);
/* From now on every operation takes one unit of time. */
void shunt__simulator_unit(struct shunt__simulator *sim);
void shunt__simulator_destroy(struct shunt__simulator *sim);

/* Makespan of 1F1B order with these warm-up counts, by recurrence; `scratch` has shunt__warmup_scratch()
 * doubles. */
size_t shunt__warmup_scratch(const struct shunt_sched_profile *profile);
double shunt__warmup_makespan(const struct shunt_sched_profile *profile, const int *warmup, double *scratch);

/* No 1F1B order with these counts is faster: fill, whole turns of each cycle, drain. O(p^2). */
double shunt__warmup_bound(const struct shunt_sched_profile *profile, const int *warmup);

/* What a stage runs first when a backward and a forward are both there; the others than the first are good
 * with a pace. */
enum shunt__precedence {
    SHUNT__BACKWARD_FIRST,
    SHUNT__FORWARD_FIRST,
    SHUNT__FIRST_COME,
    SHUNT__N_PRECEDENCES
};

/*
 * Dispatch by readiness: whenever a stage is free it runs B (or I) or F, by precedence, if one is there and
 * the limits allow, else W. `in_flight` limits F minus B or I, `live` limits F minus B or W; both per stage.
 */
struct shunt__dispatch {
    const int *in_flight, *live;
    int split;
    enum shunt__precedence precedence;
    double patience; /* a free stage leaves F alone when a backward arrives within patience * f; 0: never */
    double pace;     /* stage 0 starts its forwards at least this far apart; 0: as soon as it may */
    const unsigned char *weight_first; /* per stage: W goes before F once one is there; NULL: never */
};
/* Cost O(operations log p). The schedule is new (kind READY); makespan may be NULL. One chunk. */
shunt_status_t shunt__sched_dispatch(const struct shunt_sched_profile *profile,
                                     const struct shunt__dispatch *rule, struct shunt_sched **schedule,
                                     double *makespan);

/* A dispatched operation takes about as long as this many simulated ones, for p stages (measured). */
double shunt__dispatch_cost(int p);

/*
 * A planning run: the best schedule so far and the work that is left, in simulated operations. Each search
 * stops when its share is used up or the lower bound is met.
 */
struct shunt__search {
    const struct shunt_sched_profile *profile;
    const int *cap; /* per stage, m where there is none */
    int split;
    double bound;
    double left; /* operations that may still be simulated */
    struct shunt_sched *best;
    double makespan;                  /* of best; INFINITY at first */
    const char *family, *best_family; /* what is being searched, and where best is from */
};
/* Takes the schedule as the new best if it is better, destroys it otherwise. 1: taken. */
int shunt__search_offer(struct shunt__search *search, struct shunt_sched *schedule, double makespan);
/* 1F1B orders: the closed form and a local search over warm-up counts under the caps. */
shunt_status_t shunt__search_warmup(struct shunt__search *search, double share);
/* Readiness-first orders under varied limits. */
shunt_status_t shunt__search_dispatch(struct shunt__search *search, double share);
/* Single operations of the best order moved about. */
shunt_status_t shunt__search_orders(struct shunt__search *search, double share);

#endif
