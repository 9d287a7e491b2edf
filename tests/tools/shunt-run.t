#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='shunt-run starts ranks, passes on what they print, and leaves nothing behind'
. /usr/share/sharness/sharness.sh

# gone PID: the process is no more. A killed process may take a moment to go.
gone() {
    for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        kill -0 "$1" 2>/dev/null || return 0
        # A dead child of a process that does not collect it counts as gone.
        grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null && return 0
        sleep 0.1
    done
    return 1
}

# lines N FILE: FILE gets N lines within ten seconds.
lines() {
    for try in $(seq 100); do
        test "$(cat "$2" 2>/dev/null | wc -l)" -ge "$1" && return 0
        sleep 0.1
    done
    return 1
}

test_expect_success 'every rank gets the environment of torchrun' '
    shunt-run -n 3 -- sh -c "echo \$RANK/\$WORLD_SIZE \$LOCAL_RANK/\$LOCAL_WORLD_SIZE \$GROUP_RANK \$MASTER_ADDR" |
        sort >out &&
    cat >expected <<-END &&
	[0] 0/3 0/3 0 127.0.0.1
	[1] 1/3 1/3 0 127.0.0.1
	[2] 2/3 2/3 0 127.0.0.1
	END
    test_cmp expected out
'
test_expect_success '--bind gives each rank one core, in turn' '
    shunt-run -n 3 --bind --no-prefix -- sh -c "nproc" >out &&
    test "$(sort -u out)" = 1 &&
    if test $(nproc) -ge 2
    then
        shunt-run -n 2 --bind --no-prefix -- grep Cpus_allowed_list /proc/self/status >out &&
        test $(sort -u out | wc -l) = 2
    fi
'
test_expect_success 'all ranks share port, run id and key' '
    shunt-run -n 4 --no-prefix -- sh -c "echo \$MASTER_PORT \$TORCHELASTIC_RUN_ID \$(cat \$SHUNT_KEY_FILE)" >out &&
    test $(wc -l <out) = 4 &&
    test $(sort -u out | wc -l) = 1 &&
    grep -E "^[0-9]{5} [0-9a-f]{32} [0-9a-f]{64}$" out
'
test_expect_success 'the key file has mode 0600 and goes with the job' '
    shunt-run -n 1 --no-prefix -- sh -c "stat -c %a \$SHUNT_KEY_FILE; echo \$SHUNT_KEY_FILE" >out &&
    test "$(sed -n 1p out)" = 600 &&
    test ! -e "$(sed -n 2p out)"
'
test_expect_success 'two jobs have different keys and run ids' '
    for i in 1 2; do
        shunt-run -n 1 --no-prefix sh -c "echo \$TORCHELASTIC_RUN_ID; cat \$SHUNT_KEY_FILE" >out$i || return 1
    done &&
    test "$(sed -n 1p out1)" != "$(sed -n 1p out2)" &&
    test "$(sed -n 2p out1)" != "$(sed -n 2p out2)"
'
test_expect_success 'a key file, a port and variables that were given are kept' '
    echo secret >key &&
    SHUNT_KEY_FILE=key shunt-run -n 1 --no-prefix sh -c "echo \$SHUNT_KEY_FILE" >out &&
    shunt-run -n 1 --no-prefix --key-file key --master-port 1234 -e A=1 --env B="x y" \
        sh -c "echo \$SHUNT_KEY_FILE \$MASTER_PORT \$A \$B" >>out &&
    printf "key\nkey 1234 1 x y\n" >expected &&
    test_cmp expected out &&
    test -e key
'
test_expect_success 'SHUNT_DEBUG is event unless set' '
    (unset SHUNT_DEBUG; shunt-run -n 1 sh -c "echo \$SHUNT_DEBUG" >out) &&
    SHUNT_DEBUG=warn shunt-run -n 1 sh -c "echo \$SHUNT_DEBUG" >>out &&
    printf "[0] event\n[0] warn\n" >expected &&
    test_cmp expected out
'
test_expect_success 'stdout and stderr stay apart' '
    shunt-run -n 1 sh -c "echo to-out; echo to-err >&2" >out 2>err &&
    echo "[0] to-out" >expected && test_cmp expected out &&
    echo "[0] to-err" >expected && test_cmp expected err
