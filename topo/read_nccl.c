/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Topology files of NCCL and RCCL: system > cpu (a NUMA node) > pci > (gpu > nvlink | xgmi | c2c) | (nic >
 * net). People edit these by hand, so whatever can be understood is, and what can't gets a note.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/interfaces.h"
#include "topo/read.h"

struct wire {
    struct shunt__object *gpu;
    const char *target;
    unsigned count;
    uint32_t class_id;
    shunt__wire_t kind;
};

struct reader {
    shunt_topo_t *topo;
    struct wire *wires;
    unsigned n_wires, room_wires;
    unsigned unknown_devices, own_targets, groups;
    struct shunt__pci_index index;
    const char *host_hash;
};

static int64_t number(const struct shunt__xml *x, const char *key, int64_t missing)
{
    const char *text = shunt__xml_get(x, key);
    char *end;
    long long v;

    if (!text || !*text)
        return missing;
    errno = 0;
    v = strtoll(text, &end, 0);
    return end == text || errno ? missing : v;
}

static int small(const struct shunt__xml *x, const char *key, int missing)
{
    int64_t v = number(x, key, missing);

    return v < -1 || v > 0x7fffffff ? missing : (int)v;
}

/* "000000ff,ffff0000": 32 bits a word, the highest first; words may have lost or gained digits. */
static void parse_mask(struct shunt__arena *arena, struct shunt__cpus *set, const char *text)
{
    const char *end = text + strlen(text);
    unsigned word = 0;

    while (end > text && word < SHUNT__MAX_CPUS / 32) {
        const char *from = end;
        while (from > text && from[-1] != ',')
            from--;
        uint32_t bits = (uint32_t)strtoull(from, NULL, 16);
        for (unsigned b = 0; b < 32; b++)
            if (bits >> b & 1)
                shunt__cpus_add(arena, set, word * 32 + b);
        word++;
        end = from > text ? from - 1 : from;
    }
}

/* "16 GT/s", "32.0 GT/s PCIe", "5 GT/s": MT/s; 0 for "" and "Unknown speed". */
static uint32_t parse_speed(const char *text)
{
    double v = text ? strtod(text, NULL) : 0;

    return v >= 1 && v < 1000 ? (uint32_t)(v * 1000 + 0.5) : 0;
}

static struct shunt__object *add_net(struct reader *r, struct shunt__object *parent,
                                     const struct shunt__xml *x, const shunt_topo_pci_t *pci)
{
    const char *name = shunt__xml_get(x, "name");
    struct shunt__object *o = shunt__topo_add(r->topo, parent, SHUNT_TOPO_NIC, name && *name ? name : NULL);
    int port = small(x, "port", 0);

    if (!o)
        return NULL;
    if (pci)
        shunt__object_set_pci(o, pci);
    if (!o->pub.name && pci)
        o->pub.name = shunt__pci_print(&r->topo->arena, pci);
    o->u.nic->name = o->pub.name; /* NULL: named after its number later */
    o->u.nic->driver = o->u.nic->kind = "";
    o->u.nic->guid = (uint64_t)strtoull(shunt__xml_get(x, "guid") ? shunt__xml_get(x, "guid") : "0", NULL, 0);
    /* NCCL's sockets have port 0 and its RDMA devices count from 1. */
    if (port > 0 || (pci && pci->class_id >> 8 == 0x0207)) {
        o->u.nic->rdma = o->pub.name;
        o->u.nic->rdma_port = port > 0 && port < 256 ? (unsigned)port : 1;
    }
    if (pci && pci->class_id >> 8 == 0x0207)
        o->u.nic->layer = SHUNT_TOPO_LINK_INFINIBAND;
    else if (pci && pci->class_id >> 8 == 0x0200)
        o->u.nic->layer = SHUNT_TOPO_LINK_ETHERNET;
    o->net.dev = small(x, "dev", -1);
    o->net.gdr = small(x, "gdr", -1);
    o->net.coll = small(x, "coll", -1);
    o->net.maxconn = (uint32_t)number(x, "maxconn", 0);
    double latency = strtod(shunt__xml_get(x, "latency") ? shunt__xml_get(x, "latency") : "0",
                            NULL); /* microseconds */
    o->u.nic->latency = latency > 0 && latency < 1e6 ? latency * 1e-6 : 0;
    shunt__nic_set_speed(r->topo, o->u.nic, number(x, "speed", 0));
    return o;
}

