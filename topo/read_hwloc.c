/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hwloc XML of versions 1 to 3, read here rather than by hwloc: a library of one version refuses the files of
 * the next, and files come from strangers. The live host and synthetic descriptions come this way too.
 *
 * Two passes: packages, NUMA nodes and CPUs first, for where a PCI tree hangs is told by CPUs it is near to.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/interfaces.h"
#include "topo/read.h"

#define MAX_PLACES 1024 /* packages and NUMA nodes together */

struct reader {
    shunt_topo_t *topo;
    const struct shunt__xml *root;
    int major; /* of the file's version */
    unsigned n_cores;
    struct named {
        unsigned long gp;
        struct shunt__object *object;
    } *by_gp; /* objects that distances may refer to */
    unsigned n_by_gp, room_by_gp;
    struct shunt__object *place[MAX_PLACES]; /* packages and NUMA nodes */
    unsigned n_places;
    int too_many;
};

static int is(const struct shunt__xml *x, const char *type)
{
    const char *t = shunt__xml_get(x, "type");

    return t && strcmp(t, type) == 0;
}

static unsigned long number(const struct shunt__xml *x, const char *key, unsigned long missing)
{
    const char *t = shunt__xml_get(x, key);
    char *end;
    unsigned long v;

    if (!t)
        return missing;
    errno = 0;
    v = strtoul(t, &end, 0);
    return end == t || errno ? missing : v;
}

static const char *info(const struct shunt__xml *x, const char *name)
{
    for (const struct shunt__xml *c = x->child; c; c = c->next) {
        const char *n = strcmp(c->name, "info") == 0 ? shunt__xml_get(c, "name") : NULL;
        if (n && strcmp(n, name) == 0)
            return shunt__xml_get(c, "value");
    }
    return NULL;
}

void shunt__read_cpuset(struct shunt__arena *arena, struct shunt__cpus *set, const char *text)
{
    const char *end = text + strlen(text);

    for (unsigned word = 0; end > text && word < SHUNT__MAX_CPUS / 32; word++) {
        const char *from = end;
        while (from > text && from[-1] != ',')
            from--;
        if (strncmp(from, "0xf...f", 7) == 0) /* hwloc's "and all above": no set of a real machine */
            return;
        uint32_t bits = (uint32_t)strtoull(from, NULL, 16);
        for (unsigned b = 0; bits && b < 32; b++)
            if (bits >> b & 1)
                shunt__cpus_add(arena, set, word * 32 + b);
        end = from > text ? from - 1 : from;
    }
}

static struct shunt__cpus cpuset(struct reader *r, const struct shunt__xml *x, const char *key)
{
    struct shunt__cpus set = {0};
    const char *text = shunt__xml_get(x, key);

    if (text)
        shunt__read_cpuset(&r->topo->arena, &set, text);
    return set;
}

static void remember(struct reader *r, const struct shunt__xml *x, struct shunt__object *o)
{
    unsigned long gp = number(x, "gp_index", 0);

    if (!gp || !o)
        return;
    if (r->n_by_gp == r->room_by_gp) {
        unsigned room = r->room_by_gp ? r->room_by_gp * 2 : 64;
        struct named *bigger = realloc(r->by_gp, room * sizeof(*bigger));
        if (!bigger) {
            r->topo->arena.failed = 1;
            return;
        }
        r->by_gp = bigger;
        r->room_by_gp = room;
    }
    r->by_gp[r->n_by_gp++] = (struct named){gp, o};
}

static void add_place(struct reader *r, struct shunt__object *o)
{
    if (r->n_places < MAX_PLACES)
        r->place[r->n_places++] = o;
    else
        r->too_many = 1;
}

/* ---- pass 1: packages, NUMA nodes, CPUs ---- */

static void add_cpu(struct reader *r, const struct shunt__xml *x, const struct shunt__cpus *allowed)
{
    shunt_topo_t *t = r->topo;
    unsigned long os = number(x, "os_index", SHUNT__MAX_CPUS);

    if (os >= SHUNT__MAX_CPUS || t->n_cpus >= SHUNT__MAX_CPUS)
        return;
    if (t->n_cpus == t->room_cpus) {
        unsigned room = t->room_cpus ? t->room_cpus * 2 : 64;
        struct shunt__cpu *bigger = realloc(t->cpus, room * sizeof(*bigger));
        if (!bigger) {
            t->arena.failed = 1;
            return;
        }
        t->cpus = bigger;
        t->room_cpus = room;
    }
    t->cpus[t->n_cpus++] = (struct shunt__cpu){(unsigned)os, r->n_cores ? r->n_cores - 1 : 0,
                                               !allowed->n_words || shunt__cpus_has(allowed, (unsigned)os)};
}

