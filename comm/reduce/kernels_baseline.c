/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels in 16-byte vectors with what every CPU of the family has: SSE2 on x86-64. */
#define VB 16
#define TARGET
#define TABLE shunt__kernels_baseline
#include "comm/reduce/vector.h"

#ifdef __SSE2__
#include <emmintrin.h>
NATIVE_MIN_MAX(u8, vu8, __m128i, _mm_min_epu8, _mm_max_epu8)
NATIVE_MIN_MAX(i16, vi16, __m128i, _mm_min_epi16, _mm_max_epi16)
#else
GENERIC_MIN_MAX(u8, vu8)
GENERIC_MIN_MAX(i16, vi16)
#endif
GENERIC_MIN_MAX(i8, vi8)
GENERIC_MIN_MAX(u16, vu16)
GENERIC_MIN_MAX(i32, vi32)
GENERIC_MIN_MAX(u32, vu32)
GENERIC_MIN_MAX(i64, vi64)
GENERIC_MIN_MAX(u64, vu64)
GENERIC_SELECT_GT(i8, vi8)
GENERIC_SELECT_GT(i16, vi16)
GENERIC_SELECT_GT(i32, vi32)
GENERIC_SELECT_GT(i64, vi64)

/* The exponent is moved to float32's bias; for subnormals a float subtraction normalises what the shift put there. */
INLINE vf32 widen_bits(vu32 h)
{
    const vu32 magnitude = (h & 0x7fff) << 13, exponent = magnitude & 0x0f800000;
    vu32 normal = magnitude + 0x38000000; /* (127 - 15) << 23 */
    vu32 special = magnitude + 0x70000000;
    vu32 subnormal = (vu32)((vf32)(magnitude + 0x38800000) - (vf32)((vu32){0} + 0x38800000));
    vu32 result = SELECT(vu32, exponent == 0, subnormal, SELECT(vu32, exponent == 0x0f800000, special, normal));

    return (vf32)(result | ((h & 0x8000) << 16));
}

INLINE vu32 narrow_bits(vf32 f)
{
    const vi32 magnitude = (vi32)f & 0x7fffffff;
    /* Adding 0.5, whose last bit is worth the last bit of float16's subnormals, rounds to them. */
    vi32 subnormal = (vi32)((vf32)magnitude + 0.5f) - 0x3f000000;
    vi32 normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    vi32 special = SELECT(vi32, magnitude > 0x7f800000, (vi32){0} + 0x7fff, (vi32){0} + 0x7c00);
    vi32 result = SELECT(vi32, magnitude < 0x38800000, subnormal,
                         SELECT(vi32, magnitude >= 0x47800000, special, normal)); /* 2^-14 and 2^16 */

    return (vu32)result | (((vu32)f >> 16) & 0x8000);
}

INLINE pair_f32 widen(vu16 x)
{
    return (pair_f32){widen_bits((vu32)x & 0xffff), widen_bits((vu32)x >> 16)};
}

INLINE vu16 narrow(pair_f32 x)
{
    return (vu16)(narrow_bits(x.a) | (narrow_bits(x.b) << 16));
}

/* A float32 has more than twice float16's bits plus two, so rounding twice gives what rounding once would. */
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
