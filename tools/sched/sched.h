/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of shunt-sched share: the parsed inputs and the commands. */
#ifndef SHUNT_TOOLS_SCHED_H
#define SHUNT_TOOLS_SCHED_H

#include <shunt/sched.h>
#include <stdio.h>

#define MAX_LINKS 256

struct list { /* comma-separated numbers of one option */
    double *values;
    int n;
};

struct link {
    int index;
    double latency[2], service[2]; /* down, up */
    int is_service;
};

struct inputs {
    const char *command, *schedule, *schedules, *format, *output, *trace, *title;
    int stages, microbatches, chunks, json, blocking, columns, sweep_link, no_split;
    double effort, us;
    struct list forward, backward, weight, cap, delays;
    struct link links[MAX_LINKS];
    int n_links;
    const char *halved; /* told once: --weight was not given but the schedule splits */
};

/* Prints "shunt-sched: ..." and ends with code 2 (usage) or 1 (the library refused). */
void usage_error(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void check(shunt_status_t status);

void parse_options(struct inputs *in, int argc, char **argv);
void free_inputs(struct inputs *in);
/* Numbers separated by commas, or FROM:TO:STEP; ends with usage_error() if they are not. */
struct list parse_list(const char *option, const char *text);

/* The profile of the inputs; `split` asks for weight gradient times, halves of --backward if --weight is
 * missing. */
shunt_sched_profile_t *make_profile(struct inputs *in, int split);
/* The schedule of a name (a kind, "plan", or a file) and the profile it is for. A plan's reason goes to
 * *reason. */
shunt_sched_t *make_schedule(struct inputs *in, const char *name, shunt_sched_profile_t **profile,
                             char *reason, size_t size);
char *read_file(const char *path, size_t *size);
/* Standard output, or the file of -o. */
FILE *open_output(const struct inputs *in);
void close_output(const struct inputs *in, FILE *out);

/* Members of the one JSON object that every command can print. */
void json_number(FILE *out, const char *name, double value);
void json_string(FILE *out, const char *name, const char *value);
void json_stages(FILE *out, const char *name, int n, double (*get)(const void *, int), const void *from);

int run_simulate(struct inputs *in);
int run_plan(struct inputs *in);
int run_draw(struct inputs *in);
int run_export(struct inputs *in);
int run_sweep(struct inputs *in);
int run_explain(struct inputs *in);

#endif
