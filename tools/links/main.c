/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/links/links.h"

int main(int argc, char **argv)
{
    shunt_context_t *ctx = NULL;
    shunt_comm_t *comm = NULL;
    struct table t = {0};
    struct options o;
    shunt_status_t st;
    int rc = 0;

    options_parse(argc, argv, &o);
    st = shunt_context_create(NULL, &ctx);
    if (st == SHUNT_OK)
        st = shunt_comm_create_from_env(ctx, &comm);
    if (st == SHUNT_OK && shunt_comm_size(comm) < 2) {
        fprintf(stderr, "shunt-links: one rank has no links; start several: shunt-run -n 4 shunt-links\n");
        rc = 2;
    } else if (st == SHUNT_OK)
        st = measure(comm, ctx, &o, &t);
    if (st != SHUNT_OK) {
        fprintf(stderr, "shunt-links: %s: %s\n", shunt_status_name(st), shunt_error_text());
        rc = 1;
    }
    if (rc == 0 && shunt_comm_rank(comm) == 0) {
        FILE *f = o.json && o.json[0] == '-' && !o.json[1] ? stderr : stdout;
        if (!o.quiet)
            report_text(f, &t, &o);
        int outliers = report_outliers(f, &t, o.threshold);
        if (!outliers && !o.quiet)
            fprintf(f, "\nno link is under %.0f %% of its class\n", 100 * o.threshold);
        rc = outliers > 0;
        if ((o.json && report_json(o.json, &t, o.threshold)) || (o.svg && report_svg(o.svg, &t, o.threshold)) ||
            (o.save && report_save(o.save, &t)))
            rc = 1;
        if (o.compare && report_compare(f, o.compare, &t) < 0)
            rc = 1;
    }
    table_free(&t);
    shunt_comm_free(comm);
    shunt_context_destroy(ctx);
    return rc;
}
