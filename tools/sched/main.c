/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt-sched: plan, simulate, draw, export and explain pipeline schedules. */
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "tools/sched/sched.h"

static const char help[] =
    "usage: shunt-sched COMMAND [OPTION]...\n"
    "\n"
    "  simulate   run a schedule over a profile: makespan, period, idle time and its causes, memory\n"
    "  plan       find a schedule for a profile, and say how far from possible it is\n"
    "  draw       a Gantt chart: in the terminal, as SVG, or as a trace for chrome://tracing\n"
    "  export     write a schedule for PyTorch, as JSON, or as text\n"
    "  sweep      slow-down of several schedules against the delay of one link\n"
    "  explain    read the trace of a run: where time went, and what would be better\n"
    "\n"
    "The pipeline (single numbers hold for every stage, lists are comma-separated, one entry per stage):\n"
    "  --stages P, --microbatches M    sizes; the stages may follow from a list\n"
    "  --forward F, --backward B       times of one micro-batch, in any unit (default 1 and 2)\n"
    "  --weight W                      weight gradient, if split off; B is then the input gradient alone\n"
    "  --link I:C                      latency C each way between stage I and I+1 (I:DOWN:UP if they differ)\n"
    "  --bandwidth-link I:T            messages on the link take T each and queue (I:DOWN:UP if they differ)\n"
    "  --cap N                         most live micro-batches, per stage\n"
    "  --chunks V                      model chunks per stage (interleaved, zb-v); link P-1 joins both ends\n"
    "  --blocking                      a stage stands still while it sends\n"
    "  --schedule NAME                 gpipe, 1f1b, adapted, zb-h1, zb-h2, zb-v, interleaved, pipemorph,\n"
    "                                  ready, plan, or a file that export wrote\n"
    "                                  (default: 1f1b; plan for draw and export)\n"
    "\n"
    "Results:\n"
    "  --json                          one object on standard output (simulate, plan, sweep, explain)\n"
    "  --format NAME                   draw: text, svg, trace; sweep: text, svg; export: text, json,\n"
    "                                  pytorch-csv, pytorch-csv-comms, pytorch-csv-comms-plain\n"
    "  -o, --output FILE               write there; a suffix .svg, .csv or .json chooses the format\n"
    "  --effort N                      N times as much search for the plan (default 1)\n"
    "  --no-split                      plan only whole backwards\n"
    "  --delays LIST, --schedules LIST what sweep compares; --link I without a delay is the link it varies\n"
    "  --columns N, --us N             width of a chart in the terminal; microseconds per unit in a trace\n"
    "  --help, --version\n"
    "\n"
    "Example: shunt-sched plan --stages 8 --microbatches 24 --forward 1 --backward 1 --weight 1 --link 6:4\n";

void usage_error(const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "shunt-sched: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, " (shunt-sched --help)\n");
    exit(2);
}

void check(shunt_status_t status)
{
    if (status == SHUNT_OK)
        return;
    fprintf(stderr, "shunt-sched: %s\n", shunt_error_text());
    exit(1);
}

static double number(const char *option, const char *text, const char *end)
{
    char copy[64], *stop;
    size_t n = end ? (size_t)(end - text) : strlen(text);

    if (n == 0 || n >= sizeof(copy))
        usage_error("%s: \"%.*s\" is no number", option, n > 60 ? 60 : (int)n, text);
    memcpy(copy, text, n);
    copy[n] = 0;
    double value = strtod(copy, &stop);
    if (*stop || stop == copy)
        usage_error("%s: \"%s\" is no number", option, copy);
    return value;
}

static int whole(const char *option, const char *text, int least)
{
    double x = number(option, text, NULL);

    if (!(x >= least) || x > 2e9 || x != (int)x)
        usage_error("%s %s: expected a whole number from %d", option, text, least);
    return (int)x;
}

struct list parse_list(const char *option, const char *text)
{
    struct list list = {NULL, 0};
    int colons = 0, room = 1;

