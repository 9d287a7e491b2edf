/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From measured profiles to plan changes.
 *
 * The profile that is believed changes an entry at a time: when two iterations in a row measured something
 * else, in the same direction, it takes the nearer of the two, so that a single late iteration moves nothing.
 * Only then a plan is made, and only a plan that gains enough replaces the one that holds. All of it depends
 * on the vectors alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/sched.h"

struct shunt_sched_adapt {
    shunt_sched_adapt_params_t params;
    struct shunt_sched_profile *believed;
    struct shunt_sched *schedule;
    double predicted; /* of schedule under believed */
    double *before;   /* the last vector; NULL until there is one */
    int *since;       /* per entry: the step at which it left what is believed, or -1 */
    int n, calm, lean,
        quiet; /* lean: a plan with less memory does as well now; quiet: for how many iterations it has */
    double error_sum;
    int error_count;
    char text[512];
};

/* Layout of a vector: forward, backward, weight per stage and chunk, then latency, service down, service up
 * per link. */
enum { LATENCY = 3, SERVICE_DOWN, SERVICE_UP, N_GROUPS };

static int group_start(const struct shunt_sched_profile *pr, int group)
{
    int cells = pr->p * pr->v;

    return group < LATENCY ? group * cells : 3 * cells + (group - LATENCY) * pr->p;
}

static int group_of(const struct shunt_sched_profile *pr, int entry, int *at)
{
    int group = N_GROUPS - 1;

    while (entry < group_start(pr, group))
        group--;
    *at = entry - group_start(pr, group);
    return group;
}

static double get(const struct shunt_sched_profile *pr, int entry)
{
    int at, group = group_of(pr, entry, &at);

    switch (group) {
    case 0:
        return pr->forward[at];
    case 1:
        return pr->backward[at];
    case 2:
        return pr->weight[at];
    case LATENCY:
        return (pr->latency[SHUNT__DOWN][at] + pr->latency[SHUNT__UP][at]) / 2;
    case SERVICE_DOWN:
        return pr->service[SHUNT__DOWN][at];
    default:
        return pr->service[SHUNT__UP][at];
    }
}

static void set(struct shunt_sched_profile *pr, int entry, double value)
{
    int at, group = group_of(pr, entry, &at);

    if (group < LATENCY)
        (group == 0 ? pr->forward : group == 1 ? pr->backward : pr->weight)[at] = value;
    else if (group == LATENCY)
        pr->latency[SHUNT__DOWN][at] = pr->latency[SHUNT__UP][at] = value;
    else
        pr->service[group == SERVICE_DOWN ? SHUNT__DOWN : SHUNT__UP][at] = value;
}

void shunt_sched_adapt_destroy(shunt_sched_adapt_t *adapt)
{
    if (!adapt)
        return;
    shunt_sched_profile_destroy(adapt->believed);
    shunt_sched_destroy(adapt->schedule);
    free(adapt->before);
    free(adapt->since);
    free(adapt);
}

/* Takes over a profile with a plan of its own. */
static shunt_status_t start_over(struct shunt_sched_adapt *a, const struct shunt_sched_profile *profile)
{
    shunt_sched_plan_params_t params = {sizeof(params), a->params.flags, a->params.effort, a->params.thrift};
    struct shunt_sched_profile *pr = NULL;
    struct shunt_sched *s = NULL;
    shunt_sched_plan_t *plan = NULL;
    int n = 3 * profile->p * profile->v + 3 * profile->p, *since = malloc((size_t)n * sizeof(int));
    shunt_status_t st = shunt_sched_profile_copy(profile, &pr);

    if (st == SHUNT_OK)
        st = shunt_sched_plan_create(pr, &params, &plan);
    if (st == SHUNT_OK)
        st = shunt_sched_copy(shunt_sched_plan_schedule(plan), &s);
    if (st == SHUNT_OK && !since)
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to follow a profile");
    if (st != SHUNT_OK) {
        shunt_sched_plan_destroy(plan);
        shunt_sched_destroy(s);
        shunt_sched_profile_destroy(pr);
        free(since);
        return st;
    }
    shunt_sched_profile_destroy(a->believed);
    shunt_sched_destroy(a->schedule);
    free(a->before);
    free(a->since);
    a->believed = pr;
    a->schedule = s;
    a->predicted = shunt_sched_plan_makespan(plan);
    a->before = NULL;
    a->since = since;
    a->n = n;
    a->calm = a->params.calm;
    a->quiet = a->lean = a->error_count = 0;
    a->error_sum = 0;
    for (int k = 0; k < n; k++)
        since[k] = -1;
    shunt_sched_plan_destroy(plan);
    return SHUNT_OK;
}

