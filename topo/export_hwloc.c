/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hwloc 2 XML, as lstopo reads it. Levels hwloc insists on and the source may lack (packages, CPUs) are made
 * up: a topology without CPUs gets one per NUMA node.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/export.h"
#include "topo/path.h"

struct writer {
    const shunt_topo_t *topo;
    struct shunt__text *t;
    unsigned gp;
    unsigned long *gpu_gp; /* of objects in NVLink matrices, by order */
    struct shunt__cpus all, nodes;
    struct shunt__arena arena;
};

static void open_object(struct writer *w, unsigned depth, const char *type)
{
    shunt__text_add(w->t, "%*s<object type=\"%s\" gp_index=\"%u\"", (int)depth * 2, "", type, ++w->gp);
}

static void info(struct writer *w, unsigned depth, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    shunt__text_add(w->t, "%*s<info name=\"%s\" value=\"", (int)depth * 2, "", name);
    shunt__text_xml(w->t, value);
    shunt__text_add(w->t, "\"/>\n");
}

static void number_info(struct writer *w, unsigned depth, const char *name, long long v)
{
    shunt__text_add(w->t, "%*s<info name=\"%s\" value=\"%lld\"/>\n", (int)depth * 2, "", name, v);
}

static void sets(struct writer *w, const struct shunt__cpus *cpus, const struct shunt__cpus *nodes)
{
    static const char *const names[] = {"cpuset", "complete_cpuset", "nodeset", "complete_nodeset"};

    for (int i = 0; i < 4; i++) {
        shunt__text_add(w->t, " %s=\"", names[i]);
        shunt__print_cpuset(w->t, i < 2 ? cpus : nodes, 0, 0);
        shunt__text_add(w->t, "\"");
    }
}

static void close_object(struct writer *w, unsigned depth)
{
    shunt__text_add(w->t, "%*s</object>\n", (int)depth * 2, "");
}

static void pci_attributes(struct writer *w, const struct shunt__object *o)
{
    const shunt_topo_pci_t *p = o->pub.pci;

    shunt__text_add(w->t,
                    " pci_busid=\"%04x:%02x:%02x.%01x\" pci_type=\"%04x [%04x:%04x] [%04x:%04x] 00\" "
                    "pci_link_speed=\"%f\"",
                    p->domain, p->bus, p->device, p->function, p->class_id >> 8, p->vendor, p->product,
                    p->sub_vendor, p->sub_product, shunt__pci_rate(p->speed, p->width) / 1e9);
}

static int is_bridge(const struct shunt__object *o)
{
    return o->pub.type == SHUNT_TOPO_BRIDGE || o->pub.type == SHUNT_TOPO_SWITCH;
}

/* The buses of the devices below; a bridge alone has none. */
static unsigned highest_bus(const struct shunt__object *o)
{
    unsigned high = is_bridge(o) || !o->pub.pci ? 0 : o->pci.bus;

    for (const struct shunt__object *c = o->child; c; c = c->next) {
        unsigned h = highest_bus(c);
        high = h > high ? h : high;
    }
    return high;
}

static unsigned lowest_bus(const struct shunt__object *o)
{
    unsigned low = is_bridge(o) || !o->pub.pci ? 255 : o->pci.bus;

    for (const struct shunt__object *c = o->child; c; c = c->next) {
        unsigned l = lowest_bus(c);
        low = l < low ? l : low;
    }
    return low;
}

static uint32_t domain_of(const struct shunt__object *o)
{
    while (o && !o->pub.pci)
        o = o->child;
    return o ? o->pci.domain : 0;
}

static void write_nic(struct writer *w, const struct shunt__object *o, unsigned depth)
{
    const shunt_topo_nic_t *n = o->u.nic;
    char text[64];

    open_object(w, depth, "OSDev");
    shunt__text_add(w->t, " name=\"");
    shunt__text_xml(w->t, n->name);
    shunt__text_add(w->t, "\" osdev_type=\"2\">\n");
    snprintf(text, sizeof(text), "%.6g", (double)n->rate / 1e9);
    if (n->rate_known)
        info(w, depth + 1, "ShuntGbit", text);
    info(w, depth + 1, "ShuntKind", n->kind);
    info(w, depth + 1, "ShuntLinkLayer", shunt_topo_link_layer_name(n->layer));
    info(w, depth + 1, "ShuntState",
         n->state == SHUNT_TOPO_NIC_UP ? NULL : shunt_topo_nic_state_name(n->state));
    if (n->rdma_port)
        number_info(w, depth + 1, "ShuntPort", n->rdma_port);
    close_object(w, depth);
    if (n->rdma && strcmp(n->rdma, n->name) != 0 && n->rdma_port == 1) {
        open_object(w, depth, "OSDev");
        shunt__text_add(w->t, " name=\"");
        shunt__text_xml(w->t, n->rdma);
        shunt__text_add(w->t, "\" osdev_type=\"3\"/>\n");
    }
}

