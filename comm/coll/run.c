/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "comm/coll/run.h"
#include "comm/reduce/reduce.h"

/* Sends to one peer that are in the engine at once. */
#define WINDOW 8
/* Blocks that a pool keeps, in bytes. */
#define KEEP (32u << 20)

/* ---- memory ---- */

struct shunt__run_pool *shunt__run_pool_new(const struct shunt__carrier *carrier)
{
    struct shunt__run_pool *pool = calloc(1, sizeof(*pool));

    if (pool) {
        pool->refs = 1;
        pool->carrier = carrier;
        shunt__list_init(&pool->runs);
        shunt__list_init(&pool->drains);
    }
    return pool;
}

void shunt__run_pool_put(struct shunt__run_pool *pool)
{
    if (--pool->refs > 0)
        return;
    for (struct shunt__run *run = pool->free, *next; run; run = next) {
        next = run->next;
        free(run);
    }
    free(pool->listeners);
    free(pool);
}

static struct shunt__run *take_block(struct shunt__run_pool *pool, size_t bytes)
{
    struct shunt__run *run;

    for (struct shunt__run **at = &pool->free; *at; at = &(*at)->next) {
        run = *at;
        if (run->capacity >= bytes && run->capacity / 4 <= bytes) {
            *at = run->next;
            pool->bytes -= run->capacity;
            return run;
        }
    }
    if (posix_memalign((void **)&run, 64, bytes))
        return NULL;
    run->capacity = bytes;
    return run;
}

static void give_block(struct shunt__run *run)
{
    struct shunt__run_pool *pool = run->p.pool;

    shunt__schedule_put(run->p.schedule);
    if (pool->closed || pool->bytes + run->capacity > KEEP) {
        free(run);
    } else {
        run->next = pool->free;
        pool->free = run;
        pool->bytes += run->capacity;
    }
    shunt__run_pool_put(pool);
}

/* Cuts the next array out of a block; with a NULL block only counts. */
static void *cut(char *block, size_t *at, size_t bytes)
{
    void *p = block ? block + *at : NULL;

    *at += (bytes + 63) & ~(size_t)63;
    return p;
}

static size_t lay_out(struct shunt__run *run, const struct shunt__schedule *s, const struct shunt__call *call)
{
    char *block = (char *)run;
    struct shunt__run dummy, *r = run ? run : &dummy;
    size_t at = 0;

    cut(block, &at, sizeof(*run));
    r->messages = cut(block, &at, s->n_ops * sizeof(*r->messages));
    r->lanes = cut(block, &at, s->n_lanes * sizeof(*r->lanes));
    r->needs = cut(block, &at, s->n_steps * sizeof(*r->needs));
    r->queue = cut(block, &at, s->n_steps * sizeof(*r->queue));
    r->lazy = cut(block, &at, s->n_steps * sizeof(*r->lazy));
    r->state = cut(block, &at, s->n_steps);
    r->pointers = cut(block, &at, s->most_sources * sizeof(*r->pointers));
    r->slots = cut(block, &at, s->slots);
    r->space[2] = cut(block, &at, s->work);
    if (call->send_counts) {
        size_t bytes = (size_t)call->size * sizeof(size_t), *copy = cut(block, &at, 2 * bytes);

        if (run) {
            memcpy(copy, call->send_counts, bytes);
            memcpy(copy + call->size, call->recv_counts, bytes);
            run->call.send_counts = copy;
            run->call.recv_counts = copy + call->size;
        }
    }
    return at;
}

/* ---- steps ---- */

static char *address(const struct shunt__run *run, shunt__place_t place)
{
    return run->space[SHUNT__SPACE(place)] + SHUNT__OFFSET(place);
}

static void complete(struct shunt__run *run, uint32_t id)
{
    const struct shunt__schedule *s = run->p.schedule;
    const struct shunt__step *step = &s->steps[id];

    run->state[id] = SHUNT__DONE;
    run->left--;
    for (uint32_t i = 0; i < step->n_next; i++) {
        uint32_t next = s->nexts[step->first_next + i];

        if (--run->needs[next] == 0)
            run->queue[run->queue_tail++] = next;
    }
}

static void message_done(struct shunt__op *op);