static void read_cpu_infos(shunt_topo_t *t, const struct shunt__xml *x)
{
    const char *v;

    if (!*t->cpu_vendor && (v = info(x, "CPUVendor")))
        t->cpu_vendor = shunt__arena_text(&t->arena, v, 32);
    if (!*t->cpu_model && (v = info(x, "CPUModel")))
        t->cpu_model = shunt__arena_text(&t->arena, v, 100);
    if (!t->cpu_family && (v = info(x, "CPUFamilyNumber")))
        t->cpu_family = atoi(v);
    if (!t->cpu_model_number && (v = info(x, "CPUModelNumber")))
        t->cpu_model_number = atoi(v);
    if (!*t->cpu_arch && (v = info(x, "Architecture")))
        t->cpu_arch = shunt__arena_text(&t->arena, v, 32);
    if (!*t->host_name && (v = info(x, "HostName")))
        t->host_name = shunt__arena_text(&t->arena, v, 64);
}

static void first_pass(struct reader *r, const struct shunt__xml *x, struct shunt__object *package,
                       const struct shunt__cpus *allowed)
{
    struct shunt__object *o;

    if (is(x, "Package") || is(x, "Socket")) {
        o = shunt__topo_add(r->topo, r->topo->host, SHUNT_TOPO_PACKAGE, NULL);
        if (!o)
            return;
        o->os_index = (unsigned)number(x, "os_index", 0);
        o->cpus = cpuset(r, x, "cpuset");
        remember(r, x, o);
        add_place(r, o);
        package = o;
    } else if (is(x, "NUMANode") || is(x, "Node")) {
        o = shunt__topo_add(r->topo, package ? package : r->topo->host, SHUNT_TOPO_NUMA, NULL);
        if (!o)
            return;
        o->os_index = (unsigned)(number(x, "os_index", 0) & 0x7fffffff);
        o->cpus = cpuset(r, x, "cpuset");
        o->memory = number(x, "local_memory", 0);
        if (!shunt__cpus_count(&o->cpus))
            o->pub.note = "memory without CPUs";
        remember(r, x, o);
        add_place(r, o);
    } else if (is(x, "Core")) {
        r->n_cores++;
    } else if (is(x, "PU")) {
        if (!x->parent || !is(x->parent, "Core"))
            r->n_cores++;
        add_cpu(r, x, allowed);
    }
    read_cpu_infos(r->topo, x);
    for (const struct shunt__xml *c = x->child; c; c = c->next)
        if (strcmp(c->name, "object") == 0)
            first_pass(r, c, package, allowed);
}

/* hwloc 1 puts packages below NUMA nodes, where here they are siblings: move each node into its package. */
static void settle_nodes(struct reader *r)
{
    for (unsigned i = 0; i < r->n_places; i++) {
        struct shunt__object *numa = r->place[i], *package = NULL;
        if (numa->pub.type != SHUNT_TOPO_NUMA || numa->parent != r->topo->host ||
            !shunt__cpus_count(&numa->cpus))
            continue;
        for (unsigned k = 0; k < r->n_places && !package; k++) {
            struct shunt__object *o = r->place[k];
            int inside = o->pub.type == SHUNT_TOPO_PACKAGE;
            for (unsigned w = 0; inside && w < numa->cpus.n_words; w++)
                inside = !(numa->cpus.words[w] & ~(w < o->cpus.n_words ? o->cpus.words[w] : 0));
            if (inside)
                package = o;
        }
        if (package)
            shunt__object_move(numa, package);
    }
}

/* ---- pass 2: the PCI trees and what hangs in them ---- */

/* Where devices go that hwloc hangs below `x`: its NUMA node if it has but one, else its package, else the
 * host. */
static struct shunt__object *locate(struct reader *r, const struct shunt__xml *x)
{
    struct shunt__cpus here = cpuset(r, x, "cpuset"), nodes = cpuset(r, x, "nodeset");
    struct shunt__object *best = NULL, *package = NULL;
    unsigned cpus = shunt__cpus_count(&here), alone = shunt__cpus_count(&nodes) == 1;

