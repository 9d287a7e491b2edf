# SPDX-License-Identifier: BSD-3-Clause
if [ ! -e /proc/sys/net/ipv6 ] || [ "$(cat /proc/sys/net/ipv6/conf/lo/disable_ipv6)" = 1 ]; then
    echo "1..0 # SKIP no IPv6 here"
    exit 0
fi
exec "$abs_top_builddir/tests/rail/conformance" sock lo ::1
