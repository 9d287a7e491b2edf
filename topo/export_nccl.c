/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's topology form. Its parser reads no prolog, no tabs and no entities, takes 255 elements, 16
 * attributes each and values of 254 bytes, and knows <gpu> and <nic> only inside <pci> (a <nic> also in
 * <cpu>). Ports of switches are left out as NCCL does: one <pci> is one switch.
 */
#include <stdio.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/export.h"
#include "topo/path.h"

#define MAX_ELEMENTS 255
#define MAX_VALUE 254

struct writer {
    const shunt_topo_t *topo;
    struct shunt__text *t;
    unsigned elements, made_up;
    int rccl;
    const struct shunt__object *home; /* the NUMA node for what has none */
};

static void indent(struct writer *w, unsigned depth)
{
    w->elements++;
    shunt__text_add(w->t, "%*s", (int)depth * 2, "");
}

/* A value that needs no escape: NCCL would take an entity for its letters. */
static void value(struct writer *w, const char *key, const char *v)
{
    shunt__text_add(w->t, " %s=\"", key);
    for (; *v; v++)
        shunt__text_bytes(w->t, strchr("<>&\"'", *v) || (unsigned char)*v < 32 ? "_" : v, 1);
    shunt__text_add(w->t, "\"");
}

static void pci_attributes(struct writer *w, const struct shunt__object *o, uint32_t usual_class)
{
    shunt_topo_pci_t p = {0};

    if (o->pub.pci)
        p = o->pci;
    else { /* NCCL knows everything by its address, so one is made up where the source had none */
        p.domain = 0xffff;
        p.bus = (uint8_t)(0xff - w->made_up / 32);
        p.device = (uint8_t)(w->made_up++ % 32);
        p.class_id = usual_class;
    }
    shunt__text_add(w->t, " busid=\"%04x:%02x:%02x.%x\"", p.domain, p.bus, p.device, p.function);
    if (p.class_id)
        shunt__text_add(w->t, " class=\"0x%06x\"", p.class_id);
    if (p.vendor)
        shunt__text_add(
            w->t,
            " vendor=\"0x%04x\" device=\"0x%04x\" subsystem_vendor=\"0x%04x\" subsystem_device=\"0x%04x\"",
            p.vendor, p.product, p.sub_vendor, p.sub_product);
    if (p.speed % 1000)
        shunt__text_add(w->t, " link_speed=\"%u.%u GT/s\"", p.speed / 1000, p.speed % 1000 / 100);
    else if (p.speed)
        shunt__text_add(w->t, " link_speed=\"%u GT/s\"", p.speed / 1000);
    else
        shunt__text_add(w->t, " link_speed=\"\"");
    shunt__text_add(w->t, " link_width=\"%u\"", p.width);
}

static void write_gpu(struct writer *w, const struct shunt__object *o, unsigned depth)
{
    const shunt_topo_gpu_t *g = o->u.gpu;

    indent(w, depth);
    shunt__text_add(w->t, "<gpu dev=\"%d\" sm=\"%d\"", g->dev >= 0 ? g->dev : (int)o->pub.index, g->sm);
    if (g->gcn)
        value(w, "gcn", g->gcn);
    if (g->arch)
        shunt__text_add(w->t, " arch=\"%d\"", g->arch);
    shunt__text_add(w->t, " rank=\"%d\" gdr=\"%d\"", g->rank >= 0 ? g->rank : (int)o->pub.index, g->gdr > 0);
    if (!o->n_wires) {
        shunt__text_add(w->t, "/>\n");
        return;
    }
    shunt__text_add(w->t, ">\n");
    for (unsigned i = 0; i < o->n_wires; i++) {
        const struct shunt__wires *l = &w->topo->wires[o->first_wires + i];
        indent(w, depth + 1);
        if (l->wire == SHUNT__WIRE_C2C) {
            shunt__text_add(w->t, "<c2c bw=\"%.0f\" count=\"%u\"/>\n",
                            shunt__wires_bandwidth(l) / l->count / 1e6, l->count);
            continue;
        }
        shunt__text_add(w->t, "<%s target=\"", l->wire == SHUNT__WIRE_XGMI ? "xgmi" : "nvlink");
        if (l->to->pub.pci)
            shunt__text_add(w->t, "%04x:%02x:%02x.%x", l->to->pci.domain, l->to->pci.bus, l->to->pci.device,
                            l->to->pci.function);
        else
            shunt__text_add(w->t, "fffffff:ffff:ff"); /* what NCCL writes for a link into the CPU */
        shunt__text_add(w->t, "\" count=\"%u\" tclass=\"0x%06x\"/>\n", l->count, l->class_id);
    }
    shunt__text_add(w->t, "%*s</gpu>\n", (int)depth * 2, "");
}

static int wanted(const struct writer *w, const struct shunt__object *o)
{
    return strcmp(w->topo->source, "NCCL") == 0 || o->u.nic->tier < SHUNT_TOPO_TIER_ISOLATED;
}

