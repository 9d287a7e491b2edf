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

/* Texts are made printable when they are read, so a JOIN need not come back as it was; but then it stays the same. */
static void join_settles(const struct shunt__boot_join_message *join)
{
    unsigned char first[SHUNT__BOOT_MAX_FIRST], second[SHUNT__BOOT_MAX_FIRST];
    struct shunt__boot_join_message again;
    size_t len = shunt__boot_join_write(join, first);

    if (len > sizeof(first) || shunt__boot_join_read(first, len, &again) != 0)
        abort();
    same(shunt__boot_join_write(&again, second), second, first, len);
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
    if (shunt__boot_join_read(data, size, &join) == 0)
        join_settles(&join);
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
