#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# While nobody listens, each attempt to connect waits twice as long as the one before, from a second
# on; the first one after a connection that has carried something does not wait.
# virtual: takes longer than a kselftest may

. "$(dirname "$0")/../lib/test.sh"

# The times of the attempts since that mark in the trace, and their delays in jiffies.
guest_add <<-'EOF'
	attempts() { sed "1,/tracing_mark_write: $1$/d" $TRACING/trace |
		sed -n "s/.* \([0-9.]*\): xprtrdma_op_connect: .*delay=\([0-9]*\).*/\1 \2/p"; }
	attempted() { [ $(attempts $1 | wc -l) -ge $2 ]; }
EOF

refused() {
	server_dir /export
	trace_begins client rpcrdma/xprtrdma_op_connect
	mount_nfs "$1"
	work_begins
	defer server '[ $(cat /proc/fs/nfsd/threads) != 0 ] || /lab/guest/server resume'
	client 'trace_mark refused'
	server '/lab/guest/server stop'
	LIMIT=90 client <<-'EOF'
		wait_for 80 attempted refused 5
		attempts refused
		attempts refused | awk '
			NR == 1 && $2 != 0 { exit 1 }
			NR == 2 { second = $2 }
			NR == 2 && $2 == 0 { exit 1 }
			NR > 2 && NR < 6 && $2 != 2 * delay { exit 1 }
			NR > 2 && $1 - time < delay / second { exit 1 }
			{ time = $1; delay = $2 }' || fail 'those are not the pauses'
	EOF
	server '/lab/guest/server resume'
	client <<-'EOF'
		work_goes_on 50
		trace_mark again
		break_connections
		wait_for 20 attempted again 1
		[ "$(attempts again | cut -d ' ' -f 2)" = 0 ] || fail "the pause is still $(attempts again)"
		work_goes_on 50
	EOF
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

test_case "v3: the server refuses connections" refused 3
run_cases
