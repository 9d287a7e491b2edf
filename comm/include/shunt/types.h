/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt/types.h - element types and operators, with NCCL's numeric values.
 *
 * The functions are pure: any thread, any time.
 */
#ifndef SHUNT_TYPES_H
#define SHUNT_TYPES_H

#include <stddef.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shunt_type {
    SHUNT_INT8 = 0,
    SHUNT_UINT8 = 1,
    SHUNT_INT32 = 2,
    SHUNT_UINT32 = 3,
    SHUNT_INT64 = 4,
    SHUNT_UINT64 = 5,
    SHUNT_FLOAT16 = 6, /* IEEE 754 binary16 */
    SHUNT_FLOAT32 = 7,
    SHUNT_FLOAT64 = 8,
    SHUNT_BFLOAT16 = 9,    /* the upper half of a float32 */
    SHUNT_FLOAT8E4M3 = 10, /* 4 bits of exponent, no infinity, largest 448 */
    SHUNT_FLOAT8E5M2 = 11, /* 5 bits of exponent, largest 57344 */
    SHUNT_N_TYPES = 12
} shunt_type_t;

/*
 * How the contributions of several ranks become one. Integers wrap. In floating point each single operation rounds to
 * nearest even in the element type; float8 results saturate at the largest finite value, also where an operand was
 * infinite. A NaN that comes out has every bit below its sign set and the sign clear. MAX and MIN pass over a NaN beside
 * a number and take -0 as less than +0.
 *
 * AVG of a floating-point type multiplies each contribution by 1/n, rounded to the element type, before it is added;
 * AVG of integers adds and then divides, rounding towards zero.
 */
typedef enum shunt_op {
    SHUNT_SUM = 0,
    SHUNT_PROD = 1,
    SHUNT_MAX = 2,
    SHUNT_MIN = 3,
    SHUNT_AVG = 4,
    SHUNT_N_OPS = 5,           /* values from here on come from shunt_op_create_premul_sum() */
    SHUNT_OP_MAX = 0x7fffffff
} shunt_op_t;

/* Bytes of one element; 0 for a value that is not a type. */
SHUNT_API size_t shunt_type_size(shunt_type_t type);
/* "float32" and the like; "unknown" for a value that is not a type. Static. */
SHUNT_API const char *shunt_type_name(shunt_type_t type);
SHUNT_API const char *shunt_op_name(shunt_op_t op);
/* The value of a name as printed above ("float", "half", "bf16" and the like are understood too); NOT_FOUND. */
SHUNT_API shunt_status_t shunt_type_parse(const char *name, shunt_type_t *type);
SHUNT_API shunt_status_t shunt_op_parse(const char *name, shunt_op_t *op);

#ifdef __cplusplus
}
#endif
#endif
