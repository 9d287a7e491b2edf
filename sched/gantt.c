/* SPDX-License-Identifier: BSD-3-Clause */
/* Gantt charts of a simulated schedule: SVG for documents, text for terminals. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "sched/sched.h"

static const struct {
    const char *name, *fill, *ink, *ansi;
} looks[] = {
    {"forward", "#4f86c6", "#ffffff", "\033[44;97m"},
    {"backward", "#e9a23b", "#3a2a08", "\033[43;30m"},
    {"input gradient", "#e9a23b", "#3a2a08", "\033[43;30m"},
    {"weight gradient", "#7fb77e", "#16351a", "\033[42;30m"},
};

static shunt_status_t need_timeline(const struct shunt_sched_result *r, const FILE *out)
{
    if (!r || !out || !r->starts)
        return shunt__fail(SHUNT_ERR_INVALID,
                           "chart: the result has no timeline; simulate with SHUNT_SCHED_TIMELINE");
    return r->makespan > 0 ? SHUNT_OK
                           : shunt__fail(SHUNT_ERR_INVALID, "chart: the schedule takes no time at all");
}

static double duration(const struct shunt_sched_result *r, int stage, size_t k)
{
    return r->durations[stage * r->v * 4 + (int)(r->ops[k] & 0xff)];
}

static void xml_text(const char *text, FILE *out)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&')
            fprintf(out, "&#%d;", *text);
        else if ((unsigned char)*text >= 32)
            fputc(*text, out);
}

/* A round step that gives about ten marks. */
static double tick(double makespan)
{
    double step = pow(10, floor(log10(makespan / 8)));

    return makespan / step > 40 ? 5 * step : makespan / step > 16 ? 2 * step : step;
}

enum { LEFT = 64, TOP = 54, ROW = 26, BAR = 20, WIDTH = 1100, FOOT = 64 };

static void svg_row(const struct shunt_sched_result *r, int i, double scale, FILE *out)
{
    double y = TOP + i * ROW;

    fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">stage %d</text>\n", LEFT - 8, y + 14, i);
    fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"#f1f1ee\"/>\n", LEFT, y,
            r->makespan * scale, BAR);
    for (size_t k = r->offset[i]; k < r->offset[i + 1]; k++) {
        int type = (int)SHUNT__OP_TYPE(r->ops[k]), mb = SHUNT__OP_MICROBATCH(r->ops[k]),
            chunk = SHUNT__OP_CHUNK(r->ops[k]);
        double x = LEFT + r->starts[k] * scale, w = duration(r, i, k) * scale;
        if (w <= 0)
            continue;
        fprintf(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"%s%s/>\n", x, y, w,
                BAR, looks[type].fill, w > 3 ? " stroke=\"#ffffff\" stroke-width=\"0.6\"" : "",
                chunk & 1 ? " fill-opacity=\"0.65\"" : "");
        if (w >= (mb < 10 ? 8 : mb < 100 ? 13 : 19))
            fprintf(
                out,
                "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"%s\" font-size=\"10\">%d</text>\n",
                x + w / 2, y + 13.5, looks[type].ink, mb);
    }
}

static void svg_legend(const struct shunt_sched_result *r, double y, FILE *out)
{
    int used[4] = {0}, chunks = r->v > 1;
    double x = LEFT;

    for (size_t k = 0; k < r->offset[r->p]; k++)
        used[SHUNT__OP_TYPE(r->ops[k])] = 1;
    for (int type = 0; type < 4; type++) {
        if (!used[type])
            continue;
        fprintf(out,
                "<rect x=\"%.0f\" y=\"%.1f\" width=\"14\" height=\"12\" fill=\"%s\"/><text x=\"%.0f\" "
                "y=\"%.1f\">%s</text>\n",
                x, y, looks[type].fill, x + 20, y + 10, looks[type].name);
        x += 40 + 7 * (double)strlen(looks[type].name);
    }
    fprintf(out,
            "<rect x=\"%.0f\" y=\"%.1f\" width=\"14\" height=\"12\" fill=\"#f1f1ee\" "
            "stroke=\"#c8c8c0\"/><text x=\"%.0f\" y=\"%.1f\">idle%s"
            "</text>\n",
            x, y, x + 20, y + 10, chunks ? "; paler: odd chunks" : "");
}

