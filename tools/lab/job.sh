# SPDX-License-Identifier: BSD-3-Clause
# --- Jobs: ranks spread over the hosts.

# command_run -n N [OPTION...] [--] COMMAND...: one shunt-run a host, each told its part. Ranks go to hosts in blocks.
command_run() {
    local ranks="" keep=no json=no options=() chosen=""
    while [ $# -gt 0 ]; do
        case $1 in
            -n | --ranks) ranks=${2:-}; shift ;;
            --on) chosen=${2:-}; shift ;;
            -e | --env | -t | --timeout | -g | --grace)
                [ $# -gt 1 ] || wrong_usage "$1 needs a value"
                options+=("$1" "$2")
                shift
                ;;
            -k | --keep-going) keep=yes; options+=(--keep-going) ;;
            --json) json=yes; options+=(--json) ;;
            --no-prefix) options+=("$1") ;;
            --) shift; break ;;
            -*) wrong_usage "run has no option '$1'" ;;
            *) break ;;
        esac
        shift
    done
    number_between -n "$ranks" 1 65536
    [ $# -gt 0 ] || wrong_usage "run needs a command"
    need_lab
    [ -x "$launcher" ] || launcher=$(command -v shunt-run) || die "shunt-run is not beside this script nor in PATH"
    start_job "$ranks" "$chosen" "$@"
    await_job
}

# start_job RANKS HOSTS COMMAND...: starts every host's part. $parts maps their processes to hosts.
start_job() {
    local ranks=$1 where first=0 count i key port id
    # shellcheck disable=SC1091
    . "$lab/shape"
    if [ -n "$2" ]; then
        where=$(hosts_of "${2//,/+}") || exit 1
    else
        where=$(for ((i = 1; i <= hosts; i++)); do echo "h$i"; done)
    fi
    mapfile -t where <<<"$where"
    shift 2
    key=${SHUNT_KEY_FILE:-}
    if [ -z "$key" ]; then
        key=$(mktemp "$lab/key.XXXXXX")
        key_of_job=$key
        head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$key"
        echo >>"$key"
    fi
    port=$(free_port "${where[0]}")
    id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    declare -gA parts=()
    asked=0
    trap 'rm -f "${key_of_job:-}"' EXIT
    trap 'stop_job INT 130' INT
    trap 'stop_job TERM 143' TERM
    trap 'stop_job HUP 129' HUP
    for i in "${!where[@]}"; do
        # The first hosts get one rank more where it does not come out even; a host may stay empty.
        count=$((ranks / ${#where[@]} + (i < ranks % ${#where[@]})))
        ((count > 0)) || continue
        on "${where[i]}" "$launcher" -n $count --first-rank $first --world-size "$ranks" --host "${where[i]}" \
            --master-addr "$(address_of "${where[0]}")" --master-port "$port" --run-id "$id" --key-file "$key" \
            --node-rank "$i" --nodes "${#where[@]}" "${options[@]}" -- "$@" &
        parts[$!]=${where[i]}
        first=$((first + count))
    done
}

# address_of HOST: where others reach it: the address of its first rail that has one.
address_of() {
    local address
    address=$(on "$1" ip -4 -o address show | sed -n '/ rail/s/.* inet \([0-9.]*\).*/\1/p' | head -n 1)
    echo "${address:-10.$(<"$lab/number").0.${1#h}}"
}

# free_port HOST: below the range that the kernel gives to outgoing connections, with a free one behind it.
free_port() {
    local port used
    used=$(on "$1" cat /proc/net/tcp)
    while :; do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        grep -q "$(printf ':\\(%04X\\|%04X\\) ' $port $((port + 1)))" <<<"$used" || break
    done
    echo $port
}

# stop_job SIGNAL CODE: passes a signal on to all parts; they know what to do.
stop_job() {
    local pid
    asked=$2
    for pid in "${!parts[@]}"; do
        kill -"$1" "$pid" 2>/dev/null || true
    done
}

# await_job: waits for all parts. The first one that fails ends the others, unless they are to go on; its code is the
# job's. A signal interrupts the wait after its trap has run, hence the look at every part.
await_job() {
    local pid status code=0
    while [ ${#parts[@]} -gt 0 ]; do
        wait -n "${!parts[@]}" || true
        for pid in "${!parts[@]}"; do
            [ ! -d "/proc/$pid" ] || continue
            status=0
            wait "$pid" || status=$?
            [ $status = 0 ] || [ $code != 0 ] || part_failed "${parts[$pid]}" "$status"
            unset "parts[$pid]"
        done
    done
    [ "$asked" = 0 ] || code=$asked
    exit "$code"
}

# part_failed HOST CODE: the first failure decides; the ranks elsewhere are ended unless they are to go on.
part_failed() {
    code=$2
    if [ "$keep" = yes ] || [ "$asked" != 0 ] || [ ${#parts[@]} -lt 2 ]; then
        return
    fi
    [ "$json" = yes ] || echo "shunt-lab: $1 failed; ending the ranks on the other hosts" >&2
    stop_job TERM 0
}