static int same_device(const struct shunt__object *a, const struct shunt__object *b)
{
    return a->pub.pci && b->pub.pci && a->pci.domain == b->pci.domain && a->pci.bus == b->pci.bus &&
           a->pci.device == b->pci.device && a->pci.function == b->pci.function;
}

static void write_device(struct writer *w, const struct shunt__object *o, unsigned depth)
{
    if (o->pub.type == SHUNT_TOPO_NIC && !o->pub.pci) {
        write_nic(w, o, depth);
        return;
    }
    if (!o->pub.pci)
        return;
    if (o->pub.type == SHUNT_TOPO_NIC)
        for (const struct shunt__object *c = o->parent->child; c != o; c = c->next)
            if (c->pub.type == SHUNT_TOPO_NIC && same_device(c, o))
                return; /* a later port: written with the first */
    open_object(w, depth, "PCIDev");
    if (o->pub.type == SHUNT_TOPO_NVSWITCH)
        shunt__text_add(w->t, " subtype=\"NVSwitch\"");
    pci_attributes(w, o);
    shunt__text_add(w->t, ">\n");
    if (w->gpu_gp)
        w->gpu_gp[o->order] = w->gp;
    if (o->pub.type == SHUNT_TOPO_GPU) {
        open_object(w, depth + 1, "OSDev");
        shunt__text_add(
            w->t, " name=\"%s%d\" subtype=\"%s\" osdev_type=\"5\">\n", o->u.gpu->gcn ? "rsmi" : "nvml",
            o->u.gpu->dev >= 0 ? o->u.gpu->dev : (int)o->pub.index, o->u.gpu->gcn ? "RSMI" : "NVML");
        info(w, depth + 2, "GPUModel", o->u.gpu->model);
        info(w, depth + 2, "ShuntArchitecture", o->u.gpu->gcn);
        if (o->u.gpu->sm)
            number_info(w, depth + 2, "ShuntComputeCapability", o->u.gpu->sm);
        close_object(w, depth + 1);
    }
    /* A port that only has its address for a name is a device without an interface. */
    for (const struct shunt__object *c = o; c && o->pub.type == SHUNT_TOPO_NIC; c = c->next)
        if (c->pub.type == SHUNT_TOPO_NIC && same_device(c, o) && !strchr(c->u.nic->name, ':'))
            write_nic(w, c, depth + 1);
    close_object(w, depth);
}

static void write_tree(struct writer *w, const struct shunt__object *o, unsigned depth, unsigned bridges);

static void write_children(struct writer *w, const struct shunt__object *o, unsigned depth, unsigned bridges)
{
    for (const struct shunt__object *c = o->child; c; c = c->next)
        write_tree(w, c, depth, bridges);
}

/* A downstream port that some forms leave out: hwloc's trees have one between a switch and what hangs on it.
 */
static void write_bridge(struct writer *w, const struct shunt__object *o, unsigned depth, unsigned bridges)
{
    open_object(w, depth, "Bridge");
    shunt__text_add(w->t, " bridge_type=\"1-1\" depth=\"%u\" bridge_pci=\"%04x:[%02x-%02x]\"", bridges,
                    o->pci.domain, lowest_bus(o), highest_bus(o));
    pci_attributes(w, o);
    shunt__text_add(w->t, ">\n");
    write_children(w, o, depth + 1, bridges + 1);
    close_object(w, depth);
}

