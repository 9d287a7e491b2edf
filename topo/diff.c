/* SPDX-License-Identifier: BSD-3-Clause */
/* What changed between two topologies of what should be one machine. */
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/export.h"
#include "topo/path.h"

struct differ {
    const shunt_topo_t *before, *after;
    struct shunt__text t;
    unsigned changes;
    unsigned char *met; /* objects of `after` that have a counterpart, by order */
    struct shunt__pci_index by_address;
    struct shunt__object **by_name; /* of `after`, sorted */
};

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct shunt__object *const *)a)->pub.name,
                  (*(struct shunt__object *const *)b)->pub.name);
}

static int counted(const struct shunt__object *o)
{
    return o->pub.type == SHUNT_TOPO_GPU || o->pub.type == SHUNT_TOPO_NIC ||
           o->pub.type == SHUNT_TOPO_SWITCH || o->pub.type == SHUNT_TOPO_NUMA ||
           o->pub.type == SHUNT_TOPO_PACKAGE || o->pub.type == SHUNT_TOPO_NVSWITCH ||
           o->pub.type == SHUNT_TOPO_DEVICE;
}

static struct shunt__object *find_name(const struct differ *d, const char *name)
{
    unsigned low = 0, high = d->after->n_all;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (strcmp(d->by_name[middle]->pub.name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < d->after->n_all && strcmp(d->by_name[low]->pub.name, name) == 0 ? d->by_name[low] : NULL;
}

/* NICs by name first: an address may hold two ports. */
static struct shunt__object *counterpart(const struct differ *d, const struct shunt__object *o)
{
    struct shunt__object *c = o->pub.pci && o->pub.type != SHUNT_TOPO_NIC
                                  ? shunt__pci_index_find(&d->by_address, &o->pci)
                                  : NULL;

    if (c && c->pub.type == o->pub.type && !d->met[c->order])
        return c;
    c = find_name(d, o->pub.name);
    if (c && c->pub.type == o->pub.type && !d->met[c->order])
        return c;
    c = o->pub.pci ? shunt__pci_index_find(&d->by_address, &o->pci) : NULL;
    return c && c->pub.type == o->pub.type && !d->met[c->order] ? c : NULL;
}

#define CHANGE(d, ...) (shunt__text_add(&(d)->t, __VA_ARGS__), (d)->changes++)

static const char *kind(const struct shunt__object *o)
{
    return o->pub.type == SHUNT_TOPO_NIC      ? "NIC "
           : o->pub.type == SHUNT_TOPO_SWITCH ? "PCI switch "
           : o->pub.type == SHUNT_TOPO_DEVICE ? "PCI device "
                                              : "";
}

static void compare_nics(struct differ *d, const struct shunt__object *a, const struct shunt__object *b)
{
    const shunt_topo_nic_t *x = a->u.nic, *y = b->u.nic;
    char was[32], is[32];

    if (x->state != y->state)
        CHANGE(d, "NIC %s is %s, was %s\n", b->pub.name, shunt_topo_nic_state_name(y->state),
               shunt_topo_nic_state_name(x->state));
    if (x->rate_known && y->rate_known && x->rate != y->rate)
        CHANGE(d, "NIC %s runs at %s, was %s\n", b->pub.name, shunt__print_rate(is, (double)y->rate),
               shunt__print_rate(was, (double)x->rate));
    else if (x->rate_known != y->rate_known)
        CHANGE(d, "NIC %s: its speed is %s\n", b->pub.name, y->rate_known ? "known now" : "unknown now");
    if (x->layer != y->layer)
        CHANGE(d, "NIC %s is %s, was %s\n", b->pub.name, shunt_topo_link_layer_name(y->layer),
               shunt_topo_link_layer_name(x->layer));
    if (strcmp(x->name, y->name) != 0)
        CHANGE(d, "NIC %s is called %s now\n", x->name, y->name);
    if (x->n_addresses != y->n_addresses ||
        (x->n_addresses && memcmp(x->addresses, y->addresses, x->n_addresses * sizeof(*x->addresses)) != 0))
        CHANGE(d, "NIC %s has other IP addresses\n", b->pub.name);
}

static void compare(struct differ *d, const struct shunt__object *a, const struct shunt__object *b)
{
    char was[32], is[32];

    if (a->pub.pci && b->pub.pci) {
        int known = a->pci.speed && b->pci.speed && a->pci.width && b->pci.width;
        if (known && (a->pci.speed != b->pci.speed || a->pci.width != b->pci.width))
            CHANGE(d, "%s%s: its link is %s, was %s%s\n", kind(b), b->pub.name, shunt__print_link(is, b),
                   shunt__print_link(was, a),
                   shunt__link_bandwidth(b) < shunt__link_bandwidth(a) ? " (slower)" : "");
        if (a->pci.vendor != b->pci.vendor || a->pci.product != b->pci.product)
            CHANGE(d, "%s%s is another device: %04x:%04x, was %04x:%04x\n", kind(b), b->pub.name,
                   b->pci.vendor, b->pci.product, a->pci.vendor, a->pci.product);
        if (a->pci.domain != b->pci.domain || a->pci.bus != b->pci.bus || a->pci.device != b->pci.device ||
            a->pci.function != b->pci.function)
            CHANGE(d, "%s%s moved to %04x:%02x:%02x.%x\n", kind(b), b->pub.name, b->pci.domain, b->pci.bus,
                   b->pci.device, b->pci.function);
    }
    if (a->pub.numa != b->pub.numa)
        CHANGE(d, "%s%s is near to NUMA node %d, was %d\n", kind(b), b->pub.name, b->pub.numa, a->pub.numa);
    if (a->pub.type == SHUNT_TOPO_NUMA) {
        if (!shunt__cpus_equal(&a->cpus, &b->cpus)) {
            shunt__text_add(&d->t, "%s has CPUs ", b->pub.name);
            shunt__print_cpu_list(&d->t, &b->cpus);
            shunt__text_add(&d->t, ", had ");
            shunt__print_cpu_list(&d->t, &a->cpus);
            CHANGE(d, "\n");
        }
        /* A kernel takes a little more or less at each start. */
        double more = (double)b->memory / (a->memory ? (double)a->memory : 1);
        if (a->memory && b->memory && (more < 0.98 || more > 1.02))
            CHANGE(d, "%s has %.1f GiB of memory, had %.1f\n", b->pub.name, (double)b->memory / (1 << 30),
                   (double)a->memory / (1 << 30));
    }
    if (a->pub.type == SHUNT_TOPO_GPU) {
        unsigned n = 0, m = 0;
        for (unsigned i = 0; i < a->n_wires; i++)
            n += d->before->wires[a->first_wires + i].count;
        for (unsigned i = 0; i < b->n_wires; i++)
            m += d->after->wires[b->first_wires + i].count;
        if (n != m)
            CHANGE(d, "%s has %u NVLinks, had %u\n", b->pub.name, m, n);
    }
    if (a->pub.type == SHUNT_TOPO_NIC)
        compare_nics(d, a, b);
}

shunt_status_t shunt_topo_diff(const shunt_topo_t *before, const shunt_topo_t *after, char **text,
                               unsigned *changes)
{
    struct differ d = {.before = before, .after = after};
    int failed = 0;
    shunt_status_t st;

    if (!before || !after || !text)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_diff: an argument is NULL");
    d.met = calloc(after->n_all + 1, 1);
    d.by_name = malloc((after->n_all + 1) * sizeof(*d.by_name));
    if (d.met && d.by_name) {
        memcpy(d.by_name, after->all, after->n_all * sizeof(*d.by_name));
        qsort(d.by_name, after->n_all, sizeof(*d.by_name), by_name);
        for (unsigned i = 0; i < after->n_all; i++)
            failed |= counted(after->all[i]) && shunt__pci_index_add(&d.by_address, after->all[i]);
        for (unsigned i = 0; i < before->n_all; i++) {
            const struct shunt__object *o = before->all[i], *c = counted(o) ? counterpart(&d, o) : NULL;
            if (c) {
                d.met[c->order] = 1;
                compare(&d, o, c);
            } else if (counted(o))
                CHANGE(&d, "%s%s is gone\n", kind(o), o->pub.name);
        }
        for (unsigned i = 0; i < after->n_all; i++)
            if (counted(after->all[i]) && !d.met[i])
                CHANGE(&d, "%s%s is new\n", kind(after->all[i]), after->all[i]->pub.name);
    } else
        failed = 1;
    free(d.met);
    free(d.by_name);
    shunt__pci_index_free(&d.by_address);
    d.t.failed |= failed;
    st = shunt__text_done(&d.t, text, NULL);
    if (st == SHUNT_OK && changes)
        *changes = d.changes;
    return st;
}
