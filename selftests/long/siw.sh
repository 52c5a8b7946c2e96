#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The main tests over the other kind of RDMA device: iWARP instead of RoCE, or the other way round.
# virtual: makes another RDMA device of the interface

. "$(dirname "$0")/../lib/requester.sh"

case ${TRANSPORT:-rxe} in
rxe) module=siw other=siw ;;
*) module=rdma_rxe other=rxe ;;
esac

guest_add <<-'EOF'
	# What the server has posted: posted KIND.
	posted() { awk -v kind="$1" '$1 == kind { print $2 }' /sys/module/rpcrdma_test_limits/parameters/work; }
EOF

# For the rest of the case both machines have the other device.
other_device() {
	local machine
	for machine in client server; do
		defer "$machine" 'rdma_link_delete; rdma_link_add'
		"$machine" module="$module" other="$other" <<-'EOF' || skip "the kernel has no $module"
			modprobe -q $module
			rdma_link_delete
			TRANSPORT=$other rdma_link_add
		EOF
	done
	# A server by siw misses what arrives before it has quite accepted, until something follows.
	netem_begins client
	netem client 'delay 20ms'
}

# A Reply chunk has one segment on a device that registers memory with gaps, if the Reply is not too
# long for that. Calls have to be inline: siw's RDMA Reads cannot start anywhere in a page.
# gaps PARAMETERS 'COMPARISON OF SEGMENTS AND CALLS'
gaps() {
	other_device
	is_rust || skip "the kernel's own module does not count segments"
	limit_devices sg_gaps=1 "$1"
	server_dir /export
	server <<-'EOF' || skip "the export has no user attributes of 16 KiB"
		cd /export/$TEST
		for i in {1..2000}; do : >"an entry whose name has some length, number $i"; done
		setfattr -n user.down -v "$(attribute_value)" .
	EOF
	mount_nfs 4.2
	client <<-'EOF' >"$RUN/$TEST.client"
		{
			ls -U $MNT/$TEST | sort
			getfattr --only-values --absolute-names -n user.down $MNT/$TEST
		} | sha256sum
	EOF
	server <<-'EOF' | diff - "$RUN/$TEST.client"
		{
			ls /export/$TEST | sort
			getfattr --only-values --absolute-names -n user.down /export/$TEST
		} | sha256sum
	EOF
	client compared="$2" <<-'EOF'
		replies=$(our_stat reply_chunk_replies) calls=$(our_stat reply_chunk_calls) segments=$(our_stat reply_segments)
		echo "$segments segments of $calls Reply chunks, $replies of them used, by $(our_stat region_type)"
		[ $replies -ge 3 ]
		test $segments $compared $calls
		umount $MNT && wait_for 10 module_unused
	EOF
}

# Runs another test's cases over it: other NAME [REGEX].
other() {
	other_device
	TRANSPORT=$other other_test "$(dirname "$0")/../$1.sh" "${2:-}"
}

# Data by chunks both ways, and remote invalidation.
chunks() {
	other_device
	server_dir /export
	mount_nfs "$1"
	client <<-'EOF' | tee "$RUN/$TEST.client"
		head -c 3M /dev/urandom >/run/$TEST.data
		dd if=/run/$TEST.data of=$MNT/$TEST/file bs=1M oflag=direct status=none
		drop_caches
		dd if=$MNT/$TEST/file bs=1M iflag=direct status=none | cmp - /run/$TEST.data
		[ $(xprt_stat 11) -ge 3 ]
		[ $(xprt_stat 12) -ge 3 ]
		if [ -f /lab/payload/rpcrdma.ko ]; then
			echo "remote invalidations: $(our_stat remote_invalidations), local: $(our_stat local_invalidations)"
			[ $(our_stat remote_invalidations) -ge 6 ]
		fi
		sha256sum </run/$TEST.data
		rm /run/$TEST.data
	EOF
	server 'sha256sum </export/$TEST/file' | diff - <(tail -n 1 "$RUN/$TEST.client")
	client 'umount $MNT && wait_for 10 module_unused'
}