/* A NIC that stands in the file as a bare PCI device: the machine itself has to fill in the rest. */
static void add_bare_nic(struct reader *r, struct shunt__object *parent, const shunt_topo_pci_t *pci)
{
    struct shunt__object *o = shunt__topo_add(r->topo, parent, SHUNT_TOPO_NIC, NULL);

    if (!o)
        return;
    shunt__object_set_pci(o, pci);
    o->pub.name = o->u.nic->name = shunt__pci_print(&r->topo->arena, pci);
    o->u.nic->driver = o->u.nic->kind = "";
    if (pci->class_id >> 8 == 0x0207) {
        o->u.nic->layer = SHUNT_TOPO_LINK_INFINIBAND;
        o->u.nic->rdma = o->pub.name;
        o->u.nic->rdma_port = 1;
    }
    shunt__nic_set_speed(r->topo, o->u.nic, 0);
}

static void add_gpu(struct reader *r, struct shunt__object *parent, const struct shunt__xml *x,
                    const shunt_topo_pci_t *pci)
{
    struct shunt__object *o = shunt__topo_add(r->topo, parent, SHUNT_TOPO_GPU, NULL);
    const char *gcn = x ? shunt__xml_get(x, "gcn") : NULL;

    if (!o)
        return;
    if (pci)
        shunt__object_set_pci(o, pci);
    if (!x)
        return;
    o->u.gpu->dev = small(x, "dev", -1);
    o->u.gpu->rank = small(x, "rank", -1);
    o->u.gpu->sm = small(x, "sm", 0);
    o->u.gpu->gdr = small(x, "gdr", -1);
    o->u.gpu->arch = small(x, "arch", 0);
    o->u.gpu->gcn = gcn && *gcn ? shunt__arena_text(&r->topo->arena, gcn, 32) : NULL;
    for (const struct shunt__xml *c = x->child; c; c = c->next) {
        int kind = strcmp(c->name, "nvlink") == 0 ? (int)SHUNT__WIRE_NVLINK
                   : strcmp(c->name, "xgmi") == 0 ? (int)SHUNT__WIRE_XGMI
                   : strcmp(c->name, "c2c") == 0  ? (int)SHUNT__WIRE_C2C
                                                  : -1;
        if (kind < 0)
            continue;
        if (r->n_wires == r->room_wires) {
            unsigned room = r->room_wires ? r->room_wires * 2 : 64;
            struct wire *bigger = realloc(r->wires, room * sizeof(*bigger));
            if (!bigger) {
                r->topo->arena.failed = 1;
                return;
            }
            r->wires = bigger;
            r->room_wires = room;
        }
        int count = small(c, "count", 1);
        const char *target = shunt__xml_get(c, "target");
        r->wires[r->n_wires++] = (struct wire){
            o, target ? target : "", count > 0 && count <= 1024 ? (unsigned)count : 1,
            (uint32_t)number(c, "tclass", 0) & 0xffffff, (shunt__wire_t)kind};
    }
}

static void walk_pci(struct reader *r, struct shunt__object *parent, const struct shunt__xml *x);

static void walk_nic(struct reader *r, struct shunt__object *parent, const struct shunt__xml *x,
                     const shunt_topo_pci_t *pci)
{
    for (const struct shunt__xml *c = x->child; c; c = c->next)
        if (strcmp(c->name, "net") == 0)
            add_net(r, parent, c, pci);
}

static void read_pci(struct shunt_topo_pci *pci, const struct shunt__xml *x)
{
    pci->class_id = (uint32_t)number(x, "class", 0) & 0xffffff;
    pci->vendor = (uint16_t)number(x, "vendor", 0);
    pci->product = (uint16_t)number(x, "device", 0);
    pci->sub_vendor = (uint16_t)number(x, "subsystem_vendor", 0);
    pci->sub_product = (uint16_t)number(x, "subsystem_device", 0);
    pci->speed = parse_speed(shunt__xml_get(x, "link_speed"));
    int64_t width = number(x, "link_width", 0);
    pci->width = width > 0 && width <= 32 ? (uint32_t)width : 0;
}

