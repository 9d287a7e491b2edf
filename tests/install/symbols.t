#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='what is installed: symbols, headers, rooms, licence lines, manuals'
. /usr/share/sharness/sharness.sh

top=$abs_top_srcdir
headers=$(cd "$top" && ls comm/include/shunt/*.h topo/include/shunt/*.h sched/include/shunt/*.h)
include="-I$top/comm/include -I$top/topo/include -I$top/sched/include"

test_expect_success 'the library exports what the headers declare, nothing else' '
	nm -D --defined-only "$abs_top_builddir/.libs/libshunt.so" | awk "\$2 ~ /[TDBR]/ { print \$3 }" |
		sed "s/@.*//" | sort >exported &&
	for h in $headers; do cat "$top/$h"; done | tr "\n" " " |
		grep -o "SHUNT_API [^;(]*(" | grep -o "shunt_[a-z0-9_]*($\|shunt_[a-z0-9_]* *($" | tr -d "( " | sort -u >declared &&
	test_cmp declared exported
'

for lang in c c++; do
	test_expect_success "each header compiles alone as $lang" '
		for h in $headers; do
			case $lang in
			c) echo "#include <shunt/$(basename $h)>" >one.c && cc -std=c11 -Wall -Wextra -Werror $include -c one.c -o one.o ;;
			c++) echo "#include <shunt/$(basename $h)>" >one.cc && c++ -Wall -Wextra -Werror $include -c one.cc -o one.o ;;
			esac || { echo "$h" && return 1; }
		done
	'
done

test_expect_success 'rooms include only whom they may' '
	(cd "$top" && git ls-files "*.c" "*.h" 2>/dev/null || find comm topo sched shim tools -name "*.[ch]") >files &&
	grep -E "^(comm/base|comm|topo|sched|shim|tools)/" files | (cd "$top" && xargs grep -HnE "^#include \"(comm|topo|sched|shim|tools|tests)/") |
		awk -F"[:\"]" "{
			split(\$1, f, \"/\"); split(\$4, g, \"/\"); from = f[1]; to = g[1];
			if (from == to && !(f[1] == \"comm\" && f[2] == \"base\" && g[2] != \"base\")) next;
			if (from == \"topo\" && to == \"comm\" && g[2] == \"base\") next;
			if (from == \"sched\" && to == \"comm\" && g[2] == \"base\") next;
			print \$1 \": \" \$4 }" >wrong &&
	test_must_be_empty wrong
'

test_expect_success 'comm/base includes nothing of ours but its own and status.h' '
	! grep -nE "#include <shunt/" "$top"/comm/base/*.[ch] | grep -v "shunt/status.h" >wrong || { cat wrong; false; }
'

test_expect_success 'every source file names its licence' '
	sources=$(grep -E "^(comm|topo|sched|shim|tools|tests)/.*\.[ch]$" files) && test -n "$sources" &&
	(cd "$top" && for f in $sources; do
		head -n 1 "$f" | grep -q "SPDX-License-Identifier: BSD-3-Clause" || echo "$f"; done) >wrong &&
	test_must_be_empty wrong
'

test_expect_success 'every tool has --help and a manual that mandoc can read' '
	for t in info links perf run sched topo lab train; do
		"$abs_top_builddir/tools/shunt-$t" --help >help 2>&1 && grep -qi "usage" help || { echo "shunt-$t --help" && return 1; }
		test -f "$top/tools/man/shunt-$t.1" || { echo "no shunt-$t.1" && return 1; }
	done &&
	if command -v mandoc >/dev/null; then mandoc -T lint -W error "$top"/tools/man/*; fi
'
test_done
