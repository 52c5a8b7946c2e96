#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The server has a modest device: few elements for each work request, small queues, no means to register
# memory, work requests that cannot be posted.
# virtual: limits what the server's device can do
# limit: 1500

. "$(dirname "$0")/lib/test.sh"

# Also run before each command in the server.
guest_add <<-'EOF'
	some_wait() { [ "$(stat_of send_queue_pending)" -gt 0 ]; }
EOF

need_served

few_elements() {
	server_dir /export
	limit_server "max_send_sge=$2"
	mount_nfs "$1"
	LIMIT=200 client verified_data
	server 'printf "%d entries of the send queue, %d used\n" $(stat_of send_queue_size) $(stat_of send_queue_most)'
	[ "$(client 'xprt_stat 3')" = 1 ] || fail "the connection has ended"
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# The send queue is too small for all that the client may ask for at once, and what was sent keeps its room until the
# client has said that it is there: small_queue VERS PARAMETERS.
small_queue() {
	server_dir /export
	limit_server "$2"
	mount_nfs_timeo "$1"
	netem_begins client
	LIMIT=200 client 'data_file 16M 1M'
	netem client 'delay 100ms'
	defer client 'touch /run/$TEST.stop; wait_for 60 test -f /run/job.load.status; rm /run/$TEST.stop'
	client_background load 'until [ -f /run/$TEST.stop ]; do read_at_once 16 1M 1M; done'
	server 'wait_for 60 some_wait'
}
small_queue_ends() {
	client 'touch /run/$TEST.stop'
	LIMIT=100 client_wait load
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# While chains wait for room no Call is begun: each thread has handed over one at most.
starved=/proc/sys/sunrpc/svc_rdma/rdma_stat_sq_starve
soon_full() {
	server starved="$starved" '[ ! -f $starved ] || echo 0 >$starved'
	small_queue "$1" 'max_qp_wr=400 max_send_sge=1'
	server <<-'EOF'
		most=0
		for n in {1..100}; do
			waiting=$(stat_of send_queue_pending)
			[ $waiting -le $most ] || most=$waiting
		done
		printf "%d entries of the send queue, all used %d times, for up to %d chains\n" \
			$(stat_of send_queue_size) $(stat_of send_queue_full) $most
		[ $most -le $(cat /proc/fs/nfsd/threads) ]
	EOF
	client 'touch /run/$TEST.stop'
	LIMIT=100 client_wait load
	server starved="$starved" <<-'EOF'
		[ $(stat_of send_queue_full) -gt 0 ]
		[ $(cat $starved) = $(stat_of send_queue_full) ] || fail "$(cat $starved) of these were counted"
	EOF
	[ "$(client 'xprt_stat 3')" = 1 ] || fail "the connection has ended"
	small_queue_ends
}

# Sends that have waited for room cannot be posted then by the completion that has made room.
waiting_sends_fail() {
	local ended
	ended=$(server 'listener_of ended_post_failed')
	trace_begins server rpcrdma/svcrdma_sq_post_err
	small_queue "$1" 'max_qp_wr=400 max_send_sge=1 failing_sends=1 workers_fail=1'
	LIMIT=200 server <<-'EOF'
		some_fail() { [ "$(grep -c " svcrdma_sq_post_err:" $TRACING/trace)" -ge 3 ]; }
		wait_for 150 some_fail
		! grep svcrdma_sq_post_err: $TRACING/trace | grep -v "^ *kworker/" || fail "a thread has posted them"
	EOF
	small_queue_ends
	server ended="$ended" <<-'EOF'
		clients_gone 20
		failed=$(grep -c ' svcrdma_sq_post_err:' $TRACING/trace)
		[ $(($(listener_of ended_post_failed) - ended)) = $failed ] ||
			fail "$failed failures and $(listener_of ended_post_failed) ends, after $ended"
	EOF
}

# All threads ask the client what it knows of a file that it may write, and these backward Calls wait behind Replies
# for which there is no room: each GETATTR has its answer within the tenth of a lease that nfsd waits for a callback.
behind_replies() {
	server_lease 200
	small_queue "$1" 'max_qp_wr=400 max_send_sge=1'
	server 'end_grace; wait_for 20 callback_works'
	defer client 'touch /run/$TEST.stop; wait_for 60 test -f /run/job.holder.status'
	# The server does not know of the bytes that are in the client's cache.
	client_background holder <<-'EOF'
		exec 3>$MNT/$TEST/file
		head -c 12345 /dev/zero >&3
		touch /run/$TEST.open
		wait_for 110 test -f /run/$TEST.stop
	EOF
	client 'wait_for 20 test -f /run/$TEST.open; rm /run/$TEST.open'
	server 'grep -qs "type: deleg, access: [rw]*w" /proc/fs/nfsd/clients/*/states || fail "the client got no delegation"'
	defer server '! mountpoint -q $MNT || umount $MNT'
	LIMIT=200 server <<-'EOF'
		mkdir -p $MNT
		mount -t nfs -o proto=tcp,vers=4.2,sec=sys,noac 127.0.0.1:/export $MNT
		wait_for 60 some_wait
		calls=$(stat_of backward_calls) start=${EPOCHREALTIME/./} pids=()
		for n in {1..16}; do
			stat -c %s $MNT/$TEST/file >/run/$TEST.size$n &
			pids+=($!)
		done
		for pid in "${pids[@]}"; do wait $pid; done
		took=$(((${EPOCHREALTIME/./} - start) / 1000)) calls=$(($(stat_of backward_calls) - calls))
		printf "%d backward Calls for 16 GETATTRs, which took %d ms\n" $calls $took
		[ $calls -gt 0 ]
		[ $took -lt $(($(cat /proc/fs/nfsd/nfsv4leasetime) * 100 * ${SLOW:-1})) ]
		sizes=$(sort /run/$TEST.size* | uniq -c | sed 's/^ *//')
		rm /run/$TEST.size*
		[ "$sizes" = "16 12345" ] || fail "the sizes were: $sizes"
		umount $MNT
	EOF
	client 'touch /run/$TEST.stop'
	client_wait holder
	small_queue_ends
}

# Many and few Calls at a time, for many and few threads, each of which waits a little before it hands over its chain:
# whenever the queue has room again for what waits, or for a Call, somebody goes on: wake_ups VERS LIMITS.
wake_ups() {
	local block threads
	server_dir /export
	limit_server "$2"
	mount_nfs "$1"
	netem_begins client
	defer server 'echo 4 >/proc/fs/nfsd/threads'
	for threads in 1 4 64; do
		server threads="$threads" 'echo $threads >/proc/fs/nfsd/threads'
		MACHINE=server delay_events replies=2 posting_reads=2
		for block in 8K 1M; do
			LIMIT=300 client block="$block" <<-'EOF'
				size=$(($(numfmt --from=iec $block) * 192))
				[ $size -le $((8 << 20)) ] || size=$((8 << 20))
				for depth in 1 16 128; do
					data_file $size $block --iodepth=$depth --ioengine=libaio --direct=1
					read_ahead $depth $size $block
				done
			EOF
		done
		# As many as there are credits. Whatever else the machines have to do, no Reply is acknowledged before other
		# Calls are there.
		netem client 'delay 20ms'
		LIMIT=300 client 'data_file 16M 1M --iodepth=16 --ioengine=libaio --direct=1; read_ahead 16 16M 1M'
		netem client
		delays_end server
	done
	server <<-'EOF'
		printf "%d entries of the send queue, all used %d times\n" $(stat_of send_queue_size) $(stat_of send_queue_full)
		[ $(stat_of send_queue_full) -gt 0 ] || fail "no chain has waited"
	EOF
	[ "$(client 'xprt_stat 3')" = 1 ] || fail "the connection has ended"
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# Not even one Call of the largest size fits, and the log says what to do.
tiny_queue() {
	local mark
	server_dir /export
	server_anew
	limit_server "max_qp_wr=$2 max_send_sge=1"
	mark=$(server log_mark)
	client vers="$1" <<-'EOF'
		! mount -t nfs -o rdma,port=20049,vers=$vers,sec=sys,soft,retry=0,timeo=50,retrans=1 $SERVER:/export $MNT || fail "it mounts"
		wait_for 40 module_unused
	EOF
	not_accepted "$mark" "the queues of the device are too short for nfsd's max_block_size" ERANGE 34
	limits_end server
	mount_nfs "$1"
	client 'ls $MNT >/dev/null && umount $MNT && wait_for 10 module_unused'
}

# A device with which memory may be registered for RDMA Reads, and is not: only the first connection has
# memory regions for that.
unused_regions() {
	local first second
	server_dir /export
	limit_server max_sgl_rd=8
	mount_nfs "$1"
	LIMIT=200 client verified_data
	first=$(server 'rdma resource show mr | grep -c . || true')
	client 'umount $MNT && wait_for 10 module_unused'
	server 'clients_gone 20'
	mount_nfs "$1"
	LIMIT=200 client verified_data
	second=$(server 'rdma resource show mr | grep -c . || true')
	printf 'the first connection has %d memory regions, the second %d\n' "$first" "$second"
	[ "$first" -gt 0 ]
	[ "$second" = 0 ]
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# Who could not be told of an invalidation must not be asked for one, and says so itself.
no_registration() {
	is_rust || skip "the kernel's own client does not count invalidations"
	server_dir /export
	limit_server no_frwr=1
	mount_nfs "$1"
	LIMIT=200 client verified_data
	server '[ "$(stat_of own_remote_invalidation)" = 0 ]'
	client <<-'EOF'
		[ $(our_stat remote_invalidations) = 0 ] || fail "$(our_stat remote_invalidations) handles were invalidated by a server that cannot"
		[ $(our_stat local_invalidations) -gt 0 ]
		umount $MNT && wait_for 10 module_unused
	EOF
	limits_end server
}

# Some work requests cannot be posted: posts_fail VERS PARAMETER EVENT CAUSE. Their connections end for that
# cause, and the client sends its Calls on others.
posts_fail() {
	local ended
	server_dir /export
	limit_server "$2"
	mount_nfs_timeo "$1"
	ended=$(server cause="$4" 'listener_of ended_$cause')
	trace_begins server "rpcrdma/$3"
	work_begins
	work_outlasts_three
	server event="$3" cause="$4" least=$((ended + 3)) <<-'EOF'
		[ $(grep -c $event: $TRACING/trace) -ge 3 ]
		[ "$(listener_of ended_$cause)" -ge $least ] || fail "$(cat /sys/kernel/debug/rpcrdma/listener-*/listener)"
	EOF
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# One Send of so many, and what precedes it in its chain may be posted.
# Proves: V1-141.
sends_fail() { posts_fail "$1" failing_sends=40 svcrdma_sq_post_err post_failed; }

# Receives, where the device says what an allocation says for which there is no memory.
receives_fail() { posts_fail "$1" failing_receives=20 svcrdma_rq_post_err post_failed; }

# The device tells that a queue pair has failed, which nothing else shows.
queue_pairs_fail() {
	server_dir /export
	limit_server fatal_events=40
	mount_nfs_timeo "$1"
	trace_begins server rpcrdma/svcrdma_qp_error
	work_begins
	work_outlasts_three
	server 'grep -m 3 svcrdma_qp_error: $TRACING/trace; [ $(grep -c "svcrdma_qp_error:.*event=QP_FATAL" $TRACING/trace) -ge 3 ]'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# The same, and the device never takes the command to stop, so that nothing of what is under way can be waited for, and
# memory is lost, of which the log tells. The RDMA core would warn.
never_stop() {
	local mark ended
	! server finds_leaks || skip "the memory that is lost on purpose is a leak to kmemleak"
	server_dir /export
	mark=$(server log_mark)
	ended=$(server 'listener_of "ended_.*"')
	limit_server fatal_events=40 failing_stops=1000
	mount_nfs_timeo "$1"
	work_begins
	work_outlasts_three
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
	server mark="$mark" ended="$ended" <<-'EOF'
		clients_gone 20
		refused=$(sed -n "s/^failed_stops //p" /sys/module/rpcrdma_test_limits/parameters/work)
		printf "it has refused %d times\n" $refused
		[ $refused -ge 4 ]
		lines=$(log_since $mark | grep -cE "rpcrdma: device [^ ]* does not stop a queue pair \(.*\): reset it\. Memory it may reach is lost$")
		ended=$(($(listener_of "ended_.*") - ended))
		[ $lines = $ended ] || fail "the log has $lines lines of $ended connections"
	EOF
	limits_end server
}

for sge in 1 2; do
	test_case "v4.2: $sge element(s) in the list of a work request" few_elements 4.2 $sge
done
for vers in 3 4.2; do
	test_case "v$vers: a send queue that is soon full" soon_full $vers
done
test_case "v3: a send queue that is soon full, at all depths" wake_ups 3 'max_qp_wr=400 max_send_sge=1'
test_case "v3: the smallest send queue, at all depths" wake_ups 3 max_qp_wr=64
test_case "v3: a send queue that is too small" tiny_queue 3 200
test_case "v4.2: what nfsd asks a client behind Replies that wait for room" behind_replies 4.2
test_case "v4.2: a device for which memory need not be registered" unused_regions 4.2
test_case "v4.2: memory cannot be registered" no_registration 4.2
for vers in 3 4.2; do
	test_case "v$vers: a Send cannot be posted, now and then" sends_fail $vers
done
test_case "v3: Sends that have waited for room cannot be posted" waiting_sends_fail 3
test_case "v3: Receives cannot be posted, now and then" receives_fail 3
test_case "v3: queue pairs fail, now and then" queue_pairs_fail 3
test_case "v3: queue pairs fail, and do not stop" never_stop 3
run_cases
