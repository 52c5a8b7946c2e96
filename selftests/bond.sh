#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The address of either machine moves to another interface, as it does when a bond fails over, and back: the
# connection is made anew, and the program sees only a pause.
# virtual: moves the machines' addresses from one interface to another

. "$(dirname "$0")/lib/test.sh"

guest_add <<-'EOF'
	[ "$(hostname)" = server ] && own=$SERVER own6=$SERVER6 || own=$CLIENT own6=$CLIENT6
	addresses() {
		ip address replace $own/24 dev $1
		ip address replace $own6/64 dev $1 nodad
	}
	bond_begins() {
		modprobe -q bonding max_bonds=0 || true
		modprobe -q dummy numdummies=0 || true
		ip link add bond7 type bond mode active-backup fail_over_mac active miimon 100
		ip link add spare0 type dummy
		rdma_link_delete
		ip address flush dev $NETDEV
		ip link set $NETDEV down
		ip link set $NETDEV master bond7
		ip link set spare0 master bond7
		ip link set bond7 type bond primary $NETDEV
		ip link set bond7 up
		addresses bond7
		NETDEV=bond7 rdma_link_add
	}
	bond_ends() {
		rdma_link_delete
		[ ! -d /sys/class/net/bond7 ] || ip link delete bond7
		[ ! -d /sys/class/net/spare0 ] || ip link delete spare0
		ip link set $NETDEV up
		addresses $NETDEV
		rdma_link_add
	}
	active() { [ "$(cat /sys/class/net/bond7/bonding/active_slave)" = $1 ]; }
	reachable() { ping -q -c 1 -W 1 $1 >/dev/null; }
EOF

# The spare interface leads nowhere: for the connection manager the address has moved all the same.
bond_fails_over() {
	local connects
	need_link_down
	server_dir /export
	defer client bond_ends
	client <<-'EOF'
		bond_begins
		wait_for 20 active $NETDEV
		wait_for 20 reachable $SERVER
	EOF
	mount_nfs "$1"
	# A packet that finds the address gone may end the connection before the connection manager does.
	address_moves
	ended_by address_changed
	work_begins
	connects=$(client 'xprt_stat 3')
	address_moves
	client 'work_goes_on 55'
	[ "$(client 'xprt_stat 3')" -gt "$connects" ] || fail "there was no new connection"
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# To the spare interface and, as soon as the connection has ended, back.
address_moves() {
	client <<-'EOF'
		mark=$(log_mark)
		ip link set bond7 type bond active_slave spare0
		active spare0
		wait_for 20 xprt_unconnected
		log_has $mark "RDMA CM addr change for ndev bond7" || fail "the connection manager has not noticed"
		ip link set bond7 type bond active_slave $NETDEV
		wait_for 20 reachable $SERVER
	EOF
}

# A listener hears of it if it has this address alone, and listens anew.
server_fails_over() {
	need_link_down
	need_served
	server 'command -v nfsdctl >/dev/null' || skip "the server has no nfsdctl"
	server_dir /export
	defer server '/lab/guest/server stop && /lab/guest/server resume'
	defer server bond_ends
	server <<-'EOF'
		/lab/guest/server stop
		bond_begins
		wait_for 20 active $NETDEV
		wait_for 20 reachable $CLIENT
		nfsdctl listener "+rdma:$SERVER:20049"
		nfsdctl threads 4
	EOF
	mount_nfs_timeo "$1"
	work_begins
	server <<-'EOF'
		moved() { [ "$(listener_of moves $SERVER)" -gt 0 ]; }
		! moved || fail "it has moved already"
		mark=$(log_mark)
		ip link set bond7 type bond active_slave spare0
		active spare0
		log_has $mark "RDMA CM addr change for ndev bond7" || fail "the connection manager has not noticed"
		wait_for 20 moved
		ip link set bond7 type bond active_slave $NETDEV
	EOF
	client 'work_goes_on 60'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
	mount_nfs "$1"
	client 'ls $MNT >/dev/null && umount $MNT && wait_for 10 module_unused'
}

for vers in 3 4.2; do
	test_case "v$vers: the server's address moves within a bond" server_fails_over $vers
	test_case "v$vers: the address moves within a bond" bond_fails_over $vers
done
run_cases
