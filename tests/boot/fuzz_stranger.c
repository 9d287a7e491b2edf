/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any bytes from a connection that was just accepted. An odd first byte puts a good hello in front of the rest, as a
 * replay would: even then no message may come out, and no memory may be taken.
 */
#include <string.h>
#include "comm/boot/link.h"
#include "tests/boot/pair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char key[32] = {1}, random[SHUNT__BOOT_RANDOM_BYTES] = {2};
    struct shunt__boot_secret secret;
    struct shunt__boot_link link;
    struct shunt__boot_polls polls = {0};
    unsigned char hello[SHUNT__BOOT_HELLO_BYTES], *message;
    size_t sent = 0, len;
    int pair[2];

    if (size < 2 || shunt__boot_secure_start() != 0)
        return 0;
    shunt__boot_secret_derive(&secret, key, 77);
    make_pair(pair);
    shunt__boot_link_accept(&link, pair[1], &secret, SHUNT__BOOT_TO_ROOT);
    if (data[0] & 1) {
        shunt__boot_hello_make(&secret, SHUNT__BOOT_TO_ROOT, random, hello);
        if (send(pair[0], hello, sizeof(hello), MSG_NOSIGNAL) < 0)
            abort();
    }
    /* In pieces of data[1] + 1 bytes. */
    for (size_t at = 2; at < size; at += sent) {
        size_t n = (size_t)data[1] + 1;
        ssize_t s = send(pair[0], data + at, n < size - at ? n : size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (s <= 0)
            break;
        sent = (size_t)s;
        polls.n = 0;
        shunt__boot_link_poll(&link, &polls, 1);
        shunt__boot_polls_wait(&polls, 0);
        shunt__boot_link_progress(&link, &polls);
        if (shunt__boot_link_next(&link, &message, &len))
            abort();
        if (link.in || link.out || link.bytes_in > SHUNT__BOOT_STRANGER_BYTES + SHUNT__BOOT_HELLO_BYTES)
            abort();
    }
    close(pair[0]);
    shunt__boot_link_close(&link, SHUNT__BOOT_END_CLOSED, 0);
    shunt__boot_polls_free(&polls);
    return 0;
}
