/* SPDX-License-Identifier: BSD-3-Clause */
/* For people: a tree of what matters for communication, and the matrix of path classes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/export.h"
#include "topo/path.h"

#define MOST_PAIRS 262144 /* of GPUs and NICs, for which the nearest are looked up */
#define MOST_ENDS 512 /* GPUs and NICs in a matrix that a person may still read, or a machine store */

static void add_memory(struct shunt__text *t, uint64_t bytes)
{
    if (bytes >= 1ull << 30)
        shunt__text_add(t, ", %.0f GiB", (double)bytes / (1ull << 30));
    else if (bytes)
        shunt__text_add(t, ", %.0f MiB", (double)bytes / (1 << 20));
}

static void add_cpus(const shunt_topo_t *topo, struct shunt__text *t, const struct shunt__object *o)
{
    unsigned threads = shunt__cpus_count(&o->cpus), cores = shunt__count_cores(topo, &o->cpus);

    if (!threads)
        return;
    shunt__text_add(t, ", CPUs ");
    shunt__print_cpu_list(t, &o->cpus);
    if (cores && cores != threads)
        shunt__text_add(t, " (%u cores)", cores);
}

/* "NVLink x2 to GPU 1, x2 to Package 0", or where there are many ends, how many of which kind. */
static void add_wires(const shunt_topo_t *topo, struct shunt__text *t, const struct shunt__object *o)
{
    static const char *const kinds[] = {"NVLink", "xGMI", "C2C"};
    const struct shunt__wires *w;
    unsigned total = 0, gpus = 0, switches = 0;

    if (!o->n_wires)
        return;
    w = topo->wires + o->first_wires;
    if (o->n_wires <= 4 && w->to->pub.type != SHUNT_TOPO_NVSWITCH) {
        for (unsigned i = 0; i < o->n_wires; i++)
            shunt__text_add(t, "%s%s x%u to %s", i ? "," : ", ",
                            i && w[i].wire == w[0].wire ? "" : kinds[w[i].wire], w[i].count,
                            w[i].to->pub.name);
        return;
    }
    for (unsigned i = 0; i < o->n_wires; i++) {
        total += w[i].count;
        gpus += w[i].to->pub.type == SHUNT_TOPO_GPU;
        switches += w[i].to->pub.type == SHUNT_TOPO_NVSWITCH;
    }
    shunt__text_add(t, ", %s x%u to ", kinds[w->wire], total);
    if (switches)
        shunt__text_add(t, "%u NVSwitch%s%s", switches, switches > 1 ? "es" : "", gpus ? " and " : "");
    if (gpus)
        shunt__text_add(t, "%u GPU%s", gpus, gpus > 1 ? "s" : "");
    if (gpus + switches < o->n_wires)
        shunt__text_add(t, " and the CPU");
}

