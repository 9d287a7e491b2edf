# SPDX-License-Identifier: BSD-3-Clause
exec "$abs_top_builddir/tests/rail/conformance" ofi lo 127.0.0.1
