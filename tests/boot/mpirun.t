#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
test_description='processes meet through PMIx under mpirun'
. /usr/share/sharness/sharness.sh

rank=$abs_top_builddir/tests/boot/env
if ! command -v mpirun >/dev/null; then
    skip_all='mpirun is not installed (openmpi-bin)'
    test_done
fi
if ! grep -q 'define HAVE_PMIX 1' "$abs_top_builddir/config.h"; then
    skip_all='this build has no PMIx (libpmix-dev)'
    test_done
fi
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM

# together N FILE: N lines of one meeting, each rank once
together() {
    test "$(awk '$1 == "OK" && $5 == "met" { print $2 }' "$2" | sort -n | uniq | wc -l)" = "$1" &&
        test "$(awk '{ print $3, $4 }' "$2" | sort -u | wc -l)" = 1
}

test_expect_success 'four ranks meet' '
    mpirun --oversubscribe -n 4 "$rank" rank >out &&
    together 4 out
'
test_expect_success 'and once more in the same processes' '
    TEST_TWICE=1 mpirun --oversubscribe -n 4 "$rank" rank >out &&
    together 4 out
'
test_expect_success 'torchrun variables win over PMIx' '
    mpirun --oversubscribe -n 2 env RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$rank" rank >out &&
    test "$(grep -c "^OK 0 1 .* alone" out)" = 2
'
# mpirun itself fails then: it wants all ranks to use PMIx or none.
test_expect_success 'a rank 0 that hands out nothing is named' '
    mpirun --oversubscribe \
        -n 1 env RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 TEST_DELAY=1500 "$rank" rank : \
        -n 2 env SHUNT_BOOTSTRAP_TIMEOUT=500ms "$rank" rank >out 2>err
    test "$(grep -c "^TIMEOUT .* rank 0 is missing" out)" = 2
'

test_done
