/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedule: per stage an ordered list of operations, and what can be said of it without running it. */
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/sched.h"

static const struct {
    shunt_sched_kind_t kind;
    const char *name;
    int split;
} kinds[] = {
    {SHUNT_SCHED_GPIPE, "gpipe", 0},
    {SHUNT_SCHED_1F1B, "1f1b", 0},
    {SHUNT_SCHED_ADAPTED, "adapted", 0},
    {SHUNT_SCHED_ZBH1, "zb-h1", 1},
    {SHUNT_SCHED_ZBH2, "zb-h2", 1},
    {SHUNT_SCHED_ZBV, "zb-v", 1},
    {SHUNT_SCHED_INTERLEAVED, "interleaved", 0},
    {SHUNT_SCHED_PIPEMORPH, "pipemorph", 1},
    {SHUNT_SCHED_READY, "ready", 0},
    {SHUNT_SCHED_PLANNED, "planned", 0},
    {SHUNT_SCHED_CUSTOM, "custom", 0},
};
#define N_KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

const char *shunt_sched_kind_name(shunt_sched_kind_t kind)
{
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i].kind == kind)
            return kinds[i].name;
    return "unknown";
}

shunt_status_t shunt_sched_kind_from_name(const char *name, shunt_sched_kind_t *kind)
{
    for (int i = 0; name && kind && i < N_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0) {
            *kind = kinds[i].kind;
            return SHUNT_OK;
        }
    return shunt__fail(SHUNT_ERR_NOT_FOUND,
                       "no schedule \"%s\": there are gpipe, 1f1b, adapted, zb-h1, zb-h2, zb-v, "
                       "interleaved, pipemorph and ready",
                       name ? name : "(null)");
}

int shunt_sched_kind_is_split(shunt_sched_kind_t kind)
{
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i].kind == kind)
            return kinds[i].split;
    return 0;
}

char shunt__sched_letter(shunt_sched_type_t type)
{
    return "FBIW"[type & 3];
}

const char *shunt__sched_op_text(shunt__op_t op, int chunks, char *text, size_t size)
{
    if (chunks > 1)
        snprintf(text, size, "%c of micro-batch %d, chunk %d", shunt__sched_letter(SHUNT__OP_TYPE(op)),
                 SHUNT__OP_MICROBATCH(op), SHUNT__OP_CHUNK(op));
    else
        snprintf(text, size, "%c of micro-batch %d", shunt__sched_letter(SHUNT__OP_TYPE(op)),
                 SHUNT__OP_MICROBATCH(op));
    return text;
}

int shunt__sched_stage_of(int p, int vee, int position)
{
    int chunk = position / p, i = position % p;

    return vee && (chunk & 1) ? p - 1 - i : i;
}

int shunt__sched_position(int p, int vee, int stage, int chunk)
{
    return chunk * p + (vee && (chunk & 1) ? p - 1 - stage : stage);
}

struct shunt__hop shunt__sched_hop(const struct shunt_sched_profile *profile, int vee, int position,
                                   int gradient)
{
    int p = profile->p, low = gradient ? position - 1 : position; /* the hop is between low and low + 1 */
    int from = shunt__sched_stage_of(p, vee, low), to = shunt__sched_stage_of(p, vee, low + 1);
    int up = vee && to < from;
    int link = up ? to : from, dir = up != gradient ? SHUNT__UP : SHUNT__DOWN;
    struct shunt__hop hop = {gradient ? from : to, 0, 0, -1};

    if (from != to) {
        hop.latency = profile->latency[dir][link];
        hop.service = profile->service[dir][link];
        hop.queue = 2 * link + dir;
    }
    return hop;
}

shunt_status_t shunt__sched_alloc(int p, int v, int m, int vee, shunt_sched_kind_t kind, const int *counts,
                                  struct shunt_sched **schedule)
{
    struct shunt_sched *s = calloc(1, sizeof(*s));

    if (s)
        s->offset = calloc((size_t)p + 1, sizeof(s->offset[0]));
    if (s && s->offset) {
        for (int i = 0; i < p; i++)
            s->offset[i + 1] = s->offset[i] + (size_t)counts[i];
        s->ops = malloc((s->offset[p] + 1) * sizeof(s->ops[0]));
    }
    if (!s || !s->ops) {
        shunt_sched_destroy(s);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a schedule of %d stages and %d micro-batches",
                           p, m);
    }
    s->p = p;
    s->v = v;
    s->m = m;
    s->vee = vee;
    s->kind = kind;
    *schedule = s;
    return SHUNT_OK;
}

