/* SPDX-License-Identifier: BSD-3-Clause */
/* shunt-topo: shows what a machine is made of, as far as communication goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topo.h"

int fail(shunt_status_t st)
{
    fprintf(stderr, "shunt-topo: %s\n", *shunt_error_text() ? shunt_error_text() : shunt_status_text(st));
    return st == SHUNT_ERR_INVALID ? 2 : 1;
}

int load(const struct options *opt, const char *file, shunt_topo_t **topo)
{
    shunt_status_t st = opt->synthetic ? shunt_topo_load_synthetic(opt->synthetic, topo)
                      : file ? shunt_topo_load_file(file, topo) : shunt_topo_load(topo);

    return st == SHUNT_OK ? 0 : fail(st);
}

static int write_text(const struct options *opt, const char *text, size_t size)
{
    FILE *f = opt->output ? fopen(opt->output, "w") : stdout;

    if (!f) {
        perror(opt->output);
        return 1;
    }
    int bad = fwrite(text, 1, size, f) != size;
    if (opt->output ? fclose(f) : fflush(f))
        bad = 1;
    if (bad)
        perror(opt->output ? opt->output : "standard output");
    return bad;
}

static int export(const struct options *opt, const shunt_topo_t *topo)
{
    static const struct {
        const char *name;
        shunt_topo_format_t format;
    } formats[] = {{"text", SHUNT_TOPO_TEXT},  {"matrix", SHUNT_TOPO_MATRIX}, {"json", SHUNT_TOPO_JSON},
                   {"svg", SHUNT_TOPO_SVG},    {"dot", SHUNT_TOPO_DOT},       {"nccl", SHUNT_TOPO_NCCL},
                   {"hwloc", SHUNT_TOPO_HWLOC}};
    char *text;
    size_t size;
    int code;

    if (strcmp(opt->format, "packed") == 0) {
        void *data;
        shunt_status_t st = shunt_topo_pack(topo, &data, &size);
        if (st != SHUNT_OK)
            return fail(st);
        code = write_text(opt, data, size);
        free(data);
        return code;
    }
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(opt->format, formats[i].name) == 0) {
            shunt_status_t st = shunt_topo_export(topo, formats[i].format, &text, &size);
            if (st != SHUNT_OK)
                return fail(st);
            code = write_text(opt, text, size);
            free(text);
            return code;
        }
    fprintf(stderr,
            "shunt-topo: no format \"%s\": there are text, matrix, json, svg, dot, nccl, hwloc and packed\n",
            opt->format);
    return 2;
}

int main(int argc, char **argv)
{
    struct options opt;
    shunt_topo_t *topo;
    int code = read_options(argc, argv, &opt);

    if (code >= 0)
        return code;
    if (opt.diff)
        return show_diff(&opt);
    if (opt.merge || opt.ranks || opt.fabric)
        return show_fabric(&opt);
    code = load(&opt, opt.n_files ? opt.files[0] : NULL, &topo);
    if (code)
        return code;
    if (opt.path[0])
        code = show_path(&opt, topo);
    else if (opt.rails)
        code = show_rails(&opt, topo);
    else
        code = export(&opt, topo);
    shunt_topo_destroy(topo);
    return code;
}
