#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the handshake tells the server of how many RDMA Reads may be under way. Calls that come before it is over are
# answered.
# virtual: limits what the devices can do

. "$(dirname "$0")/lib/test.sh"

need_served

# A client from whose memory nothing can be read.
# Proves: V1-022.
no_reads() {
	local mark
	is_rust || skip "the kernel's own client takes no notice of this limit"
	server_anew
	mark=$(server <<-'EOF'
		wait_for 20 sh -c "! rdma resource show cm_id | grep -q CONNECT"
		rdma_resources >/run/$TEST.resources
		log_mark
	EOF
	)
	limit_devices max_qp_rd_atom=0
	client <<-'EOF'
		! mount -t nfs -o rdma,port=20049,vers=3,sec=sys,nolock,soft,retry=0,timeo=50,retrans=1 $SERVER:/export $MNT || fail 'it mounts'
		wait_for 40 module_unused
	EOF
	limits_end
	not_accepted "$mark" 'its device, or the device here, allows no RDMA Reads' ENXIO 6
	server <<-'EOF'
		wait_for 20 rdma_resources_are "$(cat /run/$TEST.resources)" || fail "the device had $(cat /run/$TEST.resources) and has $(rdma_resources)"
		rm /run/$TEST.resources
	EOF
	mount_nfs 3
	client 'ls $MNT >/dev/null'
	server <<-'EOF'
		printf "RDMA Reads under way at most: %d\n" $(stat_of read_depth)
		[ "$(stat_of read_depth)" -gt 0 ]
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
}

# A client from whose memory one RDMA Read at a time may read: its Calls have several segments all the same.
# Proves: V1-022.
one_read() {
	is_rust || skip "the kernel's own client takes no notice of this limit"
	server_dir /export
	limit_devices max_qp_rd_atom=1
	mount_nfs "$1"
	server '[ "$(stat_of read_depth)" = 1 ] || fail "$(stat_of read_depth) may be under way"'
	LIMIT=200 client verified_data
	[ "$(client 'xprt_stat 3')" = 1 ] || fail "the connection has ended"
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end
}

# A device of which a queue pair has no more of its own under way.
few_own_reads() {
	server_dir /export
	limit_server max_qp_init_rd_atom=2
	mount_nfs "$1"
	server '[ "$(stat_of read_depth)" = 2 ] || fail "$(stat_of read_depth) may be under way"'
	LIMIT=200 client verified_data
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# The administrator wants no more to be under way.
few_reads_wanted() {
	server_dir /export
	server_set max_outbound_read_requests 3
	mount_nfs "$1"
	server '[ "$(stat_of read_depth)" = 3 ] || fail "$(stat_of read_depth) may be under way"'
	LIMIT=200 client verified_data
	client 'umount $MNT && wait_for 10 module_unused'
}

# What tells this end that the handshake is over is one datagram, which may be lost or late: what the client sends
# before it is answered.
slow_handshake() {
	server_dir /export
	MACHINE=server delay_events established=600000
	mount_nfs "$1"
	server 'is_late() { [ "$(delayed)" = 1 ]; }; wait_for 20 is_late'
	client ': >$MNT/$TEST/file && drop_caches && [ "$(ls $MNT/$TEST)" = file ]'
	server '[ "$(delayed)" = 1 ] || fail "the handshake was over"'
	delays_end server
	[ "$(client 'xprt_stat 3')" = 1 ] || ! is_rust || fail "the first connection was lost"
	client 'ls $MNT >/dev/null && umount $MNT && wait_for 10 module_unused'
}

test_case "v3: a client that lets nobody read" no_reads
for vers in 3 4.2; do
	test_case "v$vers: a client that lets one RDMA Read at a time be under way" one_read $vers
done
test_case "v4.2: a device that has two RDMA Reads under way at a time" few_own_reads 4.2
test_case "v4.2: three RDMA Reads at a time are wanted" few_reads_wanted 4.2
for vers in 3 4.2; do
	test_case "v$vers: Calls are answered before the end of the handshake is known" slow_handshake $vers
done
run_cases
