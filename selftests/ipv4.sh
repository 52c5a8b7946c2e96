#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Main tests where neither machine has IPv6.
# boot: ipv6.disable=1
# virtual: boots machines without IPv6

. "$(dirname "$0")/lib/test.sh"

# Runs another test's cases: other NAME REGEX.
other() {
	local machine
	for machine in client server; do
		"$machine" 'grep -qw ipv6.disable=1 /proc/cmdline' || skip "the machines were not booted with APPEND=ipv6.disable=1"
		"$machine" '! ip -6 address add 2001:db8::7/64 dev $NETDEV 2>/dev/null || fail "there is IPv6"'
	done
	other_test "$(dirname "$0")/$1.sh" "$2"
}

test_case "mount.sh" other mount 'v3|v4.2|source'
test_case "io.sh" other io 'v4.2, buffered'
run_cases
