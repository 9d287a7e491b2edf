/* SPDX-License-Identifier: BSD-3-Clause */
/* The last step's operations of the first pipeline, for shunt-sched explain and for trace viewers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tools/train/job.h"

/* One operation, as doubles so that they can be gathered. */
enum { TYPE, MICRO_BATCH, START, END, FIELDS };

struct trace {
    int n, most;
    double (*operations)[FIELDS];
};

struct trace *trace_create(struct job *job)
{
    struct trace *t = calloc(1, sizeof(*t));

    if (!t)
        job_fail(job, NULL, "out of memory");
    t->most = 3 * job->count;
    t->operations = calloc((size_t)t->most, sizeof(*t->operations));
    if (!t->operations)
        job_fail(job, NULL, "out of memory");
    return t;
}

void trace_destroy(struct trace *t)
{
    if (!t)
        return;
    free(t->operations);
    free(t);
}

void trace_begin(struct trace *t)
{
    t->n = 0;
}

void trace_add(struct trace *t, shunt_sched_op_t op, uint64_t start, uint64_t end)
{
    double *o = t->operations[t->n++];

    o[TYPE] = op.type;
    o[MICRO_BATCH] = op.microbatch;
    o[START] = (double)start / 1e3;
    o[END] = (double)end / 1e3;
}

static void print(const struct job *job, double (*all)[FIELDS], int most, FILE *f)
{
    const char *separator = "";
    double first = all[0][START]; /* stage 0 begins every step */

    fprintf(f, "{\"traceEvents\": [");
    for (int s = 0; s < job->options.stages; s++)
        for (int k = 0; k < most; k++) {
            const double *o = all[s * most + k];
            char type = "FBIW"[(int)o[TYPE]];

            if (o[END] == 0) /* fewer operations than room */
                continue;
            fprintf(f,
                    "%s\n{\"name\": \"%c%d\", \"cat\": \"%c\", \"ph\": \"X\", \"ts\": %.3f, \"dur\": %.3f, \"pid\": 0, "
                    "\"tid\": %d, \"args\": {\"stage\": %d, \"microbatch\": %d, \"type\": \"%c\", \"step\": %llu}}",
                    separator, type, (int)o[MICRO_BATCH], type, o[START] - first, o[END] - o[START], s, s,
                    (int)o[MICRO_BATCH], type, (unsigned long long)job->step);
            separator = ",";
        }
    fprintf(f, "\n], \"displayTimeUnit\": \"ms\"}\n");
}

void trace_write(struct trace *t, struct job *job)
{
    double (*all)[FIELDS] = NULL;
    size_t count = (size_t)t->most * FIELDS;
    FILE *f;

    if (job->stage == 0 && !(all = calloc((size_t)job->options.stages * (size_t)t->most, sizeof(*all))))
        job_fail(job, NULL, "out of memory");
    for (int k = t->n; k < t->most; k++)
        memset(t->operations[k], 0, sizeof(*t->operations));
    job_check(job, shunt_gather(job->pipe, t->operations, all, count, SHUNT_FLOAT64, 0), "gathering the trace");
    if (job->stage != 0)
        return;
    f = fopen(job->options.trace, "we");
    if (!f)
        job_fail(job, job->options.trace, strerror(errno));
    print(job, all, t->most, f);
    if (fclose(f) != 0)
        job_fail(job, job->options.trace, strerror(errno));
    free(all);
}
