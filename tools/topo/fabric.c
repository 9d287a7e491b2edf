/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers about several hosts: the fabric, and where ranks, rings and stages would go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <shunt/fabric.h>
#include "topo.h"

/* "node.xml*8" is eight such hosts. */
static int add_host(const struct options *opt, const char *file, shunt_fabric_t *fabric)
{
    char path[4096];
    const char *star = file ? strrchr(file, '*') : NULL, *slash;
    unsigned long copies = 1, host_number;
    unsigned host;
    shunt_topo_t *topo;
    shunt_status_t st;
    char *end = NULL;
    int code;

    if (star) {
        copies = strtoul(star + 1, &end, 10);
        if (end == star + 1 || *end || copies < 1 || copies > 65536) {
            fprintf(stderr, "shunt-topo: %s: after * a number of hosts from 1 to 65536 was expected\n", file);
            return 2;
        }
        snprintf(path, sizeof(path), "%.*s", (int)(star - file), file);
        file = path;
    }
    code = load(opt, file, &topo);
    if (code)
        return code;
    slash = file ? strrchr(file, '/') : NULL;
    char name[64] = "";
    if (file && !*shunt_topo_host_name(topo))
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(slash ? slash + 1 : file, "."),
                 slash ? slash + 1 : file);
    st = shunt_fabric_add_host(fabric, topo, *name ? name : NULL, NULL, &host);
    if (st != SHUNT_OK) {
        shunt_topo_destroy(topo);
        return fail(st);
    }
    host_number = host;
    st = copies > 1 ? shunt_fabric_repeat_host(fabric, (unsigned)host_number, (unsigned)copies - 1)
                    : SHUNT_OK;
    return st == SHUNT_OK ? 0 : fail(st);
}

static int read_cables(const char *path, shunt_fabric_t *fabric)
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t n = 0, room = 0, got = 1;
    shunt_status_t st;

    if (!f) {
        perror(path);
        return 1;
    }
    while (got && n < (64u << 20)) {
        if (n + 65536 > room) {
            char *bigger = realloc(text, room = room ? room * 2 : 131072);
            if (!bigger) {
                free(text);
                fclose(f);
                return 1;
            }
            text = bigger;
        }
        got = fread(text + n, 1, 65536, f);
        n += got;
    }
    fclose(f);
    st = shunt_fabric_read_cables(fabric, path, text, n);
    free(text);
    return st == SHUNT_OK ? 0 : fail(st);
}

static int print(const struct options *opt, const shunt_fabric_t *fabric)
{
    static const struct {
        const char *name;
        shunt_topo_format_t format;
    } formats[] = {{"text", SHUNT_TOPO_TEXT},
                   {"json", SHUNT_TOPO_JSON},
                   {"svg", SHUNT_TOPO_SVG},
                   {"dot", SHUNT_TOPO_DOT}};
    char *text;
    size_t size;

    for (size_t i = 0; i < 4; i++)
        if (strcmp(opt->format, formats[i].name) == 0) {
            FILE *f = opt->output ? fopen(opt->output, "w") : stdout;
            shunt_status_t st = f ? shunt_fabric_export(fabric, formats[i].format, &text, &size) : SHUNT_OK;
            if (!f) {
                perror(opt->output);
                return 1;
            }
            if (st != SHUNT_OK)
                return fail(st);
            int bad = fwrite(text, 1, size, f) != size;
            if (opt->output)
                bad |= fclose(f) != 0;
            free(text);
            return bad;
        }
    fprintf(stderr, "shunt-topo: a fabric is shown as text, json, svg or dot, not as %s\n", opt->format);
    return 2;
}

struct ranks {
    const shunt_fabric_t *fabric;
    unsigned n, rings, stages, replicas;
    shunt_place_t *places;
    unsigned *order, *stage, *replica;
    int *enter, *leave;
    shunt_placement_report_t report;
};

static const char *where(const struct ranks *r, unsigned rank, char out[160])
{
    snprintf(out, 160, "%s %s", shunt_fabric_host_name(r->fabric, r->places[rank].host),
             shunt_fabric_slot(r->fabric, r->places[rank])->name);
    return out;
}

