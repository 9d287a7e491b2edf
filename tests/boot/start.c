/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many processes meet. As a test: 64 of them, 3 times. As a benchmark: start N... times each number of processes, from
 * the moment they are let go (all forked and waiting) to the end of the last one's shunt__boot_open(), and to the end of
 * a gather of 300 bytes each and a barrier; the least, the median and the greatest of 7 runs.
 */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/boot/ranks.h"

#define LONG "SHUNT_BOOTSTRAP_TIMEOUT=60s"

struct report {
    uint64_t open, all;
    int good;
};

static void be_rank(int rank, int size, const unsigned char *id, int gate, struct report *report)
{
    struct shunt__config config;
    struct shunt__boot *boot = NULL;
    struct rank me = {.rank = rank, .size = size, .bytes = 300};
    const char *settings[] = {LONG, NULL};
    unsigned char epoch[16];
    char byte;

    shunt__config_load(&config, settings);
    while (read(gate, &byte, 1) < 0 && errno == EINTR) {
    }
    if (shunt__boot_open(&config, id, rank, size, NULL, &boot, epoch) == SHUNT_OK) {
        report->open = shunt__now();
        report->good = check_gather(boot, &me) && shunt__boot_barrier(boot, NULL) == SHUNT_OK;
        report->all = shunt__now();
    }
    if (!report->good)
        printf("# rank %d: %s\n", rank, shunt_error_text());
    shunt__boot_close(boot);
    shunt__config_free(&config);
}

/* Sets the seconds until the last open and the last barrier; the number of ranks that came through. */
static int meeting(int n, double *opened, double *all)
{
    unsigned char id[SHUNT__BOOT_ID_BYTES];
    struct report *reports = mmap(NULL, (size_t)n * sizeof(*reports), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct shunt__boot_root *root;
    pid_t *pid = calloc((size_t)n, sizeof(*pid));
    uint64_t start, last_open = 0, last_all = 0;
    int gate[2], good = 0;

    /* Forked before the root's thread exists; the id reaches them through shared memory. */
    unsigned char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (reports == MAP_FAILED || shared == MAP_FAILED || pipe(gate) != 0)
        abort();
    fflush(stdout);
    for (int i = 0; i < n; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            close(gate[1]);
            be_rank(i, n, shared, gate[0], &reports[i]);
            fflush(stdout);
            _exit(0);
        }
    }
    close(gate[0]);
    root = open_root(LONG, "127.0.0.1", id);
    memcpy(shared, id, sizeof(id));
    sleep_ms(50 + n);
    start = shunt__now();
    close(gate[1]);
    for (int i = 0; i < n; i++)
        if (pid[i] > 0)
            while (waitpid(pid[i], NULL, 0) < 0 && errno == EINTR) {
            }
    for (int i = 0; i < n; i++) {
        good += reports[i].good;
        last_open = reports[i].open > last_open ? reports[i].open : last_open;
        last_all = reports[i].all > last_all ? reports[i].all : last_all;
    }
    *opened = (double)(last_open - start) / SHUNT__S;
    *all = (double)(last_all - start) / SHUNT__S;
    shunt__boot_root_close(root);
    munmap(reports, (size_t)n * sizeof(*reports));
    munmap(shared, 4096);
    free(pid);
    return good;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    double opened[7], all[7];

    if (argc < 2) {
        for (int i = 0; i < 3; i++) {
            is_int(meeting(64, &opened[i], &all[i]), 64, "64 processes meet and exchange bytes");
            printf("# met after %.1f ms, all done after %.1f ms\n", 1e3 * opened[i], 1e3 * all[i]);
        }
        return done();
    }
    printf("# %6s  %24s  %24s\n", "ranks", "met (ms)", "with gather and barrier");
    for (int a = 1; a < argc; a++) {
        int n = atoi(argv[a]);
        for (int i = 0; i < 7; i++)
            if (n < 1 || meeting(n, &opened[i], &all[i]) != n)
                return 1;
        qsort(opened, 7, sizeof(*opened), by_size);
        qsort(all, 7, sizeof(*all), by_size);
        printf("# %6d  %6.1f  %6.1f  %6.1f    %6.1f  %6.1f  %6.1f\n", n, 1e3 * opened[0], 1e3 * opened[3], 1e3 * opened[6],
               1e3 * all[0], 1e3 * all[3], 1e3 * all[6]);
    }
    return 0;
}
