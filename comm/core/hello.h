/* SPDX-License-Identifier: BSD-3-Clause */
/* How a link opens: HELLO and WELCOME, each with a MAC that only a process of this job can make. */
#ifndef SHUNT_CORE_HELLO_H
#define SHUNT_CORE_HELLO_H

#include <stddef.h>
#include <stdint.h>

struct shunt__hello {
    unsigned char from[16], to[16]; /* uids of the two processes */
    unsigned char nonce[16];
    uint8_t rail_from, rail_to;     /* which of their rails */
    uint8_t leaving;
    uint32_t generation;            /* proposed; the WELCOME's counts */
};

#define SHUNT__HELLO_BYTES 96

/* Packs and seals with the key of whoever will read it; SHUNT__HELLO_BYTES. */
size_t shunt__hello_pack(const struct shunt__hello *h, const unsigned char key[32], void *buf);
/* Nonzero: not a hello, or not made with this key. */
int shunt__hello_unpack(const void *buf, size_t len, const unsigned char key[32], struct shunt__hello *h);
/* The uid it claims to come from, before anything is checked; nonzero when it is too short. */
int shunt__hello_peek(const void *buf, size_t len, unsigned char from[16]);

#endif
