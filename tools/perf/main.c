/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tools/perf/perf.h"

static int complain(const struct job *j, const char *what)
{
    fprintf(stderr, "shunt-perf: rank %d: %s: %s\n", j->rank, what, shunt_error_text());
    return 1;
}

static void explain(const struct job *j, const struct kind *k, size_t count)
{
    char text[256];

    if (k->coll == SHUNT_COLL_KINDS)
        snprintf(text, sizeof(text), "point-to-point");
    else if (shunt_coll_explain(j->comm, k->coll, count, j->o.type, j->o.op, text, sizeof(text)) != SHUNT_OK)
        snprintf(text, sizeof(text), "%s", shunt_error_text());
    printf("# %s\n", text);
}

/* All sizes; nonzero when something was wrong or failed. */
static int sweep(const struct job *j, const struct kind *k)
{
    size_t w = shunt_type_size(j->o.type), ranks = k->send_all || k->recv_all ? (size_t)j->size : 1;
    uint64_t wrong = 0;

    for (size_t size = j->o.min; size <= j->o.max;) {
        size_t count = k->sized ? size / w / ranks : 0;
        int do_out = !k->in_place || j->o.place != 'i', do_in = k->in_place && j->o.place != 'o';
        struct reading out = {0}, in = {0};

        if (j->o.explain && j->rank == 0)
            explain(j, k, count);
        if (do_out && measure(j, k, count, 0, &out) != SHUNT_OK)
            return complain(j, k->name);
        if (do_in && measure(j, k, count, 1, &in) != SHUNT_OK)
            return complain(j, k->name);
        wrong += out.wrong + in.wrong;
        if (j->rank == 0)
            report_line(j, k, do_out ? &out : NULL, do_in ? &in : NULL);
        if (!k->sized)
            break;
        if (j->o.factor && size == 0)
            size = 1;
        else
            size = j->o.factor ? size * (size_t)j->o.factor : size + j->o.step;
    }
    return wrong != 0;
}

int main(int argc, char **argv)
{
    struct job j = {0};
    const struct kind *k;
    int failed = 0;

    options_parse(&j.o, argc, argv);
    k = kind_find(j.o.op_name);
    if (shunt_context_create(NULL, &j.ctx) != SHUNT_OK)
        return complain(&j, "context");
    shunt_context_on_event(j.ctx, report_event, NULL);
    if (shunt_comm_create_from_env(j.ctx, &j.comm) != SHUNT_OK) {
        complain(&j, "communicator");
        shunt_context_destroy(j.ctx);
        return 1;
    }
    j.rank = shunt_comm_rank(j.comm);
    j.size = shunt_comm_size(j.comm);
    if (k->coll == SHUNT_COLL_KINDS && j.size < 2) {
        fprintf(stderr, "shunt-perf: %s needs two ranks; try shunt-run -n 2 shunt-perf %s\n", k->name, k->name);
        failed = 2;
    } else if (j.o.root >= j.size) {
        fprintf(stderr, "shunt-perf: there is no rank %d among %d\n", j.o.root, j.size);
        failed = 2;
    } else {
        if (j.rank == 0)
            report_head(&j, k);
        failed = sweep(&j, k);
        if (j.rank == 0)
            report_foot(&j, failed);
        if (j.rank == 0 && j.o.json && report_json(&j, failed)) {
            fprintf(stderr, "shunt-perf: %s can't be written: %s\n", j.o.json, strerror(errno));
            failed = 1;
        }
        if (!failed && shunt_barrier(j.comm) != SHUNT_OK)
            failed = complain(&j, "barrier");
    }
    shunt_comm_free(j.comm);
    shunt_context_destroy(j.ctx);
    return failed;
}
