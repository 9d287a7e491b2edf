#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='the binary interface of libnccl.so.2: exported names, and the nccl.h of a CUDA toolkit'
. /usr/share/sharness/sharness.sh

top=$abs_top_srcdir
shim=$abs_top_builddir/shim/.libs/libnccl.so.2
CC=${CC:-cc} CXX=${CXX:-c++}
cuda=
for place in ${SHUNT_TEST_NCCL_INCLUDE:-} /usr/local/include /usr/local/cuda/include /usr/local/cuda-*/include; do
	printf '#include <nccl.h>\n#if NCCL_VERSION_CODE != 22809\n#error\n#endif\n' >try.c
	if test -r "$place/nccl.h" && $CC -I"$place" -fsyntax-only try.c 2>/dev/null; then
		cuda=-I$place
		break
	fi
done
test -z "$cuda" || test_set_prereq NCCL_H
nm -D "$shim" 2>/dev/null | grep -q __asan_init || test_set_prereq PLAIN_LIBRARY

rows='s/^NCCL([^,]*,\( *\)\([A-Za-z0-9]*\),.*/\2/p'
functions="$top/shim/functions.def $top/shim/functions-device.def $top/shim/functions-later.def"

test_expect_success 'it exports the functions of its tables under both names, and nothing else' '
	sed -n "$rows" $functions | sed "s/.*/nccl&\npnccl&/" | LC_ALL=C sort >declared &&
	nm -D --defined-only "$shim" | awk "{ print \$3 }" | LC_ALL=C sort >exported &&
	test_cmp declared exported &&
	test $(wc -l <exported) -ge 150
