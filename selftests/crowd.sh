#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Requesters with connections that say nothing, stall, do not last, or are too many, beside a mount: each has an end
# with a cause, memory comes back, and the mount goes on. One that is honest and slow has no end.
# limit: 1800
# virtual: runs rpcrdma-peer in the client

. "$(dirname "$0")/lib/requester.sh"

guest_add <"$lib/inject-guest.sh"

connections() {
	attack silent 20_up listener:connections=21 ended_disconnected+20
	attack half-open 10_up listener:connections=11 ended_rejected+10
	attack takes-no-replies ended ended_timed_out+1
	# Whether the requester goes on with Calls, or has nothing more to say.
	attack holds-replies ended ended_timed_out+1
	attack leaves-replies ended ended_timed_out+1
	attack comes-and-goes 5_answered listener:connections=1 ended_disconnected+50
}

# Of a requester that takes too little the connection ends; one that takes all of it in time goes on, whatever else
# waits meanwhile.
taken_slowly() {
	local slots
	WAIT=100 attack takes-few-replies ended ended_timed_out+1
	slots=$(server 'stat_of send_queue_size')
	SLOTS=$slots attack_begins takes-slowly send_queue_pending=0
	server 'wait_for 20 waiting_are 1'
	client 'echo >/run/$TEST.go'
	WAIT=100 attack_comes_to "answered*$((slots - 19))"
	client 'work_goes_on 55'
	attack_ends
}

# The watchdog of a connection runs every ten seconds, and compares with what it has found up to a minute before. A
# client that takes all that its path carries, with 64 READs under way, is busy for longer than that and is not ended.
slow_path() {
	netem_begins server
	server_dir /export
	mount_nfs 4.2
	LIMIT=120 client 'data_file 64M 1M'
	netem server 'rate 25165824'
	LIMIT=300 client <<-'EOF'
		read_data --iodepth=64 --size=64M --bs=1M --ioengine=libaio --loops=4
		printf 'it took %d seconds\n' $SECONDS
		[ $SECONDS -ge 80 ] || fail 'the path carries more than 3 MiB/s'
	EOF
	netem server
	[ "$(client 'xprt_stat 3')" = 1 ] || fail 'the connection has ended'
	client 'umount $MNT && wait_for 10 module_unused'
}

# Of connections whose client has shown access to no file sunrpc keeps 64 (XPT_MAX_TMP_CONN) and the
# one that it accepts then: each beyond costs the oldest one. Then more connects wait than its listener
# has room for (MAX_WAITING): those beyond are refused, and the mount goes on.
too_many() {
	local mark
	attack silent-100 '65_up ended*35' listener:connections=66 ended_closed+35 ended_disconnected+65
	mark=$(server log_mark)
	wait_in_vain burst 256 44_refused rejected+44
	server mark="$mark" <<-'EOF'
		wait_for 10 lines_tell rejected $mark \
			"client $CLIENT: connect rejected: nfsd has too few threads, or they hang"
	EOF
}

# As many as the log may have a line for each.
few() {
	local mark
	mark=$(server log_mark)
	wait_in_vain burst-5 5 0_refused rejected+0
	# User-Mode Linux has no names of errors.
	server mark="$mark" <<-'EOF'
		wait_for 10 lines_tell accept_failures $mark \
			"client $CLIENT: cannot accept its connection: it has gone away \((EINVAL|Error\(22\))\)"
		[ $(grep -c svcrdma_accept_err: $TRACING/trace) = 5 ]
	EOF
}

# The server is kept from accepting while so many connects arrive behind one that it has accepted.
# When they have their turn nobody is there any more: wait_in_vain SCENARIO COUNT OUTCOMES CONDITION.
wait_in_vain() {
	MACHINE=server delay_events accepted=600000
	attack_begins "$1" "$4" accepted+1 "accept_failures+$2" ended_rejected+1
	WAIT=300 attack_comes_to "$3"
	client 'work_goes_on 30'
	client 'kill $(cat /run/$TEST.pid)'
	# The server has been told so of each.
	server times=$(($2 + 1)) <<-'EOF'
		told() { [ $(grep -c ' REJECTED consumer returns' $TRACING/trace) = $times ]; }
		wait_for 60 told
	EOF
	delays_end server
	attack_ends
}

