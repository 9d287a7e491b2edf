/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/base/clock.h"
#include <stddef.h>
#include <time.h>

static uint64_t (*replacement)(void);

uint64_t shunt__now(void)
{
    struct timespec t;

    if (__builtin_expect(replacement != NULL, 0))
        return replacement();
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SHUNT__S + (uint64_t)t.tv_nsec;
}

void shunt__clock_replace(uint64_t (*fn)(void))
{
    replacement = fn;
}
