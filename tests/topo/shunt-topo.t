#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause

test_description='shunt-topo on the command line'
. /usr/share/sharness/sharness.sh

machines=${abs_top_srcdir:-$SHARNESS_TEST_DIRECTORY/../..}/tests/topo/machines
plain=$machines/nccl-2gpu-2nic-plain.xml
unset SHUNT_RAILS NCCL_SOCKET_IFNAME NCCL_IB_HCA NCCL_TOPO_FILE NCCL_TOPO_DUMP_FILE NCCL_SOCKET_FAMILY NCCL_IB_DISABLE

command -v python3 >/dev/null && test_set_prereq PYTHON
command -v xmllint >/dev/null && test_set_prereq XMLLINT
command -v dot >/dev/null && test_set_prereq DOT
command -v rsvg-convert >/dev/null && test_set_prereq RSVG
ip netns add shunt-topo-$$ 2>/dev/null && ip netns del shunt-topo-$$ && test_set_prereq NETNS

test_expect_success 'help and version' '
	shunt-topo --help >help && grep -q "usage: shunt-topo" help && shunt-topo --version | grep -q Shunt
'
test_expect_success 'the live host' '
	shunt-topo >out && grep -q "^Host" out && grep -q "NIC lo" out
'
test_expect_success 'a file, and the same from the standard input' '
	shunt-topo "$plain" >one && grep -q "2 GPUs" one && shunt-topo - <"$plain" >two && test_cmp one two
'
test_expect_success 'the matrix has path classes' '
	shunt-topo --matrix "$plain" >out && grep -q "GPU0 .*SYS .*PIX" out
'
test_expect_success 'a path by every kind of name' '
	shunt-topo --path "GPU 0" mlx5_0 "$plain" >out && grep -q "^PIX" out &&
	shunt-topo --path gpu0 mlx5_1 "$plain" >out && grep -q "^SYS" out &&
	shunt-topo --path 0000:02:00.0 03:00.0 "$plain" >out && grep -q "^PIX" out &&
	test_expect_code 1 shunt-topo --path gpu0 nothing "$plain" 2>err && grep -q "mlx5_0" err
'
test_expect_success 'rails: chosen, overridden, refused' '
	shunt-topo --rails "$plain" >out && grep -q "^2 rails, chosen by topology" out &&
	SHUNT_RAILS=mlx5_1 shunt-topo --rails "$plain" >out && grep -q "^1 rail, chosen by SHUNT_RAILS" out && grep -q "unused mlx5_0" out &&
	NCCL_IB_HCA=^mlx5_0 shunt-topo --rails "$plain" >out && grep -q "unused *mlx5_0 .*excluded by NCCL_IB_HCA" out &&
	SHUNT_RAILS=nope test_expect_code 1 shunt-topo --rails "$plain" 2>err && grep -q "SHUNT_RAILS=nope.*mlx5_0" err
'
test_expect_success 'rails of a rank' '
	shunt-topo --rails=0:2 "$machines/nccl-two-nics-of-one-dev.xml" >out && grep -A1 "^Rank 0" out | grep -q "mlx5_0 " &&
	shunt-topo --rails=1:2 "$machines/nccl-two-nics-of-one-dev.xml" >out && grep -A1 "^Rank 1" out | grep -q "mlx5_0" &&
	shunt-topo --rails=1:2 "$plain" >out && grep -q "Rank 1 of 2 on this host, at GPU 1" out && grep -q "mlx5_1 *PIX" out
