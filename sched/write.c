/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules as text: Shunt's own form, JSON, and the two CSV forms of torch.distributed.pipelining. */
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/sched.h"

/* "F3", or "F3.1" where there are chunks. */
static void own_op(const struct shunt_sched *s, shunt__op_t op, FILE *out)
{
    fprintf(out, "%c%d", shunt__sched_letter(SHUNT__OP_TYPE(op)), SHUNT__OP_MICROBATCH(op));
    if (s->v > 1)
        fprintf(out, ".%d", SHUNT__OP_CHUNK(op));
}

static void write_own(const struct shunt_sched *s, FILE *out)
{
    fprintf(out, "shunt-schedule 1\nkind %s\nstages %d\nmicrobatches %d\nchunks %d\nplacement %s\n",
            shunt_sched_kind_name(s->kind), s->p, s->m, s->v, s->vee ? "vee" : "loop");
    for (int i = 0; i < s->p; i++) {
        fprintf(out, "%d:", i);
        for (size_t k = s->offset[i]; k < s->offset[i + 1]; k++) {
            fputc(' ', out);
            own_op(s, s->ops[k], out);
        }
        fputc('\n', out);
    }
}

static void write_json(const struct shunt_sched *s, FILE *out)
{
    fprintf(out,
            "{\"kind\": \"%s\", \"stages\": %d, \"microbatches\": %d, \"chunks\": %d, \"placement\": "
            "\"%s\",\n \"operations\": [",
            shunt_sched_kind_name(s->kind), s->p, s->m, s->v, s->vee ? "vee" : "loop");
    for (int i = 0; i < s->p; i++) {
        fprintf(out, "%s\n  [", i > 0 ? "," : "");
        for (size_t k = s->offset[i]; k < s->offset[i + 1]; k++) {
            fprintf(out, "%s\"", k > s->offset[i] ? ", " : "");
            own_op(s, s->ops[k], out);
            fputc('"', out);
        }
        fputc(']', out);
    }
    fprintf(out, "]}\n");
}

/* A stage's operation in PyTorch's words, where a stage is a position of the model. */
static void cell(const struct shunt_sched *s, int stage, shunt__op_t op, FILE *out)
{
    fprintf(out, "%d%c%d", shunt__sched_position(s->p, s->vee, stage, SHUNT__OP_CHUNK(op)),
            shunt__sched_letter(SHUNT__OP_TYPE(op)), SHUNT__OP_MICROBATCH(op));
}

/* Starts of all operations when each takes one unit and messages none: the columns of PyTorch's tables. */
static shunt_status_t unit_times(const struct shunt_sched *s, double **starts)
{
    shunt_sched_profile_t *pr;
    shunt_status_t st = shunt_sched_profile_create(s->p, s->v, s->m, &pr);
    struct shunt__simulator *sim = NULL;

    if (st != SHUNT_OK)
        return st;
    *starts = malloc((s->offset[s->p] + 1) * sizeof(double));
    sim = shunt__simulator_create(pr, s->vee, 0);
    if (!*starts || !sim)
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to write a schedule");
    else {
        shunt__simulator_unit(sim); /* F, B, I and W take one cell each */
        if (shunt__simulator_run(sim, s, *starts) < 0)
            st = shunt__fail(SHUNT_ERR_FORMAT, "the schedule deadlocks; check it first");
    }
    shunt__simulator_destroy(sim);
    shunt_sched_profile_destroy(pr);
    if (st != SHUNT_OK) {
        free(*starts);
        *starts = NULL;
    }
    return st;
}

static shunt_status_t write_compute_only(const struct shunt_sched *s, FILE *out)
{
    double *starts, width = 0;
    shunt_status_t st = unit_times(s, &starts);

    if (st != SHUNT_OK)
        return st;
    for (size_t k = 0; k < s->offset[s->p]; k++)
        width = starts[k] + 1 > width ? starts[k] + 1 : width;
    for (int i = 0; i < s->p; i++) {
        size_t k = s->offset[i];
        for (int column = 0; column < (int)width; column++) {
            if (column > 0)
                fputc(',', out);
            if (k < s->offset[i + 1] && starts[k] == column)
                cell(s, i, s->ops[k++], out);
        }
        fputc('\n', out);
    }
    free(starts);
    return SHUNT_OK;
}

struct by_time {
    double start;
    int stage;
    shunt__op_t op;
};

static int earlier(const void *a, const void *b)
{
    const struct by_time *x = a, *y = b;

    return x->start != y->start ? (x->start < y->start ? -1 : 1) : x->stage - y->stage;
}

/* Behind a stage's operation: the wait for the activation that its gradient shows to have arrived, and the
 * reduction of gradients behind the last of them. left[stage * v + chunk] counts the micro-batches whose
 * gradients are to come. */
static void put_waits(const struct shunt_sched *s, int stage, shunt__op_t op, int *left, FILE *row)
{
    shunt_sched_type_t type = SHUNT__OP_TYPE(op);
    int at = shunt__sched_position(s->p, s->vee, stage, SHUNT__OP_CHUNK(op)), last = s->p * s->v - 1;

    if ((type == SHUNT_SCHED_B || type == SHUNT_SCHED_I) && at < last &&
        shunt__sched_stage_of(s->p, s->vee, at + 1) != stage)
        fprintf(row, "%dWAIT_SEND_F%d,", at, SHUNT__OP_MICROBATCH(op));
    if ((type == SHUNT_SCHED_B || type == SHUNT_SCHED_W) && --left[stage * s->v + SHUNT__OP_CHUNK(op)] == 0)
        fprintf(row, "%dREDUCE_GRAD,%dWAIT_REDUCE_GRAD,", at, at);
}

