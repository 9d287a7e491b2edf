# SPDX-License-Identifier: BSD-3-Clause
exec "$abs_top_builddir/tests/rail/guest" ofi
