/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SHUNT_TOPO_PACK_H
#define SHUNT_TOPO_PACK_H

#include <stddef.h>

/* Nonzero if the bytes begin as a packed topology does. */
int shunt__is_packed(const void *data, size_t size);

#endif
