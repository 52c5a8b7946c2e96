#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A responder that breaks the rules (selftests/peer) answers the Calls of a kernel module
# (selftests/modules/calls.c): each Call ends, with the status that it should have; nobody writes
# to its memory afterwards; the next Call works; and nothing is left behind.
# limit: 180

. "$(dirname "$0")/lib/test.sh"

# hostile ITEM...: the peer runs one scenario after the other, each with its own client. An ITEM is
# 'SCENARIO | PARAMETERS OF THE MODULE [| CONDITION...]'. A condition compares a counter of the
# transport with a number: NAME=N, or NAME>N.
hostile() {
	local item scenario parameters conditions scenarios=() script='' line
	client '[ -f /lab/payload/rpcrdma_test_calls.ko ]' || skip "the payload has no rpcrdma_test_calls.ko"
	server '[ -x /lab/payload/rpcrdma-peer ]' || skip "the payload has no rpcrdma-peer"
	for item; do
		IFS='|' read -r scenario parameters conditions <<<"$item"
		scenario=${scenario// /}
		scenarios+=("$scenario")
		script+="one $scenario '$parameters' '$conditions'"$'\n'
	done
	server "
		modprobe -q ib_uverbs
		modprobe -q rdma_ucm
		rm -f /run/$TEST.*
		setsid /lab/payload/rpcrdma-peer ${scenarios[*]} >/run/$TEST.out 2>&1 &
		echo \$! >/run/$TEST.pid
		wait_for 10 grep -q listening /run/$TEST.out"
	defer "server 'kill \$(cat /run/$TEST.pid) 2>/dev/null || true; rm /run/$TEST.*'"
	defer "client '! grep -q ^rpcrdma_test_calls /proc/modules || rmmod rpcrdma_test_calls'"
	# Statuses are compared with what the peer expects; here each Call's memory and the counters.
	LIMIT=150 client "
		resources=\$(rdma_resources)
		dirty=
		one() {
			local condition
			insmod /lab/payload/rpcrdma_test_calls.ko peer=\$SERVER \$2
			printf '%s:%s\n' \"\$1\" \"\$(awk '{ printf \" %s\", \$2 }' /sys/kernel/debug/rpcrdma_test_calls)\"
			! grep -v ' clean\$' /sys/kernel/debug/rpcrdma_test_calls || dirty+=\" \$1\"
			for condition in \$3; do
				[ -f /lab/payload/rpcrdma.ko ] || break
				counter \"\$1\" \"\$condition\"
			done
			rmmod rpcrdma_test_calls
		}
		counter() {
			local name=\${2%%[=>]*} wanted=\${2#*[=>]} found
			found=\$(our_stat \$name)
			[ \${2:\${#name}:1} = '>' ] && [ \$found -gt \$wanted ] || [ \$found = \$wanted ] ||
				printf '%s: %s is %s\n' \"\$1\" \"\$2\" \"\$found\" >>/run/$TEST.counters
		}
		rm -f /run/$TEST.*
		{
			$script
		} >/run/$TEST.statuses
		wait_for 10 module_unused
		wait_for 10 rdma_resources_are \"\$resources\" || fail \"the device had \$resources and has \$(rdma_resources)\"
		[ -z \"\$dirty\" ] || fail \"memory was written to that was not the peer's to write:\$dirty\"
		[ ! -s /run/$TEST.counters ] || { cat /run/$TEST.counters; fail 'these counters are wrong'; }" ||
		line=failed
	server "cat /run/$TEST.out"
	client "cat /run/$TEST.statuses"
	[ -z "${line:-}" ] || fail "see above"
	diff <(server "grep -v listening /run/$TEST.out") <(client "cat /run/$TEST.statuses") ||
		fail "Calls ended otherwise than the peer (<) expects"
}

honest() {
	hostile \
		'honest | calls=null,write,read,long,list,exchange | remote_invalidations>0' \
		'honest | calls=null,write,read,long,list,exchange size=400000'
}

test_case "an honest peer, for comparison" honest
run_cases