    for (unsigned i = 0; i < r->n_places; i++) {
        struct shunt__object *o = r->place[i];
        int same = cpus && shunt__cpus_equal(&o->cpus, &here);
        if (o->pub.type == SHUNT_TOPO_PACKAGE && same)
            package = o;
        if (o->pub.type == SHUNT_TOPO_NUMA && same && (!best || o->os_index < best->os_index))
            best = o;
    }
    for (unsigned i = 0; !best && alone && i < r->n_places; i++)
        if (r->place[i]->pub.type == SHUNT_TOPO_NUMA && shunt__cpus_has(&nodes, r->place[i]->os_index))
            best = r->place[i];
    return best ? best : package ? package : r->topo->host;
}

/* The lanes and speed whose product is nearest to a rate after encoding, GB/s; many lanes before high speed.
 */
static void guess_link(shunt_topo_pci_t *pci, double gb)
{
    static const uint32_t speeds[] = {2500, 5000, 8000, 16000, 32000, 64000};
    static const uint32_t widths[] = {16, 8, 4, 2, 1};
    double best = 1e9;

    if (!(gb > 0.05) || gb > 300)
        return;
    for (unsigned w = 0; w < 5; w++)
        for (unsigned s = 0; s < 6; s++) {
            double d = shunt__pci_rate(speeds[s], widths[w]) / 1e9 / gb;
            d = d < 1 ? 1 / d : d;
            if (d < best - 0.001) {
                best = d;
                pci->speed = speeds[s];
                pci->width = widths[w];
            }
        }
}

static void set_pci(struct shunt__object *o, const shunt_topo_pci_t *pci)
{
    shunt__object_set_pci(o, pci);
    o->link_guessed = 1;
}

static int read_pci(const struct shunt__xml *x, shunt_topo_pci_t *pci)
{
    const char *bus = shunt__xml_get(x, "pci_busid"), *type = shunt__xml_get(x, "pci_type");
    const char *speed = shunt__xml_get(x, "pci_link_speed");
    unsigned class, vendor, product, sub_vendor, sub_product;

    if (!bus || shunt__pci_parse(bus, pci))
        return -1;
    if (type &&
        sscanf(type, "%4x [%4x:%4x] [%4x:%4x]", &class, &vendor, &product, &sub_vendor, &sub_product) == 5) {
        pci->class_id = (class & 0xffff) << 8;
        pci->vendor = (uint16_t)vendor;
        pci->product = (uint16_t)product;
        pci->sub_vendor = (uint16_t)sub_vendor;
        pci->sub_product = (uint16_t)sub_product;
    }
    if (speed)
        guess_link(pci, strtod(speed, NULL));
    return 0;
}

enum os_kind { OS_OTHER, OS_NET, OS_RDMA, OS_GPU };

/* The numbers changed their meaning from version 2 (a kind) to 3 (a set of kinds). */
static enum os_kind os_kind(const struct reader *r, const struct shunt__xml *x)
{
    unsigned long t = number(x, "osdev_type", 99);

    if (!is(x, "OSDev"))
        return OS_OTHER;
    if (r->major >= 3)
        return t == 16 ? OS_NET : t & 32 ? OS_RDMA : t & 12 ? OS_GPU : OS_OTHER;
    return t == 2 ? OS_NET : t == 3 ? OS_RDMA : t == 1 || t == 5 ? OS_GPU : OS_OTHER;
}

/* NCCL's form wants it, hwloc doesn't tell it: from the model's name; 0 if it isn't one of these. */
static int compute_capability(const char *model)
{
    static const struct {
        const char *part;
        int sm;
    } known[] = {{"P100", 60}, {"V100", 70},  {"T4", 75},  {"A100", 80},  {"A800", 80},  {"A30", 80},
                 {"A40", 86},  {"A10", 86},   {"L40", 89}, {"L4", 89},    {"H100", 90},  {"H200", 90},
                 {"H800", 90}, {"GH200", 90}, {"H20", 90}, {"B200", 100}, {"B100", 100}, {"GB200", 100}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const char *at = strstr(model, known[i].part);
        size_t len = strlen(known[i].part);
        if (at && (at == model || at[-1] == ' ' || at[-1] == '-') && (at[len] < '0' || at[len] > '9'))
            return known[i].sm;
    }
    return 0;
}

