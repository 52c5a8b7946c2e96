# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What has sunrpc break connections, those of this machine's clients, or with INJECT=server those of
# its services. It comes behind lib/guest.sh.
#
#   inject_begins PERCENT [TIMES]   breaks one after a send, or as a Call is taken, with this
#                                   probability, not more often
#   inject_ends                     no longer
#   injected, has_injected N        how often it was broken

knobs=/sys/kernel/debug/fail_sunrpc
ALLOWED=1000000
injected() { echo $((ALLOWED - $(cat $knobs/times))); }
has_injected() { [ "$(injected)" -ge "$1" ]; }
inject_begins() {
	echo Y >$knobs/ignore-server-disconnect
	echo Y >$knobs/ignore-client-disconnect
	echo Y >$knobs/ignore-cache-wait
	echo N >$knobs/ignore-${INJECT:-client}-disconnect
	echo 0 >$knobs/verbose
	echo 1 >$knobs/interval
	echo "${2:-$ALLOWED}" >$knobs/times
	echo "$1" >$knobs/probability
}
inject_ends() { echo 0 >$knobs/probability; }
# Whether it was broken as often as it may be.
inject_is_over() { [ "$(cat $knobs/times)" = 0 ]; }
