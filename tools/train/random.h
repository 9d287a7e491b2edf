/* SPDX-License-Identifier: BSD-3-Clause */
/* Seeded random numbers that are the same everywhere: SplitMix64 (Steele, Lea, Flood 2014). */
#ifndef SHUNT_TRAIN_RANDOM_H
#define SHUNT_TRAIN_RANDOM_H

#include <math.h>
#include <stdint.h>

static inline uint64_t random_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t random_next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return random_mix(*state);
}

/* (0, 1] */
static inline double random_unit(uint64_t *state)
{
    return (double)((random_next(state) >> 11) + 1) * 0x1p-53;
}

/* Standard normal, by Box and Muller. */
static inline float random_normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(random_unit(state)));

    return (float)(radius * cos(6.283185307179586 * random_unit(state)));
}

#endif
