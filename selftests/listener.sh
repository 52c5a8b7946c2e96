#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Listeners of the server: at one address or all, of either family, at a port of the kernel's
# choice, and what becomes of them when the address moves or goes away.

. "$(dirname "$0")/lib/test.sh"

server 'command -v nfsdctl >/dev/null' || skip "the server has no nfsdctl"

guest_add <<-'EOF'
	# Only by netlink are there listeners at one address, which begin before the threads do:
	# listen ADDRESS...
	listen() {
		local address words=()
		for address; do words+=("+rdma:$address"); done
		nfsdctl listener "${words[@]}"
	}
	listeners() {
		rdma -d resource show cm_id | grep "state LISTEN .*comm \[rpcrdma\]" || true
	}
	# Whether one of this module listens at an address, be it in brackets:
	# is_listening ADDRESS:PORT.
	is_listening() { grep -qF "src-addr ${1//[][]/} " <<<"$(listeners)"; }
	no_longer() { ! "$@"; }
	moved() { [ "$(listener_of moves "$1")" -ge "$2" ]; }
EOF

# For the rest of the case the server listens nowhere but where the case says.
elsewhere() {
	defer server '/lab/guest/server stop && /lab/guest/server resume'
	server '/lab/guest/server stop'
}

# Mounts by that address and port for a moment: mount_at ADDRESS PORT.
mount_at() {
	local proto=rdma
	[[ $1 != *:* ]] || proto=rdma6
	defer unmount_nfs
	client proto="$proto" port="$2" address="$1" <<-'EOF'
		mount -t nfs -o proto=$proto,port=$port,vers=4.2,sec=sys "$address:/export" $MNT
		ls $MNT >/dev/null
		head -c 100000 /dev/urandom >$MNT/$TEST.data
		sync $MNT/$TEST.data
		rm $MNT/$TEST.data
		umount $MNT
		wait_for 10 module_unused
	EOF
}

by_netlink() {
	server '[ -n "$SERVER6" ]' || skip "LOCAL_V6 and REMOTE_V6 are not set"
	server '[ "$SERVER6" != "$SERVER" ]' || skip "LOCAL_V4 and REMOTE_V4 are not set"
	elsewhere
	server <<-'EOF'
		listen "$SERVER:20049" "[$SERVER6]:20049" "$SERVER:20050"
		nfsdctl threads 4
		nfsdctl listener >/run/$TEST.listeners
		cat /run/$TEST.listeners
		for address in "$SERVER:20049" "$SERVER:20050" "[$SERVER6]:20049"; do
			grep -qF "rdma:$address" /run/$TEST.listeners ||
				fail "netlink does not list $address"
		done
		rm /run/$TEST.listeners
		is_listening "$SERVER:20049" && is_listening "[$SERVER6]:20049" &&
			is_listening "$SERVER:20050" || fail "$(listeners)"
	EOF
	mount_at "$(server 'echo $SERVER')" 20049
	mount_at "$(server 'echo $SERVER')" 20050
	mount_at "[$(server 'echo $SERVER6')]" 20049
}

any_port() {
	local port
	elsewhere
	server <<-'EOF'
		listen "$AT_SERVER:0"
		nfsdctl threads 4
		nfsdctl listener
	EOF
	port=$(server 'sed -n "s/^rdma //p" /proc/fs/nfsd/portlist')
	printf 'the port is %s\n' "$port"
	[ "$port" -gt 0 ] || fail "that is no port"
	server port="$port" 'is_listening "$SERVER:$port" || fail "$(listeners)"'
	mount_at "$(server 'echo $AT_SERVER')" "$port"
}

# Nobody else can listen there, and what fails leaves nothing.
no_such_address() {
	elsewhere
	server <<-'EOF'
		wait_for 20 module_unused
		uses=$(module_uses)
		! listen "192.0.2.99:20049" || fail "it listens at an address of nobody"
		/lab/guest/server stop
		left() { [ $(module_uses) = $uses ]; }
		wait_for 10 left ||
			fail "the module had $uses users, and has $(module_uses)"
		[ -z "$(listeners)" ] || fail "$(listeners)"
	EOF
}

