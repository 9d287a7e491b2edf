/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The run-time rule: which operation a stage runs now.
 *
 * Why it can't deadlock: take the operation X that comes first, in an order that respects the plan's
 * dependencies, of all that have not run. Its input is there, as everything before it has run. If X is no
 * forward nothing else holds it. If it is a forward, no later forward of its stage has run (forwards keep
 * their order) and every earlier operation has, so no more micro-batches are alive than in the plan at that
 * point, and the plan's peak is among the credits.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/sched.h"

enum { GIVEN = 1, DONE = 2 };

struct shunt_sched_run {
    int m, v, n, last, first; /* last, first: the chunk at the model's last or first position here, or -1 */
    int credits, live, plan, left, ahead;
    unsigned flags;
    shunt__op_t *ops;
    unsigned char *state;              /* per operation */
    int *queue[3], head[3], length[3]; /* indices of F, of B and I, of W in plan order */
    int *index[3];                     /* [chunk * m + microbatch] of the same, or -1 */
    unsigned char *here[2];            /* [chunk * m + microbatch]: activation, gradient arrived */
};

static int group(shunt__op_t op)
{
    shunt_sched_type_t type = SHUNT__OP_TYPE(op);

    return type == SHUNT_SCHED_F ? 0 : type == SHUNT_SCHED_W ? 2 : 1;
}

static int cell(const struct shunt_sched_run *run, shunt__op_t op)
{
    return SHUNT__OP_CHUNK(op) * run->m + SHUNT__OP_MICROBATCH(op);
}

void shunt_sched_run_destroy(shunt_sched_run_t *run)
{
    if (!run)
        return;
    free(run->ops);
    free(run->state);
    free(run->queue[0]);
    free(run->index[0]);
    free(run->here[0]);
    free(run);
}

void shunt_sched_run_reset(shunt_sched_run_t *run)
{
    size_t cells;

    if (!run)
        return;
    cells = (size_t)run->m * (size_t)run->v;
    memset(run->state, 0, (size_t)run->n);
    memset(run->here[0], 0, 2 * cells);
    if (run->first >= 0)
        memset(run->here[0] + run->first * run->m, 1,
               (size_t)run->m); /* inputs of the model wait for nobody */
    for (int k = 0; k < 3; k++)
        run->head[k] = 0;
    run->live = run->plan = run->ahead = 0;
    run->left = run->n;
}

static void fill(struct shunt_sched_run *run)
{
    size_t cells = (size_t)run->m * (size_t)run->v;

    for (int k = 0; k < 3; k++) {
        run->queue[k] = run->queue[0] + (size_t)k * cells;
        run->index[k] = run->index[0] + (size_t)k * cells;
    }
    run->here[1] = run->here[0] + cells;
    for (size_t k = 0; k < 3 * cells; k++)
        run->index[0][k] = -1;
    for (int k = 0; k < run->n; k++) {
        int g = group(run->ops[k]);
        run->index[g][cell(run, run->ops[k])] = k;
        run->queue[g][run->length[g]++] = k;
    }
}

shunt_status_t shunt_sched_run_create(const shunt_sched_t *schedule, int stage, int credits, unsigned flags,
                                      shunt_sched_run_t **run)
{
    struct shunt_sched_run *r;
    shunt_status_t st;
    size_t cells;
    int peak;

    if (!schedule || !run || stage < 0 || stage >= schedule->p || credits < 0)
        return shunt__fail(SHUNT_ERR_INVALID, "run: stage %d of %d, %d credits", stage,
                           shunt_sched_stages(schedule), credits);
    st = shunt__sched_complete(schedule);
    if (st != SHUNT_OK)
        return st;
    r = calloc(1, sizeof(*r));
    if (!r)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a stage's run");
    r->m = schedule->m;
    r->v = schedule->v;
    r->n = shunt_sched_count(schedule, stage);
    r->flags = flags;
    r->first = r->last = -1;
    for (int c = 0; c < r->v; c++) {
        int position = shunt__sched_position(schedule->p, schedule->vee, stage, c);
        r->first = position == 0 ? c : r->first;
        r->last = position == schedule->p * r->v - 1 ? c : r->last;
    }
    peak = (int)(shunt_sched_peak_live(schedule, stage) * r->v + 0.5);
    r->credits = credits * r->v > peak ? credits * r->v : peak;
    cells = (size_t)r->m * (size_t)r->v;
    r->ops = malloc((size_t)r->n * sizeof(r->ops[0]));
    r->state = malloc((size_t)r->n);
    r->queue[0] = malloc(3 * cells * sizeof(int));
    r->index[0] = malloc(3 * cells * sizeof(int));
    r->here[0] = malloc(2 * cells);
    if (!r->ops || !r->state || !r->queue[0] || !r->index[0] || !r->here[0]) {
        shunt_sched_run_destroy(r);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a stage's run");
    }
    memcpy(r->ops, schedule->ops + schedule->offset[stage], (size_t)r->n * sizeof(r->ops[0]));
    fill(r);
    shunt_sched_run_reset(r);
    *run = r;
    return SHUNT_OK;
}

