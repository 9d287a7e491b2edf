/* SPDX-License-Identifier: BSD-3-Clause */
/* From options to profiles and schedules. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tools/sched/sched.h"

static int longest(const struct inputs *in)
{
    const struct list *lists[] = {&in->forward, &in->backward, &in->weight, &in->cap};
    int n = 0;

    for (int k = 0; k < 4; k++)
        n = lists[k]->n > n ? lists[k]->n : n;
    return n;
}

/* The value of a stage (and chunk): one for all, one per stage, or one per stage and chunk in order of
 * stages. */
static double value(const struct inputs *in, const char *option, const struct list *list, int stage,
                    int chunk, double otherwise, int *per_chunk)
{
    *per_chunk = 0;
    if (list->n == 0)
        return otherwise;
    if (list->n == 1)
        return list->values[0];
    if (list->n == in->stages)
        return list->values[stage];
    if (list->n == in->stages * in->chunks) {
        *per_chunk = 1;
        return list->values[stage * in->chunks + chunk];
    }
    usage_error("%s has %d entries; one, or one for each of the %d stages%s, was expected", option, list->n,
                in->stages, in->chunks > 1 ? " or of their chunks" : "");
}

shunt_sched_profile_t *make_profile(struct inputs *in, int split)
{
    shunt_sched_profile_t *profile;
    int whole_chunk;

    if (in->stages == 0)
        in->stages = longest(in) > 1 ? longest(in) : 0;
    if (in->stages == 0)
        usage_error("--stages is missing");
    if (in->microbatches == 0)
        usage_error("--microbatches is missing");
    check(shunt_sched_profile_create(in->stages, in->chunks, in->microbatches, &profile));
    for (int i = 0; i < in->stages; i++)
        for (int c = 0; c < in->chunks; c++) {
            double f = value(in, "--forward", &in->forward, i, c, 1, &whole_chunk);
            f /= whole_chunk ? 1 : in->chunks;
            double b = value(in, "--backward", &in->backward, i, c, 2, &whole_chunk);
            b /= whole_chunk ? 1 : in->chunks;
            double w = value(in, "--weight", &in->weight, i, c, 0, &whole_chunk);
            w /= whole_chunk ? 1 : in->chunks;
            if (in->weight.n == 0 && split) {
                w = b / 2;
                b -= w;
                in->halved = "no --weight: half of --backward is taken for the weight gradient";
            }
            check(shunt_sched_profile_set_chunk(profile, i, c, f, b, w));
        }
    for (int k = 0; k < in->n_links; k++) {
        const struct link *l = &in->links[k];
        if (l->index >= in->stages - (in->chunks == 1))
            usage_error("link %d: there are links 0 to %d between %d stages%s", l->index,
                        in->stages - 1 - (in->chunks == 1), in->stages,
                        in->chunks == 1 ? "" : " with chunks");
        check(shunt_sched_profile_set_link(profile, l->index, l->latency[0], l->latency[1], l->service[0],
                                           l->service[1]));
    }
    for (int i = 0; i < in->stages && in->cap.n > 0; i++) {
        double cap = value(in, "--cap", &in->cap, i, 0, 0, &whole_chunk);
        if (cap != (int)cap || cap < 1)
            usage_error("--cap, stage %d: %g is no number of live micro-batches; at least 1 is needed", i,
                        cap);
        check(shunt_sched_profile_set_cap(profile, i, (int)cap));
    }
    return profile;
}

char *read_file(const char *path, size_t *size)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char *text = NULL;
    size_t n = 0, room = 0;

    if (!file) {
        fprintf(stderr, "shunt-sched: %s: %s\n", path, strerror(errno));
        exit(1);
    }
    for (;;) {
        if (n == room) {
            room = room ? 2 * room : 65536;
            text = realloc(text, room);
            if (!text || room > (size_t)2 << 30) {
                fprintf(stderr, "shunt-sched: %s is too large\n", path);
                exit(1);
            }
        }
        size_t got = fread(text + n, 1, room - n, file);
        if (got == 0)
            break;
        n += got;
    }
    if (file != stdin)
        fclose(file);
    *size = n;
    return text;
}

