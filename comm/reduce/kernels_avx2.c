/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels in 32-byte vectors: AVX2 with the float16 conversions of F16C. */
#ifdef __x86_64__
#include <immintrin.h>

#define VB 32
#define TARGET __attribute__((target("avx2,f16c")))
#define TABLE shunt__kernels_avx2
#include "comm/reduce/vector.h"

NATIVE_MIN_MAX(i8, vi8, __m256i, _mm256_min_epi8, _mm256_max_epi8)
NATIVE_MIN_MAX(u8, vu8, __m256i, _mm256_min_epu8, _mm256_max_epu8)
NATIVE_MIN_MAX(i16, vi16, __m256i, _mm256_min_epi16, _mm256_max_epi16)
NATIVE_MIN_MAX(u16, vu16, __m256i, _mm256_min_epu16, _mm256_max_epu16)
NATIVE_MIN_MAX(i32, vi32, __m256i, _mm256_min_epi32, _mm256_max_epi32)
NATIVE_MIN_MAX(u32, vu32, __m256i, _mm256_min_epu32, _mm256_max_epu32)
GENERIC_MIN_MAX(i64, vi64)
GENERIC_MIN_MAX(u64, vu64)

#define BLEND(name, T) \
    INLINE T select_gt_##name(T x, T y, T yes, T no) \
    { \
        return (T)_mm256_blendv_epi8((__m256i)no, (__m256i)yes, (__m256i)(x > y)); \
    }
BLEND(i8, vi8)
BLEND(i16, vi16)
BLEND(i32, vi32)
BLEND(i64, vi64)

INLINE pair_f32 widen(vu16 x)
{
    __m256i v = (__m256i)x;

    return (pair_f32){(vf32)_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
                      (vf32)_mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))};
}

INLINE vu16 narrow(pair_f32 x)
{
    __m128i a = _mm256_cvtps_ph((__m256)x.a, _MM_FROUND_TO_NEAREST_INT);
    __m128i b = _mm256_cvtps_ph((__m256)x.b, _MM_FROUND_TO_NEAREST_INT);

    return (vu16)_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

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
