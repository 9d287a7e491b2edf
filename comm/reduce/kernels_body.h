/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels themselves, compiled once per set of instructions.
 *
 * Included by a kernels_*.c that has defined, beside what vector.h needs:
 *   TABLE                     the name of its struct shunt__kernels
 *   min_x, max_x              for x = i8 u8 i16 u16 i32 u32 i64 u64
 *   select_gt_x               for x = i8 i16 i32 i64
 *   widen(vu16) -> pair_f32   float16 to float32; which element goes where is its own affair
 *   narrow(pair_f32) -> vu16  the way back, rounding to nearest even; a NaN stays some NaN
 *   half_add, half_mul        float16 arithmetic on vu16
 *
 * A kernel is made of three inline functions: `from` turns a loaded vector into its accumulator, `step` combines the
 * accumulator with another loaded vector, `to` turns it into what is stored. The last elements go through the same
 * code in a padded vector, so they can't come out differently.
 */

/* ---- the loop ---- */

#define KERNEL(name, ACC, from, step, to) \
    static TARGET void name(void *dst_, const void *const *src_, int n, size_t bytes) \
    { \
        const unsigned char *const *src = (const unsigned char *const *)src_; \
        unsigned char *dst = dst_; \
        const unsigned char *first = src[0], *second = src[1]; \
        size_t at = 0; \
\
        if (n == 2) \
            for (; at + 2 * VB <= bytes; at += 2 * VB) { \
                ACC x = from(load(first + at)), y = from(load(first + at + VB)); \
\
                x = step(x, load(second + at)); \
                y = step(y, load(second + at + VB)); \
                store(dst + at, to(x)); \
                store(dst + at + VB, to(y)); \
            } \
        else \
            for (; at + 4 * VB <= bytes; at += 4 * VB) { \
                ACC x = from(load(first + at)), y = from(load(first + at + VB)); \
                ACC z = from(load(first + at + 2 * VB)), w = from(load(first + at + 3 * VB)); \
\
                for (int s = 1; s < n; s++) { \
                    const unsigned char *p = src[s] + at; \
\
                    x = step(x, load(p)); \
                    y = step(y, load(p + VB)); \
                    z = step(z, load(p + 2 * VB)); \
                    w = step(w, load(p + 3 * VB)); \
                } \
                store(dst + at, to(x)); \
                store(dst + at + VB, to(y)); \
                store(dst + at + 2 * VB, to(z)); \
                store(dst + at + 3 * VB, to(w)); \
            } \
        while (at < bytes) { \
            size_t part = bytes - at < VB ? bytes - at : VB; \
            vu8 v = {0}; \
            ACC x; \
\
            memcpy(&v, first + at, part); \
            x = from(v); \
            for (int s = 1; s < n; s++) { \
                memcpy(&v, src[s] + at, part); \
                x = step(x, v); \
            } \
            v = to(x); \
            memcpy(dst + at, &v, part); \
            at += part; \
        } \
    }

#define SCALE(name, SIZE, ACC, from, step, to) \
    static TARGET void name(void *dst_, const void *src_, const void *scalar, size_t bytes) \
    { \
        const unsigned char *src = src_; \
        unsigned char *dst = dst_; \
        vu8 factor, v = {0}; \
        size_t at = 0; \
\
        for (int i = 0; i < VB; i += SIZE) \
            memcpy((unsigned char *)&factor + i, scalar, SIZE); \
        for (; at + VB <= bytes; at += VB) { \
            ACC x = from(load(src + at)); \
\
            x = step(x, factor); \
            store(dst + at, to(x)); \
        } \
        if (at < bytes) { \
            ACC x; \
\
            memcpy(&v, src + at, bytes - at); \
            x = from(v); \
            x = step(x, factor); \
            v = to(x); \
            memcpy(dst + at, &v, bytes - at); \
        } \
    }

INLINE vu8 same(vu8 v)
{
    return v;
}

