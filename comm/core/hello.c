/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/core/hello.h"
#include <sodium.h>
#include <string.h>

#define BODY 64

size_t shunt__hello_pack(const struct shunt__hello *h, const unsigned char key[32], void *buf)
{
    unsigned char *p = buf;

    memset(p, 0, BODY);
    memcpy(p, "ShH1", 4);
    memcpy(p + 4, h->from, 16);
    memcpy(p + 20, h->to, 16);
    memcpy(p + 36, h->nonce, 16);
    memcpy(p + 52, &h->generation, 4);
    p[56] = h->rail_from;
    p[57] = h->rail_to;
    p[58] = h->leaving;
    crypto_generichash(p + BODY, 32, p, BODY, key, 32);
    return BODY + 32;
}

int shunt__hello_unpack(const void *buf, size_t len, const unsigned char key[32], struct shunt__hello *h)
{
    const unsigned char *p = buf;
    unsigned char mac[32];

    if (len != SHUNT__HELLO_BYTES || memcmp(p, "ShH1", 4) != 0)
        return -1;
    crypto_generichash(mac, 32, p, BODY, key, 32);
    if (sodium_memcmp(mac, p + BODY, 32) != 0)
        return -1;
    memcpy(h->from, p + 4, 16);
    memcpy(h->to, p + 20, 16);
    memcpy(h->nonce, p + 36, 16);
    memcpy(&h->generation, p + 52, 4);
    h->rail_from = p[56];
    h->rail_to = p[57];
    h->leaving = p[58];
    return 0;
}

int shunt__hello_peek(const void *buf, size_t len, unsigned char from[16])
{
    if (len != SHUNT__HELLO_BYTES)
        return -1;
    memcpy(from, (const unsigned char *)buf + 4, 16);
    return 0;
}