/* A caller's operation as an index into ops, or -1. */
static int find(const struct shunt_sched_run *run, shunt_sched_op_t op)
{
    if ((unsigned)op.type > SHUNT_SCHED_W || op.chunk < 0 || op.chunk >= run->v || op.microbatch < 0 ||
        op.microbatch >= run->m)
        return -1;
    return run->index[group(SHUNT__OP(op.type, 0, 0))][op.chunk * run->m + op.microbatch];
}

shunt_status_t shunt_sched_run_arrived(shunt_sched_run_t *run, shunt_sched_op_t input)
{
    if (!run || input.type == SHUNT_SCHED_W || find(run, input) < 0)
        return shunt__fail(SHUNT_ERR_INVALID,
                           "no message of type %d for chunk %d, micro-batch %d can come here",
                           (int)input.type, input.chunk, input.microbatch);
    run->here[input.type != SHUNT_SCHED_F][input.chunk * run->m + input.microbatch] = 1;
    return SHUNT_OK;
}

/* Whether operation k can run now. */
static int ready(const struct shunt_sched_run *run, int k)
{
    int g = group(run->ops[k]), at = cell(run, run->ops[k]), forward = run->index[0][at];

    if (g == 0)
        return run->here[0][at] && run->live < run->credits;
    if (g == 1)
        return run->here[1][at] && run->state[forward] & DONE;
    return run->state[run->index[1][at]] & DONE;
}

static int give(struct shunt_sched_run *run, int k, shunt_sched_op_t *op)
{
    shunt__op_t o = run->ops[k];

    run->state[k] |= GIVEN;
    run->left--;
    run->live += SHUNT__OP_TYPE(o) == SHUNT_SCHED_F;
    run->ahead += k != run->plan;
    op->type = SHUNT__OP_TYPE(o);
    op->chunk = SHUNT__OP_CHUNK(o);
    op->microbatch = SHUNT__OP_MICROBATCH(o);
    return 0;
}

shunt_status_t shunt_sched_next(shunt_sched_run_t *run, shunt_sched_op_t *op)
{
    static const int order[] = {1, 0, 2}; /* backward before forward before weight gradient */

    if (!run || !op)
        return shunt__fail(SHUNT_ERR_INVALID, "next: run or operation is NULL");
    if (run->left == 0) {
        *op = (shunt_sched_op_t){SHUNT_SCHED_F, 0, -1};
        return SHUNT_OK;
    }
    while (run->state[run->plan] & GIVEN)
        run->plan++;
    if (ready(run, run->plan)) {
        give(run, run->plan, op);
        return SHUNT_OK;
    }
    for (int o = 0; o < 3 && !(run->flags & SHUNT_SCHED_FOLLOW); o++) {
        int g = order[o], *head = &run->head[g];
        while (*head < run->length[g] && run->state[run->queue[g][*head]] & GIVEN)
            ++*head;
        if (*head < run->length[g] && ready(run, run->queue[g][*head])) {
            give(run, run->queue[g][*head], op);
            return SHUNT_OK;
        }
    }
    return SHUNT_IN_PROGRESS;
}

shunt_status_t shunt_sched_run_done(shunt_sched_run_t *run, shunt_sched_op_t op)
{
    int k = run ? find(run, op) : -1;

    if (k < 0 || SHUNT__OP_TYPE(run->ops[k]) != op.type || !(run->state[k] & GIVEN) || run->state[k] & DONE)
        return shunt__fail(
            SHUNT_ERR_INVALID,
            "operation of type %d, chunk %d, micro-batch %d was not given out, or was done before",
            (int)op.type, op.chunk, op.microbatch);
    run->state[k] |= DONE;
    if (op.type == SHUNT_SCHED_B || op.type == SHUNT_SCHED_W)
        run->live--;
    if (op.type == SHUNT_SCHED_F && op.chunk == run->last)
        run->here[1][cell(run, run->ops[k])] = 1; /* the loss is here: so is its gradient */
    return SHUNT_OK;
}

int shunt_sched_run_ahead(const shunt_sched_run_t *run)
{
    return run ? run->ahead : 0;
}
