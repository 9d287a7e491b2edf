/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's configuration files. As NCCL does at its first call, lines NAME=VALUE become variables of the environment unless
 * these exist: of the file that NCCL_CONF_FILE names, else of ~/.nccl.conf, then of /etc/nccl.conf.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "shim/shim.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_file(const char *path)
{
    FILE *f = path && *path ? fopen(path, "re") : NULL;
    char *line = NULL;
    size_t room = 0;

    while (f && getline(&line, &room, f) > 0) {
        char *name = line + strspn(line, " \t"), *value = strchr(name, '=');
        if (!value || (strncmp(name, "NCCL_", 5) != 0 && strncmp(name, "SHUNT_", 6) != 0))
            continue;
        *value++ = '\0';
        name[strcspn(name, " \t")] = '\0';
        value += strspn(value, " \t");
        value[strcspn(value, "\r\n#")] = '\0';
        for (size_t n = strlen(value); n > 0 && strchr(" \t", value[n - 1]);)
            value[--n] = '\0';
        setenv(name, value, 0);
    }
    if (f)
        fclose(f);
    free(line);
}

static void read_all(void)
{
    const char *file = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
    char path[4096];

    if (shim__off())
        return; /* the other library reads them itself */
    snprintf(path, sizeof(path), "%s/.nccl.conf", home ? home : "");
    read_file(file ? file : path);
    read_file("/etc/nccl.conf");
}

void shim__conf(void)
{
    pthread_once(&once, read_all);
}

const char *shim__setting(const char *name)
{
    shim__conf();
    return getenv(name);
}
