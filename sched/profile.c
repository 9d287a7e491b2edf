/* SPDX-License-Identifier: BSD-3-Clause */
/* The profile: what a planner may know about stages and links. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/sched.h"

shunt_status_t shunt_sched_profile_create(int stages, int chunks, int microbatches,
                                          shunt_sched_profile_t **profile)
{
    struct shunt_sched_profile *pr;
    size_t n;

    if (!profile)
        return shunt__fail(SHUNT_ERR_INVALID, "profile: the output pointer is NULL");
    if (stages < 1 || stages > SHUNT_SCHED_MAX_STAGES)
        return shunt__fail(SHUNT_ERR_INVALID, "%d stages: expected 1 to %d", stages, SHUNT_SCHED_MAX_STAGES);
    if (chunks < 1 || chunks > SHUNT_SCHED_MAX_CHUNKS)
        return shunt__fail(SHUNT_ERR_INVALID, "%d chunks per stage: expected 1 to %d", chunks,
                           SHUNT_SCHED_MAX_CHUNKS);
    if (microbatches < 1 || microbatches > SHUNT_SCHED_MAX_MICROBATCHES)
        return shunt__fail(SHUNT_ERR_INVALID, "%d micro-batches: expected 1 to %d", microbatches,
                           SHUNT_SCHED_MAX_MICROBATCHES);
    n = (size_t)stages * (size_t)chunks;
    pr = calloc(1, sizeof(*pr));
    double *times = calloc(3 * n + 4 * (size_t)stages, sizeof(double));
    int *cap = calloc((size_t)stages, sizeof(int));
    if (!pr || !times || !cap) {
        free(pr);
        free(times);
        free(cap);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a profile of %d stages", stages);
    }
    pr->p = stages;
    pr->v = chunks;
    pr->m = microbatches;
    pr->forward = times;
    pr->backward = times + n;
    pr->weight = times + 2 * n;
    for (int d = 0; d < 2; d++) {
        pr->latency[d] = times + 3 * n + (size_t)d * (size_t)stages;
        pr->service[d] = times + 3 * n + (size_t)(2 + d) * (size_t)stages;
    }
    pr->cap = cap;
    *profile = pr;
    return SHUNT_OK;
}

shunt_status_t shunt_sched_profile_copy(const shunt_sched_profile_t *profile, shunt_sched_profile_t **copy)
{
    struct shunt_sched_profile *pr;
    shunt_status_t st;

    if (!profile || !copy)
        return shunt__fail(SHUNT_ERR_INVALID, "profile to copy, or where to, is NULL");
    st = shunt_sched_profile_create(profile->p, profile->v, profile->m, &pr);
    if (st != SHUNT_OK)
        return st;
    size_t p = (size_t)profile->p;
    memcpy(pr->forward, profile->forward, (3 * p * (size_t)profile->v + 4 * p) * sizeof(double));
    memcpy(pr->cap, profile->cap, p * sizeof(int));
    *copy = pr;
    return SHUNT_OK;
}

void shunt_sched_profile_destroy(shunt_sched_profile_t *profile)
{
    if (!profile)
        return;
    free(profile->forward); /* the other times are behind it */
    free(profile->cap);
    free(profile);
}

static shunt_status_t good_time(double time, const char *what, int where)
{
    if (isfinite(time) && time >= 0 && time < 1e15)
        return SHUNT_OK;
    return shunt__fail(SHUNT_ERR_INVALID, "%s %d: a time of %g; times are finite and not negative", what,
                       where, time);
}

shunt_status_t shunt_sched_profile_set_chunk(shunt_sched_profile_t *profile, int stage, int chunk,
                                             double forward, double backward, double weight)
{
    if (!profile || stage < 0 || stage >= profile->p || chunk < 0 || chunk >= profile->v)
        return shunt__fail(SHUNT_ERR_INVALID, "no stage %d with chunk %d in this profile", stage, chunk);
    if (good_time(forward, "forward of stage", stage) != SHUNT_OK ||
        good_time(backward, "backward of stage", stage) != SHUNT_OK ||
        good_time(weight, "weight gradient of stage", stage) != SHUNT_OK)
        return SHUNT_ERR_INVALID;
    profile->forward[stage * profile->v + chunk] = forward;
    profile->backward[stage * profile->v + chunk] = backward;
    profile->weight[stage * profile->v + chunk] = weight;
    return SHUNT_OK;
}