static int same_device(const struct shunt__object *a, const struct shunt__object *b)
{
    return a->pub.pci && b->pub.pci && a->pci.domain == b->pci.domain && a->pci.bus == b->pci.bus &&
           a->pci.device == b->pci.device && a->pci.function == b->pci.function;
}

static void write_net(struct writer *w, const struct shunt__object *o, unsigned depth)
{
    const shunt_topo_nic_t *n = o->u.nic;

    indent(w, depth);
    shunt__text_add(w->t, "<net");
    value(w, "name", n->rdma ? n->rdma : n->name);
    shunt__text_add(w->t, " dev=\"%d\" speed=\"%llu\" port=\"%u\"",
                    o->net.dev >= 0 ? o->net.dev : (int)o->pub.index,
                    n->rate_known ? (unsigned long long)(n->rate / 1000000) : 0ull, n->rdma_port);
    if (n->latency > 0)
        shunt__text_add(w->t, " latency=\"%f\"", n->latency * 1e6);
    shunt__text_add(w->t, " guid=\"0x%llx\" maxconn=\"%u\" gdr=\"%d\"", (unsigned long long)n->guid,
                    o->net.maxconn ? o->net.maxconn : 65536, o->net.gdr > 0);
    if (o->net.coll >= 0)
        shunt__text_add(w->t, " coll=\"%d\"", o->net.coll);
    shunt__text_add(w->t, "/>\n");
}

/* All ports of one device; `o` is the first of them. A NIC that the source gave as a bare address stays one.
 */
static void write_nic(struct writer *w, const struct shunt__object *o, unsigned depth)
{
    int bare = o->pub.pci && strcmp(w->topo->source, "NCCL") == 0 && !o->u.nic->rate_known &&
               strcmp(o->u.nic->name, o->pub.name) == 0 && o->net.dev < 0 && strchr(o->pub.name, ':');

    int in_pci = o->pub.pci || o->parent->pub.type == SHUNT_TOPO_SWITCH ||
                 o->parent->pub.type == SHUNT_TOPO_BRIDGE;
    if (in_pci) {
        indent(w, depth);
        shunt__text_add(w->t, "<pci");
        pci_attributes(w, o, 0x020000);
        shunt__text_add(w->t, bare ? "/>\n" : ">\n");
        if (bare)
            return;
        depth++;
    }
    indent(w, depth);
    shunt__text_add(w->t, "<nic>\n");
    for (const struct shunt__object *c = o; c; c = o->pub.pci ? c->next : NULL)
        if (c->pub.type == SHUNT_TOPO_NIC && (c == o || same_device(o, c)) && wanted(w, c))
            write_net(w, c, depth + 1);
    shunt__text_add(w->t, "%*s</nic>\n", (int)depth * 2, "");
    if (in_pci)
        shunt__text_add(w->t, "%*s</pci>\n", (int)(depth - 1) * 2, "");
}

/* Whether an earlier sibling was the first port of the same device. */
static int is_later_port(const struct writer *w, const struct shunt__object *o)
{
    for (const struct shunt__object *c = o->parent->child; c != o; c = c->next)
        if (c->pub.type == SHUNT_TOPO_NIC && same_device(c, o) && wanted(w, c))
            return 1;
    return 0;
}

static void write_children(struct writer *w, const struct shunt__object *parent, unsigned depth);

/* Whether anything that is written hangs below a switch. */
static int holds_something(const struct writer *w, const struct shunt__object *o)
{
    for (const struct shunt__object *c = o->child; c; c = c->next)
        if ((c->pub.type == SHUNT_TOPO_GPU && !c->u.gpu->is_display) ||
            (c->pub.type == SHUNT_TOPO_NIC && wanted(w, c)) ||
            (c->pub.type == SHUNT_TOPO_DEVICE && c->pub.pci) || holds_something(w, c))
            return 1;
    return 0;
}

static void write_object(struct writer *w, const struct shunt__object *o, unsigned depth)
{
    switch (o->pub.type) {
    case SHUNT_TOPO_BRIDGE:
        if (!o->pub.pci && strcmp(w->topo->source, "NCCL") == 0) { /* "beside mlx5_0" */
            indent(w, depth);
            shunt__text_add(w->t, "<pci");
            pci_attributes(w, o, 0x060400);
            shunt__text_add(w->t, ">\n");
            write_children(w, o, depth + 1);
            shunt__text_add(w->t, "%*s</pci>\n", (int)depth * 2, "");
        } else
            write_children(w, o, depth);
        break;
    case SHUNT_TOPO_SWITCH:
        if (o->child && !holds_something(w, o))
            break;
        indent(w, depth);
        shunt__text_add(w->t, "<pci");
        pci_attributes(w, o, 0x060400);
        if (!o->child) {
            shunt__text_add(w->t, "/>\n");
            break;
        }
        shunt__text_add(w->t, ">\n");
        write_children(w, o, depth + 1);
        shunt__text_add(w->t, "%*s</pci>\n", (int)depth * 2, "");
        break;
    case SHUNT_TOPO_GPU:
        if (o->u.gpu->is_display)
            break;
        indent(w, depth);
        shunt__text_add(w->t, "<pci");
        pci_attributes(w, o, 0x030200);
        /* A bare GPU of a file stays one: NCCL fills it in on the machine. */
        if (strcmp(w->topo->source, "NCCL") == 0 && o->u.gpu->dev < 0 && o->u.gpu->rank < 0) {
            shunt__text_add(w->t, "/>\n");
            break;
        }
        shunt__text_add(w->t, ">\n");
        write_gpu(w, o, depth + 1);
        shunt__text_add(w->t, "%*s</pci>\n", (int)depth * 2, "");
        break;
    case SHUNT_TOPO_NIC:
        if (wanted(w, o) && !(o->pub.pci && is_later_port(w, o)))
            write_nic(w, o, depth);
        break;
    case SHUNT_TOPO_DEVICE:
        if (!o->pub.pci)
            break;
        indent(w, depth);
        shunt__text_add(w->t, "<pci");
        pci_attributes(w, o, 0);
        shunt__text_add(w->t, "/>\n");
        break;
    default:
        break;
    }
}

