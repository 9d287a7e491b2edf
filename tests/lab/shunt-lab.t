#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC2034,SC2154,SC2317,SC2016,SC1091
test_description='shunt-lab makes hosts and rails, and what is set on them happens'
. /usr/share/sharness/sharness.sh

probe=$abs_top_builddir/tests/lab/probe
export SHUNT_LAB=t$$

test_expect_success 'wrong usage is refused with code 2 and a hint' '
    test_expect_code 2 shunt-lab 2>err && grep "no command" err &&
    test_expect_code 2 shunt-lab fly 2>err && grep "no command is called .fly." err &&
    test_expect_code 2 shunt-lab up --hosts 0 2>err && grep "from 1 to" err &&
    test_expect_code 2 shunt-lab up --rate fast 2>err && grep "1gbit" err &&
    test_expect_code 2 shunt-lab --name "a/b" down 2>err && grep "letters" err
'
test_expect_success '--help and --version print to stdout' '
    shunt-lab --help >out && grep "up --hosts" out &&
    shunt-lab --version >out && grep "^shunt-lab [0-9]" out
'
if [ "$(id -u)" = 0 ]; then
    test_expect_success 'without root it says so, and what to use instead' '
        test_expect_code 1 setpriv --reuid=65534 --regid=65534 --clear-groups \
            bash "$(command -v shunt-lab)" up 2>err &&
        grep "needs root" err && grep shunt-run err
    '
fi
if [ "$(id -u)" != 0 ] || ! unshare --net --mount true 2>/dev/null; then
    say_skip="needs root and network namespaces"
    for what in "the lab" "faults" "jobs" "scripts" "removal"; do
        test_expect_success NAMESPACES "$what ($say_skip)" false
    done
    test_done
fi

# What a failure leaves is removed as well.
trap 'status=$?; shunt-lab --name t$$ down; shunt-lab --name u$$ down; exit $status' EXIT
trap 'exit 143' TERM INT HUP

# facts LINE: the numbers of probe's line, into the variables sent, received, ...
pings() {
    shunt-lab exec h1 "$probe" ping "$1" 7000 "$2" >facts || return 1
    cat facts
    read -r sent received duplicates damaged min median <facts
}

test_expect_success 'up makes hosts and rails' '
    shunt-lab up --hosts 3 --rails 2 --rate 200mbit >out && grep "is up: 3 hosts, 2 rails" out &&
    net=10.$(cat ${XDG_RUNTIME_DIR:-/run}/shunt-lab/$SHUNT_LAB/number) &&
    test "$(shunt-lab exec h2 hostname)" = h2 &&
    shunt-lab exec h3 ls /sys/class/net >out && printf "lo\nrail0\nrail1\n" >expected && test_cmp expected out
'
test_expect_success 'a second lab of that name is refused' '
    test_expect_code 1 shunt-lab up 2>err && grep "up already" err
'
test_expect_success 'each host has a /dev/shm of its own' '
    shunt-lab exec h1 touch /dev/shm/here.$$ &&
    shunt-lab exec h1 test -e /dev/shm/here.$$ &&
    test_must_fail shunt-lab exec h2 test -e /dev/shm/here.$$ &&
    test ! -e /dev/shm/here.$$
'
test_expect_success 'exec keeps the folder and passes on the exit code' '
    test "$(shunt-lab exec h1 pwd)" = "$(pwd)" &&
    test_expect_code 7 shunt-lab exec h1 sh -c "exit 7" &&
    test_expect_code 127 shunt-lab exec h1 no-such-command 2>err &&
    test_expect_code 1 shunt-lab exec h9 true 2>err && grep "no host .h9." err
'
test_expect_success 'hosts reach each other on every rail' '
    { shunt-lab exec h2 "$probe" serve 7000 >ready & } &&
    for try in $(seq 100); do test -s ready && break; sleep 0.05; done &&
    pings $net.0.2 20 && test $received = 20 &&
    pings $net.1.2 20 && test $received = 20
'
test_expect_success 'down takes the carrier, others see nothing; up brings it back' '
    shunt-lab rail h1:0 down &&
    test "$(shunt-lab exec h1 cat /sys/class/net/rail0/carrier)" = 0 &&
    test "$(shunt-lab exec h2 cat /sys/class/net/rail0/carrier)" = 1 &&
    pings $net.0.2 5 && test $received = 0 &&
    pings $net.1.2 5 && test $received = 5 &&
    shunt-lab rail h1:0 up &&
    pings $net.0.2 5 && test $received = 5
'
test_expect_success 'a black hole keeps the carrier' '
    shunt-lab rail h1:0 blackhole &&
    test "$(shunt-lab exec h1 cat /sys/class/net/rail0/carrier)" = 1 &&
    pings $net.0.2 5 && test $received = 0 &&
    shunt-lab rail h1:0 blackhole off &&
    pings $net.0.2 5 && test $received = 5
