/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What topology costs: discovery beside hwloc's own load, files, all-pairs paths, large fabrics. Times are
 * the smallest of several runs; nothing is judged here. Files are given as arguments (tests/topo/machines/...
 * or others').
 */
#include <hwloc.h>
#include <shunt/fabric.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "comm/base/clock.h"

static double ms(uint64_t from)
{
    return (double)(shunt__now() - from) / 1e6;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void live(void)
{
    double own = 1e9, hw = 1e9, nics = 1e9;

    for (int i = 0; i < 10; i++) {
        uint64_t t = shunt__now();
        hwloc_topology_t h;
        shunt_topo_t *topo;
        if (hwloc_topology_init(&h))
            return;
        hwloc_topology_set_io_types_filter(h, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        hwloc_topology_load(h);
        hw = least(hw, ms(t));
        hwloc_topology_destroy(h);
        t = shunt__now();
        if (shunt_topo_load_live(0, &topo) != SHUNT_OK)
            return;
        own = least(own, ms(t));
        shunt_topo_destroy(topo);
        t = shunt__now();
        if (shunt_topo_load_live(1, &topo) != SHUNT_OK)
            return;
        nics = least(nics, ms(t));
        shunt_topo_destroy(topo);
    }
    printf("live host                     %8.2f ms, hwloc alone %.2f ms, NICs alone %.2f ms\n", own, hw,
           nics);
}

static void file(const char *path)
{
    double load = 1e9, svg = 1e9;
    const char *slash = strrchr(path, '/');

    for (int i = 0; i < 10; i++) {
        uint64_t t = shunt__now();
        shunt_topo_t *topo;
        char *text;
        if (shunt_topo_load_file(path, &topo) != SHUNT_OK) {
            printf("%s\n", shunt_error_text());
            return;
        }
        load = least(load, ms(t));
        t = shunt__now();
        if (shunt_topo_export(topo, SHUNT_TOPO_SVG, &text, NULL) == SHUNT_OK)
            free(text);
        svg = least(svg, ms(t));
        shunt_topo_destroy(topo);
    }
    printf("%-50.50s read %6.2f ms, drawn %6.2f ms\n", slash ? slash + 1 : path, load, svg);
}

static void paths(void)
{
    shunt_topo_t *topo;
    double best = 1e9;
    unsigned n = 0;

    if (shunt_topo_load_synthetic("pack:2 numa:2 core:16 + switch:2 gpu:2 nic:4@400g nvlink:18", &topo) !=
        SHUNT_OK)
        return;
    unsigned gpus = shunt_topo_count(topo, SHUNT_TOPO_GPU), nics = shunt_topo_count(topo, SHUNT_TOPO_NIC);
    for (int i = 0; i < 10; i++) {
        uint64_t t = shunt__now();
        n = 0;
        for (unsigned a = 0; a < gpus + nics; a++)
            for (unsigned b = 0; b < gpus + nics; b++, n++) {
                shunt_topo_path_t p;
                shunt_topo_path(
                    topo,
                    shunt_topo_get(topo, a < gpus ? SHUNT_TOPO_GPU : SHUNT_TOPO_NIC, a < gpus ? a : a - gpus),
                    shunt_topo_get(topo, b < gpus ? SHUNT_TOPO_GPU : SHUNT_TOPO_NIC, b < gpus ? b : b - gpus),
                    &p);
            }
        best = least(best, ms(t));
    }
    printf("all %u paths of %u GPUs x %u NICs %6.3f ms\n", n, gpus, nics, best);
    shunt_topo_destroy(topo);
}

/* Each host has a topology of its own, as if 1,024 different ones had sent theirs. */
static void fabric(unsigned hosts)
{
    shunt_fabric_t *f = NULL;
    shunt_topo_t *topo = NULL;
    void *packed = NULL;
    size_t size = 0;
    unsigned n = hosts * 8, *order = malloc((size_t)n * 8 * sizeof(*order)), near[64];
    shunt_place_t *places = malloc(n * sizeof(*places));
    struct rusage use;
    char name[16];

    if (!order || !places ||
        shunt_topo_load_synthetic("pack:2 numa:1 core:48 pu:2 + switch:4 gpu:1 nic:1@400g nvlink:18",
                                  &topo) != SHUNT_OK ||
        shunt_topo_pack(topo, &packed, &size) != SHUNT_OK || shunt_fabric_create(&f) != SHUNT_OK)
        return;
    shunt_topo_destroy(topo);
    uint64_t t = shunt__now(), whole = t;
    for (unsigned i = 0; i < hosts; i++) {
        snprintf(name, sizeof(name), "h%u", i);
        if (shunt_topo_unpack(packed, size, &topo) != SHUNT_OK ||
            shunt_fabric_add_host(f, topo, name, NULL, NULL) != SHUNT_OK)
            return;
    }
    double built = ms(t);
    shunt_fabric_places(f, n, places);
    t = shunt__now();
    shunt_fabric_rings(f, places, n, 8, 0, order, NULL, NULL);
    double rings = ms(t);
    t = shunt__now();
    for (unsigned r = 0; r < n; r += n / 16)
        shunt_fabric_neighbours(f, places, n, r, near, 64);
    double neighbours = ms(t) / 16;
    t = shunt__now();
    shunt_stages_t s = {sizeof(s), 16, n / 16, 2e9, 4e9};
    unsigned *stage = malloc(n * sizeof(*stage)), *replica = malloc(n * sizeof(*replica));
    shunt_placement_report_t report;
    if (stage && replica)
        shunt_fabric_place_stages(f, places, &s, stage, replica, &report);
    double placed = ms(t);
    getrusage(RUSAGE_SELF, &use);
    printf("fabric of %u hosts x 8 GPUs x 8 NICs: built %.0f ms, 8 rings %.0f ms, neighbours of a rank %.2f "
           "ms, stages placed %.0f ms; all %.0f ms, "
           "%.0f MB at most; packed %zu bytes a host\n",
           hosts, built, rings, neighbours, placed, ms(whole), (double)use.ru_maxrss / 1024, size);
    free(order);
    free(places);
    free(packed);
    free(stage);
    free(replica);
    shunt_fabric_destroy(f);
}

int main(int argc, char **argv)
{
    live();
    for (int i = 1; i < argc; i++)
        file(argv[i]);
    paths();
    fabric(1024);
    return 0;
}
