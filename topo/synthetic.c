/* SPDX-License-Identifier: BSD-3-Clause */
/* What-if machines: hwloc's synthetic notation for CPUs, and devices of our own behind a '+'. */
#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "topo/interfaces.h"
#include "topo/read.h"

struct plan {
    unsigned switches, gpus, nics, nvlinks, generation;
    int has_switches;
    int64_t mbits;
};

static shunt_status_t bad(const char *description, const char *word)
{
    return shunt__fail(
        SHUNT_ERR_FORMAT,
        "\"%.40s\" in \"%.100s\": behind + stand switch:N, gpu:N, nic:N or nic:N@400g, nvlink:N, gen:N "
        "(N of each, per NUMA node; GPUs and NICs per switch where there are some)",
        word, description);
}

static shunt_status_t parse_plan(const char *description, const char *text, struct plan *p)
{
    char word[64];
    int n;

    *p = (struct plan){.mbits = 400000, .generation = 5};
    for (; sscanf(text, " %63s%n", word, &n) == 1; text += n) {
        char *colon = strchr(word, ':'), *end;
        unsigned long v = colon ? strtoul(colon + 1, &end, 10) : 0;
        if (!colon || end == colon + 1 || v > 1024)
            return bad(description, word);
        *colon = 0;
        if (strcmp(word, "nic") == 0 && *end == '@') {
            double rate = strtod(end + 1, &end);
            p->mbits = (int64_t)(rate * (tolower((unsigned char)*end) == 'g'   ? 1000
                                         : tolower((unsigned char)*end) == 'm' ? 1
                                                                               : 0));
            if (p->mbits <= 0 || p->mbits > 3200000) {
                *colon = ':';
                return bad(description, word);
            }
            end += strlen(end);
        }
        if (*end) {
            *colon = ':';
            return bad(description, word);
        }
        if (strcmp(word, "switch") == 0) {
            p->switches = (unsigned)v;
            p->has_switches = v > 0;
        } else if (strcmp(word, "gpu") == 0)
            p->gpus = (unsigned)v;
        else if (strcmp(word, "nic") == 0)
            p->nics = (unsigned)v;
        else if (strcmp(word, "nvlink") == 0)
            p->nvlinks = (unsigned)v;
        else if (strcmp(word, "gen") == 0 && v >= 1 && v <= 6)
            p->generation = (unsigned)v;
        else
            return bad(description, word);
    }
    return SHUNT_OK;
}

static struct shunt__object *device(shunt_topo_t *t, struct shunt__object *parent, shunt_topo_type_t type,
                                    uint32_t class_id, unsigned *bus, const struct plan *p, const char *name)
{
    static const uint32_t speeds[] = {2500, 5000, 8000, 16000, 32000, 64000};
    struct shunt__object *o = shunt__topo_add(t, parent, type, name);
    shunt_topo_pci_t pci = {.domain = *bus >> 8,
                            .bus = (uint8_t)*bus,
                            .class_id = class_id,
                            .speed = speeds[p->generation - 1],
                            .width = 16};

    ++*bus;
    if (o)
        shunt__object_set_pci(o, &pci);
    return o;
}

