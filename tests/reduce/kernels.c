/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every operator on every type with every set of instructions against a plain reference, to the last bit: all pairs of
 * 8-bit values, all 16-bit values against chosen and random ones, special and random values of the larger types; then
 * lengths, alignments, aliasing, many sources, scaling and division.
 */
#include "comm/reduce/reduce.h"
#include "tests/reduce/reference.h"
#include "tests/tap.h"
#ifdef __SSE__
#include <xmmintrin.h>
#endif

static uint64_t state = 88172645463325252u;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static const uint16_t special16[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x03ff, 0x0400, 0x3bff, 0x3c00,
                                     0x3c01, 0x3f80, 0xbf80, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xfe00,
                                     0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7f81, 0x7fc0, 0xffff, 0x7fff};
static const uint32_t special32[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000,
                                     0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000,
                                     0xffc00000, 0xffffffff, 0x7fffffff, 0x33800000, 0x34000000, 0x4b800000};
static const uint64_t special64[] = {
    0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x8000000000000001, 0x000fffffffffffff,
    0x0010000000000000, 0x3ff0000000000000, 0xbff0000000000000, 0x7fefffffffffffff, 0xffefffffffffffff,
    0x7ff0000000000000, 0xfff0000000000000, 0x7ff0000000000001, 0x7ff8000000000000, 0xfff8000000000000,
    0xffffffffffffffff, 0x7fffffffffffffff, 0x3ca0000000000000, 0x4340000000000000};
#define N(a) (sizeof(a) / sizeof((a)[0]))

/* A value that is special one time in four; floats of like size often, so that rounding is exercised. */
static void draw_element(shunt_type_t type, void *out)
{
    size_t size = shunt_type_size(type);
    uint64_t v = draw();

    if (draw() % 4 == 0)
        v = size == 8 ? special64[draw() % N(special64)] : size == 4 ? special32[draw() % N(special32)]
            : size == 2 ? special16[draw() % N(special16)] : draw();
    else if (type == SHUNT_FLOAT32 && draw() % 2)
        v = (v & 0x83ffffff) | 0x3c000000;
    else if (type == SHUNT_FLOAT64 && draw() % 2)
        v = (v & 0x803fffffffffffff) | 0x3fc0000000000000;
    memcpy(out, &v, size);
}

/* The operands of the exhaustive comparison. */
static size_t operands(shunt_type_t type, unsigned char **a, unsigned char **b)
{
    size_t size = shunt_type_size(type), count = size == 1 ? 65536 : size == 2 ? 65536 * 40 : 200000;

    *a = malloc(count * size);
    *b = malloc(count * size);
    for (size_t i = 0; i < count; i++) {
        if (size == 1) {
            (*a)[i] = (unsigned char)i;
            (*b)[i] = (unsigned char)(i >> 8);
        } else if (size == 2) {
            size_t k = i >> 16;
            uint16_t all = (uint16_t)i, other = k < N(special16) ? special16[k] : (uint16_t)draw();

            memcpy(*a + 2 * i, k % 2 ? &other : &all, 2);
            memcpy(*b + 2 * i, k % 2 ? &all : &other, 2);
        } else {
            draw_element(type, *a + size * i);
            draw_element(type, *b + size * i);
        }
    }
    return count;
}

static void compare(const char *what, shunt_type_t type, shunt_op_t op, const unsigned char *got,
                    const unsigned char *want, size_t count, const unsigned char *a, const unsigned char *b)
{
    size_t size = shunt_type_size(type), bad = 0;

    for (size_t i = 0; i < count; i++)
        if (memcmp(got + i * size, want + i * size, size) != 0 && bad++ < 3) {
            uint64_t v[4] = {0};

            memcpy(&v[0], a + i * size, size);
            memcpy(&v[1], b + i * size, size);
            memcpy(&v[2], got + i * size, size);
            memcpy(&v[3], want + i * size, size);
            printf("# %llx and %llx gave %llx, expected %llx\n", (unsigned long long)v[0], (unsigned long long)v[1],
                   (unsigned long long)v[2], (unsigned long long)v[3]);
        }
    is_int(bad, 0, "%s: %s of %s, %zu pairs", what, shunt_op_name(op), shunt_type_name(type), count);
}

