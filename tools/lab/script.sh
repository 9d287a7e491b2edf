# SPDX-License-Identifier: BSD-3-Clause
# --- Schedules: events with their times, drawn and checked before the first is played.

schedule=() # "NANOSECONDS UNDO WORD...", UNDO is - or undo

# plan_line TIME WORD...: a line of a script. TIME is 2.5, 300ms or A..B, of which one moment is drawn. 'seed N' is for
# all that is drawn behind it.
plan_line() {
    if [ "$1" = seed ]; then
        number_between seed "${2:-}" 0 999999999
        [ -n "$given_seed" ] || RANDOM=$2
        return
    fi
    [[ $1 != \#* ]] || wrong_usage "'$1': a lab counts no frames; only SHUNT_FAULTS can play what depends on them"
    local from=${1%%..*} to=${1##*..} span
    from=$(nanoseconds "$from")
    to=$(nanoseconds "$to")
    span=$(((to - from) / 1000000))
    ((span >= 0)) || wrong_usage "'$1' ends before it begins"
    chance $((span + 1))
    [ $# -gt 1 ] || wrong_usage "nothing happens at '$1'"
    plan_event $((from + drawn * 1000000)) "${@:2}"
}

# plan_event NANOSECONDS WORD...: checks an event, finds which links it means, and adds it to the schedule; after
# 'for TIME' (TIME may be A..B as well) its end too.
plan_event() {
    local at=$1 end="" words=("${@:2}") last link undo
    last=$((${#words[@]} - 1))
    if [ "${words[2]:-}" = flap ]; then
        plan_flaps "$at" "${words[@]}"
        return
    fi
    if ((last >= 2)) && [ "${words[last - 1]}" = for ]; then
        local from to
        from=$(nanoseconds "${words[last]%%..*}")
        to=$(nanoseconds "${words[last]##*..}")
        chance $((to > from ? (to - from) / 1000000 + 1 : 1))
        end=$((at + from + drawn * 1000000))
        words=("${words[@]:0:last-1}")
    fi
    case ${words[0]} in
        rail | uplink)
            check_what "${words[@]:2}"
            links_named "$([ "${words[0]}" = rail ] && echo h || echo l)" "${words[1]:-}"
            for link in "${named[@]}"; do
                add_event "$at" - "${words[0]}" "$link" "${words[@]:2}"
                [ -n "$end" ] || continue
                undo=$(opposite "${words[@]:2}") || exit 2
                # shellcheck disable=SC2086 # several words
                add_event "$end" undo "${words[0]}" "$link" $undo
            done
            ;;
        partition)
            add_event "$at" - "${words[@]}"
            [ -z "$end" ] || add_event "$end" undo partition clear
            ;;
        rank)
            add_event "$at" - "${words[@]}"
            [ -z "$end" ] || add_event "$end" undo rank "${words[1]:-}" continue
            ;;
        exec) add_event "$at" - "${words[@]}" ;;
        heal)
            add_event "$at" - partition clear
            plan_event "$at" rail '*:*' clear
            ;;
        *) wrong_usage "no event is called '${words[0]}'" ;;
    esac
}

# plan_flaps NANOSECONDS rail|uplink TARGET flap N DOWN UP: N times down for the time DOWN, then up for the time UP.
plan_flaps() {
    local at=$1 down up i
    [ $# = 7 ] || wrong_usage "flap takes how often, how long down, and how long up"
    number_between flap "$5" 1 10000
    down=$(nanoseconds "$6")
    up=$(nanoseconds "$7")
    for ((i = 0; i < $5; i++)); do
        plan_event "$at" "$2" "$3" down
        plan_event $((at + down)) "$2" "$3" up
        at=$((at + down + up))
    done
}

add_event() {
    schedule+=("$(printf '%015d' "$1") ${*:2}")
}

print_schedule() {
    local at undo words
    printf '%s\n' "${schedule[@]}" | sort -s -k1,1n | while read -r at undo words; do
        at=$((10#$at))
        printf '%d.%03d %s\n' $((at / 1000000000)) $((at / 1000000 % 1000)) "$words"
    done
}

# play_schedule [aloud]: plays all events in the order of their times. If it is interrupted, what was to end by itself
# ends at once.
play_schedule() {
    local aloud=${1:-} begin at undo words interrupted=no sorted entry wait
    mapfile -t sorted < <(printf '%s\n' "${schedule[@]}" | sort -s -k1,1n)
    trap 'interrupted=yes' INT TERM HUP
    begin=${EPOCHREALTIME/./}
    for entry in "${sorted[@]}"; do
        read -r at undo words <<<"$entry"
        wait=$((10#$at / 1000 - (${EPOCHREALTIME/./} - begin)))
        if ((wait > 0)) && [ $interrupted = no ]; then
            # In the background, so that a signal is seen at once.
            sleep "$((wait / 1000000)).$(printf '%06d' $((wait % 1000000)))" &
            wait $! || true
        fi
        [ $interrupted = no ] || [ "$undo" = undo ] || continue
        read -ra words <<<"$words"
        [ -z "$aloud" ] || say_played "$begin" "${words[@]}"
        if [ "${words[0]}" = exec ]; then
            play_event "${words[@]}" &
        else
            play_event "${words[@]}"
        fi
    done
    wait
    trap - INT TERM HUP
    [ $interrupted = no ] || exit 130
}

say_played() {
    local passed=$((${EPOCHREALTIME/./} - $1))
    printf '%d.%03d %s\n' $((passed / 1000000)) $((passed / 1000 % 1000)) "${*:2}"
}