static void write_tree(struct writer *w, const struct shunt__object *o, unsigned depth, unsigned bridges)
{
    if (o->pub.type == SHUNT_TOPO_NUMA || o->pub.type == SHUNT_TOPO_PACKAGE)
        return;
    if (o->is_host_bridge) {
        open_object(w, depth, "Bridge");
        shunt__text_add(w->t, " bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"%04x:[%02x-%02x]\">\n",
                        domain_of(o), lowest_bus(o), highest_bus(o));
        write_children(w, o, depth + 1, 1);
        close_object(w, depth);
    } else if ((o->pub.type == SHUNT_TOPO_BRIDGE || o->pub.type == SHUNT_TOPO_SWITCH) && o->pub.pci) {
        /* An object that stands at the wrong depth parity for what it is gets a port of its own address above
         * it. */
        int odd = bridges % 2 == 1;
        if ((o->pub.type == SHUNT_TOPO_SWITCH) == odd) {
            open_object(w, depth, "Bridge");
            shunt__text_add(w->t, " bridge_type=\"1-1\" depth=\"%u\" bridge_pci=\"%04x:[%02x-%02x]\"",
                            bridges, o->pci.domain, lowest_bus(o), highest_bus(o));
            pci_attributes(w, o);
            shunt__text_add(w->t, ">\n");
            write_bridge(w, o, depth + 1, bridges + 1);
            close_object(w, depth);
        } else
            write_bridge(w, o, depth, bridges);
    } else if (o->pub.type == SHUNT_TOPO_BRIDGE || o->pub.type == SHUNT_TOPO_SWITCH)
        write_children(w, o, depth, bridges);
    else
        write_device(w, o, depth);
}

/* hwloc wants PCI devices below a host bridge; sources that have none get one per domain. */
static void write_io(struct writer *w, const struct shunt__object *o, unsigned depth)
{
    for (const struct shunt__object *c = o->child; c; c = c->next) {
        if (c->is_host_bridge || !c->pub.pci || c->pub.type == SHUNT_TOPO_NUMA ||
            c->pub.type == SHUNT_TOPO_PACKAGE) {
            write_tree(w, c, depth, 0);
            continue;
        }
        open_object(w, depth, "Bridge");
        shunt__text_add(w->t, " bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"%04x:[%02x-%02x]\">\n",
                        c->pci.domain, lowest_bus(c), highest_bus(c));
        write_tree(w, c, depth + 1, 1);
        close_object(w, depth);
    }
}

static void write_cpus(struct writer *w, const struct shunt__cpus *set, const struct shunt__cpus *nodes,
                       unsigned depth)
{
    unsigned cores = 0;

    for (unsigned i = 0; i < w->topo->n_cpus; i++) {
        const struct shunt__cpu *c = &w->topo->cpus[i];
        struct shunt__cpus core = {0};
        unsigned last = i;
        if (!shunt__cpus_has(set, c->os_index))
            continue;
        while (last + 1 < w->topo->n_cpus && w->topo->cpus[last + 1].core == c->core)
            last++;
        for (unsigned k = i; k <= last; k++)
            shunt__cpus_add(&w->arena, &core, w->topo->cpus[k].os_index);
        open_object(w, depth, "Core");
        shunt__text_add(w->t, " os_index=\"%u\"", cores++);
        sets(w, &core, nodes);
        shunt__text_add(w->t, ">\n");
        for (unsigned k = i; k <= last; k++) {
            struct shunt__cpus pu = {0};
            shunt__cpus_add(&w->arena, &pu, w->topo->cpus[k].os_index);
            open_object(w, depth + 1, "PU");
            shunt__text_add(w->t, " os_index=\"%u\"", w->topo->cpus[k].os_index);
            sets(w, &pu, nodes);
            shunt__text_add(w->t, "/>\n");
        }
        close_object(w, depth);
        i = last;
    }
    if (w->topo->n_cpus)
        return;
    for (unsigned cpu = 0; cpu < set->n_words * 64;
         cpu++) { /* the source knows CPUs as sets only: a core for each */
        struct shunt__cpus pu = {0};
        if (!shunt__cpus_has(set, cpu))
            continue;
        shunt__cpus_add(&w->arena, &pu, cpu);
        open_object(w, depth, "Core");
        shunt__text_add(w->t, " os_index=\"%u\"", cores++);
        sets(w, &pu, nodes);
        shunt__text_add(w->t, ">\n");
        open_object(w, depth + 1, "PU");
        shunt__text_add(w->t, " os_index=\"%u\"", cpu);
        sets(w, &pu, nodes);
        shunt__text_add(w->t, "/>\n");
        close_object(w, depth);
    }
}

