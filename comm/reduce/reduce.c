/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kernels this CPU runs, and the functions the collectives call. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "comm/reduce/reduce.h"
#include <pthread.h>
#include <string.h>
#include "comm/reduce/kernels.h"
#ifdef __SSE__
#include <xmmintrin.h>
#endif

/* Best first. */
static const struct {
    const char *name;
    const struct shunt__kernels *kernels;
} sets[] = {
#ifdef __x86_64__
#ifdef HAVE_AVX512FP16
    {"avx512fp16", &shunt__kernels_avx512fp16},
#endif
    {"avx512", &shunt__kernels_avx512},
    {"avx2", &shunt__kernels_avx2},
    {"sse2", &shunt__kernels_baseline},
#else
    {"vector", &shunt__kernels_baseline},
#endif
};

const char *const shunt__reduce_isas[] = {
#ifdef __x86_64__
#ifdef HAVE_AVX512FP16
    "avx512fp16",
#endif
    "avx512", "avx2", "sse2",
#else
    "vector",
#endif
    NULL};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct shunt__kernels *kernels;
static const char *chosen;

#ifdef __x86_64__
#include <cpuid.h>

static bool has_avx512fp16(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & (1u << 23));
}

static bool supported(const char *isa)
{
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");

    if (strcmp(isa, "avx512fp16") == 0)
        return avx512 && has_avx512fp16();
    if (strcmp(isa, "avx512") == 0)
        return avx512;
    if (strcmp(isa, "avx2") == 0) {
        unsigned a, b, c, d;

        return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)); /* F16C */
    }
    return true;
}
#else
static bool supported(const char *isa)
{
    return true;
}
#endif

static bool choose(const char *isa)
{
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
        if ((!isa || strcmp(isa, sets[i].name) == 0) && supported(sets[i].name)) {
            kernels = sets[i].kernels;
            chosen = sets[i].name;
            return true;
        }
    return false;
}

static void choose_best(void)
{
    choose(NULL);
}

bool shunt__reduce_choose(const char *isa)
{
    pthread_once(&once, choose_best);
    return choose(isa);
}

const char *shunt__reduce_isa(void)
{
    pthread_once(&once, choose_best);
    return chosen;
}

/* Ranks must agree to the last bit even where a thread flushes subnormals to zero or rounds another way. */
static unsigned enter(void)
{
    pthread_once(&once, choose_best);
#ifdef __SSE__
    unsigned state = _mm_getcsr();

    if (state & 0xe040) /* rounding, flush to zero, denormals are zero */
        _mm_setcsr(state & ~0xe040u);
    return state;
#else
    return 0;
#endif
}

static void leave(unsigned state)
{
#ifdef __SSE__
    if (state & 0xe040)
        _mm_setcsr(state);
#else
    (void)state;
#endif
}

static int row(shunt_op_t op)
{
    return (unsigned)op <= SHUNT_MIN ? (int)op : (int)SHUNT_SUM;
}

void shunt__reduce2(shunt_op_t op, shunt_type_t type, void *dst, const void *a, const void *b, size_t count)
{
    const void *src[2] = {a, b};
    unsigned state = enter();

    kernels->reduce[type][row(op)](dst, src, 2, count * shunt_type_size(type));
    leave(state);
}

void shunt__reduce(shunt_op_t op, shunt_type_t type, void *inout, const void *in, size_t count)
{
    shunt__reduce2(op, type, inout, inout, in, count);
}

void shunt__reduce_n(shunt_op_t op, shunt_type_t type, void *dst, const void *const *src, int n, size_t count)
{
    enum { BLOCK = 16384 }; /* stays in the first-level cache between the rounds */
    size_t bytes = count * shunt_type_size(type);
    unsigned state;

    if (n == 1) {
        if (dst != src[0])
            memcpy(dst, src[0], bytes);
        return;
    }
    state = enter();
    if (n <= SHUNT__REDUCE_SOURCES)
        kernels->reduce[type][row(op)](dst, src, n, bytes);
    else
        for (size_t at = 0; at < bytes; at += BLOCK) {
            size_t part = bytes - at < BLOCK ? bytes - at : BLOCK;
            const void *some[SHUNT__REDUCE_SOURCES];
            int done = 0;

            some[0] = (const char *)src[0] + at;
            for (int k = 1; done < n - 1; k = 1) {
                for (; k < SHUNT__REDUCE_SOURCES && done < n - 1; k++)
                    some[k] = (const char *)src[++done] + at;
                kernels->reduce[type][row(op)]((char *)dst + at, some, k, part);
                some[0] = (char *)dst + at;
            }
        }
    leave(state);
}

void shunt__reduce_premul2(shunt_type_t type, void *dst, const void *src, size_t count, const void *scalar)
{
    unsigned state = enter();

    kernels->scale[type](dst, src, scalar, count * shunt_type_size(type));
    leave(state);
}

void shunt__reduce_premul(shunt_type_t type, void *buf, size_t count, const void *scalar)
{
    shunt__reduce_premul2(type, buf, buf, count, scalar);
}

void shunt__reduce_avg_final(shunt_type_t type, void *buf, size_t count, int n)
{
    unsigned state;

    pthread_once(&once, choose_best);
    if (!kernels->divide[type] || n == 1)
        return;
    state = enter();
    kernels->divide[type](buf, n, count);
    leave(state);
}

/* A positive float32 in fewer bits, rounded to nearest even; enough for 1/n, which is never subnormal here unless
 * n is larger than any communicator (float8 e4m3: 64, float16: 16384), where it is rounded to a subnormal. */
static unsigned narrowed(float f, int exponent_bits, int significand_bits)
{
    uint32_t bits;
    int bias = (1 << (exponent_bits - 1)) - 1, exponent, shift;
    uint64_t significand, half;

    memcpy(&bits, &f, 4);
    exponent = (int)(bits >> 23) - 127 + bias;
    significand = (bits & 0x7fffff) | 0x800000;
    shift = 23 - significand_bits;
    if (exponent < 1) {
        shift += 1 - exponent;
        exponent = 1;
        if (shift > 40)
            return 0;
    }
    half = (UINT64_C(1) << shift) >> 1;
    significand += half - 1 + ((significand >> shift) & 1);
    /* The hidden bit adds one to the exponent field, and a carry another. */
    return ((unsigned)(exponent - 1) << significand_bits) + (unsigned)(significand >> shift);
}

bool shunt__reduce_avg_scalar(shunt_type_t type, int n, void *scalar)
{
    double exact = 1.0 / n;
    float single = (float)exact;
    unsigned state = enter();
    uint16_t word;
    uint8_t byte;
    bool floating = true;

    switch (type) {
    case SHUNT_FLOAT64:
        memcpy(scalar, &exact, 8);
        break;
    case SHUNT_FLOAT32:
        memcpy(scalar, &single, 4);
        break;
    case SHUNT_FLOAT16:
    case SHUNT_BFLOAT16:
        word = (uint16_t)(type == SHUNT_FLOAT16 ? narrowed(single, 5, 10) : narrowed(single, 8, 7));
        memcpy(scalar, &word, 2);
        break;
    case SHUNT_FLOAT8E4M3:
    case SHUNT_FLOAT8E5M2:
        byte = (uint8_t)(type == SHUNT_FLOAT8E4M3 ? narrowed(single, 4, 3) : narrowed(single, 5, 2));
        memcpy(scalar, &byte, 1);
        break;
    default:
        floating = false;
    }
    leave(state);
    return floating;
}
