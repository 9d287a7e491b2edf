#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
exec "$abs_top_builddir/tests/core/p2p" ucx
