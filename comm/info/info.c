/* SPDX-License-Identifier: BSD-3-Clause */
/* The settings table and the list of backends, as programs outside see them. */
#include <shunt/info.h>
#include <pthread.h>
#include <string.h>
#include "comm/base/config.h"
#include "comm/base/log.h"
#include "comm/rail/rail.h"
#include "config.h"

static const char *const type_names[] = {
    [SHUNT__BOOL] = "bool", [SHUNT__INT] = "int", [SHUNT__SIZE] = "size", [SHUNT__TIME] = "time", [SHUNT__STRING] = "string"};

static shunt_setting_t settings[SHUNT__N_SETTINGS];
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;

static void fill_settings(void)
{
    for (int i = 0; i < SHUNT__N_SETTINGS; i++) {
        const struct shunt__setting_row *row = &shunt__settings[i];
        settings[i] = (shunt_setting_t){row->name, type_names[row->type], row->def, row->cls, row->help};
    }
}

const shunt_setting_t *shunt_setting_get(unsigned index)
{
    pthread_once(&settings_once, fill_settings);
    return index < SHUNT__N_SETTINGS ? &settings[index] : NULL;
}

shunt_status_t shunt_setting_check(const char *name, const char *value)
{
    int64_t parsed;
    const char *near;

    if (!name || !value)
        return shunt__fail(SHUNT_ERR_INVALID, "setting_check: an argument is NULL");
    for (int i = 0; i < SHUNT__N_SETTINGS; i++) {
        if (strcmp(shunt__settings[i].name, name) != 0)
            continue;
        if (shunt__config_parse(shunt__settings[i].type, value, &parsed) == 0)
            return SHUNT_OK;
        return shunt__fail(SHUNT_ERR_INVALID, "%s=%s is not a %s", name, value, type_names[shunt__settings[i].type]);
    }
    near = shunt__config_nearest(name);
    return shunt__fail(SHUNT_ERR_NOT_FOUND, "there is no setting %s%s%s", name, near ? "; the nearest is " : "",
                       near ? near : "");
}

static shunt_feature_t features[] = {
    {"sock", 1, 0, "rails over TCP sockets"},
    {"shm", 1, 0, "shared memory between processes of one host"},
    {"ucx", 1, 0, "rails over UCX: InfiniBand, RoCE and TCP"},
    {"ofi", 1, 0, "rails over libfabric: EFA, Slingshot and others"},
    {"loop", 1, 0, "ranks within one process, for tests"},
    {"PMIx", 0,
#ifdef HAVE_PMIX
     1,
#else
     0,
#endif
     "start-up under mpirun, srun and prun"},
};
static pthread_once_t features_once = PTHREAD_ONCE_INIT;

static void fill_features(void)
{
    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
        if (features[i].is_rail)
            features[i].built = shunt__rail_backend(features[i].name) != NULL;
}

const shunt_feature_t *shunt_feature_get(unsigned index)
{
    pthread_once(&features_once, fill_features);
    return index < sizeof(features) / sizeof(features[0]) ? &features[index] : NULL;
}

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif
#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#else
#define MACHINE "another machine"
#endif

const char *shunt_build_text(void)
{
    return COMPILER ", " MACHINE
#if defined(__SANITIZE_ADDRESS__)
                    ", address sanitizer"
#elif defined(__SANITIZE_THREAD__)
                    ", thread sanitizer"
#endif
        ;
}
