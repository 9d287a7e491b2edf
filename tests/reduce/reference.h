/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What reductions must give, element by element and as plainly as possible: small floating-point types are decoded to
 * double, where sums and products of two of them are exact, and encoded again by dividing by the size of the last bit.
 */
#ifndef SHUNT_TESTS_REDUCE_REFERENCE_H
#define SHUNT_TESTS_REDUCE_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <shunt/types.h>

struct format {
    int exponent_bits, significand_bits;
    int has_infinity;
    unsigned largest; /* encoding of the largest finite value */
};

static const struct format half_format = {5, 10, 1, 0x7bff}, bfloat_format = {8, 7, 1, 0x7f7f},
                           e4m3_format = {4, 3, 0, 0x7e}, e5m2_format = {5, 2, 1, 0x7b};

static inline double decode(const struct format *f, unsigned bits)
{
    int width = f->exponent_bits + f->significand_bits, bias = (1 << (f->exponent_bits - 1)) - 1;
    unsigned magnitude = bits & ((1u << width) - 1), exponent = magnitude >> f->significand_bits;
    unsigned fraction = magnitude & ((1u << f->significand_bits) - 1);
    double v;

    if (magnitude > f->largest)
        v = f->has_infinity && fraction == 0 ? INFINITY : NAN;
    else if (exponent == 0)
        v = ldexp(fraction, 1 - bias - f->significand_bits);
    else
        v = ldexp(fraction + (1u << f->significand_bits), (int)exponent - bias - f->significand_bits);
    return bits >> width ? -v : v;
}

/* Rounds to nearest even; beyond the largest value an infinity, or that value if `saturate`. */
static inline unsigned encode(const struct format *f, double v, int saturate)
{
    int width = f->exponent_bits + f->significand_bits, bias = (1 << (f->exponent_bits - 1)) - 1, exponent;
    unsigned sign = signbit(v) ? 1u << width : 0, code;
    double magnitude = fabs(v), units;

    if (isnan(v))
        return (1u << width) - 1;
    if (isinf(v))
        return sign | (saturate ? f->largest : f->largest + 1);
    frexp(magnitude, &exponent); /* in [0.5, 1) * 2^exponent */
    exponent -= 1;
    if (exponent < 1 - bias || magnitude == 0)
        exponent = 1 - bias;
    units = rint(ldexp(magnitude, f->significand_bits - exponent));
    if (exponent > 2 * bias + 2)
        return sign | (saturate ? f->largest : f->largest + 1);
    code = ((unsigned)(exponent + bias - 1) << f->significand_bits) + (unsigned)units;
    if (code > f->largest)
        code = saturate ? f->largest : f->largest + 1;
    return sign | code;
}

static inline double choose_max(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) ? b : a;
    if (a == b)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}

static inline double combine(shunt_op_t op, double a, double b)
{
    switch (op) {
    case SHUNT_PROD:
        return a * b;
    case SHUNT_MAX:
        return choose_max(a, b);
    case SHUNT_MIN:
        return -choose_max(-a, -b);
    default:
        return a + b;
    }
}

static inline unsigned reference_small(const struct format *f, shunt_op_t op, unsigned a, unsigned b)
{
    double r = combine(op, decode(f, a), decode(f, b));

    if (f == &half_format)
        return encode(f, r, 0);
    if (f == &bfloat_format) {
        /* a NaN's sign must not reach the conversion */
        return encode(f, isnan(r) ? NAN : (double)(float)r, 0);
    }
    /* float8 is computed in float16 */
    return encode(f, decode(&half_format, encode(&half_format, r, 0)), 1);
}

#define REFERENCE_INTEGER(T, U) \
    { \
        T a, b, r; \
\
        memcpy(&a, x, sizeof(a)); \
        memcpy(&b, y, sizeof(b)); \
        r = op == SHUNT_PROD  ? (T)((U)a * (U)b) \
            : op == SHUNT_MAX ? (a > b ? a : b) \
            : op == SHUNT_MIN ? (a < b ? a : b) \
                              : (T)((U)a + (U)b); \
        memcpy(out, &r, sizeof(r)); \
        break; \
    }

/* out = x op y for one element; out may be x or y. */
static inline void reference(shunt_op_t op, shunt_type_t type, void *out, const void *x, const void *y)
{
    switch (type) {
    case SHUNT_INT8:
        REFERENCE_INTEGER(int8_t, uint32_t)
    case SHUNT_UINT8:
        REFERENCE_INTEGER(uint8_t, uint32_t)
    case SHUNT_INT32:
        REFERENCE_INTEGER(int32_t, uint32_t)
    case SHUNT_UINT32:
        REFERENCE_INTEGER(uint32_t, uint32_t)
    case SHUNT_INT64:
        REFERENCE_INTEGER(int64_t, uint64_t)
    case SHUNT_UINT64:
        REFERENCE_INTEGER(uint64_t, uint64_t)
    case SHUNT_FLOAT16:
    case SHUNT_BFLOAT16: {
        uint16_t a, b;

        memcpy(&a, x, 2);
        memcpy(&b, y, 2);
        a = (uint16_t)reference_small(type == SHUNT_FLOAT16 ? &half_format : &bfloat_format, op, a, b);
        memcpy(out, &a, 2);
        break;
    }
    case SHUNT_FLOAT8E4M3:
    case SHUNT_FLOAT8E5M2: {
        uint8_t a = *(const uint8_t *)x, b = *(const uint8_t *)y;

        *(uint8_t *)out =
            (uint8_t)reference_small(type == SHUNT_FLOAT8E4M3 ? &e4m3_format : &e5m2_format, op, a, b);
        break;
    }
    case SHUNT_FLOAT32: {
        float a, b, r;
        uint32_t nan = 0x7fffffff;

        memcpy(&a, x, 4);
        memcpy(&b, y, 4);
        r = op == SHUNT_SUM ? a + b : op == SHUNT_PROD ? a * b : (float)combine(op, a, b);
        memcpy(out, isnan(r) ? (void *)&nan : (void *)&r, 4);
        break;
    }
    default: {
        double a, b, r;
        uint64_t nan = 0x7fffffffffffffff;

        memcpy(&a, x, 8);
        memcpy(&b, y, 8);
        r = combine(op, a, b);
        memcpy(out, isnan(r) ? (void *)&nan : (void *)&r, 8);
    }
    }
}

#endif