'
test_expect_success 'lines of different ranks are never mixed, and none is lost' '
    shunt-run -n 4 sh -c "i=0; while [ \$i -lt 500 ]; do echo \$RANK-\$i-abcdefghijklmnopqrstuvwxyz; i=\$((i+1)); done" >out &&
    test $(wc -l <out) = 2000 &&
    test $(grep -cE "^\[([0-3])\] \1-[0-9]+-abcdefghijklmnopqrstuvwxyz$" out) = 2000
'
test_expect_success 'a last line without a newline is printed' '
    shunt-run -n 1 printf "a\nb" >out &&
    printf "[0] a\n[0] b\n" >expected && test_cmp expected out
'
test_expect_success 'a line longer than the buffer arrives complete' '
    shunt-run -n 1 --no-prefix sh -c "head -c 200000 /dev/zero | tr \"\\0\" x" >out &&
    test $(tr -d "\n" <out | wc -c) = 200000
'
test_expect_success 'rank numbers are padded to one width' '
    shunt-run -n 11 sh -c "echo x" | sort >out &&
    test "$(sed -n 1p out)" = "[ 0] x" && grep -q "^\[10\] x$" out
'
test_expect_success 'one failing rank ends all with its exit code, and is named' '
    test_expect_code 7 shunt-run -n 4 sh -c "[ \$RANK = 2 ] && exit 7; exec sleep 100" 2>err &&
    grep "rank 2 .process [0-9]*. exited with code 7 .*; ending the other 3" err
'
test_expect_success 'a rank killed by a signal is named with the signal' '
    test_expect_code 137 shunt-run -n 3 sh -c "[ \$RANK = 1 ] && kill -KILL \$\$; exec sleep 100" 2>err &&
    grep "rank 1 .* was killed by signal 9 (Killed)" err
'
test_expect_success 'ranks that ignore SIGTERM are killed after the grace time, and named' '
    test_expect_code 3 shunt-run -n 2 -g 0.3 sh -c "trap : TERM; [ \$RANK = 0 ] && { sleep 0.3; exit 3; }; while :; do sleep 0.1; done" 2>err &&
    grep "ranks 1 did not end within 0.3 s; killing them" err
'
test_expect_success 'a stopped rank is ended too' '
    test_expect_code 4 shunt-run -n 2 sh -c "[ \$RANK = 0 ] && { sleep 0.3; exit 4; }; kill -STOP \$\$" 2>err
'
test_expect_success '--keep-going lets the others go on after a death' '
    shunt-run -n 3 -k -t 60 sh -c "[ \$RANK = 1 ] && kill -KILL \$\$
        until grep -q killed err; do sleep 0.05; done; echo here" >out 2>err &&
    test $(wc -l <out) = 2 &&
    grep "rank 1 .* was killed by signal 9 .*; 2 ranks go on" err
'
test_expect_success '--keep-going passes on an exit code' '
    test_expect_code 5 shunt-run -n 2 -k sh -c "exit \$((RANK * 5))" 2>err &&
    test_expect_code 1 shunt-run -n 2 -k sh -c "kill -KILL \$\$" 2>err
'
test_expect_success '--timeout ends the job and names who still ran' '
    test_expect_code 124 shunt-run -n 3 -t 500ms sh -c "[ \$RANK = 1 ] || exec sleep 100" 2>err &&
    grep "still running after 0.5 s: ranks 0,2; ending them" err
'
test_expect_success 'a command that is not found, or no program, has the codes of the shell' '
    test_expect_code 127 shunt-run -n 2 ./does-not-exist 2>err &&
    grep "does-not-exist: No such file" err &&
    echo x >plain &&
    test_expect_code 126 shunt-run -n 2 ./plain 2>err
