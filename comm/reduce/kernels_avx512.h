/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two AVX-512 files share; included by them after TARGET and TABLE. */
#include <immintrin.h>

#define VB 64
#include "comm/reduce/vector.h"

NATIVE_MIN_MAX(i8, vi8, __m512i, _mm512_min_epi8, _mm512_max_epi8)
NATIVE_MIN_MAX(u8, vu8, __m512i, _mm512_min_epu8, _mm512_max_epu8)
NATIVE_MIN_MAX(i16, vi16, __m512i, _mm512_min_epi16, _mm512_max_epi16)
NATIVE_MIN_MAX(u16, vu16, __m512i, _mm512_min_epu16, _mm512_max_epu16)
NATIVE_MIN_MAX(i32, vi32, __m512i, _mm512_min_epi32, _mm512_max_epi32)
NATIVE_MIN_MAX(u32, vu32, __m512i, _mm512_min_epu32, _mm512_max_epu32)
NATIVE_MIN_MAX(i64, vi64, __m512i, _mm512_min_epi64, _mm512_max_epi64)
NATIVE_MIN_MAX(u64, vu64, __m512i, _mm512_min_epu64, _mm512_max_epu64)

#define BLEND(name, T, width) \
    INLINE T select_gt_##name(T x, T y, T yes, T no) \
    { \
        return (T)_mm512_mask_blend_epi##width(_mm512_cmpgt_epi##width##_mask((__m512i)x, (__m512i)y), (__m512i)no, \
                                               (__m512i)yes); \
    }
BLEND(i8, vi8, 8)
BLEND(i16, vi16, 16)
BLEND(i32, vi32, 32)
BLEND(i64, vi64, 64)

INLINE pair_f32 widen(vu16 x)
{
    __m512i v = (__m512i)x;

    return (pair_f32){(vf32)_mm512_cvtph_ps(_mm512_castsi512_si256(v)),
                      (vf32)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1))};
}

INLINE vu16 narrow(pair_f32 x)
{
    __m256i a = _mm512_cvtps_ph((__m512)x.a, _MM_FROUND_TO_NEAREST_INT);
    __m256i b = _mm512_cvtps_ph((__m512)x.b, _MM_FROUND_TO_NEAREST_INT);

    return (vu16)_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
