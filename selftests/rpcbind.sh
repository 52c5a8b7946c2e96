#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A mount by NFSv3 with port=0: the client asks the server's rpcbind for the port, and keeps to it,
# while others read the address.

. "$(dirname "$0")/lib/test.sh"

# What rpcbind tells is the port of the service over TCP, so this is where the transport has to
# listen.
listen() { server 'echo "rdma 2049" >/proc/fs/nfsd/portlist'; }

# Whatever shows a transport's address and port.
guest_add <<-'EOF'
	read_all() {
		while [ ! -f /run/$TEST.stop ]; do
			cat /sys/kernel/debug/sunrpc/rpc_xprt/*/info /sys/kernel/debug/rpcrdma/*/* \
				/sys/kernel/sunrpc/xprt-switches/*/xprt-*/* /proc/self/mountstats \
				/proc/self/mountinfo >/dev/null 2>&1 || true
		done
	}
EOF

ask_rpcbind() {
	defer server '/lab/guest/server stop && /lab/guest/server resume'
	listen
	server_dir /export
	client 'rm -f /run/$TEST.stop'
	client_background readers 'read_all'
	defer client 'rm -f /run/$TEST.stop'
	defer client 'touch /run/$TEST.stop && wait_for 20 test -f /run/job.readers.status'
	client <<-'EOF'
		mount -t nfs -o proto=rdma$SIX,port=0,vers=3,sec=sys $AT_SERVER:/export $MNT
		[ $(xprt_stat 2) = 1 ] || fail "the port was asked for $(xprt_stat 2) times"
		[ $(xprt_stat 3) = 1 ]
		grep -qx "port: *2049" /sys/kernel/debug/sunrpc/rpc_xprt/*/info ||
			fail "the port is another: $(cat /sys/kernel/debug/sunrpc/rpc_xprt/*/info)"
	EOF
	defer unmount_nfs
	work_begins
	# Without its listener the server refuses connections. NFS asks only once, by TCP as well.
	server '/lab/guest/server stop && /lab/guest/server resume'
	client 'wait_for 20 xprt_unconnected'
	listen
	client <<-'EOF'
		work_goes_on 50
		[ $(xprt_stat 3) = 2 ] && [ $(xprt_stat 2) = 1 ] ||
			fail "$(xprt_stat 3) connects, asked $(xprt_stat 2) times"
	EOF
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

test_case "v3: the port comes from rpcbind, while others read it" ask_rpcbind
run_cases
