#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='what is installed: symbols and headers'
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

test_done
