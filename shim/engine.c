/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine is opened at the first call that needs it, with its symbols kept from the rest of the process. It is
 * the libshunt.so beside which this library was installed or built, never one of another version.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shim/shim.h"

/* Seen from the installed private folder, and from shim/.libs of a build tree. */
static const char *const places[] = {"/../" SHIM_ENGINE_NAME, "/../../.libs/" SHIM_ENGINE_NAME};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct shim__engine engine;
static int loaded;
static char problem[SHIM_TEXT];

/* So that this library is told from NVIDIA's without running it: readelf -n. */
__attribute__((used, aligned(4), section(".note.shunt"))) static const struct {
    uint32_t name_bytes, bytes, type;
    char name[8];
    char text[8];
} marker = {6, 8, 1, "Shunt", "nccl"};

static void *open_beside(void)
{
    char path[4096], *slash;
    Dl_info self;
    void *handle;

    if (!dladdr(&engine, &self) || !self.dli_fname || !(slash = strrchr(self.dli_fname, '/'))) {
        snprintf(problem, sizeof(problem), "this libnccl.so.2 can't tell where it lies; preload it by a path");
        return NULL;
    }
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        snprintf(path, sizeof(path), "%.*s%s", (int)(slash - self.dli_fname), self.dli_fname, places[i]);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (handle)
            return handle;
        snprintf(problem, sizeof(problem), "the engine can't be opened: %s", dlerror());
        if (i == 0 && !strstr(problem, "No such file"))
            break;
    }
    return NULL;
}

static void load(void)
{
    void *handle;

    if (shim__off()) {
        snprintf(problem, sizeof(problem), "SHUNT_NCCL=off hands every call to another libnccl.so.2, and %s",
                 shim__real() ? "that one lacks this function" : "none was found; set SHUNT_NCCL_LIB to its path");
        return;
    }
    shim__conf();
    handle = open_beside();
    if (!handle)
        return;
#define LOAD(name) \
    engine.name = (__typeof__(engine.name))dlsym(handle, "shunt_" #name); \
    if (!engine.name) { \
        snprintf(problem, sizeof(problem), "%s: no shunt_" #name "; the engine is of another version", SHIM_ENGINE_NAME); \
        return; \
    }
    SHIM_ENGINE(LOAD)
#undef LOAD
    loaded = 1;
}

const struct shim__engine *shim__engine(void)
{
    pthread_once(&once, load);
    if (loaded)
        return &engine;
    shim__fail(ncclSystemError, "%s", problem);
    return NULL;
}