shunt_status_t shunt_sched_adapt_create(const shunt_sched_profile_t *profile,
                                        const shunt_sched_adapt_params_t *params, shunt_sched_adapt_t **adapt)
{
    struct shunt_sched_adapt *a;
    shunt_status_t st;

    if (!profile || !adapt)
        return shunt__fail(SHUNT_ERR_INVALID, "adapt: the profile or the output pointer is NULL");
    if (params && params->size < sizeof(*params))
        return shunt__fail(SHUNT_ERR_INVALID,
                           "adapt: params.size is %zu; set it to sizeof(shunt_sched_adapt_params_t)",
                           params->size);
    a = calloc(1, sizeof(*a));
    if (!a)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to follow a profile");
    if (params)
        a->params = *params;
    a->params.effort = a->params.effort > 0 ? a->params.effort : 4;
    a->params.thrift = a->params.thrift > 0 ? a->params.thrift : a->params.thrift < 0 ? 0 : 0.01;
    a->params.deviation = a->params.deviation > 0 ? a->params.deviation : 0.1;
    a->params.gain = a->params.gain > 0 ? a->params.gain : 0.03;
    a->params.calm = a->params.calm > 0 ? a->params.calm : 5;
    st = start_over(a, profile);
    if (st != SHUNT_OK) {
        free(a);
        return st;
    }
    *adapt = a;
    return SHUNT_OK;
}

int shunt_sched_adapt_entries(const shunt_sched_adapt_t *adapt)
{
    return adapt ? adapt->n : 0;
}

shunt_status_t shunt_sched_adapt_put_stage(const shunt_sched_adapt_t *adapt, double *vector, int stage,
                                           int chunk, double forward, double backward, double weight)
{
    if (!adapt || !vector || stage < 0 || stage >= adapt->believed->p || chunk < 0 ||
        chunk >= adapt->believed->v)
        return shunt__fail(SHUNT_ERR_INVALID, "adapt: no stage %d with chunk %d, or a NULL pointer", stage,
                           chunk);
    int cells = adapt->believed->p * adapt->believed->v, at = stage * adapt->believed->v + chunk;
    vector[at] = forward;
    vector[cells + at] = backward;
    vector[2 * cells + at] = weight;
    return SHUNT_OK;
}

shunt_status_t shunt_sched_adapt_put_link(const shunt_sched_adapt_t *adapt, double *vector, int link,
                                          double latency, double service_down, double service_up)
{
    if (!adapt || !vector || link < 0 || link >= adapt->believed->p)
        return shunt__fail(SHUNT_ERR_INVALID, "adapt: no link %d, or a NULL pointer", link);
    vector[group_start(adapt->believed, LATENCY) + link] = latency;
    vector[group_start(adapt->believed, SERVICE_DOWN) + link] = service_down;
    vector[group_start(adapt->believed, SERVICE_UP) + link] = service_up;
    return SHUNT_OK;
}

/* ---- text ---- */

/* "31 ms", "0.46 s". */
static const char *seconds(double t, char *text, size_t size)
{
    if (t >= 0.1)
        snprintf(text, size, "%.3g s", t);
    else if (t >= 1e-4 || t == 0)
        snprintf(text, size, "%.3g ms", 1e3 * t);
    else
        snprintf(text, size, "%.3g us", 1e6 * t);
    return text;
}

static void say(struct shunt_sched_adapt *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct shunt_sched_adapt *a, const char *fmt, ...)
{
    size_t n = strlen(a->text);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(a->text + n, sizeof(a->text) - n, fmt, ap);
    va_end(ap);
}

static void say_entry(struct shunt_sched_adapt *a, int entry, double was, double is, int since)
{
    static const char *const stage_names[] = {"forward", "backward", "weight gradient"};
    const char *const link_names[] = {"", " (forward messages)", " (backward messages)"};
    int at, group = group_of(a->believed, entry, &at), p = a->believed->p;
    char x[24], y[24];

    seconds(was, x, sizeof(x));
    seconds(is, y, sizeof(y));
    if (strcmp(strchr(x, ' '), strchr(y, ' ')) == 0)
        *strchr(x, ' ') = 0; /* "0.2 -> 31 ms" */
    if (group < LATENCY)
        say(a, "stage %d %s: %s \xe2\x86\x92 %s since step %d", at / a->believed->v, stage_names[group], x, y,
            since);
    else
        say(a, "link %d-%d%s: %s \xe2\x86\x92 %s since step %d", at, (at + 1) % p,
            link_names[group - LATENCY], x, y, since);
}

