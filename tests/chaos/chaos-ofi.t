# SPDX-License-Identifier: BSD-3-Clause
# Another dozen: tests/chaos/chaos ofi SEED 12
exec "$abs_top_builddir/tests/chaos/chaos" ofi 1 3
