/* SPDX-License-Identifier: BSD-3-Clause */
/* Seams: parts that land after the engine. Each weak definition goes away with the real one. */
#include "comm/core/control.h"
#include "comm/core/engine.h"
#include "comm/rail/rail.h"

__attribute__((weak)) shunt_status_t shunt__fault_open(const struct shunt__rail_ops *inner,
                                                       const struct shunt__rail_params *params, const char *script,
                                                       struct shunt__rail **rail)
{
    return shunt__fail(SHUNT_ERR_UNSUPPORTED, "SHUNT_FAULTS: this build has no fault wrapper");
}
