#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='shunt-status: who waits for whom; the metrics file'
. /usr/share/sharness/sharness.sh

test_expect_success 'help and bad usage' '
	shunt-status --help | grep -q "usage: " &&
	test_expect_code 2 shunt-status --nonsense 2>err &&
	test_expect_code 2 shunt-status --pid me 2>err && grep -q "number of a process" err &&
	test_expect_code 3 shunt-status --pid 999999999
'

# Three ranks that pass messages for a while, seen from outside.
SHUNT_METRICS_FILE="$PWD/metrics.%p" shunt-run -n 4 -- "$abs_top_builddir/tests/core/stream" -s 4 >stream.log 2>&1 &
job=$!

test_expect_success 'the ranks of a running job answer' '
	for i in $(seq 100); do
		shunt-status --json >all.json
		pids=$(jq -r ".[] | select([.communicators[] | select(.size == 4)] | length > 0) | .pid" all.json)
		test $(echo $pids | wc -w) -ge 4 && break
		sleep 0.1
	done &&
	jq -e "[.[] | .communicators[] | select(.size == 4) | .state == \"OK\"] | all" all.json &&
	jq -e "[.[] | .communicators[] | select(.size == 4) | .rank] | unique | length == 4" all.json &&
	set -- $pids && shunt-status --pid $1 >text && grep -q "of 4 .*communicator" text
'

test_expect_success 'the job ends well, and its metrics are OpenMetrics text' '
	wait $job && for p in $pids; do
		tail -n 1 metrics.$p | grep -qx "# EOF" && grep -q "^shunt_rail_sent_bytes_total{rail=" metrics.$p || return 1
	done
'
test_done
