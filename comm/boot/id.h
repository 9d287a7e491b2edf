/* SPDX-License-Identifier: BSD-3-Clause */
/* What the 128 bytes of an id say. */
#ifndef SHUNT_BOOT_ID_H
#define SHUNT_BOOT_ID_H

#include "comm/boot/boot.h"
#include "comm/boot/net.h"

#define SHUNT__BOOT_ID_ADDRESSES 15 /* of IPv4; 4 of IPv6 */

struct shunt__boot_id {
    uint64_t nonce;
    unsigned char key[SHUNT__BOOT_KEY_BYTES];
    int n_addresses;
    struct shunt__boot_address address[SHUNT__BOOT_ID_ADDRESSES]; /* of one port */
};

/* Leaves out the addresses for which there is no room. */
void shunt__boot_id_pack(const struct shunt__boot_id *id, unsigned char bytes[SHUNT__BOOT_ID_BYTES]);
/* Nonzero when it is no id of this version; `id` is then unchanged. */
int shunt__boot_id_unpack(const unsigned char bytes[SHUNT__BOOT_ID_BYTES], struct shunt__boot_id *id);

#endif
