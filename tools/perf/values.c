/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contributions are 1 and 2, in products mostly 1, so that results are exact in most types; sums of many ranks are
 * compared with room for one rounding per addition.
 */
#include <math.h>
#include <string.h>
#include "tools/perf/perf.h"

/* Sign, exponent and significand of the floating-point types. */
static const struct form {
    int exponent, significand, bias;
} forms[SHUNT_N_TYPES] = {
    [SHUNT_FLOAT16] = {5, 10, 15}, [SHUNT_FLOAT32] = {8, 23, 127}, [SHUNT_FLOAT64] = {11, 52, 1023},
    [SHUNT_BFLOAT16] = {8, 7, 127}, [SHUNT_FLOAT8E4M3] = {4, 3, 7}, [SHUNT_FLOAT8E5M2] = {5, 2, 15},
};

static void encode(void *to, shunt_type_t type, double v)
{
    const struct form *f = &forms[type];
    uint64_t bits;
    int exponent;

    if (!f->exponent) {
        bits = (uint64_t)(int64_t)v;
    } else if (v == 0) {
        bits = 0;
    } else { /* small positive numbers only: cut, never subnormal */
        double fraction = frexp(v, &exponent);

        bits = (uint64_t)(exponent - 1 + f->bias) << f->significand;
        bits |= (uint64_t)((fraction * 2 - 1) * ldexp(1, f->significand));
    }
    memcpy(to, &bits, shunt_type_size(type));
}

static double decode(const void *from, shunt_type_t type)
{
    const struct form *f = &forms[type];
    uint64_t bits = 0, significand;
    int exponent;

    memcpy(&bits, from, shunt_type_size(type));
    exponent = (int)(bits >> f->significand) & ((1 << f->exponent) - 1);
    significand = bits & (((uint64_t)1 << f->significand) - 1);
    if (exponent == (1 << f->exponent) - 1 && type != SHUNT_FLOAT8E4M3)
        return (double)NAN;
    return ldexp((double)significand + (exponent ? ldexp(1, f->significand) : 0),
                 (exponent ? exponent : 1) - f->bias - f->significand);
}

static int contribution(const struct options *o, int rank, int size, size_t i)
{
    if (o->op == SHUNT_PROD)
        return (size_t)rank == i % (size_t)size ? 2 : 1;
    return 1 + (int)((i * 5 + i / 11 + (size_t)rank * 3) % 2);
}

void values_fill(void *buf, const struct options *o, int rank, int size, size_t first, size_t count)
{
    size_t w = shunt_type_size(o->type);
    unsigned char table[3][8];

    for (int v = 0; v < 3; v++)
        encode(table[v], o->type, v);
    for (size_t i = 0; i < count; i++)
        memcpy((char *)buf + i * w, table[contribution(o, rank, size, first + i)], w);
}

void values_reduced(void *buf, const struct options *o, int size, size_t first, size_t count)
{
    size_t w = shunt_type_size(o->type);

    for (size_t i = 0; i < count; i++) {
        double sum = 0, product = 1, most = 0, least = 3, v;

        for (int r = 0; r < size; r++) {
            v = contribution(o, r, size, first + i);
            sum += v;
            product *= v;
            most = v > most ? v : most;
            least = v < least ? v : least;
        }
        v = o->op == SHUNT_SUM ? sum : o->op == SHUNT_PROD ? product : o->op == SHUNT_MAX ? most
            : o->op == SHUNT_MIN ? least : sum / size;
        encode((char *)buf + i * w, o->type, v);
    }
}

uint64_t values_differ(const void *got, const void *want, const struct options *o, int size, int reduced, size_t count)
{
    size_t w = shunt_type_size(o->type);
    double room = forms[o->type].exponent ? ldexp((double)size + 1, -forms[o->type].significand) : 0;
    uint64_t n = 0;

    if (memcmp(got, want, count * w) == 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        const char *g = (const char *)got + i * w, *x = (const char *)want + i * w;

        if (memcmp(g, x, w) == 0)
            continue;
        if (!reduced || room == 0 || !(fabs(decode(g, o->type) - decode(x, o->type)) <= room * decode(x, o->type)))
            n++;
    }
    return n;
}
