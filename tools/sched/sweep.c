/* SPDX-License-Identifier: BSD-3-Clause */
/* sweep: what a delay on one link costs each schedule. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tools/sched/sched.h"

#define MAX_SCHEDULES 12

struct sweep {
    char *names, *name[MAX_SCHEDULES];
    int n, n_delays;
    const double *delays;
    double healthy[MAX_SCHEDULES]; /* makespan without delay on the link */
    double *makespan;              /* [schedule * n_delays + delay] */
    double *bound;                 /* [delay] of the profile with split backward if there is one */
};

/* One makespan; the schedules that adapt are made anew for each delay. */
static double one(struct inputs *in, const char *name, double delay, double *bound)
{
    shunt_sched_profile_t *profile;
    shunt_sched_result_t *result;
    int links = in->n_links;
    struct link *l = NULL, kept = {0};

    for (int k = 0; k < links; k++)
        if (in->links[k].index == in->sweep_link)
            l = &in->links[k];
    if (!l) {
        if (links == MAX_LINKS)
            usage_error("more than %d links", MAX_LINKS);
        l = &in->links[in->n_links++];
        memset(l, 0, sizeof(*l));
        l->index = in->sweep_link;
    }
    kept = *l;
    l->latency[0] = l->latency[1] = delay;
    shunt_sched_t *schedule = make_schedule(in, name, &profile, NULL, 0);
    check(shunt_sched_simulate(schedule, profile, in->blocking ? SHUNT_SCHED_BLOCKING_SENDS : 0, &result));
    double t = shunt_sched_result_makespan(result), f, b, w;
    shunt_sched_profile_get_stage(profile, 0, &f, &b, &w);
    if (bound)
        *bound = shunt_sched_lower_bound(profile, w > 0);
    shunt_sched_result_destroy(result);
    shunt_sched_destroy(schedule);
    shunt_sched_profile_destroy(profile);
    *l = kept;
    in->n_links = links;
    return t;
}

static void print_json(const struct inputs *in, const struct sweep *s)
{
    printf("{\n  \"link\": %d,\n  \"delays\": [", in->sweep_link);
    for (int k = 0; k < s->n_delays; k++)
        printf("%s%.10g", k ? ", " : "", s->delays[k]);
    printf("],\n  \"lower_bound\": [");
    for (int k = 0; k < s->n_delays; k++)
        printf("%s%.10g", k ? ", " : "", s->bound[k]);
    printf("],\n  \"schedules\": [");
    for (int j = 0; j < s->n; j++) {
        printf("%s\n    {\"name\": \"%s\", \"healthy\": %.10g, \"makespan\": [", j ? "," : "", s->name[j],
               s->healthy[j]);
        for (int k = 0; k < s->n_delays; k++)
            printf("%s%.10g", k ? ", " : "", s->makespan[j * s->n_delays + k]);
        printf("], \"slowdown\": [");
        for (int k = 0; k < s->n_delays; k++)
            printf("%s%.6g", k ? ", " : "", s->makespan[j * s->n_delays + k] / s->healthy[j]);
        printf("]}");
    }
    printf("\n  ]\n}\n");
}

static void print_table(const struct inputs *in, const struct sweep *s, FILE *out)
{
    fprintf(out, "delay on link %d-%d: makespan (slow-down against the same schedule without it)\n\n%8s",
            in->sweep_link, (in->sweep_link + 1) % in->stages, "delay");
    for (int j = 0; j < s->n; j++)
        fprintf(out, "  %18s", s->name[j]);
    fprintf(out, "  %12s\n", "lower bound");
    for (int k = 0; k < s->n_delays; k++) {
        fprintf(out, "%8.4g", s->delays[k]);
        for (int j = 0; j < s->n; j++) {
            double t = s->makespan[j * s->n_delays + k];
            fprintf(out, "  %10.6g (%4.2f\xc3\x97)", t, t / s->healthy[j]);
        }
        fprintf(out, "  %12.6g\n", s->bound[k]);
    }
}

