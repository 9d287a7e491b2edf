/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-32C (Castagnoli), as iSCSI and the SSE4.2 instruction compute it. */
#ifndef SHUNT_BASE_CRC32C_H
#define SHUNT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of what `crc` covers followed by `n` bytes at `data`; start with 0. */
uint32_t shunt__crc32c(uint32_t crc, const void *data, size_t n);

#endif