shunt_status_t shunt__sched_alloc_even(const struct shunt_sched_profile *profile, int v, int vee,
                                       shunt_sched_kind_t kind, int split, struct shunt_sched **schedule)
{
    int *counts = malloc((size_t)profile->p * sizeof(int));
    shunt_status_t st;

    if (!counts)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a schedule");
    for (int i = 0; i < profile->p; i++)
        counts[i] = profile->m * v * (split ? 3 : 2);
    st = shunt__sched_alloc(profile->p, v, profile->m, vee, kind, counts, schedule);
    free(counts);
    return st;
}

shunt_status_t shunt_sched_copy(const shunt_sched_t *schedule, shunt_sched_t **copy)
{
    struct shunt_sched *s = NULL;
    int *counts;
    shunt_status_t st;

    if (!schedule || !copy)
        return shunt__fail(SHUNT_ERR_INVALID, "schedule to copy, or where to, is NULL");
    counts = malloc((size_t)schedule->p * sizeof(int));
    if (!counts)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a schedule");
    for (int i = 0; i < schedule->p; i++)
        counts[i] = shunt_sched_count(schedule, i);
    st = shunt__sched_alloc(schedule->p, schedule->v, schedule->m, schedule->vee, schedule->kind, counts, &s);
    free(counts);
    if (st != SHUNT_OK)
        return st;
    memcpy(s->ops, schedule->ops, schedule->offset[schedule->p] * sizeof(s->ops[0]));
    *copy = s;
    return SHUNT_OK;
}

void shunt_sched_destroy(shunt_sched_t *schedule)
{
    if (!schedule)
        return;
    free(schedule->offset);
    free(schedule->ops);
    free(schedule);
}

int shunt_sched_stages(const shunt_sched_t *schedule)
{
    return schedule ? schedule->p : 0;
}

int shunt_sched_chunks(const shunt_sched_t *schedule)
{
    return schedule ? schedule->v : 0;
}

int shunt_sched_microbatches(const shunt_sched_t *schedule)
{
    return schedule ? schedule->m : 0;
}

int shunt_sched_is_vee(const shunt_sched_t *schedule)
{
    return schedule ? schedule->vee : 0;
}

shunt_sched_kind_t shunt_sched_kind(const shunt_sched_t *schedule)
{
    return schedule ? schedule->kind : SHUNT_SCHED_CUSTOM;
}

int shunt_sched_count(const shunt_sched_t *schedule, int stage)
{
    if (!schedule || stage < 0 || stage >= schedule->p)
        return 0;
    return (int)(schedule->offset[stage + 1] - schedule->offset[stage]);
}

shunt_sched_op_t shunt_sched_op(const shunt_sched_t *schedule, int stage, int index)
{
    shunt_sched_op_t out = {SHUNT_SCHED_F, 0, 0};
    int n = shunt_sched_count(schedule, stage);

    if (n == 0)
        return out;
    if (index < 0 || index >= n)
        index = n - 1;
    shunt__op_t op = schedule->ops[schedule->offset[stage] + (size_t)index];
    out.type = SHUNT__OP_TYPE(op);
    out.chunk = SHUNT__OP_CHUNK(op);
    out.microbatch = SHUNT__OP_MICROBATCH(op);
    return out;
}

int shunt_sched_warmup(const shunt_sched_t *schedule, int stage)
{
    int n = shunt_sched_count(schedule, stage), k = 0;

    while (k < n && SHUNT__OP_TYPE(schedule->ops[schedule->offset[stage] + (size_t)k]) == SHUNT_SCHED_F)
        k++;
    return k;
}

double shunt_sched_peak_live(const shunt_sched_t *schedule, int stage)
{
    int live = 0, peak = 0;

    if (!schedule || stage < 0 || stage >= schedule->p)
        return 0;
    for (size_t k = schedule->offset[stage]; k < schedule->offset[stage + 1]; k++) {
        shunt_sched_type_t type = SHUNT__OP_TYPE(schedule->ops[k]);
        if (type == SHUNT_SCHED_F)
            peak = ++live > peak ? live : peak;
        else if (type != SHUNT_SCHED_I)
            live--;
    }
    return (double)peak / schedule->v;
}

int shunt_sched_position(const shunt_sched_t *schedule, int stage, int chunk)
{
    return schedule ? shunt__sched_position(schedule->p, schedule->vee, stage, chunk) : 0;
}

int shunt_sched_equal(const shunt_sched_t *a, const shunt_sched_t *b)
{
    if (!a || !b || a->p != b->p || a->v != b->v || a->m != b->m || a->vee != b->vee)
        return 0;
    return memcmp(a->offset, b->offset, ((size_t)a->p + 1) * sizeof(a->offset[0])) == 0 &&
           memcmp(a->ops, b->ops, a->offset[a->p] * sizeof(a->ops[0])) == 0;
}
