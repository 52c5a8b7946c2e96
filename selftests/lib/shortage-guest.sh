# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What lets the transport's allocations fail. It comes behind lib/guest.sh.
#
#   shortage_begins N [TIMES [FUNCTION]]
#                             fails every Nth allocation with the module's code on the stack, or that of
#                             the function, also those that could wait, not more often
#   shortage_at_load          prepares for the fail-nth of a task that loads a module
#   shortage_ends             no longer
#   shortage_strikes N        so until three have failed
#   failed, has_failed N      how many have failed

failslab=/sys/kernel/debug/failslab
ALLOWED=1000000
failed() { echo $((ALLOWED - $(cat $failslab/times))); }
has_failed() { [ "$(failed)" -ge "$1" ]; }
shortage_begins() {
	# The range holds the addresses of the functions, whatever else the module has.
	local range
	range=$(awk '$4 == "[rpcrdma]" && tolower($2) == "t" { print $1, $3 }' /proc/kallsyms | sort)
	[ "$(wc -l <<<"$range")" -gt 50 ]
	[ -z "${3:-}" ] || range=$(shortage_function "$3" <<<"$range")
	shortage_within "$range"
	echo "${2:-$ALLOWED}" >$failslab/times
	echo "$1" >$failslab/interval
	echo 100 >$failslab/probability
}
# The lines of a function and of the next one, which begins where it ends.
shortage_function() {
	local range
	range=$(grep -A1 "$1")
	[ "$(wc -l <<<"$range")" = 2 ] || fail "this is not one function: $range"
	printf '%s\n' "$range"
}
# The lines of functions, of which the last one does not count any more.
shortage_within() {
	echo 0 >$failslab/probability
	echo "0x$(head -n 1 <<<"$1" | cut -d' ' -f1)" >$failslab/require-start
	echo "0x$(tail -n 1 <<<"$1" | cut -d' ' -f1)" >$failslab/require-end
	echo 32 >$failslab/stacktrace-depth
	echo N >$failslab/ignore-gfp-wait
	echo 0 >$failslab/verbose
	echo $ALLOWED >$failslab/times
}
shortage_at_load() {
	local range
	range=$(shortage_function ' do_one_initcall$' </proc/kallsyms)
	shortage_within "$range"
}
shortage_ends() {
	echo 0 >$failslab/probability
	echo 0 >$failslab/require-start
	echo 0xffffffffffffffff >$failslab/require-end
	echo Y >$failslab/ignore-gfp-wait
}
shortage_strikes() {
	shortage_begins "$1"
	wait_for 30 has_failed 3
	shortage_ends
}
