/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What two processes of one job say to each other before they believe anything, and how the rest is encrypted.
 *
 *     client                                   server
 *     hello: nonce, random, MAC ────────────►  checks the MAC; nothing was allocated so far
 *            checks the MAC     ◄────────────  welcome: random, MAC over both randoms
 *     both derive two session keys from the job's key and both randoms
 *     frames: length, secretbox (XSalsa20-Poly1305) with a counter as nonce, one key per direction
 *
 * A recorded hello is answered, but who replays it can't build the frame that has to follow. A welcome to a bad
 * hello carries no MAC, only why it was refused: a hint to someone who has the wrong id, worth no more.
 * Pure functions: no sockets, no allocation.
 */
#ifndef SHUNT_BOOT_SECURE_H
#define SHUNT_BOOT_SECURE_H

#include <stddef.h>
#include <stdint.h>

#define SHUNT__BOOT_VERSION 1
#define SHUNT__BOOT_HELLO_BYTES 80
#define SHUNT__BOOT_WELCOME_BYTES 72
#define SHUNT__BOOT_RANDOM_BYTES 32
#define SHUNT__BOOT_SEAL_BYTES 16 /* what sealing adds */

enum shunt__boot_purpose { SHUNT__BOOT_TO_ROOT = 1, SHUNT__BOOT_TO_PARENT = 2 };

enum shunt__boot_verdict {
    SHUNT__BOOT_FINE,
    SHUNT__BOOT_BAD_KEY,     /* speaks our protocol, but is not of this meeting */
    SHUNT__BOOT_BAD_VERSION, /* the same in another version */
    SHUNT__BOOT_GARBAGE      /* anything else */
};

/* What the members of a meeting share. */
struct shunt__boot_secret {
    uint64_t nonce; /* tells meetings apart; not secret */
    unsigned char hello_key[32];
    unsigned char session_key[32];
};

/* One connection's keys and counters. */
struct shunt__boot_session {
    unsigned char send_key[32], receive_key[32];
    uint64_t sent, received;
};

/* Makes libsodium ready; nonzero when it can't be. Any number of times, any thread. */
int shunt__boot_secure_start(void);
void shunt__boot_secret_derive(struct shunt__boot_secret *secret, const unsigned char key[32], uint64_t nonce);

void shunt__boot_hello_make(const struct shunt__boot_secret *secret, enum shunt__boot_purpose purpose,
                            const unsigned char random[SHUNT__BOOT_RANDOM_BYTES],
                            unsigned char hello[SHUNT__BOOT_HELLO_BYTES]);
/* Whether the first `n` bytes can be the beginning of a hello, so that garbage ends at its first bytes. */
int shunt__boot_hello_possible(const unsigned char *bytes, size_t n);
enum shunt__boot_verdict shunt__boot_hello_check(const struct shunt__boot_secret *secret,
                                                 enum shunt__boot_purpose purpose,
                                                 const unsigned char hello[SHUNT__BOOT_HELLO_BYTES]);

/* The server's answer to a good hello, and the session it opens. */
void shunt__boot_welcome_make(const struct shunt__boot_secret *secret,
                              const unsigned char hello[SHUNT__BOOT_HELLO_BYTES],
                              const unsigned char random[SHUNT__BOOT_RANDOM_BYTES],
                              unsigned char welcome[SHUNT__BOOT_WELCOME_BYTES], struct shunt__boot_session *session);
/* The server's answer to a bad one: says why, proves nothing. */
void shunt__boot_welcome_refuse(enum shunt__boot_verdict verdict, unsigned char welcome[SHUNT__BOOT_WELCOME_BYTES]);
/* The client's side: `random` is what its hello carried. `session` is set when the answer is FINE. */
enum shunt__boot_verdict shunt__boot_welcome_check(const struct shunt__boot_secret *secret,
                                                   enum shunt__boot_purpose purpose,
                                                   const unsigned char random[SHUNT__BOOT_RANDOM_BYTES],
                                                   const unsigned char welcome[SHUNT__BOOT_WELCOME_BYTES],
                                                   struct shunt__boot_session *session);

/* Writes len + SHUNT__BOOT_SEAL_BYTES bytes to `out`. */
void shunt__boot_seal(struct shunt__boot_session *session, const void *message, size_t len, unsigned char *out);
/* Opens in place; the message is then `len` - SHUNT__BOOT_SEAL_BYTES bytes at `box`. Nonzero: forged or damaged. */
int shunt__boot_unseal(struct shunt__boot_session *session, unsigned char *box, size_t len);

#endif
