/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CRC-32C.
 *
 * The crc32 instruction takes 3 cycles but a new one can start in each, so three neighbouring blocks are
 * checksummed at once. The parts are joined with the linear map "append BLOCK zero bytes", which is a
 * multiplication by x^(8 BLOCK) modulo the polynomial: a table of 4 x 256 words per block size, made at first use.
 */
#include "comm/base/crc32c.h"
#include <pthread.h>
#include <string.h>

#define POLY 0x82f63b78u /* bit-reversed 0x1edc6f41 */
#define LONG_BLOCK 2048
#define SHORT_BLOCK 192
#define FOLD_FROM 1024 /* bytes from which folding (crc32c_fold.c) is faster */

static uint32_t bytes[8][256]; /* [k][b]: byte b followed by k zero bytes */
static uint32_t zeros_long[4][256], zeros_short[4][256];
static int have_hardware, have_fold;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* a*b modulo the polynomial; bit 31 is x^0. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = (b >> 1) ^ (b & 1 ? POLY : 0);
    }
    return product;
}

static void make_zeros(uint32_t table[4][256], unsigned n)
{
    uint32_t power = 1u << 31;

    for (unsigned i = 0; i < n; i++) /* times x^8 */
        power = (power >> 8) ^ bytes[0][power & 0xff];
    for (int k = 0; k < 4; k++)
        for (uint32_t b = 0; b < 256; b++)
            table[k][b] = multiply(b << (8 * k), power);
}

static void initialise(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = b;

        for (int k = 0; k < 8; k++)
            c = (c >> 1) ^ (c & 1 ? POLY : 0);
        bytes[0][b] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            bytes[k][b] = (bytes[k - 1][b] >> 8) ^ bytes[0][bytes[k - 1][b] & 0xff];
    make_zeros(zeros_long, LONG_BLOCK);
    make_zeros(zeros_short, SHORT_BLOCK);
#ifdef __x86_64__
    have_hardware = __builtin_cpu_supports("sse4.2");
#endif
    have_fold = shunt__crc32c_fold_ready();
}

/* `dst` may be NULL; written so that both uses get their own copy with the test folded away. */
static inline __attribute__((always_inline)) uint32_t table_loop(unsigned char *dst, const unsigned char *src, size_t n,
                                                                 uint32_t crc)
{
    uint64_t word;

    crc = ~crc;
    for (; n >= 8; n -= 8, src += 8) {
        memcpy(&word, src, 8);
        if (dst) {
            memcpy(dst, &word, 8);
            dst += 8;
        }
        word ^= crc;
        crc = bytes[7][word & 0xff] ^ bytes[6][(word >> 8) & 0xff] ^ bytes[5][(word >> 16) & 0xff] ^
              bytes[4][(word >> 24) & 0xff] ^ bytes[3][(word >> 32) & 0xff] ^ bytes[2][(word >> 40) & 0xff] ^
              bytes[1][(word >> 48) & 0xff] ^ bytes[0][word >> 56];
    }
    for (; n; n--, src++) {
        unsigned char c = *src;

        if (dst)
            *dst++ = c;
        crc = (crc >> 8) ^ bytes[0][(crc ^ c) & 0xff];
    }
    return ~crc;
}

uint32_t shunt__crc32c_table(uint32_t crc, const void *data, size_t n)
{
    pthread_once(&once, initialise);
    return table_loop(NULL, data, n, crc);
}

uint32_t shunt__crc32c_copy_table(uint32_t crc, void *dst, const void *src, size_t n)
{
    pthread_once(&once, initialise);
    return table_loop(dst, src, n, crc);
}

#ifdef __x86_64__
#include <nmmintrin.h>

#define HARDWARE static inline __attribute__((always_inline, target("sse4.2")))

HARDWARE uint64_t step(unsigned char *dst, const unsigned char *src, size_t at, uint64_t crc)
{
    uint64_t word;

    memcpy(&word, src + at, 8);
    if (dst)
        memcpy(dst + at, &word, 8);
    return _mm_crc32_u64(crc, word);
}

HARDWARE uint64_t append_zeros(uint32_t table[4][256], uint64_t crc)
{
    return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^ table[3][crc >> 24];
}

HARDWARE uint64_t three_blocks(unsigned char *dst, const unsigned char *src, size_t block, uint32_t table[4][256],
                               uint64_t crc)
{
    uint64_t second = 0, third = 0;

    for (size_t at = 0; at < block; at += 8) {
        crc = step(dst, src, at, crc);
        second = step(dst, src, at + block, second);
        third = step(dst, src, at + 2 * block, third);
    }
    crc = append_zeros(table, crc) ^ second;
    return append_zeros(table, crc) ^ third;
}

HARDWARE uint32_t hardware_loop(unsigned char *dst, const unsigned char *src, size_t n, uint32_t start)
{
    uint64_t crc = ~start;

    while (n >= 3 * LONG_BLOCK) {
        crc = three_blocks(dst, src, LONG_BLOCK, zeros_long, crc);
        src += 3 * LONG_BLOCK;
        dst = dst ? dst + 3 * LONG_BLOCK : NULL;
        n -= 3 * LONG_BLOCK;
    }
    while (n >= 3 * SHORT_BLOCK) {
        crc = three_blocks(dst, src, SHORT_BLOCK, zeros_short, crc);
        src += 3 * SHORT_BLOCK;
        dst = dst ? dst + 3 * SHORT_BLOCK : NULL;
        n -= 3 * SHORT_BLOCK;
    }
    for (; n >= 8; n -= 8, src += 8) {
        crc = step(dst, src, 0, crc);
        dst = dst ? dst + 8 : NULL;
    }
    for (; n; n--, src++) {
        unsigned char c = *src;

        if (dst)
            *dst++ = c;
        crc = _mm_crc32_u8((uint32_t)crc, c);
    }
    return ~(uint32_t)crc;
}

__attribute__((target("sse4.2"))) static uint32_t hardware(const void *data, size_t n, uint32_t crc)
{
    return hardware_loop(NULL, data, n, crc);
}

__attribute__((target("sse4.2"))) static uint32_t hardware_copy(void *dst, const void *src, size_t n, uint32_t crc)
{
    return hardware_loop(dst, src, n, crc);
}
#else
#define hardware(data, n, crc) shunt__crc32c_table(crc, data, n)
#define hardware_copy(dst, src, n, crc) shunt__crc32c_copy_table(crc, dst, src, n)
#endif

uint32_t shunt__crc32c(uint32_t crc, const void *data, size_t n)
{
    size_t folded = n & ~(size_t)255;

    pthread_once(&once, initialise);
    if (have_fold && n >= FOLD_FROM) {
        crc = ~shunt__crc32c_fold(~crc, data, folded);
        data = (const char *)data + folded;
        n -= folded;
    }
    return have_hardware ? hardware(data, n, crc) : table_loop(NULL, data, n, crc);
}

uint32_t shunt__crc32c_copy(uint32_t crc, void *dst, const void *src, size_t n)
{
    pthread_once(&once, initialise);
    return have_hardware ? hardware_copy(dst, src, n, crc) : table_loop(dst, src, n, crc);
}

const char *shunt__crc32c_name(void)
{
    pthread_once(&once, initialise);
    return have_fold ? "avx512" : have_hardware ? "sse4.2" : "table";
}
