/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt-info: what this build can do, what it would use here and why, and what will hurt. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "info.h"

static const char help[] =
    "usage: shunt-info [OPTIONS]\n"
    "       shunt-info --nccl [--json] [COMMAND...]\n"
    "\n"
    "Says what this build of Shunt can do, which NICs it would use here and why not the\n"
    "others, and which limits and settings will hurt a job, with what to do about them.\n"
    "\n"
    "  -e, --settings  every setting with its value, default and meaning, instead\n"
    "  -s, --strict    exit with 1 also for what only hurts\n"
    "  -n, --nccl      which libnccl.so.2 COMMAND would get here and why, or a program that\n"
    "                  opens it by name\n"
    "      --json      one JSON object instead of text\n"
    "  -h, --help      this text\n"
    "  -V, --version   the version\n"
    "\n"
    "Exit code: 0 Shunt can run here, 1 it can't (something \"stops\" it), 2 the command line is wrong.\n"
    "With --nccl: 0 it would be Shunt's, 1 another or none, 2 there is no such command.\n";

static void gather(struct facts *facts)
{
    int rdma = 0;

    if (gethostname(facts->hostname, sizeof(facts->hostname) - 1) != 0)
        snprintf(facts->hostname, sizeof(facts->hostname), "unknown");
    facts->host_known = shunt_host_id(&facts->host) == SHUNT_OK;
    if (shunt_topo_load(&facts->topo) != SHUNT_OK || shunt_topo_rails(facts->topo, NULL, &facts->rails) != SHUNT_OK) {
        snprintf(facts->rails_error, sizeof(facts->rails_error), "%s", shunt_error_text());
        add_check(&facts->checks, "NICs", STOPS, "none", "no usable rail: %.350s", shunt_error_text());
    }
    for (unsigned i = 0; facts->rails && i < facts->rails->n_used; i++)
        rdma |= facts->rails->rail[i].nic && facts->rails->rail[i].nic->rdma;
    check_limits(&facts->checks, facts->rails ? facts->rails->n_used : 0, rdma);
    check_environment(&facts->checks);
}

static int code(const struct facts *facts, int strict)
{
    for (int i = 0; i < facts->checks.n; i++)
        if (facts->checks.check[i].verdict == STOPS || (strict && facts->checks.check[i].verdict == HURTS))
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"settings", no_argument, NULL, 'e'}, {"strict", no_argument, NULL, 's'},
                                            {"json", no_argument, NULL, 'j'},     {"nccl", no_argument, NULL, 'n'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},  {NULL, 0, NULL, 0}};
    static struct facts facts;
    int strict = 0, json = 0, nccl = 0, c;

    while ((c = getopt_long(argc, argv, "+eshnV", options, NULL)) != -1)
        switch (c) {
        case 'e': facts.only_settings = 1; break;
        case 's': strict = 1; break;
        case 'j': json = 1; break;
        case 'n': nccl = 1; break;
        case 'h': fputs(help, stdout); return 0;
        case 'V': printf("shunt-info %s\n", shunt_version()); return 0;
        default: fprintf(stderr, "Try: shunt-info --help\n"); return 2;
        }
    if (nccl)
        return show_nccl(optind < argc ? argv + optind : NULL, json);
    if (optind < argc) {
        fprintf(stderr, "shunt-info: no argument %s is expected\nTry: shunt-info --help\n", argv[optind]);
        return 2;
    }
    if (facts.only_settings)
        check_environment(&facts.checks);
    else
        gather(&facts);
    if (json)
        show_json(&facts);
    else if (facts.only_settings)
        show_settings();
    else
        show_text(&facts);
    if (facts.only_settings && !json)
        for (int i = 0; i < facts.checks.n; i++)
            fprintf(stderr, "shunt-info: %s\n", facts.checks.check[i].text);
    shunt_topo_rails_destroy(facts.rails);
    shunt_topo_destroy(facts.topo);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("shunt-info: standard output");
        return 1;
    }
    return code(&facts, strict);
}
