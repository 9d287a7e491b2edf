# SPDX-License-Identifier: BSD-3-Clause
# --- Events: what a command or a line of a script does to a link, to several hosts, or to a rank.

# change_link LINK WHAT...: sets it and carries it out.
change_link() {
    load "$1"
    shift
    local what=$1 value=${2:-} way ways="in out"
    case " $* " in
        *" in "*) ways="in" ;;
        *" out "*) ways="out" ;;
    esac
    case $what in
        up | down) set[link]=$what ;;
        absent | present)
            change_presence "$what"
            return
            ;;
        address)
            change_address "$value"
            return
            ;;
        clear)
            local rate=${set[rate]} absent=${set[absent]:-no}
            set=([rate]=$rate [absent]=$absent)
            save
            [ "$absent" = no ] || change_presence present
            load "${link##*/}"
            add_address
            ;;
        *)
            for way in $ways; do
                change_value "$what" "$way" "${@:2}"
            done
            ;;
    esac
    save
    apply
    case $what in
        up | clear) await_link ;;
    esac
}

# change_value WHAT DIRECTION VALUE...
change_value() {
    local what=$1 way=$2 value=${3:-}
    if [ "$value" = off ]; then
        unset "set[${what}_$way]"
        return
    fi
    case $what in
        rate) rate_bits "$value" >/dev/null && set[rate_$way]=$value ;;
        delay | jitter) set[${what}_$way]=$(nanoseconds "$value") ;;
        loss | corrupt | duplicate) set[${what}_$way]=$(millionths "$value") ;;
        blackhole)
            set[blackhole_$way]=all
            [ "$value" != port ] || set[blackhole_$way]=${4:?}
            ;;
    esac
}

change_presence() {
    if [ "$1" = absent ] && [ "${set[absent]:-no}" = no ]; then
        set[absent]=yes
        save
        unplug "${link##*/}"
    elif [ "$1" = present ] && [ "${set[absent]:-no}" = yes ]; then
        set[absent]=no
        save
        plug "${link##*/}"
    fi
}

change_address() {
    [ "${near%/*}" = "$lab/host" ] || die "an uplink has no address"
    set[address]=$1
    save
    if [ "$1" = add ]; then
        add_address
    else
        inside "$near" ip address flush dev "$device"
    fi
}

# check_what WHAT...: refuses a mistake before anything is done.
check_what() {
    local what=${1:-nothing} value=${2:-}
    local -a rest=("${@:2}")
    case $what in
        up | down | absent | present | clear) ;;
        address)
            [[ $value == add || $value == del ]] || wrong_usage "address takes add or del, not '$value'"
            rest=("${@:3}")
            ;;
        rate) [ "$value" = off ] || rate_bits "$value" >/dev/null; rest=("${@:3}") ;;
        delay | jitter) [ "$value" = off ] || nanoseconds "$value" >/dev/null; rest=("${@:3}") ;;
        loss | corrupt | duplicate) [ "$value" = off ] || millionths "$value" >/dev/null; rest=("${@:3}") ;;
        blackhole)
            if [ "$value" = off ]; then
                rest=("${@:3}")
            elif [ "$value" = port ]; then
                number_between port "${3:-}" 1 65535
                rest=("${@:4}")
            fi
            ;;
        *) wrong_usage "nothing that a link can do is called '$what'" ;;
    esac
    case "$what:${rest[*]}" in
        rate:* | delay:* | jitter:* | loss:* | corrupt:* | duplicate:* | blackhole:*)
            [[ ${rest[*]} =~ ^(in|out)?$ ]] && return ;;
        *) [ ${#rest[@]} -eq 0 ] && return ;;
    esac
    wrong_usage "'${rest[*]}' means nothing after '$what'"
}

# opposite WHAT...: what ends it, for 'for TIME'.
opposite() {
    case $1 in
        down) echo up ;;
        absent) echo present ;;
        address) echo address add ;;
        rate | delay | jitter | loss | corrupt | duplicate | blackhole)
            case " $* " in
                *" in "*) echo "$1 off in" ;;
                *" out "*) echo "$1 off out" ;;
                *) echo "$1 off" ;;
            esac
            ;;
        *) wrong_usage "'$1' can't be had for a time" ;;
    esac
}

# hosts_of LIST: h1+h2 as "h1 h2", each of which must exist.
hosts_of() {
    local host
    for host in ${1//+/ }; do
        [ -d "$lab/host/$host" ] || die "lab '$name' has no host '$host'"
        echo "$host"
    done
}

# change_partition A,B [one-way] [port N] | clear
change_partition() {
    local sides=${1:-} ports=all one_way=no a b link left right
    if [ "$sides" = clear ]; then
        : >"$lab/cuts"
    else
        [[ $sides == ?*,?* ]] || wrong_usage "a partition is A,B, such as h1,h2 or h1+h2,h3, not '$sides'"
        shift
        while [ $# -gt 0 ]; do
            case $1 in
                one-way) one_way=yes ;;
                port) number_between port "${2:-}" 1 65535; ports=$2; shift ;;
                *) wrong_usage "'$1' means nothing in a partition" ;;
            esac
            shift
        done
        left=$(hosts_of "${sides%%,*}")
        right=$(hosts_of "${sides#*,}")
        for a in $left; do
            for b in $right; do
                echo "$a $b $ports" >>"$lab/cuts"
                [ $one_way = yes ] || echo "$b $a $ports" >>"$lab/cuts"
            done
        done
    fi
    for link in "$lab"/link/h*; do
        load "${link##*/}"
        [ "${set[absent]:-no}" = yes ] || apply_filter "$near" "$device" "$device" in out
    done
}

# signal_rank R kill|stop|continue: the process group leader on any host whose environment says RANK=R.
signal_rank() {
    local signal pid found=no
    case ${2:-} in
        kill) signal=KILL ;;
        stop) signal=STOP ;;
        continue) signal=CONT ;;
        *) wrong_usage "a rank can be told kill, stop or continue, not '${2:-}'" ;;
    esac
    for pid in $(residents); do
        { tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "RANK=$1"; } 2>/dev/null || continue
        kill -$signal "$pid" 2>/dev/null && found=yes
    done
    [ $found = yes ] || die "no process of rank $1 runs in lab '$name'"
}

# play_event WORD...: one event, without 'for'.
play_event() {
    local kind=$1 target=${2:-} link
    case $kind in
        rail | uplink)
            check_what "${@:3}"
            links_named "$([ "$kind" = rail ] && echo h || echo l)" "$target"
            for link in "${named[@]}"; do
                change_link "$link" "${@:3}"
            done
            ;;
        partition) change_partition "${@:2}" ;;
        rank) signal_rank "${@:2}" ;;
        exec) on "$target" "${@:3}" ;;
        *) wrong_usage "no event is called '$kind'" ;;
    esac
}