static void write_numa(struct writer *w, const struct shunt__object *numa, const struct shunt__cpus *cpus,
                       unsigned depth)
{
    struct shunt__cpus nodes = {0};

    shunt__cpus_add(&w->arena, &nodes, numa->os_index);
    open_object(w, depth, "NUMANode");
    shunt__text_add(w->t, " os_index=\"%u\"", numa->os_index);
    sets(w, cpus, &nodes);
    shunt__text_add(w->t, " local_memory=\"%llu\"/>\n", (unsigned long long)numa->memory);
}

static int first_of_set(const struct shunt__object *numa)
{
    for (const struct shunt__object *c = numa->parent->child; c != numa; c = c->next)
        if (c->pub.type == SHUNT_TOPO_NUMA && shunt__cpus_equal(&c->cpus, &numa->cpus))
            return 0;
    return 1;
}

/* Large old machines have NUMA nodes of several packages: such a package has no node of its own. */
static int lies_in(const struct shunt__object *package, const struct shunt__object *numa)
{
    for (const struct shunt__object *c = package->child; c; c = c->next)
        if (c->pub.type == SHUNT_TOPO_NUMA)
            return 0;
    for (unsigned i = 0; i < package->cpus.n_words; i++)
        if (package->cpus.words[i] & ~(i < numa->cpus.n_words ? numa->cpus.words[i] : 0))
            return 0;
    return shunt__cpus_count(&package->cpus) > 0;
}

static void write_packages_in(struct writer *w, const struct shunt__object *numa,
                              const struct shunt__cpus *nodes, unsigned depth)
{
    struct shunt__cpus rest = {0};

    for (unsigned i = 0; i < numa->cpus.n_words * 64; i++)
        if (shunt__cpus_has(&numa->cpus, i))
            shunt__cpus_add(&w->arena, &rest, i);
    for (unsigned i = 0; i < w->topo->n_of_type[SHUNT_TOPO_PACKAGE] && !w->arena.failed; i++) {
        const struct shunt__object *p = w->topo->of_type[SHUNT_TOPO_PACKAGE][i];
        if (p == numa->parent || !lies_in(p, numa))
            continue;
        open_object(w, depth, "Package");
        shunt__text_add(w->t, " os_index=\"%u\"", p->os_index);
        sets(w, &p->cpus, nodes);
        shunt__text_add(w->t, ">\n");
        write_cpus(w, &p->cpus, nodes, depth + 1);
        close_object(w, depth);
        for (unsigned k = 0; k < p->cpus.n_words; k++)
            rest.words[k] &= ~p->cpus.words[k];
    }
    if (shunt__cpus_count(&rest))
        write_cpus(w, &rest, nodes, depth);
}

static int lies_in_any(const struct writer *w, const struct shunt__object *package)
{
    for (unsigned i = 0; i < w->topo->n_of_type[SHUNT_TOPO_NUMA]; i++)
        if (w->topo->of_type[SHUNT_TOPO_NUMA][i]->parent == w->topo->host &&
            lies_in(package, w->topo->of_type[SHUNT_TOPO_NUMA][i]))
            return 1;
    return 0;
}

/* The NUMA nodes of a package (or host), each with its CPUs in a group; nodes over one set of CPUs share it.
 */
static void write_nodes(struct writer *w, const struct shunt__object *parent, unsigned depth)
{
    for (const struct shunt__object *numa = parent->child; numa; numa = numa->next) {
        struct shunt__cpus nodes = {0};
        if (numa->pub.type != SHUNT_TOPO_NUMA || !shunt__cpus_count(&numa->cpus) || !first_of_set(numa))
            continue;
        for (const struct shunt__object *c = numa; c; c = c->next)
            if (c->pub.type == SHUNT_TOPO_NUMA && shunt__cpus_equal(&c->cpus, &numa->cpus))
                shunt__cpus_add(&w->arena, &nodes, c->os_index);
        open_object(w, depth, "Group");
        sets(w, &numa->cpus, &nodes);
        shunt__text_add(w->t, " kind=\"0\" subkind=\"0\">\n");
        for (const struct shunt__object *c = numa; c; c = c->next)
            if (c->pub.type == SHUNT_TOPO_NUMA && shunt__cpus_equal(&c->cpus, &numa->cpus))
                write_numa(w, c, &c->cpus, depth + 1);
        write_packages_in(w, numa, &nodes, depth + 1);
        for (const struct shunt__object *c = numa; c; c = c->next)
            if (c->pub.type == SHUNT_TOPO_NUMA && shunt__cpus_equal(&c->cpus, &numa->cpus))
                write_io(w, c, depth + 1);
        if (w->topo->n_of_type[SHUNT_TOPO_NUMA] == 1) /* then what is near to the host is near to it */
            write_io(w, w->topo->host, depth + 1);
        close_object(w, depth);
    }
}

