/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "tools/perf/perf.h"

extern char **environ;

static struct {
    struct reading *lines[2]; /* out of place, in place */
    int n[2];
    char **events;
    int n_events;
    uint64_t wrong;
    double busbw;
    int n_busbw;
} log_;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void report_event(const shunt_event_t *event, void *arg)
{
    char *copy = strdup(event->text), **grown;

    (void)arg;
    pthread_mutex_lock(&lock);
    grown = realloc(log_.events, ((size_t)log_.n_events + 1) * sizeof(*grown));
    if (grown && copy) {
        log_.events = grown;
        log_.events[log_.n_events++] = copy;
        copy = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(copy);
}

static void keep(int which, const struct reading *r)
{
    struct reading *grown = realloc(log_.lines[which], ((size_t)log_.n[which] + 1) * sizeof(*grown));

    if (!grown)
        return;
    log_.lines[which] = grown;
    grown[log_.n[which]++] = *r;
    log_.wrong += r->wrong;
    log_.busbw += r->busbw;
    log_.n_busbw++;
}

void report_head(const struct job *j, const struct kind *k)
{
    const struct options *o = &j->o;
    int passes = k->in_place && !o->place ? 2 : 1;

    printf("# shunt-perf %s %s: %d rank%s on %d host%s, %s", shunt_version(), k->name, j->size, j->size == 1 ? "" : "s",
           shunt_comm_hosts(j->comm), shunt_comm_hosts(j->comm) == 1 ? "" : "s", shunt_type_name(o->type));
    if (k->reduces)
        printf(", %s", shunt_op_name(o->op));
    printf(", %d warm-up and %d timed per size\n", o->warmup, o->iters);
    printf("#%12s %12s %10s %8s", "size", "count", "type", "redop");
    for (int i = 0; i < passes; i++)
        printf("  %10s %7s %7s %6s", "time", "algbw", "busbw", "#wrong");
    printf("\n#%12s %12s %10s %8s", "(B)", "(elements)", "", "");
    for (int i = 0; i < passes; i++)
        printf("  %10s %7s %7s %6s", i || o->place == 'i' ? "in place" : "(us)", "(GB/s)", "(GB/s)", "");
    printf("\n");
    fflush(stdout);
}

static void columns(const struct job *j, const struct reading *r)
{
    printf("  %10.*f %7.2f %7.2f ", r->time_us < 1000 ? 2 : 1, r->time_us, r->algbw, r->busbw);
    if (j->o.check)
        printf("%6llu", (unsigned long long)r->wrong);
    else
        printf("%6s", "n/a");
}

void report_line(const struct job *j, const struct kind *k, const struct reading *out, const struct reading *in)
{
    const struct reading *any = out ? out : in;

    printf(" %12zu %12zu %10s %8s", any->size, any->count, shunt_type_name(j->o.type),
           k->reduces ? shunt_op_name(j->o.op) : "none");
    if (out) {
        keep(0, out);
        columns(j, out);
    }
    if (in) {
        keep(1, in);
        columns(j, in);
    }
    printf("\n");
    fflush(stdout);
}

void report_foot(const struct job *j, int failed)
{
    if (j->o.check)
        printf("# Out of bounds values : %llu %s\n", (unsigned long long)log_.wrong, log_.wrong || failed ? "FAILED" : "OK");
    if (log_.n_busbw)
        printf("# Avg bus bandwidth    : %.4g\n", log_.busbw / log_.n_busbw);
}

/* ---- JSON ---- */

static void string(FILE *f, const char *s, size_t len)
{
    fputc('"', f);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];

        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

static void results(FILE *f, const struct job *j)
{
    int n = 0;

    for (int which = 0; which < 2; which++) {
        for (int i = 0; i < log_.n[which]; i++) {
            const struct reading *r = &log_.lines[which][i];

            fprintf(f, "%s\n    {\"size\": %zu, \"count\": %zu, \"type\": \"%s\", \"in_place\": %s, \"iters\": %d, "
                       "\"time_us\": %.4f, \"fastest_us\": %.4f, \"algbw\": %.6g, \"busbw\": %.6g, \"wrong\": %llu}",
                    n++ ? "," : "", r->size, r->count, shunt_type_name(j->o.type), which ? "true" : "false", r->iters,
                    r->time_us, r->fastest_us, r->algbw, r->busbw, (unsigned long long)r->wrong);
        }
    }
}

static void settings(FILE *f)
{
    int n = 0;

    for (char **e = environ; *e; e++) {
        const char *equals = strchr(*e, '=');

        if (strncmp(*e, "SHUNT_", 6) != 0 || !equals)
            continue;
        fprintf(f, "%s\n    ", n++ ? "," : "");
        string(f, *e, (size_t)(equals - *e));
        fputs(": ", f);
        string(f, equals + 1, strlen(equals + 1));
    }
}

/* Bytes sent and received per rail of rank 0, over all peers. */
static void rails(FILE *f, const struct job *j)
{
    shunt_rail_info_t *info;
    int n = 0, cap, printed = 0;

    if (shunt_comm_rails(j->comm, NULL, &n) != SHUNT_OK || n == 0)
        return;
    cap = n + 16;
    info = calloc((size_t)cap, sizeof(*info));
    if (!info)
        return;
    for (int i = 0; i < cap; i++)
        info[i].size = sizeof(*info);
    n = cap;
    if (shunt_comm_rails(j->comm, info, &n) != SHUNT_OK)
        n = 0;
    n = n < cap ? n : cap;
    for (int i = 0; i < n; i++) {
        uint64_t sent = 0, received = 0, resent = 0;
        int first = 1;

        for (int k = 0; k < n; k++) {
            if (strcmp(info[i].rail, info[k].rail) != 0)
                continue;
            first &= k >= i;
            sent += info[k].bytes_sent;
            received += info[k].bytes_received;
            resent += info[k].bytes_resent;
        }
        if (!first)
            continue;
        fprintf(f, "%s\n    {\"name\": ", printed++ ? "," : "");
        string(f, info[i].rail, strlen(info[i].rail));
        fprintf(f, ", \"bytes\": %llu, \"bytes_received\": %llu, \"bytes_resent\": %llu}", (unsigned long long)sent,
                (unsigned long long)received, (unsigned long long)resent);
    }
    free(info);
}

int report_json(const struct job *j, int failed)
{
    FILE *f = fopen(j->o.json, "w");
    int bad;

    if (!f)
        return 1;
    fprintf(f, "{\n  \"version\": \"%s\", \"op\": \"%s\", \"redop\": \"%s\", \"ranks\": %d, \"hosts\": %d, \"ok\": %s,\n",
            shunt_version(), j->o.op_name, shunt_op_name(j->o.op), j->size, shunt_comm_hosts(j->comm),
            failed || log_.wrong ? "false" : "true");
    fputs("  \"results\": [", f);
    results(f, j);
    fputs("\n  ],\n  \"settings\": {", f);
    settings(f);
    fputs("\n  },\n  \"rails\": [", f);
    rails(f, j);
    fputs("\n  ],\n  \"events\": [", f);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < log_.n_events; i++) {
        fputs(i ? ",\n    " : "\n    ", f);
        string(f, log_.events[i], strlen(log_.events[i]));
    }
    pthread_mutex_unlock(&lock);
    fputs("\n  ]\n}\n", f);
    bad = ferror(f);
    return fclose(f) || bad;
}
