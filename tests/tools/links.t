#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='shunt-links: matrices, outliers, tables that are kept'
. /usr/share/sharness/sharness.sh

test_expect_success 'help and bad usage' '
	shunt-links --help | grep -q "usage: " &&
	test_expect_code 2 shunt-links --nonsense 2>err &&
	test_expect_code 2 shunt-links -t soon 2>err && grep -q "expected a number" err &&
	test_expect_code 2 shunt-links 2>err && grep -q "shunt-run -n" err
'

test_expect_success 'three ranks of one host' '
	shunt-run -n 3 -- shunt-links -t 3 -o 0 --json out.json --svg out.svg --save table >text &&
	grep -q "bandwidth all at once" text &&
	jq -e ".ranks == 3 and .outliers == 0 and ([.links[] | select(.rail == \"shm\")] | length) == 6" out.json &&
	jq -e "[.links[] | .alone > 0 and .latency > 0 and (.failed | not)] | all" out.json &&
	xmllint --noout out.svg
'

test_expect_success 'a kept table is compared, another file is refused' '
	shunt-run -n 3 -- shunt-links -q -t 2 -o 0 --compare table >text &&
	grep -Eq "[0-9]+ links as before, [0-9]+ changed" text &&
	echo nonsense >bad && test_must_fail shunt-run -n 3 -- shunt-links -q -t 1 -o 0 --compare bad 2>err &&
	grep -q "bad, line 1: not a table" err
'

lab=links$$
if [ "$(id -u)" = 0 ] && shunt-lab --name $lab up --hosts 3 --rails 2 --rate 400mbit >up.log 2>&1; then
	test_expect_success 'the slow NIC of a cluster is named' '
		shunt-lab --name $lab rail h3:1 rate 40mbit &&
		test_must_fail shunt-lab --name $lab run -n 3 -- shunt-links -q -a -t 24 -b 256k -o 0.4 >text 2>err &&
		grep -q "outlier: h3:rail1 -> all peers" text
	'
	shunt-lab --name $lab down >down.log 2>&1
else
	say "SKIP the slow NIC of a cluster: shunt-lab needs root and network namespaces"
fi
test_done
