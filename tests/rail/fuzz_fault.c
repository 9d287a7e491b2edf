/* SPDX-License-Identifier: BSD-3-Clause */
/* Fault scripts: whatever is read can be printed, and what is printed reads as the same. */
#include <stdlib.h>
#include <string.h>
#include "comm/rail/fault_script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shunt__fault_script s, t;
    char *text = malloc(size + 1), *printed, *again;

    memcpy(text, data, size);
    text[size] = 0;
    if (shunt__fault_parse(text, &s) == SHUNT_OK) {
        printed = shunt__fault_print(&s);
        if (!printed || shunt__fault_parse(printed, &t) != SHUNT_OK)
            abort();
        again = shunt__fault_print(&t);
        if (!again || strcmp(printed, again) != 0)
            abort();
        shunt__fault_free(&s);
        shunt__fault_free(&t);
        free(printed);
        free(again);
    }
    free(text);
    return 0;
}