static void say_warmup(struct shunt_sched_adapt *a, const struct shunt_sched *s)
{
    for (int i = 0; i < s->p; i++)
        if (s->p <= 16 || i < 6 || i >= s->p - 3)
            say(a, "%s%d", i > 0 ? "," : "", shunt_sched_warmup(s, i));
        else if (i == 6)
            say(a, ",...");
}

static void say_change(struct shunt_sched_adapt *a, const struct shunt_sched *old,
                       const struct shunt_sched *new, double before, double after)
{
    char x[24], y[24];

    say(a, "%swarm-up ", *a->text ? "; " : "");
    say_warmup(a, old);
    say(a, " \xe2\x86\x92 ");
    say_warmup(a, new);
    say(a, "; predicted %s \xe2\x86\x92 %s", seconds(before, x, sizeof(x)), seconds(after, y, sizeof(y)));
}

/* ---- decisions ---- */

static double total_peak(const struct shunt_sched *s)
{
    double sum = 0;

    for (int i = 0; i < s->p; i++)
        sum += shunt_sched_peak_live(s, i);
    return sum;
}

static double scale(const struct shunt_sched_profile *pr)
{
    double work = 0;

    for (int i = 0; i < pr->p; i++) {
        double f = 0, b = 0, w = 0;
        shunt_sched_profile_get_stage(pr, i, &f, &b, &w);
        work = fmax(work, f + b + w);
    }
    return work;
}

/* Moves what is believed by what two vectors agree on; gives the entry that moved most, or -1 if none did. */
static int believe(struct shunt_sched_adapt *a, const double *vector, int step, double *was, int *since)
{
    double floor_ = 0.02 * scale(a->believed), most = 0;
    int entry = -1;

    for (int k = 0; k < a->n; k++) {
        double old = get(a->believed, k), d = vector[k] - old, e = a->before ? a->before[k] - old : 0;
        double least = fmax(a->params.deviation * old, floor_);
        if (fabs(d) <= least) {
            a->since[k] = -1;
            continue;
        }
        if (a->since[k] < 0)
            a->since[k] = step;
        if (!a->before || fabs(e) <= least || (d > 0) != (e > 0))
            continue;
        double move = fabs(d) < fabs(e) ? d : e;
        if (fabs(move) > most) {
            most = fabs(move);
            entry = k;
            *was = old;
            *since = a->since[k];
        }
        set(a->believed, k, old + move);
        a->since[k] = -1;
    }
    return entry;
}

static double predict(const struct shunt_sched *s, const struct shunt_sched_profile *pr)
{
    struct shunt__simulator *sim = shunt__simulator_create(pr, s->vee, 0);
    double t = sim ? shunt__simulator_run(sim, s, NULL) : -1;

    shunt__simulator_destroy(sim);
    return t;
}

/* Plans for what is believed now; takes the plan if `wanted` says so. */
static shunt_status_t plan(struct shunt_sched_adapt *a, int lean_only, shunt_sched_event_t *event)
{
    shunt_sched_plan_params_t params = {sizeof(params), a->params.flags, a->params.effort, a->params.thrift};
    double before = predict(a->schedule, a->believed);
    shunt_sched_plan_t *plan;
    struct shunt_sched *s;
    shunt_status_t st;

    if (before < 0)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to predict");
    st = shunt_sched_plan_create(a->believed, &params, &plan);
    if (st != SHUNT_OK)
        return st;
    double after = shunt_sched_plan_makespan(plan);
    const struct shunt_sched *new = shunt_sched_plan_schedule(plan);
    int leaner = total_peak(new) < total_peak(a->schedule) - 0.5 &&
                 after <= before * (1.002 + a->params.thrift);
    int take = lean_only ? leaner : after < before * (1 - a->params.gain);
    a->lean = !take && leaner; /* taken once this has held for a while */
    a->predicted = before;
    event->predicted_before = before;
    if (take && !shunt_sched_equal(new, a->schedule)) {
        st = shunt_sched_copy(new, &s);
        if (st == SHUNT_OK) {
            if (lean_only)
                say(a, "the same speed with less memory since step %d", event->step - a->quiet + 1);
            say_change(a, a->schedule, s, before, after);
            shunt_sched_destroy(a->schedule);
            a->schedule = s;
            a->predicted = after;
            a->error_sum = 0;
            a->error_count = 0;
            event->changed = 1;
        }
    } else if (*a->text) {
        char x[24];
        say(a, "; the plan stays, predicted %s", seconds(before, x, sizeof(x)));
    }
    event->predicted = a->predicted;
    shunt_sched_plan_destroy(plan);
    return st;
}

