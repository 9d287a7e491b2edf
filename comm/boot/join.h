/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining a meeting, with all that the ways through the environment need beyond shunt__boot_open(). */
#ifndef SHUNT_BOOT_JOIN_H
#define SHUNT_BOOT_JOIN_H

#include "comm/boot/boot.h"
#include "comm/boot/net.h"

struct shunt__boot_join {
    const unsigned char *key;
    uint64_t nonce;
    const struct shunt__boot_address *address; /* where the root may be, most likely first */
    int n_addresses;
    int rank, size;
    uint64_t started, timeout; /* ns */
    int first_port, last_port; /* for the own listener; 0: any */
    const int *stop;
    /* The root may come later, and others may sit on its ports meanwhile: their refusals mean nothing. */
    int patient;
    /* Called every 100 ms until the root has answered; nonzero ends the try with SHUNT_ERR_AGAIN. May be NULL. */
    int (*changed)(void *arg);
    void *arg;
};

shunt_status_t shunt__boot_join_meeting(const struct shunt__boot_join *join, struct shunt__boot **boot,
                                        unsigned char epoch_id[16]);

#endif