static void fill_gpu(struct reader *r, struct shunt__object *o, const struct shunt__xml *x)
{
    static const char *const drivers[] = {"nvml", "rsmi", "cuda", "ze", "opencl0d"};
    unsigned best = 5;

    for (const struct shunt__xml *c = x->child; c; c = c->next) {
        const char *name = os_kind(r, c) == OS_GPU ? shunt__xml_get(c, "name") : NULL,
                   *model = info(c, "GPUModel");
        for (unsigned d = 0; name && d < best; d++) {
            size_t len = strlen(drivers[d]);
            if (strncmp(name, drivers[d], len) == 0 && name[len] >= '0' && name[len] <= '9') {
                o->u.gpu->dev = atoi(name + len) & 0xffff;
                best = d;
            }
        }
        if (model && !o->u.gpu->model)
            o->u.gpu->model = shunt__arena_text(&r->topo->arena, model, 80);
        const char *own = info(c, "ShuntArchitecture"), *sm = info(c, "ShuntComputeCapability");
        if (own && !o->u.gpu->gcn)
            o->u.gpu->gcn = shunt__arena_text(&r->topo->arena, own, 32);
        if (sm)
            o->u.gpu->sm = atoi(sm) & 0xffff;
        if (name)
            remember(r, c, o);
    }
    if (!o->u.gpu->sm && o->u.gpu->model)
        o->u.gpu->sm = compute_capability(o->u.gpu->model);
    if (!o->u.gpu->model && info(x, "PCIDevice"))
        o->u.gpu->model = shunt__arena_text(&r->topo->arena, info(x, "PCIDevice"), 80);
}

/* Vendors of the chips that draw a server's console. */
static int draws_console(const shunt_topo_pci_t *p)
{
    return p->class_id >> 8 == 0x0300 &&
           (p->vendor == 0x102b || p->vendor == 0x1a03 || p->vendor == 0x1013 || p->vendor == 0x1234 ||
            p->vendor == 0x15ad || p->vendor == 0x1af4 || p->vendor == 0x1b36 || p->vendor == 0x18ca ||
            (p->vendor == 0x1002 && (p->product == 0x515e || p->product == 0x4752)));
}

static void add_gpu(struct reader *r, struct shunt__object *parent, const struct shunt__xml *x,
                    const shunt_topo_pci_t *pci)
{
    struct shunt__object *o = shunt__topo_add(r->topo, parent, SHUNT_TOPO_GPU, NULL);

    if (!o)
        return;
    set_pci(o, pci);
    remember(r, x, o);
    fill_gpu(r, o, x);
    if (draws_console(pci)) {
        o->u.gpu->is_display = 1;
        o->pub.note = "draws the console, computes nothing";
    }
}

/* What our own exports say beyond hwloc's words, and what hwloc says about InfiniBand ports. */
static void fill_nic(struct reader *r, struct shunt__object *o, const struct shunt__xml *x)
{
    const char *gbit = info(x, "ShuntGbit"), *kind = info(x, "ShuntKind"), *layer = info(x, "ShuntLinkLayer");
    const char *state = info(x, "ShuntState"), *port = info(x, "ShuntPort");
    double v = gbit ? strtod(gbit, NULL) : 0;

    if (kind)
        o->u.nic->kind = shunt__arena_text(&r->topo->arena, kind, 20);
    for (int i = SHUNT_TOPO_LINK_ETHERNET; layer && i <= SHUNT_TOPO_LINK_TUNNEL; i++)
        if (strcmp(layer, shunt_topo_link_layer_name((shunt_topo_link_layer_t)i)) == 0)
            o->u.nic->layer = (shunt_topo_link_layer_t)i;
    for (int i = SHUNT_TOPO_NIC_NO_CARRIER; state && i <= SHUNT_TOPO_NIC_DOWN; i++)
        if (strcmp(state, shunt_topo_nic_state_name((shunt_topo_nic_state_t)i)) == 0)
            o->u.nic->state = (shunt_topo_nic_state_t)i;
    if (port && atoi(port) > 0 && atoi(port) < 256) {
        o->u.nic->rdma_port = (unsigned)atoi(port);
        if (!o->u.nic->rdma)
            o->u.nic->rdma = o->pub.name;
    }
    shunt__nic_set_speed(r->topo, o->u.nic, v > 0 && v < 1e7 ? (int64_t)(v * 1000 + 0.5) : 0);
    shunt__nic_judge(r->topo, o->u.nic, 0, NULL);
}

