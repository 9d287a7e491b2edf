# SPDX-License-Identifier: BSD-3-Clause
# Another dozen: tests/chaos/chaos loop SEED 12
exec "$abs_top_builddir/tests/chaos/chaos" loop 1 6