/* A short first message leaves from a copy behind the hello: what it was sent from is free at once. */
static void post_hello(struct shunt__run *run, const struct shunt__step *step, struct shunt__op *op)
{
    const struct shunt__carrier *carrier = run->p.pool->carrier;
    struct shunt__coll_hello *hello = (struct shunt__coll_hello *)(run->slots + step->slot);
    int tag = shunt__run_tag(run, step);

    if (step->kind == SHUNT__STEP_RECV) {
        carrier->recv(op, run->p.comm, SHUNT__CHANNEL_COLL, hello, SHUNT__SLOT_BYTES(step->bytes), step->peer, tag,
                      message_done);
        return;
    }
    shunt__coll_hello_fill(hello, &run->call, run->p.number, step->peer);
    if (step->bytes)
        memcpy(hello + 1, address(run, step->a), step->bytes);
    carrier->send(op, run->p.comm, SHUNT__CHANNEL_COLL, hello, sizeof(*hello) + step->bytes, step->peer, tag,
                  message_done);
}

static void post(struct shunt__run *run, uint32_t id)
{
    const struct shunt__carrier *carrier = run->p.pool->carrier;
    const struct shunt__step *step = &run->p.schedule->steps[id];
    struct shunt__run_message *m = &run->messages[step->op];

    m->run = run;
    m->step = id;
    run->state[id] = SHUNT__POSTED;
    run->posted++;
    run->lanes[step->lane].posted++;
    if (step->hello)
        post_hello(run, step, &m->op);
    else if (step->kind == SHUNT__STEP_SEND)
        carrier->send(&m->op, run->p.comm, SHUNT__CHANNEL_COLL, address(run, step->a), step->bytes, step->peer,
                      shunt__run_tag(run, step), message_done);
    else
        carrier->recv(&m->op, run->p.comm, SHUNT__CHANNEL_COLL, address(run, step->dst), step->bytes, step->peer,
                      shunt__run_tag(run, step), message_done);
    if (step->hello && step->kind == SHUNT__STEP_SEND)
        complete(run, id);
    else
        run->attached++;
}

static void post_lane(struct shunt__run *run, uint32_t lane_id)
{
    struct shunt__run_lane *lane = &run->lanes[lane_id];

    while (lane->head >= 0 && run->state[lane->head] == SHUNT__READY && !run->status) {
        const struct shunt__step *step = &run->p.schedule->steps[lane->head];

        if (step->kind == SHUNT__STEP_SEND && lane->posted >= WINDOW)
            return;
        post(run, (uint32_t)lane->head);
        lane->head = step->next_in_lane;
    }
}

static void do_reduce(struct shunt__run *run, const struct shunt__step *step)
{
    const shunt__place_t *sources = run->p.schedule->sources + step->first_source;
    size_t count = step->bytes / run->call.width;

    if (step->n_sources == 2) {
        shunt__reduce2(run->op, run->call.type, address(run, step->dst), address(run, sources[0]),
                       address(run, sources[1]), count);
        return;
    }
    for (int i = 0; i < step->n_sources; i++)
        run->pointers[i] = address(run, sources[i]);
    shunt__reduce_n(run->op, run->call.type, address(run, step->dst), run->pointers, step->n_sources, count);
}

static void do_copy(struct shunt__run *run, uint32_t id)
{
    const struct shunt__step *step = &run->p.schedule->steps[id];
    char *to = address(run, step->dst), *from = address(run, step->a);

    if (to != from && step->bytes)
        memcpy(to, from, step->bytes);
    complete(run, id);
}

/* Everything that has become possible; of the copies that nothing waits for one at a time, while messages travel. */
static void work(struct shunt__run *run)
{
    const struct shunt__schedule *s = run->p.schedule;

    while (run->queue_head < run->queue_tail && !run->status) {
        uint32_t id = run->queue[run->queue_head++];
        const struct shunt__step *step = &s->steps[id];

        switch (step->kind) {
        case SHUNT__STEP_SEND:
        case SHUNT__STEP_RECV:
            run->state[id] = SHUNT__READY;
            post_lane(run, step->lane);
            break;
        case SHUNT__STEP_REDUCE:
            do_reduce(run, step);
            complete(run, id);
            break;
        case SHUNT__STEP_COPY:
            if (step->n_next)
                do_copy(run, id);
            else
                run->lazy[run->lazy_tail++] = id;
            break;
        default:
            complete(run, id);
            break;
        }
    }
    while (run->lazy_head < run->lazy_tail && !run->status) {
        do_copy(run, run->lazy[run->lazy_head++]);
        if (run->attached)
            break;
    }
}

