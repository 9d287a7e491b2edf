/* SPDX-License-Identifier: BSD-3-Clause */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topo.h"

static const char help[] =
    "usage: shunt-topo [OPTIONS] [FILE]\n"
    "\n"
    "Shows the machine, or the one in FILE (hwloc or NCCL topology XML; - is the standard\n"
    "input), as far as communication goes.\n"
    "\n"
    "  -m, --matrix            path classes between GPUs and NICs, like nvidia-smi topo -m\n"
    "  -r, --rails[=I:N]       which NICs carry data here and why (for rank I of N on this host)\n"
    "  -p, --path A B          the way from A to B: \"GPU 0\", mlx5_0, \"NUMA 1\", 3b:00.0\n"
    "  -f, --of FORMAT         text, matrix, json, svg, dot, nccl, hwloc, packed\n"
    "  -o, --output FILE       write there (a name ending .svg, .json, .dot tells the format)\n"
    "  -s, --synthetic STRING  a machine that is not there: \"pack:2 numa:2 core:12 pu:2\",\n"
    "                          with devices \"... + switch:1 gpu:2 nic:1@400g nvlink:18\"\n"
    "      --merge FILE...     several hosts as one fabric (FILE*8 stands for 8 such hosts)\n"
    "      --fabric FILE       which NIC is cabled to which network switch\n"
    "  -n, --ranks N           where N ranks, their rings and pipeline stages would go\n"
    "      --stages PxD        P stages of D replicas (default: one per host, or 4)\n"
    "      --diff A B          what changed from A to B; exit code 1 if anything did\n"
    "      --json              the same as --of json, for --rails, --path, --merge and --ranks too\n"
    "  -h, --help              this text\n"
    "  -V, --version           the version\n"
    "\n"
    "SHUNT_RAILS, NCCL_SOCKET_IFNAME, NCCL_IB_HCA, NCCL_TOPO_FILE and NCCL_TOPO_DUMP_FILE are honoured.\n"
    "Exit code: 0 all right, 1 it failed or --diff found changes, 2 the command line is wrong.\n";

enum { MERGE = 256, FABRIC, STAGES, DIFF, JSON };

static int wrong(const char *text)
{
    fprintf(stderr, "shunt-topo: %s\nTry: shunt-topo --help\n", text);
    return 2;
}

/* A number from 1 to `most`, 0 if it is none. */
static unsigned count(const char *text, unsigned most)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);

    return end == text || *end || *text == '-' || v > most ? 0 : (unsigned)v;
}

static const char *format_of(const char *output)
{
    const char *dot = output ? strrchr(output, '.') : NULL;

    if (dot && (strcmp(dot, ".svg") == 0 || strcmp(dot, ".json") == 0 || strcmp(dot, ".dot") == 0))
        return dot + 1;
    return "text";
}

static int check(struct options *opt)
{
    int modes = opt->matrix + opt->rails + (opt->path[0] != NULL) + opt->diff + (opt->ranks || opt->merge);

    if (modes > 1)
        return wrong("--matrix, --rails, --path, --diff and --merge or --ranks exclude each other");
    if (opt->diff && opt->n_files != 2)
        return wrong("--diff takes two files");
    if (opt->merge && !opt->n_files)
        return wrong("--merge takes the files of the hosts");
    if (opt->synthetic && opt->n_files)
        return wrong("--synthetic takes the place of FILE");
    if (!opt->diff && !opt->merge && opt->n_files > 1)
        return wrong("one FILE at a time, or --merge to join several");
    if (!opt->format)
        opt->format = opt->json ? "json" : opt->matrix ? "matrix" : format_of(opt->output);
    opt->json = strcmp(opt->format, "json") == 0;
    return -1;
}

int read_options(int argc, char **argv, struct options *opt)
{
    static const struct option list[] = {{"matrix", no_argument, NULL, 'm'},
                                         {"rails", optional_argument, NULL, 'r'},
                                         {"path", required_argument, NULL, 'p'},
                                         {"of", required_argument, NULL, 'f'},
                                         {"output", required_argument, NULL, 'o'},
                                         {"synthetic", required_argument, NULL, 's'},
                                         {"merge", no_argument, NULL, MERGE},
                                         {"fabric", required_argument, NULL, FABRIC},
                                         {"ranks", required_argument, NULL, 'n'},
                                         {"stages", required_argument, NULL, STAGES},
                                         {"diff", no_argument, NULL, DIFF},
                                         {"json", no_argument, NULL, JSON},
                                         {"help", no_argument, NULL, 'h'},
                                         {"version", no_argument, NULL, 'V'},
                                         {NULL, 0, NULL, 0}};
    int c;

    memset(opt, 0, sizeof(*opt));
    opt->rank_count = 1;
    while ((c = getopt_long(argc, argv, "mr::p:f:o:s:n:hV", list, NULL)) != -1) {
        switch (c) {
        case 'm': opt->matrix = 1; break;
        case 'r':
            opt->rails = 1;
            if (optarg) {
                optarg += *optarg == '='; /* -r=I:N, as the manual writes it */
                char *colon = strchr(optarg, ':'), *end;
                unsigned long i = strtoul(optarg, &end, 10);
                opt->rank_count = colon ? count(colon + 1, 65536) : 0;
                if (end == optarg || end != colon || !opt->rank_count || i >= opt->rank_count)
                    return wrong("--rails=I:N wants a rank I below N ranks on this host, such as 3:8");
                opt->rank_of = (unsigned)i;
            }
            break;
        case 'p':
            opt->path[0] = optarg;
            if (optind >= argc)
                return wrong("--path takes two names");
            opt->path[1] = argv[optind++];
            break;
        case 'f': opt->format = optarg; break;
        case 'o': opt->output = optarg; break;
        case 's': opt->synthetic = optarg; break;
        case 'n':
            opt->ranks = count(optarg, 1u << 20);
            if (!opt->ranks)
                return wrong("--ranks wants a number from 1 to 1048576");
            break;
        case MERGE: opt->merge = 1; break;
        case FABRIC: opt->fabric = optarg; break;
        case STAGES: opt->stages = optarg; break;
        case DIFF: opt->diff = 1; break;
        case JSON: opt->json = 1; break;
        case 'h': fputs(help, stdout); return 0;
        case 'V': puts("shunt-topo (Shunt) " SHUNT_TOOL_VERSION); return 0;
        default: fputs("Try: shunt-topo --help\n", stderr); return 2;
        }
    }
    opt->files = argv + optind;
    opt->n_files = argc - optind;
    return check(opt);
}
