/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths. In a tree there is one way between two objects: up to the lowest common ancestor and down again.
 * What that ancestor is gives the class; the lowest link on the way gives the bandwidth. NVLink and xGMI go
 * beside the tree.
 */
#include <stdio.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/path.h"

#define EFFICIENCY 0.85   /* of a PCI link's rate after encoding: packet headers at 256 bytes of payload */
#define MEMORY 5e12       /* within one object: never the limit */

const char *shunt_topo_class_name(shunt_topo_class_t path_class)
{
    static const char *const names[] = {"LOC", "NVL", "PIX", "PXB", "PHB", "NODE", "SYS", "NET"};

    return (unsigned)path_class < 8 ? names[path_class] : "unknown";
}

/* GB/s that one link reaches: NCCL's and RCCL's figures. */
static double per_link(const struct shunt__wires *w)
{
    const shunt_topo_gpu_t *g = w->from->u.gpu;

    if (w->wire == SHUNT__WIRE_C2C)
        return 32e9;
    if (w->wire == SHUNT__WIRE_XGMI) {
        if (g->gcn && (strncmp(g->gcn, "gfx94", 5) == 0 || strncmp(g->gcn, "gfx95", 5) == 0))
            return 48e9;
        return g->gcn && (strcmp(g->gcn, "910") == 0 || strcmp(g->gcn, "gfx90a") == 0) ? 36e9 : 24e9;
    }
    return g->sm >= 100  ? 40.1e9
           : g->sm >= 90 ? 20.6e9
           : g->sm == 86 ? 12e9
           : g->sm >= 70 ? 20e9
           : g->sm >= 60 ? 18e9
                         : 20e9;
}

double shunt__wires_bandwidth(const struct shunt__wires *w)
{
    return w->bandwidth > 0 ? w->bandwidth : w->count * per_link(w);
}

double shunt__between_nodes(const shunt_topo_t *t)
{
    int f = t->cpu_family, m = t->cpu_model_number;

    if (strncmp(t->cpu_arch, "ppc", 3) == 0)
        return 32e9;
    if (strncmp(t->cpu_arch, "arm", 3) == 0 || strncmp(t->cpu_arch, "aarch64", 7) == 0)
        return 6e9;
    if (strcmp(t->cpu_vendor, "AuthenticAMD") == 0) /* Zen 1-2; Zen 3-4; Zen 5 */
        return f >= 191 || f == 26 ? 32e9 : f == 175 || f == 25 ? 24e9 : 16e9;
    /* Intel: before Skylake; Skylake; Sapphire Rapids; Emerald Rapids */
    if (strcmp(t->cpu_vendor, "GenuineIntel") == 0)
        return f == 6 && m >= 0xcf ? 40e9 : f == 6 && m >= 0x6a ? 22e9 : f == 6 && m >= 0x55 ? 10e9 : 6e9;
    return 10e9;
}

double shunt__link_bandwidth(const struct shunt__object *o)
{
    if (!o->pub.pci)
        return 0;
    if (o->pci.speed && o->pci.width)
        return shunt__pci_rate(o->pci.speed, o->pci.width) * EFFICIENCY;
    if (o->pub.type == SHUNT_TOPO_BRIDGE || o->pub.type == SHUNT_TOPO_SWITCH)
        return 0; /* what hangs below says it better */
    return shunt__pci_rate(8000, 16) * EFFICIENCY;
}

/* The bundle from `a` to `b`, of which there are at most three (one a kind); NULL if there is none. */
static const struct shunt__wires *find_wires(const shunt_topo_t *t, const struct shunt__object *a,
                                             const struct shunt__object *b)
{
    unsigned low = a->first_wires, high = low + a->n_wires;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (t->wires[middle].to->order < b->order)
            low = middle + 1;
        else
            high = middle;
    }
    return low < a->first_wires + a->n_wires && t->wires[low].to == b ? &t->wires[low] : NULL;
}

/* NVSwitches of one host are joined among themselves, whether or not a source says so: they count as one. */
static double to_switches(const shunt_topo_t *t, const struct shunt__object *gpu, unsigned *links)
{
    double sum = 0;

    for (unsigned i = gpu->first_wires; i < gpu->first_wires + gpu->n_wires; i++)
        if (t->wires[i].to->pub.type == SHUNT_TOPO_NVSWITCH) {
            sum += shunt__wires_bandwidth(&t->wires[i]);
            *links += t->wires[i].count;
        }
    return sum;
}

