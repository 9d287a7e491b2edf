# SPDX-License-Identifier: BSD-3-Clause
# --- Links: how they are made, and how what is set on them is carried out.

declare -A set # of the link at hand

# load LINK: reads what is set on it, and its ends, into $set, $near (namespace folder), $device, $port and $bridge.
load() {
    local key value
    set=()
    link=$lab/link/$1
    [ -d "$link" ] || die "no link '$1' in lab '$name'; 'shunt-lab status' lists them"
    while IFS='=' read -r key value; do
        set[$key]=$value
    done <"$link/set"
    read -r near device port bridge <"$link/ends"
}

save() {
    local key
    for key in "${!set[@]}"; do
        echo "$key=${set[$key]}"
    done >"$link/set.new"
    mv "$link/set.new" "$link/set"
}

# make_link LINK NEAR DEVICE PORT BRIDGE: the files of a new link. NEAR is the folder of the namespace of its DEVICE.
make_link() {
    mkdir -p "$lab/link/$1"
    echo "${*:2}" >"$lab/link/$1/ends"
    echo "rate=$rate" >"$lab/link/$1/set"
}

# plug LINK: makes its veth pair and carries out what is set on it.
plug() {
    load "$1"
    on_switch ip link add "$port" type veth peer name "$device" netns "$(pid_of "$near/pid")"
    on_switch ip link set "$port" master "$bridge"
    inside "$near" ip link set "$device" up
    add_address
    apply
    [ "${set[link]:-up}" = down ] || await_link
}

unplug() {
    load "$1"
    end_process "$link/forward.pid"
    on_switch ip link del "$port"
}

# The address of a rail, if the link at hand is one and it is not taken away.
add_address() {
    local host rail
    [[ ${link##*/} == h*:* ]] && [ "${set[address]:-add}" = add ] || return 0
    host=${link##*/h}
    rail=${host#*:}
    inside "$near" ip address replace "10.$(<"$lab/number").$rail.${host%:*}/24" dev "$device"
}

# apply: carries out what is set on the link at hand. At either end the queue decides the rate of what leaves, and an
# nft table at the entrance what of the other end's frames arrives; the bucket has cut these to their final size.
apply() {
    [ "${set[absent]:-no}" = no ] || return 0
    on_switch ip link set "$port" "${set[link]:-up}"
    apply_rate "$lab/switch" "$port" "${set[rate_in]:-${set[rate]}}"
    apply_rate "$near" "$device" "${set[rate_out]:-${set[rate]}}"
    apply_delay
    apply_filter "$lab/switch" "$port" "$entrance" out in
    apply_filter "$near" "$device" "$device" in out
}

# await_link: returns when the two ends of the link at hand pass frames again, which the kernel does a little after it
# was told.
await_link() {
    local end
    for end in "$near $device" "$lab/switch $port"; do
        # shellcheck disable=SC2016 # expanded in there
        inside "${end% *}" sh -c 'for i in $(seq 100); do
            [ "$(cat /sys/class/net/$1/operstate)" = up ] && exit 0
            sleep 0.01
        done' sh "${end##* }"
    done
}

# apply_rate NAMESPACE DEVICE RATE: what DEVICE may send. The bucket holds 100 us of the rate, at least two frames; the
# queue behind it 20 ms, at least 64 KiB, which is the largest piece that the stack hands over.
apply_rate() {
    local bits burst limit
    if [ "$3" = none ]; then
        inside "$1" tc qdisc del dev "$2" root 2>/dev/null || true
        return 0
    fi
    bits=$(rate_bits "$3")
    burst=$((bits / 80000))
    ((burst >= 3100)) || burst=3100
    limit=$((bits / 400 + 65536))
    inside "$1" tc qdisc replace dev "$2" root handle 1: tbf rate "${bits}bit" burst $burst limit $limit
}

# apply_delay: starts, tells or ends the process that delays (see forward.c). $entrance becomes the device by which
# the frames of the near end enter the bridge.
apply_delay() {
    entrance=$port
    echo "${set[delay_out]:-0} ${set[jitter_out]:-0} ${set[delay_in]:-0} ${set[jitter_in]:-0}" >"$link/forward"
    if [ "$(<"$link/forward")" = "0 0 0 0" ]; then
        if [ -e "$link/forward.pid" ]; then
            end_process "$link/forward.pid"
            on_switch ip link set "$port" master "$bridge"
        fi
        return 0
    fi
    entrance=t.$port
    if [ -e "$link/forward.pid" ] && alive "$link/forward.pid"; then
        kill -HUP "$(pid_of "$link/forward.pid")"
    else
        on_switch ip link set "$port" nomaster
        on_switch "$helper" forward "$port" "$entrance" "$bridge" "$link/forward" "$link/forward.pid"
    fi
}

# apply_filter NAMESPACE DEVICE ENTRANCE INWARD OUTWARD: the nft table of one end, replaced as a whole. INWARD and
# OUTWARD name the direction (in or out, as the near end sees it) of what enters at ENTRANCE and leaves by DEVICE.
apply_filter() {
    local rules copies=${set[duplicate_$5]:-0} table="shunt_${2//./_}"
    rules=$(drop_rules "$4"; corrupt_rules "$4")
    {
        echo "add table netdev $table"
        echo "delete table netdev $table"
        [ -z "$rules" ] || printf '%s\n' "table netdev $table {" "chain entrance {" \
            "type filter hook ingress device \"$3\" priority 0" "$rules" "}" "}"
        [ "$copies" = 0 ] || printf '%s\n' "table netdev $table {" "chain exit {" \
            "type filter hook egress device \"$2\" priority 0" \
            "numgen random mod 1000000 < $copies dup to \"$2\"" "}" "}"
    } | inside "$1" nft -f - || die "nft refused what was to be set on $2"
}

# drop_rules DIRECTION: black hole, partitions, loss. Probabilities are in millionths.
drop_rules() {
    local from to ports address
    case ${set[blackhole_$1]:-off} in
        off) ;;
        all) echo "drop" ;;
        *) echo "tcp dport ${set[blackhole_$1]} drop; tcp sport ${set[blackhole_$1]} drop" ;;
    esac
    if [ "$1" = in ] && [ "${near%/*}" = "$lab/host" ]; then
        while read -r from to ports; do
            [ "$to" = "${near##*/}" ] || continue
            address=10.$(<"$lab/number").${link##*:}.${from#h}
            case $ports in
                all) echo "ip saddr $address drop" ;;
                *) echo "ip saddr $address tcp dport $ports drop; ip saddr $address tcp sport $ports drop" ;;
            esac
        done <"$lab/cuts"
    fi
    [ "${set[loss_$1]:-0}" = 0 ] || echo "numgen random mod 1000000 < ${set[loss_$1]} drop"
}

# corrupt_rules DIRECTION: overwrites four bytes at one of four places, each with a quarter of the probability. The
# places lie behind TCP's header and usual options; frames that end before one are spared there.
corrupt_rules() {
    local place
    [ "${set[corrupt_$1]:-0}" != 0 ] || return 0
    for place in 44 140 520 1200; do
        printf 'meta l4proto { tcp, udp } meta length > %d numgen random mod 4000000 < %d @th,%d,32 set 0x%04x%04x\n' \
            $((place + 32)) "${set[corrupt_$1]}" $((place * 8)) $RANDOM $RANDOM
    done
}
