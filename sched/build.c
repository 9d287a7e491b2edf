/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The named schedules.
 *
 *   gpipe        Huang et al., GPipe (2019): all forwards, then all backwards
 *   1f1b         Narayanan et al., PipeDream-Flush (2020); Megatron-LM without interleaving
 *   adapted      1F1B order with the warm-up counts of shunt_sched_adapted_warmup()
 *   interleaved  Narayanan et al., Megatron-LM (2021), section 2.2
 *   zb-h1, zb-h2 Qi et al., Zero Bubble Pipeline Parallelism (2024), section 2
 *   zb-v         Qi et al., Pipeline Parallelism with Controllable Memory (2024): the V-shaped schedule
 *   pipemorph    Attack of the Bubbles (NSDI '26), section 4: warm-up counts, then a list simulation
 */
#include <math.h>
#include <stdlib.h>
#include "comm/base/log.h"
#include "sched/sched.h"

/* Appends to one stage's list. */
struct writer {
    shunt__op_t *next;
};

static void put(struct writer *w, shunt_sched_type_t type, int chunk, int microbatch)
{
    *w->next++ = SHUNT__OP(type, chunk, microbatch);
}

static struct writer stage_writer(struct shunt_sched *s, int stage)
{
    return (struct writer){s->ops + s->offset[stage]};
}

static shunt_status_t build_warmup(const struct shunt_sched_profile *pr, const int *warmup,
                                   shunt_sched_kind_t kind, struct shunt_sched **schedule)
{
    struct shunt_sched *s;
    shunt_status_t st = shunt__sched_alloc_even(pr, 1, 0, kind, 0, &s);

    if (st != SHUNT_OK)
        return st;
    for (int i = 0; i < pr->p; i++) {
        struct writer w = stage_writer(s, i);
        int x = warmup[i] < pr->m ? warmup[i] : pr->m;
        for (int k = 0; k < x; k++)
            put(&w, SHUNT_SCHED_F, 0, k);
        for (int k = 0; k < pr->m; k++) {
            put(&w, SHUNT_SCHED_B, 0, k);
            if (k + x < pr->m)
                put(&w, SHUNT_SCHED_F, 0, k + x);
        }
    }
    *schedule = s;
    return SHUNT_OK;
}

shunt_status_t shunt_sched_create_warmup(const shunt_sched_profile_t *profile, const int *warmup,
                                         shunt_sched_t **schedule)
{
    if (!profile || !warmup || !schedule)
        return shunt__fail(SHUNT_ERR_INVALID, "warm-up schedule: profile, counts or result is NULL");
    if (profile->v != 1)
        return shunt__fail(SHUNT_ERR_UNSUPPORTED,
                           "warm-up counts describe schedules of one chunk; the profile has %d", profile->v);
    for (int i = 0; i < profile->p; i++) {
        if (warmup[i] < 1)
            return shunt__fail(SHUNT_ERR_INVALID, "stage %d: a warm-up of %d; at least 1 forward is needed",
                               i, warmup[i]);
        if (i > 0 && warmup[i - 1] < warmup[i] && warmup[i - 1] < profile->m)
            return shunt__fail(SHUNT_ERR_INVALID,
                               "stage %d warms up with %d forwards and stage %d with %d: it would wait for "
                               "forwards that never come",
                               i - 1, warmup[i - 1], i, warmup[i]);
    }
    return build_warmup(profile, warmup, SHUNT_SCHED_CUSTOM, schedule);
}

/* Stage i: p - i forwards; B_k, the W that lies i behind, the next F; the rest of W at the end. */
static shunt_status_t build_zbh1(const struct shunt_sched_profile *pr, struct shunt_sched **schedule)
{
    struct shunt_sched *s;
    shunt_status_t st = shunt__sched_alloc_even(pr, 1, 0, SHUNT_SCHED_ZBH1, 1, &s);

    if (st != SHUNT_OK)
        return st;
    for (int i = 0; i < pr->p; i++) {
        struct writer w = stage_writer(s, i);
        int x = pr->p - i < pr->m ? pr->p - i : pr->m, weights = 0;
        for (int k = 0; k < x; k++)
            put(&w, SHUNT_SCHED_F, 0, k);
        for (int k = 0; k < pr->m; k++) {
            put(&w, SHUNT_SCHED_I, 0, k);
            if (k >= i)
                put(&w, SHUNT_SCHED_W, 0, weights++);
            if (k + x < pr->m)
                put(&w, SHUNT_SCHED_F, 0, k + x);
        }
        while (weights < pr->m)
            put(&w, SHUNT_SCHED_W, 0, weights++);
    }
    *schedule = s;
    return SHUNT_OK;
}

/* The k-th forward of a stage in Megatron's interleaved order: p micro-batches of a chunk, then the next
 * chunk. */
static void interleaved_forward(int p, int v, int m, int k, int *chunk, int *microbatch)
{
    int group = k / (p * v), size = m - group * p < p ? m - group * p : p, at = k - group * p * v;

    *chunk = at / size;
    *microbatch = group * p + at % size;
}

static shunt_status_t build_interleaved(const struct shunt_sched_profile *pr, struct shunt_sched **schedule)
{
    int p = pr->p, v = pr->v, m = pr->m, total = m * v, chunk, mb;
    struct shunt_sched *s;
    shunt_status_t st;

    if (v > 1 && m % p != 0)
        return shunt__fail(SHUNT_ERR_UNSUPPORTED,
                           "interleaved 1F1B needs a number of micro-batches that the stages divide; "
                           "%d / %d leaves %d",
                           m, p, m % p);
    st = shunt__sched_alloc_even(pr, v, 0, SHUNT_SCHED_INTERLEAVED, 0, &s);
    if (st != SHUNT_OK)
        return st;
    for (int i = 0; i < p; i++) {
        struct writer w = stage_writer(s, i);
        int x = v == 1 ? p - i : 2 * (p - 1 - i) + (v - 1) * p + 1;
        x = x < total ? x : total;
        for (int f = 0, b = 0; b < total;) {
            if (f < total && f - b < x) {
                interleaved_forward(p, v, m, f++, &chunk, &mb);
                put(&w, SHUNT_SCHED_F, chunk, mb);
            } else {
                interleaved_forward(p, v, m, b++, &chunk, &mb);
                put(&w, SHUNT_SCHED_B, v - 1 - chunk, mb);
            }
        }
    }
    *schedule = s;
    return SHUNT_OK;
}

/* Counters of one stage of ZB-V: done[chunk][F, I, W]. Micro-batches beyond m, which short runs lack, are
 * left out. */
struct zbv {
    struct writer w;
    int m, done[2][3];
};

static void zbv_put(struct zbv *z, shunt_sched_type_t type, int chunk)
{
    int *n = &z->done[chunk][type == SHUNT_SCHED_F ? 0 : type == SHUNT_SCHED_I ? 1 : 2];

    if (*n < z->m)
        put(&z->w, type, chunk, *n);
    ++*n;
}

static shunt_status_t build_zbv(const struct shunt_sched_profile *pr, struct shunt_sched **schedule)
{
    int p = pr->p, rounds = pr->m > 2 * p - 1 ? pr->m : 2 * p - 1;
    struct shunt_sched *s;
    shunt_status_t st;

    if (pr->v != 2)
        return shunt__fail(SHUNT_ERR_UNSUPPORTED, "ZB-V places two chunks on each stage; the profile has %d",
                           pr->v);
    st = shunt__sched_alloc_even(pr, 2, 1, SHUNT_SCHED_ZBV, 1, &s);
    if (st != SHUNT_OK)
        return st;
    for (int i = 0; i < p; i++) {
        struct zbv z = {stage_writer(s, i), pr->m, {{0}}};
        for (int k = 0; k < 2 * (p - i) - 1; k++) /* down the V until the first activation comes up again */
            zbv_put(&z, SHUNT_SCHED_F, 0);
        for (int k = 0; k < i; k++) {
            zbv_put(&z, SHUNT_SCHED_F, 1);
            zbv_put(&z, SHUNT_SCHED_F, 0);
        }
        for (int k = 0; k < p - i; k++) {
            zbv_put(&z, SHUNT_SCHED_F, 1);
            zbv_put(&z, SHUNT_SCHED_I, 1);
            zbv_put(&z, SHUNT_SCHED_W, 1);
        }
        while (z.done[1][0] < z.done[0][0] || z.done[0][0] < rounds) { /* steady: both chunks in turn */
            if (z.done[0][0] < rounds)
                zbv_put(&z, SHUNT_SCHED_F, 0);
            zbv_put(&z, SHUNT_SCHED_I, 0);
            zbv_put(&z, SHUNT_SCHED_W, 0);
            zbv_put(&z, SHUNT_SCHED_F, 1);
            zbv_put(&z, SHUNT_SCHED_I, 1);
            zbv_put(&z, SHUNT_SCHED_W, 1);
        }
        for (int k = 0; k < i; k++) { /* drain: gradients first, their weights fill the end */
            zbv_put(&z, SHUNT_SCHED_I, 0);
            zbv_put(&z, SHUNT_SCHED_I, 1);
        }
        for (int k = 0; k < p - i; k++) {
            zbv_put(&z, SHUNT_SCHED_I, 0);
            zbv_put(&z, SHUNT_SCHED_W, 0);
        }
        while (z.done[1][2] < rounds)
            zbv_put(&z, SHUNT_SCHED_W, 1);
        while (z.done[0][2] < rounds)
            zbv_put(&z, SHUNT_SCHED_W, 0);
    }
    *schedule = s;
    return SHUNT_OK;
}

/* Warm-up counts of the kinds whose order a dispatch finds; live is what they allow to be alive. */
static void limits(const struct shunt_sched_profile *pr, shunt_sched_kind_t kind, int *in_flight, int *live)
{
    int p = pr->p, m = pr->m;

    for (int i = p - 1; i >= 0; i--) {
        live[i] = m;
        if (kind == SHUNT_SCHED_ZBH2)
            in_flight[i] = 2 * (p - i) - 1;
        else if (kind == SHUNT_SCHED_READY) {
            in_flight[i] = m;
            live[i] = pr->cap[i] > 0 ? pr->cap[i] : p - i;
        } else if (i == p - 1)
            in_flight[i] = 1;
        else {
            double own = pr->forward[i] + pr->backward[i], next = pr->forward[i + 1] + pr->backward[i + 1];
            double trip = pr->latency[SHUNT__DOWN][i] + pr->latency[SHUNT__UP][i] +
                          pr->service[SHUNT__DOWN][i] + pr->service[SHUNT__UP][i];
            double slack = next > 0 ? fmax(ceil((own + trip) / next - 1e-9), 2) : 2;
            slack = fmin(slack, fmax(m - 2 * p, 2));
            in_flight[i] = in_flight[i + 1] + (int)slack;
        }
        in_flight[i] = in_flight[i] < m ? in_flight[i] : m;
    }
}

static shunt_status_t build_dispatched(const struct shunt_sched_profile *pr, shunt_sched_kind_t kind,
                                       struct shunt_sched **schedule)
{
    int *in_flight = malloc(2 * (size_t)pr->p * sizeof(int)), split = shunt__sched_has_weight(pr);
    struct shunt_sched_profile *healthy = NULL;
    shunt_status_t st = SHUNT_OK;

    if (!in_flight)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a schedule");
    int *live = in_flight + pr->p;
    limits(pr, kind, in_flight, live);
    if (kind == SHUNT_SCHED_ZBH2) { /* its order knows nothing of delays */
        st = shunt_sched_profile_copy(pr, &healthy);
        for (int i = 0; i < pr->p && st == SHUNT_OK; i++)
            st = shunt_sched_profile_set_link(healthy, i, 0, 0, 0, 0);
        pr = healthy;
    }
    struct shunt__dispatch rule = {in_flight, live, split, SHUNT__BACKWARD_FIRST, 0, 0, NULL};
    if (st == SHUNT_OK)
        st = shunt__sched_dispatch(pr, &rule, schedule, NULL);
    shunt_sched_profile_destroy(healthy);
    free(in_flight);
    if (st == SHUNT_OK)
        (*schedule)->kind = kind;
    return st;
}

static shunt_status_t build_counted(const struct shunt_sched_profile *pr, shunt_sched_kind_t kind,
                                    struct shunt_sched **schedule)
{
    int *warmup = malloc((size_t)pr->p * sizeof(int));
    shunt_status_t st;

    if (!warmup)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a schedule");
    if (kind == SHUNT_SCHED_ADAPTED)
        shunt_sched_adapted_warmup(pr, warmup);
    else
        for (int i = 0; i < pr->p; i++)
            warmup[i] = kind == SHUNT_SCHED_GPIPE ? pr->m : pr->p - i;
    st = build_warmup(pr, warmup, kind, schedule);
    free(warmup);
    return st;
}

shunt_status_t shunt_sched_create(const shunt_sched_profile_t *profile, shunt_sched_kind_t kind,
                                  shunt_sched_t **schedule)
{
    if (!profile || !schedule)
        return shunt__fail(SHUNT_ERR_INVALID, "schedule: the profile or the output pointer is NULL");
    if (profile->v != 1 && kind != SHUNT_SCHED_INTERLEAVED && kind != SHUNT_SCHED_ZBV)
        return shunt__fail(SHUNT_ERR_UNSUPPORTED,
                           "%s has one chunk per stage, the profile has %d; interleaved and zb-v take "
                           "chunks",
                           shunt_sched_kind_name(kind), profile->v);
    if (shunt_sched_kind_is_split(kind) && !shunt__sched_has_weight(profile))
        return shunt__fail(SHUNT_ERR_INVALID,
                           "%s splits the backward, but the profile gives no weight gradient times",
                           shunt_sched_kind_name(kind));
    switch (kind) {
    case SHUNT_SCHED_GPIPE:
    case SHUNT_SCHED_1F1B:
    case SHUNT_SCHED_ADAPTED:
        return build_counted(profile, kind, schedule);
    case SHUNT_SCHED_ZBH1:
        return build_zbh1(profile, schedule);
    case SHUNT_SCHED_ZBV:
        return build_zbv(profile, schedule);
    case SHUNT_SCHED_INTERLEAVED:
        return build_interleaved(profile, schedule);
    case SHUNT_SCHED_ZBH2:
    case SHUNT_SCHED_PIPEMORPH:
    case SHUNT_SCHED_READY:
        return build_dispatched(profile, kind, schedule);
    case SHUNT_SCHED_PLANNED:
    case SHUNT_SCHED_CUSTOM:
        break;
    }
    return shunt__fail(SHUNT_ERR_INVALID, "a schedule of kind %d can't be built from a profile alone",
                       (int)kind);
}
