/* SPDX-License-Identifier: BSD-3-Clause */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "tools/links/links.h"

static void usage(FILE *f)
{
    fputs("usage: shunt-run -n N shunt-links [OPTION...]   (or under shunt-lab run, mpirun, srun, torchrun)\n"
          "Measures latency and bandwidth of every pair of ranks over every rail, alone and all at once, shows them as\n"
          "matrices and names those that fall out of their class.\n"
          "\n"
          "  -t, --time SECONDS    at most about this long (20)\n"
          "  -b, --bytes BYTES     size of a bandwidth message (1m)\n"
          "  -a, --alone           only one pair at a time, not all at once\n"
          "  -o, --outlier SHARE   name what is under this share of its class's median (0.7)\n"
          "      --json FILE       everything, as JSON; - is standard output\n"
          "      --svg FILE        heat maps\n"
          "      --save FILE       keep the table\n"
          "      --compare FILE    say what has changed against a kept table\n"
          "  -q, --quiet           no progress line, outliers only\n"
          "      --help, --version\n"
          "\n"
          "Exit status: 0 nothing fell out, 1 something did or failed, 2 bad usage.\n", f);
}

static double number(const char *what, const char *text, double low, double high)
{
    char *end;
    double x = strtod(text, &end);

    if (*end == 'k' || *end == 'K')
        x *= 1024, end++;
    else if (*end == 'm' || *end == 'M')
        x *= 1048576, end++;
    if (end == text || *end || !(x >= low && x <= high)) {
        fprintf(stderr, "shunt-links: %s %s: expected a number from %g to %g\n", what, text, low, high);
        exit(2);
    }
    return x;
}

void options_parse(int argc, char **argv, struct options *o)
{
    enum { JSON = 256, SVG, SAVE, COMPARE, HELP, VERSION };
    static const struct option longs[] = {
        {"time", 1, 0, 't'}, {"bytes", 1, 0, 'b'}, {"alone", 0, 0, 'a'}, {"outlier", 1, 0, 'o'}, {"json", 1, 0, JSON},
        {"svg", 1, 0, SVG}, {"save", 1, 0, SAVE}, {"compare", 1, 0, COMPARE}, {"quiet", 0, 0, 'q'}, {"help", 0, 0, HELP},
        {"version", 0, 0, VERSION}, {0, 0, 0, 0}};
    int c;

    *o = (struct options){.time = 20, .bytes = 1 << 20, .threshold = 0.7};
    while ((c = getopt_long(argc, argv, "t:b:ao:q", longs, NULL)) != -1)
        switch (c) {
        case 't': o->time = number("--time", optarg, 0.1, 86400); break;
        case 'b': o->bytes = (size_t)number("--bytes", optarg, 1, 1 << 30); break;
        case 'a': o->alone_only = 1; break;
        case 'o': o->threshold = number("--outlier", optarg, 0, 1); break;
        case 'q': o->quiet = 1; break;
        case JSON: o->json = optarg; break;
        case SVG: o->svg = optarg; break;
        case SAVE: o->save = optarg; break;
        case COMPARE: o->compare = optarg; break;
        case HELP: usage(stdout); exit(0);
        case VERSION: printf("shunt-links %s\n", shunt_version()); exit(0);
        default: usage(stderr); exit(2);
        }
    if (optind < argc) {
        fprintf(stderr, "shunt-links: what is \"%s\"? see shunt-links --help\n", argv[optind]);
        exit(2);
    }
}
