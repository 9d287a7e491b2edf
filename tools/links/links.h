/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt-links: what every pair of ranks gets over every rail, and which of them fall out of their class. */
#ifndef SHUNT_TOOLS_LINKS_H
#define SHUNT_TOOLS_LINKS_H

#include <stddef.h>
#include <stdio.h>
#include <shunt/comm.h>

#define LINKS_RAILS 9
#define LINKS_NAME 48

struct options {
    double time;    /* seconds for everything */
    size_t bytes;   /* of a bandwidth message */
    int alone_only; /* leave out "all at once" */
    int quiet;
    double threshold; /* an outlier is under this share of its class */
    const char *json, *svg, *save, *compare;
};

/* One direction of one pair over one rail. */
struct cell {
    double latency;   /* seconds one way; 0: not measured */
    double alone;     /* bytes/s with nothing else going on; 0: not measured */
    double together;  /* bytes/s while all pairs are busy */
    int failed;       /* no way there over this rail */
};

struct table {
    int ranks, rails, hosts;
    char rail[LINKS_RAILS][LINKS_NAME];
    double promised[LINKS_RAILS]; /* bytes/s that the slowest NIC of this name promises, 0: unknown */
    int *host_of;                 /* per rank */
    char (*host)[LINKS_NAME];     /* name of each host */
    struct cell *cell;            /* [rail][from][to] */
};

static inline struct cell *at(const struct table *t, int rail, int from, int to)
{
    return &t->cell[((size_t)rail * (size_t)t->ranks + (size_t)from) * (size_t)t->ranks + (size_t)to];
}

/* options.c: exits on --help, --version and bad usage. */
void options_parse(int argc, char **argv, struct options *o);

/* measure.c: fills the table, the same on every rank. */
shunt_status_t measure(shunt_comm_t *comm, shunt_context_t *ctx, const struct options *o, struct table *t);
void table_free(struct table *t);

/* report.c */
void report_text(FILE *f, const struct table *t, const struct options *o);
/* Lines about what falls out of its class; returns how many. */
int report_outliers(FILE *f, const struct table *t, double threshold);
int report_json(const char *path, const struct table *t, double threshold);
int report_save(const char *path, const struct table *t);
/* Prints what has changed against a saved table by more than a fifth; -1: can't be read. */
int report_compare(FILE *f, const char *path, const struct table *t);

/* svg.c */
int report_svg(const char *path, const struct table *t, double threshold);

#endif
