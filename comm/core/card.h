/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The card: what a process tells the others about itself at the start. Exchanged through the bootstrap, which
 * authenticates and encrypts it; parsed with care all the same.
 */
#ifndef SHUNT_CORE_CARD_H
#define SHUNT_CORE_CARD_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/status.h>
#include "comm/rail/rail.h"

#define SHUNT__CARD_VERSION 1

struct shunt__card_rail {
    char backend[16];
    char device[48];
    uint64_t rate; /* bits/s, 0: unknown */
    uint32_t len;
    _Alignas(8) unsigned char address[SHUNT__ADDRESS_MAX];
};

struct shunt__card {
    unsigned char uid[16];    /* random, of this context */
    unsigned char secret[32]; /* who has this card may open links to it */
    unsigned char host[16];   /* equal exactly where shared memory may be tried */
    uint32_t pid;
    char hostname[64];
    int n_rails;
    struct shunt__card_rail rails[SHUNT__MAX_RAILS];
};

/* Upper bound of a packed card. */
#define SHUNT__CARD_MAX 4096
/* Packs into at most SHUNT__CARD_MAX bytes; the length. */
size_t shunt__card_pack(const struct shunt__card *card, unsigned char *buf);
/* FORMAT for anything that pack() could not have written, VERSION for another version's. */
shunt_status_t shunt__card_unpack(const void *data, size_t len, struct shunt__card *card);

#endif
