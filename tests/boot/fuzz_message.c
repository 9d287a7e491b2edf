/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a message of the bootstrap; what is understood must come back the same. */
#include <stdlib.h>
#include <string.h>
#include "comm/boot/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(size_t len, const unsigned char *written, const uint8_t *data, size_t size)
{
    if (len != size || memcmp(written, data, size) != 0)
        abort();
}

/* Texts are made printable when they are read: only those that were already come back the same. */
static int printable(const char *text, const uint8_t *data, size_t size)
{
    size_t n = strlen(text);

    return n == 0 || memmem(data, size, text, n) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char out[SHUNT__BOOT_MAX_MESSAGE + 64];
    struct shunt__boot_join_message join;
    struct shunt__boot_start_message start;
    struct shunt__boot_child_message child;
    struct shunt__boot_fail_message fail;
    struct shunt__boot_step_message step;
    const unsigned char *entry;
    size_t at = SHUNT__BOOT_STEP_HEAD, len;
    int rank, got;

    if (size > SHUNT__BOOT_MAX_MESSAGE)
        return 0;
    shunt__boot_message_type(data, size);
    if (shunt__boot_join_read(data, size, &join) == 0 && strlen(join.host) < sizeof(join.host)) {
        len = shunt__boot_join_write(&join, out);
        if (len > SHUNT__BOOT_MAX_FIRST)
            abort();
        if (len == size && printable(join.host, data, size))
            same(len, out, data, size);
    }
    if (shunt__boot_start_read(data, size, &start) == 0)
        same(shunt__boot_start_write(&start, out), out, data, size);
    if (shunt__boot_child_read(data, size, &child) == 0)
        same(shunt__boot_child_write(&child, out), out, data, size);
    if (shunt__boot_fail_read(data, size, &fail) == 0 && fail.status >= 0)
        abort();
    if (shunt__boot_step_read(data, size, &step) == 0) {
        if (shunt__boot_step_write(&step, out) != SHUNT__BOOT_STEP_HEAD)
            abort();
        while ((got = shunt__boot_entry_read(data, size, &at, &rank, &entry, &len)) > 0)
            if (entry + len > data + size || at > size)
                abort();
    }
    return 0;
}