static void add_object(const shunt_topo_t *topo, struct shunt__text *t, const struct shunt__object *o)
{
    char link[32], rate[32], address[64], pci[32] = "";

    if (o->pub.pci)
        snprintf(pci, sizeof(pci), "%04x:%02x:%02x.%x", o->pci.domain, o->pci.bus, o->pci.device,
                 o->pci.function);
    switch (o->pub.type) {
    case SHUNT_TOPO_PACKAGE:
        shunt__text_add(t, "%s", o->pub.name);
        break;
    case SHUNT_TOPO_NUMA:
        shunt__text_add(t, "%s", o->pub.name);
        add_cpus(topo, t, o);
        add_memory(t, o->memory);
        break;
    case SHUNT_TOPO_GPU:
        shunt__text_add(t, "%s", o->pub.name);
        if (o->u.gpu->model)
            shunt__text_add(t, " %s", o->u.gpu->model);
        if (o->u.gpu->gcn)
            shunt__text_add(t, " (%s)", o->u.gpu->gcn);
        if (*pci)
            shunt__text_add(t, ", %s", pci);
        if (*shunt__print_link(link, o))
            shunt__text_add(t, ", %s", link);
        add_wires(topo, t, o);
        break;
    case SHUNT_TOPO_NIC: {
        const shunt_topo_nic_t *n = o->u.nic;
        int lone = strcmp(o->pub.name, pci) == 0;
        shunt__text_add(t, "NIC %s", o->pub.name);
        if (n->rdma && strcmp(n->rdma, n->name) != 0)
            shunt__text_add(t, " (%s port %u)", n->rdma, n->rdma_port);
        if (*pci && !lone)
            shunt__text_add(t, ", %s", pci);
        if (*shunt__print_link(link, o))
            shunt__text_add(t, ", %s", link);
        if (n->rate_known)
            shunt__text_add(t, ", %s", shunt__print_rate(rate, (double)n->rate));
        if (n->layer == SHUNT_TOPO_LINK_INFINIBAND || n->layer == SHUNT_TOPO_LINK_ETHERNET)
            shunt__text_add(t, ", %s", shunt_topo_link_layer_name(n->layer));
        for (unsigned i = 0; i < n->n_addresses && i < 2; i++)
            shunt__text_add(t, ", %s", shunt__print_address(address, &n->addresses[i]));
        shunt__text_add(t, ": %s", n->reason);
        break;
    }
    default:
        shunt__text_add(t, "%s%s",
                        o->pub.type == SHUNT_TOPO_SWITCH                   ? "PCI switch "
                        : o->pub.type == SHUNT_TOPO_DEVICE                 ? "PCI device "
                        : o->pub.type == SHUNT_TOPO_NVSWITCH && o->pub.pci ? "NVSwitch "
                                                                           : "",
                        o->pub.name);
        if (*shunt__print_link(link, o))
            shunt__text_add(t, ", %s", link);
        break;
    }
    if (o->pub.note)
        shunt__text_add(t, " (%s)", o->pub.note);
    shunt__text_add(t, "\n");
}

/* Bridges are folded, so are the inner levels of a switch: their children stand in their place. */
static int shown(const struct shunt__object *o)
{
    if (o->pub.type == SHUNT_TOPO_PACKAGE)
        return o->child != NULL;
    return (o->pub.type != SHUNT_TOPO_BRIDGE ||
            (o->is_host_bridge && strncmp(o->pub.name, "beside ", 7) == 0)) &&
           !(o->pub.type == SHUNT_TOPO_SWITCH && o->same_chip);
}

static unsigned collect(const struct shunt__object *within, const struct shunt__object **list)
{
    unsigned n = 0;

    for (const struct shunt__object *c = within->child; c; c = c->next) {
        if (!shown(c))
            n += collect(c, list ? list + n : NULL);
        else if (list)
            list[n++] = c;
        else
            n++;
    }
    return n;
}

static void add_tree(const shunt_topo_t *topo, struct shunt__text *t, const struct shunt__object *within,
                     char *prefix, size_t len)
{
    unsigned n = collect(within, NULL);
    const struct shunt__object **list = malloc((n + 1) * sizeof(*list));

    if (!list) {
        t->failed = 1;
        return;
    }
    collect(within, list);
    for (unsigned i = 0; i < n; i++) {
        shunt__text_add(t, "%s%s", prefix, i + 1 < n ? "├─ " : "└─ ");
        add_object(topo, t, list[i]);
        if (len + 8 >= 512)
            continue;
        strcpy(prefix + len, i + 1 < n ? "│  " : "   ");
        add_tree(topo, t, list[i], prefix, len + strlen(prefix + len));
        prefix[len] = 0;
    }
    free(list);
}

static void add_count(struct shunt__text *t, const shunt_topo_t *topo, shunt_topo_type_t type,
                      const char *one, const char *many, const char **comma)
{
    unsigned n = topo->n_of_type[type];

    if (n)
        shunt__text_add(t, "%s%u %s", *comma, n, n == 1 ? one : many);
    if (n)
        *comma = ", ";
}

