#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# One of the server's RDMA devices goes away under load, and comes back: its removal is not held up, its
# clients see a pause, and those of another device see nothing and can come and go.
# virtual: takes one of the server's RDMA devices away

. "$(dirname "$0")/lib/test.sh"

# The second device is on one end of a pair of interfaces; the other end, with a device of its own, is in a
# network namespace of the server's machine, from which this mounts its own export.
guest_add <"$lib/netns-guest.sh"
guest_add <<-'EOF'
	OUTER=198.51.100.1 INNER=198.51.100.2
	second_begins() {
		inner_begins $INNER/24
		ip address add $OUTER/24 dev outer
		rdma link add outer type $TRANSPORT netdev outer
		inside rdma link add inner type $TRANSPORT netdev inner
		reachable() { inside ping -q -c 1 -W 1 $OUTER >/dev/null; }
		wait_for 20 reachable
	}
	second_ends() {
		! mountpoint -q $MNT.other || umount $MNT.other
		! mountpoint -q $MNT || umount $MNT
		! inside rdma link show inner/1 >/dev/null 2>&1 || inside rdma link delete inner
		! rdma link show outer/1 >/dev/null 2>&1 || rdma link delete outer
		inner_ends
	}
	# A connection that is made while the first device is away.
	second_accepts() {
		mkdir -p $MNT.other
		inside timeout 30 mount -t nfs -o rdma,port=20049,vers=3,nolock,sec=sys $OUTER:/export $MNT.other ||
			fail "the listener of the other device accepts nothing"
		echo accepted >$MNT.other/$TEST.second/accepted
		umount $MNT.other
		rmdir $MNT.other
		grep -q accepted /export/$TEST.second/accepted
		rm /export/$TEST.second/accepted
	}
	second_works() {
		local n
		for n in {1..10}; do
			head -c 300001 /dev/urandom >/run/$TEST.data
			dd if=/run/$TEST.data of=$MNT/$TEST.second/$n bs=1M conv=fsync status=none
			drop_caches
			dd if=$MNT/$TEST.second/$n bs=1M iflag=direct status=none | cmp - /run/$TEST.data
		done
		rm /run/$TEST.data
	}
EOF

removed() {
	local round
	is_served || skip "with the kernel's own server connections over other devices end as well"
	server_dir /export
	server 'mkdir -p /export/$TEST.second'
	defer server 'rm -rf /export/$TEST.second'
	defer server '[ ! -e /run/netns/inner ] || second_ends'
	server <<-'EOF'
		second_begins
		inside mount -t nfs -o rdma,port=20049,vers=4.2,sec=sys $OUTER:/export $MNT
		grep "$MNT .*proto=rdma" /proc/mounts
		second_works
	EOF
	mount_nfs_timeo "$1"
	trace_begins server rpcrdma/svcrdma_device_removal
	work_begins
	defer server rdma_link_add
	for round in {1..3}; do
		server <<-'EOF'
			timeout 30 rdma link delete $RDMA_LINK || fail "the removal waits"
			! grep $RDMA_LINK <<<"$(rdma link show)" || fail "the device is still there"
			second_works
			second_accepts
			rdma_link_add
		EOF
		client 'work_goes_on 60'
	done
	server <<-'EOF'
		[ $(grep -c svcrdma_device_removal: $TRACING/trace) -ge 3 ]
		second_works
		[ "$(xprt_stat 3)" = 1 ] || fail "the other connection has ended, $(xprt_stat 3) were made"
		grep -h ended_ /sys/kernel/debug/rpcrdma/listener-*/listener
		umount $MNT
	EOF
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

for vers in 3 4.2; do
	test_case "v$vers: a device goes and comes, another one stays" removed $vers
done
run_cases
