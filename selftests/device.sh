#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A device that fails now and then, and one whose memory regions are small.
# virtual: has the RDMA device fail

. "$(dirname "$0")/lib/test.sh"

# One Send of twenty-five cannot be posted, while the registrations before it are with the device: the
# connection has to end, and the program sees only a pause.
sends_fail() {
	server_dir /export
	limit_devices failing_sends=25
	mount_nfs "$1"
	work_begins
	work_outlasts_three
	ended_by post_failed
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end
}

# A Call whose memory cannot be registered fails, and gives its send buffer and its regions back,
# more often than there are buffers.
# Proves: V1-139.
maps_fail() {
	server_dir /export
	server <<-'EOF'
		head -c 64K /dev/urandom >/run/$TEST.block
		cat $(yes /run/$TEST.block | head -n 400) >/export/$TEST/file
		rm /run/$TEST.block
	EOF
	limit_devices failing_maps=2
	mount_nfs 3
	# All blocks are the same, and dd leaves out those that it cannot read.
	client sum="$(server 'head -c 12800K /export/$TEST/file | sha256sum')" <<-'EOF'
		dd if=$MNT/$TEST/file of=/run/$TEST.read bs=64K iflag=direct conv=noerror 2>/run/$TEST.err || true
		failed=$(grep -c 'Input/output error$' /run/$TEST.err || true)
		printf '%d of 400 READs failed\n' $failed
		[ $failed = 200 ]
		[ "$(sha256sum </run/$TEST.read)" = "$sum" ] || fail 'other data was read'
		rm /run/$TEST.*
		[ $(xprt_stat 3) = 1 ] || fail 'the connection has ended'
		# Of the Calls that wait for a place in the queue of Sends.
		[ $(xprt_stat 26) = 0 ]
	EOF
	if is_rust; then
		client <<-'EOF'
			[ $(our_stat send_buffers) -lt 200 ] || fail "there are $(our_stat send_buffers) buffers"
			back() { [ $(our_stat regions_idle) = $(our_stat regions_allocated) ]; }
			wait_for 10 back
		EOF
	fi
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end
}

# Has the connection end while the server owes a READ, whose region is then the first that is destroyed; returns
# what became of the READ.
cut_read() {
	local status=0
	server 'head -c 64K /dev/urandom >/export/$TEST/file'
	netem_begins server
	client_background read <<-'EOF'
		exec 3<$MNT/$TEST/file
		touch /run/$TEST.open
		wait_for 20 test -e /run/$TEST.cut
		dd of=/run/$TEST.read bs=64K count=1 iflag=direct status=none <&3
	EOF
	client 'wait_for 20 test -e /run/$TEST.open'
	netem server 'loss 100%'
	client <<-'EOF'
		before=$(xprt_stat 12)
		asked() { [ $(xprt_stat 12) -gt $before ]; }
		touch /run/$TEST.cut
		wait_for 20 asked
		break_connections
	EOF
	netem server
	LIMIT=60 client_wait read || status=$?
	client 'rm /run/$TEST.open /run/$TEST.cut'
	return $status
}

# The file can be read, by the second connection.
reads_on() {
	[ "$(client 'sha256sum <$MNT/$TEST/file')" = "$(server 'sha256sum </export/$TEST/file')" ] || fail "other data was read"
	[ "$(client 'xprt_stat 3')" = 2 ] || fail "the mount has had $(client 'xprt_stat 3') connections"
	client 'umount $MNT && wait_for 10 module_unused'
}

# The device takes some time to destroy a region.
destroy_is_late() {
	server_dir /export
	limit_devices failing_destroys=3
	mount_nfs_timeo 3
	cut_read
	client 'sha256sum </run/$TEST.read; rm /run/$TEST.read'
	client '[ $(sed -n "s/^failed_destroys //p" /sys/module/rpcrdma_test_limits/parameters/work) = 3 ]'
	reads_on
	limits_end
}

