/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "tools/perf/perf.h"

static void usage(FILE *f)
{
    fprintf(f, "usage: shunt-perf [options] OPERATION\n"
               "Times an operation between ranks, in the columns of nccl-tests. Start it on every rank, e.g.\n"
               "  shunt-run -n 4 shunt-perf -b 8 -e 64M -f 4 allreduce\n\n"
               "operations:");
    kind_list(f);
    fprintf(f, "\n\n"
               "  -b, --minbytes SIZE    smallest size (default 32M; suffixes K, M, G)\n"
               "  -e, --maxbytes SIZE    largest size (default: the smallest)\n"
               "  -f, --stepfactor N     multiply the size by N from line to line\n"
               "  -i, --stepbytes SIZE   or add SIZE (default 1M)\n"
               "  -n, --iters N          timed operations per size (default 20)\n"
               "  -w, --warmup_iters N   operations before them (default 5)\n"
               "  -d, --datatype TYPE    float32 (default), bfloat16, int8 ...\n"
               "  -o, --op OPERATOR      sum (default), prod, min, max, avg\n"
               "  -r, --root RANK        of broadcast, reduce, gather, scatter (default 0)\n"
               "  -c, --check 0|1        compare results with what they must be (default 1)\n"
               "      --place out|in     only out of place, or only in place (default: both)\n"
               "      --explain          say which algorithm each size takes, and why\n"
               "      --json FILE        also write the results there (rank 0)\n"
               "      --help, --version\n");
}

static void mistake(const char *what, const char *value)
{
    fprintf(stderr, "shunt-perf: %s%s%s; see shunt-perf --help\n", what, value ? ": " : "", value ? value : "");
    exit(2);
}

static size_t size_of(const char *text)
{
    char *end;
    unsigned long long v;
    int shift = 0;

    errno = 0;
    v = strtoull(text, &end, 10);
    switch (*end) {
    case 'k': case 'K':
        shift = 10;
        break;
    case 'm': case 'M':
        shift = 20;
        break;
    case 'g': case 'G':
        shift = 30;
        break;
    default:
        break;
    }
    if (end == text || *text == '-' || errno || (*end && (!shift || end[1])) || v > (UINT64_MAX >> 16 >> shift))
        mistake("not a size", text);
    return (size_t)v << shift;
}

static int number_of(const char *text, int least)
{
    char *end;
    long v = strtol(text, &end, 10);

    if (end == text || *end || v < least || v > 1000000000)
        mistake("not a number that is possible here", text);
    return (int)v;
}

void options_parse(struct options *o, int argc, char **argv)
{
    enum { HELP = 256, VERSION, JSON, EXPLAIN, PLACE };
    static const struct option longs[] = {
        {"minbytes", required_argument, NULL, 'b'}, {"maxbytes", required_argument, NULL, 'e'},
        {"stepfactor", required_argument, NULL, 'f'}, {"stepbytes", required_argument, NULL, 'i'},
        {"iters", required_argument, NULL, 'n'}, {"warmup_iters", required_argument, NULL, 'w'},
        {"datatype", required_argument, NULL, 'd'}, {"op", required_argument, NULL, 'o'},
        {"root", required_argument, NULL, 'r'}, {"check", required_argument, NULL, 'c'},
        {"json", required_argument, NULL, JSON}, {"explain", no_argument, NULL, EXPLAIN},
        {"place", required_argument, NULL, PLACE},
        {"help", no_argument, NULL, HELP}, {"version", no_argument, NULL, VERSION}, {NULL, 0, NULL, 0}};
    int c, have_max = 0;

    *o = (struct options){.min = 32u << 20, .step = 1u << 20, .iters = 20, .warmup = 5, .check = 1,
                          .type = SHUNT_FLOAT32, .op = SHUNT_SUM};
    while ((c = getopt_long(argc, argv, "b:e:f:i:n:w:d:o:r:c:h", longs, NULL)) != -1) {
        switch (c) {
        case 'b':
            o->min = size_of(optarg);
            break;
        case 'e':
            o->max = size_of(optarg);
            have_max = 1;
            break;
        case 'f':
            o->factor = number_of(optarg, 2);
            break;
        case 'i':
            o->step = size_of(optarg);
            break;
        case 'n':
            o->iters = number_of(optarg, 1);
            break;
        case 'w':
            o->warmup = number_of(optarg, 0);
            break;
        case 'd':
            if (shunt_type_parse(optarg, &o->type) != SHUNT_OK)
                mistake("not a type", optarg);
            break;
        case 'o':
            if (shunt_op_parse(optarg, &o->op) != SHUNT_OK)
                mistake("not an operator", optarg);
            break;
        case 'r':
            o->root = number_of(optarg, 0);
            break;
        case 'c':
            o->check = number_of(optarg, 0);
            break;
        case JSON:
            o->json = optarg;
            break;
        case PLACE:
            if (strcmp(optarg, "out") != 0 && strcmp(optarg, "in") != 0)
                mistake("neither out nor in", optarg);
            o->place = optarg[0];
            break;
        case EXPLAIN:
            o->explain = 1;
            break;
        case 'h':
        case HELP:
            usage(stdout);
            exit(0);
        case VERSION:
            printf("shunt-perf %s\n", shunt_version());
            exit(0);
        default:
            exit(2);
        }
    }
    if (optind + 1 != argc)
        mistake(optind < argc ? "more than one operation" : "no operation", optind < argc ? argv[optind + 1] : NULL);
    o->op_name = argv[optind];
    if (!have_max)
        o->max = o->min;
    if (o->max < o->min)
        mistake("the largest size is below the smallest", NULL);
    if (!o->factor && !o->step)
        mistake("the step is 0", NULL);
    if (!kind_find(o->op_name))
        mistake("not an operation", o->op_name);
}