shunt_status_t shunt_sched_adapt_step(shunt_sched_adapt_t *adapt, int step, const double *vector, double took,
                                      shunt_sched_event_t *event)
{
    struct shunt_sched_adapt *a = adapt;
    double was = 0;
    int since = step;
    shunt_status_t st = SHUNT_OK;

    if (!adapt || !vector || !event)
        return shunt__fail(SHUNT_ERR_INVALID, "adapt: a NULL pointer");
    for (int k = 0; k < a->n; k++)
        if (!(vector[k] >= 0) || !(vector[k] < 1e9)) {
            int at, group = group_of(a->believed, k, &at);
            return shunt__fail(SHUNT_ERR_INVALID, "adapt: a measured time of %g for %s %d", vector[k],
                               group < LATENCY ? "stage" : "link",
                               group < LATENCY ? at / a->believed->v : at);
        }
    if (!a->before) {
        a->before = malloc((size_t)a->n * sizeof(double));
        if (!a->before)
            return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to follow a profile");
        for (int k = 0; k < a->n; k++)
            a->before[k] = get(a->believed, k);
    }
    *a->text = 0;
    *event = (shunt_sched_event_t){step, 0, a->predicted, a->predicted, a->text};
    if (took > 0) {
        a->error_sum += fabs(took / a->predicted - 1);
        a->error_count++;
    }
    int entry = believe(a, vector, step, &was, &since);
    memcpy(a->before, vector, (size_t)a->n * sizeof(double));
    if (entry >= 0) {
        say_entry(a, entry, was, get(a->believed, entry), since);
        st = plan(a, 0, event);
    }
    a->quiet = a->lean && st == SHUNT_OK ? a->quiet + 1 : 0;
    if (a->quiet >= a->calm) {
        *a->text = 0;
        st = plan(a, 1, event);
        a->lean = a->quiet = 0;
        a->calm = event->changed && a->calm < 1000
                      ? 2 * a->calm
                      : a->calm; /* a link that comes and goes moves it less and less */
    }
    return st;
}

shunt_status_t shunt_sched_adapt_replace(shunt_sched_adapt_t *adapt, int step,
                                         const shunt_sched_profile_t *profile, const char *why,
                                         shunt_sched_event_t *event)
{
    double before;
    char x[24], y[24];
    int p;

    if (!adapt || !profile || !event)
        return shunt__fail(SHUNT_ERR_INVALID, "adapt: a NULL pointer");
    before = adapt->predicted;
    p = adapt->believed->p;
    shunt_status_t st = start_over(adapt, profile);
    if (st != SHUNT_OK)
        return st;
    *adapt->text = 0;
    say(adapt, "%s; %d \xe2\x86\x92 %d stages, warm-up ", why ? why : "regrouped", p, profile->p);
    say_warmup(adapt, adapt->schedule);
    say(adapt, "; predicted %s \xe2\x86\x92 %s", seconds(before, x, sizeof(x)),
        seconds(adapt->predicted, y, sizeof(y)));
    *event = (shunt_sched_event_t){step, 1, before, adapt->predicted, adapt->text};
    return SHUNT_OK;
}

const shunt_sched_t *shunt_sched_adapt_schedule(const shunt_sched_adapt_t *adapt)
{
    return adapt ? adapt->schedule : NULL;
}

const shunt_sched_profile_t *shunt_sched_adapt_profile(const shunt_sched_adapt_t *adapt)
{
    return adapt ? adapt->believed : NULL;
}

double shunt_sched_adapt_error(const shunt_sched_adapt_t *adapt)
{
    return adapt && adapt->error_count > 0 ? adapt->error_sum / adapt->error_count : 0;
}
