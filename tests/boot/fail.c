/* SPDX-License-Identifier: BSD-3-Clause */
/* Meetings that can't succeed: everybody learns why, and who is to blame. */
#include <dirent.h>
#include <unistd.h>
#include "comm/boot/id.h"
#include "tests/boot/ranks.h"

#define LONG "SHUNT_BOOTSTRAP_TIMEOUT=30s"

static int count_text(const struct rank *ranks, int n, shunt_status_t status, const char *part)
{
    int count = 0;

    for (int i = 0; i < n; i++) {
        if (!ranks[i].size)
            continue;
        if (ranks[i].status == status && strstr(ranks[i].text, part))
            count++;
        else
            printf("# rank %d: %s: %s\n", ranks[i].rank, shunt_status_name(ranks[i].status), ranks[i].text);
    }
    return count;
}

static void missing(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = open_root("SHUNT_BOOTSTRAP_TIMEOUT=400ms", "127.0.0.1", id);
    struct rank *ranks = make_ranks(12, id, LONG);

    ranks[3].size = ranks[5].size = ranks[0].size = 0;
    run_ranks(ranks, 12);
    is_int(count_text(ranks, 12, SHUNT_ERR_TIMEOUT, "ranks 0, 3 and 5 are missing"), 9, "every rank says which are missing: %s",
           ranks[1].text);
    shunt__boot_root_close(root);
    free(ranks);

    /* Ranks whose own time is up before the root's. */
    root = open_root(LONG, "127.0.0.1", id);
    ranks = make_ranks(64, id, "SHUNT_BOOTSTRAP_TIMEOUT=400ms");
    for (int i = 3; i < 64; i++)
        ranks[i].size = 0;
    run_ranks(ranks, 64);
    is_int(count_text(ranks, 64, SHUNT_ERR_TIMEOUT, "16, 17, 18 and 45 more are missing"), 3, "they ask when their own time is "
           "up: %s", ranks[1].text);
    shunt__boot_root_close(root);
    free(ranks);
}

static void twice(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = open_root(LONG, "127.0.0.1", id);
    struct rank *ranks = make_ranks(5, id, LONG);

    ranks[4].rank = 1;
    run_ranks(ranks, 5);
    is_int(count_text(ranks, 5, SHUNT_ERR_INVALID, "rank 1 of 5 came twice"), 5, "a rank that is there twice: %s", ranks[1].text);
    shunt__boot_root_close(root);
    free(ranks);
}

static void sizes(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = open_root(LONG, "127.0.0.1", id);
    struct rank *ranks = make_ranks(4, id, LONG);

    ranks[2].size = 8;
    ranks[2].delay_ms = 100;
    ranks[3].delay_ms = 300;
    run_ranks(ranks, 4);
    is_int(count_text(ranks, 4, SHUNT_ERR_INVALID, "says there are 8 ranks;"), 4, "ranks that disagree about their number: %s",
           ranks[3].text);
    shunt__boot_root_close(root);
    free(ranks);
}

static void stopped(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = open_root(LONG, "127.0.0.1", id);
    struct rank *ranks = make_ranks(4, id, LONG);
    uint64_t start;

    ranks[3].size = 0;
    for (int i = 0; i < 3; i++)
        start_rank(&ranks[i]);
    sleep_ms(200);
    start = shunt__now();
    __atomic_store_n(&ranks[1].stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++)
        pthread_join(ranks[i].thread, NULL);
    printf("# all were back after %.1f ms\n", (double)(shunt__now() - start) / SHUNT__MS);
    is_int(count_text(ranks, 3, SHUNT_ERR_ABORTED, "rank 1 of 4 was aborted"), 3, "an abort frees all: %s", ranks[0].text);
    shunt__boot_root_close(root);
    free(ranks);
}

static int stop_env;

static void *env_main(void *arg)
{
    struct shunt__config config;
    struct shunt__boot *boot = NULL;
    struct shunt__boot_root *root = NULL;
    unsigned char epoch[16];
    int rank, size;

    shunt__config_load(&config, NULL);
    *(shunt_status_t *)arg = shunt__boot_open_env(&config, NULL, 0, &stop_env, &rank, &size, &boot, &root, epoch);
    shunt__config_free(&config);
    return NULL;
}

