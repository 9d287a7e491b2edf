/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings, status texts, and the replaceable clock. */
#include "comm/base/clock.h"
#include "comm/base/config.h"
#include "comm/base/log.h"
#include "tests/tap.h"

static void values(void)
{
    int64_t v;

    ok(shunt__config_parse(SHUNT__SIZE, "64k", &v) == 0 && v == 65536, "64k is 65536");
    ok(shunt__config_parse(SHUNT__SIZE, "2MiB", &v) == 0 && v == 2097152, "2MiB is 2097152");
    ok(shunt__config_parse(SHUNT__SIZE, "-1", &v) != 0, "a negative size is refused");
    ok(shunt__config_parse(SHUNT__SIZE, "12q", &v) != 0, "an unknown suffix is refused");
    ok(shunt__config_parse(SHUNT__TIME, "50us", &v) == 0 && v == 50000, "50us is 50000 ns");
    ok(shunt__config_parse(SHUNT__TIME, "1.5", &v) == 0 && v == 1500000000, "a bare time is in seconds");
    ok(shunt__config_parse(SHUNT__BOOL, "off", &v) == 0 && v == 0, "off is false");
    ok(shunt__config_parse(SHUNT__BOOL, "maybe", &v) != 0, "maybe is no truth value");
    ok(shunt__config_parse(SHUNT__INT, "", &v) != 0, "an empty number is refused");
}

static void table(void)
{
    struct shunt__config cfg;
    const char *good[] = {"SHUNT_EAGER=1m", NULL}, *bad[] = {"SHUNT_EAGER=lots", NULL};

    setenv("SHUNT_CHUNK", "128k", 1);
    ok(shunt__config_load(&cfg, good) == SHUNT_OK, "settings load");
    is_int(shunt__config_int(&cfg, SHUNT__CHUNK), 131072, "the environment is read");
    is_int(shunt__config_int(&cfg, SHUNT__EAGER), 1048576, "the caller's value wins");
    is_int(shunt__config_int(&cfg, SHUNT__UNMATCHED), 8388608, "the rest has its default");
    shunt__config_free(&cfg);
    is_int(shunt__config_load(&cfg, bad), SHUNT_ERR_INVALID, "a bad value is refused");
    ok(strstr(shunt_error_text(), "SHUNT_EAGER=lots"), "its text names the setting: %s", shunt_error_text());
    shunt__fail(SHUNT_ERR_RAIL, "the cause");
    shunt__fail(SHUNT_ERR_PEER, "what it led to, as: %s", shunt_error_text());
    is_str(shunt_error_text(), "what it led to, as: the cause", "an error's text may quote the one before");
    setenv("SHUNT_CRC", "", 1);
    ok(shunt__config_load(&cfg, NULL) == SHUNT_OK && shunt__config_int(&cfg, SHUNT__CRC) == 1, "an empty variable is unset");
    shunt__config_free(&cfg);
    is_str(shunt__config_nearest("SHUNT_EAGR"), "SHUNT_EAGER", "the nearest name is found");
    ok(shunt__config_nearest("SHUNT_SOMETHING_ELSE") == NULL, "a far name has no nearest");
    for (int i = 0; i < SHUNT__N_SETTINGS; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(shunt__settings[i].name, shunt__settings[j].name) == 0)
                ok(0, "%s stands twice in the table", shunt__settings[i].name);
}

static uint64_t frozen(void)
{
    return 42;
}

int main(void)
{
    values();
    table();
    shunt__clock_replace(frozen);
    is_int(shunt__now(), 42, "a test can replace the clock");
    shunt__clock_replace(NULL);
    ok(shunt__now() != 42, "and restore it");
    is_str(shunt_status_name(SHUNT_ERR_PEER), "PEER", "codes have names");
    return done();
}
