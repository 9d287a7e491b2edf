/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reaching somebody who has several addresses, who may not listen yet, and behind some of whose addresses others may sit.
 * Every address is tried again and again with pauses of its own (10 ms doubling to 400 ms); the first try of each
 * comes a little after that of the one before it. The first connection with a good welcome wins.
 */
#ifndef SHUNT_BOOT_DIAL_H
#define SHUNT_BOOT_DIAL_H

#include "comm/boot/link.h"

#define SHUNT__BOOT_DIAL_MAX 64

struct shunt__boot_dial_slot {
    struct shunt__boot_address address;
    struct shunt__boot_link link;
    uint64_t next;  /* when to try again, while the link is closed */
    unsigned tries;
    unsigned turned_down; /* times in a row that another job or version answered */
};

struct shunt__boot_dial {
    int n;
    enum shunt__boot_purpose purpose;
    const struct shunt__boot_secret *secret;
    uint64_t started;
    struct shunt__boot_dial_slot slot[SHUNT__BOOT_DIAL_MAX];
};

void shunt__boot_dial_start(struct shunt__boot_dial *dial, const struct shunt__boot_secret *secret,
                            enum shunt__boot_purpose purpose, const struct shunt__boot_address *addresses, int n);
/* Returns the ms until the next try is due. */
int shunt__boot_dial_poll(struct shunt__boot_dial *dial, struct shunt__boot_polls *polls);
/* 1: connected, `to` is an open link and the others were closed. 0: not yet. */
int shunt__boot_dial_progress(struct shunt__boot_dial *dial, const struct shunt__boot_polls *polls,
                              struct shunt__boot_link *to);
/* A slot that a local lack stopped (descriptors, memory), or NULL. */
const struct shunt__boot_link *shunt__boot_dial_lack(const struct shunt__boot_dial *dial);
/* KEY or VERSION when that is all that the addresses have said for a while, else NONE. */
enum shunt__boot_link_end shunt__boot_dial_verdict(const struct shunt__boot_dial *dial);
void shunt__boot_dial_stop(struct shunt__boot_dial *dial);
/* Each address and what became of the last try. Returns `text`. */
const char *shunt__boot_dial_why(const struct shunt__boot_dial *dial, char *text, size_t size);

#endif