/* Each way through the environment can be stopped while it waits for the others. */
static void stopped_env(const char *rank, int file, const char *what)
{
    static int port;
    char text[64];
    shunt_status_t status = SHUNT_OK;
    pthread_t thread;
    uint64_t start;

    setenv("RANK", rank, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    port = port ? port + 20 : 22000 + (int)(getpid() % 400) * 20;
    snprintf(text, sizeof(text), "%d", port);
    setenv("MASTER_PORT", text, 1);
    snprintf(text, sizeof(text), "/tmp/shunt-fail-%d", port);
    if (file)
        setenv("SHUNT_ID_FILE", text, 1);
    stop_env = 0;
    pthread_create(&thread, NULL, env_main, &status);
    sleep_ms(200);
    start = shunt__now();
    __atomic_store_n(&stop_env, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    is_int(status, SHUNT_ERR_ABORTED, "%s is aborted", what);
    ok(shunt__now() - start < SHUNT__S, "soon (%.1f ms)", (double)(shunt__now() - start) / SHUNT__MS);
    unsetenv("SHUNT_ID_FILE");
}

static void root_closed(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = open_root(LONG, "127.0.0.1", id);
    struct rank *ranks = make_ranks(3, id, LONG);

    for (int i = 0; i < 2; i++)
        start_rank(&ranks[i]);
    sleep_ms(200);
    shunt__boot_root_close(root);
    for (int i = 0; i < 2; i++)
        pthread_join(ranks[i].thread, NULL);
    is_int(count_text(ranks, 2, SHUNT_ERR_ABORTED, "closed the meeting"), 2, "a root that is closed says so: %s", ranks[0].text);
    free(ranks);
}

static void left(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = open_root(LONG, "127.0.0.1", id);
    struct rank *ranks = make_ranks(30, id, LONG);

    ranks[2].leave = 1; /* has children and a parent */
    run_ranks(ranks, 30);
    ranks[2].size = 0;
    is_int(count_text(ranks, 30, SHUNT_ERR_PEER, "rank 2 "), 29, "a rank that goes after the meeting is named by all: %s",
           ranks[29].text);
    shunt__boot_root_close(root);
    free(ranks);
}

static struct shunt__boot *boots[30];
static pthread_barrier_t together;

struct late {
    int rank, size, absent, barrier;
    const char *setting;
    const unsigned char *id;
    pthread_t thread;
    shunt_status_t status;
    char text[1024];
};

/* All meet; then those who are absent do nothing until the others have given up. */
static void *late_main(void *arg)
{
    struct late *l = arg;
    struct shunt__config config;
    const char *settings[] = {l->setting, NULL};
    unsigned char epoch[16];
    struct shunt__boot_all all;
    shunt_status_t status;

    shunt__config_load(&config, settings);
    status = shunt__boot_open(&config, l->id, l->rank, l->size, NULL, &boots[l->rank], epoch);
    pthread_barrier_wait(&together);
    if (!status && !l->absent) {
        if (l->barrier)
            status = shunt__boot_barrier(boots[l->rank], NULL);
        else if ((status = shunt__boot_allgather(boots[l->rank], "x", 1, NULL, &all)) == SHUNT_OK)
            shunt__boot_all_free(&all);
        snprintf(l->text, sizeof(l->text), "%s", shunt_error_text());
        if (shunt__boot_barrier(boots[l->rank], NULL) != status)
            snprintf(l->text, sizeof(l->text), "the next step says something else");
    }
    l->status = status;
    pthread_barrier_wait(&together);
    shunt__boot_close(boots[l->rank]);
    shunt__config_free(&config);
    return NULL;
}

static void steps(int absent, int barrier, shunt_status_t want, const char *part, const char *what)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = open_root(LONG, "127.0.0.1", id);
    struct late l[11];
    int good = 0, n = 11;

    pthread_barrier_init(&together, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        l[i] = (struct late){.rank = i, .size = n, .absent = i == absent, .barrier = i == barrier, .id = id,
                             .setting = want == SHUNT_ERR_TIMEOUT ? "SHUNT_BOOTSTRAP_TIMEOUT=700ms" : LONG};
        pthread_create(&l[i].thread, NULL, late_main, &l[i]);
    }
    for (int i = 0; i < n; i++)
        pthread_join(l[i].thread, NULL);
    for (int i = 0; i < n; i++) {
        good += i != absent && l[i].status == want && strstr(l[i].text, part);
        if (i != absent && (l[i].status != want || !strstr(l[i].text, part)))
            printf("# rank %d: %s: %s\n", i, shunt_status_name(l[i].status), l[i].text);
    }
    is_int(good, n - (absent >= 0), "%s: %s", what, l[2].text);
    pthread_barrier_destroy(&together);
    shunt__boot_root_close(root);
}

static void other_ids(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES], other[SHUNT__BOOT_ID_BYTES];
    struct shunt__boot_root *root = open_root(LONG, "127.0.0.1", id);
    struct shunt__boot_id parts;
    struct rank *ranks = make_ranks(2, id, LONG), *wrong = make_ranks(2, other, LONG);

    shunt__boot_id_unpack(id, &parts);
    parts.key[5] ^= 1;
    shunt__boot_id_pack(&parts, other);
    run_ranks(wrong, 2);
    is_int(count_text(wrong, 2, SHUNT_ERR_AUTH, "another meeting"), 2, "an id with another key is refused: %s", wrong[0].text);
    free(wrong);
    run_ranks(ranks, 2);
    ok(all_fine(ranks, 2), "and does no harm");
    wrong = make_ranks(2, id, LONG);
    run_ranks(wrong, 2);
    is_int(count_text(wrong, 2, SHUNT_ERR_INVALID, "was over"), 2, "an id serves once: %s", wrong[0].text);
    shunt__boot_root_close(root);
    free(wrong);
    wrong = make_ranks(2, id, "SHUNT_BOOTSTRAP_TIMEOUT=300ms");
    run_ranks(wrong, 2);
    is_int(count_text(wrong, 2, SHUNT_ERR_TIMEOUT, "onnection refused"), 2, "behind an old one nobody answers: %s",
           wrong[0].text);
    free(ranks);
    free(wrong);
}