/* GPU to GPU over direct links and NVSwitches that both hang on; GPU to the CPU it is wired to. Bytes per
 * second. */
static double over_wires(const shunt_topo_t *t, const struct shunt__object *a, const struct shunt__object *b,
                         unsigned *links)
{
    const struct shunt__wires *direct = find_wires(t, a, b);
    unsigned n = 0, m = 0;
    double sum = 0;

    *links = 0;
    if (!direct)
        direct = find_wires(t, b, a);
    if (direct) {
        sum = shunt__wires_bandwidth(direct);
        *links = direct->count;
    }
    double one = to_switches(t, a, &n), other = one > 0 ? to_switches(t, b, &m) : 0;
    *links += other > 0 ? n < m ? n : m : 0;
    return sum + (one < other ? one : other);
}

static void narrow(shunt_topo_path_t *p, double bandwidth, const struct shunt__object *at)
{
    if (bandwidth > 0 && bandwidth < p->bandwidth) {
        p->bandwidth = bandwidth;
        p->narrow = at ? &at->pub : NULL;
    }
}

static const struct shunt__object *host_bridge(const struct shunt__object *o)
{
    while (o && !o->is_host_bridge)
        o = o->parent;
    return o;
}

static shunt_topo_class_t classify(const shunt_topo_t *t, const struct shunt__object *a,
                                   const struct shunt__object *b, const struct shunt__object *top,
                                   unsigned switches)
{
    switch (top->pub.type) {
    case SHUNT_TOPO_SWITCH:
        return switches <= 1 ? SHUNT_TOPO_PIX : SHUNT_TOPO_PXB;
    case SHUNT_TOPO_BRIDGE:
        return top->is_host_bridge ? SHUNT_TOPO_PHB : switches <= 1 ? SHUNT_TOPO_PIX : SHUNT_TOPO_PXB;
    case SHUNT_TOPO_NUMA: /* NCCL's files don't tell host bridges apart, and NCCL calls that PHB */
        return a != top && b != top && host_bridge(a) && host_bridge(b) ? SHUNT_TOPO_NODE : SHUNT_TOPO_PHB;
    default:
        if (t->n_of_type[SHUNT_TOPO_NUMA] <= 1)
            return a->pub.type == SHUNT_TOPO_NUMA || b->pub.type == SHUNT_TOPO_NUMA ? SHUNT_TOPO_PHB
                                                                                    : SHUNT_TOPO_NODE;
        return a->pub.numa >= 0 && a->pub.numa == b->pub.numa ? SHUNT_TOPO_NODE : SHUNT_TOPO_SYS;
    }
}

/* A GPU's NVLink to the CPU ends at a package or a NUMA node; either stands for the other. */
static const struct shunt__object *cpu_end(const shunt_topo_t *t, const struct shunt__object *gpu,
                                           const struct shunt__object *numa)
{
    if (find_wires(t, gpu, numa))
        return numa;
    if (numa->parent && numa->parent->pub.type == SHUNT_TOPO_PACKAGE && find_wires(t, gpu, numa->parent))
        return numa->parent;
    return NULL;
}

/* A rate that is only a default says less than the PCI link does. */
static void bound_by_port(shunt_topo_path_t *path, const struct shunt__object *o)
{
    if (o->pub.type == SHUNT_TOPO_NIC && (o->u.nic->rate_known || !o->pub.pci || !o->pci.speed))
        narrow(path, (double)o->u.nic->rate / 8, o);
}

