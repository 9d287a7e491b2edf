# SPDX-License-Identifier: BSD-3-Clause
# --- Processes that stay behind, and the namespaces they keep.

# alive PID-FILE: the very process that wrote it still runs (its number may have passed to another).
alive() {
    local pid start netns line fields
    read -r pid start netns 2>/dev/null <"$1" || return 1
    { read -r line <"/proc/$pid/stat"; } 2>/dev/null || return 1
    read -ra fields <<<"${line##*)}"
    [ "${fields[19]}" = "$start" ]
}

# pid_of PID-FILE: its process number.
pid_of() {
    local pid rest
    read -r pid rest <"$1"
    echo "$pid"
}

# end_process PID-FILE: ends the process if it is the one that wrote the file.
end_process() {
    local pid
    [ -e "$1" ] || return 0
    if alive "$1"; then
        pid=$(pid_of "$1")
        kill -TERM "$pid" 2>/dev/null || true
        for ((i = 0; i < 50; i++)); do
            alive "$1" || break
            sleep 0.02
        done
        ! alive "$1" || kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -f "$1"
}

# inside DIR COMMAND...: runs it in the namespaces kept by DIR's process.
inside() {
    local dir=$1
    shift
    "$helper" enter "$(pid_of "$dir/pid")" "$@"
}

# on HOST COMMAND... / on_switch COMMAND...
on() {
    inside "$lab/host/$1" "${@:2}"
}

on_switch() {
    inside "$lab/switch" "$@"
}

# residents: the processes in the namespaces of this lab, those that keep them excepted.
residents() {
    local file pid start netns own inode
    local -A ours=() keepers=()
    own=$(stat -Lc %i /proc/self/ns/net)
    for file in "$lab"/host/*/pid; do
        read -r pid start netns <"$file" || continue
        [ "$netns" = "$own" ] || ours[$netns]=1
        keepers[$pid]=1
    done
    [ ${#ours[@]} -gt 0 ] || return 0
    for file in /proc/[0-9]*/ns/net; do
        inode=$(readlink "$file" 2>/dev/null) || continue
        inode=${inode//[!0-9]/}
        pid=${file#/proc/}
        pid=${pid%%/*}
        [ -z "${ours[${inode:-0}]:-}" ] || [ -n "${keepers[$pid]:-}" ] || echo "$pid"
    done
}

# evict: ends what still runs on the hosts.
evict() {
    local pids signal
    for signal in TERM KILL KILL; do
        pids=$(residents)
        [ -n "$pids" ] || return 0
        # shellcheck disable=SC2086 # one word a process
        kill -$signal $pids 2>/dev/null || true
        # shellcheck disable=SC2086
        kill -CONT $pids 2>/dev/null || true
        for ((i = 0; i < 20; i++)); do
            [ -n "$(residents)" ] || return 0
            sleep 0.05
        done
    done
}