static void print_svg(const struct inputs *in, const struct sweep *s, FILE *out)
{
    static const char *const colours[] = {"#c44e52", "#dd8452", "#4f86c6", "#55a868", "#8172b3", "#937860",
                                          "#da8bc3", "#8c8c8c", "#ccb974", "#64b5cd", "#333333", "#999999"};
    const double left = 70, top = 50, width = 620, height = 360;
    double most = 1, far = 0, step;

    for (int k = 0; k < s->n * s->n_delays; k++)
        most = fmax(most, s->makespan[k] / s->healthy[k / s->n_delays]);
    for (int k = 0; k < s->n_delays; k++)
        far = fmax(far, s->delays[k]);
    far = far > 0 ? far : 1;
    most = most > 1.05 ? most : 1.05;
    step = most - 1 > 5 ? 2 : most - 1 > 2 ? 0.5 : most - 1 > 0.6 ? 0.2 : most - 1 > 0.15 ? 0.05 : 0.01;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"470\" viewBox=\"0 0 900 470\" "
            "font-family=\"sans-serif\" "
            "font-size=\"12\" fill=\"#222222\">\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"#ffffff\"/>\n<text x=\"%.0f\" y=\"26\" font-size=\"15\" "
            "font-weight=\"bold\">Slow-down against the delay of link %d-%d, %d stages, %d "
            "micro-batches</text>\n",
            left, in->sweep_link, (in->sweep_link + 1) % in->stages, in->stages, in->microbatches);
    for (double y = 1; y <= most + 1e-9; y += step) {
        double at = top + height * (1 - (y - 1) / (most - 1));
        fprintf(out,
                "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e2e2e2\"/><text x=\"%.0f\" "
                "y=\"%.1f\" text-anchor=\"end\">"
                "%.3g\xc3\x97</text>\n",
                left, left + width, at, at, left - 8, at + 4, y);
    }
    double last = -100;
    for (int k = 0; k < s->n_delays; k++) {
        double at = left + width * s->delays[k] / far;
        if (fabs(at - last) < 28)
            continue;
        last = at;
        fprintf(out, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.4g</text>\n", at,
                top + height + 18, s->delays[k]);
    }
    fprintf(out,
            "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\" fill=\"#555555\">delay each way, in the unit "
            "of the stage times</text>\n",
            left + width / 2, top + height + 40);
    for (int j = 0; j < s->n; j++) {
        const char *colour = colours[j % 12];
        fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
        for (int k = 0; k < s->n_delays; k++)
            fprintf(out, "%.1f,%.1f ", left + width * s->delays[k] / far,
                    top + height * (1 - (s->makespan[j * s->n_delays + k] / s->healthy[j] - 1) / (most - 1)));
        fprintf(out,
                "\"/>\n<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" "
                "stroke-width=\"3\"/><text x=\"%.0f\" y=\"%d\">%s"
                "</text>\n",
                left + width + 24, left + width + 48, 66 + 22 * j, 66 + 22 * j, colour, left + width + 56,
                70 + 22 * j, s->name[j]);
    }
    fprintf(out, "</svg>\n");
}

int run_sweep(struct inputs *in)
{
    struct sweep s = {0};
    double defaults[] = {0, 0.5, 1, 2, 4, 8}, unit;
    const char *format = in->format ? in->format : in->output && strstr(in->output, ".svg") ? "svg" : "text";

    if (strcmp(format, "text") != 0 && strcmp(format, "svg") != 0)
        usage_error("--format %s: sweep knows text and svg", format);
    shunt_sched_profile_t *profile = make_profile(in, 0);
    shunt_sched_profile_get_stage(profile, 0, &unit, NULL, NULL);
    shunt_sched_profile_destroy(profile);
    if (in->stages < 2)
        usage_error("a pipeline of one stage has no links");
    if (in->sweep_link < 0)
        in->sweep_link = in->stages - 2;
    for (int k = 0; k < 6; k++)
        defaults[k] *= unit;
    s.delays = in->delays.n > 0 ? in->delays.values : defaults;
    s.n_delays = in->delays.n > 0 ? in->delays.n : 6;
    s.names = strdup(in->schedules      ? in->schedules
                     : in->schedule     ? in->schedule
                     : in->chunks > 1   ? "interleaved,plan"
                     : in->weight.n > 0 ? "1f1b,zb-h1,zb-h2,adapted,plan"
                                        : "1f1b,adapted,ready,plan");
    for (char *name = s.names ? strtok(s.names, ",") : NULL; name && s.n < MAX_SCHEDULES;
         name = strtok(NULL, ","))
        s.name[s.n++] = name;
    s.makespan = calloc((size_t)(s.n * s.n_delays) + 1, sizeof(double));
    s.bound = calloc((size_t)s.n_delays, sizeof(double));
    if (!s.makespan || !s.bound || s.n == 0)
        usage_error("--schedules names nothing to compare");
    for (int j = 0; j < s.n; j++) {
        s.healthy[j] = one(in, s.name[j], 0, NULL);
        for (int k = 0; k < s.n_delays; k++)
            s.makespan[j * s.n_delays + k] = one(in, s.name[j], s.delays[k], &s.bound[k]);
    }
    if (in->json)
        print_json(in, &s);
    else {
        FILE *out = open_output(in);
        if (strcmp(format, "svg") == 0)
            print_svg(in, &s, out);
        else
            print_table(in, &s, out);
        close_output(in, out);
    }
    free(s.names);
    free(s.makespan);
    free(s.bound);
    return 0;
}