/* Shunt's text, JSON or PyTorch's table, told apart by the first character. */
static shunt_sched_t *load(struct inputs *in, const char *path)
{
    size_t size;
    char *text = read_file(path, &size);
    shunt_sched_format_t format = SHUNT_SCHED_PYTORCH;
    shunt_sched_t *schedule;

    if (size >= 5 && memcmp(text, "shunt", 5) == 0)
        format = SHUNT_SCHED_TEXT;
    else if (size >= 1 && *text == '{')
        format = SHUNT_SCHED_JSON;
    if (shunt_sched_read(text, size, format, &schedule) != SHUNT_OK) {
        fprintf(stderr, "shunt-sched: %s: %s\n", path, shunt_error_text());
        exit(1);
    }
    free(text);
    if ((in->stages && in->stages != shunt_sched_stages(schedule)) ||
        (in->microbatches && in->microbatches != shunt_sched_microbatches(schedule)))
        usage_error("%s has %d stages and %d micro-batches, the options say %d and %d", path,
                    shunt_sched_stages(schedule), shunt_sched_microbatches(schedule), in->stages,
                    in->microbatches);
    in->stages = shunt_sched_stages(schedule);
    in->microbatches = shunt_sched_microbatches(schedule);
    in->chunks = shunt_sched_chunks(schedule);
    return schedule;
}

static int has_split(const shunt_sched_t *schedule)
{
    for (int i = 0; i < shunt_sched_stages(schedule); i++)
        for (int k = 0; k < shunt_sched_count(schedule, i); k++)
            if (shunt_sched_op(schedule, i, k).type == SHUNT_SCHED_I)
                return 1;
    return 0;
}

shunt_sched_t *make_schedule(struct inputs *in, const char *name, shunt_sched_profile_t **profile,
                             char *reason, size_t size)
{
    shunt_sched_t *schedule;
    shunt_sched_kind_t kind;
    struct stat file;

    if (strcmp(name, "plan") == 0 || strcmp(name, "planned") == 0) {
        shunt_sched_plan_params_t params = {sizeof(params), in->no_split ? SHUNT_SCHED_NO_SPLIT : 0,
                                            in->effort, 0};
        shunt_sched_plan_t *plan;
        *profile = make_profile(in, 0);
        check(shunt_sched_plan_create(*profile, &params, &plan));
        check(shunt_sched_copy(shunt_sched_plan_schedule(plan), &schedule));
        if (reason)
            snprintf(reason, size, "%s", shunt_sched_plan_reason(plan));
        shunt_sched_plan_destroy(plan);
        return schedule;
    }
    if (reason && size > 0)
        *reason = 0;
    if (shunt_sched_kind_from_name(name, &kind) != SHUNT_OK) {
        if (stat(name, &file) != 0 && !strchr(name, '/') && !strchr(name, '.'))
            usage_error("%s, plan, or the name of a file", shunt_error_text());
        schedule = load(in, name);
        *profile = make_profile(in, has_split(schedule));
        return schedule;
    }
    *profile = make_profile(in, shunt_sched_kind_is_split(kind));
    check(shunt_sched_create(*profile, kind, &schedule));
    return schedule;
}

FILE *open_output(const struct inputs *in)
{
    FILE *out = in->output ? fopen(in->output, "w") : stdout;

    if (!out) {
        fprintf(stderr, "shunt-sched: %s: %s\n", in->output, strerror(errno));
        exit(1);
    }
    return out;
}

void close_output(const struct inputs *in, FILE *out)
{
    if ((out == stdout ? fflush(out) : fclose(out)) != 0) {
        fprintf(stderr, "shunt-sched: %s: %s\n", in->output ? in->output : "standard output",
                strerror(errno));
        exit(1);
    }
}

void json_number(FILE *out, const char *name, double value)
{
    fprintf(out, ",\n  \"%s\": %.10g", name, value);
}

void json_string(FILE *out, const char *name, const char *value)
{
    fprintf(out, ",\n  \"%s\": \"", name);
    for (; *value; value++)
        if (*value == '"' || *value == '\\')
            fprintf(out, "\\%c", *value);
        else if ((unsigned char)*value < 32)
            fprintf(out, "\\u%04x", *value);
        else
            fputc(*value, out);
    fputc('"', out);
}

void json_stages(FILE *out, const char *name, int n, double (*get)(const void *, int), const void *from)
{
    fprintf(out, ",\n  \"%s\": [", name);
    for (int i = 0; i < n; i++)
        fprintf(out, "%s%.10g", i > 0 ? ", " : "", get(from, i));
    fputc(']', out);
}