    for (const char *p = text; *p; p++) {
        colons += *p == ':';
        room += *p == ',';
    }
    if (colons == 2) {
        const char *second = strchr(text, ':'), *third = strchr(second + 1, ':');
        double from = number(option, text, second), to = number(option, second + 1, third);
        double step = number(option, third + 1, NULL);
        if (!(step > 0) || !(to >= from) || (to - from) / step > 10000)
            usage_error("%s %s: expected FROM:TO:STEP with at most 10000 steps", option, text);
        room = (int)((to - from) / step + 1e-9) + 1;
        list.values = calloc((size_t)room, sizeof(double));
        for (int k = 0; list.values && k < room; k++)
            list.values[list.n++] = from + k * step;
        return list;
    }
    list.values = calloc((size_t)room, sizeof(double));
    for (const char *p = text; list.values;) {
        const char *comma = strchr(p, ',');
        list.values[list.n++] = number(option, p, comma);
        if (!comma)
            break;
        p = comma + 1;
    }
    return list;
}

/* "6:4" or "6:4:5"; for a sweep also "6" alone. */
static void parse_link(struct inputs *in, const char *option, const char *text, int is_service)
{
    const char *colon = strchr(text, ':'), *second = colon ? strchr(colon + 1, ':') : NULL;
    double index = number(option, text, colon), down, up;

    if (!(index >= 0) || index != (int)index || index >= SHUNT_SCHED_MAX_STAGES)
        usage_error("%s %s: link I joins stage I and stage I+1; I is a whole number from 0", option, text);
    if (!colon && !is_service && strcmp(in->command, "sweep") == 0) {
        in->sweep_link = (int)index;
        return;
    }
    if (!colon)
        usage_error("%s %s: expected LINK:TIME", option, text);
    down = number(option, colon + 1, second);
    up = second ? number(option, second + 1, NULL) : down;
    struct link *link = NULL;
    for (int k = 0; k < in->n_links; k++) /* latency and service time of one link come together */
        if (in->links[k].index == (int)index)
            link = &in->links[k];
    if (!link) {
        if (in->n_links == MAX_LINKS)
            usage_error("more than %d links", MAX_LINKS);
        link = &in->links[in->n_links++];
        memset(link, 0, sizeof(*link));
        link->index = (int)index;
    }
    (is_service ? link->service : link->latency)[0] = down;
    (is_service ? link->service : link->latency)[1] = up;
}

enum { STAGES = 256, MICROBATCHES, FORWARD, BACKWARD, WEIGHT, LINK, BANDWIDTH, CAP, CHUNKS, BLOCKING, SCHEDULE,
       JSON, FORMAT, EFFORT, NO_SPLIT, DELAYS, SCHEDULES, COLUMNS, US, TITLE, VERSION };

static const struct option options[] = {
    {"stages", required_argument, NULL, STAGES},       {"microbatches", required_argument, NULL, MICROBATCHES},
    {"forward", required_argument, NULL, FORWARD},     {"backward", required_argument, NULL, BACKWARD},
    {"weight", required_argument, NULL, WEIGHT},       {"link", required_argument, NULL, LINK},
    {"bandwidth-link", required_argument, NULL, BANDWIDTH}, {"cap", required_argument, NULL, CAP},
    {"chunks", required_argument, NULL, CHUNKS},       {"blocking", no_argument, NULL, BLOCKING},
    {"schedule", required_argument, NULL, SCHEDULE},   {"json", no_argument, NULL, JSON},
    {"format", required_argument, NULL, FORMAT},       {"effort", required_argument, NULL, EFFORT},
    {"no-split", no_argument, NULL, NO_SPLIT},         {"delays", required_argument, NULL, DELAYS},
    {"schedules", required_argument, NULL, SCHEDULES}, {"columns", required_argument, NULL, COLUMNS},
    {"us", required_argument, NULL, US},               {"title", required_argument, NULL, TITLE},
    {"output", required_argument, NULL, 'o'},          {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, VERSION},           {NULL, 0, NULL, 0}};

