/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "comm/coll/state.h"

static const struct shunt__carrier engine = {shunt__op_send, shunt__op_recv, shunt__op_cancel_recv, shunt__op_describe};

struct shunt__coll_state *shunt__coll_state_of(struct shunt_comm *comm)
{
    void **slot = shunt__comm_coll_state(comm);
    struct shunt__coll_state *state = *slot;

    if (state)
        return state;
    state = calloc(1, sizeof(*state));
    if (state)
        state->pool = shunt__run_pool_new(&engine);
    if (!state || !state->pool) {
        free(state);
        shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for collectives");
        return NULL;
    }
    *slot = state;
    return state;
}

void shunt__coll_tick(struct shunt_comm *comm, uint64_t now)
{
    struct shunt__coll_state *state = *shunt__comm_coll_state(comm);

    if (state && state->pool)
        shunt__run_pool_tick(state->pool, now);
}

void shunt__coll_close(struct shunt_comm *comm)
{
    struct shunt__coll_state *state = *shunt__comm_coll_state(comm);

    if (!state)
        return;
    shunt__run_pool_close(state->pool);
    state->pool = NULL;
}

void shunt__coll_free(struct shunt_comm *comm)
{
    void **slot = shunt__comm_coll_state(comm);
    struct shunt__coll_state *state = *slot;

    if (!state)
        return;
    shunt__coll_close(comm);
    for (int i = 0; i < SHUNT__KEPT_SCHEDULES; i++)
        shunt__schedule_put(state->kept[i].schedule);
    free(state->operators);
    free(state);
    *slot = NULL;
}

static int is_for(const struct shunt__kept *k, const struct shunt__call *call)
{
    return k->schedule && k->kind == call->kind && k->count == call->count && k->type == call->type &&
           k->root == call->root && k->in_place == call->in_place;
}

static struct shunt__schedule *build(const struct shunt__call *call)
{
    const struct shunt__algorithm *algorithm;
    struct shunt__schedule *s = shunt__schedule_new(call->size);
    char why[160];

    if (s) {
        algorithm = shunt__coll_choose(call, why, sizeof(why));
        shunt__log(SHUNT__LOG_INFO, "%s takes %s", shunt__coll_name(call->kind), why);
        s->algorithm = algorithm->name;
        algorithm->pattern(s, call);
        if (shunt__schedule_seal(s))
            return s;
    }
    shunt__schedule_put(s);
    shunt__fail(SHUNT_ERR_NO_MEMORY, "%s: no memory for its schedule", shunt__coll_name(call->kind));
    return NULL;
}

struct shunt__schedule *shunt__coll_schedule(struct shunt__coll_state *state, const struct shunt__call *call)
{
    struct shunt__kept *oldest = &state->kept[0];
    struct shunt__schedule *s;

    if (call->send_counts)
        return build(call);
    for (int i = 0; i < SHUNT__KEPT_SCHEDULES; i++) {
        struct shunt__kept *k = &state->kept[i];

        if (is_for(k, call)) {
            k->used = ++state->uses;
            k->schedule->refs++;
            return k->schedule;
        }
        if (k->used < oldest->used)
            oldest = k;
    }
    s = build(call);
    if (s) {
        shunt__schedule_put(oldest->schedule);
        *oldest = (struct shunt__kept){s, call->kind, call->count, call->type, call->root, call->in_place, ++state->uses};
        s->refs++;
    }
    return s;
}

const struct shunt__operator *shunt__coll_operator(const struct shunt__coll_state *state, shunt_op_t op)
{
    int i = (int)op - SHUNT_N_OPS;

    return i >= 0 && i < state->n_operators && state->operators[i].used ? &state->operators[i] : NULL;
}

shunt_status_t shunt_op_create_premul_sum(shunt_comm_t *comm, const void *scalar, shunt_type_t type, shunt_op_t *op)
{
    struct shunt__coll_state *state;
    struct shunt__operator *grown;
    shunt_status_t st = SHUNT_OK;
    int i = 0;

    if (!comm || !scalar || !op)
        return shunt__fail(SHUNT_ERR_INVALID, "op_create_premul_sum: %s is NULL",
                           !comm ? "the communicator" : !scalar ? "the scalar" : "the output");
    if (!shunt_type_size(type))
        return shunt__fail(SHUNT_ERR_INVALID, "op_create_premul_sum: %d is not a type", (int)type);
    shunt__lock(shunt__comm_ctx(comm));
    state = shunt__coll_state_of(comm);
    if (!state) {
        st = SHUNT_ERR_NO_MEMORY;
    } else {
        while (i < state->n_operators && state->operators[i].used)
            i++;
        if (i == state->n_operators) {
            grown = realloc(state->operators, ((size_t)i + 8) * sizeof(*grown));
            if (grown) {
                memset(grown + i, 0, 8 * sizeof(*grown));
                state->operators = grown;
                state->n_operators = i + 8;
            } else {
                st = shunt__fail(SHUNT_ERR_NO_MEMORY, "op_create_premul_sum: no memory");
            }
        }
    }
    if (st == SHUNT_OK) {
        state->operators[i].used = 1;
        state->operators[i].type = type;
        memcpy(state->operators[i].scalar, scalar, shunt_type_size(type));
        *op = (shunt_op_t)(SHUNT_N_OPS + i);
    }
    shunt__unlock(shunt__comm_ctx(comm));
    return st;
}

shunt_status_t shunt_op_destroy(shunt_comm_t *comm, shunt_op_t op)
{
    struct shunt__coll_state *state;
    shunt_status_t st = SHUNT_OK;

    if (!comm)
        return shunt__fail(SHUNT_ERR_INVALID, "op_destroy: the communicator is NULL");
    shunt__lock(shunt__comm_ctx(comm));
    state = shunt__coll_state_of(comm);
    if (!state)
        st = SHUNT_ERR_NO_MEMORY;
    else if (!shunt__coll_operator(state, op))
        st = shunt__fail(SHUNT_ERR_INVALID, "op_destroy: %d is no operator that was created on this communicator",
                         (int)op);
    else
        state->operators[op - SHUNT_N_OPS].used = 0;
    shunt__unlock(shunt__comm_ctx(comm));
    return st;
}