/* "HCA port" infos are rare: RDMA devices of a PCI function are matched to its interfaces in order. */
static void add_nics(struct reader *r, struct shunt__object *parent, const struct shunt__xml *x,
                     const shunt_topo_pci_t *pci)
{
    shunt_topo_t *t = r->topo;
    const char *rdma = NULL, *address;
    unsigned port = 0, nets = 0;
    struct shunt__object *o;

    for (const struct shunt__xml *c = x->child; c; c = c->next) {
        nets += os_kind(r, c) == OS_NET;
        if (os_kind(r, c) == OS_RDMA && !rdma)
            rdma = shunt__xml_get(c, "name");
    }
    for (const struct shunt__xml *c = x->child; c; c = c->next) {
        const char *name = shunt__xml_get(c, "name");
        if (os_kind(r, c) != OS_NET && !(os_kind(r, c) == OS_RDMA && !nets && name == rdma))
            continue;
        o = shunt__topo_add(t, parent, SHUNT_TOPO_NIC, name && *name ? name : NULL);
        if (!o)
            return;
        remember(r, c, o);
        set_pci(o, pci);
        o->u.nic->name = o->pub.name;
        o->u.nic->driver = o->u.nic->kind = "";
        if (rdma) {
            o->u.nic->rdma = shunt__arena_text(&t->arena, rdma, 64);
            o->u.nic->rdma_port = ++port;
        }
        address = info(c, "Address"); /* InfiniBand's has 20 bytes */
        o->u.nic->layer = pci->class_id >> 8 == 0x0207 || (address && strlen(address) > 40)
                              ? SHUNT_TOPO_LINK_INFINIBAND
                              : SHUNT_TOPO_LINK_ETHERNET;
        fill_nic(r, o, c);
    }
    if (nets || rdma)
        return;
    o = shunt__topo_add(t, parent, SHUNT_TOPO_NIC, NULL);
    if (!o)
        return;
    set_pci(o, pci);
    o->pub.name = o->u.nic->name = shunt__pci_print(&t->arena, pci);
    o->u.nic->driver = o->u.nic->kind = "";
    shunt__nic_set_speed(t, o->u.nic, 0);
    o->u.nic->reason = "no network interface: no driver has it, or a virtual machine does";
    shunt__nic_judge(t, o->u.nic, 0, NULL);
    o->u.nic->tier = SHUNT_TOPO_TIER_UNUSABLE;
}

static int has_os(const struct reader *r, const struct shunt__xml *x, enum os_kind kind)
{
    for (const struct shunt__xml *c = x->child; c; c = c->next)
        if (os_kind(r, c) == kind)
            return 1;
    return 0;
}

static void second_pass(struct reader *r, const struct shunt__xml *x, struct shunt__object *parent,
                        unsigned bridges);

/* Bridges that lead to nothing that matters are taken back by the caller. */
static void add_bridge(struct reader *r, const struct shunt__xml *x, struct shunt__object *parent,
                       unsigned bridges)
{
    const char *kind = shunt__xml_get(x, "bridge_type");
    int host_bridge = kind && strncmp(kind, "0-", 2) == 0;
    shunt_topo_pci_t pci = {0};
    int bad = read_pci(x, &pci);
    struct shunt__object *o;

    /* Below a host bridge ports and switches alternate: root port, upstream port of a switch, downstream
     * port, ... */
    o = shunt__topo_add(r->topo, parent,
                        !host_bridge && bridges % 2 == 0 && bridges ? SHUNT_TOPO_SWITCH : SHUNT_TOPO_BRIDGE,
                        NULL);
    if (!o)
        return;
    if (host_bridge) {
        const char *range = shunt__xml_get(x, "bridge_pci");
        o->is_host_bridge = 1;
        o->pub.name = shunt__arena_print(&r->topo->arena, "host bridge %.30s", range ? range : "");
    } else if (!bad) {
        set_pci(o, &pci);
    } else
        o->pub.name = "bridge";
    for (const struct shunt__xml *c = x->child; c; c = c->next)
        second_pass(r, c, o, host_bridge ? 1 : bridges + 1);
}

