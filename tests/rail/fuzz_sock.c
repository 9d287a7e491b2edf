/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes from the other end of a sock rail's connection. The first byte of the input says how they are given:
 * bit 0: after an honest HELLO; bit 1: with the CRCs of headers put right; bits 4-7: in pieces of 2^n bytes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "comm/base/crc32c.h"
#include "comm/rail/sock.h"
#include "tests/rail/mock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_right(uint8_t *bytes, size_t size)
{
    struct shunt__frame f;

    while (size >= sizeof(f)) {
        memcpy(&f, bytes, sizeof(f));
        f.header_crc = 0;
        f.header_crc = shunt__crc32c(0, &f, sizeof(f));
        memcpy(bytes, &f, sizeof(f));
        if (f.length > size - sizeof(f))
            return;
        bytes += sizeof(f) + f.length;
        size -= sizeof(f) + f.length;
    }
}

static void give(struct mock *m, int fd, const uint8_t *bytes, size_t size, size_t piece)
{
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;

        if (send(fd, bytes + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            return;
        shunt__poller_run(&m->poller, 0);
        m->rail->ops->progress(m->rail);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mock m;
    struct shunt__frame hello = {.type = SHUNT__FRAME_HELLO, .length = 6};
    uint8_t *copy;
    char drain[4096];
    int pair[2];

    if (size < 1 || (!m.rail && mock_open(&m, 0, "sock", "lo", "127.0.0.1", NULL, NULL) != SHUNT_OK) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
        return 0;
    for (int i = 0; i < MOCK_LINKS; i++)
        m.links[i].landing = i % 2;
    copy = malloc(size);
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 2)
        put_right(copy, size - 1);
    shunt__sock_adopt((struct sock_rail *)m.rail, pair[0]);
    if (data[0] & 1) {
        struct shunt__link link = {.generation = 1};
        shunt__frame_seal(m.rail, &link, &hello, "mock\1\3");
        give(&m, pair[1], (uint8_t *)&hello, sizeof(hello), sizeof(hello));
        give(&m, pair[1], (const uint8_t *)"mock\1\3", 6, 6);
    }
    give(&m, pair[1], copy, size - 1, (size_t)1 << (data[0] >> 4));
    while (recv(pair[1], drain, sizeof(drain), MSG_DONTWAIT) > 0)
        ;
    close(pair[1]);
    for (int i = 0; i < 3; i++) {
        shunt__poller_run(&m.poller, 0);
        m.rail->ops->progress(m.rail);
    }
    for (int i = 0; i < MOCK_LINKS; i++)
        if (m.links[i].link.conn) { /* the end of the stream must have ended it */
            fprintf(stderr, "link %d is still there\n", i);
            abort();
        }
    free(copy);
    return 0;
}
