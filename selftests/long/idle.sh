#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A mount that nobody uses gives its connection up after five minutes, and gets a new one with the
# next access.
# virtual: takes longer than a kselftest may

. "$(dirname "$0")/../lib/test.sh"

# NFSv4 is never idle, because the client renews its lease.
idle() {
	server_dir /export
	mount_nfs "$1"
	server 'printf "still there\n" >/export/$TEST/file'
	client '[ "$(cat $MNT/$TEST/file)" = "still there" ] && xprt_connected'
	LIMIT=400 client <<-'EOF'
		start=$SECONDS
		wait_for 380 xprt_unconnected
		printf "the connection was given up after %d seconds\n" $((SECONDS - start))
		[ $((SECONDS - start)) -ge 250 ] || fail "that is too soon"
		[[ $(rdma resource show qp) != *"type RC"* ]] || fail "there is a queue pair still"
	EOF
	client <<-'EOF'
		drop_caches
		[ "$(cat $MNT/$TEST/file)" = "still there" ]
		[ $(xprt_stat 3) = 2 ] || fail "the connects are $(xprt_stat 3)"
		umount $MNT
		wait_for 10 module_unused
	EOF
}

test_case "v3: an idle mount has no connection" idle 3
run_cases
