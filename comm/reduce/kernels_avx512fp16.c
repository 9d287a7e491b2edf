/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels in 64-byte vectors with float16 arithmetic, written as assembly because not every compiler that can
 * assemble it has the type. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#if defined(__x86_64__) && defined(HAVE_AVX512FP16)
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#define TABLE shunt__kernels_avx512fp16
#include "comm/reduce/kernels_avx512.h"

INLINE vu16 half_add(vu16 x, vu16 y)
{
    __m512i sum;

    __asm__("vaddph %2, %1, %0" : "=v"(sum) : "v"((__m512i)x), "v"((__m512i)y));
    return (vu16)sum;
}

INLINE vu16 half_mul(vu16 x, vu16 y)
{
    __m512i product;

    __asm__("vmulph %2, %1, %0" : "=v"(product) : "v"((__m512i)x), "v"((__m512i)y));
    return (vu16)product;
}

#include "comm/reduce/kernels_body.h"
#else
typedef int shunt__not_built;
#endif
