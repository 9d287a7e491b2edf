/* SPDX-License-Identifier: BSD-3-Clause */
/* Packed topologies of strangers, their length and checksum put right so that what is inside is reached. */
#include <shunt/topo.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void use(const uint8_t *data, size_t size)
{
    shunt_topo_t *topo, *again;
    void *packed = NULL;
    char *text;
    size_t n;

    if (shunt_topo_unpack(data, size, &topo) != SHUNT_OK)
        return;
    for (int format = SHUNT_TOPO_TEXT; format <= SHUNT_TOPO_HWLOC; format++)
        if (shunt_topo_export(topo, (shunt_topo_format_t)format, &text, &n) == SHUNT_OK)
            free(text);
    if (shunt_topo_pack(topo, &packed, &n) == SHUNT_OK) {
        if (shunt_topo_unpack(packed, n, &again) != SHUNT_OK)
            abort();
        shunt_topo_destroy(again);
        free(packed);
    }
    shunt_topo_destroy(topo);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;

    use(data, size);
    if (size < 20)
        return 0;
    copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    memcpy(copy, "SHNTTOPO", 8);
    put(copy + 8, 1);
    put(copy + 12, (uint32_t)(size - 20));
    put(copy + 16, shunt__crc32c(0, copy + 20, size - 20));
    use(copy, size);
    free(copy);
    return 0;
}