shunt_status_t shunt_topo_path(const shunt_topo_t *topo, const shunt_topo_object_t *from,
                               const shunt_topo_object_t *to, shunt_topo_path_t *path)
{
    const struct shunt__object *a, *b, *x, *y, *chain[SHUNT__MAX_DEPTH + 1];
    unsigned switches = 0, n = 0;

    if (!topo || !from || !to || !path)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_path: an argument is NULL");
    a = shunt__object(from);
    b = shunt__object(to);
    path->bandwidth = MEMORY;
    path->links = 0;
    path->narrow = NULL;
    path->n_hops = 1;
    path->hop[0] = from;
    if (a == b) {
        path->path_class = SHUNT_TOPO_LOC;
        return SHUNT_OK;
    }
    path->hop[1] = to;
    path->n_hops = 2;
    x = a->pub.type == SHUNT_TOPO_GPU && b->pub.type == SHUNT_TOPO_NUMA ? cpu_end(topo, a, b) : NULL;
    y = b->pub.type == SHUNT_TOPO_GPU && a->pub.type == SHUNT_TOPO_NUMA ? cpu_end(topo, b, a) : NULL;
    double wired = topo->n_wires ? over_wires(topo, y ? y : a, x ? x : b, &path->links) : 0;
    if (wired > 0) {
        path->path_class = SHUNT_TOPO_NVL;
        path->bandwidth = wired;
        return SHUNT_OK;
    }
    path->n_hops = 0;
    for (x = a, y = b; x != y;) {
        const struct shunt__object *up = x->depth >= y->depth ? x : y;
        narrow(path, shunt__link_bandwidth(up), up);
        switches += up->pub.type == SHUNT_TOPO_SWITCH && !up->same_chip;
        if (up == x) {
            if (x->pub.type != SHUNT_TOPO_HOST)
                path->hop[path->n_hops++] = &x->pub;
            x = x->parent;
        } else {
            chain[n++] = y;
            y = y->parent;
        }
    }
    switches += x->pub.type == SHUNT_TOPO_SWITCH;
    if (x->pub.type != SHUNT_TOPO_HOST || x == a || x == b)
        path->hop[path->n_hops++] = &x->pub;
    while (n)
        path->hop[path->n_hops++] = &chain[--n]->pub;
    path->path_class = classify(topo, a, b, x, switches);
    if (path->path_class == SHUNT_TOPO_SYS)
        narrow(path, shunt__between_nodes(topo), NULL);
    bound_by_port(path, a);
    bound_by_port(path, b);
    return SHUNT_OK;
}

/* The NICs that would carry data if no setting said otherwise: the rule of shunt_topo_rails(). */
struct worthy {
    shunt_topo_nic_tier_t tier;
    int rdma;
    uint64_t slowest;
};

static struct worthy find_worthy(const shunt_topo_t *topo)
{
    struct worthy w = {.tier = SHUNT_TOPO_TIER_UNUSABLE};
    uint64_t fastest = 0;

    for (int pass = 0; pass < 3; pass++)
        for (unsigned i = 0; i < topo->n_of_type[SHUNT_TOPO_NIC]; i++) {
            const shunt_topo_nic_t *n = topo->of_type[SHUNT_TOPO_NIC][i]->u.nic;
            if (pass == 0 && n->rdma && n->tier < SHUNT_TOPO_TIER_UNUSABLE)
                w.rdma = 1;
            if (pass == 1 && n->tier < w.tier && (!w.rdma || n->rdma))
                w.tier = n->tier;
            if (pass == 2 && n->tier == w.tier && (!w.rdma || n->rdma) && n->rate_known && n->rate > fastest)
                fastest = n->rate;
        }
    w.slowest = fastest / 10;
    return w;
}

static int is_worthy(const struct worthy *w, const shunt_topo_nic_t *n)
{
    return n->tier == w->tier && n->tier < SHUNT_TOPO_TIER_UNUSABLE && (!w->rdma || n->rdma) &&
           (!n->rate_known || n->rate >= w->slowest);
}

static unsigned depth_of_meeting(const struct shunt__object *a, const struct shunt__object *b)
{
    while (a != b) {
        if (a->depth >= b->depth)
            a = a->parent;
        else
            b = b->parent;
    }
    return a->depth;
}

