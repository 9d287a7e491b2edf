# SPDX-License-Identifier: BSD-3-Clause
# --- Words of a command: rates, times, probabilities, names.

# decimal TEXT DIGITS: TEXT times ten to the DIGITS, as an integer; false if TEXT is no number.
decimal() {
    local whole=${1%%.*} part=""
    [[ $1 != *.* ]] || part=${1#*.}
    [[ $whole$part =~ ^[0-9]+$ ]] || return 1
    part=$(printf '%s%0*d' "$part" "$2" 0)
    echo $((10#${whole:-0} * 10 ** $2 + 10#${part:0:$2}))
}

# rate_bits RATE: bits per second.
rate_bits() {
    local number=${1%%[a-z]*} bits=0
    case ${1#"$number"} in
        gbit | g) bits=$(decimal "$number" 9) || true ;;
        mbit | m) bits=$(decimal "$number" 6) || true ;;
        kbit | k) bits=$(decimal "$number" 3) || true ;;
        bit | '') bits=$(decimal "$number" 0) || true ;;
    esac
    [ "${bits:-0}" -ge 8000 ] || wrong_usage "a rate is 1gbit, 250mbit, 64kbit and the like, not '$1'"
    echo "$bits"
}

# nanoseconds TIME
nanoseconds() {
    local number=${1%%[a-z]*} ns=""
    case ${1#"$number"} in
        s | '') ns=$(decimal "$number" 9) || true ;;
        ms) ns=$(decimal "$number" 6) || true ;;
        us) ns=$(decimal "$number" 3) || true ;;
        m) ns=$(decimal "$number" 9) || true; ns=$((ns * 60)) ;;
    esac
    [ -n "$ns" ] || wrong_usage "a time is 10ms, 2.5s, 300us and the like, not '$1'"
    echo "$ns"
}

# millionths P
millionths() {
    local ppm=""
    case $1 in
        *%) ppm=$(decimal "${1%\%}" 4) || true ;;
        *) ppm=$(decimal "$1" 6) || true ;;
    esac
    [ "${ppm:-1000001}" -le 1000000 ] || wrong_usage "a probability is 1% or 0.01 and the like, not '$1'"
    echo "$ppm"
}

# The other way round, for people.
show_time() {
    if (($1 % 1000000 == 0)); then
        echo "$(($1 / 1000000))ms"
    else
        echo "$(($1 / 1000))us"
    fi
}

show_share() {
    printf '%d.%04d%%\n' $(($1 / 10000)) $(($1 % 10000)) | sed 's/0*%$/%/; s/\.%/%/'
}

# number_between WHAT TEXT MIN MAX
number_between() {
    if ! [[ $2 =~ ^[0-9]{1,9}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
        wrong_usage "$1 must be a number from $3 to $4, not '$2'"
    fi
}

# links_named KIND NAME: the links that NAME (h1:0, 1:0, ?:0, *:*, ...) means; KIND is h for rails, l for uplinks.
links_named() {
    local kind=$1 pattern=$2 all=() link
    # A rail alone is that of every host, as in the scripts of SHUNT_FAULTS.
    if [ "$kind" = h ] && [[ $pattern =~ ^(rail)?([0-9]+|\*)$ ]]; then
        pattern="*:$pattern"
    fi
    [[ $pattern == *:* ]] || wrong_usage "a $([ "$kind" = h ] && echo 'rail is HOST:RAIL, such as h1:0' ||
        echo 'uplink is LEAF:RAIL, such as 1:0'), not '$pattern'"
    pattern=${pattern#"$kind"}
    pattern=${pattern/:rail/:}
    # Glob matching; '?' and '*' both match any number there, and '?' then takes one of the matches by chance.
    for link in "$lab/link/$kind"*:*; do
        link=${link##*/}
        # shellcheck disable=SC2053 # a pattern on purpose
        [[ ${link#"$kind"} == ${pattern//\?/*} ]] && all+=("$link")
    done
    [ ${#all[@]} -gt 0 ] || die "lab '$name' has no $([ "$kind" = h ] && echo rail || echo uplink) '$2'"
    if [[ $pattern == *\?* ]]; then
        chance ${#all[@]}
        all=("${all[drawn]}")
    fi
    named=("${all[@]}")
}

# chance N: $drawn becomes a number below N, from the seeded sequence of this shell (a subshell would repeat it).
chance() {
    drawn=$(((RANDOM * 32768 + RANDOM) % $1))
}
