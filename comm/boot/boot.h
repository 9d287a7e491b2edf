/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bootstrap: how n processes that know nothing but an id find each other and exchange bytes before any rail is up.
 *
 * An id holds the addresses of the root's listener, a nonce and a key. Every connection opens with a hello whose
 * keyed MAC (libsodium) is checked before anything is allocated for it; what follows is encrypted with the key.
 * Strangers, port scans, half hellos, garbage and replays cost bounded bytes and time, are logged once and
 * disturb nobody. The exchange runs over a tree, so that the root's share grows with log n.
 *
 * Blocking functions take a `stop` flag (may be NULL): once nonzero they return SHUNT_ERR_ABORTED within 100 ms.
 * Any thread; one call at a time per object.
 */
#ifndef SHUNT_BOOT_BOOT_H
#define SHUNT_BOOT_BOOT_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/status.h>
#include "comm/base/config.h"

#define SHUNT__BOOT_ID_BYTES 128
#define SHUNT__BOOT_KEY_BYTES 32

struct shunt__boot;      /* one rank's place in one meeting */
struct shunt__boot_root; /* the listener behind an id, with its thread */

/*
 * Fills a 128-byte id and starts the thread that brings its ranks together. `ips` are this host's addresses to put into
 * the id, in order of preference (text, IPv4 or IPv6, without prefix length); as many as fit are taken. The root
 * ends by itself when the meeting is over or SHUNT_BOOTSTRAP_TIMEOUT passed.
 */
shunt_status_t shunt__boot_root_open(const struct shunt__config *config, const char *const *ips, int n_ips,
                                     unsigned char id[SHUNT__BOOT_ID_BYTES], struct shunt__boot_root **root);
/* The same with given key, nonce and port (for torchrun's environment); first free port of port .. port + n_ports - 1. */
shunt_status_t shunt__boot_root_open_at(const struct shunt__config *config, const char *const *ips, int n_ips,
                                        const unsigned char key[SHUNT__BOOT_KEY_BYTES], uint64_t nonce, int port,
                                        int n_ports, unsigned char id[SHUNT__BOOT_ID_BYTES],
                                        struct shunt__boot_root **root);
/* 0 while the meeting goes on, 1 when it is over and only late comers would still be answered, 2 when its thread has ended. */
int shunt__boot_root_over(const struct shunt__boot_root *root);
/* Stops its thread and closes the listener; joined ranks are no longer affected once their open() has returned. */
void shunt__boot_root_close(struct shunt__boot_root *root);

/* Nonzero when the bytes are an id of this version. */
int shunt__boot_id_valid(const unsigned char id[SHUNT__BOOT_ID_BYTES]);

/*
 * Takes a place; returns when all `size` ranks have. TIMEOUT: the text lists the missing ranks (at most 16, and how many
 * more). INVALID: rank out of range, taken twice, or sizes differ, naming both; or the meeting was over. PEER: a rank, or
 * the root's process, died (noticed within 2 s). ABORTED: `stop`, or another rank was stopped. LIMIT: descriptors. AUTH,
 * VERSION, FORMAT.
 * `epoch_id` (16 bytes, equal on all ranks, never the same twice) is set: communicators derive their ids from it.
 */
shunt_status_t shunt__boot_open(const struct shunt__config *config, const unsigned char id[SHUNT__BOOT_ID_BYTES],
                                int rank, int size, const int *stop, struct shunt__boot **boot,
                                unsigned char epoch_id[16]);
/*
 * Every rank gives `len` bytes (lengths may differ, at most 64 KiB) and gets everybody's: all[r] points to rank r's
 * bytes, lens[r] is their length; both arrays have `size` entries and are freed by shunt__boot_all_free().
 * Errors as above, and MISMATCH when ranks are in different steps. A failure ends the boot on every rank: further steps
 * give the same. Cost: 2 log8(size) hops; a rank sends at most 8 times what all gave together.
 */
struct shunt__boot_all {
    int n;
    void **data;
    size_t *len;
};
shunt_status_t shunt__boot_allgather(struct shunt__boot *boot, const void *mine, size_t len, const int *stop,
                                     struct shunt__boot_all *all);
void shunt__boot_all_free(struct shunt__boot_all *all);
shunt_status_t shunt__boot_barrier(struct shunt__boot *boot, const int *stop);
void shunt__boot_close(struct shunt__boot *boot);

/*
 * Meets through the environment (see shunt_comm_create_from_env). Sets rank, size and the joined boot; for a process
 * with no such environment, and for the one rank of WORLD_SIZE=1, rank 0, size 1 and boot NULL. `ips` as above, for the rank that becomes root; *root (may
 * come back NULL) is to be closed after the meeting.
 */
shunt_status_t shunt__boot_open_env(const struct shunt__config *config, const char *const *ips, int n_ips,
                                    const int *stop, int *rank, int *size, struct shunt__boot **boot,
                                    struct shunt__boot_root **root, unsigned char epoch_id[16]);

#endif