'
test_expect_success 'a black hole in one direction, and for one port' '
    shunt-lab rail h1:0 blackhole in &&
    pings $net.0.2 5 && test $received = 0 &&
    shunt-lab status | grep "blackhole in all" &&
    shunt-lab rail h1:0 clear &&
    shunt-lab rail h1:0 blackhole port 7000 &&
    pings $net.0.2 5 && test $received = 5 && # datagrams are no TCP
    test_expect_code 124 timeout 1 shunt-lab exec h1 "$probe" flood $net.0.2 7000 10 &&
    shunt-lab rail h1:0 clear &&
    shunt-lab exec h1 "$probe" flood $net.0.2 7000 10
'
test_expect_success 'loss loses some' '
    shunt-lab rail h1:0 loss 20% &&
    pings $net.0.2 300 && test $received -lt 290 && test $received -gt 50 &&
    shunt-lab rail h1:0 clear
'
test_expect_success 'duplicates arrive' '
    shunt-lab rail h1:0 duplicate 20% &&
    pings $net.0.2 200 && test $received = 200 && test $duplicates -gt 5 &&
    shunt-lab rail h1:0 clear
'
test_expect_success 'corruption reaches the program' '
    shunt-lab rail h1:0 corrupt 90% out &&
    pings $net.0.2 200 && test $damaged -gt 5 &&
    shunt-lab rail h1:0 clear &&
    pings $net.0.2 50 && test $damaged = 0
'
test_expect_success 'a delay holds each frame in each direction, and goes with clear' '
    shunt-lab rail h1:0 delay 15ms &&
    pings $net.0.2 20 && test $received = 20 && test $min -ge 30000 &&
    shunt-lab rail h1:0 delay 20ms out &&
    pings $net.0.2 20 && test $min -ge 35000 &&
    shunt-lab rail h1:0 clear &&
    pings $net.0.2 20 && test $received = 20 && test $min -lt 30000
'
test_expect_success 'jitter keeps the order and loses nothing' '
    shunt-lab rail h1:0 delay 5ms && shunt-lab rail h1:0 jitter 3ms &&
    pings $net.0.2 50 && test $received = 50 && test $duplicates = 0 &&
    shunt-lab status | grep "delay in 5ms, delay out 5ms, jitter in 3ms" &&
    shunt-lab rail h1:0 clear
'
test_expect_success 'a delayed rail can lose and lose its carrier too' '
    shunt-lab rail h1:0 delay 1ms && shunt-lab rail h1:0 loss 30% out &&
    pings $net.0.2 200 && test $received -lt 195 && test $received -gt 50 &&
    shunt-lab rail h1:0 down && pings $net.0.2 5 && test $received = 0 &&
    shunt-lab rail h1:0 clear && pings $net.0.2 5 && test $received = 5
'
test_expect_success 'a rate bounds what passes, in both directions' '
    shunt-lab rail h1:0 rate 16mbit &&
    took=$(shunt-lab exec h1 "$probe" flood $net.0.2 7000 1000000) && test $took -ge 400 &&
    shunt-lab rail h1:0 clear &&
    shunt-lab rail h2:0 rate 16mbit in &&
    took=$(shunt-lab exec h1 "$probe" flood $net.0.2 7000 1000000) && test $took -ge 400 &&
    shunt-lab rail h2:0 rate off in &&
    shunt-lab status | grep "^h2:0 .* -$"
'
test_expect_success 'an interface vanishes and comes back' '
    shunt-lab rail h1:1 loss 1% && shunt-lab rail h1:1 absent &&
    test_must_fail shunt-lab exec h1 test -e /sys/class/net/rail1 &&
    shunt-lab status | grep "h1:1 .* absent" &&
    shunt-lab rail h1:1 present &&
    shunt-lab status | grep "h1:1 .* up .*loss in 1%" &&
    shunt-lab rail h1:1 clear && pings $net.1.2 10 && test $received = 10
'
test_expect_success 'an address goes and comes back' '
    shunt-lab rail h1:1 address del && pings $net.1.2 3 && test $received = 0 &&
    shunt-lab rail h1:1 address add && pings $net.1.2 3 && test $received = 3
'
test_expect_success 'a partition cuts two hosts on all rails and leaves a third alone' '
    { shunt-lab exec h3 "$probe" serve 7000 >ready3 & } &&
    for try in $(seq 100); do test -s ready3 && break; sleep 0.05; done &&
    shunt-lab partition h1,h2 &&
    pings $net.0.2 3 && test $received = 0 &&
    pings $net.1.2 3 && test $received = 0 &&
    pings $net.0.3 3 && test $received = 3 &&
    shunt-lab partition clear &&
    pings $net.0.2 3 && test $received = 3