# With a new listener, which has written no lines, and with events that are traced, whose memory stays.
anew() {
	need_requester
	server_anew
	trace_begins server rdma_cma/cm_event_done rpcrdma/svcrdma_accept_err
	beside_a_mount "$@"
}

# A command is run while chains wait on connections of a requester that takes nothing: while_they_wait SCENARIO
# CONNECTIONS CALLS CONDITION COMMAND..., where each sends so many Calls more than a send queue has entries.
while_they_wait() {
	local slots
	slots=$(server 'stat_of send_queue_size')
	CONNECTIONS=$2 CALLS=$((slots + $3)) attack_begins "$1" "$4"
	server connections="$2" 'wait_for 20 waiting_are $connections'
	"${@:5}"
	attack_comes_to "$2_up"
	client 'work_goes_on 55'
	attack_ends
}
remove_device() {
	defer server rdma_link_add
	server 'rdma_link_delete; rdma_link_add'
}
# Chains of each kind; or one of RDMA Writes and a Send, or of RDMA Reads, for which some entries are left. Where
# memory is registered for these no Call is begun that might lack it, so that only the last one waits.
stopped() { while_they_wait stalls 9 1 anew server_goes_and_comes; }
removed() { while_they_wait stalls 9 1 ended_device_removed+10 remove_device; }
stopped_behind() { while_they_wait stalls-behind 2 -10 anew server_goes_and_comes; }
removed_behind() { while_they_wait stalls-behind 2 -10 ended_device_removed+3 remove_device; }

# Nothing arrives at either end for so long that each of these connections ends, and nobody has said why.
path_is_cut() {
	need_requester
	defer requester_stop
	mount_nfs 3
	server_dir /export
	client ': >$MNT/$TEST/first'
	server 'head -c 100000 /dev/urandom >/export/$TEST/file'
	client 'umount $MNT && wait_for 10 module_unused'
	netem_begins client server
	server_mark
	server end_grace
	CONNECTIONS=9 CALLS=126 requester_begins stalls
	server 'wait_for 20 waiting_are 9'
	netem server 'loss 100%'
	netem client 'loss 100%'
	server <<-'EOF'
		ended() { [ "$(listener_of "ended_(timed_out|retries_exceeded)")" = 9 ]; }
		wait_for 60 ended || fail "the connections ended for $(cat /sys/kernel/debug/rpcrdma/listener-*/listener)"
		[ "$(listener_of "ended_.*")" = 9 ]
	EOF
	netem server
	netem client
	requester_stop
	server_check 9
	mount_nfs 3
	client 'head -c 3M /dev/urandom >/run/$TEST.data'
	client <<-'EOF'
		dd if=/run/$TEST.data of=$MNT/$TEST/first bs=1M oflag=direct status=none
		dd if=$MNT/$TEST/first bs=1M iflag=direct status=none | cmp - /run/$TEST.data
		rm /run/$TEST.data
		umount $MNT
	EOF
	server 'clients_gone 20'
}

# A Send that has waited, with nothing before it in its chain, cannot be posted by the completion that has made room,
# nor can one such Send of two: posts_refused NTH CONNECTIONS.
posts_refused() {
	need_requester
	defer requester_stop
	server_dir /export
	server <<-'EOF'
		head -c 100000 /dev/urandom >/export/$TEST/file
		clients_gone 20
	EOF
	limit_server "failing_sends=$1" workers_fail=1
	server_anew
	server end_grace
	trace_begins server rpcrdma/svcrdma_sq_post_err
	CONNECTIONS=$2 CALLS=200 requester_begins stalls-inline-slowly
	server connections="$2" <<-'EOF'
		ended() { [ "$(listener_of ended_post_failed)" = $connections ]; }
		wait_for 60 ended
		clients_gone 20
		ended
		[ "$(listener_of "ended_.*")" = $connections ] || fail "$(cat /sys/kernel/debug/rpcrdma/listener-*/listener)"
		[ "$(grep -c "^ *kworker/.* svcrdma_sq_post_err:" $TRACING/trace)" = $connections ]
		[ "$(grep -c " svcrdma_sq_post_err:" $TRACING/trace)" = $connections ]
	EOF
	requester_stop
	limits_end server
}