# Each segment that the server reads takes one of the memory regions that a connection has there, so that a Call has
# to wait for those of others before a thread takes it.
few_regions() {
	need_served
	other_device
	limit_devices max_fast_reg_pages=19
	# So many, and in no hurry, that they could have all regions among them, none as many as it needs.
	MACHINE=server limit_devices slow_maps=2
	defer server 'echo 4 >/proc/fs/nfsd/threads'
	server 'echo 16 >/proc/fs/nfsd/threads'
	server_dir /export
	mount_nfs "$1"
	LIMIT=300 client <<-'EOF'
		fio --name=data --directory=$MNT/$TEST --size=1M --bs=512K --numjobs=12 --rw=write --direct=1 --ioengine=psync --thread \
			--loops=3 --verify=crc32c --do_verify=0 --output=/run/$TEST.fio || fail "$(cat /run/$TEST.fio)"
		drop_caches
		fio --name=data --directory=$MNT/$TEST --size=1M --bs=512K --numjobs=12 --rw=read --direct=1 --ioengine=psync --thread \
			--verify=crc32c --verify_fatal=1 --output=/run/$TEST.fio || fail "$(cat /run/$TEST.fio)"
		rm /run/$TEST.fio
	EOF
	[ "$(client 'xprt_stat 3')" = 1 ] || fail "the connection has ended"
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end
	limits_end server
}

