/* SPDX-License-Identifier: BSD-3-Clause */
/* Heat maps: one for latency and one for bandwidth per rail, dark where a link falls out of its class. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tools/links/links.h"

#define CELL 48
#define LEFT 150
#define TOP 70

/* From good (green) over middling (yellow) to bad (red); `share` 1 is the best of the map. */
static void color(double share, char *out, size_t len)
{
    double x = share < 0 ? 0 : share > 1 ? 1 : share;
    int r = (int)(x > 0.5 ? 250 - (x - 0.5) * 2 * 140 : 222 + x * 2 * 28), g = (int)(x > 0.5 ? 205 : 90 + x * 2 * 115);

    snprintf(out, len, "#%02x%02x%02x", r, g, (int)(95 + x * 25));
}

static void map(FILE *f, const struct table *t, int rail, int latency, double x0, double y0)
{
    double best = 0;

    for (int a = 0; a < t->ranks; a++)
        for (int b = 0; b < t->ranks; b++) {
            const struct cell *c = at(t, rail, a, b);
            double v = latency ? (c->latency > 0 ? 1 / c->latency : 0) : c->alone;
            if (a != b && v > best)
                best = v;
        }
    fprintf(f, "<text class=\"h\" x=\"%.0f\" y=\"%.0f\">%s: %s</text>\n", x0, y0 - 34, t->rail[rail],
            latency ? "latency one way, us" : "bandwidth alone, MB/s");
    for (int b = 0; b < t->ranks; b++)
        fprintf(f, "<text class=\"c\" x=\"%.0f\" y=\"%.0f\">%d</text>\n", x0 + (b + 0.5) * CELL, y0 - 8, b);
    for (int a = 0; a < t->ranks; a++) {
        fprintf(f, "<text class=\"r\" x=\"%.0f\" y=\"%.0f\">%s %d</text>\n", x0 - 8, y0 + (a + 0.6) * CELL,
                t->host[t->host_of[a]], a);
        for (int b = 0; b < t->ranks; b++) {
            const struct cell *c = at(t, rail, a, b);
            double v = latency ? (c->latency > 0 ? 1 / c->latency : 0) : c->alone;
            char fill[16] = "none", label[24] = "";
            if (a != b && c->failed)
                snprintf(fill, sizeof(fill), "#404040"), snprintf(label, sizeof(label), "fails");
            else if (a != b && v > 0) {
                color(v / best, fill, sizeof(fill));
                double shown = latency ? c->latency * 1e6 : c->alone / 1e6;
                snprintf(label, sizeof(label), shown < 10 ? "%.1f" : "%.0f", shown);
            }
            fprintf(f, "<rect class=\"k\" x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" fill=\"%s\"/>", x0 + b * CELL,
                    y0 + a * CELL, CELL - 2, CELL - 2, fill);
            if (*label)
                fprintf(f, "<text class=\"%s\" x=\"%.0f\" y=\"%.0f\">%s</text>", c->failed ? "w" : "v",
                        x0 + (b + 0.48) * CELL, y0 + (a + 0.58) * CELL, label);
            fputc('\n', f);
        }
    }
}

static int measured(const struct table *t, int rail)
{
    for (int a = 0; a < t->ranks; a++)
        for (int b = 0; b < t->ranks; b++)
            if (at(t, rail, a, b)->alone > 0 || at(t, rail, a, b)->failed)
                return 1;
    return 0;
}

int report_svg(const char *path, const struct table *t, double threshold)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    double side = t->ranks * CELL, wide = side < 240 ? 240 : side, width = 2 * (LEFT + wide) + 40, height = 60, y = TOP;
    int bad;

    if (!f) {
        perror(path);
        return -1;
    }
    for (int r = 0; r < t->rails; r++)
        height += measured(t, r) ? TOP + side : 0;
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n", width,
            height, width, height);
    fputs("<style>text{font:13px sans-serif;fill:#222}.h{font-size:16px;font-weight:bold}.c,.v,.w{text-anchor:middle}"
          ".r{text-anchor:end}.v{font-size:12px;fill:#111}.w{font-size:12px;fill:#fff}.k{stroke:#9996}.bg{fill:#fff}"
          "@media(prefers-color-scheme:dark){text{fill:#ddd}.bg{fill:#16181d}.v{fill:#111}}</style>\n", f);
    fprintf(f, "<rect class=\"bg\" width=\"%.0f\" height=\"%.0f\"/>\n", width, height);
    for (int r = 0; r < t->rails; r++) {
        if (!measured(t, r))
            continue;
        map(f, t, r, 1, LEFT, y);
        map(f, t, r, 0, 2 * LEFT + wide, y);
        y += TOP + side;
    }
    fprintf(f, "<text x=\"20\" y=\"%.0f\">Rows send, columns receive. Green is the best of each map. %d outliers below %.0f %% "
            "of their class.</text>\n</svg>\n", height - 20, report_outliers(NULL, t, threshold), 100 * threshold);
    bad = ferror(f);
    if (f != stdout)
        bad |= fclose(f);
    return bad ? -1 : 0;
}
