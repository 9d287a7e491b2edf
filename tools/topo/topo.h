/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt-topo: what its files share. */
#ifndef SHUNT_TOOLS_TOPO_H
#define SHUNT_TOOLS_TOPO_H

#include <shunt/topo.h>

struct options {
    const char *format, *output, *synthetic, *path[2], *stages, *fabric;
    int matrix, rails, merge, diff, quiet, json;
    unsigned ranks, rank_of, rank_count;
    char **files;
    int n_files;
};

/* Reads the command line; -1 to go on, else the exit code. */
int read_options(int argc, char **argv, struct options *opt);

/* Prints the library's error as the tool's own and returns the exit code that fits. */
int fail(shunt_status_t st);

int load(const struct options *opt, const char *file, shunt_topo_t **topo);
void json_text(const char *s); /* prints it in quotes */
int show_rails(const struct options *opt, const shunt_topo_t *topo);
int show_path(const struct options *opt, const shunt_topo_t *topo);
int show_diff(const struct options *opt);
int show_fabric(const struct options *opt);

#endif
