/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks find each other by an id: sizes, staggered starts, bytes of all lengths, both address families. */
#include "comm/boot/id.h"
#include "tests/boot/ranks.h"

static void meeting(int n, size_t bytes, const char *ip, const char *what)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = open_root("SHUNT_BOOTSTRAP_TIMEOUT=30s", ip, id);
    struct rank *ranks = make_ranks(n, id, "SHUNT_BOOTSTRAP_TIMEOUT=30s");
    uint64_t longest = 0;

    for (int i = 0; i < n; i++)
        ranks[i].bytes = bytes;
    run_ranks(ranks, n);
    for (int i = 0; i < n; i++)
        longest = ranks[i].took > longest ? ranks[i].took : longest;
    ok(all_fine(ranks, n), "%d ranks meet, %s (%.1f ms)", n, what, (double)longest / SHUNT__MS);
    shunt__boot_root_close(root);
    free(ranks);
}

static void staggered(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = open_root("SHUNT_BOOTSTRAP_TIMEOUT=30s", "127.0.0.1", id);
    struct rank *ranks = make_ranks(10, id, "SHUNT_BOOTSTRAP_TIMEOUT=30s");

    for (int i = 0; i < 10; i++)
        ranks[i].delay_ms = (9 - i) * 60;
    run_ranks(ranks, 10);
    ok(all_fine(ranks, 10), "ranks may come one after the other, the last one first");
    shunt__boot_root_close(root);
    free(ranks);
}

static void ids(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES], bad[SHUNT__BOOT_ID_BYTES], epoch[16];
    struct shunt__boot_root *root = open_root("SHUNT_BOOTSTRAP_TIMEOUT=30s", "127.0.0.1", id);
    struct shunt__config config;
    struct shunt__boot *boot = NULL;
    struct shunt__boot_id parts = {.nonce = 7, .n_addresses = 15}, back;

    shunt__config_load(&config, NULL);
    ok(shunt__boot_id_valid(id), "an id is valid");
    memcpy(bad, id, sizeof(bad));
    bad[60] ^= 1;
    ok(!shunt__boot_id_valid(bad), "a damaged id is not");
    ok(!shunt__boot_id_valid(NULL), "NULL is not");
    is_int(shunt__boot_open(&config, bad, 0, 1, NULL, &boot, epoch), SHUNT_ERR_FORMAT, "joining with it is refused: %s",
           shunt_error_text());
    is_int(shunt__boot_open(&config, id, 3, 3, NULL, &boot, epoch), SHUNT_ERR_INVALID, "rank 3 of 3 is refused: %s",
           shunt_error_text());
    is_int(shunt__boot_open(&config, id, -1, 3, NULL, &boot, epoch), SHUNT_ERR_INVALID, "rank -1 is refused");
    is_int(shunt__boot_open(&config, id, 0, 1, NULL, NULL, epoch), SHUNT_ERR_INVALID, "NULL is refused");
    shunt__config_free(&config);
    shunt__boot_root_close(root);

    for (int i = 0; i < 15; i++)
        parts.address[i] = (struct shunt__boot_address){.family = 4, .ip = {10, 0, 0, (uint8_t)i}, .port = 99};
    shunt__boot_id_pack(&parts, id);
    ok(shunt__boot_id_unpack(id, &back) == 0 && back.n_addresses == 15 && back.address[14].ip[3] == 14 &&
           back.address[14].port == 99, "15 IPv4 addresses fit");
    for (int i = 0; i < 15; i++)
        parts.address[i] = (struct shunt__boot_address){.family = 6, .ip = {0xfd, [15] = (uint8_t)i}, .port = 99};
    shunt__boot_id_pack(&parts, id);
    ok(shunt__boot_id_unpack(id, &back) == 0 && back.n_addresses == 4, "of 15 IPv6 addresses the first 4 do");
}

int main(void)
{
    ids();
    meeting(1, 100, "127.0.0.1", "alone");
    meeting(2, 0, "127.0.0.1", "no bytes of rank 0");
    meeting(8, 100, "127.0.0.1", "small messages");
    meeting(9, 65500, "127.0.0.1", "the longest messages");
    meeting(74, 1000, "127.0.0.1", "a tree of three levels");
    meeting(8, 100, "::1", "over IPv6 alone");
    staggered();
    return done();
}
