#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='the training job survives the death of ranks and loses nothing'
. /usr/share/sharness/sharness.sh

OPTIONS="--batch 2 --width 32 --log-every 10 --stage-time 4ms"

# killed NAME RANKS "VICTIM:STEPS ..." OPTION...: a job in which these ranks are killed after so many steps.
killed() {
    name=$1 ranks=$2 victims=$3
    shift 3
    cat >rank.sh <<-'END'
	for v in $VICTIMS; do
	    if test "$RANK" = "${v%%:*}"; then
	        shunt-train "$@" &
	        while test "$(grep -c "\"step\":" "$NAME.json" 2>/dev/null || true)" -lt "${v##*:}" 2>/dev/null; do
	            kill -0 $! || exit 1
	            sleep 0.05
	        done
	        kill -9 $!
	        wait $!
	        exit 0
	    fi
	done
	exec shunt-train "$@"
	END
    rm -f "$name.json"
    touch "$name.json"
    NAME=$name VICTIMS=$victims shunt-run -k -t 120 -n "$ranks" -- sh rank.sh $OPTIONS --json "$name.json" "$@" >"$name.out" 2>&1 ||
        { cat "$name.out"; return 1; }
}

losses() {
    grep -o '"step": [0-9]*, "loss": [^,]*' "$1.json"
}

# The number of steps that were done when a rank was lost.
lost_at() {
    sed -n 's/.*step \([0-9]*\): lost rank.*/\1/p' "$1.out" | head -n 1 | awk '{ print $1 - 1 }'
}

test_expect_success 'a replica is lost, the others take over its micro-batches' '
    killed dead 6 "3:10" --stages 2 -m 2 --steps 50 &&
    grep "lost rank 3; going on with 2 of 3 replicas on 5 ranks, 1 spare, still 6 micro-batches a step" dead.out &&
    grep "done: 50 steps" dead.out &&
    test "$(losses dead | wc -l)" = 50
'
test_expect_success 'until then the losses are those of a clean run, to the last bit' '
    steps=$(lost_at dead) && test "$steps" -gt 0 &&
    shunt-run -t 60 -n 6 -- shunt-train $OPTIONS --stages 2 -m 2 --steps "$steps" --json clean.json --checkpoint saved &&
    losses dead | head -n "$steps" >dead.head &&
    losses clean >clean.head &&
    test_cmp clean.head dead.head
'
test_expect_success 'after it they are those of a run restarted from that step with the ranks that were left' '
    shunt-run -t 60 -n 4 -- shunt-train $OPTIONS --stages 2 --total-micro-batches 6 --steps 50 --json restarted.json \
        --checkpoint saved --resume &&
    losses dead | tail -n +"$((steps + 1))" >dead.tail &&
    losses restarted >restarted.tail &&
    test_cmp restarted.tail dead.tail
'
test_expect_success 'rank 0 dies: another one reports' '
    killed first 4 "0:10" --stages 2 -m 2 --steps 40 &&
    grep "lost rank 0; going on with 1 of 2 replicas on 3 ranks, 1 spare" first.out &&
    grep "step 40 " first.out
'
test_expect_success 'a spare takes the place of a second one that is lost, with its state' '
    killed twice 6 "4:10 0:40" --stages 2 -m 2 --steps 90 &&
    grep "lost rank 4; going on with 2 of 3 replicas on 5 ranks, 1 spare" twice.out &&
    grep "lost rank 0; going on with 2 of 2 replicas on 4 ranks, 0 spare" twice.out &&
    grep "step 90 " twice.out
'
test_expect_success 'the last rank of a stage can not be replaced: the job says so' '
    test_must_fail killed gone 2 "1:10" --stages 2 --steps 60 &&
    grep "start again with --resume" gone.out
'
test_done