shunt_status_t shunt_sched_result_write_svg(const shunt_sched_result_t *result, const char *title, FILE *out)
{
    const struct shunt_sched_result *r = result;
    shunt_status_t st = need_timeline(r, out);
    double scale, step;

    if (st != SHUNT_OK)
        return st;
    scale = WIDTH / r->makespan;
    step = tick(r->makespan);
    int height = TOP + r->p * ROW + FOOT, bottom = TOP + r->p * ROW;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" "
            "font-size=\"12\" fill=\"#222222\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
            LEFT + WIDTH + 30, height, LEFT + WIDTH + 30, height);
    fprintf(out, "<text x=\"%d\" y=\"22\" font-size=\"15\" font-weight=\"bold\">", LEFT);
    xml_text(title ? title : "", out);
    fprintf(
        out,
        "</text>\n<text x=\"%d\" y=\"41\" fill=\"#555555\">makespan %.6g, period %.6g, %.1f %% idle</text>\n",
        LEFT, r->makespan, r->period, 100 * r->bubble);
    for (double t = 0; t <= r->makespan * (1 + 1e-9); t += step) {
        double x = LEFT + t * scale;
        fprintf(out,
                "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\" stroke=\"#dddddd\"/><text x=\"%.2f\" "
                "y=\"%d\" text-anchor=\"middle\" "
                "fill=\"#777777\" font-size=\"10\">%.6g</text>\n",
                x, TOP - 4, x, bottom, x, bottom + 12, t);
    }
    for (int i = 0; i < r->p; i++)
        svg_row(r, i, scale, out);
    svg_legend(r, bottom + 30, out);
    fprintf(out, "</svg>\n");
    if (fflush(out) != 0 || ferror(out))
        return shunt__fail(SHUNT_ERR_SYSTEM, "the chart could not be written");
    return SHUNT_OK;
}

/* The line of a stage: one character per column, '.' where it is idle most of the column. */
static void text_row(const struct shunt_sched_result *r, int i, int columns, int colour, FILE *out)
{
    char *line = malloc((size_t)columns + 1), *kind = calloc((size_t)columns + 1, 1);
    int shown = -1;

    for (int c = 0; line && kind && c < columns; c++)
        line[c] = '.';
    for (size_t k = r->offset[i]; line && kind && k < r->offset[i + 1]; k++) {
        int type = (int)SHUNT__OP_TYPE(r->ops[k]);
        int from = (int)(r->starts[k] / r->makespan * columns + 0.5);
        int to = (int)((r->starts[k] + duration(r, i, k)) / r->makespan * columns + 0.5);
        char name[16];
        int len = snprintf(name, sizeof(name), "%c%d", shunt__sched_letter((shunt_sched_type_t)type),
                           SHUNT__OP_MICROBATCH(r->ops[k]));
        for (int c = from; c < to && c < columns; c++) {
            kind[c] = (char)(type + 1);
            line[c] = colour           ? (c - from < len - 1 ? name[c - from + 1] : ' ')
                      : c - from < len ? name[c - from]
                                       : name[0] | 32;
        }
    }
    for (int c = 0; line && kind && c < columns; c++) {
        if (colour && kind[c] != shown) {
            fputs(kind[c] ? looks[(int)kind[c] - 1].ansi : "\033[0m", out);
            shown = kind[c];
        }
        fputc(line[c], out);
    }
    if (colour)
        fputs("\033[0m", out);
    fputc('\n', out);
    free(line);
    free(kind);
}

shunt_status_t shunt_sched_result_write_text(const shunt_sched_result_t *result, int columns, int colour,
                                             FILE *out)
{
    const struct shunt_sched_result *r = result;
    shunt_status_t st = need_timeline(r, out);
    int width;

    if (st != SHUNT_OK)
        return st;
    width = columns - 6 > 20 ? columns - 6 : 20;
    double unit = r->makespan / width,
           whole = ceil(unit - 1e-9); /* a whole number of units per column looks calmer */
    if (unit > 0.5 && r->makespan / whole >= width / 2.0)
        width = (int)ceil(r->makespan / whole);
    for (int i = 0; i < r->p; i++) {
        fprintf(out, "%4d  ", i);
        text_row(r, i, width, colour, out);
    }
    fprintf(out, "      makespan %.6g, period %.6g, %.1f %% idle\n", r->makespan, r->period, 100 * r->bubble);
    if (fflush(out) != 0 || ferror(out))
        return shunt__fail(SHUNT_ERR_SYSTEM, "the chart could not be written");
    return SHUNT_OK;
}
