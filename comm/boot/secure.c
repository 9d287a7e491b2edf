/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layout of hello and welcome, little-endian:
 *     hello     magic 4, version 2, purpose 1, zero 1, nonce 8, random 32, MAC 32
 *     welcome   magic 4, version 2, verdict 1, zero 1, random 32, MAC 32
 */
#include "comm/boot/secure.h"
#include <sodium.h>
#include <string.h>

#define HELLO_SIGNED (SHUNT__BOOT_HELLO_BYTES - 32)
#define WELCOME_SIGNED (SHUNT__BOOT_WELCOME_BYTES - 32)

static const unsigned char hello_magic[4] = {'S', 'h', 'B', 'h'};
static const unsigned char welcome_magic[4] = {'S', 'h', 'B', 'w'};

int shunt__boot_secure_start(void)
{
    return sodium_init() < 0;
}

void shunt__boot_secret_derive(struct shunt__boot_secret *secret, const unsigned char key[32], uint64_t nonce)
{
    unsigned char meeting[crypto_kdf_KEYBYTES];

    secret->nonce = nonce;
    crypto_generichash(meeting, sizeof(meeting), (const unsigned char *)&nonce, sizeof(nonce), key, 32);
    crypto_kdf_derive_from_key(secret->hello_key, 32, 1, "shntboot", meeting);
    crypto_kdf_derive_from_key(secret->session_key, 32, 2, "shntboot", meeting);
    sodium_memzero(meeting, sizeof(meeting));
}

static void start(unsigned char *p, const unsigned char magic[4], int kind)
{
    memcpy(p, magic, 4);
    p[4] = SHUNT__BOOT_VERSION & 0xff;
    p[5] = SHUNT__BOOT_VERSION >> 8;
    p[6] = (unsigned char)kind;
    p[7] = 0;
}

void shunt__boot_hello_make(const struct shunt__boot_secret *secret, enum shunt__boot_purpose purpose,
                            const unsigned char random[SHUNT__BOOT_RANDOM_BYTES],
                            unsigned char hello[SHUNT__BOOT_HELLO_BYTES])
{
    start(hello, hello_magic, (int)purpose);
    memcpy(hello + 8, &secret->nonce, 8);
    memcpy(hello + 16, random, 32);
    crypto_auth(hello + HELLO_SIGNED, hello, HELLO_SIGNED, secret->hello_key);
}

int shunt__boot_hello_possible(const unsigned char *bytes, size_t n)
{
    return memcmp(bytes, hello_magic, n < 4 ? n : 4) == 0;
}

enum shunt__boot_verdict shunt__boot_hello_check(const struct shunt__boot_secret *secret,
                                                 enum shunt__boot_purpose purpose,
                                                 const unsigned char hello[SHUNT__BOOT_HELLO_BYTES])
{
    if (memcmp(hello, hello_magic, 4) != 0)
        return SHUNT__BOOT_GARBAGE;
    if ((hello[4] | hello[5] << 8) != SHUNT__BOOT_VERSION)
        return SHUNT__BOOT_BAD_VERSION;
    if (memcmp(hello + 8, &secret->nonce, 8) != 0 || hello[6] != (unsigned char)purpose || hello[7] != 0)
        return SHUNT__BOOT_BAD_KEY;
    if (crypto_auth_verify(hello + HELLO_SIGNED, hello, HELLO_SIGNED, secret->hello_key) != 0)
        return SHUNT__BOOT_BAD_KEY;
    return SHUNT__BOOT_FINE;
}

/* The welcome's MAC covers the client's random too, so that it answers this hello and no other. */
static void welcome_mac(const struct shunt__boot_secret *secret, enum shunt__boot_purpose purpose,
                        const unsigned char *client, const unsigned char *welcome, unsigned char mac[32])
{
    unsigned char covered[WELCOME_SIGNED + 33];

    memcpy(covered, welcome, WELCOME_SIGNED);
    memcpy(covered + WELCOME_SIGNED, client, 32);
    covered[WELCOME_SIGNED + 32] = (unsigned char)purpose;
    crypto_auth(mac, covered, sizeof(covered), secret->hello_key);
}