static const char *rail_name(const struct ranks *r, unsigned rank, int rail)
{
    const shunt_topo_object_t *nic = rail < 0 ? NULL
                                              : shunt_fabric_rail_nic(r->fabric, r->places[rank].host,
                                                                      (unsigned)rail);

    return nic ? nic->name : "-";
}

static void print_ranks(const struct ranks *r)
{
    char place[160];

    printf("\nRanks%s\n",
           r->stages * r->replicas == r->n ? ", and which stage and replica each should be" : "");
    for (unsigned i = 0; i < r->n && i < 64; i++) {
        printf("  rank %-4u %-28s", i, where(r, i, place));
        if (r->stages * r->replicas == r->n)
            printf("  stage %u replica %u", r->stage[i], r->replica[i]);
        printf("\n");
    }
    if (r->n > 64)
        printf("  ... and %u more (--json has all)\n", r->n - 64);
    printf("\nRings: %u\n", r->rings);
    for (unsigned k = 0; k < r->rings && k < 8; k++) {
        const unsigned *o = r->order + (size_t)k * r->n;
        printf("  ring %u:", k);
        for (unsigned i = 0; i < r->n && i < 32; i++) {
            if (r->enter[(size_t)k * r->n + i] >= 0)
                printf(" [%s]", rail_name(r, o[i], r->enter[(size_t)k * r->n + i]));
            printf(" %u", o[i]);
        }
        printf("%s\n", r->n > 32 ? " ..." : "");
    }
    if (r->stages * r->replicas != r->n)
        return;
    printf("\n%u stages x %u replicas: %s\n  share of the bytes    usual order   advised\n", r->stages,
           r->replicas, r->report.reason);
    double before = 0, after = 0;
    for (unsigned c = 0; c < 16; c++) {
        before += r->report.bytes_before[c];
        after += r->report.bytes_after[c];
    }
    for (unsigned c = 0; c < 9; c++)
        if (r->report.bytes_before[c] > 0 || r->report.bytes_after[c] > 0)
            printf("  %-20s %9.1f %% %9.1f %%\n",
                   c == 7   ? "one network switch"
                   : c == 8 ? "across switches"
                            : shunt_placement_class_name(c),
                   before > 0 ? 100 * r->report.bytes_before[c] / before : 0,
                   after > 0 ? 100 * r->report.bytes_after[c] / after : 0);
    if (r->report.seconds_before > 0)
        printf("  busiest link needs %.3g of its time in the usual order\n",
               r->report.seconds_after / r->report.seconds_before);
}

static void print_ranks_json(const struct ranks *r)
{
    int placed = r->stages * r->replicas == r->n;

    printf("{\"ranks\": [");
    for (unsigned i = 0; i < r->n; i++) {
        printf("%s\n  {\"rank\": %u, \"host\": ", i ? "," : "", i);
        json_text(shunt_fabric_host_name(r->fabric, r->places[i].host));
        printf(", \"place\": ");
        json_text(shunt_fabric_slot(r->fabric, r->places[i])->name);
        if (placed)
            printf(", \"stage\": %u, \"replica\": %u", r->stage[i], r->replica[i]);
        printf("}");
    }
    printf("\n], \"rings\": [");
    for (unsigned k = 0; k < r->rings; k++) {
        printf("%s\n  [", k ? "," : "");
        for (unsigned i = 0; i < r->n; i++)
            printf("%s%u", i ? ", " : "", r->order[(size_t)k * r->n + i]);
        printf("]");
    }
    printf("\n]");
    if (placed) {
        printf(", \"stages\": %u, \"replicas\": %u, \"reason\": \"%s\", \"bytes_before\": {", r->stages,
               r->replicas, r->report.reason);
        for (unsigned c = 0; c < 9; c++)
            printf("%s\"%s\": %.0f", c ? ", " : "", shunt_placement_class_name(c), r->report.bytes_before[c]);
        printf("}, \"bytes_after\": {");
        for (unsigned c = 0; c < 9; c++)
            printf("%s\"%s\": %.0f", c ? ", " : "", shunt_placement_class_name(c), r->report.bytes_after[c]);
        printf("}");
    }
    printf("}\n");
}