static void second_pass(struct reader *r, const struct shunt__xml *x, struct shunt__object *parent,
                        unsigned bridges)
{
    shunt_topo_pci_t pci = {0};
    const char *subtype = shunt__xml_get(x, "subtype");

    if (strcmp(x->name, "object") != 0)
        return;
    if (is(x, "Bridge")) {
        add_bridge(r, x, parent, bridges);
    } else if (is(x, "PCIDev")) {
        if (read_pci(x, &pci))
            return;
        if (subtype && strcmp(subtype, "NVSwitch") == 0) {
            struct shunt__object *o = shunt__topo_add(r->topo, parent, SHUNT_TOPO_NVSWITCH, NULL);
            if (!o)
                return;
            if (!pci.class_id) {
                pci.class_id = 0x068000;
                o->pub.note = "its PCI registers read as nothing";
            }
            set_pci(o, &pci);
            remember(r, x, o);
        } else if (pci.class_id >> 16 == 0x03 || (pci.class_id >> 16 == 0x12 && has_os(r, x, OS_GPU))) {
            add_gpu(r, parent, x, &pci);
        } else if (pci.class_id >> 16 == 0x02 || has_os(r, x, OS_NET) || has_os(r, x, OS_RDMA)) {
            add_nics(r, parent, x, &pci);
        }
    } else if (os_kind(r, x) == OS_NET && !bridges) { /* not on PCI: virtual, or another bus */
        const char *name = shunt__xml_get(x, "name");
        struct shunt__object *o = shunt__topo_add(r->topo, parent, SHUNT_TOPO_NIC,
                                                  name && *name ? name : NULL);
        if (!o)
            return;
        o->u.nic->name = o->pub.name;
        o->u.nic->driver = o->u.nic->kind = "";
        fill_nic(r, o, x);
    } else if (!is(x, "NUMANode") || r->major < 2) {
        /* hwloc's I/O hangs where its CPUs are, however the levels between are called. */
        struct shunt__object *here = NULL;
        for (const struct shunt__xml *c = x->child; c; c = c->next) {
            int io = is(c, "Bridge") || is(c, "PCIDev") || is(c, "OSDev");
            if (io && !here)
                here = shunt__xml_get(x, "cpuset") ? locate(r, x) : parent;
            if (io || (strcmp(c->name, "object") == 0 && c->child))
                second_pass(r, c, here ? here : parent, 0);
        }
    }
}

static struct shunt__object *by_gp(const struct reader *r, unsigned long gp)
{
    for (unsigned i = 0; i < r->n_by_gp; i++)
        if (r->by_gp[i].gp == gp)
            return r->by_gp[i].object;
    return NULL;
}

static int is_end(const struct shunt__object *o)
{
    return o && (o->pub.type == SHUNT_TOPO_GPU || o->pub.type == SHUNT_TOPO_NVSWITCH ||
                 o->pub.type == SHUNT_TOPO_PACKAGE || o->pub.type == SHUNT_TOPO_NUMA);
}

/* A matrix of NVLink or xGMI bandwidths between objects, MB/s. */
static void read_distances(struct reader *r, const struct shunt__xml *x)
{
    const char *name = shunt__xml_get(x, "name"), *all = shunt__xml_get(x, "indexing");
    unsigned long n = number(x, "nbobjs", 0);
    struct shunt__object **object;
    unsigned k = 0;
    unsigned long cell = 0;
    int xgmi = name && strcmp(name, "XGMIBandwidth") == 0;

    if (!name || (strcmp(name, "NVLinkBandwidth") != 0 && !xgmi) || n < 2 || n > 1024 ||
        (all && strcmp(all, "gp") != 0))
        return;
    object = calloc(n, sizeof(*object));
    if (!object) {
        r->topo->arena.failed = 1;
        return;
    }
    for (const struct shunt__xml *c = x->child; c; c = c->next) {
        const char *p = c->text;
        while (strcmp(c->name, "indexes") == 0 && *p && k < n) { /* "OSDev:332" or "332" */
            size_t len = strcspn(p, " \n");
            const char *colon = memchr(p, ':', len);
            object[k++] = by_gp(r, strtoul(colon ? colon + 1 : p, NULL, 10));
            p += len + strspn(p + len, " \n");
        }
        while (strcmp(c->name, "u64values") == 0 && *p && cell < n * n) {
            unsigned long mb = strtoul(p, NULL, 10);
            struct shunt__object *from = object[cell / n], *to = object[cell % n];
            if (mb && mb < 100000000 && from != to && is_end(from) && is_end(to) &&
                from->pub.type == SHUNT_TOPO_GPU) {
                unsigned long each = xgmi || mb % 25000 == 0 ? 25000 : 20000;
                struct shunt__wires *w = shunt__topo_add_wires(r->topo, from, to,
                                                               xgmi ? SHUNT__WIRE_XGMI : SHUNT__WIRE_NVLINK,
                                                               mb < each ? 1 : (unsigned)(mb / each));
                if (w) {
                    w->bandwidth = (double)mb * 1e6;
                    w->class_id = to->pub.type == SHUNT_TOPO_NVSWITCH ? 0x068000
                                  : to->pub.type == SHUNT_TOPO_GPU    ? to->pci.class_id
                                                                      : 0x068001;
                }
            }
            cell++;
            p += strcspn(p, " \n");
            p += strspn(p, " \n");
        }
    }
    free(object);
}

