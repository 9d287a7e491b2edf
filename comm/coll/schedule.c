/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include "comm/coll/hello.h"
#include "comm/coll/schedule.h"

#define COPY_PART (256 * 1024)

/* Makes room for one more in an array that doubles. */
static int grow(void *array, uint32_t n, uint32_t *cap, size_t width)
{
    void **p = array, *bigger;
    uint32_t want = *cap ? *cap * 2 : 16;

    if (n < *cap)
        return 1;
    bigger = realloc(*p, want * width);
    if (!bigger)
        return 0;
    *p = bigger;
    *cap = want;
    return 1;
}

struct shunt__schedule *shunt__schedule_new(int size)
{
    struct shunt__schedule *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->refs = 1;
    s->size = size;
    for (int i = 0; i < 2; i++) {
        s->last[i] = malloc((size_t)size * sizeof(*s->last[i]));
        if (!s->last[i]) {
            shunt__schedule_put(s);
            return NULL;
        }
        memset(s->last[i], -1, (size_t)size * sizeof(*s->last[i]));
    }
    return s;
}

void shunt__schedule_put(struct shunt__schedule *s)
{
    if (!s || --s->refs > 0)
        return;
    free(s->steps);
    free(s->sources);
    free(s->edges);
    free(s->nexts);
    free(s->lane_first);
    free(s->last[0]);
    free(s->last[1]);
    free(s);
}

shunt__place_t shunt__schedule_work(struct shunt__schedule *s, size_t bytes)
{
    size_t at = s->work;

    s->work += (bytes + 63) & ~(size_t)63;
    return SHUNT__WORK + at;
}

int shunt__step_after(struct shunt__schedule *s, int step, int before)
{
    if (before < 0 || step < 0 || s->failed)
        return step;
    if (!grow(&s->edges, s->n_edges, &s->cap_edges, sizeof(*s->edges))) {
        s->failed = 1;
        return step;
    }
    s->edges[s->n_edges++] = (struct shunt__edge){(uint32_t)before, (uint32_t)step};
    s->steps[step].needs++;
    return step;
}

static int add(struct shunt__schedule *s, const struct shunt__step *step, int after)
{
    if (s->failed || !grow(&s->steps, s->n_steps, &s->cap_steps, sizeof(*s->steps))) {
        s->failed = 1;
        return SHUNT__NOW;
    }
    s->steps[s->n_steps] = *step;
    s->steps[s->n_steps].next_in_lane = -1;
    return shunt__step_after(s, (int)s->n_steps++, after);
}

/* Appends a send or receive to the lane of its peer. */
static int add_message(struct shunt__schedule *s, struct shunt__step *step, int after)
{
    int32_t *last = &s->last[step->kind == SHUNT__STEP_RECV][step->peer];
    int id;

    step->op = s->n_ops++;
    if (*last < 0)
        step->lane = s->n_lanes++;
    else
        step->lane = s->steps[*last].lane;
    if (step->hello) {
        step->slot = s->slots;
        s->slots += (SHUNT__SLOT_BYTES(step->bytes) + 63) & ~(size_t)63;
    }
    id = add(s, step, after);
    if (id >= 0 && *last >= 0)
        s->steps[*last].next_in_lane = id;
    *last = id;
    return id;
}

static int message(struct shunt__schedule *s, struct shunt__step *step, int after)
{
    if (!s->failed && s->last[step->kind == SHUNT__STEP_RECV][step->peer] < 0) {
        if (step->bytes <= SHUNT__INLINE_BYTES) {
            step->hello = SHUNT__HELLO_INLINE;
        } else {
            struct shunt__step alone = {.kind = step->kind, .hello = SHUNT__HELLO_ALONE, .peer = step->peer};

            add_message(s, &alone, SHUNT__NOW);
        }
    }
    return add_message(s, step, after);
}