shunt_status_t shunt_topo_nearest_nics(const shunt_topo_t *topo, const shunt_topo_object_t *object,
                                       const shunt_topo_object_t **nics, unsigned room, unsigned *n)
{
    shunt_topo_path_t path;
    shunt_topo_class_t best = SHUNT_TOPO_NET;
    double bandwidth = 0;
    unsigned found = 0, meeting = 0;

    if (!topo || !object || (!nics && room) || !n)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_nearest_nics: an argument is NULL");
    struct worthy w = find_worthy(topo);
    for (unsigned i = 0; i < topo->n_of_type[SHUNT_TOPO_NIC]; i++) {
        const struct shunt__object *o = topo->of_type[SHUNT_TOPO_NIC][i];
        if (!is_worthy(&w, o->u.nic))
            continue;
        shunt_topo_path(topo, object, &o->pub, &path);
        if (path.path_class > best)
            continue;
        if (path.bandwidth > (double)o->u.nic->rate / 8) /* here even a default is better than nothing */
            path.bandwidth = (double)o->u.nic->rate / 8;
        unsigned depth = depth_of_meeting(shunt__object(object), o);
        int better = path.path_class < best || path.bandwidth > bandwidth * 1.001 ||
                     (path.bandwidth > bandwidth * 0.999 && depth > meeting);
        if (!better && (path.bandwidth < bandwidth * 0.999 || depth < meeting))
            continue;
        if (better) {
            best = path.path_class;
            bandwidth = path.bandwidth;
            meeting = depth;
            found = 0;
        }
        if (found < room)
            nics[found] = &o->pub;
        found++;
    }
    *n = found;
    return SHUNT_OK;
}

shunt_status_t shunt_topo_nearest_nics_of_cpu(const shunt_topo_t *topo, unsigned cpu,
                                              const shunt_topo_object_t **nics, unsigned room, unsigned *n)
{
    const shunt_topo_object_t *numa = shunt_topo_numa_of_cpu(topo, cpu);

    if (!topo)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_nearest_nics_of_cpu: topo is NULL");
    if (!numa && shunt_topo_count(topo, SHUNT_TOPO_NUMA) > 1)
        return shunt__fail(SHUNT_ERR_NOT_FOUND, "CPU %u belongs to no NUMA node of this topology", cpu);
    return shunt_topo_nearest_nics(topo, numa ? numa : &topo->host->pub, nics, room, n);
}

shunt_status_t shunt_topo_binding(const shunt_topo_t *topo, const shunt_topo_object_t *nic,
                                  shunt_topo_binding_t *binding)
{
    shunt_topo_binding_t b = {.numa = -1};
    const struct shunt__object *numa = NULL;

    if (!topo || !nic || !binding)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_binding: an argument is NULL");
    for (unsigned i = 0; i < topo->n_of_type[SHUNT_TOPO_NUMA]; i++)
        if (topo->of_type[SHUNT_TOPO_NUMA][i]->pub.numa == nic->numa && nic->numa >= 0)
            numa = topo->of_type[SHUNT_TOPO_NUMA][i];
    if (topo->n_of_type[SHUNT_TOPO_NUMA] <= 1) {
        snprintf(b.reason, sizeof(b.reason), "anywhere: the host has one NUMA node");
        *binding = b;
        return SHUNT_OK;
    }
    if (!numa) {
        snprintf(b.reason, sizeof(b.reason), "anywhere: nobody knows which NUMA node %.60s is near to",
                 nic->name);
        *binding = b;
        return SHUNT_OK;
    }
    b.numa = nic->numa;
    /* First one CPU of each core, then their siblings. */
    for (int siblings = 0; siblings < 2; siblings++)
        for (unsigned i = topo->n_cpus; i-- > 0;) {
            const struct shunt__cpu *c = &topo->cpus[i];
            int sibling = i > 0 && topo->cpus[i - 1].core == c->core;
            if (!c->online || sibling != siblings || !shunt__cpus_has(&numa->cpus, c->os_index))
                continue;
            if (b.n_cpus < 1024)
                b.cpu[b.n_cpus] = c->os_index;
            b.n_cpus++;
        }
    /* A source may know CPUs as sets only. */
    for (unsigned cpu = numa->cpus.n_words * 64; cpu-- > 0 && !topo->n_cpus;)
        if (shunt__cpus_has(&numa->cpus, cpu)) {
            if (b.n_cpus < 1024)
                b.cpu[b.n_cpus] = cpu;
            b.n_cpus++;
        }
    snprintf(b.reason, sizeof(b.reason), "%.60s is near to NUMA node %d%s", nic->name, b.numa,
             b.n_cpus ? "" : ", of whose CPUs this process may use none");
    *binding = b;
    return SHUNT_OK;
}