'
test_expect_success 'what is set for a time ends by itself' '
    shunt-lab rail h1:0 down for 0.2 &&
    pings $net.0.2 3 && test $received = 3
'
test_expect_success 'mistakes in events are refused before anything is done' '
    test_expect_code 2 shunt-lab rail h1:0 vanish 2>err && grep vanish err &&
    test_expect_code 2 shunt-lab rail h1:0 rate 2>err &&
    test_expect_code 2 shunt-lab rail h1:0 loss 200% 2>err && grep probability err &&
    test_expect_code 2 shunt-lab rail h1:0 delay soon 2>err && grep "10ms" err &&
    test_expect_code 2 shunt-lab rail h1:0 down in 2>err &&
    test_expect_code 2 shunt-lab rail h1 down 2>err && grep HOST:RAIL err &&
    test_expect_code 1 shunt-lab rail h7:0 down 2>err && grep "no rail" err &&
    test_expect_code 1 shunt-lab partition h1,h8 2>err && grep "no host" err &&
    shunt-lab status >out && test $(grep -c "^h.* -$" out) = 6
'
test_expect_success 'a script plays its events in the order of their times; a seed repeats it' '
    cat >script <<-END &&
	# out of order on purpose, with a comment
	0.30 rail h1:0 clear
	0.05 rail h1:0 rate 50mbit
	0.1..0.2 rail ?:1 loss 1%..2% in
	END
    test_expect_code 2 shunt-lab script script 2>err && grep probability err &&
    sed "s/1%..2% in/1% for 50ms..90ms/" script >good &&
    shunt-lab script good --seed 5 --dry-run >a && shunt-lab script good --seed 5 --dry-run >b && test_cmp a b &&
    shunt-lab script good --seed 5 | sed "s/^[0-9.]* //" >played && sed "s/^[0-9.]* //" a >planned &&
    test_cmp planned played && test $(wc -l <played) = 4 &&
    for seed in 1 2 3 4 5 6 7 8; do shunt-lab script good --seed $seed --dry-run; done | grep -o "rail .*:1 loss 1%" |
        sort -u >drawn && test $(wc -l <drawn) -gt 1
'
test_expect_success 'scripts have the words of SHUNT_FAULTS: seed, flap, heal, a rail of every host, semicolons' '
    printf "%s\n" "seed 3; 100ms rail 1 flap 2 30ms 20ms; 10ms rail *:0 rate 100mbit # to be healed" "0.25 heal" >script &&
    shunt-lab script script --dry-run >out &&
    test $(grep -c "rail h[123]:1 down" out) = 6 && grep "^0.150 rail h2:1 down" out &&
    shunt-lab script script && shunt-lab status >out && test $(grep -c "^h.* -$" out) = 6 &&
    echo "#100 rail 0 down" >script && test_expect_code 2 shunt-lab script script 2>err && grep "counts no frames" err
'
test_expect_success 'run spreads ranks over the hosts in blocks' '
    shunt-lab run -n 7 sh -c "echo \$RANK/\$WORLD_SIZE \$LOCAL_RANK/\$LOCAL_WORLD_SIZE \$(hostname) \$MASTER_ADDR" >out &&
    sort out >sorted &&
    cat >expected <<-END &&
	[h1 0] 0/7 0/3 h1 $net.0.1
	[h1 1] 1/7 1/3 h1 $net.0.1
	[h1 2] 2/7 2/3 h1 $net.0.1
	[h2 3] 3/7 0/2 h2 $net.0.1
	[h2 4] 4/7 1/2 h2 $net.0.1
	[h3 5] 5/7 0/2 h3 $net.0.1
	[h3 6] 6/7 1/2 h3 $net.0.1
	END
    test_cmp expected sorted
'
test_expect_success 'all ranks of a run share port, run id and key, and the key goes' '
    shunt-lab run -n 6 --no-prefix sh -c "echo \$MASTER_PORT \$TORCHELASTIC_RUN_ID \$SHUNT_KEY_FILE" >out &&
    test $(sort -u out | wc -l) = 1 && read -r port id key <out && test ! -e "$key"
'
test_expect_success 'a failing rank ends those on other hosts, with its code' '
    test_expect_code 9 shunt-lab run -n 3 sh -c "[ \$RANK = 1 ] && exit 9; exec sleep 100" 2>err &&
    grep "h2: rank 1 .* exited with code 9" err
'
test_expect_success '--keep-going lets the other hosts go on' '
    shunt-lab run -n 3 -k sh -c "[ \$RANK = 1 ] && kill -KILL \$\$; sleep 0.5; echo here" >out 2>err || : &&
    test $(grep -c here out) = 2
