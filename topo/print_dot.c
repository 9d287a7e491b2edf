/* SPDX-License-Identifier: BSD-3-Clause */
/* For Graphviz: dot -Tsvg. */
#include <stdio.h>
#include <string.h>
#include "topo/export.h"
#include "topo/path.h"

static void add_label(struct shunt__text *t, const struct shunt__object *o)
{
    char rate[32], link[32];

    for (const char *p = o->pub.name; *p; p++)
        shunt__text_bytes(t, *p == '"' || *p == '\\' ? "'" : p, 1);
    if (o->pub.type == SHUNT_TOPO_NIC && o->u.nic->rate_known)
        shunt__text_add(t, "\\n%s", shunt__print_rate(rate, (double)o->u.nic->rate));
    else if (o->pub.type != SHUNT_TOPO_NIC && *shunt__print_link(link, o))
        shunt__text_add(t, "\\n%s", link);
}

static int shown(const struct shunt__object *o)
{
    return o->pub.type != SHUNT_TOPO_BRIDGE && !(o->pub.type == SHUNT_TOPO_SWITCH && o->same_chip) &&
           !(o->pub.type == SHUNT_TOPO_NIC && o->u.nic->tier == SHUNT_TOPO_TIER_LOOPBACK);
}

shunt_status_t shunt__export_dot(const shunt_topo_t *topo, struct shunt__text *t)
{
    static const char *const style[SHUNT_TOPO_N_TYPES] = {
        "shape=box3d",
        "shape=component",
        "shape=folder, style=filled, fillcolor=\"#e8eef7\"",
        "shape=point",
        "shape=trapezium, style=filled, fillcolor=\"#eeeeee\"",
        "shape=box, style=filled, fillcolor=\"#c9e8c0\"",
        "shape=box, style=filled, fillcolor=\"#fbdcae\"",
        "shape=hexagon, style=filled, fillcolor=\"#e4d4f4\"",
        "shape=box, style=dashed"};
    char bandwidth[32];

    shunt__text_add(t, "graph topology {\n  rankdir=TB;\n  node [fontname=\"sans-serif\"];\n  edge "
                       "[fontname=\"sans-serif\", fontsize=10];\n");
    for (unsigned i = 0; i < topo->n_all; i++) {
        const struct shunt__object *o = topo->all[i], *up = o->parent;
        if (!shown(o))
            continue;
        shunt__text_add(t, "  o%u [label=\"", i);
        if (o->pub.type == SHUNT_TOPO_HOST && *topo->host_name)
            for (const char *p = topo->host_name; *p; p++)
                shunt__text_bytes(t, *p == '"' || *p == '\\' ? "'" : p, 1);
        else
            add_label(t, o);
        shunt__text_add(t, "\", %s];\n", style[o->pub.type]);
        while (up && !shown(up))
            up = up->parent;
        if (!up)
            continue;
        double b = shunt__link_bandwidth(o);
        shunt__text_add(t, "  o%u -- o%u", up->order, i);
        if (b > 0)
            shunt__text_add(t, " [label=\"%s\"]", shunt__print_bandwidth(bandwidth, b));
        shunt__text_add(t, ";\n");
    }
    for (unsigned i = 0; i < topo->n_wires; i++) {
        const struct shunt__wires *w = &topo->wires[i], *back = NULL;
        for (unsigned k = 0; k < w->to->n_wires; k++)
            if (topo->wires[w->to->first_wires + k].to == w->from)
                back = &topo->wires[w->to->first_wires + k];
        if (back && w->to->order < w->from->order)
            continue; /* listed from both ends: drawn once */
        shunt__text_add(t, "  o%u -- o%u [label=\"x%u\", color=\"#7a3fb0\", constraint=false];\n",
                        w->from->order, w->to->order, w->count);
    }
    shunt__text_add(t, "}\n");
    return SHUNT_OK;
}