static void open_session(const struct shunt__boot_secret *secret, enum shunt__boot_purpose purpose,
                         const unsigned char *client, const unsigned char *server, int is_server,
                         struct shunt__boot_session *session)
{
    unsigned char both[65], keys[64];

    memcpy(both, client, 32);
    memcpy(both + 32, server, 32);
    both[64] = (unsigned char)purpose;
    crypto_generichash(keys, sizeof(keys), both, sizeof(both), secret->session_key, 32);
    memcpy(is_server ? session->receive_key : session->send_key, keys, 32);
    memcpy(is_server ? session->send_key : session->receive_key, keys + 32, 32);
    session->sent = session->received = 0;
    sodium_memzero(keys, sizeof(keys));
}

void shunt__boot_welcome_make(const struct shunt__boot_secret *secret,
                              const unsigned char hello[SHUNT__BOOT_HELLO_BYTES],
                              const unsigned char random[SHUNT__BOOT_RANDOM_BYTES],
                              unsigned char welcome[SHUNT__BOOT_WELCOME_BYTES], struct shunt__boot_session *session)
{
    enum shunt__boot_purpose purpose = (enum shunt__boot_purpose)hello[6];

    start(welcome, welcome_magic, SHUNT__BOOT_FINE);
    memcpy(welcome + 8, random, 32);
    welcome_mac(secret, purpose, hello + 16, welcome, welcome + WELCOME_SIGNED);
    open_session(secret, purpose, hello + 16, random, 1, session);
}

void shunt__boot_welcome_refuse(enum shunt__boot_verdict verdict, unsigned char welcome[SHUNT__BOOT_WELCOME_BYTES])
{
    memset(welcome, 0, SHUNT__BOOT_WELCOME_BYTES);
    start(welcome, welcome_magic, (int)verdict);
}

enum shunt__boot_verdict shunt__boot_welcome_check(const struct shunt__boot_secret *secret,
                                                   enum shunt__boot_purpose purpose,
                                                   const unsigned char random[SHUNT__BOOT_RANDOM_BYTES],
                                                   const unsigned char welcome[SHUNT__BOOT_WELCOME_BYTES],
                                                   struct shunt__boot_session *session)
{
    unsigned char mac[32];

    if (memcmp(welcome, welcome_magic, 4) != 0 || welcome[7] != 0)
        return SHUNT__BOOT_GARBAGE;
    if ((welcome[4] | welcome[5] << 8) != SHUNT__BOOT_VERSION || welcome[6] == SHUNT__BOOT_BAD_VERSION)
        return SHUNT__BOOT_BAD_VERSION;
    if (welcome[6] != SHUNT__BOOT_FINE)
        return SHUNT__BOOT_BAD_KEY;
    welcome_mac(secret, purpose, random, welcome, mac);
    if (sodium_memcmp(mac, welcome + WELCOME_SIGNED, 32) != 0)
        return SHUNT__BOOT_BAD_KEY;
    open_session(secret, purpose, random, welcome + 8, 0, session);
    return SHUNT__BOOT_FINE;
}

static void count(unsigned char nonce[crypto_secretbox_NONCEBYTES], uint64_t n)
{
    memset(nonce, 0, crypto_secretbox_NONCEBYTES);
    memcpy(nonce, &n, sizeof(n));
}

void shunt__boot_seal(struct shunt__boot_session *session, const void *message, size_t len, unsigned char *out)
{
    unsigned char nonce[crypto_secretbox_NONCEBYTES];

    count(nonce, session->sent++);
    crypto_secretbox_easy(out, message, len, nonce, session->send_key);
}

int shunt__boot_unseal(struct shunt__boot_session *session, unsigned char *box, size_t len)
{
    unsigned char nonce[crypto_secretbox_NONCEBYTES];

    if (len < SHUNT__BOOT_SEAL_BYTES)
        return -1;
    count(nonce, session->received++);
    return crypto_secretbox_open_easy(box, box, len, nonce, session->receive_key);
}
