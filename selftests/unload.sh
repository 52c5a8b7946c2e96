#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The server's module: it cannot go while there are listeners or connections, and can once the service has
# ended, whatever its clients were about. They come back to the next one.
# virtual: unloads the server's module under load

. "$(dirname "$0")/lib/test.sh"

need_served

ROUNDS=${ROUNDS:-4}
guest_add <<-'EOF'
	server_load() { insmod /lab/payload/server/rpcrdma.ko; }
	refused() { ! rmmod rpcrdma 2>/run/$TEST.err && grep -q "in use" /run/$TEST.err; }
	# Nothing of the module is left, be it on the device, in debugfs or among the settings.
	server_unload() {
		wait_for 20 module_unused
		module_unload
		absent /sys/kernel/debug/rpcrdma /proc/sys/sunrpc/svc_rdma
		! grep -q "^rdma " /proc/fs/nfsd/portlist 2>/dev/null || fail "the module has gone, and has left a listener"
	}
EOF

# Puts a server right that is without its module, or its threads.
server_again() {
	server <<-'EOF'
		module_loaded || server_load
		[ "$(cat /proc/fs/nfsd/threads)" != 0 ] || /lab/guest/server resume
	EOF
}

refuse_unload() {
	defer server_again
	server 'refused || fail "a listener does not keep the module"'
	mount_nfs 3
	server 'refused || fail "neither a listener nor a connection keeps the module"'
	client 'ls $MNT >/dev/null && umount $MNT && wait_for 10 module_unused'
	server <<-'EOF'
		clients_gone 20
		before=$(module_uses)
		# Each has the port to itself.
		! echo "rdma 20049" 2>/dev/null >/proc/fs/nfsd/portlist || fail "there are two listeners at one port"
		[ $(module_uses) = $before ] || fail "the module had $before users, and has $(module_uses) after a listener that failed"
		/lab/guest/server stop
		server_unload
		server_load
		/lab/guest/server resume
	EOF
	mount_nfs 3
	client 'ls $MNT >/dev/null && umount $MNT'
}

# ROUNDS times the service ends in the middle of I/O, the module goes, and comes back.
under_load() {
	local round connects
	defer server_again
	server_dir /export
	mount_nfs_timeo "$1"
	work_begins
	connects=$(client 'xprt_stat 3')
	for ((round = 0; round < $2; round++)); do
		server <<-'EOF'
			/lab/guest/server stop
			server_unload
			server_load
			/lab/guest/server resume
		EOF
		client 'work_goes_on 60'
	done
	printf 'connects: %d before, %d after\n' "$connects" "$(client 'xprt_stat 3')"
	[ "$(client 'xprt_stat 3')" -ge $((connects + $2)) ] || fail "there are fewer new connections than modules"
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# Mounts are tried all the while, also in the moment in which the module goes.
while_connecting() {
	local round
	defer server_again
	client 'rm -f /run/$TEST.*'
	client_background mounts <<-'EOF'
		while [ ! -f /run/$TEST.stop ]; do
			! mount -t nfs -o rdma,port=20049,vers=3,sec=sys,nolock,soft,timeo=10,retrans=1,retry=0 $SERVER:/export $MNT 2>/dev/null ||
				umount $MNT
			echo >>/run/$TEST.tries
		done
	EOF
	defer client 'touch /run/$TEST.stop && wait_for 50 test -f /run/job.mounts.status; rm -f /run/$TEST.*'
	for ((round = 0; round < $1; round++)); do
		client <<-'EOF'
			tries() { cat /run/$TEST.tries 2>/dev/null | wc -l; }
			more() { [ $(tries) -ge $1 ]; }
			wait_for 60 more $(($(tries) + 3))
		EOF
		server <<-'EOF'
			/lab/guest/server stop
			server_unload
			server_load
			/lab/guest/server resume
		EOF
	done
	client 'touch /run/$TEST.stop'
	client_wait mounts
	mount_nfs 3
	client 'ls $MNT >/dev/null && umount $MNT'
}

test_case "unload is refused as long as there is a listener" refuse_unload
test_case "v4.2: the module goes and comes under I/O" under_load 4.2 1
test_case "v3: the same $ROUNDS times" under_load 3 "$ROUNDS"
test_case "others try to mount meanwhile, $ROUNDS times" while_connecting "$ROUNDS"
run_cases
