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

test_expect_success 'the installed tools start' '
	bin=$(dirname $(find root/ -name shunt-info -type f)) && lib=$(dirname $(find root/ -name libshunt.so)) &&
	LD_LIBRARY_PATH=$lib $bin/shunt-info --help >/dev/null && LD_LIBRARY_PATH=$lib $bin/shunt-run --help >/dev/null
'
test_done