'
test_expect_success 'nothing has a symbol version, ncclX is weak and at the address of pncclX' '
	! grep @ exported &&
	nm -D --defined-only "$shim" | awk "
		\$3 ~ /^pnccl/ { strong[substr(\$3, 2)] = \$1; if (\$2 != \"T\") bad = 1 }
		\$3 ~ /^nccl/ { weak[\$3] = \$1; if (\$2 != \"W\") bad = 1 }
		END { for (n in weak) if (weak[n] != strong[n]) { print n; bad = 1 } exit bad }"
'
test_expect_success PLAIN_LIBRARY 'it needs libc alone, under the SONAME libnccl.so.2' '
	readelf -d "$shim" >dynamic &&
	test "$(grep -c NEEDED dynamic)" = 1 && grep "NEEDED.*libc.so.6" dynamic &&
	grep "SONAME.*\[libnccl.so.2\]" dynamic
'
test_expect_success 'a note tells it from other libraries without running it' '
	readelf -n "$shim" | grep -q Shunt
'

# Values, sizes and offsets, printed by two programs from the two headers.
{
	echo '#include <stdio.h>'
	echo '#include <stddef.h>'
	echo '#include HEADER'
	printf '%s\n' '#define V(x) printf("%s = %lld\n", #x, (long long)(x));'
	printf '%s\n' '#define O(t, m) printf("%s.%s at %zu, %zu\n", #t, #m, offsetof(t, m), sizeof(((t *)0)->m));'
	echo 'int main(void) {'
	for x in 'sizeof(ncclUniqueId)' 'sizeof(ncclConfig_t)' 'sizeof(ncclSimInfo_t)' 'sizeof(ncclResult_t)' \
		'sizeof(ncclRedOp_t)' 'sizeof(ncclDataType_t)' 'sizeof(ncclScalarResidence_t)' ncclSuccess \
		ncclUnhandledCudaError ncclSystemError ncclInternalError ncclInvalidArgument ncclInvalidUsage \
		ncclRemoteError ncclInProgress ncclNumResults ncclSum ncclProd ncclMax ncclMin ncclAvg ncclNumOps \
		ncclMaxRedOp ncclInt8 ncclUint8 ncclInt32 ncclUint32 ncclInt64 ncclUint64 ncclFloat16 ncclFloat32 \
		ncclFloat64 ncclBfloat16 ncclFloat8e4m3 ncclFloat8e5m2 ncclNumTypes ncclScalarDevice \
		ncclScalarHostImmediate NCCL_CONFIG_UNDEF_INT NCCL_SPLIT_NOCOLOR NCCL_SHRINK_DEFAULT NCCL_SHRINK_ABORT; do
		echo "V($x)"
	done
	for m in size magic version blocking cgaClusterSize minCTAs maxCTAs netName splitShare trafficClass commName \
		collnetEnable CTAPolicy shrinkShare nvlsCTAs nChannelsPerNetPeer nvlinkCentricSched; do
		echo "O(ncclConfig_t, $m)"
	done
	for m in size magic version estimatedTime; do
		echo "O(ncclSimInfo_t, $m)"
	done
	echo 'return 0; }'
} >values.c

test_expect_success NCCL_H 'values, sizes and offsets are those of the toolkit' '
	$CC -DHEADER="<nccl.h>" $cuda -o theirs values.c && ./theirs >want &&
	$CC -DHEADER="\"shim/abi.h\"" -I"$top" -o ours values.c && ./ours >have &&
	test_cmp want have && test $(wc -l <have) -gt 50
'
test_expect_success NCCL_H 'the magic numbers are those of its initializers' '
	cat >magic.c <<-\EOF &&
	#include <nccl.h>
	#include <stdio.h>
	int main(void) {
		ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
		ncclSimInfo_t s = NCCL_SIM_INFO_INITIALIZER;
		printf("%#x %#x %u\n", c.magic, s.magic, c.version);
		return 0;
	}
	EOF
	$CC $cuda -o magic magic.c && ./magic >have &&
	echo "$(sed -n "s/#define SHIM_CONFIG_MAGIC \(.*\)u/\1/p" "$top/shim/abi.h")" \
	     "$(sed -n "s/#define SHIM_SIM_MAGIC \(.*\)u/\1/p" "$top/shim/abi.h")" \
	     "$(sed -n "s/#define SHIM_VERSION //p" "$top/shim/abi.h")" >want &&
	test_cmp want have
'
# Behind the toolkit's declarations ours are declarations once more: the compiler complains where they differ.
test_expect_success NCCL_H 'every prototype of 2.28.9 is the same' '
	cat >prototypes.c <<-\EOF &&
	#include <nccl.h>
	#define NCCL(type, name, arguments) extern type nccl##name arguments; extern type pnccl##name arguments;
	#include "shim/functions.def"
	EOF
	$CC -Wall -Werror -Wno-deprecated-declarations $cuda -I"$top" -fsyntax-only prototypes.c &&
	grep -v "^ \*\|^#\|^/\*" "${cuda#-I}/nccl.h" | grep -o "\bnccl[A-Z][A-Za-z0-9]*(" | sed "s/^nccl//; s/($//" |
		LC_ALL=C sort -u >theirs.names &&
	sed -n "$rows" $functions | LC_ALL=C sort -u >our.names &&
	test $(wc -l <theirs.names) -gt 40 &&
	LC_ALL=C comm -23 theirs.names our.names >missing && test_must_be_empty missing
' 
printf '#include <nccl.h>\n#include <nccl_device.h>\n' >try.cc
test -n "$cuda" && $CXX $cuda -fsyntax-only try.cc 2>/dev/null && test_set_prereq NCCL_DEVICE_H
test_expect_success NCCL_DEVICE_H 'every host function of its device API too' '
	cat >device.cc <<-\EOF &&
	#include <nccl.h>
	#include <nccl_device.h>
	extern "C" {
	#define NCCL(type, name, arguments) extern type nccl##name arguments;
	#include "shim/functions-device.def"
	}
	static_assert(sizeof(ncclTeam_t) == 12 && sizeof(ncclMultimemHandle_t) == sizeof(void *), "by value");
	EOF
	$CXX $cuda -I"$top" -fsyntax-only device.cc
'
cat >consumer.c <<\E2
#include <nccl.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclComm_t comm = NULL;
	ncclUniqueId id;
	float x[4] = {1, 2, 3, 4}, y[4];
	int version = 0;

	if (ncclGetVersion(&version) != ncclSuccess || version != NCCL_VERSION_CODE)
		return 1;
	if (ncclGetUniqueId(&id) != ncclSuccess || ncclCommInitRankConfig(&comm, 1, id, 0, &config) != ncclSuccess)
		return puts(ncclGetLastError(NULL)), 2;
	if (ncclAllReduce(x, y, 4, ncclFloat, ncclSum, comm, NULL) != ncclSuccess || memcmp(x, y, sizeof(x)) != 0)
		return puts(ncclGetLastError(comm)), 3;
	if (pncclCommFinalize(comm) != ncclSuccess || ncclCommDestroy(comm) != ncclSuccess)
		return 4;
	return 0;
}
E2
cp consumer.c consumer.cc
for lang in c cc; do
	test_expect_success NCCL_H,PLAIN_LIBRARY "a consumer of the toolkit's nccl.h (.$lang) compiles, links with -lnccl and runs" '
		compiler=$CC && { test '$lang' = c || compiler=$CXX; } &&
		$compiler $cuda -o consumer.'$lang'.out consumer.'$lang' -L"$(dirname "$shim")" -lnccl \
			-Wl,-rpath,"$(dirname "$shim")" &&
		./consumer.'$lang'.out
	'
done

test_done
