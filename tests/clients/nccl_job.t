#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='a training job written against nccl.h gives the losses of the one written for Shunt, through a dead rail too'
. /usr/share/sharness/sharness.sh

shim=$abs_top_builddir/shim/.libs/libnccl.so.2
job=$abs_top_builddir/tests/clients/nccl_job
size="--batch 2 --width 32"
if nm -D "$shim" | grep -q __asan_init; then
	skip_all='a library with sanitizers can not be preloaded'
	test_done
fi

# What links with -lnccl and knows no better gets a library that refuses everything; the preloaded one must win.
test_expect_success 'the job is linked with -lnccl, and its own libnccl.so.2 is of no use' '
	mkdir nothing &&
	echo "const char *ncclGetErrorString(int r) { return \"nothing\"; }" >nothing.c &&
	echo "const char *ncclGetLastError(void *c) { return \"nothing\"; }" >>nothing.c &&
	sed -n "s/^NCCL([^,]*, *\([A-Za-z0-9]*\),.*/\1/p" "$abs_top_srcdir/shim/functions.def" | grep -v "^GetErrorString\|^GetLastError" |
		sed "s/.*/int nccl&(void) { return 3; }/" >>nothing.c &&
	${CC:-cc} -w -shared -fPIC -Wl,-soname,libnccl.so.2 -o nothing/libnccl.so.2 nothing.c &&
	real=$job && test -x "$abs_top_builddir/tests/clients/.libs/nccl_job" && real=$abs_top_builddir/tests/clients/.libs/nccl_job
	readelf -d "$real" | grep "NEEDED.*libnccl.so.2"
'
program=$abs_top_builddir/tests/clients/.libs/nccl_job
test -x "$program" || program=$job
export LD_LIBRARY_PATH="$PWD/nothing:$LD_LIBRARY_PATH"

# native NAME RANKS STAGES MICRO-BATCHES STEPS; nccl, with the same arguments, and settings behind them
native() {
	shunt-run -t 120 -n "$2" -- shunt-train --stages "$3" --micro-batches "$4" --steps "$5" $size --adapt off \
		--schedule gpipe --json "$1.json" >"$1.out" 2>&1 || { cat "$1.out"; return 1; }
	grep -o "\"step\": [0-9]*, \"loss\": [^,]*" "$1.json" >"$1.want"
}
nccl() {
	name=$1 ranks=$2 stages=$3 micro=$4 steps=$5
	shift 5
	rm -f id
	shunt-run -t 120 -n "$ranks" -- env "$@" JOB_ID_FILE="$PWD/id" LD_PRELOAD="$shim" \
		"$program" "$stages" "$micro" "$steps" 2 32 "$name.have" >"$name.log" 2>&1 || { cat "$name.log"; return 1; }
}

test_expect_success 'without the preload it can not start' '
	test_must_fail env RANK=0 WORLD_SIZE=1 JOB_ID_FILE="$PWD/id" "$program" 1 1 1 2 32 out
'
for layout in "2 1" "2 2" "4 2" "8 4"; do
	set -- $layout
	test_expect_success "$1 ranks in $2 stages: the losses of the comm version to the last bit" "
		native run$1-$2 $1 $2 4 6 && nccl run$1-$2 $1 $2 4 6 && test \$(wc -l <run$1-$2.want) = 6 &&
		test_cmp run$1-$2.want run$1-$2.have && ! test -s run$1-$2.log
	"
done
test_expect_success 'over TCP alone too' '
	nccl tcp 4 2 4 6 NCCL_SHM_DISABLE=1 && test_cmp run4-2.want tcp.have
'
test_expect_success 'shared memory dies in mid-run: the job notices nothing' '
	nccl cut 4 2 4 6 SHUNT_FAULTS="#40 rail 0 cut" && test_cmp run4-2.want cut.have &&
	! grep nccl_job: cut.log && grep "rail shm to .* is dead" cut.log
'

if [ "$(id -u)" != 0 ] || ! unshare --net --mount true 2>/dev/null; then
	test_expect_success NAMESPACES 'between hosts (needs root and network namespaces)' false
	test_done
fi
export SHUNT_LAB=ncl$$
trap 'shunt-lab down >/dev/null 2>&1' EXIT
test_expect_success 'between two hosts a rail dies and comes back: the job notices nothing' '
	shunt-lab up --hosts 2 --rails 2 >/dev/null && rm -f id &&
	{ timeout 100 shunt-lab run -n 4 --no-prefix env JOB_ID_FILE="$PWD/id" LD_PRELOAD="$shim" \
		"$program" 2 4 80 2 32 lab.have >lab.log 2>&1 & } && job=$! &&
	for try in $(seq 400); do
		test -s lab.have && test $(wc -l <lab.have) -ge 3 && break
		sleep 0.02
	done &&
	shunt-lab rail h1:0 down && steps=$(wc -l <lab.have) && sleep 0.3 && shunt-lab rail h1:0 up && wait $job &&
	shunt-lab down >/dev/null &&
	native lab 4 2 4 80 && test_cmp lab.want lab.have &&
	! grep nccl_job: lab.log && grep "rail .* is dead" lab.log &&
	test $steps -lt 80
'

test_done
