#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='collectives over several hosts: identities are given by setting, rails are sock on loopback'
. /usr/share/sharness/sharness.sh

# perf N RANKS-PER-HOST ARGUMENTS...
perf() {
    n=$1 per=$2
    shift 2
    shunt-run -n "$n" -t 100 --no-prefix -e "PER=$per" -e SHUNT_BACKEND=sock -e SHUNT_RAILS=lo -- \
        sh -c 'SHUNT_HOSTID=host$((RANK / PER)); export SHUNT_HOSTID; exec shunt-perf "$@"' perf "$@"
}

test_expect_success 'two hosts of two ranks take the hierarchical allreduce' '
    perf 4 2 -b 4 -e 3M -f 97 -n 2 -w 1 --explain allreduce >out && grep -q "values : 0 OK" out &&
    grep -q "hierarchical: 4 ranks on 2 hosts" out && ! grep -q "doubling" out
'
test_expect_success 'hosts with different numbers of ranks' '
    perf 5 3 -b 4 -e 300K -f 17 -n 2 -w 1 -d bfloat16 allreduce >out && grep -q "values : 0 OK" out
'
test_expect_success 'one rank per host' '
    perf 3 1 -b 4 -e 300K -f 17 -n 2 -w 1 allreduce >out && grep -q "values : 0 OK" out
'
for op in allgather reduce_scatter broadcast reduce gather scatter alltoall barrier; do
    test_expect_success "$op over two hosts" "
        perf 4 2 -b 1K -e 512K -f 23 -n 2 -w 1 -r 1 $op >out && grep -q 'values : 0 OK' out
    "
done
test_done
