#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC2034,SC2016,SC1091
test_description='the tree keeps its own rules: licences, who includes whom, scripts, manuals'
. /usr/share/sharness/sharness.sh

cd "$abs_top_srcdir" || exit 1
out=$SHARNESS_TRASH_DIRECTORY

# includes FOLDER...: the headers of ours that files there include, as FILE:HEADER.
includes() {
    grep -rnoE --include='*.[ch]' '^#include ["<][a-z]+/[^">]*[">]' "$@" | sed -E 's/:[0-9]+:#include ["<](.*)[">]/:\1/' |
        grep -E ':(comm|topo|sched|shim|tools|tests|shunt)/'
}

# only PATTERN FOLDER...: they include nothing of ours but what PATTERN allows.
only() {
    local pattern=$1
    shift
    includes "$@" | grep -vE ":($pattern)" >"$out/wrong"
    cat "$out/wrong"
    test ! -s "$out/wrong"
}

test_expect_success 'every file says its licence in one of its first lines' '
    find comm topo sched shim tools tests -type f \( -name "*.[ch]" -o -name "*.cc" -o -name "*.sh" -o -name "*.t" -o \
        -name "*.py" -o -name "*.awk" -o -name "*.inc" -o -name "*.am" -o -name "*.map" -o -name "*.def" -o \
        -name "*.[1-8]" \) >"$out/files" &&
    printf "%s\n" configure.ac Makefile.am tools/deps tools/quickstart tests/run tests/bounded .ci/run >>"$out/files" &&
    test "$(wc -l <"$out/files")" -gt 100 &&
    while read -r file; do
        head -n 4 "$file" | grep -q "SPDX-License-Identifier: BSD-3-Clause" || echo "$file"
    done <"$out/files" >"$out/wrong" &&
    cat "$out/wrong" && test ! -s "$out/wrong"
'
test_expect_success 'comm/base includes nothing of the other rooms' '
    only "comm/base/|shunt/(status|types|info)\.h" comm/base
'
test_expect_success 'topo includes comm/base alone' '
    only "topo/|comm/base/|shunt/(topo|fabric|status|types)\.h" topo
'
test_expect_success 'sched includes comm/base and public headers of comm' '
    only "sched/|comm/base/|shunt/" sched
'
test_expect_success 'comm includes topo by its public headers' '
    only "comm/|shunt/" comm
'
test_expect_success 'tools include public headers and their own' '
    only "tools/|shunt/" tools
'
if command -v shellcheck >/dev/null; then test_set_prereq SHELLCHECK; fi
test_expect_success SHELLCHECK 'shellcheck has nothing to say about the scripts' '
    shellcheck tools/deps tools/quickstart tools/train/main-job tests/run tests/bounded .ci/run \
        "$abs_top_builddir/tools/shunt-lab"
'
if command -v mandoc >/dev/null; then test_set_prereq MANDOC; fi
test_expect_success MANDOC 'manuals are well formed' '
    mandoc -T lint -W warning tools/man/*.[1-8]
'
test_expect_success 'every program has a manual, and --help' '
    for manual in tools/man/shunt-*.1; do
        program=$(basename "$manual" .1)
        test -x "$abs_top_builddir/tools/$program" || continue
        echo "$program" && "$abs_top_builddir/tools/$program" --help >"$out/help" && grep -q usage "$out/help" || return 1
    done &&
    for program in "$abs_top_builddir"/tools/shunt-*; do
        test -f "$program" || continue
        test -e "tools/man/$(basename "$program").1" || { echo "no manual of $program"; return 1; }
    done
'
test_expect_success 'tools/deps lists packages, and refuses what it does not know' '
    tools/deps --list | grep -x libsodium-dev && tools/deps --test --list | grep -x sharness &&
    test_expect_code 2 tools/deps --nonsense 2>"$out/err" && grep nonsense "$out/err"
'
test_expect_success 'no file speaks of the place it was written in' '
    ! grep -rnE "/tmp/wt|/work/(main|shared)" --include="*.[ch]" --include="*.sh" --include="*.t" --include="*.inc" \
        --include="*.[1-8]" --exclude=tree.t comm topo sched shim tools tests README.md
'
test_done
