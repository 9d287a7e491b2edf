/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks as threads of one process, each with settings of its own, all in one meeting. */
#ifndef SHUNT_TESTS_BOOT_RANKS_H
#define SHUNT_TESTS_BOOT_RANKS_H

#include <pthread.h>
#include <time.h>
#include "comm/base/clock.h"
#include "comm/boot/boot.h"
#include "tests/tap.h"

struct rank {
    int rank, size;
    int delay_ms;           /* comes this much later */
    int leave;              /* what it does after the meeting: 0 gather and barrier, 1 nothing */
    const char *settings[4];
    const unsigned char *id;
    int stop;
    size_t bytes; /* of its part in the gather */
    pthread_t thread;
    shunt_status_t status;
    char text[1024];
    unsigned char epoch[16];
    int right; /* the gather gave the right bytes */
    uint64_t took;
};

__attribute__((unused)) static void sleep_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000l};

    while (nanosleep(&t, &t) != 0) {
    }
}

/* What rank r gives in a gather: `bytes` bytes that tell r. */
__attribute__((unused)) static void fill_bytes(unsigned char *to, size_t bytes, int r)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(i * 7 + (size_t)r * 13);
}

__attribute__((unused)) static int check_gather(struct shunt__boot *boot, struct rank *r)
{
    struct shunt__boot_all all;
    size_t longest = r->bytes + (size_t)r->size;
    unsigned char *mine = malloc(longest + 1), *want = malloc(longest + 1);
    int right = 1;

    fill_bytes(mine, r->bytes + (size_t)r->rank, r->rank);
    r->status = shunt__boot_allgather(boot, mine, r->bytes + (size_t)r->rank, &r->stop, &all);
    if (r->status)
        right = 0;
    else {
        right = all.n == r->size;
        for (int i = 0; right && i < r->size; i++) {
            fill_bytes(want, r->bytes + (size_t)i, i);
            right = all.len[i] == r->bytes + (size_t)i && (all.len[i] == 0 || memcmp(all.data[i], want, all.len[i]) == 0);
        }
        shunt__boot_all_free(&all);
    }
    free(mine);
    free(want);
    return right;
}

__attribute__((unused)) static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct shunt__config config;
    struct shunt__boot *boot = NULL;
    uint64_t start;

    r->status = shunt__config_load(&config, r->settings);
    if (r->delay_ms)
        sleep_ms(r->delay_ms);
    start = shunt__now();
    if (!r->status)
        r->status = shunt__boot_open(&config, r->id, r->rank, r->size, &r->stop, &boot, r->epoch);
    r->took = shunt__now() - start;
    if (!r->status && !r->leave) {
        r->right = check_gather(boot, r);
        if (r->right)
            r->status = shunt__boot_barrier(boot, &r->stop);
        if (r->right && !r->status)
            r->right = check_gather(boot, r);
    }
    snprintf(r->text, sizeof(r->text), "%s", r->status || !r->right ? shunt_error_text() : "");
    shunt__boot_close(boot);
    shunt__config_free(&config);
    return NULL;
}

__attribute__((unused)) static void start_rank(struct rank *r)
{
    pthread_attr_t attr;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 1 << 20);
    if (pthread_create(&r->thread, &attr, rank_main, r) != 0)
        abort();
    pthread_attr_destroy(&attr);
}

/* All `n` ranks; those whose size is 0 are left out. Returns when all have ended. */
__attribute__((unused)) static void run_ranks(struct rank *ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (ranks[i].size)
            start_rank(&ranks[i]);
    for (int i = 0; i < n; i++)
        if (ranks[i].size)
            pthread_join(ranks[i].thread, NULL);
}

__attribute__((unused)) static struct rank *make_ranks(int n, const unsigned char *id, const char *setting)
{
    struct rank *ranks = calloc((size_t)n, sizeof(*ranks));

    for (int i = 0; i < n; i++) {
        ranks[i].rank = i;
        ranks[i].size = n;
        ranks[i].id = id;
        ranks[i].settings[0] = setting;
    }
    return ranks;
}

/* Whether all ranks of the meeting came through and agree about it. */
__attribute__((unused)) static int all_fine(const struct rank *ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (ranks[i].status || (!ranks[i].right && !ranks[i].leave) || memcmp(ranks[i].epoch, ranks[0].epoch, 16) != 0) {
            printf("# rank %d: %s%s: %s\n", i, shunt_status_name(ranks[i].status), ranks[i].right ? "" : " (wrong bytes)",
                   ranks[i].text);
            return 0;
        }
    return 1;
}

__attribute__((unused)) static struct shunt__boot_root *open_root(const char *setting, const char *ip,
                                                                 unsigned char id[SHUNT__BOOT_ID_BYTES])
{
    struct shunt__config config;
    struct shunt__boot_root *root = NULL;
    const char *settings[] = {setting, NULL};
    shunt_status_t status = shunt__config_load(&config, settings);

    if (!status)
        status = shunt__boot_root_open(&config, &ip, 1, id, &root);
    if (status) {
        printf("Bail out! no root: %s\n", shunt_error_text());
        exit(1);
    }
    shunt__config_free(&config);
    return root;
}

#endif
