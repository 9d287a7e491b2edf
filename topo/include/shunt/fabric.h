/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt/fabric.h - several hosts and the network between them, and where ranks are best put.
 *
 * A fabric is built by adding hosts (each a topology) and, if it is known, which NIC is cabled to which
 * network switch. Then it answers: how far are two ranks apart, who is near, in which order do rings go,
 * which ranks should be neighbours in a pipeline. Building is for one thread at a time; a built fabric may be
 * read by any number.
 *
 * Where nothing is said about cables, the k-th rail of each host is taken to be joined to the k-th rail of
 * every other (rail-aligned, as most clusters are wired), or to those in its IP subnet where NICs have
 * addresses.
 */
#ifndef SHUNT_FABRIC_H
#define SHUNT_FABRIC_H

#include <shunt/topo.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shunt_fabric shunt_fabric_t;

SHUNT_API shunt_status_t shunt_fabric_create(shunt_fabric_t **fabric);

/* Frees the fabric and the topologies it took over. NULL is allowed. */
SHUNT_API void shunt_fabric_destroy(shunt_fabric_t *fabric);

/*
 * Adds a host. On success the fabric owns `topo`. A live host's topology whose identity
 * (shunt_topo_host_id()) is there already is the same host: nothing is added and *host is that one's number.
 * `name` NULL means what the host calls itself; a name that is taken gets a number behind it. `options`
 * chooses its rails as in shunt_topo_rails(); NULL means without any setting. A host without a usable NIC is
 * added with a note and no rails. *host may be NULL.
 */
SHUNT_API shunt_status_t shunt_fabric_add_host(shunt_fabric_t *fabric, shunt_topo_t *topo, const char *name,
                                               const shunt_topo_rails_options_t *options, unsigned *host);

/* Adds `count` more hosts that are like `host` (for what-if fabrics); they share its topology. */
SHUNT_API shunt_status_t shunt_fabric_repeat_host(shunt_fabric_t *fabric, unsigned host, unsigned count);

/*
 * Reads cables, a line each; '#' starts a comment:
 *     switch LEAF [ABOVE [RATE]]     a network switch, the one above it, and the rate of its uplinks together
 * (1.6t, 400g) cable HOST NIC SWITCH          HOST or NIC may be '*' Replaces what was assumed.
 * SHUNT_ERR_FORMAT names the line. A host or NIC that the fabric doesn't have is an error too, so that a
 * typing error is found.
 */
SHUNT_API shunt_status_t shunt_fabric_read_cables(shunt_fabric_t *fabric, const char *name, const char *text,
                                                  size_t size);

/* Writes the cables in that form. *text is the caller's, freed with free(). */
SHUNT_API shunt_status_t shunt_fabric_write_cables(const shunt_fabric_t *fabric, char **text, size_t *size);

SHUNT_API unsigned shunt_fabric_host_count(const shunt_fabric_t *fabric);
SHUNT_API const char *shunt_fabric_host_name(const shunt_fabric_t *fabric,
                                             unsigned host); /* NULL beyond the last */
SHUNT_API const shunt_topo_t *shunt_fabric_host_topo(const shunt_fabric_t *fabric, unsigned host);
SHUNT_API unsigned shunt_fabric_rail_count(const shunt_fabric_t *fabric, unsigned host);
/* The NIC of a host's rail, and the name of the switch it is cabled to. NULL beyond the last. */
SHUNT_API const shunt_topo_object_t *shunt_fabric_rail_nic(const shunt_fabric_t *fabric, unsigned host,
                                                           unsigned rail);
SHUNT_API const char *shunt_fabric_rail_switch(const shunt_fabric_t *fabric, unsigned host, unsigned rail);

/* ---- ranks ---- */

/* Where a rank runs: the n-th place of a host. Places are its computing GPUs, else its NUMA nodes, else the
 * host. */
typedef struct shunt_place {
    unsigned host, slot;
} shunt_place_t;

SHUNT_API unsigned shunt_fabric_slot_count(const shunt_fabric_t *fabric, unsigned host);
/* The GPU, NUMA node or host object that a place stands for. NULL if there is no such place. */
SHUNT_API const shunt_topo_object_t *shunt_fabric_slot(const shunt_fabric_t *fabric, shunt_place_t place);

/*
 * The places of n ranks as launchers number them: host by host in the order they were added, slot by slot.
 * With more ranks than places, every host gets its share and slots are used several times.
 */