'
for signal in INT TERM HUP; do
    test_expect_success "SIG$signal ends ranks and their descendants" "
        rm -f pids &&
        { shunt-run -n 2 sh -c 'sleep 100 & echo \$! >>pids; setsid sleep 100 & echo \$! >>pids
            echo \$\$ >>pids; wait' 2>err & } &&
        launcher=\$! &&
        test_when_finished 'kill -KILL \$launcher || :' &&
        lines 6 pids &&
        kill -$signal \$launcher &&
        test_expect_code \$((128 + \$(kill -l $signal))) wait \$launcher &&
        for pid in \$(cat pids); do gone \$pid || return 1; done
    "
done
test_expect_success 'a launcher killed outright leaves neither ranks nor the key file' '
    rm -f pids &&
    { shunt-run -n 2 sh -c "sleep 100 & echo \$! \$\$ \$SHUNT_KEY_FILE >>pids; wait" & } &&
    launcher=$! &&
    test_when_finished "kill -KILL $launcher || :" &&
    lines 2 pids &&
    kill -KILL $launcher &&
    { wait $launcher || :; } &&
    while read child rank key; do
        gone $child && gone $rank && test ! -e "$key" || return 1
    done <pids
'
test_expect_success 'what a rank leaves running in the background is ended after a good end too' '
    rm -f pid &&
    shunt-run -n 1 sh -c "setsid sleep 100 >/dev/null 2>&1 & echo \$! >pid" &&
    gone $(cat pid)
'
test_expect_success 'SIGUSR1 reaches every rank' '
    rm -f ready &&
    { shunt-run -n 2 sh -c "trap \"echo got; exit\" USR1; echo x >>ready; while :; do sleep 0.1; done" >out & } &&
    launcher=$! &&
    test_when_finished "kill -KILL $launcher || :" &&
    lines 2 ready &&
    kill -USR1 $launcher &&
    wait $launcher &&
    test $(grep -c got out) = 2
'
test_expect_success 'a part of a larger job gets its place in the whole' '
    shunt-run -n 2 --first-rank 2 --world-size 5 --master-addr 10.0.0.1 --master-port 5000 --run-id r --host h2 \
        --node-rank 1 --nodes 3 \
        sh -c "echo \$RANK \$WORLD_SIZE \$LOCAL_RANK \$LOCAL_WORLD_SIZE \$GROUP_RANK \$MASTER_ADDR:\$MASTER_PORT" | sort >out &&
    cat >expected <<-END &&
	[h2 2] 2 5 0 2 1 10.0.0.1:5000
	[h2 3] 3 5 1 2 1 10.0.0.1:5000
	END
    test_cmp expected out
'
test_expect_success 'wrong usage is refused with code 2 and a hint' '
    test_expect_code 2 shunt-run 2>err && grep -e "no -n" err &&
    test_expect_code 2 shunt-run -n 2 2>err && grep "no command" err &&
    test_expect_code 2 shunt-run -n 0 true 2>err &&
    test_expect_code 2 shunt-run -n x true 2>err &&
    test_expect_code 2 shunt-run -n 2 -e A true 2>err && grep NAME=VALUE err &&
    test_expect_code 2 shunt-run -n 2 -t soon true 2>err && grep "such as" err &&
    test_expect_code 2 shunt-run -n 2 --world-size 1 true 2>err && grep "do not fit" err &&
    test_expect_code 2 shunt-run -n 2 --world-size 4 true 2>err && grep "master-port" err &&
    test_expect_code 2 shunt-run --nonsense 2>err
'
test_expect_success '--help and --version print to stdout' '
    shunt-run --help >out && grep -e --keep-going out &&
    shunt-run --version >out && grep "^shunt-run [0-9]" out
'
if command -v jq >/dev/null; then
    test_set_prereq JQ
fi
test_expect_success JQ '--json prints events that jq reads, with any bytes in the output' '
    test_expect_code 6 shunt-run -n 2 --json sh -c "printf \"a\\\"\\\\\\\\\\t\\303\\251\\377\\n\"; [ \$RANK = 0 ] || { sleep 0.2; exit 6; }" >out &&
    jq -e -s "map(select(.event == \"start\")) | length == 2" out &&
    jq -e -s "map(select(.event == \"output\") | .line) | unique | length == 1" out &&
    jq -e -s "map(select(.event == \"exit\" and .rank == 1)) | .[0].code == 6" out &&
    jq -e -s "last | .event == \"end\" and .code == 6" out
'
test_done
