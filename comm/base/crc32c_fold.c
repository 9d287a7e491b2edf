/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CRC-32C by folding: carry-less multiplication moves a block of the message 2,048 bits ahead without changing the
 * remainder, sixteen 128-bit lanes at a time (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction", Intel 2009). 256 bytes take 8 multiplications of 512 bits.
 *
 * Bits are reflected: a 128-bit lane's low half is the earlier one. To move a lane D bits ahead, its halves are
 * multiplied with x^(D+32) and x^(D-32) modulo the polynomial, each shifted left by one because the product of two
 * reflected numbers comes out one bit short.
 */
#include "comm/base/crc32c.h"

#ifdef __x86_64__
#include <immintrin.h>

#define FOLD __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))
#define POLY 0x82f63b78u

/* x^n modulo the polynomial, reflected, ready to be multiplied with. */
static uint64_t power(unsigned n)
{
    uint32_t p = 1u << 31;

    while (n--)
        p = (p >> 1) ^ (p & 1 ? POLY : 0);
    return (uint64_t)p << 1;
}

/* [i]: for a distance of 128, 256, 384, 512 and 2048 bits: what to multiply the earlier and the later half with. */
static uint64_t by[5][2];

int shunt__crc32c_fold_ready(void)
{
    static const unsigned distance[5] = {128, 256, 384, 512, 2048};

    for (int i = 0; i < 5; i++) {
        by[i][0] = power(distance[i] + 32);
        by[i][1] = power(distance[i] - 32);
    }
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("sse4.2");
}

FOLD static inline __m512i ahead(__m512i x, __m512i k, __m512i next)
{
    __m512i early = _mm512_clmulepi64_epi128(x, k, 0x00), late = _mm512_clmulepi64_epi128(x, k, 0x11);

    return _mm512_ternarylogic_epi64(early, late, next, 0x96); /* exclusive or of all three */
}

FOLD static inline __m128i ahead_lane(__m128i x, int i)
{
    __m128i k = _mm_set_epi64x((long long)by[i][1], (long long)by[i][0]);

    return _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11));
}

FOLD static inline __m512i constants(int i)
{
    return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)by[i][1], (long long)by[i][0]));
}

FOLD uint32_t shunt__crc32c_fold(uint32_t state, const unsigned char *data, size_t n)
{
    __m512i a[4], far = constants(4), near = constants(3);
    __m128i lane;
    uint64_t crc;

    for (int i = 0; i < 4; i++)
        a[i] = _mm512_loadu_si512(data + 64 * i);
    a[0] = _mm512_xor_si512(a[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
    for (data += 256, n -= 256; n >= 256; data += 256, n -= 256)
        for (int i = 0; i < 4; i++)
            a[i] = ahead(a[i], far, _mm512_loadu_si512(data + 64 * i));
    a[1] = ahead(a[0], near, a[1]);
    a[2] = ahead(a[1], near, a[2]);
    a[3] = ahead(a[2], near, a[3]);
    lane = _mm_xor_si128(_mm512_extracti32x4_epi32(a[3], 3), ahead_lane(_mm512_extracti32x4_epi32(a[3], 2), 0));
    lane = _mm_xor_si128(lane, ahead_lane(_mm512_extracti32x4_epi32(a[3], 1), 1));
    lane = _mm_xor_si128(lane, ahead_lane(_mm512_extracti32x4_epi32(a[3], 0), 2));
    crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(lane));
    return (uint32_t)_mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(lane, 1));
}
#else
int shunt__crc32c_fold_ready(void)
{
    return 0;
}

uint32_t shunt__crc32c_fold(uint32_t state, const unsigned char *data, size_t n)
{
    return state;
}
#endif
