/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes an ordinary test of a fuzz target: each file of its corpus is one assertion, which holds when the target returns.
 * The corpus is the folder argv[1], by default corpus-X beside the source of fuzz_X.
 */
#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <stdint.h>
#include "tests/tap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *f = fopen(path, "rb");
    uint8_t *exact;
    size_t n;

    if (!f)
        return -1;
    n = fread(bytes, 1, sizeof(bytes), f);
    fclose(f);
    exact = malloc(n ? n : 1); /* so that a sanitizer sees what is read beyond the end */
    memcpy(exact, bytes, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* .../tests/boot/fuzz_id (perhaps below .libs) has its corpus in $abs_top_srcdir/tests/boot/corpus-id. */
static int default_folder(char *program, char *folder, size_t size)
{
    const char *top = getenv("abs_top_srcdir"), *name;
    char path[PATH_MAX], *part = strstr(program, "tests/");
    char *copy = strdup(program), *base = basename(copy);

    name = strstr(base, "fuzz_");
    if (!part || !name)
        return -1;
    snprintf(path, sizeof(path), "%s", part);
    *strrchr(path, '/') = 0;
    if (strlen(path) > 6 && strcmp(path + strlen(path) - 6, "/.libs") == 0)
        path[strlen(path) - 6] = 0;
    snprintf(folder, size, "%s/%s/corpus-%s", top ? top : ".", path, name + 5);
    free(copy);
    return 0;
}

int main(int argc, char **argv)
{
    char folder[2 * PATH_MAX], path[3 * PATH_MAX];
    struct dirent **list;
    int n, files = 0;

    if (argc > 1)
        snprintf(folder, sizeof(folder), "%s", argv[1]);
    else if (default_folder(argv[0], folder, sizeof(folder)) != 0) {
        printf("Bail out! name the corpus folder\n");
        return 1;
    }
    n = scandir(folder, &list, NULL, by_name);
    for (int i = 0; i < n; i++) {
        if (list[i]->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, list[i]->d_name);
            ok(run_file(path) == 0, "%s", list[i]->d_name);
            files++;
        }
        free(list[i]);
    }
    if (n >= 0)
        free(list);
    ok(files > 0, "%s has files", folder);
    return done();
}
