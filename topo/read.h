/* SPDX-License-Identifier: BSD-3-Clause */
/* The readers of each form. */
#ifndef SHUNT_TOPO_READ_H
#define SHUNT_TOPO_READ_H

#include "topo/xml.h"

/* `unfinished` nonzero leaves out shunt__topo_finish(), so that more can be added. */
shunt_status_t shunt__read_nccl(const struct shunt__xml *root, int unfinished, shunt_topo_t **topo);
shunt_status_t shunt__read_hwloc(const struct shunt__xml *root, const char *source, int unfinished,
                                 shunt_topo_t **topo);

/* A set of CPUs as hwloc writes it: "0x000000ff,,0x1", the highest word first. */
void shunt__read_cpuset(struct shunt__arena *arena, struct shunt__cpus *set, const char *text);

/* This host, or a synthetic one, through hwloc; unfinished. */
shunt_status_t shunt__read_hwloc_live(const char *synthetic, const char *source, shunt_topo_t **topo);

shunt_status_t shunt__load_file(const char *path, int unfinished, shunt_topo_t **topo);
shunt_status_t shunt__load_memory(const char *name, const void *data, size_t size, int unfinished,
                                  shunt_topo_t **topo);

#endif
