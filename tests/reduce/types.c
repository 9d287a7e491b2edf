/* SPDX-License-Identifier: BSD-3-Clause */
/* Names, sizes and numbers of element types and operators. */
#include <shunt/types.h>
#include "tests/tap.h"

int main(void)
{
    static const size_t sizes[SHUNT_N_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    shunt_type_t type = SHUNT_INT8;
    shunt_op_t op = SHUNT_SUM;

    for (int i = 0; i < SHUNT_N_TYPES; i++) {
        is_int(shunt_type_size((shunt_type_t)i), sizes[i], "size of %s", shunt_type_name((shunt_type_t)i));
        ok(shunt_type_parse(shunt_type_name((shunt_type_t)i), &type) == SHUNT_OK && type == (shunt_type_t)i,
           "its name is parsed back");
    }
    for (int i = 0; i < SHUNT_N_OPS; i++)
        ok(shunt_op_parse(shunt_op_name((shunt_op_t)i), &op) == SHUNT_OK && op == (shunt_op_t)i, "operator %s",
           shunt_op_name((shunt_op_t)i));
    ok(shunt_type_parse("Half", &type) == SHUNT_OK && type == SHUNT_FLOAT16, "another word for a type");
    is_int(shunt_type_size((shunt_type_t)99), 0, "no type has no size");
    is_str(shunt_type_name((shunt_type_t)-1), "unknown", "nor a name");
    is_int(shunt_type_parse("float33", &type), SHUNT_ERR_NOT_FOUND, "an unknown type is refused");
    ok(type == SHUNT_FLOAT16 && strstr(shunt_error_text(), "bfloat16"), "and told: %s", shunt_error_text());
    is_int(shunt_op_parse("xor", &op), SHUNT_ERR_NOT_FOUND, "an unknown operator is refused");
    is_int(shunt_op_parse(NULL, &op), SHUNT_ERR_INVALID, "NULL is refused");
    return done();
}
