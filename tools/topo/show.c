/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers about one host: its rails, a path, what changed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topo.h"

static const char *rate(char out[32], double bits)
{
    snprintf(out, 32, bits >= 1e9 ? "%.4g Gbit/s" : "%.4g Mbit/s", bits >= 1e9 ? bits / 1e9 : bits / 1e6);
    return out;
}

void json_text(const char *s)
{
    putchar('"');
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if ((unsigned char)*s < 32)
            printf("\\u%04x", *s);
        else
            putchar(*s);
    putchar('"');
}

static const char *const states[] = {"used", "absent", "unused"};

static void rails_json(const shunt_topo_rails_t *rails)
{
    printf("{\"decided_by\": \"%s\", \"rails\": [", rails->decided_by);
    for (unsigned i = 0; i < rails->n; i++) {
        const shunt_topo_rail_t *r = &rails->rail[i];
        printf("%s\n  {\"name\": ", i ? "," : "");
        json_text(r->name);
        printf(", \"state\": \"%s\", \"port\": %u, \"rate\": %llu, \"reason\": ", states[r->state], r->port,
               r->nic ? (unsigned long long)r->nic->rate : 0ull);
        json_text(r->reason);
        printf("}");
    }
    printf("\n]}\n");
}

/* The device that rank I of N on this host has: its GPU where there are some, else its share of the CPUs. */
static const shunt_topo_object_t *place_of(const struct options *opt, const shunt_topo_t *topo)
{
    unsigned gpus = shunt_topo_count(topo, SHUNT_TOPO_GPU), numas = shunt_topo_count(topo, SHUNT_TOPO_NUMA);

    if (gpus)
        return shunt_topo_get(topo, SHUNT_TOPO_GPU, opt->rank_of % gpus);
    return numas ? shunt_topo_get(topo, SHUNT_TOPO_NUMA,
                                  (unsigned)((uint64_t)opt->rank_of * numas / opt->rank_count))
                 : NULL;
}

struct reach {
    const shunt_topo_rail_t *rail;
    shunt_topo_path_t path;
    unsigned turn; /* number of the rail */
};

static int by_nearness(const void *a, const void *b)
{
    const struct reach *x = a, *y = b;

    if (x->path.path_class != y->path.path_class)
        return (int)x->path.path_class - (int)y->path.path_class;
    if (x->path.bandwidth < y->path.bandwidth * 0.999 || y->path.bandwidth < x->path.bandwidth * 0.999)
        return x->path.bandwidth > y->path.bandwidth ? -1 : 1;
    return x->turn < y->turn ? -1 : x->turn > y->turn;
}

/* The rails in the order in which this rank is near to them. */
static void rails_of_rank(const struct options *opt, const shunt_topo_t *topo,
                          const shunt_topo_rails_t *rails)
{
    const shunt_topo_object_t *place = place_of(opt, topo);
    struct reach *reach = calloc(rails->n_used + 1, sizeof(*reach));
    shunt_topo_binding_t bind;
    unsigned n = 0;

    for (unsigned i = 0; i < rails->n_used && place && reach; i++) {
        if (!rails->rail[i].object ||
            shunt_topo_path(topo, place, rails->rail[i].object, &reach[n].path) != SHUNT_OK)
            continue;
        reach[n].rail = &rails->rail[i];
        reach[n++].turn = i;
    }
    if (n)
        qsort(reach, n, sizeof(*reach), by_nearness);
    unsigned equal = 0; /* rails that are equally near take turns among the ranks of a host */
    while (equal < n && reach[equal].path.path_class == reach[0].path.path_class &&
           reach[equal].path.bandwidth > reach[0].path.bandwidth * 0.999)
        equal++;
    for (unsigned turns = equal ? opt->rank_of % equal : 0; turns > 0; turns--) {
        struct reach first = reach[0];
        memmove(reach, reach + 1, (equal - 1) * sizeof(*reach));
        reach[equal - 1] = first;
    }
    if (n)
        printf("\nRank %u of %u on this host, at %s: nearest first\n", opt->rank_of, opt->rank_count,
               place->name);
    for (unsigned i = 0; i < n; i++) {
        printf("  %-14s %-4s %6.1f GB/s", reach[i].rail->name,
               shunt_topo_class_name(reach[i].path.path_class), reach[i].path.bandwidth / 1e9);
        if (shunt_topo_binding(topo, reach[i].rail->object, &bind) == SHUNT_OK) {
            if (bind.numa >= 0 && bind.n_cpus)
                printf("  helper thread on CPU %u, buffers on NUMA %d",
                       bind.cpu[opt->rank_of % (bind.n_cpus < 1024 ? bind.n_cpus : 1024)], bind.numa);
            else
                printf("  %s", bind.reason);
        }
        printf("\n");
    }
    free(reach);
}

