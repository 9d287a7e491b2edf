/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layout, little-endian: magic 4, version 1, number of addresses 1, port 2, nonce 8, key 32, addresses 76 (family 1, then
 * 4 or 16 bytes), CRC32C of all before 4. The checksum guards against accidents; the key is what protects.
 */
#include "comm/boot/id.h"
#include <string.h>
#include "comm/base/crc32c.h"

#define ID_VERSION 1
#define ADDRESSES_AT 48
#define CRC_AT 124

static const unsigned char magic[4] = {'S', 'h', 'I', 'd'};

void shunt__boot_id_pack(const struct shunt__boot_id *id, unsigned char bytes[SHUNT__BOOT_ID_BYTES])
{
    unsigned char *p = bytes + ADDRESSES_AT;
    uint16_t port = id->n_addresses > 0 ? id->address[0].port : 0;
    uint32_t crc;

    memset(bytes, 0, SHUNT__BOOT_ID_BYTES);
    memcpy(bytes, magic, 4);
    bytes[4] = ID_VERSION;
    memcpy(bytes + 6, &port, 2);
    memcpy(bytes + 8, &id->nonce, 8);
    memcpy(bytes + 16, id->key, SHUNT__BOOT_KEY_BYTES);
    for (int i = 0; i < id->n_addresses && i < SHUNT__BOOT_ID_ADDRESSES; i++) {
        size_t n = id->address[i].family == 4 ? 4 : 16;
        if (p + 1 + n > bytes + CRC_AT)
            continue;
        *p++ = id->address[i].family;
        memcpy(p, id->address[i].ip, n);
        p += n;
        bytes[5]++;
    }
    crc = shunt__crc32c(0, bytes, CRC_AT);
    memcpy(bytes + CRC_AT, &crc, 4);
}

int shunt__boot_id_unpack(const unsigned char bytes[SHUNT__BOOT_ID_BYTES], struct shunt__boot_id *id)
{
    const unsigned char *p = bytes + ADDRESSES_AT;
    struct shunt__boot_id got = {0};
    uint32_t crc;
    uint16_t port;

    memcpy(&crc, bytes + CRC_AT, 4);
    if (memcmp(bytes, magic, 4) != 0 || bytes[4] != ID_VERSION || crc != shunt__crc32c(0, bytes, CRC_AT))
        return -1;
    memcpy(&port, bytes + 6, 2);
    memcpy(&got.nonce, bytes + 8, 8);
    memcpy(got.key, bytes + 16, SHUNT__BOOT_KEY_BYTES);
    if (bytes[5] < 1 || bytes[5] > SHUNT__BOOT_ID_ADDRESSES || port == 0)
        return -1;
    for (int i = 0; i < bytes[5]; i++) {
        struct shunt__boot_address *a = &got.address[got.n_addresses++];
        size_t n;
        if (p >= bytes + CRC_AT || (*p != 4 && *p != 6))
            return -1;
        a->family = *p++;
        a->port = port;
        n = a->family == 4 ? 4 : 16;
        if (p + n > bytes + CRC_AT)
            return -1;
        memcpy(a->ip, p, n);
        p += n;
    }
    *id = got;
    return 0;
}

int shunt__boot_id_valid(const unsigned char bytes[SHUNT__BOOT_ID_BYTES])
{
    struct shunt__boot_id id;

    return bytes && shunt__boot_id_unpack(bytes, &id) == 0;
}
