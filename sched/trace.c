/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traces in Chrome's form: written from a simulation, read from a run.
 *
 * A profile is read off a run without synchronised clocks: durations are per stage, and of a link only the
 * sum of its two directions is used. For each message the wait between its operation's end and the receiver's
 * start is at least the delay; the smallest over all messages is the delay itself, plus the clocks'
 * difference, which cancels in the sum.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/json.h"
#include "sched/sched.h"

shunt_status_t shunt_sched_result_write_trace(const shunt_sched_result_t *result, double us, FILE *out)
{
    if (!result || !out || !result->starts)
        return shunt__fail(SHUNT_ERR_INVALID,
                           "trace: the result has no timeline; simulate with SHUNT_SCHED_TIMELINE");
    if (!(us > 0) || !isfinite(us))
        return shunt__fail(SHUNT_ERR_INVALID, "trace: %g microseconds per unit of time", us);
    fprintf(out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    for (int i = 0; i < result->p; i++)
        fprintf(out,
                "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 0, \"tid\": %d, \"args\": {\"name\": "
                "\"stage %d\"}},\n",
                i, i);
    for (int i = 0; i < result->p; i++)
        for (size_t k = result->offset[i]; k < result->offset[i + 1]; k++) {
            shunt__op_t op = result->ops[k];
            char letter = shunt__sched_letter(SHUNT__OP_TYPE(op));
            fprintf(out,
                    "{\"name\": \"%c%d\", \"cat\": \"%c\", \"ph\": \"X\", \"ts\": %.3f, \"dur\": %.3f, "
                    "\"pid\": 0, \"tid\": %d, "
                    "\"args\": {\"stage\": %d, \"chunk\": %d, \"microbatch\": %d}}%s\n",
                    letter, SHUNT__OP_MICROBATCH(op), letter, result->starts[k] * us,
                    result->durations[i * result->v * 4 + (int)(op & 0xff)] * us, i, i, SHUNT__OP_CHUNK(op),
                    SHUNT__OP_MICROBATCH(op),
                    i + 1 == result->p && k + 1 == result->offset[i + 1] ? "" : ",");
        }
    fprintf(out, "]}\n");
    if (fflush(out) != 0 || ferror(out))
        return shunt__fail(SHUNT_ERR_SYSTEM, "the trace could not be written");
    return SHUNT_OK;
}

struct event {
    double step, start, duration;
    int stage, chunk, type, microbatch;
};

struct events {
    struct event *all;
    size_t n, room;
};

/* A whole number below the limit; others become -1. */
static int whole(double x, int limit)
{
    return x >= 0 && x < limit && x == (int)x ? (int)x : -1;
}

static void read_args(struct shunt__json *json, struct event *e)
{
    char key[24], text[8];
    int first = 1;
    double n;

    if (!shunt__json_enter(json, '{')) {
        shunt__json_skip(json);
        return;
    }
    while (shunt__json_next(json, '{', &first, key, sizeof(key))) {
        if (strcmp(key, "type") == 0 && shunt__json_string(json, text, sizeof(text)))
            e->type = *text && strchr("FBIW", *text) && !text[1] ? (int)(strchr("FBIW", *text) - "FBIW") : -1;
        else if (!shunt__json_number(json, &n))
            shunt__json_skip(json);
        else if (strcmp(key, "stage") == 0)
            e->stage = whole(n, SHUNT_SCHED_MAX_STAGES);
        else if (strcmp(key, "chunk") == 0)
            e->chunk = whole(n, SHUNT_SCHED_MAX_CHUNKS);
        else if (strcmp(key, "microbatch") == 0)
            e->microbatch = whole(n, SHUNT_SCHED_MAX_MICROBATCHES);
        else if (strcmp(key, "step") == 0)
            e->step = n;
    }
}

/* "F3" or "F3.1": what the args did not say is taken from the name. */
static void read_name(const char *name, struct event *e)
{
    const char *types = "FBIW", *type = *name ? strchr(types, *name) : NULL;
    char *end;

    if (!type || name[1] < '0' || name[1] > '9')
        return;
    long mb = strtol(name + 1, &end, 10), chunk = *end == '.' ? strtol(end + 1, &end, 10) : 0;
    if (*end || mb >= SHUNT_SCHED_MAX_MICROBATCHES || chunk < 0 || chunk >= SHUNT_SCHED_MAX_CHUNKS)
        return;
    if (e->type < 0)
        e->type = (int)(type - types);
    if (e->microbatch < 0)
        e->microbatch = (int)mb;
    if (e->chunk < 0)
        e->chunk = (int)chunk;
}

/* Reads one event; keeps it if it is an operation of a stage. */
static shunt_status_t read_event(struct shunt__json *json, struct events *events)
{
    struct event e = {0, NAN, NAN, -1, -1, -1, -1};
    char key[24], name[32] = "", phase[4] = "";
    double tid = -1;
    int first = 1;

    if (!shunt__json_enter(json, '{'))
        return shunt__fail(SHUNT_ERR_FORMAT, "line %d: an event is an object", shunt__json_line(json));
    while (shunt__json_next(json, '{', &first, key, sizeof(key))) {
        if (strcmp(key, "args") == 0)
            read_args(json, &e);
        else if ((strcmp(key, "name") == 0 && shunt__json_string(json, name, sizeof(name))) ||
                 (strcmp(key, "ph") == 0 && shunt__json_string(json, phase, sizeof(phase))) ||
                 (strcmp(key, "ts") == 0 && shunt__json_number(json, &e.start)) ||
                 (strcmp(key, "dur") == 0 && shunt__json_number(json, &e.duration)) ||
                 (strcmp(key, "tid") == 0 && shunt__json_number(json, &tid)))
            continue;
        else
            shunt__json_skip(json);
    }
    if (json->bad)
        return shunt__fail(SHUNT_ERR_FORMAT, "line %d: this is not JSON", shunt__json_line(json));
    read_name(name, &e);
    if (e.stage < 0)
        e.stage = whole(tid, SHUNT_SCHED_MAX_STAGES);
    if (e.chunk < 0)
        e.chunk = 0;
    if (strcmp(phase, "X") != 0 || e.type < 0 || e.microbatch < 0 || e.stage < 0)
        return SHUNT_OK;
    if (!(e.duration >= 0) || !(fabs(e.start) < 1e15) || e.duration > 1e12)
        return shunt__fail(SHUNT_ERR_FORMAT, "line %d: %s of stage %d has no usable ts and dur",
                           shunt__json_line(json), name, e.stage);
    if (events->n == events->room) {
        size_t room = events->room ? 2 * events->room : 256;
        struct event *more = realloc(events->all, room * sizeof(*more));
        if (!more)
            return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a trace of %zu events", events->n);
        events->all = more;
        events->room = room;
    }
    events->all[events->n++] = e;
    return SHUNT_OK;
}

static shunt_status_t read_events(struct shunt__json *json, struct events *events)
{
    char key[24];
    int first = 1, inner = 1;
    shunt_status_t st = SHUNT_OK;

    if (shunt__json_peek(json) == '{') { /* the object form; the array may stand alone too */
        shunt__json_enter(json, '{');
        while (shunt__json_next(json, '{', &first, key, sizeof(key))) {
            if (strcmp(key, "traceEvents") == 0)
                break;
            shunt__json_skip(json);
        }
    }
    if (!shunt__json_enter(json, '['))
        return shunt__fail(SHUNT_ERR_FORMAT, "line %d: no array of traceEvents here", shunt__json_line(json));
    while (st == SHUNT_OK && shunt__json_next(json, '[', &inner, NULL, 0))
        st = read_event(json, events);
    if (st == SHUNT_OK && json->bad)
        st = shunt__fail(SHUNT_ERR_FORMAT, "line %d: this is not JSON", shunt__json_line(json));
    if (st == SHUNT_OK && events->n == 0)
        st = shunt__fail(
            SHUNT_ERR_FORMAT,
            "the trace holds no operations: complete events with a stage and a micro-batch, such as "
            "F0 with tid 0");
    return st;
}

static int by_stage_and_start(const void *a, const void *b)
{
    const struct event *x = a, *y = b;

    if (x->stage != y->stage)
        return x->stage - y->stage;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Keeps the last step of which every stage of the trace has as many operations as in the step before, or the
 * only one. */
static void last_step(struct events *events)
{
    double last = -INFINITY, before = -INFINITY;
    size_t n = 0, in_last = 0, in_before = 0;

    for (size_t k = 0; k < events->n; k++)
        last = fmax(last, events->all[k].step);
    for (size_t k = 0; k < events->n; k++)
        if (events->all[k].step < last)
            before = fmax(before, events->all[k].step);
    for (size_t k = 0; k < events->n; k++) {
        in_last += events->all[k].step == last;
        in_before += events->all[k].step == before;
    }
    if (in_last < in_before)
        last = before;
    for (size_t k = 0; k < events->n; k++)
        if (events->all[k].step == last)
            events->all[n++] = events->all[k];
    events->n = n;
}

static shunt_status_t make_schedule(const struct events *events, struct shunt_sched **schedule)
{
    int p = 0, v = 0, m = 0, *counts;
    shunt_sched_op_t *ops = malloc(events->n * sizeof(*ops));
    shunt_status_t st;

    for (size_t k = 0; k < events->n; k++) {
        const struct event *e = &events->all[k];
        p = e->stage >= p ? e->stage + 1 : p;
        v = e->chunk >= v ? e->chunk + 1 : v;
        m = e->microbatch >= m ? e->microbatch + 1 : m;
        if (ops)
            ops[k] = (shunt_sched_op_t){(shunt_sched_type_t)e->type, e->chunk, e->microbatch};
    }
    counts = calloc((size_t)p, sizeof(int));
    if (!ops || !counts)
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a trace");
    else {
        for (size_t k = 0; k < events->n; k++)
            counts[events->all[k].stage]++;
        st = shunt_sched_create_custom(p, v, m, 0, counts, ops, schedule);
        if (st == SHUNT_ERR_FORMAT && v == 2) /* a V leaves no trace of itself but the order */
            st = shunt_sched_create_custom(p, v, m, 1, counts, ops, schedule);
    }
    free(ops);
    free(counts);
    return st == SHUNT_ERR_INVALID ? SHUNT_ERR_FORMAT : st;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Median duration of a type of a stage's chunk; `from` to `to` are the stage's events. */
static double median(const struct event *from, const struct event *to, int chunk, int type, double *room)
{
    size_t n = 0;

    for (; from < to; from++)
        if (from->chunk == chunk && from->type == type)
            room[n++] = from->duration;
    if (n == 0)
        return 0;
    qsort(room, n, sizeof(*room), by_value);
    return n & 1 ? room[n / 2] : (room[n / 2 - 1] + room[n / 2]) / 2;
}

/* Start of an operation that waited for its message, less the end of the one that sent it: the smallest on
 * each link. */
static void link_delays(const struct shunt_sched *s, const struct event *const *of,
                        struct shunt_sched_profile *pr, double *gap)
{
    int positions = s->p * s->v;

    for (int k = 0; k < 2 * s->p; k++)
        gap[k] = INFINITY;
    for (int at = 0; at + 1 < positions; at++)
        for (int back = 0; back < 2; back++) {
            struct shunt__hop hop = shunt__sched_hop(pr, s->vee, back ? at + 1 : at, back);
            for (int mb = 0; mb < s->m && hop.queue >= 0; mb++) {
                const struct event *x = of[(back * positions + (back ? at + 1 : at)) * s->m + mb];
                const struct event *y = of[(back * positions + (back ? at : at + 1)) * s->m + mb];
                if (x && y)
                    gap[hop.queue] = fmin(gap[hop.queue], y->start - x->start - x->duration);
            }
        }
    for (int i = 0; i < s->p; i++) {
        double both = gap[2 * i] + gap[2 * i + 1], each = both < INFINITY && both > 0 ? both / 2 : 0;
        pr->latency[SHUNT__DOWN][i] = pr->latency[SHUNT__UP][i] = each;
    }
}

static shunt_status_t make_profile(const struct events *events, const struct shunt_sched *s,
                                   struct shunt_sched_profile **profile)
{
    size_t cells = 2 * (size_t)s->p * (size_t)s->v * (size_t)s->m, at = 0;
    double *room = malloc((events->n + 2 * (size_t)s->p) * sizeof(double));
    const struct event **of = calloc(cells, sizeof(*of));
    struct shunt_sched_profile *pr = NULL;
    shunt_status_t st = shunt_sched_profile_create(s->p, s->v, s->m, &pr);

    if (st == SHUNT_OK && (!room || !of))
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for a trace");
    for (int i = 0; i < s->p && st == SHUNT_OK; i++) {
        size_t end = at;
        while (end < events->n && events->all[end].stage == i) {
            const struct event *e = &events->all[end++];
            if (e->type != SHUNT_SCHED_W)
                of[((e->type != SHUNT_SCHED_F) * s->p * s->v +
                    shunt__sched_position(s->p, s->vee, i, e->chunk)) *
                       s->m +
                   e->microbatch] = e;
        }
        const struct event *from = events->all + at, *to = events->all + end;
        for (int c = 0; c < s->v && st == SHUNT_OK; c++) {
            double b = median(from, to, c, SHUNT_SCHED_B, room),
                   input = median(from, to, c, SHUNT_SCHED_I, room);
            double w = median(from, to, c, SHUNT_SCHED_W, room);
            st = shunt_sched_profile_set_chunk(pr, i, c, median(from, to, c, SHUNT_SCHED_F, room),
                                               input > 0 ? input : b, w);
        }
        at = end;
    }
    if (st == SHUNT_OK)
        link_delays(s, of, pr, room);
    free(room);
    free(of);
    if (st != SHUNT_OK) {
        shunt_sched_profile_destroy(pr);
        return st;
    }
    *profile = pr;
    return SHUNT_OK;
}

shunt_status_t shunt_sched_trace_read(const char *text, size_t size, shunt_sched_t **schedule,
                                      shunt_sched_profile_t **profile, double *makespan)
{
    struct events events = {NULL, 0, 0};
    struct shunt__json json;
    struct shunt_sched *s = NULL;
    struct shunt_sched_profile *pr = NULL;
    double from = INFINITY, to = -INFINITY;

    if (!text)
        return shunt__fail(SHUNT_ERR_INVALID, "trace: the text is NULL");
    shunt__json_open(&json, text, size);
    shunt_status_t st = read_events(&json, &events);
    if (st == SHUNT_OK) {
        last_step(&events);
        qsort(events.all, events.n, sizeof(events.all[0]), by_stage_and_start);
        st = make_schedule(&events, &s);
    }
    if (st == SHUNT_OK)
        st = make_profile(&events, s, &pr);
    for (size_t k = 0; k < events.n; k++) {
        from = fmin(from, events.all[k].start);
        to = fmax(to, events.all[k].start + events.all[k].duration);
    }
    free(events.all);
    if (st == SHUNT_OK && schedule)
        *schedule = s;
    else
        shunt_sched_destroy(s);
    if (st == SHUNT_OK && profile)
        *profile = pr;
    else
        shunt_sched_profile_destroy(pr);
    if (st == SHUNT_OK && makespan)
        *makespan = to - from;
    return st;
}