# How long an operation of an honest client may take beside connections that stall, in milliseconds, unless the
# machines are slow. It takes ten seconds and more where threads wait for such a connection.
SLOWEST_MS=5000

# Beside a mount, connections with so many Calls each: stalling SCENARIO CONNECTIONS CALLS.
stalling() {
	client '[ -f /lab/payload/rpcrdma-peer ]' || skip "the payload has no rpcrdma-peer"
	client 'modprobe -q ib_uverbs; modprobe -q rdma_ucm'
	mount_nfs "${VERS:-4.2}"
	server_dir /export
	server size="${SIZE:-1M}" <<-'EOF'
		head -c $size /dev/urandom >/export/$TEST/file
		end_grace
	EOF
	defer requester_stop
	CONNECTIONS=$2 CALLS=$3 requester_begins "$1"
}
stalling_ends() {
	requester_stop
	client 'umount $MNT'
	! is_served || server 'clients_gone 20'
}

# Their Replies or Reads fill the server's send queues and do not complete, or do now and then: stalled, as above.
stalled() {
	stalling "$@"
	# One builtin for each operation: a program takes a while to start.
	client_background honest scenario="$1" connections="$2" calls="$3" most=$((SLOWEST_MS * ${SLOW:-1})) <<-'EOF'
		files=0 slowest=0 what='' name=$MNT/$TEST/honest
		timed() {
			local start=${EPOCHREALTIME/./} took
			"$@"
			took=$(((${EPOCHREALTIME/./} - start) / 1000))
			[ $took -le $slowest ] || { slowest=$took; what=$1; }
		}
		make() { : >$name; }
		fill() { echo honest >>$name; }
		remove() { rm $name; }
		until grep -q "^$scenario: " /run/$TEST.out; do
			timed make
			timed fill
			timed remove
			files=$((files + 1))
		done
		printf '%s: %d files beside %d connections with %d Calls, the slowest operation (%s) took %d ms\n' \
			"$(cat /run/$TEST.out)" $files $connections $calls $what $slowest
		grep -qx "$scenario: ${connections}_up" /run/$TEST.out
		[ $slowest -lt $most ] || fail 'that is too slow'
	EOF
	defer client 'wait_for 60 test -f /run/job.honest.status'
	! is_served || server connections="$2" <<-'EOF'
		wait_for 20 waiting_are $connections
		wait_for 10 none_waits
		waiting_are $connections
	EOF
	LIMIT=150 client_wait honest
	stalling_ends
}

guest_add <<-'EOF'
	# Whether so many connections have the pages of so many bytes each, and the listener as many as it may have.
	all_have_pages() {
		[ "$(awk -v least=$(($2 / $(getconf PAGESIZE))) '$1 == "reply_pages" && $2 >= least' \
			/sys/kernel/debug/rpcrdma/connection-*/connection | wc -l)" = $1 ] && pages_are_used_up
	}
	# The pages beyond those are of no more Replies of so many bytes than there are connections and threads.
	pages_are_bounded() {
		local pages bound=$(($(listener_of connections) + $(cat /proc/fs/nfsd/threads)))
		bound=$(($(listener_of reply_pages_limit) + bound * ($1 / $(getconf PAGESIZE) + 2)))
		pages=$(listener_of reply_pages)
		printf "%d pages of Replies, of %d\n" $pages $bound
		[ $pages -le $bound ]
	}
EOF

