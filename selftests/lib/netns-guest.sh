# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A network namespace "inner" in a machine. It comes behind lib/guest.sh.
#
#   inner_begins ADDRESS/BITS   makes it, with an interface of the same name, which leads to "outer" here
#   inner_ends                  takes it away again
#   inside COMMAND...           runs a command there

inside() { nsenter --net=/run/netns/inner "$@"; }
inner_begins() {
	ip netns add inner
	ip link add outer type veth peer name inner netns inner
	ip -n inner link set lo up
	ip -n inner link set inner up
	ip -n inner address add "$1" dev inner
	ip link set outer up
}
outer_gone() { ! ip link show outer >/dev/null 2>&1; }
inner_ends() {
	ip netns delete inner
	# A namespace lives on for a moment.
	wait_for 20 outer_gone
}
