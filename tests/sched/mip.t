#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='an integer program, solved by glpsol, knows no better order than the planner'
. /usr/share/sharness/sharness.sh

if ! command -v glpsol >/dev/null; then
    skip_all='glpsol is not installed (Debian: glpk-utils)'
    test_done
fi
model=$abs_top_srcdir/tests/sched/pipeline.mod

# numbers NAME V...: "param NAME := 0 V0 1 V1 ...;"
numbers() {
    printf 'param %s :=' "$1"
    shift
    i=0
    for v; do
        printf ' %d %s' $i "$v"
        i=$((i + 1))
    done
    echo ';'
}

# optimum P M SPLIT CAP FORWARD BACKWARD WEIGHT LINKS: the makespan that glpsol proves, lists separated by spaces
optimum() {
    { echo "param p := $1; param m := $2; param split := $3; param cap := $4;"
      numbers f $5; numbers b $6; numbers w $7; numbers c $8; echo 'end;'; } >case.dat
    glpsol --tmlim 60 -m "$model" -d case.dat >log 2>&1
    grep -q 'INTEGER OPTIMAL SOLUTION FOUND' log && sed -n 's/^makespan //p' log
}

# same P M SPLIT CAP FORWARD BACKWARD WEIGHT LINKS: the plan takes as long as the optimum
same() {
    links= i=0
    for c in $8; do
        links="$links --link $i:$c"
        i=$((i + 1))
    done
    lists=$(echo "$5" | tr ' ' ,)
    set -- "$@" "$(optimum "$@")"
    test -n "$9" || { cat log; return 1; }
    if test "$3" = 1; then
        shunt-sched plan --stages $1 --microbatches $2 --cap $4 --forward $lists --backward $(echo "$6" | tr ' ' ,) \
            --weight $(echo "$7" | tr ' ' ,) $links --json >out
    else
        shunt-sched plan --stages $1 --microbatches $2 --cap $4 --forward $lists --backward $(echo "$6" | tr ' ' ,) $links --json >out
    fi
    planned=$(sed -n 's/^  "makespan": \([0-9.]*\),$/\1/p' out)
    test "$planned" = "$9" || { echo "planned $planned, optimum $9"; return 1; }
}

test_expect_success 'equal stages, one slow link' '
    same 3 4 0 4 "1 1 1" "2 2 2" "0 0 0" "0 2"
'
test_expect_success 'unequal stages, two slow links' '
    same 3 3 0 3 "3 5 2" "4 2 6" "0 0 0" "7 3"
'
test_expect_success 'a memory cap' '
    same 3 4 0 2 "2 2 2" "3 3 3" "0 0 0" "1 4"
'
test_expect_success 'split backward' '
    same 2 3 1 3 "3 4" "2 5" "4 1" "6"
'
test_expect_success 'split backward under a memory cap' '
    same 2 4 1 2 "2 3" "3 2" "2 2" "3"
'
test_done
