/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and sizes of element types and operators. */
#include <string.h>
#include <strings.h>
#include <shunt/types.h>
#include "comm/base/log.h"

#define N_ALIASES 4

static const struct {
    size_t size;
    const char *name;
    const char *alias[N_ALIASES];
} types[SHUNT_N_TYPES] = {
    [SHUNT_INT8] = {1, "int8", {"char"}},
    [SHUNT_UINT8] = {1, "uint8", {"byte"}},
    [SHUNT_INT32] = {4, "int32", {"int"}},
    [SHUNT_UINT32] = {4, "uint32", {"uint"}},
    [SHUNT_INT64] = {8, "int64", {"long"}},
    [SHUNT_UINT64] = {8, "uint64", {"ulong"}},
    [SHUNT_FLOAT16] = {2, "float16", {"half", "fp16", "f16"}},
    [SHUNT_FLOAT32] = {4, "float32", {"float", "fp32", "f32"}},
    [SHUNT_FLOAT64] = {8, "float64", {"double", "fp64", "f64"}},
    [SHUNT_BFLOAT16] = {2, "bfloat16", {"bf16"}},
    [SHUNT_FLOAT8E4M3] = {1, "float8e4m3", {"f8e4m3", "fp8_e4m3", "float8_e4m3fn", "fp8e4m3"}},
    [SHUNT_FLOAT8E5M2] = {1, "float8e5m2", {"f8e5m2", "fp8_e5m2", "float8_e5m2", "fp8e5m2"}},
};

static const struct {
    const char *name;
    const char *alias[N_ALIASES];
} ops[SHUNT_N_OPS] = {
    [SHUNT_SUM] = {"sum", {"add"}},
    [SHUNT_PROD] = {"prod", {"product", "mul"}},
    [SHUNT_MAX] = {"max", {"maximum"}},
    [SHUNT_MIN] = {"min", {"minimum"}},
    [SHUNT_AVG] = {"avg", {"average", "mean"}},
};

size_t shunt_type_size(shunt_type_t type)
{
    return (unsigned)type < SHUNT_N_TYPES ? types[type].size : 0;
}

const char *shunt_type_name(shunt_type_t type)
{
    return (unsigned)type < SHUNT_N_TYPES ? types[type].name : "unknown";
}

const char *shunt_op_name(shunt_op_t op)
{
    return (unsigned)op < SHUNT_N_OPS ? ops[op].name : "unknown";
}

static int matches(const char *text, const char *name, const char *const *alias)
{
    if (strcasecmp(text, name) == 0)
        return 1;
    for (int i = 0; i < N_ALIASES && alias[i]; i++)
        if (strcasecmp(text, alias[i]) == 0)
            return 1;
    return 0;
}

shunt_status_t shunt_type_parse(const char *text, shunt_type_t *type)
{
    if (!text || !type)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_type_parse: text and type must not be NULL");
    for (int i = 0; i < SHUNT_N_TYPES; i++)
        if (matches(text, types[i].name, types[i].alias)) {
            *type = (shunt_type_t)i;
            return SHUNT_OK;
        }
    return shunt__fail(SHUNT_ERR_NOT_FOUND,
                       "\"%.40s\" is no element type; use int8, uint8, int32, uint32, int64, uint64, float16, float32, "
                       "float64, bfloat16, float8e4m3 or float8e5m2",
                       text);
}

shunt_status_t shunt_op_parse(const char *text, shunt_op_t *op)
{
    if (!text || !op)
        return shunt__fail(SHUNT_ERR_INVALID, "shunt_op_parse: text and op must not be NULL");
    for (int i = 0; i < SHUNT_N_OPS; i++)
        if (matches(text, ops[i].name, ops[i].alias)) {
            *op = (shunt_op_t)i;
            return SHUNT_OK;
        }
    return shunt__fail(SHUNT_ERR_NOT_FOUND,
                       "\"%.40s\" is no reduction operator; use sum, prod, max, min or avg", text);
}
