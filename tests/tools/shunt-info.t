#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# With SHUNT_REGENERATE=1 the table of shunt-settings(7) is written anew from the settings themselves.
test_description='shunt-info: build, NICs, limits, settings; and shunt-settings(7) says the same'
. /usr/share/sharness/sharness.sh

if ! command -v jq >/dev/null; then
    skip_all='jq is not installed'
    test_done
fi
command -v mandoc >/dev/null && test_set_prereq MANDOC
# Sanitizers map more than any limit allows.
(ulimit -v 8000000 && shunt-info --version) >/dev/null 2>&1 && test_set_prereq BOUNDABLE
manual=$abs_top_srcdir/tools/man/shunt-settings.7

# The table as mdoc.
table() {
    shunt-info -e --json | jq -r '
        .settings | group_by(.group) | .[] |
        ".Ss About: " + .[0].group, ".Bl -tag -width Ds",
        (.[] | ".It Ev " + .name + " Pq " + .type + (if .default == "" then "" else ", " + .default end),
               ((.help | gsub("\\\\"; "\\e")) + ".")),
        ".El"'
}

if test -n "$SHUNT_REGENERATE"; then
    table >table
    sed -e '/begin of the table/,/end of the table/{//!d}' -e '/begin of the table/r table' "$manual" >manual &&
        cp manual "$manual"
fi

test_expect_success 'text names version, backends, NICs and limits' '
    shunt-info >out &&
    grep -q "^shunt [0-9]" out && grep -q "sock *yes" out && grep -q " lo " out && grep -q "open files" out &&
    grep -q "/dev/shm" out && grep -q "locked memory" out
'
test_expect_success 'JSON has the same' '
    shunt-info --json >out &&
    jq -e ".version and .build and (.features | length > 4) and (.checks | length > 3) and (.settings | length > 15)" out &&
    jq -e "[.nics[] | select(.name == \"lo\")][0].use == \"unused\"" out &&
    jq -e "all(.nics[]; .reason != \"\")" out
'
test_expect_success 'a NIC that is asked for is used, and said to be' '
    SHUNT_RAILS=lo shunt-info --json >out &&
    jq -e "[.nics[] | select(.use == \"used\")] | length == 1 and .[0].name == \"lo\"" out &&
    jq -e ".decided_by == \"SHUNT_RAILS\"" out
'
test_expect_success 'few descriptors stop it, some hurt' '
    (ulimit -n 70 && test_expect_code 1 shunt-info >out) && grep -q "stops *open files *70 .*ulimit -n" out &&
    (ulimit -n 300 && shunt-info >out) && grep -q "hurts *open files" out &&
    (ulimit -n 300 && test_expect_code 1 shunt-info --strict >out)
'
test_expect_success BOUNDABLE 'bounded address space is mentioned' '
    (ulimit -v 8000000 && shunt-info >out) && grep -q "hurts *address space" out
'
test_expect_success 'a wrong value stops it' '
    test_expect_code 1 env SHUNT_CHUNK=lots shunt-info >out && grep -q "stops *SHUNT_CHUNK" out &&
    test_expect_code 1 env SHUNT_BACKEND=carrier-pigeon shunt-info >out && grep -q "no such backend" out
'
test_expect_success 'an unknown name gets the nearest' '
    SHUNT_EAGR=1k shunt-info >out && grep -q "hurts *SHUNT_EAGR .*SHUNT_EAGER" out &&
    SHUNT_EAGR=1k shunt-info -e >out 2>err && grep -q "SHUNT_EAGER" err
'
test_expect_success 'settings show what holds' '
    SHUNT_EAGER=1m shunt-info -e >out && grep -qx "SHUNT_EAGER=1m" out && grep -qx "#SHUNT_WINDOW=2m" out &&
    SHUNT_EAGER=1m shunt-info -e --json >out &&
    jq -e ".settings[] | select(.name == \"SHUNT_EAGER\") | .value == \"1m\" and .from == \"environment\"" out
'
test_expect_success 'mistakes end with 2' '
    test_expect_code 2 shunt-info --frobnicate 2>err && grep -q -- --help err &&
    test_expect_code 2 shunt-info eth0 2>err
'
test_expect_success 'shunt-settings(7) lists every setting as it is (else run this test with SHUNT_REGENERATE=1)' '
    table >want &&
    sed -n "/begin of the table/,/end of the table/{//!p}" "$manual" >got &&
    diff want got
'
test_expect_success MANDOC 'manual pages are well-formed' '
    for page in shunt-info.1 shunt-settings.7; do
        mandoc -T lint -W warning "$abs_top_srcdir/tools/man/$page" || return 1
    done
'

test_done
