/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL's configuration files, and its variables about queue pairs. As NCCL does at its first call, lines NAME=VALUE become variables of the environment unless
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

/* What NCCL says about queue pairs, UCX is told. */
static void translate(void)
{
    static const char *const names[][2] = {{"NCCL_IB_GID_INDEX", "SHUNT_UCX_IB_GID_INDEX"},
                                           {"NCCL_IB_TC", "SHUNT_UCX_IB_TRAFFIC_CLASS"},
                                           {"NCCL_IB_SL", "SHUNT_UCX_IB_SL"},
                                           {"NCCL_IB_RETRY_CNT", "SHUNT_UCX_RC_VERBS_RETRY_COUNT"}};
    const char *timeout = getenv("NCCL_IB_TIMEOUT");
    char text[32];

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = getenv(names[i][0]);
        if (value && *value && strcmp(value, "-1") != 0)
            setenv(names[i][1], value, 0);
    }
    if (timeout && atoi(timeout) > 0 && atoi(timeout) < 32) { /* the exponent of 4.096 us */
        snprintf(text, sizeof(text), "%.2fus", 4.096 * (double)(1u << atoi(timeout)));
        setenv("SHUNT_UCX_RC_VERBS_TIMEOUT", text, 0);
    }
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
    translate();
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
