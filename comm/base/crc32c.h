/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CRC-32C (Castagnoli), the checksum of chunk headers and payloads.
 *
 * A running value: start with 0, pass what came back to go on, so that
 * crc(AB) = shunt__crc32c(shunt__crc32c(0, A, m), B, n). Uses the CPU's crc32 instruction where there is one,
 * tables otherwise; both give the same. Any thread.
 */
#ifndef SHUNT_BASE_CRC32C_H
#define SHUNT_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t shunt__crc32c(uint32_t crc, const void *data, size_t n);
/* Copies n bytes to dst (not overlapping src) and checksums exactly the bytes that were stored, reading src once:
 * a source that changes meanwhile can't make the two disagree. */
uint32_t shunt__crc32c_copy(uint32_t crc, void *dst, const void *src, size_t n);
/* What long inputs take: "avx512", "sse4.2" or "table". */
const char *shunt__crc32c_name(void);

/* crc32c_fold.c: whether this CPU can; the state (an inverted CRC) behind n bytes, n a multiple of 256 and not 0. */
int shunt__crc32c_fold_ready(void);
uint32_t shunt__crc32c_fold(uint32_t state, const unsigned char *data, size_t n);

/* For tests: the table versions whatever the CPU has. */
uint32_t shunt__crc32c_table(uint32_t crc, const void *data, size_t n);
uint32_t shunt__crc32c_copy_table(uint32_t crc, void *dst, const void *src, size_t n);

#endif