static void add_devices(shunt_topo_t *t, const struct plan *p)
{
    unsigned bus = 1, gpu = 0, nic = 0, n = t->n_all;
    struct shunt__object *nvswitch = NULL;

    for (unsigned i = 0; i < n && !t->arena.failed; i++) {
        struct shunt__object *numa = t->all[i], *under = numa;
        if (numa->pub.type != SHUNT_TOPO_NUMA || (!shunt__cpus_count(&numa->cpus) && n > 2))
            continue;
        for (unsigned s = 0; s < (p->has_switches ? p->switches : 1); s++) {
            if (p->has_switches && !(under = device(t, numa, SHUNT_TOPO_SWITCH, 0x060400, &bus, p, NULL)))
                return;
            for (unsigned k = 0; k < p->gpus; k++) {
                struct shunt__object *o = device(t, under, SHUNT_TOPO_GPU, 0x030200, &bus, p, NULL);
                if (!o)
                    return;
                o->u.gpu->dev = (int)gpu++;
                o->u.gpu->sm = 90;
                if (!p->nvlinks)
                    continue;
                if (!nvswitch && !(nvswitch = shunt__topo_add(t, t->host, SHUNT_TOPO_NVSWITCH, NULL)))
                    return;
                struct shunt__wires *w = shunt__topo_add_wires(t, o, nvswitch, SHUNT__WIRE_NVLINK,
                                                               p->nvlinks);
                if (w)
                    w->class_id = 0x068000;
            }
            for (unsigned k = 0; k < p->nics; k++) {
                char name[32];
                snprintf(name, sizeof(name), "nic%u", nic++);
                struct shunt__object *o = device(t, under, SHUNT_TOPO_NIC, 0x020000, &bus, p, name);
                if (!o)
                    return;
                o->u.nic->name = o->u.nic->rdma = o->pub.name;
                o->u.nic->rdma_port = 1;
                o->u.nic->driver = o->u.nic->kind = "";
                shunt__nic_set_speed(t, o->u.nic, p->mbits);
                shunt__nic_judge(t, o->u.nic, 0, NULL);
                o->net.dev = (int)nic - 1;
            }
        }
    }
    if (nvswitch) { /* an address so that NCCL's form can name it */
        shunt_topo_pci_t pci = {.domain = 0xffff, .bus = 0xff, .class_id = 0x068000};
        shunt__object_set_pci(nvswitch, &pci);
    }
}

shunt_status_t shunt_topo_load_synthetic(const char *description, shunt_topo_t **topo)
{
    const char *plus;
    char cpus[512];
    struct plan plan = {0};
    shunt_topo_t *t;
    shunt_status_t st = SHUNT_OK;

    if (!description || !topo)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_topo_load_synthetic: description or topo is NULL");
    plus = strchr(description, '+');
    snprintf(cpus, sizeof(cpus), "%.*s", plus ? (int)(plus - description) : (int)strlen(description),
             description);
    if (strlen(description) >= sizeof(cpus))
        return shunt__fail(SHUNT_ERR_LIMIT, "a synthetic description has at most %zu bytes",
                           sizeof(cpus) - 1);
    /* hwloc would start to build what no machine is, so the product of the levels is bounded before. */
    double product = 1;
    for (const char *p = cpus; *p; p++)
        if (*p == ':')
            product *= strtod(p + 1, NULL) > 1 ? strtod(p + 1, NULL) : 1;
    if (product > SHUNT__MAX_CPUS)
        return shunt__fail(SHUNT_ERR_LIMIT, "\"%.100s\" describes more than %d CPUs", cpus, SHUNT__MAX_CPUS);
    if (!cpus[strspn(cpus, " \t")])
        return shunt__fail(SHUNT_ERR_FORMAT,
                           "an empty synthetic description; an example: pack:2 numa:2 core:12 pu:2");
    if (!strstr(cpus, "pu:") && !strstr(cpus, "PU:") && strlen(cpus) + 6 < sizeof(cpus))
        strcat(cpus, " pu:1"); /* hwloc insists on them */
    if (plus)
        st = parse_plan(description, plus + 1, &plan);
    if (st == SHUNT_OK)
        st = shunt__read_hwloc_live(cpus, "synthetic", &t);
    if (st != SHUNT_OK)
        return st;
    for (unsigned i = 0; i < t->n_all && !strstr(cpus, "memory="); i++)
        t->all[i]->memory = 0; /* hwloc makes one up */
    if (plus)
        add_devices(t, &plan);
    t->host_name = "synthetic";
    if (sodium_init() >= 0)
        crypto_generichash(t->host_id.bytes, sizeof(t->host_id.bytes), (const unsigned char *)description,
                           strlen(description), NULL, 0);
    snprintf(t->host_id.text, sizeof(t->host_id.text), "synthetic %.140s", description);
    st = shunt__topo_finish(&t);
    if (st == SHUNT_OK)
        *topo = t;
    return st;
}
