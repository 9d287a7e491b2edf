/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the helper thread runs: near the NICs that it drives. */
#ifndef SHUNT_CORE_BINDING_H
#define SHUNT_CORE_BINDING_H

#include <sched.h>
#include <shunt/topo.h>

struct shunt__binding {
    int bound; /* zero: anywhere */
    cpu_set_t cpus;
    char reason[200];
};

/*
 * The host as far as a context needs it: its NICs; the NUMA nodes too where there are several of them and `place` says that
 * a thread is to be placed, or where NCCL_TOPO_FILE or NCCL_TOPO_DUMP_FILE is set.
 */
shunt_status_t shunt__binding_topology(int place, shunt_topo_t **topo);

/*
 * The CPUs near the used rails, of those in `allowed` (NULL: of all). Several rails may be near several NUMA nodes: then
 * the CPUs of all these. Where that says nothing, or nobody knows, `out` says "anywhere" and why.
 */
void shunt__binding_choose(const shunt_topo_t *topo, const shunt_topo_rails_t *rails, const cpu_set_t *allowed,
                           struct shunt__binding *out);

/* The same for this process: of the CPUs it may use, unless NCCL_IGNORE_CPU_AFFINITY is 1. */
void shunt__binding_here(const shunt_topo_t *topo, const shunt_topo_rails_t *rails, struct shunt__binding *out);

#endif
