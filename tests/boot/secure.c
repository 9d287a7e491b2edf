/* SPDX-License-Identifier: BSD-3-Clause */
/* Hellos, welcomes and seals: what is accepted, and that nothing else is. */
#include "comm/boot/secure.h"
#include "tests/tap.h"

static struct shunt__boot_secret secret, other;
static const unsigned char random_client[SHUNT__BOOT_RANDOM_BYTES] = {1}, random_server[SHUNT__BOOT_RANDOM_BYTES] = {2};

static void hellos(void)
{
    unsigned char hello[SHUNT__BOOT_HELLO_BYTES];
    int refused = 0, possible = 0;

    shunt__boot_hello_make(&secret, SHUNT__BOOT_TO_ROOT, random_client, hello);
    is_int(shunt__boot_hello_check(&secret, SHUNT__BOOT_TO_ROOT, hello), SHUNT__BOOT_FINE, "a hello is taken");
    is_int(shunt__boot_hello_check(&secret, SHUNT__BOOT_TO_PARENT, hello), SHUNT__BOOT_BAD_KEY, "not at another kind of door");
    is_int(shunt__boot_hello_check(&other, SHUNT__BOOT_TO_ROOT, hello), SHUNT__BOOT_BAD_KEY, "not by another meeting");
    for (int i = 0; i < SHUNT__BOOT_HELLO_BYTES * 8; i++) {
        hello[i / 8] ^= (unsigned char)(1 << i % 8);
        refused += shunt__boot_hello_check(&secret, SHUNT__BOOT_TO_ROOT, hello) != SHUNT__BOOT_FINE;
        hello[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    is_int(refused, SHUNT__BOOT_HELLO_BYTES * 8, "not with any bit changed");
    for (int n = 0; n <= SHUNT__BOOT_HELLO_BYTES; n++)
        possible += shunt__boot_hello_possible(hello, (size_t)n);
    is_int(possible, SHUNT__BOOT_HELLO_BYTES + 1, "each of its beginnings is possible");
    ok(!shunt__boot_hello_possible((const unsigned char *)"G", 1), "that of something else is not");
    hello[4] ^= 7;
    is_int(shunt__boot_hello_check(&secret, SHUNT__BOOT_TO_ROOT, hello), SHUNT__BOOT_BAD_VERSION, "another version is told");
}

static void welcomes(void)
{
    unsigned char hello[SHUNT__BOOT_HELLO_BYTES], welcome[SHUNT__BOOT_WELCOME_BYTES];
    struct shunt__boot_session client, server, none;
    int refused = 0;

    shunt__boot_hello_make(&secret, SHUNT__BOOT_TO_ROOT, random_client, hello);
    shunt__boot_welcome_make(&secret, hello, random_server, welcome, &server);
    is_int(shunt__boot_welcome_check(&secret, SHUNT__BOOT_TO_ROOT, random_client, welcome, &client), SHUNT__BOOT_FINE,
           "a welcome is taken");
    ok(memcmp(client.send_key, server.receive_key, 32) == 0 && memcmp(client.receive_key, server.send_key, 32) == 0,
       "both sides have the same keys");
    ok(memcmp(client.send_key, client.receive_key, 32) != 0, "one for each direction");
    is_int(shunt__boot_welcome_check(&secret, SHUNT__BOOT_TO_ROOT, random_server, welcome, &none), SHUNT__BOOT_BAD_KEY,
           "it answers one hello only");
    is_int(shunt__boot_welcome_check(&other, SHUNT__BOOT_TO_ROOT, random_client, welcome, &none), SHUNT__BOOT_BAD_KEY,
           "and for one meeting only");
    for (int i = 0; i < SHUNT__BOOT_WELCOME_BYTES * 8; i++) {
        welcome[i / 8] ^= (unsigned char)(1 << i % 8);
        refused += shunt__boot_welcome_check(&secret, SHUNT__BOOT_TO_ROOT, random_client, welcome, &none) != SHUNT__BOOT_FINE;
        welcome[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    is_int(refused, SHUNT__BOOT_WELCOME_BYTES * 8, "not with any bit changed");
    is_int(shunt__boot_welcome_check(&secret, SHUNT__BOOT_TO_ROOT, random_client, hello, &none), SHUNT__BOOT_GARBAGE,
           "a hello that comes back is none");
    shunt__boot_welcome_refuse(SHUNT__BOOT_BAD_VERSION, welcome);
    is_int(shunt__boot_welcome_check(&secret, SHUNT__BOOT_TO_ROOT, random_client, welcome, &none), SHUNT__BOOT_BAD_VERSION,
           "a refusal says why: the version");
    shunt__boot_welcome_refuse(SHUNT__BOOT_BAD_KEY, welcome);
    is_int(shunt__boot_welcome_check(&secret, SHUNT__BOOT_TO_ROOT, random_client, welcome, &none), SHUNT__BOOT_BAD_KEY,
           "or the key");
}

static void seals(void)
{
    unsigned char hello[SHUNT__BOOT_HELLO_BYTES], welcome[SHUNT__BOOT_WELCOME_BYTES], box[3][64];
    struct shunt__boot_session client, server;

    shunt__boot_hello_make(&secret, SHUNT__BOOT_TO_ROOT, random_client, hello);
    shunt__boot_welcome_make(&secret, hello, random_server, welcome, &server);
    shunt__boot_welcome_check(&secret, SHUNT__BOOT_TO_ROOT, random_client, welcome, &client);
    for (int i = 0; i < 3; i++)
        shunt__boot_seal(&client, "rank 3", 6, box[i]);
    ok(memmem(box[0], 22, "rank", 4) == NULL, "a sealed message can't be read");
    ok(memcmp(box[0], box[1], 22) != 0, "the same message looks different each time");
    ok(shunt__boot_unseal(&server, box[0], 22) == 0 && memcmp(box[0], "rank 3", 6) == 0, "the other side opens it");
    ok(shunt__boot_unseal(&server, box[2], 22) != 0, "one too early is refused");
    ok(shunt__boot_unseal(&server, box[1], 15) != 0, "so is one too short");
    shunt__boot_seal(&server, "rank 4", 6, box[0]);
    ok(shunt__boot_unseal(&server, box[0], 22) != 0, "and one's own that comes back");
}

int main(void)
{
    unsigned char key[32] = {7};

    if (!ok(shunt__boot_secure_start() == 0, "libsodium starts"))
        return done();
    shunt__boot_secret_derive(&secret, key, 5);
    shunt__boot_secret_derive(&other, key, 6);
    ok(memcmp(secret.hello_key, secret.session_key, 32) != 0, "keys differ by use");
    ok(memcmp(secret.hello_key, other.hello_key, 32) != 0 && memcmp(secret.session_key, other.session_key, 32) != 0,
       "and by meeting");
    hellos();
    welcomes();
    seals();
    return done();
}
