/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrices, outliers, JSON, and tables that are kept for later. */
#include <stdlib.h>
#include <string.h>
#include "tools/links/links.h"

static int order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

enum kind { LATENCY, ALONE, TOGETHER };

static double value(const struct cell *c, enum kind k)
{
    return k == LATENCY ? c->latency : k == ALONE ? c->alone : c->together;
}

/* The class of a link: its rail, and whether it stays on one host. The median of what was measured in it. */
static double median(const struct table *t, int rail, int same_host, enum kind k)
{
    double *v = malloc((size_t)t->ranks * (size_t)t->ranks * (size_t)t->rails * sizeof(*v)), m;
    int n = 0, shm = strcmp(t->rail[rail], "shm") == 0;

    for (int q = 0; v && q < t->rails; q++) { /* NICs are one class: rails are meant to be alike */
        if (shm != (strcmp(t->rail[q], "shm") == 0))
            continue;
        for (int a = 0; a < t->ranks; a++)
            for (int b = 0; b < t->ranks; b++)
                if (a != b && (t->host_of[a] == t->host_of[b]) == same_host && value(at(t, q, a, b), k) > 0)
                    v[n++] = value(at(t, q, a, b), k);
    }
    if (n)
        qsort(v, (size_t)n, sizeof(*v), order);
    m = n ? v[n / 2] : 0;
    free(v);
    return m;
}

static void matrix(FILE *f, const struct table *t, int rail, enum kind k)
{
    static const char *const titles[] = {"latency, us, one way", "bandwidth alone, MB/s", "bandwidth all at once, MB/s"};

    fprintf(f, "\n%s: %s (row sends, column receives)\n      ", t->rail[rail], titles[k]);
    for (int b = 0; b < t->ranks; b++)
        fprintf(f, " %7d", b);
    fputc('\n', f);
    for (int a = 0; a < t->ranks; a++) {
        fprintf(f, "%5d ", a);
        for (int b = 0; b < t->ranks; b++) {
            const struct cell *c = at(t, rail, a, b);
            double v = value(c, k);
            if (a == b)
                fprintf(f, "       .");
            else if (c->failed)
                fprintf(f, "  failed");
            else if (v <= 0)
                fprintf(f, "       -");
            else if (k == LATENCY)
                fprintf(f, " %7.1f", v * 1e6);
            else
                fprintf(f, " %7.0f", v / 1e6);
        }
        fprintf(f, "   %s\n", t->host[t->host_of[a]]);
    }
}

void report_text(FILE *f, const struct table *t, const struct options *o)
{
    fprintf(f, "%d ranks on %d host%s, %d rails", t->ranks, t->hosts, t->hosts == 1 ? "" : "s", t->rails);
    for (int r = 0; r < t->rails; r++)
        if (t->promised[r] > 0)
            fprintf(f, "; %s promises %.0f MB/s", t->rail[r], t->promised[r] / 1e6);
    fputc('\n', f);
    for (int r = 0; r < t->rails; r++) {
        int any = 0;
        for (int i = 0; i < t->ranks * t->ranks; i++)
            any |= t->cell[(size_t)r * (size_t)(t->ranks * t->ranks) + (size_t)i].alone > 0;
        if (!any)
            continue;
        matrix(f, t, r, LATENCY);
        matrix(f, t, r, ALONE);
        if (!o->alone_only)
            matrix(f, t, r, TOGETHER);
    }
}

/* How a host's links over a rail to all other hosts stand against their class: mean share, or -1 when it has none. */
static double host_share(const struct table *t, int rail, int host, int out, double typical, double threshold, int *all)
{
    double sum = 0;
    int n = 0;

    *all = 1;
    for (int a = 0; a < t->ranks; a++)
        for (int b = 0; b < t->ranks; b++) {
            const struct cell *c = out ? at(t, rail, a, b) : at(t, rail, b, a);
            if (t->host_of[a] != host || t->host_of[b] == host || (c->alone <= 0 && !c->failed))
                continue;
            sum += c->alone / typical;
            n++;
            *all &= c->failed || c->alone < threshold * typical;
        }
    return n ? sum / n : -1;
}

int report_outliers(FILE *f, const struct table *t, double threshold)
{
    int found = 0;

    for (int r = 0; r < t->rails; r++) {
        double typical = median(t, r, 0, ALONE), near = median(t, r, 1, ALONE);
        unsigned char *named = calloc((size_t)t->hosts, 1);
        for (int h = 0; h < t->hosts && typical > 0 && t->hosts > 2; h++) {
            int all_out, all_in;
            double out = host_share(t, r, h, 1, typical, threshold, &all_out);
            double in = host_share(t, r, h, 0, typical, threshold, &all_in);
            if (out < 0 || in < 0 || (!all_out && !all_in) || !named)
                continue;
            if (all_out && f)
                fprintf(f, "outlier: %s:%s -> all peers: %.0f %% of its class (%.0f MB/s)\n", t->host[h], t->rail[r], 100 * out,
                        typical / 1e6);
            if (all_in && f)
                fprintf(f, "outlier: all peers -> %s:%s: %.0f %% of its class (%.0f MB/s)\n", t->host[h], t->rail[r], 100 * in,
                        typical / 1e6);
            named[h] = 1;
            found++;
        }
        for (int a = 0; a < t->ranks; a++)
            for (int b = 0; b < t->ranks; b++) {
                const struct cell *c = at(t, r, a, b);
                int same = t->host_of[a] == t->host_of[b];
                double m = same ? near : typical;
                if (a == b || (named && (named[t->host_of[a]] || named[t->host_of[b]])))
                    continue;
                if (c->failed && ++found && f)
                    fprintf(f, "outlier: rank %d (%s) -> rank %d (%s) over %s: no way there\n", a, t->host[t->host_of[a]], b,
                            t->host[t->host_of[b]], t->rail[r]);
                else if (c->alone > 0 && c->alone < threshold * m && ++found && f)
                    fprintf(f, "outlier: rank %d (%s) -> rank %d (%s) over %s: %.0f %% of its class (%.0f MB/s)\n", a,
                            t->host[t->host_of[a]], b, t->host[t->host_of[b]], t->rail[r], 100 * c->alone / m, m / 1e6);
            }
        if (t->promised[r] > 0 && typical > 0 && f && typical < 0.5 * t->promised[r])
            fprintf(f, "note: %s reaches %.0f %% of the %.0f MB/s that its NICs promise\n", t->rail[r],
                    100 * typical / t->promised[r], t->promised[r] / 1e6);
        free(named);
    }
    return found;
}