/* ---- integers ---- */

#define ELEMENTWISE(name, T, expression) \
    INLINE vu8 name(vu8 x_, vu8 y_) \
    { \
        T x = (T)x_, y = (T)y_; \
\
        return (vu8)(expression); \
    }

ELEMENTWISE(add_u8, vu8, x + y)
ELEMENTWISE(add_u32, vu32, x + y)
ELEMENTWISE(add_u64, vu64, x + y)
/* No CPU multiplies bytes: even and odd ones apart, in 16 bits. */
ELEMENTWISE(mul_u8, vu16, ((x * y) & 0xff) | (((x >> 8) * (y >> 8)) << 8))
ELEMENTWISE(mul_u32, vu32, x *y)
ELEMENTWISE(mul_u64, vu64, x *y)
#define MIN_MAX_STEPS(name, T) \
    ELEMENTWISE(step_max_##name, T, max_##name(x, y)) \
    ELEMENTWISE(step_min_##name, T, min_##name(x, y))
MIN_MAX_STEPS(i8, vi8)
MIN_MAX_STEPS(u8, vu8)
MIN_MAX_STEPS(i16, vi16)
MIN_MAX_STEPS(i32, vi32)
MIN_MAX_STEPS(u32, vu32)
MIN_MAX_STEPS(i64, vi64)
MIN_MAX_STEPS(u64, vu64)

#define INTEGER_KERNELS(name) \
    KERNEL(k_max_##name, vu8, same, step_max_##name, same) \
    KERNEL(k_min_##name, vu8, same, step_min_##name, same)
KERNEL(k_sum_u8, vu8, same, add_u8, same)
KERNEL(k_sum_u32, vu8, same, add_u32, same)
KERNEL(k_sum_u64, vu8, same, add_u64, same)
KERNEL(k_prod_u8, vu8, same, mul_u8, same)
KERNEL(k_prod_u32, vu8, same, mul_u32, same)
KERNEL(k_prod_u64, vu8, same, mul_u64, same)
SCALE(k_scale_u8, 1, vu8, same, mul_u8, same)
SCALE(k_scale_u32, 4, vu8, same, mul_u32, same)
SCALE(k_scale_u64, 8, vu8, same, mul_u64, same)
INTEGER_KERNELS(i8)
INTEGER_KERNELS(u8)
INTEGER_KERNELS(i32)
INTEGER_KERNELS(u32)
INTEGER_KERNELS(i64)
INTEGER_KERNELS(u64)

/*
 * Division by the number of ranks. 8 bits through float32 and 32 bits through float64: the quotient is so much shorter
 * than the significand that truncating the rounded one is exact. FROM is a vector of LANES elements, WIDE the
 * vector of the floating-point type.
 */
#define DIVIDE(name, FROM_ELEMENT, LANES, MIDDLE, WIDE, WIDE_ELEMENT) \
    typedef FROM_ELEMENT name##_lanes __attribute__((vector_size(LANES * sizeof(FROM_ELEMENT)))); \
    static TARGET void name(void *buf, int n, size_t count) \
    { \
        FROM_ELEMENT *p = buf; \
        size_t i = 0; \
\
        for (; i + LANES <= count; i += LANES) { \
            name##_lanes v; \
            WIDE w; \
\
            memcpy(&v, p + i, sizeof(v)); \
            w = __builtin_convertvector(v, WIDE) / (WIDE_ELEMENT)n; \
            v = __builtin_convertvector(__builtin_convertvector(w, MIDDLE), name##_lanes); \
            memcpy(p + i, &v, sizeof(v)); \
        } \
        for (; i < count; i++) \
            p[i] = (FROM_ELEMENT)((WIDE_ELEMENT)p[i] / (WIDE_ELEMENT)n); \
    }

typedef int64_t vi64_wide __attribute__((vector_size(VB)));
DIVIDE(k_divide_i8, int8_t, (VB / 4), vi32, vf32, float)
DIVIDE(k_divide_u8, uint8_t, (VB / 4), vi32, vf32, float)
DIVIDE(k_divide_i32, int32_t, (VB / 8), vi64_wide, vf64, double)
DIVIDE(k_divide_u32, uint32_t, (VB / 8), vi64_wide, vf64, double)

static TARGET void k_divide_i64(void *buf, int n, size_t count)
{
    for (int64_t *p = buf, *end = p + count; p < end; p++)
        *p /= n;
}

static TARGET void k_divide_u64(void *buf, int n, size_t count)
{
    for (uint64_t *p = buf, *end = p + count; p < end; p++)
        *p /= (uint64_t)n;
}

/* ---- MAX and MIN of floating-point types ---- */

/*
 * As integers: flipping the lower bits of negative numbers makes their order that of the numbers, with -0 below +0.
 * A NaN becomes the key that always loses; when both lose, the key turns back into a NaN.
 * NEGATIVE(k) is all ones where the sign is set, LARGEST the encoding of the largest value that is no NaN (or at which
 * results saturate).
 */
#define KEYS(name, integer, T, ABS, LIMIT, LARGEST, NEGATIVE) \
    INLINE T key_##name(T x) \
    { \
        return x ^ (NEGATIVE(x) & ABS); \
    } \
    INLINE T clamp_##name(T k) \
    { \
        return LARGEST == LIMIT ? k : min_##integer(max_##integer(k, ALL(T, ~LARGEST)), ALL(T, LARGEST)); \
    } \
    INLINE vu8 from_max_##name(vu8 v) \
    { \
        T x = (T)v; \
\
        return (vu8)select_gt_##integer(x & ABS, ALL(T, LIMIT), ALL(T, ~ABS), clamp_##name(key_##name(x))); \
    } \
    INLINE vu8 from_min_##name(vu8 v) \
    { \
        T x = (T)v; \
\
        return (vu8)select_gt_##integer(x & ABS, ALL(T, LIMIT), ALL(T, ABS), clamp_##name(key_##name(x))); \
    } \
    INLINE vu8 to_min_##name(vu8 k) \
    { \
        return (vu8)key_##name((T)k); \
    } \
    INLINE vu8 to_max_##name(vu8 k) \
    { \
        /* the key that lost to none must give the positive NaN */ \
        return (vu8)select_gt_##integer((T)k, ALL(T, ~ABS), key_##name((T)k), ALL(T, ABS)); \
    }

#define BY_SHIFT_16(x) (x >> 15)
#define BY_SHIFT_32(x) (x >> 31)
#define BY_COMPARE(x) ((vi64)(x < 0))
#define BY_COMPARE_8(x) ((vi8)(x < 0))
KEYS(e4m3, i8, vi8, (int8_t)0x7f, (int8_t)0x7e, (int8_t)0x7e, BY_COMPARE_8)
KEYS(e5m2, i8, vi8, (int8_t)0x7f, (int8_t)0x7c, (int8_t)0x7b, BY_COMPARE_8)
KEYS(f16, i16, vi16, (int16_t)0x7fff, (int16_t)0x7c00, (int16_t)0x7c00, BY_SHIFT_16)
KEYS(bf16, i16, vi16, (int16_t)0x7fff, (int16_t)0x7f80, (int16_t)0x7f80, BY_SHIFT_16)
KEYS(f32, i32, vi32, 0x7fffffff, 0x7f800000, 0x7f800000, BY_SHIFT_32)
KEYS(f64, i64, vi64, (int64_t)0x7fffffffffffffff, (int64_t)0x7ff0000000000000, (int64_t)0x7ff0000000000000, BY_COMPARE)

#define MIN_MAX_KERNELS(name, integer) \
    INLINE vu8 keystep_max_##name(vu8 k, vu8 v) \
    { \
        return step_max_##integer(k, from_max_##name(v)); \
    } \
    INLINE vu8 keystep_min_##name(vu8 k, vu8 v) \
    { \
        return step_min_##integer(k, from_min_##name(v)); \
    } \
    KERNEL(k_max_##name, vu8, from_max_##name, keystep_max_##name, to_max_##name) \
    KERNEL(k_min_##name, vu8, from_min_##name, keystep_min_##name, to_min_##name)
MIN_MAX_KERNELS(e4m3, i8)
MIN_MAX_KERNELS(e5m2, i8)
MIN_MAX_KERNELS(f16, i16)
MIN_MAX_KERNELS(bf16, i16)
MIN_MAX_KERNELS(f32, i32)
MIN_MAX_KERNELS(f64, i64)

/* ---- float32 and float64 ---- */

ELEMENTWISE(add_f32, vf32, x + y)
ELEMENTWISE(mul_f32, vf32, x *y)
ELEMENTWISE(add_f64, vf64, x + y)
ELEMENTWISE(mul_f64, vf64, x *y)

/* Which of two NaNs an addition returns depends on the order of its operands in the instruction, which is the
 * compiler's; so every NaN is replaced at the end. */
INLINE vu8 to_f32(vu8 v)
{
    vi32 x = (vi32)v;

    return (vu8)select_gt_i32(x & 0x7fffffff, ALL(vi32, 0x7f800000), ALL(vi32, 0x7fffffff), x);
}

INLINE vu8 to_f64(vu8 v)
{
    vi64 x = (vi64)v;

    return (vu8)select_gt_i64(x & 0x7fffffffffffffff, ALL(vi64, 0x7ff0000000000000), ALL(vi64, 0x7fffffffffffffff), x);
}

#define SUM_PROD_KERNELS(name, SIZE, ACC, from, add, mul, to) \
    KERNEL(k_sum_##name, ACC, from, add, to) \
    KERNEL(k_prod_##name, ACC, from, mul, to) \
    SCALE(k_scale_##name, SIZE, ACC, from, mul, to)
SUM_PROD_KERNELS(f32, 4, vu8, same, add_f32, mul_f32, to_f32)
SUM_PROD_KERNELS(f64, 8, vu8, same, add_f64, mul_f64, to_f64)

/* ---- bfloat16: even and odd elements as float32, rounded after each operation ---- */

INLINE pair_f32 from_bf16(vu8 v)
{
    vu32 x = (vu32)v;

    return (pair_f32){(vf32)(x << 16), (vf32)(x & 0xffff0000u)};
}

INLINE vf32 round_bf16(vf32 x)
{
    vu32 u = (vu32)x;
    vu32 rounded = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;

    return (vf32)select_gt_i32((vi32)u & 0x7fffffff, ALL(vi32, 0x7f800000), ALL(vi32, 0x7fff0000), (vi32)rounded);
}

INLINE pair_f32 add_bf16(pair_f32 x, vu8 v)
{
    pair_f32 y = from_bf16(v);

    return (pair_f32){round_bf16(x.a + y.a), round_bf16(x.b + y.b)};
}

INLINE pair_f32 mul_bf16(pair_f32 x, vu8 v)
{
    pair_f32 y = from_bf16(v);

    return (pair_f32){round_bf16(x.a * y.a), round_bf16(x.b * y.b)};
}

INLINE vu8 to_bf16(pair_f32 x)
{
    return (vu8)(((vu32)x.a >> 16) | (vu32)x.b);
}

SUM_PROD_KERNELS(bf16, 2, pair_f32, from_bf16, add_bf16, mul_bf16, to_bf16)

/* ---- float16 ---- */

ELEMENTWISE(add_f16, vu16, half_add(x, y))
ELEMENTWISE(mul_f16, vu16, half_mul(x, y))

INLINE vu8 to_f16(vu8 v)
{
    vi16 x = (vi16)v;

    return (vu8)select_gt_i16(x & 0x7fff, ALL(vi16, 0x7c00), ALL(vi16, 0x7fff), x);
}

SUM_PROD_KERNELS(f16, 2, vu8, same, add_f16, mul_f16, to_f16)

/* ---- float8 e5m2: the upper half of a float16 ---- */

INLINE pair_u16 from_e5m2(vu8 v)
{
    vu16 x = (vu16)v;

    return (pair_u16){x << 8, x & 0xff00};
}

/* Rounds off the lowest bits, at most to the largest finite value. As signed numbers the encodings without the sign bit
 * are the positive ones, as unsigned numbers those with it the large ones, so that each clamp touches its own kind. */
INLINE vu16 round_half(vu16 x, int bits, uint16_t largest, uint16_t nan)
{
    uint16_t below_half = (uint16_t)((1 << (bits - 1)) - 1), kept = (uint16_t)(0xffff << bits);
    vu16 rounded = x + below_half + ((x >> bits) & 1);

    rounded = (vu16)min_i16((vi16)rounded, ALL(vi16, (int16_t)(largest | (uint16_t)~kept)));
    rounded = min_u16(rounded, ALL(vu16, (uint16_t)(0x8000 | largest | (uint16_t)~kept))) & kept;
    return (vu16)select_gt_i16((vi16)(x & 0x7fff), ALL(vi16, 0x7c00), ALL(vi16, (int16_t)nan), (vi16)rounded);
}

INLINE vu16 round_e5m2(vu16 x)
{
    return round_half(x, 8, 0x7b00, 0x7f00);
}

INLINE pair_u16 add_e5m2(pair_u16 x, vu8 v)
{
    pair_u16 y = from_e5m2(v);

    return (pair_u16){round_e5m2(half_add(x.a, y.a)), round_e5m2(half_add(x.b, y.b))};
}

INLINE pair_u16 mul_e5m2(pair_u16 x, vu8 v)
{
    pair_u16 y = from_e5m2(v);

    return (pair_u16){round_e5m2(half_mul(x.a, y.a)), round_e5m2(half_mul(x.b, y.b))};
}

INLINE vu8 to_e5m2(pair_u16 x)
{
    return (vu8)((x.a >> 8) | x.b);
}

SUM_PROD_KERNELS(e5m2, 1, pair_u16, from_e5m2, add_e5m2, mul_e5m2, to_e5m2)

/* ---- float8 e4m3 ---- */

/*
 * Moved one bit down into a float16, sign apart, the encoding is that of the value / 256, subnormals included. Sums
 * are taken in that scale: float16 rounds them as it would the unscaled ones (below its normal range they are exact).
 * The one NaN would read as 480 / 256; adding one unit carries into the exponent's top bit for it alone.
 */
INLINE vu16 scaled_e4m3(vi16 x)
{
    vu16 h = (vu16)((x >> 1) & (int16_t)0xbf80);

    return h | ((h + 0x80) & 0x4000);
}

INLINE pair_u16 from_e4m3(vu8 v)
{
    vi16 x = (vi16)v;

    return (pair_u16){scaled_e4m3(x << 8), scaled_e4m3(x)};
}

INLINE vu16 round_e4m3(vu16 x)
{
    return round_half(x, 7, 0x3f00, 0x7f80);
}

INLINE pair_u16 add_e4m3(pair_u16 x, vu8 v)
{
    pair_u16 y = from_e4m3(v);

    return (pair_u16){round_e4m3(half_add(x.a, y.a)), round_e4m3(half_add(x.b, y.b))};
}

/* A product of two scaled values in the same scale, as float32. Where it is subnormal in e4m3, float16 has too few
 * bits to hold it until it is rounded: adding and taking away 96, whose last bit is worth e4m3's, rounds it here. */
INLINE vf32 scaled_product(vf32 x, vf32 y)
{
    vf32 product = x * y * 256.0f;
    vi32 bits = (vi32)product, subnormal = (vi32)((bits & 0x7fffffff) < 0x38800000); /* 2^-14 */
    vi32 rounded = (vi32)((product + 96.0f) - 96.0f) | (bits & (int32_t)0x80000000);

    return (vf32)SELECT(vi32, subnormal, rounded, bits);
}

INLINE vu16 half_product_e4m3(vu16 x, vu16 y)
{
    pair_f32 p = widen(x), q = widen(y);

    return round_e4m3(narrow((pair_f32){scaled_product(p.a, q.a), scaled_product(p.b, q.b)}));
}

INLINE pair_u16 mul_e4m3(pair_u16 x, vu8 v)
{
    pair_u16 y = from_e4m3(v);

    return (pair_u16){half_product_e4m3(x.a, y.a), half_product_e4m3(x.b, y.b)};
}

INLINE vu16 upper_byte_e4m3(vu16 h)
{
    return (h & 0x8000) | ((h << 1) & 0x7f00);
}

INLINE vu8 to_e4m3(pair_u16 x)
{
    return (vu8)((upper_byte_e4m3(x.a) >> 8) | upper_byte_e4m3(x.b));
}

SUM_PROD_KERNELS(e4m3, 1, pair_u16, from_e4m3, add_e4m3, mul_e4m3, to_e4m3)

/* ---- the table ---- */

const struct shunt__kernels TABLE = {
    .reduce = {
        [SHUNT_INT8] = {k_sum_u8, k_prod_u8, k_max_i8, k_min_i8},
        [SHUNT_UINT8] = {k_sum_u8, k_prod_u8, k_max_u8, k_min_u8},
        [SHUNT_INT32] = {k_sum_u32, k_prod_u32, k_max_i32, k_min_i32},
        [SHUNT_UINT32] = {k_sum_u32, k_prod_u32, k_max_u32, k_min_u32},
        [SHUNT_INT64] = {k_sum_u64, k_prod_u64, k_max_i64, k_min_i64},
        [SHUNT_UINT64] = {k_sum_u64, k_prod_u64, k_max_u64, k_min_u64},
        [SHUNT_FLOAT16] = {k_sum_f16, k_prod_f16, k_max_f16, k_min_f16},
        [SHUNT_FLOAT32] = {k_sum_f32, k_prod_f32, k_max_f32, k_min_f32},
        [SHUNT_FLOAT64] = {k_sum_f64, k_prod_f64, k_max_f64, k_min_f64},
        [SHUNT_BFLOAT16] = {k_sum_bf16, k_prod_bf16, k_max_bf16, k_min_bf16},
        [SHUNT_FLOAT8E4M3] = {k_sum_e4m3, k_prod_e4m3, k_max_e4m3, k_min_e4m3},
        [SHUNT_FLOAT8E5M2] = {k_sum_e5m2, k_prod_e5m2, k_max_e5m2, k_min_e5m2},
    },
    .scale = {
        [SHUNT_INT8] = k_scale_u8, [SHUNT_UINT8] = k_scale_u8, [SHUNT_INT32] = k_scale_u32,
        [SHUNT_UINT32] = k_scale_u32, [SHUNT_INT64] = k_scale_u64, [SHUNT_UINT64] = k_scale_u64,
        [SHUNT_FLOAT16] = k_scale_f16, [SHUNT_FLOAT32] = k_scale_f32, [SHUNT_FLOAT64] = k_scale_f64,
        [SHUNT_BFLOAT16] = k_scale_bf16, [SHUNT_FLOAT8E4M3] = k_scale_e4m3, [SHUNT_FLOAT8E5M2] = k_scale_e5m2,
    },
    .divide = {
        [SHUNT_INT8] = k_divide_i8, [SHUNT_UINT8] = k_divide_u8, [SHUNT_INT32] = k_divide_i32,
        [SHUNT_UINT32] = k_divide_u32, [SHUNT_INT64] = k_divide_i64, [SHUNT_UINT64] = k_divide_u64,
    },
};
