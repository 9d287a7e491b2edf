#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='64 ranks start and add up a number, as processes of one job'
. /usr/share/sharness/sharness.sh

start=$(date +%s.%N)
test_expect_success '64 ranks start' '
    shunt-run -n 64 -t 120 --no-prefix -- "$abs_top_builddir/tests/core/start" >out &&
    test "$(sort -u out)" = "64 ranks, sum 2016" &&
    test "$(wc -l <out)" = 64
'
say "# from the call of shunt-run to its end: $(date +%s.%N | awk -v start="$start" '{ printf "%.2f", $1 - start }') s"

test_done
