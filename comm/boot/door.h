/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A listener and the strangers in front of it.
 *
 * A stranger is a connection that has not yet sent its first sealed message. It gets SHUNT__BOOT_STRANGER_TIME and
 * SHUNT__BOOT_STRANGER_BYTES, and there are at most SHUNT__BOOT_STRANGERS at once: when they are all taken, the next one
 * waits in the kernel's queue until one has ended, or the oldest one (those that said nothing first) has had
 * SHUNT__BOOT_STRANGER_PATIENCE and is dropped. So a crowd of good ones passes unharmed, and silent ones hold up nobody.
 */
#ifndef SHUNT_BOOT_DOOR_H
#define SHUNT_BOOT_DOOR_H

#include "comm/boot/link.h"

#define SHUNT__BOOT_STRANGERS 64
#define SHUNT__BOOT_STRANGER_TIME (5 * 1000000000ull)
#define SHUNT__BOOT_STRANGER_PATIENCE (50 * 1000000ull)

struct shunt__boot_door {
    int fd; /* the listener, -1: shut */
    int port;
    int polled;
    enum shunt__boot_purpose purpose;
    const struct shunt__boot_secret *secret;
    const char *name; /* for the log */
    int n;            /* links in use are stranger[0..n) */
    uint64_t n_turned_away;
    uint64_t out_of_files; /* since when accept() lacks descriptors; 0: it does not */
    int out_of_files_err;
    struct shunt__boot_link stranger[SHUNT__BOOT_STRANGERS];
};

/* Takes over the listener `fd`. `secret` and `name` must outlive the door. */
void shunt__boot_door_open(struct shunt__boot_door *door, int fd, int port, const struct shunt__boot_secret *secret,
                           enum shunt__boot_purpose purpose, const char *name);
void shunt__boot_door_close(struct shunt__boot_door *door);
/* Puts the listener and the strangers into the set; returns the ms after which progress has something to do. */
int shunt__boot_door_poll(struct shunt__boot_door *door, struct shunt__boot_polls *polls);
/* Accepts, reads, and drops whose time is up. */
void shunt__boot_door_progress(struct shunt__boot_door *door, const struct shunt__boot_polls *polls);
/*
 * The index of a stranger whose first message is there (the message is valid until the next call with the door), or
 * -1. Start with *from = 0 after each progress. The caller then takes it, or turns it away.
 */
int shunt__boot_door_next(struct shunt__boot_door *door, int *from, unsigned char **message, size_t *len);
/* Moves it out; it is trusted from now on. */
void shunt__boot_door_take(struct shunt__boot_door *door, int index, struct shunt__boot_link *to);
/* Closes it; `why` is logged if it is the first one. */
void shunt__boot_door_drop(struct shunt__boot_door *door, int index, const char *why);

#endif