int show_rails(const struct options *opt, const shunt_topo_t *topo)
{
    shunt_topo_rails_t *rails;
    shunt_status_t st = shunt_topo_rails(topo, NULL, &rails);
    char text[32];

    if (st != SHUNT_OK)
        return fail(st);
    if (opt->json)
        rails_json(rails);
    else {
        printf("%u rail%s, chosen by %s\n", rails->n_used, rails->n_used == 1 ? "" : "s", rails->decided_by);
        for (unsigned i = 0; i < rails->n; i++) {
            const shunt_topo_rail_t *r = &rails->rail[i];
            printf("  %-6s %-14s %-12s %s\n", states[r->state], r->name,
                   r->nic && r->nic->rate_known ? rate(text, (double)r->nic->rate) : "-", r->reason);
        }
        rails_of_rank(opt, topo, rails);
    }
    shunt_topo_rails_destroy(rails);
    return 0;
}

static const shunt_topo_object_t *find(const shunt_topo_t *topo, const char *name)
{
    const shunt_topo_object_t *o = shunt_topo_find(topo, name);

    if (!o) {
        fprintf(stderr, "shunt-topo: there is no \"%s\"; there are", name);
        for (int type = SHUNT_TOPO_NUMA; type <= SHUNT_TOPO_NVSWITCH; type++)
            for (unsigned i = 0;
                 i < shunt_topo_count(topo, (shunt_topo_type_t)type) && i < 20 && type != SHUNT_TOPO_BRIDGE;
                 i++)
                fprintf(stderr, " \"%s\"", shunt_topo_get(topo, (shunt_topo_type_t)type, i)->name);
        fprintf(stderr, "\n");
    }
    return o;
}

int show_path(const struct options *opt, const shunt_topo_t *topo)
{
    const shunt_topo_object_t *a = find(topo, opt->path[0]), *b = a ? find(topo, opt->path[1]) : NULL;
    shunt_topo_path_t path;
    shunt_status_t st;

    if (!a || !b)
        return 1;
    st = shunt_topo_path(topo, a, b, &path);
    if (st != SHUNT_OK)
        return fail(st);
    if (opt->json) {
        printf("{\"from\": ");
        json_text(a->name);
        printf(", \"to\": ");
        json_text(b->name);
        printf(", \"class\": \"%s\", \"bandwidth\": %.0f, \"links\": %u, \"hops\": [",
               shunt_topo_class_name(path.path_class), path.bandwidth, path.links);
        for (unsigned i = 0; i < path.n_hops; i++) {
            printf("%s", i ? ", " : "");
            json_text(path.hop[i]->name);
        }
        printf("]}\n");
        return 0;
    }
    printf("%s  %.1f GB/s", shunt_topo_class_name(path.path_class), path.bandwidth / 1e9);
    if (path.links)
        printf("  over %u links", path.links);
    else if (path.narrow)
        printf("  bounded by %s", path.narrow->name);
    else if (path.path_class == SHUNT_TOPO_SYS)
        printf("  bounded by what lies between the NUMA nodes");
    printf("\n  ");
    for (unsigned i = 0; i < path.n_hops; i++)
        printf("%s%s", i ? " > " : "", path.hop[i]->name);
    printf("\n");
    return 0;
}

int show_diff(const struct options *opt)
{
    shunt_topo_t *a, *b;
    unsigned changes;
    char *text;
    shunt_status_t st;
    int code = load(opt, opt->files[0], &a);

    if (code)
        return code;
    code = load(opt, opt->files[1], &b);
    if (code == 0) {
        st = shunt_topo_diff(a, b, &text, &changes);
        if (st == SHUNT_OK) {
            fputs(text, stdout);
            free(text);
            code = changes != 0;
        } else
            code = fail(st);
        shunt_topo_destroy(b);
    }
    shunt_topo_destroy(a);
    return code;
}
