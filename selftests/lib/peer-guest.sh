# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What lib/peer.sh runs in the client. It comes behind lib/guest.sh.

# A test may have something to do before each client, and while it ends.
issue_begins() { :; }
issue_ends() { rmmod rpcrdma_test_calls; }

# issue NAME PARAMETERS CONDITIONS: has the module issue its Calls, prints how each has ended, and
# collects in /run/$TEST.wrong what is wrong with their memory and with the counters.
issue() {
	local results=/sys/kernel/debug/rpcrdma_test_calls condition
	issue_begins
	# shellcheck disable=SC2086 # The parameters are words.
	insmod /lab/payload/rpcrdma_test_calls.ko peer="$SERVER" $2
	printf '%s:%s\n' "$1" "$(awk '{ printf " %s", $3 ? $2 "/" $3 : $2 }' $results)"
	grep -v ' clean$' $results | sed "s/^/$1: memory was written to: /" >>"/run/$TEST.wrong" || true
	for condition in $3; do
		[ -f /lab/payload/rpcrdma.ko ] || break
		counter_is "$condition" || printf '%s: %s is not true, it is %s\n' "$1" "$condition" \
			"$(our_stat "${condition%%[=>]*}")" >>"/run/$TEST.wrong"
	done
	issue_ends
}

# counter_is NAME=N or NAME>N
counter_is() {
	local name=${1%%[=>]*} found
	found=$(our_stat "$name")
	case $1 in
	*'>'*) [ "$found" -gt "${1#*>}" ] ;;
	*) [ "$found" = "${1#*=}" ] ;;
	esac
}
