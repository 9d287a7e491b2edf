/* SPDX-License-Identifier: BSD-3-Clause */
/* Every form a topology can be written in: written, read again, and compared. */
#ifndef SHUNT_TESTS_TOPO_FORMS_H
#define SHUNT_TESTS_TOPO_FORMS_H

#include <hwloc.h>
#include <shunt/topo.h>
#include "tests/tap.h"

/* The limits and the dialect of NCCL's own parser; NULL, or what it would stumble over. */
static const char *nccl_would_refuse(const char *text)
{
    unsigned elements = 0, attributes = 0;
    static char why[100];
    const char *tags[70];
    unsigned depth = 0;

    for (const char *p = text; *p;) {
        if (*p == ' ' || *p == '\n' || *p == '\r') {
            p++;
            continue;
        }
        if (*p != '<')
            return "text between elements";
        if (p[1] == '?')
            return "a prolog";
        int closing = p[1] == '/';
        const char *name = p + 1 + closing;
        size_t len = strcspn(name, " >/\n");
        p = name + len;
        if (closing) {
            if (!depth || strncmp(tags[--depth], name, len) != 0 || *p != '>')
                return "a closing tag out of place";
            p++;
            continue;
        }
        if (++elements > 255)
            return "more than 255 elements";
        const char *up = depth ? tags[depth - 1] : "";
#define IS(s, t) (strncmp(s, t, strlen(t)) == 0 && strchr(" >/\n", (s)[strlen(t)]))
        int fits = IS(name, "system") ? depth == 0
                   : IS(name, "cpu")  ? IS(up, "system")
                   : IS(name, "pci")  ? IS(up, "cpu") || IS(up, "pci")
                   : IS(name, "nic")  ? IS(up, "cpu") || IS(up, "pci")
                   : IS(name, "net")  ? IS(up, "nic")
                   : IS(name, "gpu")  ? IS(up, "pci")
                   : IS(name, "nvlink") || IS(name, "xgmi") || IS(name, "c2c") ? IS(up, "gpu")
                                                                               : 0;
        if (!fits) {
            snprintf(why, sizeof(why), "<%.*s> in <%.20s>", (int)len, name, up);
            return why;
        }
        for (attributes = 0; *p == ' '; attributes++) {
            size_t key = strcspn(++p, "= />\n"), value;
            if (p[key] != '=' || p[key + 1] != '"')
                return "an attribute without a value";
            p += key + 2;
            value = strcspn(p, "\"");
            if (value > 254 || memchr(p, '<', value) || memchr(p, '&', value))
                return "a value too long, or with an entity";
            p += value + 1;
        }
        if (attributes > 16)
            return "more than 16 attributes";
        if (*p == '/')
            p++;
        else if (depth < 70)
            tags[depth++] = name;
        if (*p++ != '>')
            return "a tag that does not end";
    }
    return depth ? "an element that does not end" : NULL;
}

static char *written(const shunt_topo_t *topo, shunt_topo_format_t format)
{
    char *text = NULL;

    return shunt_topo_export(topo, format, &text, NULL) == SHUNT_OK ? text : NULL;
}

/* NUMA nodes without CPUs, or none, or devices without a PCI address or of unknown kind: hwloc's form has no
 * place for those. */
static int lacks_something(const shunt_topo_t *topo)
{
    int cpus = 0;

    for (unsigned cpu = 0; cpu < 8192 && !cpus; cpu++)
        cpus = shunt_topo_numa_of_cpu(topo, cpu) != NULL;
    for (unsigned i = 0; i < shunt_topo_count(topo, SHUNT_TOPO_GPU); i++)
        cpus &= shunt_topo_get(topo, SHUNT_TOPO_GPU, i)->pci != NULL;
    return !cpus || shunt_topo_count(topo, SHUNT_TOPO_DEVICE);
}

