/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binding: the helper thread copies between the NICs' buffers and the caller's, so it is put onto the NUMA nodes of the NICs.
 * Onto all CPUs of these, not one: which of them is idle is known to the kernel only. Memory that it is first to touch then
 * lies there as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"
#include "comm/core/binding.h"

static int is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

/* Reading CPUs and PCI takes tens of milliseconds: only where it can matter. */
static int several_nodes(void)
{
    FILE *f = fopen("/sys/devices/system/node/online", "re");
    char line[256] = "";

    if (!f)
        return 0;
    if (!fgets(line, sizeof(line), f))
        line[0] = 0;
    fclose(f);
    return strpbrk(line, ",-") != NULL;
}

shunt_status_t shunt__binding_topology(int place, shunt_topo_t **topo)
{
    if ((is_set("NCCL_TOPO_FILE") || is_set("NCCL_TOPO_DUMP_FILE") || (place && several_nodes())) &&
        shunt_topo_load(topo) == SHUNT_OK)
        return SHUNT_OK;
    return shunt_topo_load_live(1, topo);
}

void shunt__binding_choose(const shunt_topo_t *topo, const shunt_topo_rails_t *rails, const cpu_set_t *allowed,
                           struct shunt__binding *out)
{
    struct shunt__binding b = {0};
    shunt_topo_binding_t *advice = malloc(sizeof(*advice));
    int node = -1, several = 0;

    snprintf(b.reason, sizeof(b.reason), "anywhere: no NIC is a rail");
    for (unsigned i = 0; advice && i < rails->n_used; i++) {
        if (!rails->rail[i].object || shunt_topo_binding(topo, rails->rail[i].object, advice) != SHUNT_OK)
            continue;
        if (advice->numa < 0 || !advice->n_cpus) { /* near to anything: then so is the thread */
            b.bound = 0;
            snprintf(b.reason, sizeof(b.reason), "%s", advice->reason);
            break;
        }
        several |= b.bound && advice->numa != node;
        node = advice->numa;
        b.bound = 1;
        for (unsigned k = 0; k < advice->n_cpus && k < sizeof(advice->cpu) / sizeof(advice->cpu[0]); k++)
            if (advice->cpu[k] < CPU_SETSIZE)
                CPU_SET(advice->cpu[k], &b.cpus);
    }
    free(advice);
    if (b.bound && allowed)
        CPU_AND(&b.cpus, &b.cpus, allowed);
    if (b.bound && CPU_COUNT(&b.cpus) == 0) {
        b.bound = 0;
        snprintf(b.reason, sizeof(b.reason), "anywhere: this process may use none of the CPUs that are near to its rails");
    } else if (b.bound && allowed && CPU_EQUAL(&b.cpus, allowed)) {
        b.bound = 0;
        snprintf(b.reason, sizeof(b.reason), "anywhere: all CPUs of this process are near to its rails");
    } else if (b.bound && several)
        snprintf(b.reason, sizeof(b.reason), "on %d CPUs of the NUMA nodes near to its rails", CPU_COUNT(&b.cpus));
    else if (b.bound)
        snprintf(b.reason, sizeof(b.reason), "on %d CPUs of NUMA node %d, near to its rails", CPU_COUNT(&b.cpus), node);
    *out = b;
}

void shunt__binding_here(const shunt_topo_t *topo, const shunt_topo_rails_t *rails, struct shunt__binding *out)
{
    const char *ignore = getenv("NCCL_IGNORE_CPU_AFFINITY");
    cpu_set_t own;

    if (ignore && strtol(ignore, NULL, 0) == 1)
        shunt__binding_choose(topo, rails, NULL, out);
    else if (sched_getaffinity(0, sizeof(own), &own) == 0)
        shunt__binding_choose(topo, rails, &own, out);
    else {
        memset(out, 0, sizeof(*out));
        snprintf(out->reason, sizeof(out->reason), "anywhere: the kernel doesn't tell which CPUs this process may use");
    }
}
