# SPDX-License-Identifier: BSD-3-Clause
# --- Commands: up, down, exec, run, rail, uplink, script, status, list.

# locked COMMAND...: alone among all shunt-labs of this machine that make or remove a lab.
locked() {
    mkdir -p "$root"
    exec 9>"$root/.lock"
    flock -w 60 9 || die "another shunt-lab has held $root/.lock for a minute"
    "$@"
    exec 9>&-
}

command_up() {
    hosts=2 rails=2 rate=none leaves=0
    while [ $# -gt 0 ]; do
        case $1 in
            --hosts | --rails | --rate | --leaves | --name)
                [ $# -gt 1 ] || wrong_usage "$1 needs a value"
                case $1 in --name) name=$2 ;; *) printf -v "${1#--}" %s "$2" ;; esac
                shift
                ;;
            *) wrong_usage "up has no option '$1'" ;;
        esac
        shift
    done
    number_between --hosts "$hosts" 1 250
    number_between --rails "$rails" 1 32
    number_between --leaves "$leaves" 0 "$hosts"
    [ "$rate" = none ] || rate_bits "$rate" >/dev/null
    need_root
    find_lab
    locked make_lab
    echo "lab '$name' is up: $hosts hosts, $rails rails$([ "$rate" = none ] || echo " of $rate")" \
        "$([ "$leaves" = 0 ] || echo "under $leaves leaf switches ")in 10.$(<"$lab/number").RAIL.HOST"
}

make_lab() {
    local i
    [ ! -e "$lab/ready" ] || die "lab '$name' is up already; take it down first, or give this one another --name"
    [ ! -d "$lab" ] || remove_lab # half made
    mkdir -p "$lab"
    trap 'remove_lab' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    choose_number
    echo "hosts=$hosts rails=$rails rate=$rate leaves=$leaves" >"$lab/shape"
    : >"$lab/cuts"
    mkdir -p "$lab/switch" "$lab/link"
    "$helper" host "$name-switch" "$lab/switch/pid" 9>&- || die "can't make namespaces here"
    on_switch sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
    make_bridges
    for ((i = 1; i <= hosts; i++)); do
        make_host "$i"
    done
    touch "$lab/ready"
    trap - EXIT INT TERM HUP
}

# choose_number: the lowest number that no other lab has.
choose_number() {
    local number file
    local -A taken=()
    for file in "$root"/*/number; do
        taken[$(<"$file")]=1
    done
    for ((number = 1; number < 250; number++)); do
        [ -n "${taken[$number]:-}" ] || break
    done
    echo "$number" >"$lab/number"
}

make_bridges() {
    local rail leaf
    for ((rail = 0; rail < rails; rail++)); do
        make_bridge "spine$rail"
        for ((leaf = 1; leaf <= leaves; leaf++)); do
            make_bridge "leaf${leaf}r$rail"
            make_link "l$leaf:$rail" "$lab/switch" "u${leaf}r$rail" "s${leaf}r$rail" "spine$rail"
            plug "l$leaf:$rail"
            on_switch ip link set "u${leaf}r$rail" master "leaf${leaf}r$rail"
        done
    done
}

make_bridge() {
    on_switch ip link add "$1" type bridge stp_state 0 forward_delay 0 mcast_snooping 0
    on_switch ip link set "$1" up
}

make_host() {
    local host=h$1 rail bridge
    mkdir -p "$lab/host/$host"
    "$helper" host "$host" "$lab/host/$host/pid" 9>&- || die "can't make the namespaces of $host"
    # Addresses answer on their own rail only, and are there at once.
    on "$host" sysctl -qw net.ipv6.conf.default.disable_ipv6=1 net.ipv4.conf.all.arp_ignore=1 \
        net.ipv4.conf.all.arp_announce=2 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
    on "$host" ip link set lo up
    for ((rail = 0; rail < rails; rail++)); do
        bridge=spine$rail
        [ "$leaves" = 0 ] || bridge=leaf$(leaf_of "$1" "$hosts" "$leaves")r$rail
        make_link "$host:$rail" "$lab/host/$host" "rail$rail" "${host}r$rail" "$bridge"
        plug "$host:$rail"
    done
}

# leaf_of HOST HOSTS LEAVES: hosts are under leaves in blocks.
leaf_of() {
    echo $((($1 - 1) * $3 / $2 + 1))
}

command_down() {
    local every=no folder
    while [ $# -gt 0 ]; do
        case $1 in
            --all) every=yes ;;
            --name) name=${2:-}; shift ;;
            *) wrong_usage "down has no option '$1'" ;;
        esac
        shift
    done
    need_root
    find_lab
    if [ $every = no ]; then
        locked remove_lab
        return
    fi
    for folder in "$root"/*/; do
        name=$(basename "$folder")
        find_lab
        locked remove_lab
    done
}

