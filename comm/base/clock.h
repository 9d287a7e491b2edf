/* SPDX-License-Identifier: BSD-3-Clause */
/* Monotonic time in nanoseconds, from a clock that a test can replace. */
#ifndef SHUNT_BASE_CLOCK_H
#define SHUNT_BASE_CLOCK_H

#include <stdint.h>

#define SHUNT__US 1000ull
#define SHUNT__MS 1000000ull
#define SHUNT__S 1000000000ull

/* Nanoseconds since an arbitrary start; never goes back. Any thread. */
uint64_t shunt__now(void);
/* From now on shunt__now() gives what `fn` gives; NULL restores the system's clock. Tests only. */
void shunt__clock_replace(uint64_t (*fn)(void));

#endif
