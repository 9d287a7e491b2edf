/* SPDX-License-Identifier: BSD-3-Clause */
/* Validation of schedules: complete, in a possible order, free of deadlock, within the caps. */
#include <stdlib.h>
#include "comm/base/log.h"
#include "sched/sched.h"

/* Checks one stage's list; done[chunk * m + microbatch] holds a bit per type. */
static shunt_status_t check_stage(const struct shunt_sched *s, int stage, unsigned char *done)
{
    char text[80];
    size_t cells = (size_t)s->v * (size_t)s->m;

    for (size_t k = 0; k < cells; k++)
        done[k] = 0;
    for (size_t k = s->offset[stage]; k < s->offset[stage + 1]; k++) {
        shunt__op_t op = s->ops[k];
        int type = (int)SHUNT__OP_TYPE(op), at = (int)(k - s->offset[stage]);
        if (SHUNT__OP_CHUNK(op) >= s->v || SHUNT__OP_MICROBATCH(op) >= s->m)
            return shunt__fail(SHUNT_ERR_FORMAT,
                               "stage %d, operation %d (%s): there are %d micro-batches and %d chunks", stage,
                               at, shunt__sched_op_text(op, 2, text, sizeof(text)), s->m, s->v);
        unsigned char *d =
            &done[(size_t)SHUNT__OP_CHUNK(op) * (size_t)s->m + (size_t)SHUNT__OP_MICROBATCH(op)];
        const char *name = shunt__sched_op_text(op, s->v, text, sizeof(text));
        if (*d & 1 << type)
            return shunt__fail(SHUNT_ERR_FORMAT, "stage %d, operation %d: %s stands there a second time",
                               stage, at, name);
        if (type != SHUNT_SCHED_F && !(*d & 1 << SHUNT_SCHED_F))
            return shunt__fail(SHUNT_ERR_FORMAT, "stage %d, operation %d: %s comes before its forward", stage,
                               at, name);
        if (type == SHUNT_SCHED_W && !(*d & 1 << SHUNT_SCHED_I))
            return shunt__fail(SHUNT_ERR_FORMAT,
                               "stage %d, operation %d: %s comes before its input gradient (I)", stage, at,
                               name);
        if ((type == SHUNT_SCHED_B && *d & 1 << SHUNT_SCHED_I) ||
            (type == SHUNT_SCHED_I && *d & 1 << SHUNT_SCHED_B))
            return shunt__fail(SHUNT_ERR_FORMAT,
                               "stage %d, operation %d: %s, but that micro-batch has both B and I", stage, at,
                               name);
        *d |= (unsigned char)(1 << type);
    }
    for (size_t k = 0; k < cells; k++)
        if (done[k] != (1 << SHUNT_SCHED_F | 1 << SHUNT_SCHED_B) &&
            done[k] != (1 << SHUNT_SCHED_F | 1 << SHUNT_SCHED_I | 1 << SHUNT_SCHED_W)) {
            shunt_sched_type_t lacks = !(done[k] & 1 << SHUNT_SCHED_F)   ? SHUNT_SCHED_F
                                       : !(done[k] & 1 << SHUNT_SCHED_I) ? SHUNT_SCHED_B
                                                                         : SHUNT_SCHED_W;
            return shunt__fail(SHUNT_ERR_FORMAT, "stage %d lacks %s", stage,
                               shunt__sched_op_text(SHUNT__OP(lacks, k / (size_t)s->m, k % (size_t)s->m),
                                                    s->v, text, sizeof(text)));
        }
    return SHUNT_OK;
}

shunt_status_t shunt__sched_complete(const struct shunt_sched *schedule)
{
    unsigned char *done = malloc((size_t)schedule->v * (size_t)schedule->m);
    shunt_status_t st = SHUNT_OK;

    if (!done)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to check a schedule");
    for (int i = 0; i < schedule->p && st == SHUNT_OK; i++)
        st = check_stage(schedule, i, done);
    free(done);
    return st;
}