static void write_children(struct writer *w, const struct shunt__object *parent, unsigned depth)
{
    for (const struct shunt__object *c = parent->child; c; c = c->next)
        write_object(w, c, depth);
}

/* What hangs above the NUMA nodes goes to the one that it is near to, else to the first. */
static void write_homeless(struct writer *w, const struct shunt__object *parent,
                           const struct shunt__object *numa)
{
    for (const struct shunt__object *c = parent->child; c; c = c->next) {
        if (c->pub.type == SHUNT_TOPO_PACKAGE)
            write_homeless(w, c, numa);
        else if (c->pub.type != SHUNT_TOPO_NUMA) {
            const struct shunt__object *to = w->home;
            for (unsigned i = 0; i < w->topo->n_of_type[SHUNT_TOPO_NUMA]; i++) {
                const struct shunt__object *o = w->topo->of_type[SHUNT_TOPO_NUMA][i];
                if (o->pub.numa == c->pub.numa ||
                    (c->pub.numa < 0 && o->parent == parent && parent->pub.type == SHUNT_TOPO_PACKAGE)) {
                    to = o;
                    break;
                }
            }
            if (to == numa)
                write_object(w, c, 2);
        }
    }
}

static void write_cpu(struct writer *w, const struct shunt__object *numa, unsigned words)
{
    const shunt_topo_t *topo = w->topo;

    indent(w, 1);
    shunt__text_add(w->t, "<cpu numaid=\"%d\"", numa ? (int)numa->os_index : 0);
    if (numa && words) {
        shunt__text_add(w->t, " affinity=\"");
        shunt__print_cpuset(w->t, &numa->cpus, words, 1);
        shunt__text_add(w->t, "\"");
    }
    value(w, "arch", *topo->cpu_arch ? topo->cpu_arch : "x86_64");
    if (*topo->cpu_vendor)
        value(w, "vendor", topo->cpu_vendor);
    shunt__text_add(w->t, " familyid=\"%d\" modelid=\"%d\">\n", topo->cpu_family, topo->cpu_model_number);
    if (numa)
        write_children(w, numa, 2);
    write_homeless(w, topo->host, numa);
    shunt__text_add(w->t, "  </cpu>\n");
}

shunt_status_t shunt__export_nccl(const shunt_topo_t *topo, struct shunt__text *t)
{
    unsigned words = 0, n = topo->n_of_type[SHUNT_TOPO_NUMA];
    struct writer w = {.topo = topo, .t = t, .rccl = topo->nccl_version == 2};

    for (unsigned i = 0; i < topo->n_of_type[SHUNT_TOPO_GPU]; i++)
        w.rccl |= topo->of_type[SHUNT_TOPO_GPU][i]->u.gpu->gcn != NULL;
    for (unsigned i = 0; i < n; i++) {
        const struct shunt__cpus *c = &topo->of_type[SHUNT_TOPO_NUMA][i]->cpus;
        unsigned k = c->n_words * 2;
        while (k && !(c->words[(k - 1) / 2] >> (k - 1) % 2 * 32 & 0xffffffff))
            k--;
        words = k > words ? k : words;
    }
    if (words * 9 > MAX_VALUE)
        return shunt__fail(SHUNT_ERR_LIMIT, "NCCL's form holds CPU numbers up to %d, this host has more",
                           MAX_VALUE / 9 * 32 - 1);
    w.home = n ? topo->of_type[SHUNT_TOPO_NUMA][0] : NULL;
    shunt__text_add(t, "<system version=\"%d\">\n", w.rccl ? 2 : 1);
    w.elements = 1;
    for (unsigned i = 0; i < n; i++)
        write_cpu(&w, topo->of_type[SHUNT_TOPO_NUMA][i], words);
    if (!n)
        write_cpu(&w, NULL, 0);
    shunt__text_add(t, "</system>\n");
    if (w.elements > MAX_ELEMENTS)
        return shunt__fail(SHUNT_ERR_LIMIT,
                           "NCCL's parser takes %d elements and this topology needs %u: use hwloc's form",
                           MAX_ELEMENTS, w.elements);
    return SHUNT_OK;
}