'
test_expect_success 'a signal ends all ranks on all hosts' '
    rm -f pids &&
    { shunt-lab run -n 3 sh -c "echo \$\$ >>pids; exec sleep 100" 2>err & } &&
    job=$! &&
    for try in $(seq 100); do test "$(cat pids 2>/dev/null | wc -l)" = 3 && break; sleep 0.05; done &&
    kill -TERM $job && test_expect_code 143 wait $job &&
    for pid in $(cat pids); do test_must_fail kill -0 $pid || return 1; done
'
test_expect_success 'rank kill and stop reach the rank alone' '
    rm -f pids &&
    { shunt-lab run -n 3 -k sh -c "echo \$\$ >pid\$RANK; exec sleep 100" 2>err & } &&
    job=$! &&
    for try in $(seq 100); do test -s pid0 && test -s pid1 && test -s pid2 && break; sleep 0.05; done &&
    shunt-lab rank 2 stop && grep "State:.T" /proc/$(cat pid2)/status &&
    shunt-lab rank 2 continue && test_must_fail grep "State:.T" /proc/$(cat pid2)/status &&
    shunt-lab rank 1 kill &&
    for try in $(seq 100); do grep -q "rank 1 .* killed by signal 9" err && break; sleep 0.05; done &&
    grep "rank 1 .* killed by signal 9" err && kill -0 $(cat pid0) && kill -0 $(cat pid2) &&
    kill -TERM $job && { wait $job || :; } &&
    test_expect_code 1 shunt-lab rank 0 kill 2>err && grep "no process of rank 0" err
'
if command -v jq >/dev/null; then
    test_set_prereq JQ
fi
test_expect_success JQ 'status --json tells what is set' '
    shunt-lab rail h2:1 delay 2ms in &&
    shunt-lab status --json >json &&
    jq -e ".hosts == 3 and .rails == 2" json &&
    jq -e ".links[] | select(.link == \"h2:1\") | .set.delay_in == \"2000000\" and .carrier == \"up\"" json &&
    shunt-lab rail "*:*" clear
'
test_expect_success 'two labs live side by side, with leaf switches whose uplinks can be cut' '
    shunt-lab --name u$$ up --hosts 4 --rails 1 --leaves 2 &&
    other=10.$(cat ${XDG_RUNTIME_DIR:-/run}/shunt-lab/u$$/number) && test $other != $net &&
    { shunt-lab --name u$$ exec h2 "$probe" serve 7000 >ready2 & } &&
    { shunt-lab --name u$$ exec h3 "$probe" serve 7000 >ready4 & } &&
    for try in $(seq 100); do test -s ready2 && test -s ready4 && break; sleep 0.05; done &&
    (SHUNT_LAB=u$$ && pings $other.0.2 3 && test $received = 3 && pings $other.0.3 3 && test $received = 3 &&
        shunt-lab uplink 2:0 down && pings $other.0.3 3 && test $received = 0 && pings $other.0.2 3 &&
        test $received = 3 && shunt-lab uplink 2:0 up && shunt-lab uplink 1:0 delay 10ms &&
        pings $other.0.3 5 && test $min -ge 20000 && pings $other.0.2 3 && test $min -lt 20000) &&
    shunt-lab list | grep "^u$$ up" &&
    shunt-lab --name u$$ cables >out && printf "%s\n" "switch leaf1r0 spine0" "switch leaf2r0 spine0" \
        "cable h1 rail0 leaf1r0" "cable h2 rail0 leaf1r0" "cable h3 rail0 leaf2r0" "cable h4 rail0 leaf2r0" >expected &&
    test_cmp expected out &&
    shunt-lab --name u$$ down &&
    pings $net.0.2 3 && test $received = 3
'
test_expect_success 'a lab whose keepers were killed is removed, with what still runs in it' '
    state=${XDG_RUNTIME_DIR:-/run}/shunt-lab/$SHUNT_LAB &&
    { shunt-lab exec h3 sleep 100 & } && sleeper=$! &&
    for try in $(seq 100); do test "$(cat /proc/$sleeper/comm)" = sleep && break; sleep 0.05; done &&
    read -r pid rest <$state/host/h3/pid && kill -KILL $pid &&
    shunt-lab down &&
    test_must_fail kill -0 $sleeper && test ! -e $state
'
test_expect_success 'down without a lab does nothing, and well' '
    shunt-lab down && shunt-lab down
'
test_expect_success 'a lab that was left half made is made anew' '
    mkdir -p ${XDG_RUNTIME_DIR:-/run}/shunt-lab/$SHUNT_LAB/host/h1 &&
    test_expect_code 1 shunt-lab exec h1 true 2>err && grep "no lab" err &&
    shunt-lab up --hosts 1 --rails 1 && shunt-lab exec h1 true && shunt-lab down
'
test_done
