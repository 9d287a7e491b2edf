/* SPDX-License-Identifier: BSD-3-Clause */
/* The settings: one table, read from the environment, overridden by the caller. */
#ifndef SHUNT_BASE_CONFIG_H
#define SHUNT_BASE_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <shunt/status.h>

enum shunt__setting {
#define SETTING(id, name, type, def, cls, help) SHUNT__##id,
#include "comm/base/settings.def"
#undef SETTING
    SHUNT__N_SETTINGS
};

enum shunt__setting_type { SHUNT__BOOL, SHUNT__INT, SHUNT__SIZE, SHUNT__TIME, SHUNT__STRING };

struct shunt__setting_row {
    const char *name;
    enum shunt__setting_type type;
    const char *def;
    const char *cls;
    const char *help;
};

extern const struct shunt__setting_row shunt__settings[SHUNT__N_SETTINGS];

struct shunt__config {
    char *text[SHUNT__N_SETTINGS];   /* as given or the default; owned */
    int64_t value[SHUNT__N_SETTINGS]; /* parsed; 0 for STRING */
    unsigned char given[SHUNT__N_SETTINGS]; /* 1: by the environment, 2: by the caller */
};

/*
 * Fills `cfg` from defaults, the environment and `overrides` ("NAME=VALUE" strings, NULL-terminated, may be
 * NULL), in rising order. A value that can't be parsed gives SHUNT_ERR_INVALID with a text naming the
 * setting; an unknown SHUNT_* name gets one warning with the nearest known name.
 */
shunt_status_t shunt__config_load(struct shunt__config *cfg, const char *const *overrides);
void shunt__config_free(struct shunt__config *cfg);

static inline int64_t shunt__config_int(const struct shunt__config *cfg, enum shunt__setting s)
{
    return cfg->value[s];
}

static inline const char *shunt__config_str(const struct shunt__config *cfg, enum shunt__setting s)
{
    return cfg->text[s];
}

/* Parses one value; bytes for SIZE, nanoseconds for TIME. Nonzero when it is not of the type. */
int shunt__config_parse(enum shunt__setting_type type, const char *text, int64_t *value);
/* The known name nearest to `name` by edit distance, or NULL when none is near. */
const char *shunt__config_nearest(const char *name);

#endif
