#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='shunt-sched simulates, plans, draws, exports, sweeps and explains'
. /usr/share/sharness/sharness.sh

# number FILE NAME: a number of the one JSON object in FILE.
number() {
    sed -n "s/^  \"$2\": \([-0-9.e+]*\),*\$/\1/p" "$1"
}

# fails CODE WORDS COMMAND...: it ends with that code and says these words on standard error.
fails() {
    code=$1 words=$2
    shift 2
    "$@" >out 2>err
    test $? = "$code" && grep -q -- "$words" err || { cat err; return 1; }
}

test_expect_success 'simulate gives the known makespans as JSON' '
    shunt-sched simulate --schedule 1f1b --stages 8 --microbatches 24 --forward 1 --backward 2 --link 6:4 --json >out &&
    test "$(number out makespan)" = 189 &&
    test "$(number out period)" = 7 &&
    test "$(number out lower_bound)" = 101 &&
    grep -q "\"warmup\": \[8, 7, 6, 5, 4, 3, 2, 1\]" out &&
    grep -q "\"peak_live\": \[8, 7, 6, 5, 4, 3, 2, 1\]" out
'
test_expect_success 'a split schedule takes its weight gradients from --weight' '
    shunt-sched simulate --schedule zb-h1 --stages 8 --microbatches 24 --forward 1 --backward 1 --weight 1 --link 6:8 --json >out &&
    test "$(number out makespan)" = 264 && test "$(number out lower_bound)" = 87
'
test_expect_success 'or halves --backward, and says so' '
    shunt-sched simulate --schedule zb-h1 --stages 8 --microbatches 24 --forward 1 --backward 2 --link 6:8 >out 2>err &&
    grep -q "makespan *264" out && grep -q "half of --backward" err
'
test_expect_success 'lists give every stage its own time, and the number of stages' '
    shunt-sched simulate --microbatches 4 --forward 1,2,1 --backward 2,3,2 --json >out &&
    test "$(number out stages)" = 3 && test "$(number out period)" = 5
'
test_expect_success 'links differ by direction, queue, and sends can block' '
    shunt-sched simulate --stages 2 --microbatches 50 --link 0:1:3 --json >out &&
    test "$(number out period)" = 5 &&
    shunt-sched simulate --stages 2 --microbatches 50 --bandwidth-link 0:9 --json >out &&
    test "$(number out period)" = 12 &&
    shunt-sched simulate --stages 2 --microbatches 50 --link 0:4 --blocking --json >out &&
    grep -q "\"blocking\": true" out
'
test_expect_success 'chunks: the fill of interleaved 1F1B is halved, and the last link joins last and first' '
    shunt-sched simulate --schedule interleaved --chunks 2 --stages 4 --microbatches 8 --json >out &&
    test "$(number out makespan)" = 28.5 &&
    shunt-sched simulate --schedule interleaved --chunks 2 --stages 4 --microbatches 8 --link 3:2 --json >out &&
    test "$(number out makespan)" != 28.5
'
test_expect_success 'plan reaches the lower bound, and names what it compared' '
    shunt-sched plan --stages 8 --microbatches 24 --forward 1 --backward 1 --weight 1 --link 6:4 --json >out &&
    test "$(number out makespan)" = 83 && test "$(number out lower_bound)" = 83 &&
    grep -q "1F1B would take 189" out
'
test_expect_success 'plan keeps the caps' '
    shunt-sched plan --stages 8 --microbatches 24 --link 6:4 --cap 8,8,8,8,8,8,4,4 --json >out &&
    sed -n "s/.*\"peak_live\": \[\(.*\)\].*/\1/p" out | tr -d " " | tr "," "\n" >peaks &&
    test "$(head -6 peaks | awk "\$1 > 8" | wc -l)" = 0 &&
    test "$(tail -2 peaks | awk "\$1 > 4" | wc -l)" = 0
'
test_expect_success 'draw makes a chart for the terminal' '
    shunt-sched draw --stages 4 --microbatches 8 --schedule 1f1b --columns 80 >out &&
    test "$(grep -c "^ *[0-3]  " out)" = 4 && grep -q "makespan 33" out