static void cpu_infos(struct writer *w, unsigned depth)
{
    info(w, depth, "CPUVendor", w->topo->cpu_vendor);
    if (w->topo->cpu_family)
        number_info(w, depth, "CPUFamilyNumber", w->topo->cpu_family);
    if (w->topo->cpu_model_number)
        number_info(w, depth, "CPUModelNumber", w->topo->cpu_model_number);
    info(w, depth, "CPUModel", w->topo->cpu_model);
}

static void nodes_below(struct writer *w, const struct shunt__object *o, struct shunt__cpus *nodes)
{
    for (const struct shunt__object *c = o->child; c; c = c->next)
        if (c->pub.type == SHUNT_TOPO_NUMA)
            shunt__cpus_add(&w->arena, nodes, c->os_index);
}

/* Each GPU's links as hwloc's matrix of bandwidths, MB/s. */
static void write_links(struct writer *w)
{
    const shunt_topo_t *topo = w->topo;
    const struct shunt__object *list[1024];
    unsigned n = 0;

    for (unsigned k = 0; k < 2; k++)
        for (unsigned i = 0; i < topo->n_of_type[k ? SHUNT_TOPO_NVSWITCH : SHUNT_TOPO_GPU]; i++) {
            const struct shunt__object *o = topo->of_type[k ? SHUNT_TOPO_NVSWITCH : SHUNT_TOPO_GPU][i];
            if (n < 1024 && w->gpu_gp[o->order])
                list[n++] = o;
        }
    if (!topo->n_wires || n < 2)
        return;
    shunt__text_add(w->t,
                    "  <distances2hetero nbobjs=\"%u\" kind=\"25\" name=\"%s\">\n    <indexes length=\"0\">",
                    n, topo->wires[0].wire == SHUNT__WIRE_XGMI ? "XGMIBandwidth" : "NVLinkBandwidth");
    size_t at = w->t->n;
    for (unsigned i = 0; i < n; i++)
        shunt__text_add(w->t, "PCIDev:%lu ", w->gpu_gp[list[i]->order]);
    /* hwloc wants the length of the text that follows, known only now. */
    char head[64];
    int len = snprintf(head, sizeof(head), "<indexes length=\"%zu\">", w->t->n - at);
    if (!w->t->failed && len > 0) {
        char *body = strndup(w->t->p + at, w->t->n - at);
        w->t->n = at - strlen("<indexes length=\"0\">");
        shunt__text_add(w->t, "%s%s</indexes>\n", head, body ? body : "");
        w->t->failed |= !body;
        free(body);
    }
    for (unsigned i = 0; i < n; i++) {
        struct shunt__text row = {0};
        for (unsigned k = 0; k < n; k++) {
            double mb = i == k ? 1000000 : 0;
            for (unsigned x = 0; x < list[i]->n_wires; x++)
                if (topo->wires[list[i]->first_wires + x].to == list[k])
                    mb += shunt__wires_bandwidth(&topo->wires[list[i]->first_wires + x]) / 1e6;
            shunt__text_add(&row, "%.0f ", mb);
        }
        shunt__text_add(w->t, "    <u64values length=\"%zu\">%s</u64values>\n", row.n, row.p ? row.p : "");
        w->t->failed |= row.failed;
        free(row.p);
    }
    shunt__text_add(w->t, "  </distances2hetero>\n");
}