/* At the end of a stage's row: the waits for its gradients, in the order in which they were sent. */
static void put_last_waits(const struct shunt_sched *s, int stage, FILE *row)
{
    for (size_t k = s->offset[stage]; k < s->offset[stage + 1]; k++) {
        shunt_sched_type_t type = SHUNT__OP_TYPE(s->ops[k]);
        int at = shunt__sched_position(s->p, s->vee, stage, SHUNT__OP_CHUNK(s->ops[k]));
        if ((type == SHUNT_SCHED_B || type == SHUNT_SCHED_I) && at > 0 &&
            shunt__sched_stage_of(s->p, s->vee, at - 1) != stage)
            fprintf(row, "%dWAIT_SEND_B%d,", at, SHUNT__OP_MICROBATCH(s->ops[k]));
    }
}

/*
 * Each send is written at the moment its operation ends, and so is the receive at the other side: all lists
 * are parts of one order in which a send and its receive are neighbours.
 */
static shunt_status_t write_comms(const struct shunt_sched *s, int waits, FILE *out)
{
    double *starts;
    size_t n = s->offset[s->p];
    shunt_status_t st = unit_times(s, &starts);
    struct by_time *all;
    char **rows;
    int *left;
    size_t *sizes;
    FILE **row;

    if (st != SHUNT_OK)
        return st;
    all = malloc((n + 1) * sizeof(*all));
    rows = calloc((size_t)s->p, sizeof(*rows));
    sizes = calloc((size_t)s->p, sizeof(*sizes));
    row = calloc((size_t)s->p, sizeof(*row));
    left = malloc((size_t)(s->p * s->v) * sizeof(*left));
    for (int k = 0; left && k < s->p * s->v; k++)
        left[k] = s->m;
    for (int i = 0; all && rows && sizes && row && i < s->p; i++) {
        row[i] = open_memstream(&rows[i], &sizes[i]);
        if (!row[i])
            st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to write a schedule");
        for (size_t k = s->offset[i]; k < s->offset[i + 1]; k++)
            all[k] = (struct by_time){starts[k], i, s->ops[k]};
    }
    if (!all || !rows || !sizes || !row || !left)
        st = shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory to write a schedule");
    if (st == SHUNT_OK) {
        qsort(all, n, sizeof(*all), earlier);
        for (size_t k = 0; k < n; k++) {
            int i = all[k].stage, mb = SHUNT__OP_MICROBATCH(all[k].op);
            shunt_sched_type_t type = SHUNT__OP_TYPE(all[k].op);
            int at = shunt__sched_position(s->p, s->vee, i, SHUNT__OP_CHUNK(all[k].op));
            int to = type == SHUNT_SCHED_F ? at + 1 : type == SHUNT_SCHED_W ? -1 : at - 1;
            cell(s, i, all[k].op, row[i]);
            fputc(',', row[i]);
            int other = to < 0 || to >= s->p * s->v ? i : shunt__sched_stage_of(s->p, s->vee, to);
            if (other != i) {
                fprintf(row[i], "%dSEND_%c%d,", at, type == SHUNT_SCHED_F ? 'F' : 'B', mb);
                fprintf(row[other], "%dRECV_%c%d,", to, type == SHUNT_SCHED_F ? 'F' : 'B', mb);
            }
            if (waits)
                put_waits(s, i, all[k].op, left, row[i]);
        }
        for (int i = 0; waits && i < s->p; i++)
            put_last_waits(s, i, row[i]);
    }
    for (int i = 0; row && i < s->p; i++) {
        if (row[i])
            fclose(row[i]);
        if (st == SHUNT_OK && rows[i] && sizes[i] > 0) {
            rows[i][sizes[i] - 1] = '\n'; /* over the last comma */
            fwrite(rows[i], 1, sizes[i], out);
        }
        if (rows)
            free(rows[i]);
    }
    free(all);
    free(rows);
    free(sizes);
    free(row);
    free(left);
    free(starts);
    return st;
}

shunt_status_t shunt_sched_write(const shunt_sched_t *schedule, shunt_sched_format_t format, FILE *out)
{
    shunt_status_t st = SHUNT_OK;

    if (!schedule || !out)
        return shunt__fail(SHUNT_ERR_INVALID, "write: schedule or stream is NULL");
    switch (format) {
    case SHUNT_SCHED_TEXT:
        write_own(schedule, out);
        break;
    case SHUNT_SCHED_JSON:
        write_json(schedule, out);
        break;
    case SHUNT_SCHED_PYTORCH:
        st = write_compute_only(schedule, out);
        break;
    case SHUNT_SCHED_PYTORCH_COMMS:
    case SHUNT_SCHED_PYTORCH_PLAIN:
        st = write_comms(schedule, format == SHUNT_SCHED_PYTORCH_COMMS, out);
        break;
    default:
        return shunt__fail(SHUNT_ERR_INVALID, "write: no format %d", (int)format);
    }
    if (st == SHUNT_OK && (fflush(out) != 0 || ferror(out)))
        return shunt__fail(SHUNT_ERR_SYSTEM, "the schedule could not be written");
    return st;
}
