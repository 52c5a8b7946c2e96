#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Connections to a responder that is of no use: they end, carry nothing, are refused, or come with
# strange private data. Calls and mounts end in time, with an error, or on the next connection.
# virtual: has rpcrdma-peer listen at an address of the server

. "$(dirname "$0")/lib/peer.sh"

TIMEOUT=$((2000 * ${SLOW:-1}))

# Proves: V1-142.
disconnects() {
	calls_end \
		'disconnects-at-once | calls=null' \
		'disconnects-for-calls | calls=null,read,write,list,long,exchange' \
		'disconnects-behind-replies | calls=null,read,write,list,long,exchange'
}

timeouts() {
	local all=null+,read+,write+,list+,long+,exchange+
	calls_end "never-answers | calls=null,timeout=$TIMEOUT,$all,timeout=60000"
	# The Call and the last one: -110 is ETIMEDOUT.
	calls_end_so never-receives "calls=null timeout_ms=$TIMEOUT" '-110*2'
	calls_end_so never-receives-but-waits "calls=null timeout_ms=$TIMEOUT" '-110*2'
}

# The ping of a client that is made: ECONNREFUSED, and EIO.
pings() {
	calls_end_so rejects ping=1 -111
	calls_end_so errs ping=1 -5
}

# A Call that times out ends its connection. What sunrpc makes of it depends on whether it still
# finds a connection: EIO if so, else ETIMEDOUT. Here it looks when there is none any more.
ping_times_out() {
	delay_events timed_out=600000
	MEANWHILE=look_without_connection calls_end_so never-answers \
		"calls=null,timeout=$TIMEOUT,ping,timeout=60000" '-110 0*2'
}
look_without_connection() {
	client <<-'EOF'
		timed_out() { [ "$(delayed)" = 1 ]; }
		not_connected() {
			local state
			state=$(cat /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/xprt_state)
			! grep CONNECTED <<<"$state"
		}
		wait_for 60 timed_out
		wait_for 10 not_connected
	EOF
	delays_end
}

# Proves: V1-025, V1-159, PD-001, PD-003, PD-007, PD-008, PD-009, PD-030, PD-031, SEC-016.
private_data() {
	local rows
	rows=$(grep -c -P '^\S+\tprivdata\t' "$(dirname "$0")/vectors/vectors.tsv")
	calls_end \
		"private-data | calls=long,list,read size=2000 sessions=$((rows + 1))" \
		'private-garbage | calls=long,list,read size=2000 sessions=58'
}

# mount_fails SCENARIO VERS PATTERN: the peer answers a mount, which mount.nfs says so.
mount_fails() {
	peer_start "$1"
	client vers="$2" said="$3" <<-'EOF'
		resources=$(rdma_resources)
		rc=0
		start=$SECONDS
		timeout 50 mount -t nfs -o rdma,port=20050,vers=$vers,sec=sys,retry=0,soft,timeo=20,retrans=1 $SERVER:/export $MNT 2>/run/$TEST.err || rc=$?
		cat /run/$TEST.err
		printf 'status %d after about %d seconds\n' $rc $((SECONDS - start))
		[ $rc != 0 ] || fail 'the mount went well'
		[ $rc != 124 ] || fail 'the mount did not give up'
		grep -qiE "$said" /run/$TEST.err || fail 'this is not what mount.nfs should say'
		rm /run/$TEST.err
		wait_for 40 module_unused
		printf 'and %d\n' $((SECONDS - start))
		wait_for 10 rdma_resources_are "$resources" || fail "the device had $resources and has $(rdma_resources)"
	EOF
	peer_stop
}

mounts() {
	defer unmount_nfs
	# That is what mount.nfs makes of EIO.
	local eio='mount system call failed'
	mount_fails rejects 4.2 'connection refused'
	# On a slow machine it is the connect that takes too long.
	mount_fails mute 4.2 "$eio|timed out"
	mount_fails errs 4.2 "$eio"
	mount_fails garbles 4.2 "$eio"
	mount_fails hangs-up 4.2 "$eio|timed out|not connected"
	mount_fails errs-after-ping 4.2 "$eio"
	mount_fails errs 3 "$eio"
	mount_nfs 4.2
	client 'ls $MNT >/dev/null && umount $MNT'
}

test_case "connections that end" disconnects
test_case "no answer, and no Receive" timeouts
test_case "the ping of a new client" pings
test_case "a ping that is not answered" ping_times_out
test_case "private data" private_data
test_case "mounts" mounts
run_cases
