# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What has sunrpc break connections, those of this machine's clients, or with INJECT=server those of
# its services. With INJECT=cache none is broken, but no thread of a service waits for what it has
# asked of a helper: the Call is put aside at once. It comes behind lib/guest.sh.
#
#   inject_begins PERCENT [TIMES]   breaks one after a send, or as a Call is taken, with this
#                                   probability, not more often, and with EVERY=N at each Nth only
#   inject_ends                     no longer
#   injected, has_injected N        how often it was broken

knobs=/sys/kernel/debug/fail_sunrpc
ALLOWED=1000000
injected() { echo $((ALLOWED - $(cat $knobs/times))); }
has_injected() { [ "$(injected)" -ge "$1" ]; }
inject_begins() {
	local knob
	for knob in $knobs/ignore-*; do echo Y >$knob; done
	for knob in $knobs/ignore-${INJECT:-client}-*; do echo N >$knob; done
	echo 0 >$knobs/verbose
	echo "${EVERY:-1}" >$knobs/interval
	echo "${2:-$ALLOWED}" >$knobs/times
	echo "$1" >$knobs/probability
}
inject_ends() { echo 0 >$knobs/probability; }
# Whether it was broken as often as it may be.
inject_is_over() { [ "$(cat $knobs/times)" = 0 ]; }