/* "GPU 0-3: mlx5_0, mlx5_1 (PIX, 26.8 GB/s)": GPUs with one answer share a line. */
static void add_nearest(const shunt_topo_t *topo, struct shunt__text *t)
{
    const shunt_topo_object_t *nic[8], *last[8];
    unsigned n, n_last = 0, first = 0, count = topo->n_of_type[SHUNT_TOPO_GPU];
    shunt_topo_path_t path, last_path = {.path_class = SHUNT_TOPO_NET};
    char bandwidth[32];

    if (!count || !topo->n_of_type[SHUNT_TOPO_NIC] ||
        (uint64_t)count * topo->n_of_type[SHUNT_TOPO_NIC] > MOST_PAIRS)
        return;
    shunt__text_add(t, "\nNearest NICs\n");
    for (unsigned i = 0; i <= count; i++) {
        n = 0;
        path.path_class = SHUNT_TOPO_NET;
        path.bandwidth = 0;
        if (i < count) {
            shunt_topo_nearest_nics(topo, &topo->of_type[SHUNT_TOPO_GPU][i]->pub, nic, 8, &n);
            if (n)
                shunt_topo_path(topo, &topo->of_type[SHUNT_TOPO_GPU][i]->pub, nic[0], &path);
        }
        int same = i < count && i && n == n_last && path.path_class == last_path.path_class &&
                   path.bandwidth == last_path.bandwidth &&
                   memcmp(nic, last, (n < 8 ? n : 8) * sizeof(*nic)) == 0;
        if (i && !same) {
            shunt__text_add(t, "  %s", topo->of_type[SHUNT_TOPO_GPU][first]->pub.name);
            if (i - 1 > first)
                shunt__text_add(t, " to %s", topo->of_type[SHUNT_TOPO_GPU][i - 1]->pub.name);
            shunt__text_add(t, ": ");
            for (unsigned k = 0; k < n_last && k < 8; k++)
                shunt__text_add(t, "%s%s", k ? ", " : "", last[k]->name);
            if (n_last > 8)
                shunt__text_add(t, " and %u more", n_last - 8);
            if (n_last)
                shunt__text_add(t, " (%s, %s)\n", shunt_topo_class_name(last_path.path_class),
                                shunt__print_bandwidth(bandwidth, last_path.bandwidth));
            else
                shunt__text_add(t, "none is usable\n");
            first = i;
        }
        memcpy(last, nic, sizeof(nic));
        n_last = n;
        last_path.path_class = path.path_class;
        last_path.bandwidth = path.bandwidth;
    }
}

static void add_notes(const shunt_topo_t *topo, struct shunt__text *t)
{
    if (!*topo->notes)
        return;
    shunt__text_add(t, "\nNotes\n");
    for (const char *p = topo->notes; *p; p += strcspn(p, "\n"), p += *p == '\n')
        shunt__text_add(t, "  %.*s\n", (int)strcspn(p, "\n"), p);
}

shunt_status_t shunt__export_text(const shunt_topo_t *topo, struct shunt__text *t)
{
    const char *comma = ": ";
    char prefix[520] = "";

    shunt__text_add(t, "Host%s%s (%s)", *topo->host_name ? " " : "", topo->host_name, topo->source);
    add_count(t, topo, SHUNT_TOPO_PACKAGE, "package", "packages", &comma);
    add_count(t, topo, SHUNT_TOPO_NUMA, "NUMA node", "NUMA nodes", &comma);
    if (topo->n_cores) {
        shunt__text_add(t, "%s%u core%s", comma, topo->n_cores, topo->n_cores == 1 ? "" : "s");
        comma = ", ";
    }
    add_count(t, topo, SHUNT_TOPO_GPU, "GPU", "GPUs", &comma);
    add_count(t, topo, SHUNT_TOPO_NVSWITCH, "NVSwitch", "NVSwitches", &comma);
    add_count(t, topo, SHUNT_TOPO_NIC, "NIC", "NICs", &comma);
    shunt__text_add(t, "\n");
    if (*topo->cpu_model)
        shunt__text_add(t, "%s\n", topo->cpu_model);
    add_tree(topo, t, topo->host, prefix, 0);
    add_nearest(topo, t);
    add_notes(topo, t);
    return SHUNT_OK;
}

/* ---- matrix ---- */

static void label(char out[16], const struct shunt__object *o)
{
    if (o->pub.type == SHUNT_TOPO_GPU)
        snprintf(out, 16, "GPU%s", strrchr(o->pub.name, ' ') ? strrchr(o->pub.name, ' ') + 1 : "");
    else if (strlen(o->pub.name) <= 8 && !strchr(o->pub.name, ':'))
        snprintf(out, 16, "%s", o->pub.name);
    else
        snprintf(out, 16, "NIC%u", o->pub.index);
}

