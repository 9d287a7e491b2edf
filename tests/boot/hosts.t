#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='ranks meet across hosts, and on hosts with one address family only'
. /usr/share/sharness/sharness.sh

rank=$abs_top_builddir/tests/boot/env
if test "$(id -u)" != 0 || ! unshare -n true 2>/dev/null; then
    skip_all='network namespaces need root'
    test_done
fi
if ! command -v ip >/dev/null; then
    skip_all='ip is not installed (iproute2)'
    test_done
fi
export rank

# together N FILE: N lines of one meeting, each rank once
together() {
    test "$(awk '$1 == "OK" && $5 == "met" { print $2 }' "$2" | sort -n | uniq | wc -l)" = "$1" &&
        test "$(awk '{ print $3, $4 }' "$2" | sort -u | wc -l)" = 1
}

# job N ADDR: starts N ranks here and waits for them
cat >job <<'END'
n=$1
export WORLD_SIZE=$n MASTER_ADDR=$2 MASTER_PORT=29500 SHUNT_BOOTSTRAP_TIMEOUT=30s
for RANK in $(seq 0 $((n - 1))); do
    export RANK
    "$rank" rank &
done
wait
END

test_expect_success 'a host with IPv6 alone' '
    unshare -n sh -c "ip link set lo up && ip addr del 127.0.0.1/8 dev lo && sh ./job 12 ::1" >out &&
    together 12 out
'
test_expect_success 'a host with IPv4 alone' '
    unshare -n -m sh -c "
        mount -t proc proc /proc 2>/dev/null
        echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 && ip link set lo up && sh ./job 12 127.0.0.1" >out &&
    together 12 out
'

# Two hosts joined by one link. Even ranks are on the first one, odd ones, among them rank 1, which has children on
# both, on the second.
a=bt$$a b=bt$$b
cleanup() {
    ip netns del $a 2>/dev/null
    ip netns del $b 2>/dev/null
    rm -rf /etc/netns/$a /etc/netns/$b
}
trap cleanup EXIT

cat >two <<'END'
export WORLD_SIZE=20 SHUNT_BOOTSTRAP_TIMEOUT=30s
for RANK in $(seq 0 19); do
    export RANK
    if test $((RANK % 2)) = 0; then ip netns exec "$1" "$rank" rank & else ip netns exec "$2" "$rank" rank & fi
done
wait
END

test_expect_success 'two hosts and a link' '
    ip netns add $a && ip netns add $b &&
    ip link add name v$a netns $a type veth peer name v$b netns $b &&
    ip -n $a addr add 10.77.0.1/24 dev v$a && ip -n $b addr add 10.77.0.2/24 dev v$b &&
    ip -n $a link set lo up && ip -n $b link set lo up && ip -n $a link set v$a up && ip -n $b link set v$b up
'
test_expect_success 'twenty ranks on two hosts' '
    MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 sh ./two $a $b >out &&
    together 20 out
'
# As Debian writes it into /etc/hosts.
test_expect_success 'the root knows its own name as a loopback address' '
    mkdir -p /etc/netns/$a /etc/netns/$b &&
    echo "127.0.1.1 node-a" >/etc/netns/$a/hosts && echo "10.77.0.1 node-a" >/etc/netns/$b/hosts &&
    MASTER_ADDR=node-a MASTER_PORT=29500 sh ./two $a $b >out &&
    together 20 out
'
test_expect_success 'some of the addresses in the id lead nowhere' '
    ip -n $a link add x0 type veth peer name x1 && ip -n $a link set x0 up && ip -n $a link set x1 up &&
    ip -n $a addr add 10.99.0.1/24 dev x0 && ip -n $a addr add fd77::1/64 dev x0 &&
    ip -n $b route add 10.99.0.0/24 via 10.77.0.200 &&
    SHUNT_ID_FILE=$PWD/id sh ./two $a $b >out &&
    together 20 out
'

cleanup
test_done