/* What a <pci> is shows in what it holds, and only then in its class. */
static void walk_pci(struct reader *r, struct shunt__object *parent, const struct shunt__xml *x)
{
    const char *bus = shunt__xml_get(x, "busid");
    shunt_topo_pci_t pci = {0};
    int bad = !bus || shunt__pci_parse(bus, &pci);
    const struct shunt__xml *gpu = NULL;
    int below = 0, nets = 0;

    read_pci(&pci, x);
    for (const struct shunt__xml *c = x->child; c; c = c->next) {
        if (strcmp(c->name, "gpu") == 0 && !gpu)
            gpu = c;
        nets += strcmp(c->name, "nic") == 0 || strcmp(c->name, "net") == 0;
        below += strcmp(c->name, "pci") == 0;
    }
    if (bad)
        shunt__topo_note(r->topo, "line %u: \"%.40s\" is no PCI address", x->line, bus ? bus : "");
    if (gpu || pci.class_id >> 16 == 0x03) {
        add_gpu(r, parent, gpu, bad ? NULL : &pci);
    } else if (!below && !nets && pci.class_id >> 16 == 0x02) {
        add_bare_nic(r, parent, &pci);
    } else if (!nets && (below || pci.class_id >> 8 == 0x0604)) {
        struct shunt__object *o = shunt__topo_add(r->topo, parent, SHUNT_TOPO_SWITCH, bad ? "switch" : NULL);
        if (!o)
            return;
        if (!bad)
            shunt__object_set_pci(o, &pci);
        parent = o;
    } else if (!nets && pci.class_id >> 8 == 0x0680) {
        struct shunt__object *o = shunt__topo_add(r->topo, parent, SHUNT_TOPO_NVSWITCH, NULL);
        if (o && !bad)
            shunt__object_set_pci(o, &pci);
    } else if (!nets && !below) {
        struct shunt__object *o = shunt__topo_add(r->topo, parent, SHUNT_TOPO_DEVICE, bad ? "device" : NULL);
        r->unknown_devices += !pci.class_id;
        if (o && !bad)
            shunt__object_set_pci(o, &pci);
    }
    for (const struct shunt__xml *c = x->child; c; c = c->next) {
        if (strcmp(c->name, "nic") == 0)
            walk_nic(r, parent, c, bad ? NULL : &pci);
        else if (strcmp(c->name, "net") == 0)
            add_net(r, parent, c, bad ? NULL : &pci);
        else if (strcmp(c->name, "gpu") == 0 && c != gpu)
            add_gpu(r, parent, c, bad ? NULL : &pci);
        else if (strcmp(c->name, "pci") == 0)
            walk_pci(r, parent, c);
    }
}

static void read_cpu(struct reader *r, const struct shunt__xml *x)
{
    const char *affinity = shunt__xml_get(x, "affinity"), *hash = shunt__xml_get(x, "host_hash");
    struct shunt__object *o = shunt__topo_add(r->topo, r->topo->host, SHUNT_TOPO_NUMA, NULL);
    int numa = small(x, "numaid", -1);
    shunt_topo_t *t = r->topo;

    if (!o)
        return;
    if (numa < 0) {
        numa = 0;
        o->pub.note = "the file gives no number";
    }
    o->os_index = (unsigned)numa;
    if (affinity)
        parse_mask(&t->arena, &o->cpus, affinity);
    if (hash && r->host_hash && strcmp(hash, r->host_hash) != 0)
        shunt__topo_note(t, "line %u: the file holds several hosts; they are shown as one", x->line);
    if (hash)
        r->host_hash = hash;
    if (!*t->cpu_arch && shunt__xml_get(x, "arch"))
        t->cpu_arch = shunt__arena_text(&t->arena, shunt__xml_get(x, "arch"), 32);
    if (!*t->cpu_vendor && shunt__xml_get(x, "vendor"))
        t->cpu_vendor = shunt__arena_text(&t->arena, shunt__xml_get(x, "vendor"), 32);
    if (!t->cpu_family) {
        t->cpu_family = small(x, "familyid", 0);
        t->cpu_model_number = small(x, "modelid", 0);
    }
    for (const struct shunt__xml *c = x->child; c; c = c->next) {
        if (strcmp(c->name, "pci") == 0)
            walk_pci(r, o, c);
        else if (strcmp(c->name, "nic") == 0)
            walk_nic(r, o, c, NULL);
        else if (strcmp(c->name, "net") == 0)
            add_net(r, o, c, NULL);
        else if (strcmp(c->name, "gpu") == 0)
            add_gpu(r, o, c, NULL);
    }
}

