# SPDX-License-Identifier: BSD-3-Clause
# Another dozen: tests/chaos/chaos sock SEED 12
exec "$abs_top_builddir/tests/chaos/chaos" sock 1 6