shunt_status_t shunt_sched_profile_set_stage(shunt_sched_profile_t *profile, int stage, double forward,
                                             double backward, double weight)
{
    int v = profile ? profile->v : 1;

    for (int c = 0; c < v; c++) {
        shunt_status_t st = shunt_sched_profile_set_chunk(profile, stage, c, forward / v, backward / v,
                                                          weight / v);
        if (st != SHUNT_OK)
            return st;
    }
    return SHUNT_OK;
}

shunt_status_t shunt_sched_profile_set_link(shunt_sched_profile_t *profile, int link, double latency_down,
                                            double latency_up, double service_down, double service_up)
{
    if (!profile || link < 0 || link >= profile->p)
        return shunt__fail(SHUNT_ERR_INVALID,
                           "no link %d: link i joins stage i and stage i + 1, %d is the last", link,
                           profile ? profile->p - 1 : 0);
    if (good_time(latency_down, "latency of link", link) != SHUNT_OK ||
        good_time(latency_up, "latency of link", link) != SHUNT_OK ||
        good_time(service_down, "service time of link", link) != SHUNT_OK ||
        good_time(service_up, "service time of link", link) != SHUNT_OK)
        return SHUNT_ERR_INVALID;
    profile->latency[SHUNT__DOWN][link] = latency_down;
    profile->latency[SHUNT__UP][link] = latency_up;
    profile->service[SHUNT__DOWN][link] = service_down;
    profile->service[SHUNT__UP][link] = service_up;
    return SHUNT_OK;
}

shunt_status_t shunt_sched_profile_set_cap(shunt_sched_profile_t *profile, int stage, int cap)
{
    if (!profile || stage < 0 || stage >= profile->p)
        return shunt__fail(SHUNT_ERR_INVALID, "no stage %d in this profile", stage);
    if (cap < 0)
        return shunt__fail(SHUNT_ERR_INVALID,
                           "stage %d: a cap of %d live micro-batches; expected 1 or more, or 0 for no cap",
                           stage, cap);
    profile->cap[stage] = cap;
    return SHUNT_OK;
}

int shunt_sched_profile_stages(const shunt_sched_profile_t *profile)
{
    return profile ? profile->p : 0;
}

int shunt_sched_profile_chunks(const shunt_sched_profile_t *profile)
{
    return profile ? profile->v : 0;
}

int shunt_sched_profile_microbatches(const shunt_sched_profile_t *profile)
{
    return profile ? profile->m : 0;
}

void shunt_sched_profile_get_stage(const shunt_sched_profile_t *profile, int stage, double *forward,
                                   double *backward, double *weight)
{
    double f = 0, b = 0, w = 0;

    if (!profile || stage < 0 || stage >= profile->p)
        return;
    for (int k = stage * profile->v; k < (stage + 1) * profile->v; k++) {
        f += profile->forward[k];
        b += profile->backward[k];
        w += profile->weight[k];
    }
    if (forward)
        *forward = f;
    if (backward)
        *backward = b;
    if (weight)
        *weight = w;
}

void shunt_sched_profile_get_link(const shunt_sched_profile_t *profile, int link, double *latency_down,
                                  double *latency_up, double *service_down, double *service_up)
{
    if (!profile || link < 0 || link >= profile->p)
        return;
    if (latency_down)
        *latency_down = profile->latency[SHUNT__DOWN][link];
    if (latency_up)
        *latency_up = profile->latency[SHUNT__UP][link];
    if (service_down)
        *service_down = profile->service[SHUNT__DOWN][link];
    if (service_up)
        *service_up = profile->service[SHUNT__UP][link];
}

int shunt_sched_profile_get_cap(const shunt_sched_profile_t *profile, int stage)
{
    return profile && stage >= 0 && stage < profile->p ? profile->cap[stage] : 0;
}

int shunt__sched_has_weight(const struct shunt_sched_profile *profile)
{
    for (int k = 0; k < profile->p * profile->v; k++)
        if (profile->weight[k] > 0)
            return 1;
    return 0;
}
