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
/*
 * A counter of the processor that costs a few nanoseconds to read, or 0 where there is none: for deciding whether a look at
 * the clock is due. SHUNT__TICKS_SOON of it are one to four microseconds on the processors that have it.
 */
static inline uint64_t shunt__ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    return 0;
#endif
}
#if defined(__x86_64__)
#define SHUNT__TICKS_SOON 4000u
#else
#define SHUNT__TICKS_SOON 50u
#endif
/* Eases a processor's other half, and the exit from a loop that waits for memory to change. */
static inline void shunt__relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* From now on shunt__now() gives what `fn` gives; NULL restores the system's clock. Tests only. */
void shunt__clock_replace(uint64_t (*fn)(void));

#endif
