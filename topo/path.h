/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHUNT_TOPO_PATH_H
#define SHUNT_TOPO_PATH_H

#include "topo/model.h"

/* All links of a bundle one way, bytes per second. */
double shunt__wires_bandwidth(const struct shunt__wires *w);
/* Between two NUMA nodes: what NCCL assumes for the CPU, bytes per second. */
double shunt__between_nodes(const shunt_topo_t *topo);
/* The PCI link from an object to its parent, bytes per second; 0 if it has none or nothing is known. */
double shunt__link_bandwidth(const struct shunt__object *o);

#endif
