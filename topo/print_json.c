/* SPDX-License-Identifier: BSD-3-Clause */
/* For programs: flat arrays, each object by its name. */
#include <stdio.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/export.h"
#include "topo/path.h"

#define MOST_ENDS 512 /* above, the array of paths is left empty: it grows with the square */

static void key_text(struct shunt__text *t, const char *key, const char *value)
{
    shunt__text_add(t, ", \"%s\": ", key);
    if (value)
        shunt__text_json(t, value);
    else
        shunt__text_add(t, "null");
}

static void add_pci(struct shunt__text *t, const struct shunt__object *o)
{
    if (!o->pub.pci) {
        shunt__text_add(t, ", \"pci\": null");
        return;
    }
    shunt__text_add(t,
                    ", \"pci\": \"%04x:%02x:%02x.%x\", \"pci_class\": \"0x%06x\", \"pci_id\": \"%04x:%04x\", "
                    "\"link_mts\": %u, \"link_width\": %u",
                    o->pci.domain, o->pci.bus, o->pci.device, o->pci.function, o->pci.class_id, o->pci.vendor,
                    o->pci.product, o->pci.speed, o->pci.width);
}

static void begin(struct shunt__text *t, const struct shunt__object *o, unsigned i)
{
    shunt__text_add(t, "%s\n    {\"name\": ", i ? "," : "");
    shunt__text_json(t, o->pub.name);
    shunt__text_add(t, ", \"index\": %u", o->pub.index);
    if (o->pub.numa >= 0)
        shunt__text_add(t, ", \"numa\": %d", o->pub.numa);
    else
        shunt__text_add(t, ", \"numa\": null");
    key_text(t, "parent", o->parent && o->parent->pub.type != SHUNT_TOPO_HOST ? o->parent->pub.name : NULL);
    if (o->pub.note)
        key_text(t, "note", o->pub.note);
}

static void add_gpu(const shunt_topo_t *topo, struct shunt__text *t, const struct shunt__object *o)
{
    const shunt_topo_object_t *nic[64];
    unsigned n = 0;

    add_pci(t, o);
    key_text(t, "model", o->u.gpu->model);
    key_text(t, "gcn", o->u.gpu->gcn);
    shunt__text_add(t, ", \"dev\": %d, \"sm\": %d, \"display\": %s, \"nearest_nics\": [", o->u.gpu->dev,
                    o->u.gpu->sm, o->u.gpu->is_display ? "true" : "false");
    if ((uint64_t)topo->n_of_type[SHUNT_TOPO_GPU] * topo->n_of_type[SHUNT_TOPO_NIC] <= MOST_ENDS * MOST_ENDS)
        shunt_topo_nearest_nics(topo, &o->pub, nic, 64, &n);
    for (unsigned i = 0; i < n && i < 64; i++) {
        shunt__text_add(t, "%s", i ? ", " : "");
        shunt__text_json(t, nic[i]->name);
    }
    shunt__text_add(t, "], \"links\": [");
    for (unsigned i = 0; i < o->n_wires; i++) {
        const struct shunt__wires *w = &topo->wires[o->first_wires + i];
        shunt__text_add(t, "%s{\"to\": ", i ? ", " : "");
        shunt__text_json(t, w->to->pub.name);
        shunt__text_add(t, ", \"kind\": \"%s\", \"count\": %u, \"bandwidth\": %.0f}",
                        w->wire == SHUNT__WIRE_XGMI  ? "xGMI"
                        : w->wire == SHUNT__WIRE_C2C ? "C2C"
                                                     : "NVLink",
                        w->count, shunt__wires_bandwidth(w));
    }
    shunt__text_add(t, "]}");
}

static void add_nic(struct shunt__text *t, const struct shunt__object *o)
{
    static const char *const tiers[] = {"physical", "over physical", "namespace", "link-local",
                                        "tunnel",   "isolated",      "loopback",  "unusable"};
    const shunt_topo_nic_t *n = o->u.nic;
    char address[64];

    add_pci(t, o);
    key_text(t, "interface", n->name);
    key_text(t, "rdma", n->rdma);
    shunt__text_add(t, ", \"port\": %u, \"rate\": %llu, \"rate_known\": %s", n->rdma_port,
                    (unsigned long long)n->rate, n->rate_known ? "true" : "false");
    key_text(t, "link_layer", shunt_topo_link_layer_name(n->layer));
    key_text(t, "state", shunt_topo_nic_state_name(n->state));
    key_text(t, "driver", n->driver);
    key_text(t, "kind", n->kind);
    shunt__text_add(t, ", \"virtual\": %s", n->is_virtual ? "true" : "false");
    key_text(t, "tier", tiers[n->tier]);
    key_text(t, "reason", n->reason);
    shunt__text_add(t, ", \"mtu\": %u, \"addresses\": [", n->mtu);
    for (unsigned i = 0; i < n->n_addresses; i++)
        shunt__text_add(t, "%s\"%s\"", i ? ", " : "", shunt__print_address(address, &n->addresses[i]));
    shunt__text_add(t, "]}");
}