SHUNT_API shunt_status_t shunt_fabric_places(const shunt_fabric_t *fabric, unsigned n, shunt_place_t *places);

typedef struct shunt_fabric_link {
    shunt_topo_class_t path_class; /* within a host as shunt_topo_path() has it; between hosts NET */
    unsigned switches;             /* network switches on the way; 0 within a host */
    int rail_from, rail_to;        /* rails used between hosts, -1 within one or if there is none */
    double bandwidth;              /* bytes per second one way over that one rail; 0 if there is no way */
    unsigned distance;             /* orders links: nearer is lower; within a host below any between hosts */
} shunt_fabric_link_t;

/* The best way between two places. Cost: O(rails + depth of the trees). */
SHUNT_API shunt_status_t shunt_fabric_link(const shunt_fabric_t *fabric, shunt_place_t from, shunt_place_t to,
                                           shunt_fabric_link_t *link);

/*
 * The other ranks in order of nearness to `rank`: writes the first `room` of them. Cost: O(n log n).
 */
SHUNT_API shunt_status_t shunt_fabric_neighbours(const shunt_fabric_t *fabric, const shunt_place_t *places,
                                                 unsigned n, unsigned rank, unsigned *others, unsigned room);

/*
 * Rings over all ranks: same PCI switch before same host before same network switch before across. Ring r
 * enters each host at the rank nearest to rail r. Fills order[r * n + i] with the i-th rank of ring r, and
 * enter[r * n + i] and leave[r * n + i] (both may be NULL) with the rail through which the ring comes in at,
 * or goes out from, that rank
 * (-1 where the next one is on the same host). cross_nic as NCCL_CROSS_NIC: 0 leaves by the rail it came in,
 * 1 by the rail nearest to the last rank of the host. Cost: O(n log n) per ring plus O(slots^2) per kind of
 * host.
 */
SHUNT_API shunt_status_t shunt_fabric_rings(const shunt_fabric_t *fabric, const shunt_place_t *places,
                                            unsigned n, unsigned rings, int cross_nic, unsigned *order,
                                            int *enter, int *leave);

/* How many rings make sense: the number of different rails that ranks are nearest to; at least 1. */
SHUNT_API unsigned shunt_fabric_ring_count(const shunt_fabric_t *fabric, const shunt_place_t *places,
                                           unsigned n);

typedef struct shunt_stages {
    size_t size;              /* sizeof(shunt_stages_t) */
    unsigned stages;          /* of a pipeline */
    unsigned replicas;        /* pipelines beside each other; stages * replicas ranks */
    double activation_bytes;  /* sent from a stage to the next in one iteration (all micro-batches), and back
                                 as gradients */
    double gradient_bytes;    /* all-reduced among the replicas of a stage in one iteration */
} shunt_stages_t;

typedef struct shunt_placement_report {
    double bytes_before[16],
        bytes_after[16]; /* per iteration, by link distance class: see shunt_placement_class_name() */
    double seconds_before,
        seconds_after; /* what the busiest NIC or link needs for it; no overlap is assumed */
    char reason[200];
} shunt_placement_report_t;

/* Names of the 16 classes above: the path classes LOC to SYS, "leaf" (one network switch), "across". Static.
 */
SHUNT_API const char *shunt_placement_class_name(unsigned index);

/*
 * Which rank should be which stage of which replica, so that slow links carry the least: writes stage[rank]
 * and replica[rank]. `before` in the report is the usual order (rank = stage * replicas + replica). Compares
 * orders that keep pipelines together, that keep replicas together, and mixtures by host and switch, by the
 * time that the busiest link needs for its bytes, and of equals by the bytes on the slowest class of link; up
 * to 64 ranks are then improved by exchanging pairs. The result depends on nothing but the arguments. Cost:
 * O(n x divisors of stages) links, O(n^2) exchanges each pass for n <= 64.
 */
SHUNT_API shunt_status_t shunt_fabric_place_stages(const shunt_fabric_t *fabric, const shunt_place_t *places,
                                                   const shunt_stages_t *stages, unsigned *stage,
                                                   unsigned *replica, shunt_placement_report_t *report);

/* TEXT, JSON, SVG or DOT. *text is the caller's, freed with free(). */
SHUNT_API shunt_status_t shunt_fabric_export(const shunt_fabric_t *fabric, shunt_topo_format_t format,
                                             char **text, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
