#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='NCCL'\''s variables and configuration files'
. /usr/share/sharness/sharness.sh

folder=$abs_top_builddir/shim/.libs
if nm -D "$folder/libnccl.so.2" | grep -q __asan_init; then
	skip_all='a library with sanitizers can not be linked to a program without'
	test_done
fi
for name in $(env | sed -n 's/^\(NCCL_[A-Z_]*\)=.*/\1/p'); do unset $name; done
unset SHUNT_RAILS SHUNT_DEBUG SHUNT_DEBUG_FILE
export HOME="$PWD"

cat >client.c <<\EOF
#include <stdio.h>
#include <stdlib.h>
#include "shim/abi.h"
/* Inits a communicator of one rank: the result, and on failure why. With an argument, that variable afterwards. */
int main(int argc, char **argv)
{
	ncclResult_t error = ncclInProgress, result;
	ncclComm_t comm = NULL;
	ncclUniqueId id;

	result = ncclGetUniqueId(&id);
	if (result == ncclSuccess)
		result = ncclCommInitRank(&comm, 1, id, 0);
	printf("%d%s%s\n", result, result == ncclSuccess ? "" : " ", result == ncclSuccess ? "" : ncclGetLastError(NULL));
	if (argc > 1)
		puts(getenv(argv[1]) ? getenv(argv[1]) : "unset");
	while (comm && ncclCommGetAsyncError(comm, &error) == ncclSuccess && error == ncclInProgress)
		;
	return comm ? ncclCommDestroy(comm) : 0;
}
EOF
${CC:-cc} -I"$abs_top_srcdir" -o client client.c -L"$folder" -lnccl -Wl,-rpath,"$folder" ||
	{ echo "Bail out! no compiler"; exit 1; }

test_expect_success 'silent, and variables that mean nothing here are accepted without a word' '
	NCCL_ALGO=Tree NCCL_PROTO=LL NCCL_P2P_LEVEL=SYS NCCL_P2P_DISABLE=1 NCCL_DEBUG_SUBSYS=ALL NCCL_NOBODY_KNOWS=7 \
		NCCL_MAX_NCHANNELS=2 ./client >out 2>err &&
	echo 0 >want && test_cmp want out && test_must_be_empty err
'
test_expect_success 'NCCL_SOCKET_IFNAME: one that does not exist, and what does' '
	NCCL_SOCKET_IFNAME=nope0 ./client >out 2>err && grep "^2 .*nope0" out && grep "lo" out &&
	NCCL_SOCKET_IFNAME==lo ./client | grep "^0$"
'
test_expect_success 'NCCL_CONF_FILE, not over the environment' '
	printf "# a comment\nNCCL_SOCKET_IFNAME=nope1 # another\n PATH=/nowhere\nnonsense\n" >conf &&
	NCCL_CONF_FILE=conf ./client | grep "^2 .*nope1" &&
	NCCL_CONF_FILE=conf NCCL_SOCKET_IFNAME=lo ./client | grep "^0$"
'
test_expect_success '~/.nccl.conf, not beside NCCL_CONF_FILE' '
	echo "NCCL_SOCKET_IFNAME=nope2" >.nccl.conf && ./client | grep "^2 .*nope2" &&
	: >empty && NCCL_CONF_FILE=empty ./client | grep "^0$" && NCCL_CONF_FILE=missing ./client | grep "^0$" &&
	rm .nccl.conf
'
test_expect_success 'NCCL_COMM_BLOCKING=0 makes communicators non-blocking' '
	NCCL_COMM_BLOCKING=0 ./client | grep "^7" && NCCL_COMM_BLOCKING=1 ./client | grep "^0$"
'
test_expect_success 'NCCL_DEBUG, and NCCL_DEBUG_FILE with %h and %p' '
	NCCL_DEBUG=INFO NCCL_DEBUG_FILE="log.%h.%p" ./client >out 2>err && test_must_be_empty err &&
	ls log.* >logs && grep "^log.$(hostname).[0-9][0-9]*$" logs && test -s "$(cat logs)"
'
test_expect_success 'NCCL_NET=Socket and NCCL_SHM_DISABLE=1: nothing but sockets; SHUNT_BACKEND has the last word' '
	NCCL_NET=Socket NCCL_SHM_DISABLE=1 NCCL_DEBUG=INFO ./client >out 2>&1 && grep "^0$" out && cat out &&
	NCCL_NET=Socket SHUNT_BACKEND=nonsense ./client | grep "^2 .*nonsense" && NCCL_NET=OFI ./client | grep "^0$"
'

test_expect_success 'queue pairs: NCCL_IB_GID_INDEX, TC, SL, TIMEOUT, RETRY_CNT are settings of UCX, not over those given' '
	NCCL_IB_GID_INDEX=3 ./client SHUNT_UCX_IB_GID_INDEX | grep "^3$" &&
	NCCL_IB_GID_INDEX=-1 ./client SHUNT_UCX_IB_GID_INDEX | grep "^unset$" &&
	NCCL_IB_TC=106 ./client SHUNT_UCX_IB_TRAFFIC_CLASS | grep "^106$" &&
	NCCL_IB_SL=2 SHUNT_UCX_IB_SL=1 ./client SHUNT_UCX_IB_SL | grep "^1$" &&
	NCCL_IB_TIMEOUT=20 ./client SHUNT_UCX_RC_VERBS_TIMEOUT | grep "^4294967.30us$" &&
	NCCL_IB_RETRY_CNT=5 ./client SHUNT_UCX_RC_VERBS_RETRY_COUNT | grep "^5$"
'

test_done