static void exhaustive(shunt_type_t type)
{
    unsigned char *a, *b, *got, *want;
    size_t size = shunt_type_size(type), count = operands(type, &a, &b);

    got = malloc(count * size);
    want = malloc(count * size);
    for (int op = SHUNT_SUM; op <= SHUNT_MIN; op++) {
        for (size_t i = 0; i < count; i++)
            reference((shunt_op_t)op, type, want + i * size, a + i * size, b + i * size);
        for (const char *const *isa = shunt__reduce_isas; *isa; isa++) {
            if (!shunt__reduce_choose(*isa)) {
                skip("this CPU has no %s", *isa);
                continue;
            }
            memset(got, 0xa5, count * size);
            shunt__reduce2((shunt_op_t)op, type, got, a, b, count);
            compare(*isa, type, (shunt_op_t)op, got, want, count, a, b);
        }
    }
    shunt__reduce_choose(NULL);
    free(a);
    free(b);
    free(got);
    free(want);
}

/* Odd lengths at odd addresses from 1 to 19 sources, into each allowed destination, with guards on both sides. */
static int many_sources(shunt_type_t type, shunt_op_t op)
{
    enum { SOURCES = 19, LENGTH = 5000 };
    size_t size = shunt_type_size(type);
    unsigned char *src[SOURCES], *want = malloc(LENGTH * size), *out = malloc(LENGTH * size + 64);
    int good = 1;

    for (int s = 0; s < SOURCES; s++) {
        src[s] = malloc(LENGTH * size + 64);
        for (size_t i = 0; i < LENGTH; i++)
            draw_element(type, src[s] + s + i * size);
    }
    for (int n = 1; n <= SOURCES; n += n < 9 ? 1 : 5) {
        const void *at[SOURCES];
        size_t count = n == 17 || n == 19 ? LENGTH : draw() % 400;
        int alias = (int)(draw() % 3); /* a buffer of its own, the first source, any source */
        unsigned char *dst = out + 7, *kept = NULL;
        int which = alias == 2 && n <= SHUNT__REDUCE_SOURCES ? (int)(draw() % (unsigned)n) : 0;

        for (int s = 0; s < n; s++)
            at[s] = src[s] + s;
        memcpy(want, at[0], count * size);
        for (int s = 1; s < n; s++)
            for (size_t i = 0; i < count; i++)
                reference(op, type, want + i * size, want + i * size, (const unsigned char *)at[s] + i * size);
        if (alias) {
            dst = src[which] + which;
            kept = malloc(count * size + 1);
            memcpy(kept, dst, count * size + 1);
        } else
            memset(out, 0x5a, LENGTH * size + 64);
        shunt__reduce_n(op, type, dst, at, n, count);
        good &= memcmp(dst, want, count * size) == 0;
        if (alias) {
            good &= dst[count * size] == kept[count * size];
            memcpy(dst, kept, count * size);
            free(kept);
        } else
            good &= out[6] == 0x5a && dst[count * size] == 0x5a;
    }
    for (int s = 0; s < SOURCES; s++)
        free(src[s]);
    free(want);
    free(out);
    return good;
}

static int scaling(shunt_type_t type)
{
    size_t size = shunt_type_size(type);
    unsigned char buf[300 * 8], kept[300 * 8], want[300 * 8], scalar[8];
    int good = 1;

    for (int round = 0; round < 50; round++) {
        size_t count = draw() % 300;

        draw_element(type, scalar);
        for (size_t i = 0; i < count; i++) {
            draw_element(type, buf + i * size);
            reference(SHUNT_PROD, type, want + i * size, buf + i * size, scalar);
        }
        shunt__reduce_premul2(type, kept, buf, count, scalar);
        good &= memcmp(kept, want, count * size) == 0;
        shunt__reduce_premul(type, buf, count, scalar);
        good &= memcmp(buf, want, count * size) == 0;
    }
    return good;
}

#define DIVIDE(T, WIDER, type) \
    { \
        T v[517], w[517]; \
\
        for (int n = 1; n < 2000; n = n * 3 / 2 + 1) { \
            for (int i = 0; i < 517; i++) { \
                draw_element(type, &v[i]); \
                if (i % 3 == 0) \
                    v[i] = (T)(v[i] / (WIDER)n * (WIDER)n); \
                if (i % 6 == 0 && v[i] > 0) \
                    v[i]--; /* just below a multiple */ \
                w[i] = (T)(v[i] / (WIDER)n); \
            } \
            shunt__reduce_avg_final(type, v, 517, n); \
            good &= memcmp(v, w, sizeof(v)) == 0; \
        } \
    }