# remove_lab: ends what runs on the hosts, then what keeps them; the kernel takes the devices with the namespaces.
remove_lab() {
    local file
    [ -d "$lab" ] || return 0
    rm -f "$lab/ready"
    evict
    for file in "$lab"/link/*/forward.pid "$lab"/host/*/pid "$lab"/switch/pid; do
        end_process "$file"
    done
    rm -rf "$lab"
}

command_exec() {
    local host=${1:-}
    [ $# -ge 2 ] || wrong_usage "exec needs a host and a command"
    need_lab
    [ -d "$lab/host/$host" ] || die "lab '$name' has no host '$host'"
    shift
    exec "$helper" enter "$(pid_of "$lab/host/$host/pid")" "$@"
}

# command_event KIND WORD...: one event, now; with 'for TIME' it stays until the end of that.
command_event() {
    [ $# -ge 2 ] || [ "$1" = heal ] || wrong_usage "$1 needs to be told what to do; see shunt-lab --help"
    need_lab
    schedule=()
    plan_event 0 "$@"
    play_schedule
}

command_script() {
    local file="" given_seed="" dry=no line words
    while [ $# -gt 0 ]; do
        case $1 in
            --seed) number_between --seed "${2:-}" 0 999999999; given_seed=$2; shift ;;
            --dry-run) dry=yes ;;
            -?*) wrong_usage "script has no option '$1'" ;;
            *) file=$1 ;;
        esac
        shift
    done
    [ -n "$file" ] || wrong_usage "script needs a file, or - for standard input"
    [ "$file" != - ] || file=/dev/stdin
    [ -r "$file" ] || die "can't read '$file'"
    need_lab
    RANDOM=${given_seed:-1}
    schedule=()
    while read -r line || [ -n "$line" ]; do
        # A comment begins with '# '; '#100' would be a count of frames.
        [[ $line != \# && $line != '# '* ]] || continue
        read -ra words <<<"${line%% # *}"
        [ ${#words[@]} -eq 0 ] || plan_line "${words[@]}"
    done < <(tr ';' '\n' <"$file")
    if [ $dry = yes ]; then
        print_schedule
    else
        play_schedule aloud
    fi
}

command_status() {
    local json=no host
    [ "${1:-}" != --json ] || json=yes
    need_lab
    # shellcheck disable=SC1091 # hosts, rails, rate, leaves
    . "$lab/shape"
    if [ $json = yes ]; then
        status_json
        return
    fi
    echo "lab '$name': $hosts hosts, $rails rails, rate $rate, $leaves leaf switches, $(residents | wc -l) processes"
    printf '%-8s %-14s %-8s %-9s %14s %14s  %s\n' link address carrier rate sent received set
    status_links | while read -r link address carrier rate sent received settings; do
        printf '%-8s %-14s %-8s %-9s %14s %14s  %s\n' "$link" "$address" "$carrier" "$rate" "$sent" "$received" \
            "$settings"
    done
    sed 's/^/partition: frames dropped, from, to, port: /' "$lab/cuts"
}

# status_links: one line a link: name, address, carrier, rate, bytes sent and received at its near end, what is set.
status_links() {
    local folder facts
    for folder in "$lab"/link/*/; do
        folder=${folder%/}
        load "${folder##*/}"
        # shellcheck disable=SC2016 # expanded in there
        facts=$(inside "$near" sh -c 'cd /sys/class/net/$1 2>/dev/null || { echo - absent 0 0; exit; }
            a=$(ip -4 -o addr show dev $1 | sed -n "s/.* inet \([0-9.]*\).*/\1/p")
            c=$(cat carrier 2>/dev/null || echo 0); [ "$c" = 1 ] && c=up || c=down
            echo "${a:--} $c $(cat statistics/tx_bytes statistics/rx_bytes | tr "\n" " ")"' sh "$device")
        # shellcheck disable=SC2086 # four words
        set -- $facts
        echo "${link##*/} $1 $2 ${set[rate]} $3 $4 $(describe_settings)"
    done
}

describe_settings() {
    local key value text=""
    for key in $(printf '%s\n' "${!set[@]}" | sort); do
        value=${set[$key]}
        case $key in
            rate | absent) continue ;;
            link) [ "$value" = up ] || text+="down, "; continue ;;
            address) [ "$value" = add ] || text+="no address, "; continue ;;
            delay_* | jitter_*) value=$(show_time "$value") ;;
            loss_* | corrupt_* | duplicate_*) value=$(show_share "$value") ;;
        esac
        text+="${key/_/ } $value, "
    done
    text=${text%, }
    echo "${text:--}"
}

