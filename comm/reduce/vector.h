/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Vector types of VB bytes, as the compilers' vector extension gives them, for the kernels of one set of instructions.
 *
 * Included by a kernels_*.c after it has defined VB and TARGET (the attribute every function of the file carries,
 * so that one build of the library holds them all).
 */
#include <stdint.h>
#include <string.h>
#include "comm/reduce/kernels.h"

#define INLINE static inline __attribute__((always_inline, unused)) TARGET

typedef uint8_t vu8 __attribute__((vector_size(VB)));
typedef int8_t vi8 __attribute__((vector_size(VB)));
typedef uint16_t vu16 __attribute__((vector_size(VB)));
typedef int16_t vi16 __attribute__((vector_size(VB)));
typedef uint32_t vu32 __attribute__((vector_size(VB)));
typedef int32_t vi32 __attribute__((vector_size(VB)));
typedef uint64_t vu64 __attribute__((vector_size(VB)));
typedef int64_t vi64 __attribute__((vector_size(VB)));
typedef float vf32 __attribute__((vector_size(VB)));
typedef double vf64 __attribute__((vector_size(VB)));
typedef uint8_t unaligned_vu8 __attribute__((vector_size(VB), aligned(1), may_alias));

/* Two vectors that hold the elements of one vector of half the width. */
typedef struct {
    vf32 a, b;
} pair_f32;
typedef struct {
    vu16 a, b;
} pair_u16;

#define ALL(T, value) ((T){0} + (value))

INLINE vu8 load(const unsigned char *p)
{
    return *(const unaligned_vu8 *)p;
}

INLINE void store(unsigned char *p, vu8 v)
{
    *(unaligned_vu8 *)p = v;
}

/* mask ? yes : no, all three of type T; a mask is all ones or all zeros per element. */
#define SELECT(T, mask, yes, no) (((T)(mask) & (yes)) | (~(T)(mask) & (no)))

#define GENERIC_MIN_MAX(name, T) \
    INLINE T min_##name(T x, T y) \
    { \
        return SELECT(T, x < y, x, y); \
    } \
    INLINE T max_##name(T x, T y) \
    { \
        return SELECT(T, x < y, y, x); \
    }

#define NATIVE_MIN_MAX(name, T, V, low, high) \
    INLINE T min_##name(T x, T y) \
    { \
        return (T)low((V)x, (V)y); \
    } \
    INLINE T max_##name(T x, T y) \
    { \
        return (T)high((V)x, (V)y); \
    }

/* select_gt_n(x, y, yes, no): per element x > y ? yes : no, x and y signed. */
#define GENERIC_SELECT_GT(name, T) \
    INLINE T select_gt_##name(T x, T y, T yes, T no) \
    { \
        return SELECT(T, x > y, yes, no); \
    }