'
test_expect_success PYTHON 'JSON is JSON' '
	for f in "$machines"/*.xml; do shunt-topo --of json "$f" | python3 -m json.tool >/dev/null || return 1; done &&
	shunt-topo --rails --json "$plain" | python3 -m json.tool >/dev/null &&
	shunt-topo --path gpu0 gpu1 --json "$plain" | python3 -m json.tool >/dev/null &&
	shunt-topo --merge "$plain*4" --json | python3 -m json.tool >/dev/null &&
	shunt-topo --merge "$plain*4" --ranks 8 --json | python3 -m json.tool >/dev/null
'
test_expect_success PYTHON 'JSON has the arrays that were promised' '
	shunt-topo --json "$plain" >out &&
	python3 -c "
import json
j = json.load(open(\"out\"))
assert len(j[\"gpus\"]) == 2 and len(j[\"nics\"]) == 2 and len(j[\"numa\"]) == 2 and len(j[\"switches\"]) == 2
assert any(p[\"from\"] == \"GPU 0\" and p[\"to\"] == \"mlx5_0\" and p[\"class\"] == \"PIX\" for p in j[\"paths\"])"
'
test_expect_success XMLLINT 'XML and SVG are XML' '
	for f in "$machines"/*.xml; do
		for form in nccl hwloc svg; do shunt-topo --of $form "$f" | xmllint --noout --nonet - || return 1; done
	done && shunt-topo --merge "$plain*20" --of svg | xmllint --noout --nonet -
'
test_expect_success DOT 'Graphviz takes its form' '
	shunt-topo --of dot "$plain" | dot -Tsvg >/dev/null && shunt-topo --merge "$plain*4" --of dot | dot -Tsvg >/dev/null
'
test_expect_success RSVG 'pictures are drawn' '
	shunt-topo -o out.svg "$plain" && rsvg-convert out.svg -o out.png && test -s out.png
'
test_expect_success 'the picture in README is what is drawn' '
	shunt-topo -s "pack:2 numa:2 core:24 pu:2 + switch:1 gpu:2 nic:2@400g nvlink:18" -o machine.svg &&
	test_cmp "$machines/../../../topo/machine.svg" machine.svg
'
test_expect_success 'a packed topology is read again' '
	shunt-topo --of packed -o packed "$plain" && shunt-topo packed >one && shunt-topo "$plain" >two && test_cmp one two
'
test_expect_success 'a synthetic machine' '
	shunt-topo --synthetic "pack:2 numa:2 core:4 pu:2 + switch:1 gpu:2 nic:2@400g nvlink:18" >out && grep -q "8 GPUs" out && grep -q "400 Gbit/s" out &&
	test_expect_code 1 shunt-topo --synthetic nonsense 2>err && grep -q "pack:2" err
'
test_expect_success 'a fabric, its ranks and stages' '
	shunt-topo --merge "$plain*4" --ranks 8 >out && grep -q "Fabric: 4 hosts" out && grep -q "ring 1:" out && grep -q "4 stages x 2 replicas" out &&
	shunt-topo --merge "$plain*4" --ranks 8 --stages 2x4 >out && grep -q "2 stages x 4 replicas" out &&
	test_expect_code 2 shunt-topo --merge "$plain*4" --ranks 8 --stages 3x4
'
test_expect_success 'cables' '
	printf "switch leaf0 spine\nswitch leaf1 spine\ncable * mlx5_0 leaf0\ncable * mlx5_1 leaf1\n" >cables &&
	shunt-topo --merge "$plain*4" --fabric cables >out && grep -q "switch leaf0: 4 NICs, below spine" out && ! grep -q assumed out &&
	echo "cable nobody mlx5_0 x" >cables && test_expect_code 1 shunt-topo --merge "$plain" --fabric cables 2>err && grep -q "line 1" err
'
test_expect_success 'what changed' '
	sed -e "s/name=.mlx5_1.*speed=.400000./name=\"mlx5_1\" dev=\"1\" speed=\"200000\"/" -e "s/0000:82:00.0\(.*\)link_width=.16./0000:82:00.0\1link_width=\"8\"/" "$plain" >changed.xml &&
	test_expect_code 1 shunt-topo --diff "$plain" changed.xml >out &&
	grep -q "NIC mlx5_1 runs at 200 Gbit/s, was 400 Gbit/s" out && grep -q "GPU 1: its link is PCIe 5 x8, was PCIe 5 x16 (slower)" out &&
	shunt-topo --diff "$plain" "$plain" >out && test_must_be_empty out &&
	sed "/mlx5_0/d" "$plain" >gone.xml && test_expect_code 1 shunt-topo --diff "$plain" gone.xml >out && grep -q "NIC mlx5_0 is gone" out
'
test_expect_success 'NCCL_TOPO_FILE is taken, NCCL_TOPO_DUMP_FILE written' '
	NCCL_TOPO_FILE="$plain" NCCL_TOPO_DUMP_FILE=dump.xml shunt-topo >out && grep -q "2 GPUs" out && grep -q "not on this host" out &&
	shunt-topo dump.xml >out && grep -q "2 GPUs" out &&
	NCCL_TOPO_FILE=/nonexistent shunt-topo >out && grep -q "^Host" out
'
test_expect_success 'wrong command lines' '
	test_expect_code 2 shunt-topo --nonsense && test_expect_code 2 shunt-topo --of nonsense "$plain" && test_expect_code 2 shunt-topo a b &&
	test_expect_code 2 shunt-topo --diff a && test_expect_code 2 shunt-topo --merge && test_expect_code 2 shunt-topo --ranks 0 &&
	test_expect_code 2 shunt-topo --rails=8:8 && test_expect_code 2 shunt-topo --matrix --rails && test_expect_code 2 shunt-topo --path a &&
	test_expect_code 1 shunt-topo /nonexistent && test_expect_code 1 shunt-topo --of svg -o /nonexistent/x "$plain"
'
unshare -m true 2>/dev/null && test_set_prereq MOUNTNS
test_expect_success MOUNTNS 'an empty /sys: a default, and silence on stderr' '
	unshare -m sh -c "mount -t tmpfs none /sys && exec shunt-topo" >out 2>err && grep -q "^Host" out && grep -q "NIC lo" out && test_must_be_empty err
'
test_expect_success NETNS 'namespaces: veth rails, one of them down, loopback alone' '
	ns=shunt-topo-$$ && ip netns add $ns &&
	ip -n $ns link add rail0 type veth peer name far0 && ip -n $ns link add rail1 type veth peer name far1 &&
	for i in rail0 far0 rail1 far1; do ip -n $ns link set $i up || return 1; done &&
	ip -n $ns addr add 10.99.0.1/24 dev rail0 && ip -n $ns addr add 10.99.1.1/24 dev rail1 && ip -n $ns link set lo up &&
	ip netns exec $ns shunt-topo --rails >both; ip -n $ns link set rail1 down
	ip netns exec $ns shunt-topo --rails >one; SHUNT_RAILS=rail0,rail1 ip netns exec $ns shunt-topo --rails >named
	ip -n $ns link del rail0; ip -n $ns link del rail1; ip netns exec $ns shunt-topo --rails >lo; ip netns del $ns
	grep -q "^2 rails" both && grep -q "used *rail0" both && grep -q "used *rail1" both &&
	grep -q "^1 rail," one && grep -q "unused *rail1.*down" one && grep -q "absent *rail1" named && grep -q "used *lo" lo
'

test_expect_success NETNS 'a rail that is shaped promises what it lets through' '
	ns=shunt-topo-$$ && ip netns add $ns && ip -n $ns link add rail0 type veth peer name far0 &&
	ip -n $ns link set rail0 up && ip -n $ns link set far0 up && ip -n $ns addr add 10.99.0.1/24 dev rail0 &&
	tc -n $ns qdisc add dev rail0 root tbf rate 250mbit burst 64k latency 20ms; code=$?
	ip netns exec $ns shunt-topo --rails >out; ip netns del $ns
	test $code -ne 0 || grep -q "used *rail0 *250 Mbit/s" out
'

test_done