'
test_expect_success 'draw makes SVG and traces by the name of the file' '
    shunt-sched draw --stages 4 --microbatches 8 --link 1:3 -o plan.svg &&
    grep -q "<svg" plan.svg && tail -1 plan.svg | grep -q "</svg>" &&
    shunt-sched draw --stages 4 --microbatches 8 --schedule 1f1b --link 1:3 -o trace.json &&
    grep -q traceEvents trace.json
'
command -v xmllint >/dev/null && test_set_prereq XMLLINT
test_expect_success XMLLINT 'the SVG is well-formed' '
    xmllint --noout plan.svg &&
    shunt-sched sweep --stages 4 --microbatches 8 -o sweep.svg && xmllint --noout sweep.svg
'
command -v python3 >/dev/null && test_set_prereq PYTHON
test_expect_success PYTHON 'what claims to be JSON is' '
    shunt-sched sweep --stages 4 --microbatches 8 --json >sweep.json &&
    shunt-sched export --stages 4 --microbatches 8 --format json >schedule.json &&
    shunt-sched explain trace.json --json >explain.json &&
    shunt-sched plan --stages 4 --microbatches 8 --json >plan.json &&
    for file in trace sweep schedule explain plan; do
        python3 -m json.tool $file.json >/dev/null || return 1
    done
'
test_expect_success 'what is exported can be simulated again' '
    for format in text json pytorch-csv pytorch-csv-comms pytorch-csv-comms-plain; do
        shunt-sched export --stages 4 --microbatches 8 --schedule 1f1b --format $format -o saved.$format &&
        shunt-sched simulate --schedule ./saved.$format --link 1:3 --json >out &&
        test "$(number out makespan)" = 57 || return 1
    done
'
test_expect_success 'a table for PyTorch has a row per rank and a blank cell per bubble' '
    shunt-sched export --stages 2 --microbatches 2 --schedule 1f1b --format pytorch-csv >out &&
    printf "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n" >expected && test_cmp expected out
'
test_expect_success 'sweep compares schedules' '
    shunt-sched sweep --stages 8 --microbatches 24 --link 6 --delays 0,4,8 --schedules 1f1b,adapted >out &&
    grep -q "  189 (2.03×)" out && grep -q "  109 (1.17×)" out
'
test_expect_success 'explain finds the delay in a trace and offers a plan' '
    shunt-sched explain trace.json >out &&
    grep -q "link 1-2: 3 ms each way" out && grep -q "a plan would take 39 ms" out
'
test_expect_success 'a schedule file that deadlocks: the stage and the operation' '
    printf "shunt-schedule 1\nstages 2\nmicrobatches 2\n0: F0 B0 F1 B1\n1: F0 F1 B0 B1\n" >bad.txt &&
    fails 1 "deadlocks: stage 0, operation 1 (B of micro-batch 0)" shunt-sched simulate --schedule ./bad.txt
'
test_expect_success 'impossible inputs are refused with what is wrong' '
    fails 1 "stage 0, operation 2: F of micro-batch 2" shunt-sched simulate --stages 4 --microbatches 8 --cap 2 &&
    fails 2 "cap, stage 0: 0 is no number" shunt-sched plan --stages 4 --microbatches 8 --cap 0 &&
    fails 2 "forward has 3 entries" shunt-sched plan --stages 4 --microbatches 8 --forward 1,2,3 &&
    fails 1 "forward of stage 1: a time of -2" shunt-sched plan --stages 2 --microbatches 8 --forward 1,-2 &&
    fails 2 "link 3: there are links 0 to 2" shunt-sched plan --stages 4 --microbatches 8 --link 3:1 &&
    fails 2 "is no number" shunt-sched plan --stages 4 --microbatches 8 --link 1:x &&
    fails 2 "no schedule \"fastest\"" shunt-sched simulate --stages 4 --microbatches 8 --schedule fastest &&
    fails 1 "No such file" shunt-sched explain nothing.json &&
    fails 2 "stages is missing" shunt-sched plan --microbatches 8 &&
    fails 2 "is no command" shunt-sched optimise &&
    fails 2 "a command is missing" shunt-sched &&
    fails 1 "stages divide" shunt-sched simulate --schedule interleaved --chunks 2 --stages 4 --microbatches 7
'
test_expect_success 'help names every command' '
    shunt-sched --help >out &&
    for name in simulate plan draw export sweep explain; do
        grep -q "^  $name " out || return 1
    done
'
test_done
