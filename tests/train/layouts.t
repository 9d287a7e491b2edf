#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='the training job gives the same losses whatever its layout, its schedule and its rails'
. /usr/share/sharness/sharness.sh

# train NAME RANKS [NAME=VALUE...] OPTION...: a short run whose step losses go to NAME.losses.
train() {
    name=$1 ranks=$2
    shift 2
    shunt-run -t 120 -n "$ranks" -- shunt-train --steps 6 --batch 2 --width 32 --log-every 3 --json "$name.json" "$@" \
        >"$name.out" 2>&1 || { cat "$name.out"; return 1; }
    grep -o '"step": [0-9]*, "loss": [^,]*' "$name.json" >"$name.losses"
}

# near A B: two lists of losses agree to a few parts in 100,000.
near() {
    paste "$1.losses" "$2.losses" | awk '{ d = $4 - $8; if (d < 0) d = -d; if ($2 != $6 || d > 5e-5 * $4) bad = 1; n++ }
        END { exit bad || n == 0 }'
}

test_expect_success 'one process trains' '
    shunt-train --steps 6 --batch 2 --width 32 --micro-batches 8 --json one.json >one.out &&
    grep -o "\"step\": [0-9]*, \"loss\": [^,]*" one.json >one.losses &&
    test $(wc -l <one.losses) = 6 &&
    grep "done: 6 steps" one.out
'
test_expect_success '2 stages x 2 replicas give its losses but for rounding' '
    train four 4 --stages 2 --micro-batches 4 &&
    near one four &&
    grep "2 stages x 2 replicas" four.out
'
test_expect_success '4 stages give its losses to the last bit' '
    train deep 4 --stages 4 --micro-batches 8 &&
    test_cmp one.losses deep.losses
'
test_expect_success '4 replicas give its losses but for rounding' '
    train wide 4 --micro-batches 2 &&
    near one wide
'
test_expect_success 'the same layout gives the same bits again' '
    train again 4 --stages 2 --micro-batches 4 &&
    test_cmp four.losses again.losses
'
for schedule in planned gpipe 1f1b adapted zb-h1 zb-h2 pipemorph ready; do
    test_expect_success "schedule $schedule gives the same bits" "
        train $schedule 4 --stages 2 --micro-batches 4 --schedule $schedule --adapt off &&
        test_cmp four.losses $schedule.losses
    "
done
test_expect_success 'over TCP alone the same bits' '
    SHUNT_SHM=0 SHUNT_BACKEND=sock train sock 4 --stages 2 --micro-batches 4 &&
    test_cmp four.losses sock.losses
'
for backend in ucx ofi; do
    shunt-info | grep -Eq "^.* $backend +yes" && test_set_prereq $backend
    test_expect_success $backend "over $backend the same bits" "
        SHUNT_SHM=0 SHUNT_BACKEND=$backend train $backend 4 --stages 2 --micro-batches 4 &&
        test_cmp four.losses $backend.losses
    "
done
test_expect_success 'in small buckets the same bits' '
    train buckets 4 --stages 2 --micro-batches 4 --bucket 4k &&
    test_cmp four.losses buckets.losses
'
test_expect_success 'padded to a stated time the same bits, and it says so' '
    train padded 4 --stages 2 --micro-batches 4 --stage-time 5ms &&
    test_cmp four.losses padded.losses &&
    grep "stages are padded to 5 ms" padded.out &&
    grep "of the busy time was padding" padded.out
'
test_expect_success 'the trace of the last step is one that the planner can read' '
    train traced 4 --stages 4 --micro-batches 8 --stage-time 5ms --adapt off -s 1f1b --trace trace.json &&
    test $(grep -c "\"name\": \"F" trace.json) = 32 &&
    test $(grep -c "\"name\": \"B" trace.json) = 32 &&
    shunt-sched explain trace.json >explained &&
    test_cmp one.losses traced.losses
'
test_expect_success 'a memory cap that the schedule keeps' '
    train cap 4 --stages 4 --micro-batches 8 --schedule ready --adapt off --memory-cap 2 &&
    grep "at most 2 live micro-batches" cap.out &&
    test_cmp one.losses cap.losses
'
test_expect_success 'and the planner under it' '
    train plancap 4 --stages 4 --micro-batches 8 --memory-cap 3 &&
    grep "at most [123] live micro-batches" plancap.out &&
    test_cmp one.losses plancap.losses
'
test_expect_success 'one that it can not keep is refused' '
    test_must_fail train nocap 2 --stages 2 --micro-batches 4 --schedule gpipe --adapt off --memory-cap 2 &&
    grep -i "stage" nocap.out
'

test_expect_success 'a delay on the last link changes the plan and no bit of the losses' '
    SHUNT_SHM=0 shunt-run -t 120 -n 4 -- sh -c "
        test \$RANK != 3 || export SHUNT_FAULTS=\"1s rail * delay 60ms\"
        exec shunt-train --stages 4 --micro-batches 8 --batch 2 --width 32 --steps 16 --stage-time 10ms --json slow.json
    " >slow.out 2>&1 &&
    grep "^.0. plan: .*link 2-3: " slow.out &&
    grep -o "\"step\": [0-9]*, \"loss\": [^,]*" slow.json | head -n 6 >slow.losses &&
    test_cmp one.losses slow.losses
'

test_expect_success 'stopped and resumed the same bits' '
    train first 4 --stages 2 --micro-batches 4 --steps 3 --checkpoint saved &&
    train second 4 --stages 2 --micro-batches 4 --checkpoint saved --resume &&
    grep "resuming after step 3" second.out &&
    cat first.losses second.losses >both.losses &&
    test_cmp four.losses both.losses
'
test_expect_success 'and under another layout' '
    train third 2 --stages 2 --micro-batches 8 --steps 8 --checkpoint saved --resume &&
    train all 2 --stages 2 --micro-batches 8 --steps 8 &&
    tail -n 2 all.losses >tail.losses &&
    near tail third
'
test_expect_success 'only the latest checkpoint is kept' '
    test "$(ls saved | sort | tr "\n" " ")" = "latest step-8-stage-0-of-2 step-8-stage-1-of-2 "
'
test_expect_success 'a damaged one is refused' '
    printf x | dd of=saved/step-8-stage-0-of-2 bs=1 seek=5000 conv=notrunc 2>/dev/null &&
    test_must_fail train damaged 2 --stages 2 --checkpoint saved --resume --steps 9 &&
    grep "is damaged" damaged.out
'

test_expect_success 'wrong usage says what is wrong' '
    test_expect_code 2 shunt-train --stages 0 2>err && grep "stages must be a number" err &&
    test_expect_code 2 shunt-train --schedule lifo 2>err && grep -i "1f1b" err &&
    test_expect_code 2 shunt-train --heads 5 2>err && grep "divide the width" err &&
    test_expect_code 2 shunt-train --stages 3 2>err && grep "3 stages" err &&
    test_expect_code 2 shunt-train --resume 2>err && grep "need --checkpoint" err &&
    test_expect_code 2 shunt-train surplus 2>err && grep surplus err &&
    test_expect_code 1 shunt-train --text /nowhere 2>err && grep "/nowhere" err &&
    shunt-train --help | grep usage
'
test_done