/* print(parse(print(x))) = print(x), and both machines look alike to those who ask for paths. */
static void check_round_trip(const shunt_topo_t *topo, const char *name, shunt_topo_format_t format,
                             const char *form)
{
    char *first = written(topo, format), *second, *matrix, *again;
    shunt_topo_t *copy = NULL, *third = NULL;

    if (!ok(first != NULL, "%s is written as %s", name, form)) {
        printf("# %s\n", shunt_error_text());
        return;
    }
    if (format == SHUNT_TOPO_NCCL) {
        const char *why = nccl_would_refuse(first);
        ok(!why, "%s: NCCL's parser would take it%s%s", name, why ? ", but: " : "", why ? why : "");
    }
    if (!ok(shunt_topo_load_memory(name, first, strlen(first), &copy) == SHUNT_OK, "%s as %s reads again",
            name, form)) {
        printf("# %s\n%s\n", shunt_error_text(), first);
        free(first);
        return;
    }
    second = written(copy, format);
    /* A source that lacks what the form insists on (CPUs, addresses) is settled after the first reading. */
    int settled = format == SHUNT_TOPO_HWLOC && lacks_something(topo);
    if (!settled &&
        !ok(second && strcmp(first, second) == 0, "%s as %s is the same when written again", name, form))
        printf("# first:\n%s\n# second:\n%s\n", first, second ? second : "(nothing)");
    if (second && shunt_topo_load_memory(name, second, strlen(second), &third) == SHUNT_OK) {
        char *last = written(third, format);
        ok(last && strcmp(second, last) == 0, "%s as %s stays the same from then on", name, form);
        free(last);
        matrix = written(copy, SHUNT_TOPO_MATRIX);
        again = written(third, SHUNT_TOPO_MATRIX);
        ok(matrix && again && strcmp(matrix, again) == 0, "%s as %s keeps its paths", name, form);
        free(matrix);
        free(again);
        shunt_topo_destroy(third);
    }
    free(first);
    free(second);
    shunt_topo_destroy(copy);
}

static void check_packed(const shunt_topo_t *topo, const char *name)
{
    void *data = NULL, *again = NULL;
    size_t size = 0, size_again = 0;
    shunt_topo_t *copy = NULL;
    char *diff = NULL, *a, *b;
    unsigned changes = 99;

    if (!ok(shunt_topo_pack(topo, &data, &size) == SHUNT_OK &&
                shunt_topo_unpack(data, size, &copy) == SHUNT_OK,
            "%s packs and unpacks", name)) {
        printf("# %s\n", shunt_error_text());
        free(data);
        return;
    }
    shunt_topo_pack(copy, &again, &size_again);
    ok(size == size_again && again && memcmp(data, again, size) == 0, "%s packs to the same %zu bytes again",
       name, size);
    ok(shunt_topo_diff(topo, copy, &diff, &changes) == SHUNT_OK && changes == 0 && diff && !*diff,
       "%s has no difference from its copy", name);
    a = written(topo, SHUNT_TOPO_TEXT);
    b = written(copy, SHUNT_TOPO_TEXT);
    ok(a && b && strcmp(a, b) == 0, "%s looks the same from its packed form", name);
    free(a);
    free(b);
    free(diff);
    free(data);
    free(again);
    shunt_topo_destroy(copy);
}

/* lstopo's library takes what we write, and finds as many NUMA nodes. */
static void check_hwloc_takes(const shunt_topo_t *topo, const char *name)
{
    char *text = written(topo, SHUNT_TOPO_HWLOC);
    hwloc_topology_t h;
    int good = 0, nodes = -1;

    if (text && hwloc_topology_init(&h) == 0) {
        hwloc_topology_set_io_types_filter(h, HWLOC_TYPE_FILTER_KEEP_ALL);
        good = hwloc_topology_set_xmlbuffer(h, text, (int)strlen(text) + 1) == 0 &&
               hwloc_topology_load(h) == 0;
        if (good)
            nodes = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE);
        hwloc_topology_destroy(h);
    }
    ok(good, "%s: hwloc takes its form", name);
    if (good && shunt_topo_count(topo, SHUNT_TOPO_NUMA) > 0 && !strstr(name, "two-hosts"))
        is_int(nodes, shunt_topo_count(topo, SHUNT_TOPO_NUMA), "%s: hwloc finds the NUMA nodes in it", name);
    free(text);
}

static void check_forms(const shunt_topo_t *topo, const char *name)
{
    char *json = written(topo, SHUNT_TOPO_JSON), *svg = written(topo, SHUNT_TOPO_SVG),
         *dot = written(topo, SHUNT_TOPO_DOT);

    ok(json && strstr(json, "\"gpus\": [") && strstr(json, "\"nics\": [") && strstr(json, "\"numa\": [") &&
           strstr(json, "\"switches\": [") && strstr(json, "\"paths\": ["),
       "%s as JSON has its arrays", name);
    ok(svg && strncmp(svg, "<svg ", 5) == 0 && strstr(svg, "</svg>\n"), "%s is drawn", name);
    ok(dot && strncmp(dot, "graph ", 6) == 0, "%s is written for Graphviz", name);
    free(json);
    free(svg);
    free(dot);
    check_round_trip(topo, name, SHUNT_TOPO_NCCL, "NCCL XML");
    check_round_trip(topo, name, SHUNT_TOPO_HWLOC, "hwloc XML");
    check_packed(topo, name);
    check_hwloc_takes(topo, name);
}

#endif