/* "4x8", or by default one stage per host, else the largest number up to 4 that divides the ranks. */
static int choose_stages(const struct options *opt, struct ranks *r)
{
    unsigned hosts = 1;

    if (opt->stages) {
        char rest;
        if (sscanf(opt->stages, "%ux%u%c", &r->stages, &r->replicas, &rest) != 2 || !r->stages ||
            !r->replicas || (uint64_t)r->stages * r->replicas != r->n) {
            fprintf(stderr, "shunt-topo: --stages wants stages x replicas that make %u ranks, such as 2x%u\n",
                    r->n, r->n / 2);
            return 2;
        }
        return 0;
    }
    for (unsigned i = 1; i < r->n; i++)
        hosts += r->places[i].host != r->places[i - 1].host;
    r->stages = hosts > 1 && r->n % hosts == 0 ? hosts : r->n % 4 == 0 ? 4 : r->n % 2 == 0 ? 2 : 1;
    r->replicas = r->n / r->stages;
    return 0;
}

static int show_ranks(const struct options *opt, const shunt_fabric_t *fabric)
{
    struct ranks r = {.fabric = fabric, .n = opt->ranks};
    const char *cross = getenv("NCCL_CROSS_NIC");
    shunt_status_t st;
    int code;

    r.places = malloc(r.n * sizeof(*r.places));
    r.stage = malloc(r.n * sizeof(*r.stage));
    r.replica = malloc(r.n * sizeof(*r.replica));
    if (!r.places || !r.stage || !r.replica)
        return 1;
    st = shunt_fabric_places(fabric, r.n, r.places);
    if (st != SHUNT_OK)
        return fail(st);
    code = choose_stages(opt, &r);
    if (code)
        return code;
    r.rings = shunt_fabric_ring_count(fabric, r.places, r.n);
    while (r.rings > 1 && (size_t)r.rings * r.n > (64u << 20))
        r.rings--;
    r.order = malloc((size_t)r.rings * r.n * sizeof(*r.order));
    r.enter = malloc((size_t)r.rings * r.n * sizeof(*r.enter));
    r.leave = malloc((size_t)r.rings * r.n * sizeof(*r.leave));
    if (!r.order || !r.enter || !r.leave)
        return 1;
    st = shunt_fabric_rings(fabric, r.places, r.n, r.rings, cross && atoi(cross) == 1, r.order, r.enter,
                            r.leave);
    if (st == SHUNT_OK) {
        /* Of a transformer's stage: activations of many micro-batches, gradients of its share of the weights.
         */
        shunt_stages_t s = {sizeof(s), r.stages, r.replicas, 2e9, 4e9};
        st = shunt_fabric_place_stages(fabric, r.places, &s, r.stage, r.replica, &r.report);
    }
    if (st == SHUNT_OK) {
        if (opt->json)
            print_ranks_json(&r);
        else
            print_ranks(&r);
    }
    free(r.places);
    free(r.stage);
    free(r.replica);
    free(r.order);
    free(r.enter);
    free(r.leave);
    return st == SHUNT_OK ? 0 : fail(st);
}

int show_fabric(const struct options *opt)
{
    shunt_fabric_t *fabric;
    shunt_status_t st = shunt_fabric_create(&fabric);
    int code = 0;

    if (st != SHUNT_OK)
        return fail(st);
    if (!opt->n_files)
        code = add_host(opt, NULL, fabric);
    for (int i = 0; i < opt->n_files && code == 0; i++)
        code = add_host(opt, opt->files[i], fabric);
    if (code == 0 && opt->fabric)
        code = read_cables(opt->fabric, fabric);
    if (code == 0 && !(opt->ranks && opt->json))
        code = print(opt, fabric);
    if (code == 0 && opt->ranks)
        code = show_ranks(opt, fabric);
    shunt_fabric_destroy(fabric);
    return code;
}