shunt_status_t shunt__export_hwloc(const shunt_topo_t *topo, struct shunt__text *t)
{
    struct writer w = {.topo = topo, .t = t};
    unsigned made_up = 0;

    w.gpu_gp = shunt__arena_get(&w.arena, topo->n_all * sizeof(*w.gpu_gp));
    for (unsigned i = 0; i < topo->n_of_type[SHUNT_TOPO_NUMA]; i++) {
        const struct shunt__object *numa = topo->of_type[SHUNT_TOPO_NUMA][i];
        if (numa->os_index >= SHUNT__MAX_CPUS) {
            shunt__arena_free(&w.arena);
            return shunt__fail(SHUNT_ERR_LIMIT, "a NUMA node's number %u is too large for hwloc's form",
                               numa->os_index);
        }
        shunt__cpus_add(&w.arena, &w.nodes, numa->os_index);
        for (unsigned k = 0; k < numa->cpus.n_words * 64; k++)
            if (shunt__cpus_has(&numa->cpus, k))
                shunt__cpus_add(&w.arena, &w.all, k);
    }
    if (!shunt__cpus_count(&w.all)) { /* no CPU is known: hwloc needs one */
        made_up = 1;
        shunt__cpus_add(&w.arena, &w.all, 0);
    }
    if (!shunt__cpus_count(&w.nodes))
        shunt__cpus_add(&w.arena, &w.nodes, 0);
    if (w.arena.failed) {
        shunt__arena_free(&w.arena);
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the text of a topology");
    }
    shunt__text_add(t, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM "
                       "\"hwloc2.dtd\">\n<topology version=\"2.0\">\n");
    shunt__text_add(t, "  <object type=\"Machine\" os_index=\"0\" gp_index=\"%u\"", ++w.gp);
    sets(&w, &w.all, &w.nodes);
    struct shunt__cpus allowed = {0};
    for (unsigned i = 0; i < topo->n_cpus; i++)
        if (topo->cpus[i].online)
            shunt__cpus_add(&w.arena, &allowed, topo->cpus[i].os_index);
    shunt__text_add(t, " allowed_cpuset=\"");
    shunt__print_cpuset(t, shunt__cpus_count(&allowed) ? &allowed : &w.all, 0, 0);
    shunt__text_add(t, "\" allowed_nodeset=\"");
    shunt__print_cpuset(t, &w.nodes, 0, 0);
    shunt__text_add(t, "\">\n");
    info(&w, 2, "HostName", topo->host_name);
    info(&w, 2, "Architecture", topo->cpu_arch);
    cpu_infos(&w, 2);
    for (const struct shunt__object *c = topo->host->child; c;
         c = c->next) { /* memory without CPUs, or without a place */
        if (c->pub.type != SHUNT_TOPO_NUMA || shunt__cpus_count(&c->cpus))
            continue;
        write_numa(&w, c, made_up ? &w.all : &c->cpus, 2);
    }
    if (!topo->n_of_type[SHUNT_TOPO_NUMA])
        shunt__text_add(t,
                        "    <object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
                        "nodeset=\"0x1\""
                        " complete_nodeset=\"0x1\" gp_index=\"%u\"/>\n",
                        ++w.gp);
    if (made_up) {
        struct shunt__cpus one = {0};
        shunt__cpus_add(&w.arena, &one, 0);
        open_object(&w, 2, "PU");
        shunt__text_add(t, " os_index=\"0\"");
        sets(&w, &one, &w.nodes);
        shunt__text_add(t, "/>\n");
    }
    for (unsigned i = 0; i < topo->n_of_type[SHUNT_TOPO_PACKAGE]; i++) {
        const struct shunt__object *p = topo->of_type[SHUNT_TOPO_PACKAGE][i];
        struct shunt__cpus nodes = {0};
        if (!shunt__cpus_count(&p->cpus) || lies_in_any(&w, p))
            continue;
        nodes_below(&w, p, &nodes);
        open_object(&w, 2, "Package");
        shunt__text_add(t, " os_index=\"%u\"", p->os_index);
        sets(&w, &p->cpus, shunt__cpus_count(&nodes) ? &nodes : &w.nodes);
        shunt__text_add(t, ">\n");
        cpu_infos(&w, 3);
        write_nodes(&w, p, 3);
        if (!shunt__cpus_count(&nodes))
            write_cpus(&w, &p->cpus, &w.nodes, 3);
        write_io(&w, p, 3);
        close_object(&w, 2);
    }
    write_nodes(&w, topo->host, 2);
    for (const struct shunt__object *c = topo->host->child; c; c = c->next)
        if (c->pub.type == SHUNT_TOPO_NUMA && !shunt__cpus_count(&c->cpus))
            write_io(&w, c, 2);
    if (topo->n_of_type[SHUNT_TOPO_NUMA] != 1 || made_up)
        write_io(&w, topo->host, 2);
    shunt__text_add(t, "  </object>\n");
    write_links(&w);
    shunt__text_add(t, "</topology>\n");
    t->failed |= w.arena.failed;
    shunt__arena_free(&w.arena);
    return SHUNT_OK;
}