/* GPUs right under <system>, each naming its NIC: there is no tree, so the two are put behind one bridge. */
static void read_flat_gpu(struct reader *r, const struct shunt__xml *x)
{
    const char *net = shunt__xml_get(x, "net");
    struct shunt__object *group = NULL;

    for (struct shunt__object *o = r->topo->host->child; o && net && r->groups < 1024; o = o->next)
        if (o->pub.type == SHUNT_TOPO_BRIDGE && strcmp(o->child->pub.name, net) == 0)
            group = o;
    if (net && *net && !group) {
        group = shunt__topo_add(r->topo, r->topo->host, SHUNT_TOPO_BRIDGE, NULL);
        if (!group)
            return;
        r->groups++;
        group->pub.name = shunt__arena_print(&r->topo->arena, "beside %.60s", net);
        group->is_host_bridge = 1;
        struct shunt__object *o = shunt__topo_add(r->topo, group, SHUNT_TOPO_NIC, net);
        if (!o)
            return;
        o->u.nic->name = o->pub.name;
        o->u.nic->driver = o->u.nic->kind = "";
        o->u.nic->rdma = o->pub.name;
        o->u.nic->rdma_port = 1;
        shunt__nic_set_speed(r->topo, o->u.nic, 0);
        if (group == r->topo->host->child)
            shunt__topo_note(r->topo, "GPUs right under <system>: no CPU or PCI tree is told, each GPU is "
                                      "put beside the NIC it names");
    }
    add_gpu(r, group ? group : r->topo->host, x, NULL);
}

/* NVLinks name their other end by PCI address: a GPU, an NVSwitch that stands nowhere else, or a CPU's
 * bridge. */
static void connect_wires(struct reader *r)
{
    for (unsigned i = 0; i < r->topo->n_all; i++)
        if (shunt__pci_index_add(&r->index, r->topo->all[i]))
            r->topo->arena.failed = 1;
    for (unsigned i = 0; i < r->n_wires; i++) {
        const struct wire *w = &r->wires[i];
        shunt_topo_pci_t p = {.class_id = w->class_id};
        int bad = shunt__pci_parse(w->target, &p);
        struct shunt__object *to = bad ? NULL : shunt__pci_index_find(&r->index, &p), *numa = w->gpu;
        struct shunt__wires *added;

        if (to == w->gpu) {
            r->own_targets++;
            continue;
        }
        if (w->kind == SHUNT__WIRE_C2C || (!to && w->class_id == 0x068001)) { /* the CPU: its NUMA node */
            while (numa && numa->pub.type != SHUNT_TOPO_NUMA)
                numa = numa->parent;
            to = numa;
        }
        if (!to && !bad && w->class_id == 0x068000) {
            to = shunt__topo_add(r->topo, r->topo->host, SHUNT_TOPO_NVSWITCH, NULL);
            if (!to)
                return;
            shunt__object_set_pci(to, &p);
            if (shunt__pci_index_add(&r->index, to))
                r->topo->arena.failed = 1;
        }
        if (!to) {
            shunt__topo_note(r->topo, "a GPU's NVLink leads to %.40s, which the file doesn't have",
                             w->target);
            continue;
        }
        added = shunt__topo_add_wires(r->topo, w->gpu, to, w->kind, w->count);
        if (added)
            added->class_id = w->class_id;
    }
    if (r->own_targets)
        shunt__topo_note(r->topo, "%u GPUs have an NVLink to themselves; those are left out", r->own_targets);
}

shunt_status_t shunt__read_nccl(const struct shunt__xml *root, int unfinished, shunt_topo_t **topo)
{
    struct reader r = {0};
    shunt_status_t st = shunt__topo_new("NCCL", &r.topo);

    if (st != SHUNT_OK)
        return st;
    r.topo->nccl_version = small(root, "version", 0);
    if (r.topo->nccl_version < 1 || r.topo->nccl_version > 2)
        shunt__topo_note(r.topo, "version \"%.20s\" is unknown, read as 1",
                         shunt__xml_get(root, "version") ? shunt__xml_get(root, "version") : "");
    for (const struct shunt__xml *c = root->child; c; c = c->next) {
        if (strcmp(c->name, "cpu") == 0)
            read_cpu(&r, c);
        else if (strcmp(c->name, "gpu") == 0)
            read_flat_gpu(&r, c);
        else if (strcmp(c->name, "pci") == 0)
            walk_pci(&r, r.topo->host, c);
        else if (strcmp(c->name, "nic") == 0)
            walk_nic(&r, r.topo->host, c, NULL);
        else
            shunt__topo_note(r.topo, "line %u: <%.40s> is unknown here", c->line, c->name);
    }
    connect_wires(&r);
    free(r.wires);
    shunt__pci_index_free(&r.index);
    if (r.unknown_devices)
        shunt__topo_note(r.topo, "%u PCI devices have no class: NCCL asks the machine itself what they are",
                         r.unknown_devices);
    for (unsigned i = 0; i < r.topo->n_all; i++) {
        struct shunt__object *o = r.topo->all[i];
        if (o->pub.type == SHUNT_TOPO_NIC)
            shunt__nic_judge(r.topo, o->u.nic, 0, NULL);
    }
    st = unfinished ? SHUNT_OK : shunt__topo_finish(&r.topo);
    if (st == SHUNT_OK)
        *topo = r.topo;
    return st;
}
