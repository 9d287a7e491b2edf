#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='a program of somebody else, built against the installed tree with pkg-config'
. /usr/share/sharness/sharness.sh

here=$(mktemp -d) # libtool wants a path without spaces
cleanup "rm -rf $here"
ln -s "$here/root" root

test_expect_success 'make install' '
	unset MAKEFLAGS MFLAGS MAKELEVEL &&
	{ make -C "$abs_top_builddir" -s install DESTDIR="$here/root" >log 2>&1 || { tail log; false; }; }
'

cat >consumer.c <<'END'
#include <stdio.h>
#include <shunt/coll.h>
#include <shunt/p2p.h>
#include <shunt/sched.h>
#include <shunt/topo.h>

int main(void)
{
    shunt_context_t *ctx;
    shunt_comm_t *comm;
    float x[3] = {1, 2, 3};

    if (shunt_context_create(NULL, &ctx) != SHUNT_OK || shunt_comm_create_from_env(ctx, &comm) != SHUNT_OK ||
        shunt_allreduce(comm, x, x, 3, SHUNT_FLOAT32, SHUNT_SUM) != SHUNT_OK) {
        fprintf(stderr, "%s\n", shunt_error_text());
        return 1;
    }
    if (shunt_comm_rank(comm) == 0)
        printf("%g %g %g over %d ranks\n", x[0], x[1], x[2], shunt_comm_size(comm));
    shunt_comm_free(comm);
    shunt_context_destroy(ctx);
    return 0;
}
END

test_expect_success 'it builds in C and C++ and runs on 3 ranks' '
	pc=$(find root/ -name shunt.pc) && lib=$(dirname $(find root/ -name libshunt.so)) &&
	export PKG_CONFIG_PATH=$(dirname $(realpath $pc)) PKG_CONFIG_SYSROOT_DIR=$here/root &&
	cc -std=c11 -Wall -Werror consumer.c -o consumer $(pkg-config --cflags --libs shunt) &&
	c++ -x c++ -Wall consumer.c -o consumer++ $(pkg-config --cflags shunt) -x none $(pkg-config --libs shunt) &&
	for p in consumer consumer++; do
		LD_LIBRARY_PATH=$lib shunt-run -n 3 -- ./$p >out && grep -q "3 6 9 over 3 ranks" out || { cat out; return 1; }
	done
'

test_expect_success 'the example of shunt-comm(3) builds and runs' '
	man=$(find root/ -name "shunt-comm.3*") && case $man in *.gz) gzip -dc $man;; *) cat $man;; esac >man &&
	sed -n "/^\.Sh EXAMPLES/,/^\.Sh SEE/{/^\./!p}" man | sed "s/\\\\e/\\\\/g" >example.c &&
	export PKG_CONFIG_PATH=$(dirname $(realpath $(find root/ -name shunt.pc))) PKG_CONFIG_SYSROOT_DIR=$here/root &&
	cc -std=c11 -Wall -Werror example.c -o example $(pkg-config --cflags --libs shunt) &&
	LD_LIBRARY_PATH=$(dirname $(find root/ -name libshunt.so)) shunt-run -n 2 -- ./example >out &&
	test $(grep -c "2 over 2 ranks" out) = 2
'

# Programs with sanitizers can't preload what has them, and the other way round.
nm -D "$abs_top_builddir/shim/.libs/libnccl.so.2" | grep -q __asan_init || test_set_prereq PLAIN
test_expect_success PLAIN 'the installed libnccl.so.2 lies in a folder of its own and finds its engine from there' '
	engine=$(find root/ -name libshunt.so.0) && folder=$(dirname "$engine")/shunt &&
	test -e "$folder/libnccl.so.2" && test -e "$folder/libnccl.so" && test -e "$folder/libshunt-audit.so" &&
	! test -e "$(dirname "$engine")/libnccl.so.2" &&
	cat >nccl.c <<-\EOF &&
	#define _GNU_SOURCE
	#include <dlfcn.h>
	#include <stdio.h>
	struct id { char bytes[128]; } id;
	int main(void)
	{
		int (*make)(struct id *) = (int (*)(struct id *))dlsym(RTLD_DEFAULT, "ncclGetUniqueId");
		int (*init)(void **, int, struct id, int) =
			(int (*)(void **, int, struct id, int))dlsym(RTLD_DEFAULT, "ncclCommInitRank");
		void *comm;
		return make && init && make(&id) == 0 && init(&comm, 1, id, 0) == 0 ? 0 : 1;
	}
	EOF
	cc nccl.c -o nccl && test_must_fail ./nccl && LD_PRELOAD=$(realpath "$folder")/libnccl.so.2 ./nccl
'

test_expect_success 'the installed tools start' '
	bin=$(dirname $(find root/ -name shunt-info -type f)) && lib=$(dirname $(find root/ -name libshunt.so)) &&
	LD_LIBRARY_PATH=$lib $bin/shunt-info --help >/dev/null && LD_LIBRARY_PATH=$lib $bin/shunt-run --help >/dev/null
'
test_done
