# SPDX-License-Identifier: BSD-3-Clause
# Another dozen: tests/chaos/chaos ucx SEED 12
exec "$abs_top_builddir/tests/chaos/chaos" ucx 1 3