static void add_numa(const shunt_topo_t *topo, struct shunt__text *t, const struct shunt__object *o)
{
    shunt__text_add(t, ", \"os_index\": %u, \"cpus\": \"", o->os_index);
    shunt__print_cpu_list(t, &o->cpus);
    shunt__text_add(t, "\", \"n_cpus\": %u, \"n_cores\": %u, \"memory\": %llu}", shunt__cpus_count(&o->cpus),
                    shunt__count_cores(topo, &o->cpus), (unsigned long long)o->memory);
}

static void add_path(const shunt_topo_t *topo, struct shunt__text *t, const struct shunt__object *a,
                     const struct shunt__object *b, unsigned *n)
{
    shunt_topo_path_t path;

    shunt_topo_path(topo, &a->pub, &b->pub, &path);
    shunt__text_add(t, "%s\n    {\"from\": ", (*n)++ ? "," : "");
    shunt__text_json(t, a->pub.name);
    key_text(t, "to", b->pub.name);
    shunt__text_add(t, ", \"class\": \"%s\", \"bandwidth\": %.0f, \"links\": %u}",
                    shunt_topo_class_name(path.path_class), path.bandwidth, path.links);
}

static void add_paths(const shunt_topo_t *topo, struct shunt__text *t)
{
    unsigned gpus = topo->n_of_type[SHUNT_TOPO_GPU], nics = topo->n_of_type[SHUNT_TOPO_NIC], n = 0;

    if (gpus + nics > MOST_ENDS)
        return;
    for (unsigned i = 0; i < gpus; i++)
        for (unsigned k = i + 1; k < gpus; k++)
            add_path(topo, t, topo->of_type[SHUNT_TOPO_GPU][i], topo->of_type[SHUNT_TOPO_GPU][k], &n);
    for (unsigned i = 0; i < gpus; i++)
        for (unsigned k = 0; k < nics; k++)
            add_path(topo, t, topo->of_type[SHUNT_TOPO_GPU][i], topo->of_type[SHUNT_TOPO_NIC][k], &n);
    for (unsigned i = 0;
         i < topo->n_of_type[SHUNT_TOPO_NUMA] && nics * topo->n_of_type[SHUNT_TOPO_NUMA] < 65536; i++)
        for (unsigned k = 0; k < nics; k++)
            add_path(topo, t, topo->of_type[SHUNT_TOPO_NUMA][i], topo->of_type[SHUNT_TOPO_NIC][k], &n);
}

shunt_status_t shunt__export_json(const shunt_topo_t *topo, struct shunt__text *t)
{
    static const struct {
        const char *key;
        shunt_topo_type_t type;
    } lists[] = {{"packages", SHUNT_TOPO_PACKAGE},
                 {"numa", SHUNT_TOPO_NUMA},
                 {"switches", SHUNT_TOPO_SWITCH},
                 {"bridges", SHUNT_TOPO_BRIDGE},
                 {"nvswitches", SHUNT_TOPO_NVSWITCH},
                 {"devices", SHUNT_TOPO_DEVICE},
                 {"gpus", SHUNT_TOPO_GPU},
                 {"nics", SHUNT_TOPO_NIC}};

    shunt__text_add(t, "{\n  \"source\": \"%s\",\n  \"host\": ", topo->source);
    shunt__text_json(t, topo->host_name);
    shunt__text_add(t, ",\n  \"host_id\": \"");
    for (int i = 0; i < 16; i++)
        shunt__text_add(t, "%02x", topo->host_id.bytes[i]);
    shunt__text_add(t, "\",\n  \"host_id_from\": ");
    shunt__text_json(t, topo->host_id.text);
    shunt__text_add(t, ",\n  \"cpu\": {\"arch\": ");
    shunt__text_json(t, topo->cpu_arch);
    key_text(t, "vendor", topo->cpu_vendor);
    key_text(t, "model", topo->cpu_model);
    shunt__text_add(t, ", \"cores\": %u, \"cpus\": %u}", topo->n_cores, topo->n_cpus);
    for (unsigned l = 0; l < sizeof(lists) / sizeof(lists[0]); l++) {
        unsigned n = topo->n_of_type[lists[l].type];
        shunt__text_add(t, ",\n  \"%s\": [", lists[l].key);
        for (unsigned i = 0; i < n; i++) {
            const struct shunt__object *o = topo->of_type[lists[l].type][i];
            begin(t, o, i);
            if (lists[l].type == SHUNT_TOPO_GPU)
                add_gpu(topo, t, o);
            else if (lists[l].type == SHUNT_TOPO_NIC)
                add_nic(t, o);
            else if (lists[l].type == SHUNT_TOPO_NUMA)
                add_numa(topo, t, o);
            else {
                add_pci(t, o);
                shunt__text_add(t, "}");
            }
        }
        shunt__text_add(t, n ? "\n  ]" : "]");
    }
    shunt__text_add(t, ",\n  \"paths\": [");
    add_paths(topo, t);
    shunt__text_add(t, "\n  ],\n  \"notes\": [");
    for (const char *p = topo->notes, *c = ""; *p; p += strcspn(p, "\n"), p += *p == '\n', c = ", ") {
        char line[512];
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(p, "\n"), p);
        shunt__text_add(t, "%s", c);
        shunt__text_json(t, line);
    }
    shunt__text_add(t, "]\n}\n");
    return SHUNT_OK;
}
