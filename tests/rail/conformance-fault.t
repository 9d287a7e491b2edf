# SPDX-License-Identifier: BSD-3-Clause
# The wrapper must be a rail like any other, with a script that does nothing and with one that only delays.
exec awk '/^(not )?ok/ { sub(/ok [0-9]+/, "ok " ++n) } /^1\.\./ { next } { print } END { print "1.." n }' <<END
$(for backend in loop shm "sock lo 127.0.0.1" "ucx lo 127.0.0.1" "ofi lo 127.0.0.1"; do
    for script in "seed 3" "0 rail * delay 1ms; 0 rail * jitter 1ms"; do
        set -- $backend
        echo "# $1 under \"$script\""
        "$abs_top_builddir/tests/rail/conformance" "$1" "$2" "$3" "$script" || echo "not ok - $1 under \"$script\" ended with $?"
    done
done)
END
