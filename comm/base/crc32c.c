/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/base/crc32c.h"

uint32_t shunt__crc32c(uint32_t crc, const void *data, size_t n)
{
    const unsigned char *p = data;

    crc = ~crc;
    while (n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++)
            crc = (crc >> 1) ^ (0x82f63b78u & -(crc & 1));
    }
    return ~crc;
}
