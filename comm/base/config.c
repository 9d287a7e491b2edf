/* SPDX-License-Identifier: BSD-3-Clause */
#include "comm/base/config.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/base/log.h"

extern char **environ;

const struct shunt__setting_row shunt__settings[SHUNT__N_SETTINGS] = {
#define SETTING(id, name, type, def, cls, help) {name, SHUNT__##type, def, cls, help},
#include "comm/base/settings.def"
#undef SETTING
};

struct suffix {
    const char *name;
    double factor;
};
static const struct suffix size_suffixes[] = {{"", 1}, {"k", 1024}, {"m", 1048576}, {"g", 1073741824}, {NULL, 0}};
static const struct suffix time_suffixes[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}, {"min", 6e10}, {NULL, 0}};
static const struct suffix no_suffixes[] = {{"", 1}, {NULL, 0}};

static int parse_number(const char *text, const struct suffix *suffixes, int64_t *value)
{
    char *end, unit[8];
    size_t n = 0;
    double x;

    errno = 0;
    x = strtod(text, &end);
    if (end == text || errno || !isfinite(x))
        return -1;
    for (; *end; end++) {
        char c = *end >= 'A' && *end <= 'Z' ? (char)(*end + 32) : *end;
        if (c == ' ')
            continue;
        if (n == sizeof(unit) - 1)
            return -1;
        unit[n++] = c;
    }
    unit[n] = 0;
    if (suffixes == size_suffixes) { /* 64k, 64kb and 64kib are one thing */
        if (n > 1 && unit[n - 1] == 'b')
            unit[--n] = 0;
        if (n > 1 && unit[n - 1] == 'i')
            unit[--n] = 0;
    }
    for (; suffixes->name; suffixes++)
        if (strcmp(unit, suffixes->name) == 0) {
            x *= suffixes->factor;
            if (x > 9e18 || x < -9e18)
                return -1;
            *value = (int64_t)llround(x);
            return 0;
        }
    return -1;
}

int shunt__config_parse(enum shunt__setting_type type, const char *text, int64_t *value)
{
    static const char *const yes[] = {"1", "y", "yes", "on", "true", NULL};
    static const char *const no[] = {"0", "n", "no", "off", "false", NULL};

    switch (type) {
    case SHUNT__STRING:
        *value = 0;
        return 0;
    case SHUNT__BOOL:
        for (int i = 0; yes[i]; i++) {
            if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
                *value = strcmp(text, yes[i]) == 0;
                return 0;
            }
        }
        return -1;
    case SHUNT__INT:
        return parse_number(text, no_suffixes, value);
    case SHUNT__SIZE:
        return parse_number(text, size_suffixes, value) || *value < 0 ? -1 : 0;
    case SHUNT__TIME:
        return parse_number(text, time_suffixes, value) || *value < 0 ? -1 : 0;
    }
    return -1;
}

static int distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    int row[64];

    if (m >= 64)
        return 99;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diag = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int up = row[j], best = diag + (a[i - 1] != b[j - 1]);
            if (up + 1 < best)
                best = up + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
            diag = up;
        }
    }
    return row[m];
}

const char *shunt__config_nearest(const char *name)
{
    const char *best = NULL;
    int near = 5;

    for (int i = 0; i < SHUNT__N_SETTINGS; i++) {
        int d = distance(name, shunt__settings[i].name);
        if (d < near) {
            near = d;
            best = shunt__settings[i].name;
        }
    }
    return best;
}

static int find(const char *name, size_t len)
{
    for (int i = 0; i < SHUNT__N_SETTINGS; i++)
        if (strlen(shunt__settings[i].name) == len && strncmp(shunt__settings[i].name, name, len) == 0)
            return i;
    return -1;
}

static void warn_unknown(const char *assignment, size_t len)
{
    char name[64];
    const char *near;

    if (len >= sizeof(name))
        return;
    memcpy(name, assignment, len);
    name[len] = 0;
    near = shunt__config_nearest(name);
    shunt__log(SHUNT__LOG_WARN, "%s is not a setting of Shunt%s%s%s", name, near ? "; did you mean " : "",
               near ? near : "", near ? "?" : "");
}

static const char *const type_help[] = {
    [SHUNT__BOOL] = "0 or 1", [SHUNT__INT] = "a whole number", [SHUNT__SIZE] = "a size like 65536, 64k or 2m",
    [SHUNT__TIME] = "a time like 30s, 500ms or 50us", [SHUNT__STRING] = "a text"};

static shunt_status_t set(struct shunt__config *cfg, int i, const char *text, int source)
{
    int64_t value;
    char *copy;

    if (shunt__config_parse(shunt__settings[i].type, text, &value))
        return shunt__fail(SHUNT_ERR_INVALID, "%s=%s: expected %s", shunt__settings[i].name, text,
                           type_help[shunt__settings[i].type]);
    copy = strdup(text);
    if (!copy)
        return shunt__fail(SHUNT_ERR_NO_MEMORY, "no memory for the setting %s", shunt__settings[i].name);
    free(cfg->text[i]);
    cfg->text[i] = copy;
    cfg->value[i] = value;
    cfg->given[i] = (unsigned char)source;
    return SHUNT_OK;
}

static shunt_status_t apply(struct shunt__config *cfg, const char *const *list, int source)
{
    for (; list && *list; list++) {
        const char *eq = strchr(*list, '=');
        if (!eq || strncmp(*list, "SHUNT_", 6) != 0) {
            if (source == 2)
                return shunt__fail(SHUNT_ERR_INVALID, "\"%s\" is not of the form SHUNT_NAME=VALUE", *list);
            continue;
        }
        if (!eq[1] && source == 1)
            continue; /* empty in the environment counts as unset */
        int i = find(*list, (size_t)(eq - *list));
        if (i < 0) {
            if (strncmp(*list, "SHUNT_UCX_", 10) != 0) /* those are handed to UCX */
                warn_unknown(*list, (size_t)(eq - *list));
            continue;
        }
        shunt_status_t st = set(cfg, i, eq + 1, source);
        if (st != SHUNT_OK)
            return st;
    }
    return SHUNT_OK;
}

shunt_status_t shunt__config_load(struct shunt__config *cfg, const char *const *overrides)
{
    shunt_status_t st = SHUNT_OK;

    memset(cfg, 0, sizeof(*cfg));
    for (int i = 0; i < SHUNT__N_SETTINGS && st == SHUNT_OK; i++)
        st = set(cfg, i, shunt__settings[i].def, 0);
    if (st == SHUNT_OK)
        st = apply(cfg, (const char *const *)environ, 1);
    if (st == SHUNT_OK)
        st = apply(cfg, overrides, 2);
    if (st != SHUNT_OK)
        shunt__config_free(cfg);
    return st;
}

void shunt__config_free(struct shunt__config *cfg)
{
    for (int i = 0; i < SHUNT__N_SETTINGS; i++)
        free(cfg->text[i]);
    memset(cfg, 0, sizeof(*cfg));
}
