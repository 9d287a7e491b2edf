/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHUNT_RAIL_LOOP_H
#define SHUNT_RAIL_LOOP_H

#include "comm/rail/rail.h"

extern const struct shunt__rail_ops shunt__loop_ops;

#endif
