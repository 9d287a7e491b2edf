/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every machine of tests/topo/machines (our own, each with one oddity) shows what the .txt beside it says,
 * and goes through every form and back. SHUNT_REGENERATE=1 writes the .txt files anew, to be read before they
 * are committed. Files of tests/topo/bad are refused with a reason.
 */
#include <dirent.h>
#include <hwloc.h>
#include <shunt/topo.h>
#include "tests/tap.h"
#include "tests/topo/forms.h"

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);

    if (f) {
        if (fread(text, 1, (1 << 20) - 1, f) == 0)
            text[0] = 0;
        fclose(f);
    }
    return text;
}

static void expect(const char *xml, const char *name, const char *text)
{
    char path[4096];
    const char *again = getenv("SHUNT_REGENERATE");

    snprintf(path, sizeof(path), "%.*s.txt", (int)(strlen(xml) - 4), xml);
    if (again && *again == '1') {
        FILE *f = fopen(path, "w");
        if (f) {
            fputs(text, f);
            fclose(f);
        }
    }
    char *wanted = read_file(path);
    if (!ok(strcmp(wanted, text) == 0, "%s shows what is expected", name))
        printf("# got:\n%s", text);
    free(wanted);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void machines(const char *top)
{
    char folder[3000], path[4096];
    struct dirent **entry;
    int n;

    snprintf(folder, sizeof(folder), "%s/tests/topo/machines", top);
    n = scandir(folder, &entry, NULL, by_name);
    ok(n > 30, "there are machines in %s", folder);
    for (int i = 0; i < n; i++) {
        const char *dot = strrchr(entry[i]->d_name, '.');
        shunt_topo_t *topo;
        char *text;
        if (dot && strcmp(dot, ".xml") == 0) {
            snprintf(path, sizeof(path), "%s/%s", folder, entry[i]->d_name);
            if (!ok(shunt_topo_load_file(path, &topo) == SHUNT_OK, "%s reads", entry[i]->d_name)) {
                printf("# %s\n", shunt_error_text());
                continue;
            }
            shunt_topo_export(topo, SHUNT_TOPO_TEXT, &text, NULL);
            expect(path, entry[i]->d_name, text);
            free(text);
            check_forms(topo, entry[i]->d_name);
            shunt_topo_destroy(topo);
        }
        free(entry[i]);
    }
    free(entry);
}

static void bad_files(const char *top)
{
    char folder[3000], path[4096];
    struct dirent **entry;
    int n;

    snprintf(folder, sizeof(folder), "%s/tests/topo/bad", top);
    n = scandir(folder, &entry, NULL, by_name);
    ok(n > 10, "there are bad files in %s", folder);
    for (int i = 0; i < n; i++) {
        shunt_topo_t *topo = NULL;
        if (entry[i]->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", folder, entry[i]->d_name);
            shunt_status_t st = shunt_topo_load_file(path, &topo);
            ok((st == SHUNT_ERR_FORMAT || st == SHUNT_ERR_LIMIT) && !topo && *shunt_error_text(), "%s: %s",
               entry[i]->d_name, shunt_error_text());
        }
        free(entry[i]);
    }
    free(entry);
}

/* Files too large to be kept: made here. */
static void limits(void)
{
    size_t room = 24u << 20, n;
    char *text = malloc(room);
    shunt_topo_t *topo = NULL;

    n = (size_t)sprintf(text, "<system version=\"1\"><cpu numaid=\"0\">");
    for (int i = 0; i < 70000; i++)
        n += (size_t)sprintf(text + n, "<pci busid=\"%04x:%02x:00.0\" class=\"0x030200\"/>", i >> 8, i & 255);
    n += (size_t)sprintf(text + n, "</cpu></system>");
    is_int(shunt_topo_load_memory("many", text, n, &topo), SHUNT_ERR_LIMIT, "70,000 elements: %s",
           shunt_error_text());
    n = (size_t)sprintf(text, "<system version=\"1\"><cpu numaid=\"0\">");
    for (int i = 0; i < 4096; i++)
        n += (size_t)sprintf(text + n, "<pci busid=\"%04x:%02x:00.0\" class=\"0x0%d0000\"/>", i >> 8, i & 255,
                             2 + i % 2);
    n += (size_t)sprintf(text + n, "</cpu></system>");
    is_int(shunt_topo_load_memory("4096", text, n, &topo), SHUNT_OK, "4,096 elements read");
    is_int(shunt_topo_count(topo, SHUNT_TOPO_NIC), 2048, "2,048 NICs");
    char *out;
    is_int(shunt_topo_export(topo, SHUNT_TOPO_NCCL, &out, NULL), SHUNT_ERR_LIMIT, "but NCCL's form can't: %s",
           shunt_error_text());
    is_int(shunt_topo_export(topo, SHUNT_TOPO_MATRIX, &out, NULL), SHUNT_ERR_LIMIT, "nor a matrix: %s",
           shunt_error_text());
    is_int(shunt_topo_export(topo, SHUNT_TOPO_TEXT, &out, NULL), SHUNT_OK, "text can");
    free(out);
    is_int(shunt_topo_export(topo, SHUNT_TOPO_SVG, &out, NULL), SHUNT_OK, "SVG can");
    free(out);
    shunt_topo_destroy(topo);
    topo = NULL;
    memset(text, ' ', room);
    is_int(shunt_topo_load_memory("blanks", text, room, &topo), SHUNT_ERR_LIMIT, "24 MiB: %s",
           shunt_error_text());
    n = (size_t)sprintf(text, "<system version=\"1\" name=\"");
    memset(text + n, 'x', 100000);
    n += 100000;
    n += (size_t)sprintf(text + n, "\"/>");
    is_int(shunt_topo_load_memory("long", text, n, &topo), SHUNT_ERR_LIMIT,
           "an attribute of 100,000 bytes: %s", shunt_error_text());
    n = (size_t)sprintf(text, "<system version=\"1\"><cpu numaid=\"0\" affinity=\"");
    for (int i = 0; i < 400; i++)
        n += (size_t)sprintf(text + n, "%sffffffff", i ? "," : "");
    n += (size_t)sprintf(text + n, "\"/></system>");
    is_int(shunt_topo_load_memory("cpus", text, n, &topo), SHUNT_OK, "12,800 CPUs are cut, not refused");
    shunt_topo_destroy(topo);
    free(text);
    is_int(shunt_topo_load_memory(NULL, NULL, 0, &topo), SHUNT_ERR_FORMAT, "no bytes: %s",
           shunt_error_text());
    is_int(shunt_topo_load_file("/nonexistent", &topo), SHUNT_ERR_NOT_FOUND, "no file: %s",
           shunt_error_text());
    is_int(shunt_topo_load_file("/", &topo), SHUNT_ERR_SYSTEM, "a folder: %s", shunt_error_text());
    is_int(shunt_topo_load_file(NULL, &topo), SHUNT_ERR_INVALID, "NULL");
}

static void synthetic(void)
{
    static const char *const bad[] = {"",
                                      "nonsense",
                                      "pack:2 numa:2 + gpu",
                                      "pack:2 + gpu:x",
                                      "pack:2 + nic:1@fast",
                                      "pack:2 + tpu:4",
                                      "pack:100000 core:100000",
                                      "pack:2 + gpu:2000",
                                      "pack:0",
                                      "core:2 + nic:1@400x"};
    shunt_topo_t *topo;

    if (ok(shunt_topo_load_synthetic("pack:2 numa:2 core:4 pu:2 + switch:1 gpu:2 nic:2@400g nvlink:18",
                                     &topo) == SHUNT_OK,
           "a synthetic machine")) {
        is_int(shunt_topo_count(topo, SHUNT_TOPO_GPU), 8, "8 GPUs");
        is_int(shunt_topo_count(topo, SHUNT_TOPO_NIC), 8, "8 NICs");
        is_int(shunt_topo_count(topo, SHUNT_TOPO_NUMA), 4, "4 NUMA nodes");
        check_forms(topo, "synthetic");
        shunt_topo_destroy(topo);
    }
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        topo = NULL;
        shunt_status_t st = shunt_topo_load_synthetic(bad[i], &topo);
        ok((st == SHUNT_ERR_FORMAT || st == SHUNT_ERR_LIMIT) && !topo, "\"%s\": %s", bad[i],
           shunt_error_text());
    }
}

int main(void)
{
    const char *top = getenv("abs_top_srcdir");

    machines(top ? top : ".");
    bad_files(top ? top : ".");
    limits();
    synthetic();
    return done();
}