int shunt__step_send(struct shunt__schedule *s, shunt__place_t from, size_t bytes, int peer, int after)
{
    struct shunt__step step = {.kind = SHUNT__STEP_SEND, .peer = peer, .a = from, .bytes = bytes};

    return message(s, &step, after);
}

int shunt__step_recv(struct shunt__schedule *s, shunt__place_t to, size_t bytes, int peer, int after)
{
    struct shunt__step step = {.kind = SHUNT__STEP_RECV, .peer = peer, .dst = to, .bytes = bytes};

    return message(s, &step, after);
}

int shunt__step_reduce_n(struct shunt__schedule *s, shunt__place_t dst, const shunt__place_t *sources, int n,
                         size_t bytes, int after)
{
    struct shunt__step step = {.kind = SHUNT__STEP_REDUCE, .n_sources = (uint16_t)n, .peer = -1, .dst = dst,
                               .bytes = bytes, .first_source = s->n_sources};

    if ((uint32_t)n > s->most_sources)
        s->most_sources = (uint32_t)n;
    for (int i = 0; i < n; i++) {
        if (!grow(&s->sources, s->n_sources, &s->cap_sources, sizeof(*s->sources))) {
            s->failed = 1;
            return SHUNT__NOW;
        }
        s->sources[s->n_sources++] = sources[i];
    }
    return add(s, &step, after);
}

int shunt__step_reduce(struct shunt__schedule *s, shunt__place_t dst, shunt__place_t a, shunt__place_t b,
                       size_t bytes, int after)
{
    shunt__place_t sources[2] = {a, b};

    return shunt__step_reduce_n(s, dst, sources, 2, bytes, after);
}

int shunt__step_copy(struct shunt__schedule *s, shunt__place_t dst, shunt__place_t from, size_t bytes, int after)
{
    struct shunt__step step = {.kind = SHUNT__STEP_COPY, .peer = -1, .dst = dst, .a = from, .bytes = bytes};

    return add(s, &step, after);
}

int shunt__step_join(struct shunt__schedule *s)
{
    struct shunt__step step = {.kind = SHUNT__STEP_JOIN, .peer = -1};

    return add(s, &step, SHUNT__NOW);
}

void shunt__step_copy_parts(struct shunt__schedule *s, shunt__place_t dst, shunt__place_t from, size_t bytes,
                            int after)
{
    for (size_t at = 0; at < bytes; at += COPY_PART)
        shunt__step_copy(s, dst + at, from + at, shunt__min(COPY_PART, bytes - at), after);
}

int shunt__schedule_seal(struct shunt__schedule *s)
{
    uint32_t at = 0;

    if (!s->failed) {
        s->nexts = malloc((s->n_edges + 1) * sizeof(*s->nexts));
        s->lane_first = malloc((s->n_lanes + 1) * sizeof(*s->lane_first));
    }
    if (s->failed || !s->nexts || !s->lane_first) {
        s->failed = 1;
        return 0;
    }
    for (uint32_t i = 0; i < s->n_edges; i++)
        s->steps[s->edges[i].from].n_next++;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        s->steps[i].first_next = at;
        at += s->steps[i].n_next;
        s->steps[i].n_next = 0;
    }
    for (uint32_t i = 0; i < s->n_edges; i++) {
        struct shunt__step *from = &s->steps[s->edges[i].from];

        s->nexts[from->first_next + from->n_next++] = s->edges[i].to;
    }
    memset(s->lane_first, -1, (s->n_lanes + 1) * sizeof(*s->lane_first));
    for (uint32_t i = 0; i < s->n_steps; i++)
        if (s->steps[i].kind <= SHUNT__STEP_RECV && s->lane_first[s->steps[i].lane] < 0)
            s->lane_first[s->steps[i].lane] = (int32_t)i;
    free(s->edges);
    free(s->last[0]);
    free(s->last[1]);
    s->edges = NULL;
    s->last[0] = s->last[1] = NULL;
    return 1;
}
