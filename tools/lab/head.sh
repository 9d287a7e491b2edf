#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# shunt-lab: a virtual cluster on one machine. Built from tools/lab/*.sh; see shunt-lab(1).
#
# A lab is a folder of plain files under $root, one lab a folder:
#   number ready shape       its number (10.NUMBER.RAIL.HOST), whether 'up' finished, what it was made with
#   host/h1/pid              the process that keeps the namespaces of host h1 alive ("PID START NETNS")
#   switch/pid               the same for the namespace that holds the bridges
#   link/h1:0/ends           the two ends of a rail ("HOST-DEVICE PORT BRIDGE"), link/l1:0 for a leaf's uplink
#   link/h1:0/set            what is set on it, NAME=VALUE a line; absent names have their defaults
#   cuts                     partitions, "FROM TO PORT" a line: frames from FROM are dropped at TO
set -euo pipefail
shopt -s nullglob

version=@version@
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
if [ -x "$here/lab/shunt-lab-helper" ]; then
    helper=$here/lab/shunt-lab-helper # in the build tree
else
    helper=@pkglibexecdir@/shunt-lab-helper
fi
launcher=$here/shunt-run
PATH=$PATH:/usr/sbin:/sbin
name=${SHUNT_LAB:-lab}
root=${XDG_RUNTIME_DIR:-/run}/shunt-lab
lab= # the folder, once $name is known

usage() {
    cat <<'END'
usage: shunt-lab [--name LAB] COMMAND
A virtual cluster on this machine: network namespaces as hosts, veth pairs as rails.

  up --hosts H --rails R [--rate RATE] [--leaves L]
                              make it: hosts h1, h2, ...; in each rail0, rail1, ...
  exec HOST COMMAND...        run a command on a host
  run -n N [OPTION...] [--] COMMAND...
                              run N ranks spread over the hosts; options are those of shunt-run
  rail HOST:RAIL WHAT         make a rail misbehave; ? stands for one by chance, * for all. WHAT is one of
      down | up | absent | present | rate RATE | delay TIME | jitter TIME | loss P | corrupt P | duplicate P
      blackhole [port N] | address del|add | flap N DOWN UP | clear
                                                           each with 'in' or 'out' for one direction only,
                                                           'for TIME' to end it after a while
  uplink LEAF:RAIL WHAT       the same between a leaf switch and the spine
  partition A,B [one-way] [port N] | partition clear
                              cut hosts (h1+h2,h3) from each other on all rails
  heal                        end all partitions and clear all rails
  rank R kill|stop|continue   send SIGKILL, SIGSTOP or SIGCONT to a rank of a running job
  script FILE [--seed N]      play events: TIME EVENT, one a line
  status [--json]             hosts, rails, what is set on them, bytes
  cables                      which rail is joined to which switch, as a fabric's cables
  list                        labs that are up
  down [--all]                remove it, also what a crash left of it

RATE is 1gbit, 250mbit, ...; TIME 10ms, 2.5s, ...; P 1% or 0.01. --name, or SHUNT_LAB, tells labs apart (lab).
END
}

die() {
    printf 'shunt-lab: %s\n' "$*" >&2
    exit 1
}

wrong_usage() {
    printf 'shunt-lab: %s; see shunt-lab --help\n' "$*" >&2
    exit 2
}

need_root() {
    [ "$(id -u)" = 0 ] || die "a virtual cluster needs root: network namespaces, veth pairs and traffic control." \
        "Without root, 'shunt-run -n N COMMAND' starts ranks as plain processes, and SHUNT_FAULTS makes their rails" \
        "misbehave with the same events; see shunt-faults(7)."
}

# find_lab: $lab becomes the folder of the lab $name, which must be up.
find_lab() {
    case $name in
        *[!A-Za-z0-9_-]* | '') wrong_usage "a lab's name has letters, digits, - and _ only, not '$name'" ;;
    esac
    lab=$root/$name
}

need_lab() {
    need_root
    find_lab
    [ -e "$lab/ready" ] || die "no lab '$name' is up; make one with 'shunt-lab up --hosts 2 --rails 2'"
}