status_json() {
    local first=yes host
    printf '{"name":"%s","number":%s,"hosts":%s,"rails":%s,"rate":"%s","leaves":%s,"links":[' "$name" \
        "$(<"$lab/number")" "$hosts" "$rails" "$rate" "$leaves"
    status_links | while read -r link address carrier rate sent received settings; do
        [ $first = yes ] || printf ','
        first=no
        load "$link"
        printf '{"link":"%s","device":"%s","address":"%s","carrier":"%s","sent":%s,"received":%s,"set":{' \
            "${link##*/}" "$device" "$address" "$carrier" "$sent" "$received"
        local comma="" key
        for key in $(printf '%s\n' "${!set[@]}" | sort); do
            printf '%s"%s":"%s"' "$comma" "$key" "${set[$key]}"
            comma=,
        done
        printf '}}'
    done
    printf '],"hosts_at":{'
    first=yes
    for host in "$lab"/host/*/; do
        [ $first = yes ] || printf ','
        first=no
        host=$(basename "$host")
        printf '"%s":{"pid":%s,"leaf":%s}' "$host" "$(pid_of "$lab/host/$host/pid")" \
            "$(if [ "$leaves" = 0 ]; then echo null; else leaf_of "${host#h}" "$hosts" "$leaves"; fi)"
    done
    printf '}}\n'
}

# command_cables: what is joined to what, in the form of shunt_fabric_read_cables(): "switch LEAF SPINE" and "cable HOST NIC
# SWITCH".
command_cables() {
    local folder near device port bridge
    need_lab
    # shellcheck disable=SC1091
    . "$lab/shape"
    for folder in "$lab"/link/l*/; do
        read -r near device port bridge <"$folder/ends"
        device=$(basename "$folder")
        device=${device#l}
        echo "switch leaf${device%:*}r${device#*:} $bridge"
    done
    for folder in "$lab"/link/h*/; do
        read -r near device port bridge <"$folder/ends"
        echo "cable ${near##*/} $device $bridge"
    done
}

command_list() {
    local folder
    need_root
    for folder in "$root"/*/; do
        printf '%s %s %s\n' "$(basename "$folder")" "$([ -e "$folder/ready" ] && echo up || echo broken)" \
            "$(cat "$folder/shape" 2>/dev/null || true)"
    done
}
