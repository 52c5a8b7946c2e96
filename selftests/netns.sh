#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Mounts from another network namespace, which has an interface and an RDMA device of its own; the
# client's first namespace forwards its packets.
# virtual: has the client route for a network namespace

. "$(dirname "$0")/lib/test.sh"
. "$(dirname "$0")/lib/version.sh"

guest_add <"$lib/netns-guest.sh"
guest_add <<-'EOF'
	INNER=192.0.2.3
	# Namespaces either share all RDMA devices or have each its own: namespace_begins shared|exclusive.
	namespace_begins() {
		rdma system set netns $1
		inner_begins $INNER/24
		ip route add $INNER dev outer
		# Each side of this machine takes it for the other.
		sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.$NETDEV.proxy_arp=1 net.ipv4.conf.outer.proxy_arp=1
		reachable() { inside ping -q -c 1 -W 1 $SERVER >/dev/null; }
		wait_for 20 reachable
	}
	namespace_ends() {
		! inside rdma link show inner/1 >/dev/null 2>&1 || inside rdma link delete inner
		! rdma link show inner/1 >/dev/null 2>&1 || rdma link delete inner
		sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.$NETDEV.proxy_arp=0
		inner_ends
		# As long as there is a namespace the mode stays.
		wait_for 20 rdma system set netns shared
	}
	mount_inside() { inside mount -t nfs -o rdma,port=20049,vers=$1,sec=sys,nolock,retry=0 $SERVER:/export $MNT; }
EOF

namespace_begins() {
	defer client '[ ! -e /run/netns/inner ] || namespace_ends'
	client address="$1" 'namespace_begins $address'
	defer unmount_nfs
}

own_device() {
	server_dir /export
	namespace_begins shared
	client 'inside rdma link add inner type $TRANSPORT netdev inner'
	client vers="$1" 'mount_inside $vers'
	client <<-'EOF'
		grep -qx "netns: *$(stat -L -c %i /run/netns/inner)" /sys/kernel/debug/sunrpc/rpc_xprt/*/info ||
			fail "the transport is in another namespace"
		[[ $(rdma resource show qp link inner/1) = *"type RC state RTS"* ]] || fail "$(rdma resource show qp)"
	EOF
	work_begins
	client 'work_goes_on 30'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# The namespace's only interface goes away, and its device with it: programs hear of it, even on a hard
# mount, because the namespace may never have a network again.
dead_network() {
	server_dir /export
	namespace_begins shared
	client 'inside rdma link add inner type $TRANSPORT netdev inner'
	client vers="$1" 'mount_inside $vers'
	client <<-'EOF'
		grep -q "$MNT .*fatal_neterrors=ENETDOWN:ENETUNREACH" /proc/self/mounts || skip "NFS does not know that errors of the network can be fatal"
		dd if=/dev/zero of=$MNT/file bs=64k count=16 conv=fsync status=none
	EOF
	# Each attempt to connect fails one of these.
	LIMIT=100 client <<-'EOF'
		ip link delete outer
		for n in {1..16}; do
			LC_ALL=C timeout 90 stat $MNT/another$n >/run/$TEST.$n 2>&1 &
		done
		wait
		for n in {1..16}; do
			grep -q "Network is unreachable" /run/$TEST.$n ||
				fail "a program heard: $(cat /run/$TEST.$n)"
		done
		rm /run/$TEST.*
		umount -f $MNT || umount -l $MNT
		wait_for 20 module_unused
	EOF
	# Nobody has told the server, which would have the connection until nfsd finds it too old.
	server <<-'EOF'
		/lab/guest/server stop
		/lab/guest/server resume
	EOF
}

# New devices are in the first namespace, and those in software cannot move.
foreign_device() {
	namespace_begins exclusive
	client 'inside rdma link add inner type $TRANSPORT netdev inner'
	client vers="$1" <<-'EOF'
		! mount_inside $vers || fail 'a device was used that is in another namespace'
		wait_for 10 module_unused
		mount_nfs $vers
		umount $MNT
		wait_for 10 module_unused
	EOF
}

# What one namespace has learned of a server is not known in another.
own_knowledge() {
	need_client
	settings offered off
	server_dir /export
	client <<-'EOF'
		mount_nfs 4.2
		[ "$(our_stat version_fallbacks)" = 1 ] || fail "$(our_stat version_fallbacks) Calls were sent again"
		umount $MNT
		wait_for 10 module_unused
	EOF
	namespace_begins shared
	client 'inside rdma link add inner type $TRANSPORT netdev inner'
	for fallbacks in 1 0; do
		client fallbacks="$fallbacks" <<-'EOF'
			mount_inside 4.2
			[ $(our_stat version) = 1 ] || fail "it speaks Version $(our_stat version)"
			[ $(our_stat version_fallbacks) = $fallbacks ] || fail "$(our_stat version_fallbacks) Calls were sent again, not $fallbacks"
			umount $MNT
			wait_for 10 module_unused
		EOF
	done
}

for vers in 3 4.2; do
	test_case "v$vers: a device on the namespace's own interface" own_device $vers
	test_case "v$vers: a device that belongs to another namespace" foreign_device $vers
	test_case "v$vers: the network of the namespace goes away" dead_network $vers
done
test_case "what is known of a server" own_knowledge
run_cases