static void take_list(struct list *list, const char *option, const char *text)
{
    free(list->values);
    *list = parse_list(option, text);
}

void parse_options(struct inputs *in, int argc, char **argv)
{
    int c;

    memset(in, 0, sizeof(*in));
    in->chunks = 1;
    in->sweep_link = -1;
    in->columns = 100;
    in->effort = 1;
    in->us = 1000;
    if (getenv("COLUMNS") && atoi(getenv("COLUMNS")) > 40)
        in->columns = atoi(getenv("COLUMNS"));
    if (argc < 2)
        usage_error("a command is missing");
    in->command = argv[1];
    if (*in->command != '-') {
        argc--;
        argv++;
    } else
        in->command = "";
    while ((c = getopt_long(argc, argv, "o:h", options, NULL)) != -1)
        switch (c) {
        case STAGES:
            in->stages = whole("--stages", optarg, 1);
            break;
        case MICROBATCHES:
            in->microbatches = whole("--microbatches", optarg, 1);
            break;
        case FORWARD:
            take_list(&in->forward, "--forward", optarg);
            break;
        case BACKWARD:
            take_list(&in->backward, "--backward", optarg);
            break;
        case WEIGHT:
            take_list(&in->weight, "--weight", optarg);
            break;
        case LINK:
            parse_link(in, "--link", optarg, 0);
            break;
        case BANDWIDTH:
            parse_link(in, "--bandwidth-link", optarg, 1);
            break;
        case CAP:
            take_list(&in->cap, "--cap", optarg);
            break;
        case CHUNKS:
            in->chunks = whole("--chunks", optarg, 1);
            break;
        case BLOCKING:
            in->blocking = 1;
            break;
        case SCHEDULE:
            in->schedule = optarg;
            break;
        case SCHEDULES:
            in->schedules = optarg;
            break;
        case JSON:
            in->json = 1;
            break;
        case FORMAT:
            in->format = optarg;
            break;
        case EFFORT:
            in->effort = number("--effort", optarg, NULL);
            if (!(in->effort > 0) || in->effort > 1e6)
                usage_error("--effort %s: expected a number from above 0 to 1000000", optarg);
            break;
        case NO_SPLIT:
            in->no_split = 1;
            break;
        case DELAYS:
            take_list(&in->delays, "--delays", optarg);
            break;
        case COLUMNS:
            in->columns = whole("--columns", optarg, 30);
            break;
        case US:
            in->us = number("--us", optarg, NULL);
            break;
        case TITLE:
            in->title = optarg;
            break;
        case 'o':
            in->output = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            exit(0);
        case VERSION:
            printf("shunt-sched %s\n", SHUNT_TOOL_VERSION);
            exit(0);
        default:
            usage_error("that option is unknown or lacks its value");
        }
    if (optind < argc && strcmp(in->command, "explain") == 0)
        in->trace = argv[optind++];
    if (optind < argc)
        usage_error("\"%s\" was not expected", argv[optind]);
}

void free_inputs(struct inputs *in)
{
    free(in->forward.values);
    free(in->backward.values);
    free(in->weight.values);
    free(in->cap.values);
    free(in->delays.values);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(struct inputs *);
    } commands[] = {{"simulate", run_simulate}, {"plan", run_plan},   {"draw", run_draw},
                    {"export", run_export},     {"sweep", run_sweep}, {"explain", run_explain}};
    struct inputs in;

    parse_options(&in, argc, argv);
    for (size_t k = 0; k < sizeof(commands) / sizeof(commands[0]); k++)
        if (strcmp(in.command, commands[k].name) == 0) {
            int rc = commands[k].run(&in);
            free_inputs(&in);
            return rc;
        }
    usage_error("\"%s\" is no command: there are simulate, plan, draw, export, sweep and explain", in.command);
}