# One of the server's regions of so many takes no pages: the thread tries again.
reads_fail() {
	need_served
	other_device
	MACHINE=server limit_devices failing_maps=10
	server_dir /export
	mount_nfs "$1"
	WORK_SIZE=100K work_begins
	server <<-'EOF'
		some() { [ "$(posted failed_maps)" -ge 5 ]; }
		wait_for 60 some
	EOF
	work_ends
	[ "$(client 'xprt_stat 3')" = 1 ] || fail "the connection has ended"
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# The client hears nothing of an RDMA Read, and says no more, so that none completes. NFS waits longer than it takes
# the server to end the connection.
reads_hang() {
	need_served
	[ $other = siw ] || skip "RDMA Reads of other devices end by themselves"
	other_device
	netem_begins server
	server_anew
	server_dir /export
	mount_nfs "$1" timeo=6000
	tasks_wait client 600
	client 'head -c 64K /dev/urandom >/run/$TEST.data; : >$MNT/$TEST/file; rm -f /run/$TEST.ready /run/$TEST.go'
	client_background writes <<-'EOF'
		exec 3>$MNT/$TEST/file
		: >/run/$TEST.ready
		wait_for 60 test -e /run/$TEST.go
		dd if=/run/$TEST.data bs=64K conv=fdatasync status=none >&3
	EOF
	client 'wait_for 60 test -e /run/$TEST.ready'
	netem server 'loss 100%'
	client ': >/run/$TEST.go'
	server <<-'EOF'
		is_told() { [ $(listener_of ended_timed_out) = 1 ]; }
		wait_for 60 is_told ||
			fail "the last connections ended for $(cat /sys/kernel/debug/rpcrdma/listener-*/listener)"
	EOF
	netem server
	LIMIT=700 client_wait writes
	server 'sha256sum </export/$TEST/file' | diff - <(client 'sha256sum </run/$TEST.data')
	client <<-'EOF'
		umount $MNT && wait_for 10 module_unused
		rm /run/$TEST.*
	EOF
}

# Nothing that the server sends arrives, so that chains wait for room on its send queue: chains_wait VERS COMMAND...,
# which ends the connection meanwhile. No Receives are missing, which would end it over iWARP.
chains_wait() {
	need_served
	other_device
	# Fewer Replies fill it than Calls are under way.
	limit_server max_qp_wr=400 max_send_sge=1
	netem_begins server
	server_dir /export
	mount_nfs "$1" timeo=6000
	tasks_wait client 600
	LIMIT=200 client 'data_file 32M 1M'
	defer client 'wait_for 200 test -f /run/job.load.status'
	# It has that many Calls under way at any time.
	client_background load <<-'EOF'
		read_data --numjobs=32 --thread --size=1M --offset_increment=1M --bs=1M --ioengine=psync \
			--time_based --runtime=60
	EOF
	server <<-'EOF'
		are_read() { [ "$(stat_of write_bytes)" -gt $((32 << 20)) ]; }
		wait_for 40 are_read
	EOF
	netem server 'loss 100%'
	server 'wait_for 20 waiting_are 1'
	"${@:2}"
	netem server
	LIMIT=300 client_wait load
	client 'umount $MNT && wait_for 10 module_unused'
	server 'clients_gone 20'
	limits_end server
}
other_device_returns() {
	server other="$other" <<-'EOF'
		timeout 30 rdma link delete $RDMA_LINK || fail 'the removal waits'
		TRANSPORT=$other rdma_link_add
	EOF
}

# The server's device takes so few pages at a time that each RDMA Read becomes many, and the largest Call wants
# more regions than a connection has on other devices.
short_lists() {
	other_device
	MACHINE=server limit_devices "max_fast_reg_pages=$2" count_work=1
	server_dir /export
	mount_nfs "$1"
	LIMIT=300 client verified_data
	server pages="$2" <<-'EOF'
		printf "%d regions for %d RDMA Reads\n" $(posted registrations) $(posted reads)
		# So much verified_data has written by large WRITEs.
		least=$((8388608 / (pages * $(getconf PAGESIZE))))
		[ $(posted registrations) -ge $least ] || fail "with $least regions they are larger than that"
	EOF
	[ "$(client 'xprt_stat 3')" = 1 ] || fail "the connection has ended"
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# The sink of each RDMA Read is registered, all of it at once, and nothing else is. Each RDMA Write has as many pages
# as the device takes.
registrations() {
	local size reads writes pages elements=4
	other_device
	MACHINE=server limit_devices count_work=1 max_send_sge=$elements
	server_dir /export
	mount_nfs "$1"
	for size in 4K 64K 1M; do
		calls "WRITE of $size" size="$size" 'dd if=/dev/zero of=$MNT/$TEST/file bs=$size count=16 oflag=direct status=none'
		# The client has one segment for all of it.
		! is_rust || [ "$reads" = 16 ] || fail "that should be 16 RDMA Reads"
		calls "READ of $size" size="$size" 'dd if=$MNT/$TEST/file of=/dev/null bs=$size count=16 iflag=direct status=none'
		[ "$reads" = 0 ] || fail "that should be no RDMA Read"
		pages=$(client size="$size" 'echo $(($(numfmt --from=iec $size) / $(getconf PAGESIZE)))')
		[ "$writes" -le $((16 * ((pages + elements - 1) / elements))) ] || fail "they could have $elements pages each"
	done
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}
# What the server posts for what the client does, given as to client: calls WHAT ...
calls() {
	local registrations
	registrations=$(server 'posted registrations') reads=$(server 'posted reads') writes=$(server 'posted writes')
	client "${@:2}"
	registrations=$(($(server 'posted registrations') - registrations))
	reads=$(($(server 'posted reads') - reads)) writes=$(($(server 'posted writes') - writes))
	printf '16 times %s: %d regions, %d RDMA Reads, %d RDMA Writes\n' "$1" $registrations $reads $writes
	[ $registrations = $reads ] || fail "each RDMA Read should have one"
}

# So many connects wait for the server, which the connection manager counts on iWARP alone.
backlog() {
	need_served
	[ $other = siw ] || skip "no device but iWARP's is told"
	other_device
	MACHINE=server limit_devices count_work=1
	server <<-'EOF'
		/lab/guest/server stop
		/lab/guest/server resume
		printf "%d connects may wait\n" $(posted backlog)
		[ $(posted backlog) = 64 ]
	EOF
	limits_end server
}

test_case "v4.2: chunks" chunks 4.2
test_case "v3: more segments than the server has regions" few_regions 3
test_case "v3: a region takes no pages, now and then" reads_fail 3
test_case "v3: RDMA Reads hang" reads_hang 3
test_case "v3: nfsd is stopped while chains wait for room" chains_wait 3 server_goes_and_comes
test_case "v3: the device is removed while chains wait for room" chains_wait 3 other_device_returns
for pages in 8 1; do
	test_case "v3: the server's regions have $pages page(s)" short_lists 3 $pages
done
test_case "v3: what the server registers" registrations 3
test_case "connects that may wait" backlog
test_case "v4.2: Reply chunks with gaps" gaps '' -eq
test_case "v4.2: Reply chunks too long for it" gaps max_fast_reg_pages=19 -gt
test_case "mount.sh" other mount
test_case "badinput.sh" other badinput 'nobody (listens|has)'
test_case "io.sh" other io 'v3, direct|v4.2, buffered'
test_case "forms.sh" other forms
test_case "grants.sh" other grants "grants rise"
test_case "backchannel.sh" other backchannel
run_cases
