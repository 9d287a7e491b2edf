/* SPDX-License-Identifier: BSD-3-Clause */
/* Host identity from given places, so that tests can play other hosts. */
#ifndef SHUNT_TOPO_HOST_H
#define SHUNT_TOPO_HOST_H

#include <shunt/topo.h>

struct shunt__host_paths {
    const char *boot_id, *machine_id, *shm;
};

/* `given` is the value of the setting `given_by`, or NULL or "". */
shunt_status_t shunt__host_id_from(const char *given, const char *given_by,
                                   const struct shunt__host_paths *paths, shunt_host_id_t *id);

#endif
