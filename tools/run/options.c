/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of shunt-run. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/run/run.h"

static const char usage[] =
    "usage: shunt-run -n N [options] [--] COMMAND [ARGUMENT...]\n"
    "Starts N ranks of COMMAND on this host with torchrun's environment. One failing rank ends all.\n"
    "\n"
    "  -n, --ranks N          ranks to start\n"
    "  -e, --env NAME=VALUE   set this in the ranks' environment; may be repeated\n"
    "  -t, --timeout T        end the job after this time (90, 2.5s, 500ms, 10m); exit code 124\n"
    "  -g, --grace T          between SIGTERM and SIGKILL (5s)\n"
    "  -k, --keep-going       a failing rank does not end the others\n"
    "      --bind             give each rank a core of its own, in turn where there are fewer cores\n"
    "      --no-prefix        print the ranks' lines as they are\n"
    "      --json             print events and output as JSON, one object a line\n"
    "      --help, --version\n"
    "for a job that spans hosts:\n"
    "      --world-size N     ranks of the whole job (N of -n)\n"
    "      --first-rank R     number of the first rank started here (0)\n"
    "      --master-addr A    where rank 0 listens (127.0.0.1)\n"
    "      --master-port P    (a free port)\n"
    "      --run-id ID        unique name of the job (random)\n"
    "      --key-file FILE    the job's secret ($SHUNT_KEY_FILE, else made for this job and removed after it)\n"
    "      --host NAME        printed before the number of each rank\n"
    "      --node-rank K, --nodes H   this host's number and how many there are (0, 1)\n"
    "\n"
    "Exit code: that of the first rank that failed, 128 + N if it was killed by signal N; 124 timeout;\n"
    "126, 127 the command can't be run, isn't found; 2 wrong usage; 130, 143 after Ctrl-C, SIGTERM.\n";

enum { OPT_WORLD = 256, OPT_FIRST, OPT_ADDR, OPT_PORT, OPT_ID, OPT_KEY, OPT_HOST, OPT_NODE, OPT_NODES, OPT_PLAIN, OPT_BIND,
       OPT_JSON, OPT_HELP, OPT_VERSION };

static const struct option table[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"env", required_argument, NULL, 'e'},
    {"timeout", required_argument, NULL, 't'},
    {"grace", required_argument, NULL, 'g'},
    {"keep-going", no_argument, NULL, 'k'},
    {"bind", no_argument, NULL, OPT_BIND},
    {"no-prefix", no_argument, NULL, OPT_PLAIN},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {"world-size", required_argument, NULL, OPT_WORLD},
    {"first-rank", required_argument, NULL, OPT_FIRST},
    {"master-addr", required_argument, NULL, OPT_ADDR},
    {"master-port", required_argument, NULL, OPT_PORT},
    {"run-id", required_argument, NULL, OPT_ID},
    {"key-file", required_argument, NULL, OPT_KEY},
    {"host", required_argument, NULL, OPT_HOST},
    {"node-rank", required_argument, NULL, OPT_NODE},
    {"nodes", required_argument, NULL, OPT_NODES},
    {NULL, 0, NULL, 0},
};

static int number(const char *what, const char *text, long min, long max)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max) {
        fprintf(stderr, "shunt-run: %s must be a number from %ld to %ld, not '%s'\n", what, min, max, text);
        exit(2);
    }
    return (int)value;
}

static int64_t duration(const char *what, const char *text)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"m", 60e9}, {"h", 3600e9}};
    char *end;
    double value = strtod(text, &end);

    for (size_t i = 0; end != text && i < sizeof(units) / sizeof(*units); i++)
        if (strcmp(end, units[i].unit) == 0 && value >= 0 && value * units[i].factor < 9e18)
            return (int64_t)(value * units[i].factor);
    fprintf(stderr, "shunt-run: %s must be a time such as 90, 2.5s, 500ms or 10m, not '%s'\n", what, text);
    exit(2);
}

static void add_env(struct options *options, const char *text)
{
    size_t n = 0;

    if (!strchr(text, '=') || *text == '=') {
        fprintf(stderr, "shunt-run: --env takes NAME=VALUE, not '%s'\n", text);
        exit(2);
    }
    while (options->env[n])
        n++;
    options->env = realloc(options->env, (n + 2) * sizeof(char *));
    if (!options->env)
        abort();
    options->env[n] = (char *)text;
    options->env[n + 1] = NULL;
}

static void check(const struct options *options)
{
    if (options->first_rank + options->ranks > options->world_size) {
        fprintf(stderr, "shunt-run: ranks %d to %d do not fit into --world-size %d\n", options->first_rank,
                options->first_rank + options->ranks - 1, options->world_size);
        exit(2);
    }
    if (options->node_rank >= options->nodes) {
        fprintf(stderr, "shunt-run: --node-rank %d is not below --nodes %d\n", options->node_rank, options->nodes);
        exit(2);
    }
    if (options->ranks < options->world_size && (options->master_port == 0 || !options->run_id)) {
        fprintf(stderr, "shunt-run: a job with ranks elsewhere needs --master-port and --run-id, the same on all "
                        "hosts, so that its parts find each other\n");
        exit(2);
    }
}

void options_parse(struct options *options, int argc, char **argv)
{
    int c;

    *options = (struct options){.world_size = 0, .master_addr = "127.0.0.1", .nodes = 1, .grace = 5000000000LL,
                                .prefix = true, .env = calloc(1, sizeof(char *))};
    while ((c = getopt_long(argc, argv, "+n:e:t:g:k", table, NULL)) != -1) {
        switch (c) {
        case 'n': options->ranks = number("--ranks", optarg, 1, 65536); break;
        case 'e': add_env(options, optarg); break;
        case 't': options->timeout = duration("--timeout", optarg); break;
        case 'g': options->grace = duration("--grace", optarg); break;
        case 'k': options->keep_going = true; break;
        case OPT_BIND: options->bind = true; break;
        case OPT_PLAIN: options->prefix = false; break;
        case OPT_JSON: options->json = true; break;
        case OPT_WORLD: options->world_size = number("--world-size", optarg, 1, INT_MAX); break;
        case OPT_FIRST: options->first_rank = number("--first-rank", optarg, 0, INT_MAX - 65536); break;
        case OPT_ADDR: options->master_addr = optarg; break;
        case OPT_PORT: options->master_port = number("--master-port", optarg, 1, 65535); break;
        case OPT_ID: options->run_id = optarg; break;
        case OPT_KEY: options->key_file = optarg; break;
        case OPT_HOST: options->host = optarg; break;
        case OPT_NODE: options->node_rank = number("--node-rank", optarg, 0, INT_MAX); break;
        case OPT_NODES: options->nodes = number("--nodes", optarg, 1, INT_MAX); break;
        case OPT_HELP: fputs(usage, stdout); exit(0);
        case OPT_VERSION: puts("shunt-run " SHUNT_TOOL_VERSION); exit(0);
        default: fputs("shunt-run: see shunt-run --help\n", stderr); exit(2);
        }
    }
    if (options->ranks == 0 || optind == argc) {
        fprintf(stderr, "shunt-run: %s; see shunt-run --help\n", options->ranks ? "no command" : "no -n");
        exit(2);
    }
    if (options->world_size == 0)
        options->world_size = options->first_rank + options->ranks;
    options->command = argv + optind;
    check(options);
}