void shunt__run_settle(struct shunt__run *run)
{
    if (!run->finished && run->attached == 0 && (run->left == 0 || run->status)) {
        run->finished = 1;
        shunt__list_remove(&run->node);
        run->p.finish(run->p.arg, run->status, run->status ? run->why : NULL);
    }
    if (run->finished && run->posted == 0)
        give_block(run);
}

/* Nonzero when what arrived is what was expected; a short first message is then at its place. */
static int take(struct shunt__run *run, const struct shunt__step *step, const struct shunt__op *op)
{
    char *buf = step->hello ? run->slots + step->slot : address(run, step->dst);
    size_t capacity = step->hello ? SHUNT__SLOT_BYTES(step->bytes) : step->bytes;
    size_t expected = step->hello ? sizeof(struct shunt__coll_hello) + step->bytes : step->bytes;
    char text[SHUNT__WHY];

    if (step->hello && op->bytes >= sizeof(struct shunt__coll_hello)) {
        const struct shunt__coll_hello *hello = (const struct shunt__coll_hello *)buf;

        if (hello->status == 0 &&
            shunt__coll_hello_check(hello, &run->call, run->p.number, step->peer, text, sizeof(text)) != SHUNT_OK) {
            shunt__run_fail(run, SHUNT_ERR_MISMATCH, step->peer, 1, "%s", text);
            return 0;
        }
        if (hello->status == 0 && op->bytes == expected) {
            if (step->bytes)
                memcpy(address(run, step->dst), hello + 1, step->bytes);
            return 1;
        }
    } else if (op->bytes == expected) {
        return 1;
    }
    shunt__run_odd_message(run, step, buf, shunt__min(capacity, op->bytes), op->bytes);
    return 0;
}

static void message_done(struct shunt__op *op)
{
    struct shunt__run_message *m = shunt__container(op, struct shunt__run_message, op);
    struct shunt__run *run = m->run;
    const struct shunt__step *step = &run->p.schedule->steps[m->step];
    int detached = step->hello && step->kind == SHUNT__STEP_SEND;
    char text[SHUNT__WHY];

    run->posted--;
    run->lanes[step->lane].posted--;
    if (!detached)
        run->attached--;
    if (!run->status && !run->finished) {
        if (op->status != SHUNT_OK && !(op->status == SHUNT_ERR_TRUNCATED && step->kind == SHUNT__STEP_RECV)) {
            run->p.pool->carrier->describe(op, text, sizeof(text));
            shunt__run_fail(run, op->status, step->peer, 0, "%s", text);
        } else if (step->kind == SHUNT__STEP_SEND || take(run, step, op)) {
            if (!detached)
                complete(run, m->step);
            post_lane(run, step->lane);
            work(run);
        }
    }
    shunt__run_settle(run);
}

shunt_status_t shunt__run_start(const struct shunt__run_params *params)
{
    struct shunt__schedule *s = params->schedule;
    struct shunt__run *run = take_block(params->pool, lay_out(NULL, s, params->call));

    if (!run)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "%s: no memory for %zu bytes of working space",
                           shunt__coll_name(params->call->kind), s->work);
    run->p = *params;
    run->call = *params->call;
    run->op = run->call.op >= SHUNT_AVG ? SHUNT_SUM : run->call.op;
    lay_out(run, s, params->call);
    s->refs++;
    params->pool->refs++;
    params->pool->comm = params->comm;
    params->pool->rank = run->call.rank;
    params->pool->size = run->call.size;
    run->space[0] = (char *)(uintptr_t)params->in;
    run->space[1] = params->out;
    run->queue_head = run->queue_tail = run->lazy_head = run->lazy_tail = 0;
    run->left = s->n_steps;
    run->attached = run->posted = 0;
    run->status = SHUNT_OK;
    run->finished = 0;
    run->seen_left = UINT32_MAX;
    shunt__list_init(&run->node);
    shunt__list_append(&params->pool->runs, &run->node);
    shunt__run_pool_note(params->pool, &run->call, params->number);
    memset(run->state, SHUNT__WAITING, s->n_steps);
    for (uint32_t i = 0; i < s->n_lanes; i++)
        run->lanes[i] = (struct shunt__run_lane){.head = s->lane_first[i]};
    for (uint32_t i = 0; i < s->n_steps; i++) {
        run->needs[i] = s->steps[i].needs;
        if (run->needs[i] == 0)
            run->queue[run->queue_tail++] = i;
    }
    work(run);
    shunt__run_settle(run);
    return SHUNT_OK;
}
