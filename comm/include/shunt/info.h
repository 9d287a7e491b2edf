/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shunt/info.h - what this build can do and what can be set.
 *
 * Everything here is constant for the life of the process, static, and may be used from any thread.
 */
#ifndef SHUNT_INFO_H
#define SHUNT_INFO_H

#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One setting: an environment variable, which shunt_context_params_t's `settings` may override. */
typedef struct shunt_setting {
    const char *name;          /* "SHUNT_EAGER" */
    const char *type;          /* "bool", "int", "size", "time" or "string" */
    const char *default_value; /* as it would be written; "" if there is none */
    const char *group;         /* what it is about: "rails", "bootstrap", ... */
    const char *help;          /* one line */
} shunt_setting_t;

/* The index-th setting, NULL beyond the last. */
SHUNT_API const shunt_setting_t *shunt_setting_get(unsigned index);

/*
 * Whether `value` would be taken for the setting `name`. SHUNT_ERR_NOT_FOUND for an unknown name (the text has the
 * nearest known one, if any is near), SHUNT_ERR_INVALID for a value that is not of the setting's type or NULL.
 * `name` must begin with SHUNT_ to be looked for.
 */
SHUNT_API shunt_status_t shunt_setting_check(const char *name, const char *value);

/* One part that a build may have or not. */
typedef struct shunt_feature {
    const char *name; /* "sock", "ucx", "PMIx", ... */
    int is_rail;      /* nonzero: a backend for rails, a value of SHUNT_BACKEND */
    int built;        /* nonzero: this build has it */
    const char *what; /* what it does; if it is not built, what its absence means */
} shunt_feature_t;

/* The index-th feature, NULL beyond the last. */
SHUNT_API const shunt_feature_t *shunt_feature_get(unsigned index);

/* Compiler and word size of this build: "gcc 12.2.0, x86_64". */
SHUNT_API const char *shunt_build_text(void);

#ifdef __cplusplus
}
#endif
#endif