/* Bridges below which nothing matters only clutter the tree. */
static void prune(struct shunt__object *o)
{
    struct shunt__object **link = &o->child;

    o->last_child = NULL;
    while (*link) {
        struct shunt__object *c = *link;
        prune(c);
        if ((c->pub.type == SHUNT_TOPO_BRIDGE || c->pub.type == SHUNT_TOPO_SWITCH) && !c->child)
            *link = c->next;
        else {
            o->last_child = c;
            link = &c->next;
        }
    }
}

shunt_status_t shunt__read_hwloc(const struct shunt__xml *root, const char *source, int unfinished,
                                 shunt_topo_t **topo)
{
    struct reader r = {.root = root, .major = 1};
    const char *version = shunt__xml_get(root, "version");
    const struct shunt__xml *machine = root->child;
    shunt_status_t st;

    while (machine && !is(machine, "Machine") && !is(machine, "System"))
        machine = machine->next;
    if (!machine)
        return shunt__fail(SHUNT_ERR_FORMAT, "a hwloc file without a Machine: line %u", root->line);
    if (version)
        r.major = atoi(version);
    st = shunt__topo_new(source, &r.topo);
    if (st != SHUNT_OK)
        return st;
    if (r.major < 1 || r.major > 3)
        shunt__topo_note(r.topo, "version \"%.20s\" of hwloc's form is unknown, read as 3", version);
    struct shunt__cpus allowed = cpuset(&r, machine, "allowed_cpuset"), all = cpuset(&r, machine, "cpuset");
    if (!shunt__cpus_count(&allowed))
        allowed.n_words = 0;
    first_pass(&r, machine, NULL, &allowed);
    read_cpu_infos(r.topo, root);
    r.topo->n_cores = r.n_cores;
    unsigned numas = 0;
    for (unsigned i = 0; i < r.topo->n_all; i++)
        numas += r.topo->all[i]->pub.type == SHUNT_TOPO_NUMA;
    if (!numas) {
        struct shunt__object *o = shunt__topo_add(r.topo, r.topo->host, SHUNT_TOPO_NUMA, NULL);
        if (o) {
            o->cpus = all;
            o->pub.note = "the source has no NUMA node; one stands for all CPUs";
        }
    }
    if (r.too_many) {
        free(r.by_gp);
        shunt_topo_destroy(r.topo);
        return shunt__fail(SHUNT_ERR_LIMIT, "a host of more than %d packages and NUMA nodes is not believed",
                           MAX_PLACES);
    }
    settle_nodes(&r);
    second_pass(&r, machine, r.topo->host, 0);
    unsigned matrices = 0; /* real files have one per kind of link */
    for (const struct shunt__xml *c = root->child; c && matrices < 16; c = c->next)
        if (strncmp(c->name, "distances2", 10) == 0 && ++matrices)
            read_distances(&r, c);
    if (allowed.n_words && shunt__cpus_count(&allowed) < r.topo->n_cpus)
        shunt__topo_note(r.topo, "%u of %u CPUs may be used here", shunt__cpus_count(&allowed),
                         r.topo->n_cpus);
    prune(r.topo->host);
    free(r.by_gp);
    st = unfinished ? SHUNT_OK : shunt__topo_finish(&r.topo);
    if (st == SHUNT_OK)
        *topo = r.topo;
    return st;
}