static shunt_status_t check_cap(const struct shunt_sched *s, int stage, int cap)
{
    char text[80];
    int live = 0;

    for (size_t k = s->offset[stage]; k < s->offset[stage + 1]; k++) {
        shunt_sched_type_t type = SHUNT__OP_TYPE(s->ops[k]);
        if (type == SHUNT_SCHED_F && ++live > cap * s->v)
            return shunt__fail(
                SHUNT_ERR_FORMAT,
                "stage %d, operation %d: %s would be one micro-batch alive more than its cap of "
                "%d",
                stage, (int)(k - s->offset[stage]), shunt__sched_op_text(s->ops[k], s->v, text, sizeof(text)),
                cap);
        if (type == SHUNT_SCHED_B || type == SHUNT_SCHED_W)
            live--;
    }
    return SHUNT_OK;
}

shunt_status_t shunt_sched_check(const shunt_sched_t *schedule, const shunt_sched_profile_t *profile)
{
    shunt_sched_result_t *result;
    shunt_status_t st;

    if (!schedule || !profile)
        return shunt__fail(SHUNT_ERR_INVALID, "check: schedule or profile is NULL");
    st = shunt__sched_complete(schedule);
    if (st == SHUNT_OK)
        st = shunt_sched_simulate(schedule, profile, 0, &result);
    if (st == SHUNT_OK)
        shunt_sched_result_destroy(result);
    for (int i = 0; i < profile->p && st == SHUNT_OK; i++)
        if (profile->cap[i] > 0)
            st = check_cap(schedule, i, profile->cap[i]);
    return st;
}

shunt_status_t shunt_sched_create_custom(int stages, int chunks, int microbatches, int vee, const int *counts,
                                         const shunt_sched_op_t *ops, shunt_sched_t **schedule)
{
    shunt_sched_profile_t *profile;
    struct shunt_sched *s = NULL;
    shunt_status_t st;

    if (!counts || !ops || !schedule)
        return shunt__fail(SHUNT_ERR_INVALID, "custom schedule: counts, operations or result is NULL");
    st = shunt_sched_profile_create(stages, chunks, microbatches, &profile);
    if (st != SHUNT_OK)
        return st;
    for (int i = 0; i < stages && st == SHUNT_OK; i++)
        if (counts[i] < 0 || counts[i] > 3 * chunks * microbatches)
            st = shunt__fail(SHUNT_ERR_FORMAT,
                             "stage %d has %d operations; %d chunks of %d micro-batches have at most %d", i,
                             counts[i], chunks, microbatches, 3 * chunks * microbatches);
    if (st == SHUNT_OK)
        st = shunt__sched_alloc(stages, chunks, microbatches, vee != 0, SHUNT_SCHED_CUSTOM, counts, &s);
    for (size_t k = 0; st == SHUNT_OK && k < s->offset[stages]; k++) {
        if ((unsigned)ops[k].type > 3 || ops[k].chunk < 0 || ops[k].chunk >= chunks ||
            ops[k].microbatch < 0 || ops[k].microbatch >= microbatches) {
            int i = 0;
            while (s->offset[i + 1] <= k)
                i++;
            st = shunt__fail(SHUNT_ERR_FORMAT,
                             "stage %d, operation %d: type %d, chunk %d, micro-batch %d is out of range", i,
                             (int)(k - s->offset[i]), (int)ops[k].type, ops[k].chunk, ops[k].microbatch);
        } else
            s->ops[k] = SHUNT__OP(ops[k].type, ops[k].chunk, ops[k].microbatch);
    }
    if (st == SHUNT_OK)
        st = shunt_sched_check(s, profile);
    shunt_sched_profile_destroy(profile);
    if (st != SHUNT_OK) {
        shunt_sched_destroy(s);
        return st;
    }
    *schedule = s;
    return SHUNT_OK;
}
