/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libshunt-audit.so, for LD_AUDIT: the one way to those who open NCCL by an absolute path, where no preload reaches. Whoever
 * opens a libnccl.so.2 gets the one beside this module, but for that library itself, which may open the real one.
 * With SHUNT_NCCL=off it does nothing.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))
#define LIBRARY "libnccl.so.2"

static char shim[4096]; /* the path, empty: off */
static char mark;       /* its address: the cookie of the shim */

VISIBLE unsigned la_version(unsigned version);
VISIBLE char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag);
VISIBLE unsigned la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie);

unsigned la_version(unsigned version)
{
    const char *mode = getenv("SHUNT_NCCL"), *slash;
    Dl_info self;

    (void)version;
    if (mode && (!strcasecmp(mode, "off") || !strcmp(mode, "0") || !strcasecmp(mode, "no")))
        return LAV_CURRENT;
    if (dladdr(&mark, &self) && self.dli_fname && (slash = strrchr(self.dli_fname, '/')))
        snprintf(shim, sizeof(shim), "%.*s/" LIBRARY, (int)(slash - self.dli_fname), self.dli_fname);
    if (access(shim, R_OK) != 0)
        shim[0] = '\0';
    return LAV_CURRENT;
}

static int is_nccl(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;

    return strncmp(base, LIBRARY, sizeof(LIBRARY) - 1) == 0 && strchr(".", base[sizeof(LIBRARY) - 1]);
}

/* Names with a folder only: the others are the business of LD_PRELOAD and LD_LIBRARY_PATH, or come by here again. */
char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
    (void)flag;
    if (shim[0] && strchr(name, '/') && *cookie != (uintptr_t)&mark && is_nccl(name) && access(name, R_OK) == 0)
        return shim;
    return (char *)(uintptr_t)name;
}

unsigned la_objopen(struct link_map *map, Lmid_t lmid, uintptr_t *cookie)
{
    struct stat ours, opened; /* it may have been opened by another name */

    (void)lmid;
    if (shim[0] && map->l_name && is_nccl(map->l_name) && stat(map->l_name, &opened) == 0 && stat(shim, &ours) == 0 &&
        opened.st_dev == ours.st_dev && opened.st_ino == ours.st_ino)
        *cookie = (uintptr_t)&mark;
    return 0;
}
