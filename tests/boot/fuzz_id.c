/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as an id, with the checksum put right so that the rest is looked at. */
#include <stdlib.h>
#include <string.h>
#include "comm/base/crc32c.h"
#include "comm/boot/id.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES] = {0}, again[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_id parts, back;
    uint32_t crc;

    memcpy(id, data, size < sizeof(id) ? size : sizeof(id));
    shunt__boot_id_valid(id);
    crc = shunt__crc32c(0, id, 124);
    memcpy(id + 124, &crc, 4);
    if (shunt__boot_id_unpack(id, &parts) != 0)
        return 0;
    shunt__boot_id_pack(&parts, again);
    if (shunt__boot_id_unpack(again, &back) != 0 || back.n_addresses != parts.n_addresses || back.nonce != parts.nonce)
        abort();
    for (int i = 0; i < parts.n_addresses; i++) {
        char a[SHUNT__BOOT_ADDRESS_TEXT], b[SHUNT__BOOT_ADDRESS_TEXT];
        if (strcmp(shunt__boot_address_text(&parts.address[i], a), shunt__boot_address_text(&back.address[i], b)) != 0)
            abort();
    }
    return 0;
}