static FILE *open_out(const char *path)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");

    if (!f)
        perror(path);
    return f;
}

static int close_out(FILE *f, const char *path)
{
    int bad = ferror(f);

    if (f != stdout)
        bad |= fclose(f);
    if (bad)
        fprintf(stderr, "shunt-links: %s could not be written\n", path);
    return bad ? -1 : 0;
}

/* Names come from the kernel or from this tool; quotes and control characters are left out all the same. */
static void text(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++)
        if ((unsigned char)*s >= 32 && *s != '"' && *s != '\\')
            fputc(*s, f);
    fputc('"', f);
}

int report_json(const char *path, const struct table *t, double threshold)
{
    FILE *f = open_out(path);
    const char *sep = "";

    if (!f)
        return -1;
    fprintf(f, "{\"ranks\":%d,\"hosts\":[", t->ranks);
    for (int h = 0; h < t->hosts; h++) {
        fputs(h ? "," : "", f);
        text(f, t->host[h]);
    }
    fputs("],\"host_of\":[", f);
    for (int r = 0; r < t->ranks; r++)
        fprintf(f, "%s%d", r ? "," : "", t->host_of[r]);
    fputs("],\"rails\":[", f);
    for (int r = 0; r < t->rails; r++) {
        fputs(r ? "," : "", f);
        fputs("{\"name\":", f);
        text(f, t->rail[r]);
        fprintf(f, ",\"promised\":%.0f}", t->promised[r]);
    }
    fputs("],\"links\":[", f);
    for (int r = 0; r < t->rails; r++)
        for (int a = 0; a < t->ranks; a++)
            for (int b = 0; b < t->ranks; b++) {
                const struct cell *c = at(t, r, a, b);
                if (a == b || (c->alone <= 0 && !c->failed))
                    continue;
                fprintf(f, "%s{\"rail\":", sep);
                text(f, t->rail[r]);
                fprintf(f, ",\"from\":%d,\"to\":%d,\"latency\":%.9f,\"alone\":%.0f,\"together\":%.0f,\"failed\":%s}", a, b,
                        c->latency, c->alone, c->together, c->failed ? "true" : "false");
                sep = ",\n";
            }
    fprintf(f, "],\"outliers\":%d}\n", report_outliers(NULL, t, threshold));
    return close_out(f, path);
}

int report_save(const char *path, const struct table *t)
{
    FILE *f = open_out(path);

    if (!f)
        return -1;
    fputs("# shunt-links 1: rail from to latency(s) alone(B/s) together(B/s) failed\n", f);
    for (int r = 0; r < t->rails; r++)
        for (int a = 0; a < t->ranks; a++)
            for (int b = 0; b < t->ranks; b++) {
                const struct cell *c = at(t, r, a, b);
                if (a != b && (c->alone > 0 || c->failed))
                    fprintf(f, "%s %d %d %.9f %.0f %.0f %d\n", t->rail[r], a, b, c->latency, c->alone, c->together, c->failed);
            }
    return close_out(f, path);
}

int report_compare(FILE *f, const char *path, const struct table *t)
{
    FILE *in = fopen(path, "r");
    char line[256], rail[LINKS_NAME];
    int a, b, failed, changed = 0, number = 0, same = 0;
    double lat, alone, together;

    if (!in) {
        perror(path);
        return -1;
    }
    while (fgets(line, sizeof(line), in)) {
        number++;
        if (number == 1 && strncmp(line, "# shunt-links 1:", 16) != 0)
            break;
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (sscanf(line, "%47s %d %d %lf %lf %lf %d", rail, &a, &b, &lat, &alone, &together, &failed) != 7)
            break;
        int r = 0;
        while (r < t->rails && strcmp(t->rail[r], rail) != 0)
            r++;
        if (r == t->rails || a < 0 || b < 0 || a >= t->ranks || b >= t->ranks) {
            fprintf(f, "changed: %s %d -> %d is not there any more\n", rail, a, b);
            changed++;
            continue;
        }
        const struct cell *c = at(t, r, a, b);
        if (c->failed != failed)
            fprintf(f, "changed: %s %d -> %d %s\n", rail, a, b, c->failed ? "fails now" : "works again"), changed++;
        else if (!failed && alone > 0 && (c->alone < 0.8 * alone || c->alone > 1.25 * alone))
            fprintf(f, "changed: %s %d -> %d %.0f -> %.0f MB/s (%.0f %%)\n", rail, a, b, alone / 1e6, c->alone / 1e6,
                    100 * c->alone / alone), changed++;
        else
            same++;
    }
    int bad = !feof(in);
    fclose(in);
    if (bad || number == 0) {
        fprintf(stderr, "shunt-links: %s, line %d: not a table that shunt-links --save has written\n", path, number);
        return -1;
    }
    fprintf(f, "%d links as before, %d changed\n", same, changed);
    return changed;
}