static int division(void)
{
    int good = 1;

    DIVIDE(int8_t, int, SHUNT_INT8)
    DIVIDE(uint8_t, int, SHUNT_UINT8)
    DIVIDE(int32_t, int32_t, SHUNT_INT32)
    DIVIDE(uint32_t, uint32_t, SHUNT_UINT32)
    DIVIDE(int64_t, int64_t, SHUNT_INT64)
    DIVIDE(uint64_t, uint64_t, SHUNT_UINT64)
    return good;
}

static void average_scalars(void)
{
    static const struct {
        shunt_type_t type;
        const struct format *format;
    } small[] = {{SHUNT_FLOAT16, &half_format},
                 {SHUNT_BFLOAT16, &bfloat_format},
                 {SHUNT_FLOAT8E4M3, &e4m3_format},
                 {SHUNT_FLOAT8E5M2, &e5m2_format}};
    int good = 1;

    for (size_t k = 0; k < N(small); k++)
        for (int n = 1; n < 100000; n = n < 3000 ? n + 1 : n * 2) {
            uint16_t got = 0;
            float single = (float)(1.0 / n);

            good &= shunt__reduce_avg_scalar(small[k].type, n, &got);
            if (got != encode(small[k].format, single, 1) && good--)
                printf("# 1/%d as %s is %x, not %x\n", n, shunt_type_name(small[k].type),
                       encode(small[k].format, single, 1), got);
        }
    ok(good == 1, "1/n is rounded to each small type");
    ok(!shunt__reduce_avg_scalar(SHUNT_INT32, 3, &good), "integers have none");
}

/* The thread's own mode must neither show in results nor be lost. */
static void modes(void)
{
#ifdef __SSE__
    float a[20], b[20], want[20], got[20];
    unsigned mode = 0xdfc0, kept = _mm_getcsr(), after; /* round up, flush to zero, denormals are zero, all masked */
    int good = 1;

    for (int i = 0; i < 20; i++) {
        uint32_t bits = i % 2 ? 0x00012345u + (uint32_t)i : 0x3f800001u + (uint32_t)i;

        memcpy(&a[i], &bits, 4);
        bits = i % 2 ? 3 : 0x33000001;
        memcpy(&b[i], &bits, 4);
        reference(SHUNT_SUM, SHUNT_FLOAT32, &want[i], &a[i], &b[i]);
    }
    for (const char *const *isa = shunt__reduce_isas; *isa; isa++) {
        if (!shunt__reduce_choose(*isa))
            continue;
        _mm_setcsr(mode);
        shunt__reduce2(SHUNT_SUM, SHUNT_FLOAT32, got, a, b, 20);
        after = _mm_getcsr();
        _mm_setcsr(kept);
        good &= after == mode && memcmp(got, want, sizeof(got)) == 0;
    }
    shunt__reduce_choose(NULL);
    ok(good, "rounding and flush-to-zero modes of the thread are set aside and put back");
#else
    skip("no control register here");
#endif
}

int main(void)
{
    for (int type = 0; type < SHUNT_N_TYPES; type++)
        exhaustive((shunt_type_t)type);
    for (const char *const *isa = shunt__reduce_isas; *isa; isa++) {
        if (!shunt__reduce_choose(*isa)) {
            skip("this CPU has no %s", *isa);
            continue;
        }
        for (int type = 0; type < SHUNT_N_TYPES; type++) {
            int good = 1;

            for (int op = SHUNT_SUM; op <= SHUNT_MIN; op++)
                good &= many_sources((shunt_type_t)type, (shunt_op_t)op);
            ok(good, "%s: many sources of %s at all lengths, alignments and aliases", *isa,
               shunt_type_name((shunt_type_t)type));
            ok(scaling((shunt_type_t)type), "%s: scaling", *isa);
        }
        ok(division(), "%s: integer averages round towards zero", *isa);
    }
    ok(!shunt__reduce_choose("abacus"), "unknown instructions are refused");
    shunt__reduce_choose(NULL);
    average_scalars();
    modes();
    printf("# this machine uses %s\n", shunt__reduce_isa());
    return done();
}
