/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arithmetic of reductions, over host memory, without communication. What the operators mean is said at
 * shunt_op_t in shunt/types.h.
 *
 * Each function works with SSE2, AVX2, AVX-512 or AVX-512 FP16 instructions, whichever the CPU has; the result is the
 * same to the last bit. A buffer may have any alignment. Counts are in elements. Any thread; nothing is allocated; the
 * thread's floating-point rounding mode and flush-to-zero flags are set aside while it computes.
 *
 * SHUNT_AVG and every operator from SHUNT_N_OPS on (pre-multiplied sums) are additions here: what they do before or
 * after that is done by shunt__reduce_premul() on each contribution and shunt__reduce_avg_final() on the sum:
 *
 *     if (shunt__reduce_avg_scalar(type, n, scalar))       AVG of a floating-point type
 *         shunt__reduce_premul(type, mine, count, scalar);
 *     ... reduce with SHUNT_AVG ...
 *     shunt__reduce_avg_final(type, sum, count, n);        does nothing to floating-point types
 */
#ifndef SHUNT_REDUCE_H
#define SHUNT_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shunt/types.h>

/* inout[i] = inout[i] op in[i], in this order of operands. */
void shunt__reduce(shunt_op_t op, shunt_type_t type, void *inout, const void *in, size_t count);

/* dst[i] = a[i] op b[i]. dst may be a or b, but not overlap them otherwise. */
void shunt__reduce2(shunt_op_t op, shunt_type_t type, void *dst, const void *a, const void *b, size_t count);

/*
 * dst[i] = ((src[0][i] op src[1][i]) op src[2][i]) ..., n >= 1 sources, each read once. dst may be one of the
 * sources if n <= SHUNT__REDUCE_SOURCES, else only src[0]. n = 1 copies.
 */
#define SHUNT__REDUCE_SOURCES 8
void shunt__reduce_n(shunt_op_t op, shunt_type_t type, void *dst, const void *const *src, int n, size_t count);

/* buf[i] = buf[i] * scalar; `scalar` points to one element of `type`. */
void shunt__reduce_premul(shunt_type_t type, void *buf, size_t count, const void *scalar);
/* The same from src into dst, which are equal or don't overlap. */
void shunt__reduce_premul2(shunt_type_t type, void *dst, const void *src, size_t count, const void *scalar);

/* Writes 1/n as an element of `type` and returns true, for floating-point types; false for integers. */
bool shunt__reduce_avg_scalar(shunt_type_t type, int n, void *scalar);
/* Integers: buf[i] = buf[i] / n, rounded towards zero. Floating-point types are left as they are. */
void shunt__reduce_avg_final(shunt_type_t type, void *buf, size_t count, int n);

/* "sse2", "avx2", "avx512" or "avx512fp16" (another CPU family has "vector"): the instructions in use. */
const char *shunt__reduce_isa(void);

/* For tests and benchmarks: the names this build has, NULL-terminated, and a switch that returns false when this
 * CPU lacks them. NULL chooses the best again. Not while another thread reduces. */
extern const char *const shunt__reduce_isas[];
bool shunt__reduce_choose(const char *isa);

#endif