# The device can never be kept from writing to the memory of the READ, which fails, and has one line in the log: lost
# PARAMETER REGEX.
lost() {
	local mark
	is_rust || skip "the kernel's own client gives the memory back"
	server_dir /export
	limit_devices "$1"
	mount_nfs_timeo 3
	mark=$(client log_mark)
	! cut_read || fail "the READ has succeeded"
	client mark="$mark" why="$2" <<-'EOF'
		rm /run/$TEST.read
		grep 'Input/output error' /run/job.read.out
		log_has $mark "rpcrdma: device [^ ]* $why \(.*\): reset it\. Memory it may reach is lost$"
		[ $(log_since $mark | grep -c 'is lost$') = 1 ]
	EOF
	reads_on
	limits_end
}

# An attempt that fails before it has asked the server flushes what it has posted. That must not close anything.
attempts_fail() {
	is_rust || skip "the kernel's own module looks at its state in another way"
	trace_begins client sunrpc/xprt_disconnect_force rpcrdma/xprtrdma_connect
	limit_devices failing_receives=1
	client vers="$1" <<-'EOF'
		! timeout -s KILL $((8 * SLOW)) mount -t nfs -o proto=rdma$SIX,port=20049,vers=$vers $AT_SERVER:/export $MNT || fail 'the mount went well'
		wait_for 10 module_unused
		times() { grep -c " $1:" $TRACING/trace || true; }
		printf '%d attempts, %d times the transport was to be closed\n' $(times xprtrdma_connect) $(times xprt_disconnect_force)
		[ $(times xprtrdma_connect) -ge 3 ]
		[ $(times xprt_disconnect_force) = 0 ]
	EOF
	limits_end
}

# With the smallest regions that a mebibyte can have, of this many pages, no list has more segments
# than 16, nor a segment more pages.
PAGES=19
segments() {
	server_dir /export
	limit_devices max_fast_reg_pages=$PAGES
	mount_nfs 3
	trace_begins client rpcrdma/xprtrdma_chunk_read rpcrdma/xprtrdma_chunk_write rpcrdma/xprtrdma_chunk_reply
	client PAGES="$PAGES" <<-'EOF'
		head -c 4M /dev/urandom >/run/$TEST.data
		dd if=/run/$TEST.data of=$MNT/$TEST/file bs=1M oflag=direct status=none
		dd if=$MNT/$TEST/file bs=1M iflag=direct status=none | cmp - /run/$TEST.data
		# Through the cache, and from the middle of a page on.
		for n in 1000 300000; do
			dd if=/run/$TEST.data of=$MNT/$TEST/file bs=$n seek=1 count=9 conv=notrunc,fsync status=none
			dd if=/run/$TEST.data of=/run/$TEST.copy bs=$n count=9 status=none
			drop_caches
			dd if=$MNT/$TEST/file bs=$n skip=1 count=9 status=none | cmp - /run/$TEST.copy
		done
		rm /run/$TEST.*
		awk -v bytes=$((PAGES * $(getconf PAGESIZE))) '
			/ xprtrdma_chunk_/ {
				segments++
				match($0, /[0-9]+@0x/)
				length_here = substr($0, RSTART, RLENGTH - 3) + 0
				if (length_here > longest) longest = length_here
				if (/\(last\)/) { if (segments > most) most = segments; segments = 0 }
			}
			END {
				printf "at most %d segments, of %d bytes at most\n", most, longest
				exit !(most > 8 && most <= 16 && longest == bytes)
			}' $TRACING/trace
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end
}

for vers in 3 4.2; do
	test_case "v$vers: a Send cannot be posted, now and then" sends_fail $vers
done
test_case "v4.2: Receives cannot be posted for an attempt" attempts_fail 4.2
test_case "v3: memory cannot be registered, every other time" maps_fail
test_case "v3: regions of $PAGES pages" segments
test_case "v3: a region is only destroyed at the fourth attempt" destroy_is_late
test_case "v3: a region cannot be destroyed" lost failing_destroys=1000000 "cannot destroy a memory region"
test_case "v3: a queue pair does not stop" lost failing_stops=1000 "does not stop a queue pair"
run_cases