/* GPUs that compute, and NICs that lead somewhere; where there is none of those, whatever there is. */
static unsigned list_ends(const shunt_topo_t *topo, const struct shunt__object **list, unsigned *gpus)
{
    unsigned n = 0;

    for (unsigned i = 0; i < topo->n_of_type[SHUNT_TOPO_GPU]; i++, n++)
        if (n < MOST_ENDS)
            list[n] = topo->of_type[SHUNT_TOPO_GPU][i];
    *gpus = n;
    for (int all = 0; all < 2 && n == *gpus; all++)
        for (unsigned i = 0; i < topo->n_of_type[SHUNT_TOPO_NIC]; i++) {
            const shunt_topo_nic_t *nic = topo->of_type[SHUNT_TOPO_NIC][i]->u.nic;
            if (!all && (nic->tier >= SHUNT_TOPO_TIER_ISOLATED && (nic->is_virtual || !nic->ifindex)))
                continue;
            if (n < MOST_ENDS)
                list[n] = topo->of_type[SHUNT_TOPO_NIC][i];
            n++;
        }
    return n;
}

shunt_status_t shunt__export_matrix(const shunt_topo_t *topo, struct shunt__text *t)
{
    const struct shunt__object *list[MOST_ENDS];
    unsigned g, n = list_ends(topo, list, &g), legend = 0;
    shunt_topo_path_t path;
    char name[16], cell[16];

    if (n > MOST_ENDS)
        return shunt__fail(SHUNT_ERR_LIMIT,
                           "a matrix of %u GPUs and NICs is too large to be read; the limit is %d", n,
                           MOST_ENDS);
    if (!n) {
        shunt__text_add(t, "No GPU and no NIC.\n");
        return SHUNT_OK;
    }
    shunt__text_add(t, "%-9s", "");
    for (unsigned i = 0; i < n; i++) {
        label(name, list[i]);
        shunt__text_add(t, " %-8s", name);
    }
    shunt__text_add(t, " %-5s %s\n", "NUMA", "CPUs");
    for (unsigned i = 0; i < n; i++) {
        const struct shunt__object *o = list[i];
        label(name, o);
        shunt__text_add(t, "%-9s", name);
        for (unsigned k = 0; k < n; k++) {
            shunt_topo_path(topo, &o->pub, &list[k]->pub, &path);
            if (path.path_class == SHUNT_TOPO_NVL && path.links)
                snprintf(cell, sizeof(cell), "NVL%u", path.links);
            else
                snprintf(cell, sizeof(cell), "%s", i == k ? "X" : shunt_topo_class_name(path.path_class));
            shunt__text_add(t, " %-8s", cell);
        }
        if (o->pub.numa >= 0)
            shunt__text_add(t, " %-5d ", o->pub.numa);
        else
            shunt__text_add(t, " %-5s ", "?");
        for (unsigned k = 0; k < topo->n_of_type[SHUNT_TOPO_NUMA]; k++)
            if (topo->of_type[SHUNT_TOPO_NUMA][k]->pub.numa == o->pub.numa) {
                shunt__print_cpu_list(t, &topo->of_type[SHUNT_TOPO_NUMA][k]->cpus);
                break;
            }
        shunt__text_add(t, "\n");
    }
    for (unsigned i = g; i < n; i++) {
        label(name, list[i]);
        if (strcmp(name, list[i]->pub.name) == 0)
            continue;
        shunt__text_add(t, "%s  %s = %s\n", legend++ ? "" : "\n", name, list[i]->pub.name);
    }
    shunt__text_add(t, "\n  X    itself\n  NVL# NVLink, xGMI or C2C, # links\n  PIX  at most one PCI "
                       "switch\n  PXB  several PCI switches\n"
                       "  PHB  a PCI host bridge (the CPU)\n  NODE two host bridges of one NUMA node\n  SYS  "
                       "between NUMA nodes\n");
    return SHUNT_OK;
}