static int open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Again and again; every tenth time a rank is missing. */
static void leaks(void)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    int before = open_files(), good = 0;

    for (int i = 0; i < 200; i++) {
        int miss = i % 10 == 5;
        struct shunt__boot_root *root = open_root(LONG, "127.0.0.1", id);
        struct rank *ranks = make_ranks(3, id, miss ? "SHUNT_BOOTSTRAP_TIMEOUT=50ms" : LONG);

        if (miss)
            ranks[2].size = 0;
        run_ranks(ranks, 3);
        good += miss ? count_text(ranks, 3, SHUNT_ERR_TIMEOUT, "") == 2 : all_fine(ranks, 3);
        shunt__boot_root_close(root);
        free(ranks);
    }
    is_int(good, 200, "200 meetings, every tenth of which fails");
    is_int(open_files(), before, "leave no descriptor behind");
}

int main(void)
{
    leaks();
    missing();
    twice();
    sizes();
    stopped();
    stopped_env("0", 0, "rank 0 by torchrun's variables");
    stopped_env("1", 0, "another rank");
    stopped_env("0", 1, "rank 0 with a file");
    stopped_env("1", 1, "another rank");
    root_closed();
    left();
    steps(-1, 4, SHUNT_ERR_MISMATCH, "an allgather", "ranks in different steps");
    steps(9, -1, SHUNT_ERR_TIMEOUT, "rank 9 is missing in an allgather", "a rank that does not take part");
    steps(1, -1, SHUNT_ERR_TIMEOUT, "1", "a rank with children that does not");
    other_ids();
    return done();
}
