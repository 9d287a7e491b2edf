/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/rail/ucx_api.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "comm/base/log.h"

static struct shunt__ucx_api table;
static char reason[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Read by UCX from the environment while it is loaded, into variables of the whole process. */
static const char *const quiet[][2] = {
    {"UCX_HANDLE_ERRORS", "none"},     {"UCX_DEBUG_SIGNO", "0"},
    {"UCX_MEM_MMAP_HOOK_MODE", "none"},  {"UCX_MEM_MALLOC_HOOKS", "n"},
    {"UCX_MEM_MALLOC_RELOC", "n"},     {"UCX_MEM_EVENTS", "n"},             {"UCX_LOG_LEVEL", "fatal"},
    {"UCX_WARN_UNUSED_ENV_VARS", "n"}, {"UCX_MEM_DLOPEN_PROCESS_RPATH", "n"},
};
#define N_QUIET (sizeof(quiet) / sizeof(quiet[0]))

static void load(void)
{
    void *there = dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL);
    unsigned char given[N_QUIET] = {0};
    void *ucp;

    if (there) {
        dlclose(there); /* another user's: its settings stay */
    } else {
        for (size_t i = 0; i < N_QUIET; i++) {
            given[i] = getenv(quiet[i][0]) != NULL;
            setenv(quiet[i][0], quiet[i][1], 0);
        }
    }
    ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!ucp)
        snprintf(reason, sizeof(reason), "%s", dlerror());
    for (size_t i = 0; !there && i < N_QUIET; i++)
        if (!given[i])
            unsetenv(quiet[i][0]);
    if (!ucp)
        return;
#define LOAD(name) \
    if (!*reason) { \
        table.name = (__typeof__(table.name))dlsym(ucp, #name); \
        if (!table.name) \
            snprintf(reason, sizeof(reason), "libucp.so.0 has no " #name); \
    }
    SHUNT__UCX_FUNCTIONS(LOAD)
#undef LOAD
}

shunt_status_t shunt__ucx_load(const struct shunt__ucx_api **api)
{
    pthread_once(&once, load);
    if (*reason)
        return shunt__fail(SHUNT_ERR_UNSUPPORTED, "UCX can't be used: %s (install libucx0)", reason);
    *api = &table;
    return SHUNT_OK;
}
