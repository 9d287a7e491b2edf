/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels in 64-byte vectors. The bfloat16 instructions are left alone: they take subnormals for zero. */
#ifdef __x86_64__
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#define TABLE shunt__kernels_avx512
#include "comm/reduce/kernels_avx512.h"

INLINE vu16 half_add(vu16 x, vu16 y)
{
    pair_f32 p = widen(x), q = widen(y);

    return narrow((pair_f32){p.a + q.a, p.b + q.b});
}

INLINE vu16 half_mul(vu16 x, vu16 y)
{
    pair_f32 p = widen(x), q = widen(y);

    return narrow((pair_f32){p.a * q.a, p.b * q.b});
}

#include "comm/reduce/kernels_body.h"
#else
typedef int shunt__not_x86;
#endif