# The device goes away, and with it the address as far as RDMA is concerned; no thread of the
# service is needed for either. What is at all addresses follows by itself.
device_returns() {
	local threads=$1
	needs_machines "takes the server's RDMA device away"
	need_served
	elsewhere
	trace_begins server rdma_cma/cm_id_destroy
	defer server rdma_link_add
	server threads="$threads" <<-'EOF'
		listen "$SERVER:20049" "[$SERVER6]:20049"
		[ $threads = 0 ] || nfsdctl threads $threads
	EOF
	[ "$threads" != 0 ] || nobody_accepts
	server threads="$threads" <<-'EOF'
		mark=$(log_mark)
		timeout 20 rdma link delete $RDMA_LINK || fail 'the removal waits'
		wait_for 10 no_longer is_listening "$SERVER:20049"
		wait_for 10 log_has $mark "rpcrdma: $SERVER port 20049: cannot listen"
		# It goes on trying, and does not say so again.
		[ "$(listener_of moves $SERVER)" = 0 ]
		echo >$TRACING/trace
		tried() { [ $(grep -c ' cm_id_destroy: ' $TRACING/trace) -ge 3 ]; }
		wait_for 20 tried
		rdma_link_add
		wait_for 20 is_listening "$SERVER:20049"
		wait_for 20 is_listening "[$SERVER6]:20049"
		wait_for 10 moved $SERVER 1
		[ $(log_since $mark | grep -c "$SERVER port 20049: cannot listen") -le 1 ]
		[ $threads != 0 ] || nfsdctl threads 4
	EOF
	[ "$threads" != 0 ] || somebody_accepts
	mount_at "$(server 'echo $SERVER')" 20049
	mount_at "[$(server 'echo $SERVER6')]" 20049
}

# A client connects to a server that has no threads yet, and waits.
nobody_accepts() {
	defer unmount_nfs
	client_background waiting \
		'mount -t nfs -o rdma,port=20049,vers=4.2,sec=sys $SERVER:/export $MNT'
	server <<-'EOF'
		wait_for 20 sh -c 'rdma resource show cm_id | grep -q "state CONNECT "'
	EOF
}
# The server has threads.
somebody_accepts() {
	LIMIT=150 client_wait waiting
	client 'ls $MNT >/dev/null && umount $MNT && wait_for 10 module_unused'
}

# A listener can be closed while connects wait for it that nobody has accepted.
closed_while_connecting() {
	need_served
	elsewhere
	defer server 'module_loaded || insmod /lab/payload/server/rpcrdma.ko'
	server 'listen "$SERVER:20049"'
	nobody_accepts
	server <<-'EOF'
		/lab/guest/server stop
		wait_for 20 module_unused
		module_unload
		insmod /lab/payload/server/rpcrdma.ko
		listen "$SERVER:20049"
		nfsdctl threads 4
	EOF
	somebody_accepts
}

# One that waits for its address can be closed, and the module can go.
closed_without_device() {
	needs_machines "takes the server's RDMA device away"
	need_served
	elsewhere
	defer server 'rdma_link_add; module_loaded || insmod /lab/payload/server/rpcrdma.ko'
	server <<-'EOF'
		listen "$SERVER:20049"
		nfsdctl threads 1
		mark=$(log_mark)
		rdma link delete $RDMA_LINK
		wait_for 10 log_has $mark "cannot listen for clients"
		/lab/guest/server stop
		wait_for 10 module_unused
		rmmod rpcrdma
		insmod /lab/payload/server/rpcrdma.ko
		rdma_link_add
	EOF
}

# The address is taken away from the interface, which closes the connections at it, and comes back.
# The software device answers nobody until it is made anew.
address_goes_and_comes() {
	defer server 'ip address replace $SERVER/24 dev $NETDEV; rdma_link_delete; rdma_link_add'
	server <<-'EOF'
		# Be it that nfsd has heard of the address first, or the device.
		closed() { [ "$(listener_of connections)" = 0 ]; }
		no_longer closed
		ip address delete $SERVER/24 dev $NETDEV
		wait_for 20 closed
		ip address replace $SERVER/24 dev $NETDEV
		rdma_link_delete
		rdma_link_add
	EOF
}

address_returns() {
	needs_machines "takes the server's address away"
	need_served
	server_dir /export
	mount_nfs_timeo "$1"
	work_begins
	address_goes_and_comes
	client 'work_goes_on 50'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# The same with a connection on which nothing happens.
address_goes_idle() {
	needs_machines "takes the server's address away"
	need_served
	server_dir /export
	mount_nfs_timeo "$1"
	client 'ls $MNT >/dev/null'
	server '[ "$(listener_of connections)" = 1 ]'
	address_goes_and_comes
	LIMIT=60 client 'ls $MNT >/dev/null && umount $MNT && wait_for 10 module_unused'
}

test_case "by netlink, at addresses of both families and two ports" by_netlink
test_case "a port of the kernel's choice" any_port
test_case "addresses that cannot be had" no_such_address
for threads in 4 0; do
	test_case "the device goes and comes, with $threads threads" device_returns $threads
done
test_case "closed while the device is away" closed_without_device
test_case "closed while clients connect" closed_while_connecting
for vers in 3 4.2; do
	test_case "v$vers: the address goes and comes under I/O" address_returns $vers
done
test_case "v4.2: the address goes and comes while a connection is idle" address_goes_idle 4.2
run_cases
