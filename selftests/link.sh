#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Changes of the network below the RDMA device: a link goes down and comes up, the server gets
# another Ethernet address.
# virtual: takes the machines' interfaces down

. "$(dirname "$0")/lib/test.sh"

# Software RDMA devices send nothing any more after their link was down, so they are made anew.
down_and_up() {
	local machine=$1
	need_link_down
	server_dir /export
	mount_nfs_timeo "$2"
	work_begins
	# Their order makes IPv6 addresses outlast it.
	"$machine" 'sysctl -qw net.ipv6.conf.$NETDEV.keep_addr_on_down=1'
	defer "$machine" 'sysctl -qw net.ipv6.conf.$NETDEV.keep_addr_on_down=0'
	defer "$machine" 'rdma_link_delete; ip link set $NETDEV up; rdma_link_add'
	"$machine" 'ip link set $NETDEV down'
	client 'wait_for 50 xprt_unconnected'
	"$machine" <<-'EOF'
		ip link set $NETDEV up
		rdma_link_delete
		rdma_link_add
	EOF
	client 'work_goes_on 55'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# The server does not answer for its address for a while, of which established connections hear as if it could not
# be reached any more. Nothing is sent meanwhile.
neighbour_silent() {
	mount_nfs "$1"
	client 'ls $MNT >/dev/null'
	# It answers for none of its addresses, and asks for none, by which the client would learn its own.
	defer server 'ip neigh del $CLIENT dev $NETDEV'
	defer server 'sysctl -qw net.ipv4.conf.all.arp_ignore=0'
	server <<-'EOF'
		ip neigh replace $CLIENT dev $NETDEV nud permanent lladdr $(ip neigh show $CLIENT dev $NETDEV | sed "s/.*lladdr \([^ ]*\).*/\1/")
		sysctl -qw net.ipv4.conf.all.arp_ignore=8
	EOF
	client <<-'EOF'
		ip neigh flush to $SERVER dev $NETDEV
		! ping -c 1 -W 10 $SERVER || fail "the server answers"
	EOF
	server 'sysctl -qw net.ipv4.conf.all.arp_ignore=0'
	client <<-'EOF'
		ls $MNT >/dev/null
		[ $(xprt_stat 3) = 1 ] || fail "there were $(xprt_stat 3) connections, the last ended: $(our_stat last_end)"
		umount $MNT && wait_for 10 module_unused
	EOF
}

# Established connections hear of it as if the peer could not be reached any more. A device that sends to the old
# address loses the connection; software devices leave the address to the network.
peer_moves() {
	local connects
	server_dir /export
	mount_nfs "$1"
	work_begins
	connects=$(client 'xprt_stat 3')
	server 'sysctl -qw net.ipv4.conf.$NETDEV.arp_notify=1'
	defer server 'sysctl -qw net.ipv4.conf.$NETDEV.arp_notify=0'
	server <<-'EOF' || skip "the interface keeps its address while it is up"
		cat /sys/class/net/$NETDEV/address >/run/$TEST.address
		ip link set $NETDEV address 52:54:00:00:00:71
	EOF
	defer server 'ip link set $NETDEV address $(cat /run/$TEST.address) && rm /run/$TEST.address'
	client <<-'EOF'
		neighbour() { grep -q 52:54:00:00:00:71 <<<"$(ip neigh show $SERVER dev $NETDEV)"; }
		wait_for 20 neighbour
	EOF
	client 'work_goes_on 50'
	printf 'connects: %d before, %d after\n' "$connects" "$(client 'xprt_stat 3')"
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

for machine in client server; do
	test_case "v4.2: the ${machine}'s link goes down and up" down_and_up $machine 4.2
done
test_case "v4.2: the server does not answer for its address for a while" neighbour_silent 4.2
for vers in 3 4.2; do
	test_case "v$vers: the server's Ethernet address changes" peer_moves $vers
done
run_cases
