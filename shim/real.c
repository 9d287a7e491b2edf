/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SHUNT_NCCL=off: another libnccl.so.2 is found and gets every call. It is opened by its path, so that our own SONAME
 * doesn't stand in for it, and with RTLD_DEEPBIND, so that its calls to its own public functions don't come back here.
 * Sought in SHUNT_NCCL_LIB, LD_LIBRARY_PATH, the site-packages of whatever is loaded from one, the folders of the
 * system and of CUDA.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "shim/shim.h"

static const char *const folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/usr/local/cuda-*/lib",
                                      "/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                      "/usr/lib64", "/usr/lib"};

static pthread_once_t off_once = PTHREAD_ONCE_INIT, once = PTHREAD_ONCE_INIT;
static int off;
static void *handle;
static struct shim__real real;

static void read_off(void)
{
    const char *mode = getenv("SHUNT_NCCL");

    off = mode && (!strcasecmp(mode, "off") || !strcmp(mode, "0") || !strcasecmp(mode, "no"));
}

int shim__off(void)
{
    pthread_once(&off_once, read_off);
    return off;
}

/* Whether the file is this library, or a copy of it: the note that engine.c puts into it is there. */
static int is_shim(const char *path)
{
    static const char note[] = "Shunt\0\0\0nccl";
    int found = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return 1;
    if (fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size < (4 << 20)) {
        void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        found = bytes == MAP_FAILED || memmem(bytes, (size_t)st.st_size, note, sizeof(note) - 1) != NULL;
        if (bytes != MAP_FAILED)
            munmap(bytes, (size_t)st.st_size);
    }
    close(fd);
    return found;
}

static void try_file(const char *path)
{
    if (!handle && !is_shim(path))
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
}

static void try_folder(const char *pattern, int len)
{
    char path[4096];
    glob_t found;

    snprintf(path, sizeof(path), "%.*s/libnccl.so.2", len, pattern);
    if (handle || len == 0 || glob(path, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        try_file(found.gl_pathv[i]);
    globfree(&found);
}

static int try_packages_of(struct dl_phdr_info *info, size_t size, void *arg)
{
    static const char name[] = "/site-packages/";
    const char *at = info->dlpi_name ? strstr(info->dlpi_name, name) : NULL;
    char path[4096];

    if (at && !*(char *)arg) {
        snprintf(path, sizeof(path), "%.*s%snvidia/nccl/lib", (int)(at - info->dlpi_name), info->dlpi_name, name);
        if (access(path, R_OK) == 0)
            snprintf(arg, sizeof(path), "%s", path);
    }
    return 0;
}

static void load(void)
{
    const char *file = getenv("SHUNT_NCCL_LIB"), *list = getenv("LD_LIBRARY_PATH");
    char packages[4096] = "";

    if (file && *file)
        try_file(file);
    else
        file = NULL;
    for (; !file && list && *list; list += strcspn(list, ":"), list += *list == ':')
        try_folder(list, (int)strcspn(list, ":"));
    if (!file && !handle) {
        dl_iterate_phdr(try_packages_of, packages);
        try_folder(packages, (int)strlen(packages));
    }
    for (size_t i = 0; !file && i < sizeof(folders) / sizeof(*folders); i++)
        try_folder(folders[i], (int)strlen(folders[i]));
    if (!handle)
        return;
#define NCCL(type, name, arguments) real.name = (__typeof__(real.name))dlsym(handle, "nccl" #name);
#include "shim/functions.def"
#include "shim/functions-device.def"
#include "shim/functions-later.def"
#undef NCCL
}

const struct shim__real *shim__real(void)
{
    if (!shim__off())
        return NULL;
    pthread_once(&once, load);
    return handle ? &real : NULL;
}
