#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='shunt-perf: every operation runs and is right, and its output can be read'
. /usr/share/sharness/sharness.sh

perf() {
    n=$1
    shift
    shunt-run -n "$n" -t 60 --no-prefix -- shunt-perf "$@"
}

test_expect_success 'help names every operation' '
    shunt-perf --help >out &&
    for op in latency bandwidth sendrecv allreduce allgather reduce_scatter broadcast reduce gather scatter alltoall barrier
    do
        grep -q "$op" out || return 1
    done
'
test_expect_success 'mistakes end with 2 and a text' '
    test_expect_code 2 shunt-perf 2>err && grep -q "no operation" err &&
    test_expect_code 2 shunt-perf nothing 2>err && grep -q "not an operation" err &&
    test_expect_code 2 shunt-perf -b 1x allreduce 2>err && grep -q "not a size" err &&
    test_expect_code 2 shunt-perf -d float3 allreduce 2>err && grep -q "not a type" err &&
    test_expect_code 2 shunt-perf -b 2K -e 1K allreduce 2>err
'
test_expect_success 'one rank alone' '
    shunt-perf -b 1K -n 2 -w 1 allreduce >out && grep -q "Out of bounds values : 0 OK" out &&
    test_expect_code 2 shunt-perf latency 2>err && grep -q "two ranks" err
'
for op in latency bandwidth sendrecv allreduce allgather reduce_scatter broadcast reduce gather scatter alltoall barrier; do
    test_expect_success "$op on 3 ranks" "
        perf 3 -b 0 -e 300K -f 37 -n 3 -w 1 $op >out && grep -q 'Out of bounds values : 0 OK' out
    "
done
for type in int8 uint64 float16 bfloat16 float8e4m3 float8e5m2 float64; do
    test_expect_success "allreduce of $type, avg and prod" "
        perf 4 -b 4K -n 2 -w 1 -d $type -o avg allreduce >out && grep -q 'values : 0 OK' out &&
        perf 4 -b 4K -n 2 -w 1 -d $type -o prod allreduce >out && grep -q 'values : 0 OK' out
    "
done
test_expect_success 'the JSON file holds a result per line and pass' '
    perf 2 -b 1K -e 4K -f 2 -n 2 -w 1 --json result.json allreduce >out &&
    python3 - <<-EOF
	import json
	j = json.load(open("result.json"))
	assert j["ok"] and len(j["results"]) == 6, j
	for r in j["results"]:
	    assert r["wrong"] == 0 and r["iters"] == 2 and r["time_us"] > 0 and r["type"] == "float32", r
	    assert abs(r["algbw"] - r["size"] / r["time_us"] / 1e3) < 1e-3, r
	assert all(r["name"] for r in j["rails"]) and any(r["bytes"] > 0 for r in j["rails"]), j
	assert isinstance(j["settings"], dict) and isinstance(j["events"], list)
	EOF
'
test_expect_success 'the choice of algorithm is explained' '
    perf 2 -b 1K -e 1M -f 1024 -n 1 -w 0 --explain allreduce >out &&
    grep -q "doubling: 2 ranks on 1 host, 1024 bytes" out && grep -q "direct: 2 ranks" out
'
test_done
