/* SPDX-License-Identifier: BSD-3-Clause */
/* CRC-32C: known values, every length and alignment against a bitwise reference, chaining, and the copying form. */
#include "comm/base/crc32c.h"
#include "tests/tap.h"

static uint32_t bitwise(const unsigned char *p, size_t n, uint32_t crc)
{
    crc = ~crc;
    while (n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* RFC 3720, appendix B.4, and the check value of the CRC catalogues. */
static void known(void)
{
    unsigned char b[32];
    static const unsigned char read_command[48] = {
        0x01, 0xc0, [15] = 0x00, [16] = 0x14, [20] = 0x00, 0x00, 0x04, 0x00,
        [24] = 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, [40] = 0x02};

    is_int(shunt__crc32c(0, "123456789", 9), 0xe3069283u, "123456789");
    is_int(shunt__crc32c(0, "", 0), 0, "nothing");
    memset(b, 0, sizeof(b));
    is_int(shunt__crc32c(0, b, 32), 0x8a9136aau, "32 zero bytes");
    memset(b, 0xff, sizeof(b));
    is_int(shunt__crc32c(0, b, 32), 0x62a8ab43u, "32 bytes of ones");
    for (int i = 0; i < 32; i++)
        b[i] = (unsigned char)i;
    is_int(shunt__crc32c(0, b, 32), 0x46dd794eu, "32 rising bytes");
    for (int i = 0; i < 32; i++)
        b[i] = (unsigned char)(31 - i);
    is_int(shunt__crc32c(0, b, 32), 0x113fdb5cu, "32 falling bytes");
    is_int(shunt__crc32c(0, read_command, 48), 0xd9963a56u, "an iSCSI read command");
}

static int same_everywhere(const unsigned char *src, size_t n, unsigned char *dst)
{
    uint32_t want = bitwise(src, n, 0x12345678);
    int good = shunt__crc32c(0x12345678, src, n) == want && shunt__crc32c_table(0x12345678, src, n) == want;

    memset(dst, 0xee, n + 1);
    good &= shunt__crc32c_copy(0x12345678, dst, src, n) == want && memcmp(dst, src, n) == 0 && dst[n] == 0xee;
    memset(dst, 0xee, n + 1);
    good &= shunt__crc32c_copy_table(0x12345678, dst, src, n) == want && memcmp(dst, src, n) == 0 && dst[n] == 0xee;
    return good;
}

int main(void)
{
    enum { SIZE = 40000 };
    unsigned char *src = malloc(SIZE + 16), *dst = malloc(SIZE + 16);
    uint32_t state = 1, part;
    int bad = 0;

    known();
    for (int i = 0; i < SIZE + 16; i++)
        src[i] = (unsigned char)((state = state * 1664525u + 1013904223u) >> 24);
    for (size_t n = 0; n < 1500; n++)
        bad += !same_everywhere(src + n % 8, n, dst + n % 5);
    is_int(bad, 0, "every length below 1500 at changing alignments");
    for (size_t n = 1500; n < SIZE; n += 997)
        bad += !same_everywhere(src + n % 8, n, dst + n % 7);
    is_int(bad, 0, "lengths up to %d", SIZE);
    part = 0;
    for (size_t at = 0, n = 1; at < SIZE; at += n, n = n * 3 % 5000 + 1)
        part = shunt__crc32c(part, src + at, at + n > SIZE ? SIZE - at : n);
    is_int(part, bitwise(src, SIZE, 0), "parts chain to the whole");
    printf("# this machine uses %s\n", shunt__crc32c_name());
    free(src);
    free(dst);
    return done();
}
