#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC2034,SC2016,SC1091
test_description='the main job trains through failing rails, and loses no bit'
. /usr/share/sharness/sharness.sh

job=$abs_top_srcdir/tools/train/main-job

test_expect_success 'wrong usage is refused with code 2' '
    test_expect_code 2 "$job" --steps few 2>err && grep "from 8" err &&
    test_expect_code 2 "$job" --nonsense 2>err &&
    "$job" --help >out && grep "last bit" out
'
if [ ! -x "$abs_top_builddir/tools/shunt-train" ]; then
    test_expect_success TRAIN 'the job (shunt-train was not built: no BLAS)' false
    test_done
fi
test_expect_success 'without a lab it trains in plain processes' '
    timeout 300 "$job" --build "$abs_top_builddir" --steps 8 --no-lab --out plain >out && grep "done: 8 steps" out
'
if [ "$(id -u)" != 0 ] || ! unshare --net --mount true 2>/dev/null; then
    test_expect_success NAMESPACES 'the job between hosts (needs root and network namespaces)' false
    test_done
fi
test_expect_success 'three runs, two of them with a slow, a dead and a late rail, give the same losses' '
    timeout 300 "$job" --build "$abs_top_builddir" --steps 16 --out faults >out 2>&1 || { cat out; false; } &&
    grep "All 16 losses of the three runs are equal to the last bit" out &&
    test $(grep -c "^>>>>" out) = 10
'
test_expect_success 'the dead rail is named' '
    grep "found .*:rail1 to .*dead" out
'
test_expect_success 'there is a picture' '
    test $(grep -c "<polyline" faults/iterations.svg) = 3
'
test_done
