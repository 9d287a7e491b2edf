/* SPDX-License-Identifier: BSD-3-Clause */
/* The table that each set of instructions fills, and that reduce.c chooses from. */
#ifndef SHUNT_REDUCE_KERNELS_H
#define SHUNT_REDUCE_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/types.h>

struct shunt__kernels {
    /* SUM, PROD, MAX, MIN over n >= 2 sources (at most SHUNT__REDUCE_SOURCES); lengths are in bytes. */
    void (*reduce[SHUNT_N_TYPES][4])(void *dst, const void *const *src, int n, size_t bytes);
    void (*scale[SHUNT_N_TYPES])(void *dst, const void *src, const void *scalar, size_t bytes);
    /* Integers only. */
    void (*divide[SHUNT_N_TYPES])(void *buf, int n, size_t count);
};

extern const struct shunt__kernels shunt__kernels_baseline;
#ifdef __x86_64__
extern const struct shunt__kernels shunt__kernels_avx2, shunt__kernels_avx512;
#ifdef HAVE_AVX512FP16
extern const struct shunt__kernels shunt__kernels_avx512fp16;
#endif
#endif

#endif
