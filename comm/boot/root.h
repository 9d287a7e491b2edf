/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHUNT_BOOT_ROOT_H
#define SHUNT_BOOT_ROOT_H

#include "comm/boot/boot.h"

/* shunt__boot_root_close(), telling those who still wait that this is why. */
void shunt__boot_root_fail(struct shunt__boot_root *root, shunt_status_t status, const char *why);

#endif