# Replies that do not complete have as many pages as the Replies of a listener may have. Beyond that each connection
# has those of one, and each thread, and so the honest client goes on, also when its only Call is put aside for a while:
# too_many_pages CONNECTIONS BYTES, of each Reply.
too_many_pages() {
	is_served || skip "the kernel's own server has no such files"
	need_injection server
	defer nfsd_set max_block_size 1048576
	nfsd_set max_block_size "$2"
	trace_begins server sunrpc/svc_defer_recv
	VERS=3 SIZE=$2 stalling stalls-large "$1" 16
	server connections="$1" size="$2" 'wait_for 60 all_have_pages $connections $size; pages_are_bounded $size'
	client <<-'EOF'
		head -c 4M /dev/urandom >/run/$TEST.data
		dd if=/run/$TEST.data of=$MNT/$TEST/honest bs=1M oflag=direct status=none
	EOF
	# No thread waits for what nfsd asks of its helpers.
	defer server inject_ends
	server INJECT=cache 'inject_begins 100'
	for _ in {1..3}; do
		server 'exportfs -f'
		client 'dd if=$MNT/$TEST/honest bs=1M iflag=direct status=none | cmp - /run/$TEST.data'
	done
	server size="$2" <<-'EOF'
		pages_are_bounded $size
		inject_ends
		[ $(grep -c svc_defer_recv: $TRACING/trace) -ge 3 ] || fail 'no Call was put aside'
	EOF
	server pages_are_used_up || fail 'that took as long as the stalled connections last'
	stalling_ends
}

# A READ that is held back while they have these pages goes on when they have gone, though nothing completes on its own
# connection: the READ before it is still executed.
held_back() {
	local connections=$((200 / ${SLOW:-1}))
	is_served || skip "the kernel's own server has no such limit"
	VERS=3 SIZE=1048576 stalling stalls-large $connections 16
	server connections=$connections 'wait_for 60 all_have_pages $connections 1048576'
	client 'head -c 16K /dev/zero >$MNT/$TEST/honest; sync $MNT/$TEST/honest'
	MACHINE=server delay_events reading=600000
	client_background executed 'dd if=$MNT/$TEST/honest of=/dev/null bs=8k count=1 iflag=direct status=none'
	server 'wait_for 20 delayed_are 1'
	client_background held 'dd if=$MNT/$TEST/honest of=/dev/null bs=8k skip=1 iflag=direct status=none'
	server <<-'EOF'
		# Its connection was the first.
		oldest=$(ls -dv /sys/kernel/debug/rpcrdma/connection-* | sed -n 1p)
		both_are_there() { grep -qx 'calls_outstanding 2' $oldest/connection; }
		wait_for 20 both_are_there
		pages_are_used_up || fail 'that took as long as the stalled connections last'
		delayed_are 1 || fail "it was not held back: $(delayed)"
	EOF
	requester_stop
	server 'wait_for 20 connections_are 1; wait_for 20 delayed_are 2'
	delays_end server
	client_wait executed
	client_wait held
	stalling_ends
}

test_case "connections that say nothing, are not completed, or do not last" beside_a_mount connections
test_case "Replies that are taken slowly" beside_a_mount taken_slowly
test_case "an honest client on a slow path" slow_path
test_case "more connections than are kept, and more connects than may wait" anew too_many
test_case "connects whose client has gone when it is their turn" anew few
test_case "nfsd is stopped while chains wait for room" beside_a_mount stopped
test_case "the device is removed while chains wait for room" beside_a_mount removed
test_case "nfsd is stopped while the last chain waits for room" beside_a_mount stopped_behind
test_case "the device is removed while the last chain waits for room" beside_a_mount removed_behind
test_case "nothing arrives any more while chains wait for room" path_is_cut
test_case "the completion that makes room cannot post the first Send that waits" posts_refused 1 4
test_case "the completion that makes room cannot post the second Send that has waited" posts_refused 2 1
# Fewer where machines are slow: the server ends the first one 20 seconds after its Calls.
for size in 1 4; do
	test_case "Replies of $size MiB with more pages than a listener may have" too_many_pages $((200 / ${SLOW:-1})) $((size << 20))
done
test_case "a READ that is held back for such pages goes on when they are there" held_back
for size in '4 8' '16 8'; do
	# shellcheck disable=SC2086 # These are two numbers.
	test_case "an honest client beside connections and Calls ($size) whose Replies are not taken" stalled stalls-placed $size
done
for size in '4 126' '16 126'; do
	# shellcheck disable=SC2086
	test_case "the same where the Replies are inline ($size)" stalled stalls-inline $size
done
for size in '4 8' '8 126'; do
	# shellcheck disable=SC2086
	test_case "the same where a Reply is taken now and then ($size)" stalled stalls-slowly $size
	# shellcheck disable=SC2086
	test_case "the same where RDMA Reads wait ($size)" stalled stalls-reads $size
done
run_cases
