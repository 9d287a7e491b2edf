# SPDX-License-Identifier: BSD-3-Clause
# --- The command line.

while [ $# -gt 0 ]; do
    case $1 in
        --name) [ $# -gt 1 ] || wrong_usage "--name needs a value"; name=$2; shift 2 ;;
        --help | -h) usage; exit 0 ;;
        --version) echo "shunt-lab $version"; exit 0 ;;
        -*) wrong_usage "no option '$1'" ;;
        *) break ;;
    esac
done
[ $# -gt 0 ] || wrong_usage "no command"
command=$1
shift
case $command in
    up | down | exec | run | script | status | cables | list) "command_$command" "$@" ;;
    rail | uplink | partition | heal | rank) command_event "$command" "$@" ;;
    help) usage ;;
    *) wrong_usage "no command is called '$command'" ;;
esac
