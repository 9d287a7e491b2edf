/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt-perf: times point-to-point and collective operations in the columns of nccl-tests. */
#ifndef SHUNT_TOOLS_PERF_H
#define SHUNT_TOOLS_PERF_H

#include <stdint.h>
#include <stdio.h>
#include <shunt/coll.h>
#include <shunt/comm.h>
#include <shunt/health.h>
#include <shunt/p2p.h>

struct options {
    const char *op_name; /* what is measured */
    size_t min, max, step;
    int factor, iters, warmup, check, root, explain;
    char place; /* 'o', 'i': that pass only */
    shunt_type_t type;
    shunt_op_t op;
    const char *json;
};

/* Fills `o`; exits for --help, --version and mistakes. */
void options_parse(struct options *o, int argc, char **argv);

struct job {
    struct options o;
    shunt_context_t *ctx;
    shunt_comm_t *comm;
    int rank, size;
};

/* One kind of operation. */
struct kind {
    const char *name;
    shunt_coll_t coll; /* SHUNT_COLL_KINDS for point-to-point */
    int reduces, in_place, sized; /* sized: has a size at all */
    /* size of `send` and `recv` in multiples of the count: 1, or the number of ranks */
    int send_all, recv_all;
    /* bus bandwidth / algorithm bandwidth for n ranks */
    double (*bus)(int n);
    shunt_status_t (*run)(const struct job *j, const void *send, void *recv, size_t count);
};

const struct kind *kind_find(const char *name);
/* Names of all, for usage. */
void kind_list(FILE *f);

/* One line of results. */
struct reading {
    size_t size, count;
    int iters;
    double time_us, fastest_us, algbw, busbw; /* GB/s */
    uint64_t wrong;
};

/* Runs and checks one size; `wrong` is summed over ranks. */
shunt_status_t measure(const struct job *j, const struct kind *k, size_t count, int in_place, struct reading *r);

/* ---- values.c: numbers that every type can hold, what an operation makes of them ---- */

/* Fills `count` elements of what `rank` contributes, the first being element `first`. */
void values_fill(void *buf, const struct options *o, int rank, int size, size_t first, size_t count);
void values_reduced(void *buf, const struct options *o, int size, size_t first, size_t count);
/* Elements that differ by more than rounding can explain. */
uint64_t values_differ(const void *got, const void *want, const struct options *o, int size, int reduced, size_t count);

/* ---- report.c, on rank 0 ---- */

void report_head(const struct job *j, const struct kind *k);
void report_line(const struct job *j, const struct kind *k, const struct reading *out, const struct reading *in);
void report_foot(const struct job *j, int failed);
/* Notes events for the JSON file; give it to shunt_context_on_event(). */
void report_event(const shunt_event_t *event, void *arg);
/* Writes the JSON file; nonzero when it can't. */
int report_json(const struct job *j, int failed);

#endif
