/* SPDX-License-Identifier: BSD-3-Clause */
/* The writers, one file each. They append to a text; a status other than OK says why the form can't hold it.
 */
#ifndef SHUNT_TOPO_EXPORT_H
#define SHUNT_TOPO_EXPORT_H

#include "topo/model.h"
#include "topo/text.h"

shunt_status_t shunt__export_text(const shunt_topo_t *topo, struct shunt__text *t);
shunt_status_t shunt__export_matrix(const shunt_topo_t *topo, struct shunt__text *t);
shunt_status_t shunt__export_json(const shunt_topo_t *topo, struct shunt__text *t);
shunt_status_t shunt__export_svg(const shunt_topo_t *topo, struct shunt__text *t);
shunt_status_t shunt__export_dot(const shunt_topo_t *topo, struct shunt__text *t);
shunt_status_t shunt__export_nccl(const shunt_topo_t *topo, struct shunt__text *t);
shunt_status_t shunt__export_hwloc(const shunt_topo_t *topo, struct shunt__text *t);

/* A set as hwloc writes it ("0x00000003,0x0000ffff") or, with nccl nonzero, as NCCL does
 * ("00000003,0000ffff"). */
void shunt__print_cpuset(struct shunt__text *t, const struct shunt__cpus *set, unsigned least_words,
                         int nccl);
/* A set as people write it: "0-11,24-35". */
void shunt__print_cpu_list(struct shunt__text *t, const struct shunt__cpus *set);
/* Cores among the CPUs of a set. */
unsigned shunt__count_cores(const shunt_topo_t *topo, const struct shunt__cpus *set);
/* "192.0.2.2/24". */
const char *shunt__print_address(char out[64], const shunt_topo_address_t *a);
/* "PCIe 5 x16", or "15.8 GB/s" where the source told only that; "" if unknown. */
const char *shunt__print_link(char out[32], const struct shunt__object *o);

#endif
