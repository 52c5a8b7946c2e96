#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A requester that breaks the rules, beside a mount that keeps to them: each message has its answer on the
# wire, or its connection an end with a cause; memory comes back; and the mount goes on.
# limit: 3600
# virtual: runs rpcrdma-peer in the client

. "$(dirname "$0")/lib/requester.sh"
. "$(dirname "$0")/lib/version.sh"

# Proves: V1-074, V1-132, V1-134.
chunks() {
	attack honest 'answered*4' refused_messages=0 excess_calls=0 chunk_errors_sent=0
	attack too-many-segments 'err_chunk*3 answered' chunk_errors_sent=3 refused_messages=3
	attack too-many-chunks 'err_chunk*2 answered' chunk_errors_sent=2 refused_messages=2
	attack too-many-bytes 'answered err_chunk*5 answered' chunk_errors_sent=5 read_bytes=1052672
	attack misfits 'garbage_args*7 err_chunk answered' garbage_args_sent=7 chunk_errors_sent=1 read_segments=0
	attack without-bytes 'answered*5' refused_messages=0
	attack same-memory 'answered*3' refused_messages=0
	attack position-zero 'err_chunk*5 answered' chunk_errors_sent=5 read_pages=0
}

messages() {
	attack cut 'silence*3 err_chunk*9 answered' refused_messages=12 chunk_errors_sent=9
	attack versions 'err_vers*3 err_chunk*4 answered' vers_errors_sent=3 chunk_errors_sent=4
	attack not-calls 'silence answered' calls_outstanding=0
	attack longer ended ended_queue_pair_error+1
}

# What InfiniBand and RoCE have, and iWARP has not.
fabric() {
	attack not-a-send 'answered ended' ended_not_a_send+1
	attack unconfirmed 'answered*2'
}

# Proves: V1-019.
credits() {
	attack beyond-the-grant 'answered*600' 'excess_calls>0' refused_messages=0 'receive_buffers<140'
	# Of the newest connection, from before it exists.
	server <<-'EOF'
		echo 0 | tee /run/$TEST.counts >/run/$TEST.most
		(
			most=0
			while [ -f /run/$TEST.counts ]; do
				pages=$(stat_of read_pages)
				[ ${pages:-0} -le $most ] || { most=$pages && echo $most >/run/$TEST.most; }
			done
		) >/dev/null 2>&1 &
	EOF
	defer server 'rm -f /run/$TEST.counts /run/$TEST.most'
	attack_begins overrun-reads read_pages=0
	WAIT=200 attack_comes_to 'answered*40'
	server <<-'EOF'
		rm /run/$TEST.counts
		most=$(cat /run/$TEST.most)
		printf '%d pages under RDMA Reads at most\n' $most
		# Two of the largest messages are less than 8 MiB.
		[ $most -gt 256 ] && [ $most -le 2048 ]
	EOF
	client 'work_goes_on 55'
	attack_ends
}

# Proves: V1-136, V1-138.
reads() {
	attack bad-handle 'ended*5' ended_remote_access+5
	attack beyond-the-memory ended ended_remote_access+1
	attack bad-write-handle ended ended_remote_access+1
	# Those on which the Call is refused end as the requester wants it.
	attack sends-it-again 'ended*2 err_chunk answered ended*2 err_chunk short' \
		ended_remote_access+4 ended_disconnected+2
	attack hangs-up gone ended_disconnected+20
	attack vanishes ended ended_retries_exceeded+1
	attack vanishes-for-long left ended_timed_out+1
	# As much as there may be is under Reads until the fabric gives up.
	WAIT=100 attack crowd 'ended*10' ended_retries_exceeded+10
	# Where nothing gives up, the server does. One connection more has made sure of the order.
	WAIT=100 attack holds-pages 'ended*10' ended_timed_out+10 ended_disconnected+1
}

# A scenario without a mount.
attack_begins_alone() {
	need_requester
	defer requester_stop
	server_dir /export
	server <<-'EOF'
		head -c 1000 /dev/urandom >/export/$TEST/file
		end_grace
	EOF
	attack_begins "$1"
}

# nfsd drops a Call that it has in its hands already: each gives back its credit and its Receive.
dropped() {
	# A Call that reads the file keeps its thread meanwhile.
	MACHINE=server delay_events reading=600000
	attack_begins_alone dropped
	server <<-'EOF'
		all_are_there() { [ "$(stat_of received_messages)" = 221 ]; }
		wait_for 40 all_are_there
		one_is_left() { [ "$(stat_of calls_outstanding)" = 1 ]; }
		wait_for 20 one_is_left
	EOF
	delays_end server
	attack_comes_to 'answered*21'
	requester_stop
	server 'clients_gone 20'
}

# Proves: V1-014, V1-015, V1-080, V1-096.
choices() {
	attack choices '5 1*2 3 4*5 answered*2 err_chunk*2 answered' refused_messages=2 excess_calls=0
}

# Proves: V1-137.
results() {
	# 17 is NFS4ERR_EXIST.
	attack replayed 'err_chunk*2 nfs_0 nfs_17' chunk_errors_sent=2
	attack small-chunks 'nfs_0 err_chunk in_reply_chunk err_chunk*3 nfs_0 err_chunk nfs_0 in_reply_chunk err_chunk' \
		chunk_errors_sent=6 calls_outstanding=0
	server 'cd /export/$TEST && ln -s "$(printf "%02000d" 0 | tr 0 a)" link'
	attack readlink same
	server 'rm /export/$TEST/link'
	# Nothing is written into the page cache.
	server 'sha256sum /export/$TEST/file >/run/$TEST.sum'
	attack short-chunks 'err_chunk*32 in_reply_chunk*32' chunk_errors_sent=32
	server 'sha256sum --quiet -c /run/$TEST.sum && rm /run/$TEST.sum'
}

in_version_two() {
	attack version-two 'garbage_args answered err_chunk answered*2 rdma_error_3' chunk_errors_sent=1 option_errors_sent=1 ended_disconnected+2
}
# Proves: V2-030.
first_calls() {
	need_server
	settings off offered
	trace_begins server rpcrdma/svcrdma_version rpcrdma/svcrdma_err_option
	beside_a_mount in_version_two
	server <<-'EOF'
		[ $(grep -c svcrdma_version: $TRACING/trace) = 2 ]
		[ $(grep -c svcrdma_err_option: $TRACING/trace) = 1 ]
	EOF
}

# Proves: PD-028, PD-031.
announced_sizes() {
	local each='nfs_0 err_chunk'
	attack announces "$each $each $each $each $each $each" chunk_errors_sent=1 ended_disconnected+6
	attack small-receives ended ended_remote_error+1
}

guest_add <<-'EOF'
	cache_hits() { awk '/^cache hits:/ { print $3 }' /proc/fs/nfsd/reply_cache_stats; }
EOF

# Data in every form of Call and Reply that there is.
forms() {
	local value=beginning hits
	attack forms 'nfs_0 same nfs_0 same nfs_0 same*3' refused_messages=0 several_reads_call_inline_reply=2 \
		position_zero_call_inline_reply=1 inline_call_write_and_reply_reply=3 \
		read_call_write_reply=1 read_call_write_and_reply_reply=1
	attack read-plus 'same*3' refused_messages=0
	# It is in nfsd's reply cache, for which more counts than the few bytes.
	hits=$(server cache_hits)
	attack repeated 'nfs_0*2' refused_messages=0 ended_disconnected+2
	[ "$(server cache_hits)" = $((hits + 1)) ] || fail "$(server 'cat /proc/fs/nfsd/reply_cache_stats')"
	# nfsd before 7.3 takes the first bytes in pages for a value that begins behind these.
	! has_kernel server 7.3 || value=same
	attack attribute "nfs_0 $value" refused_messages=0
	# An RPC message whose first page only is in the head that sunrpc is given.
	server_set max_req_size 16384
	attack inline same refused_messages=0 read_segments=0
}

# nfsd calls back when it has copied what it was asked to. A message answers that Call, or makes it fail, by which
# it comes again, or is no Reply to it.
backward() {
	attack backward-taken 'answered*7' backward_calls=8 refused_messages=0 calls_outstanding=0
	attack backward-fails 'again*6 answered' backward_calls=8 refused_messages=0 calls_outstanding=0
	attack backward-refused 'answered err_chunk*2 answered*3 err_chunk answered err_chunk answered' \
		backward_calls=2 refused_messages=9 chunk_errors_sent=4 read_pages=0 calls_outstanding=0
}

# Whatever a Reply grants, it is one such Call at least, and two at most (in units of 256).
called_back() {
	need_requester
	# A Call that was refused comes again when its time is over.
	server_lease $((20 * ${SLOW:-1}))
	trace_begins server sunrpc/xprt_get_cong
	beside_a_mount backward
	server <<-'EOF'
		windows=$(sed -n "s/.*xprt_get_cong:.* cwnd=\([0-9]*\).*/\1/p" $TRACING/trace | sort -nu | paste -sd ' ')
		[ "$windows" = "256 512" ] || fail "the windows were $windows"
	EOF
}

# Replies to backward Calls alone do not use up the Receives. nfsd keeps what it knows of each COPY for a while.
only_backward() {
	attack_begins_alone backward-alone
	attack_comes_to 200_answered
	requester_stop
	server 'clients_gone 20'
}

# What is too long to be called back fails as if it had no Reply, and is not repeated more often than that, nor
# when the client is gone. nfsd has other callbacks for that client meanwhile.
long() {
	local mark
	mark=$(server log_mark)
	attack_begins backward-long backward_calls=2
	attack_comes_to 'answered*2'
	server mark="$mark" 'log_has $mark "client $CLIENT: a callback of [0-9]* bytes is too long for it: raise"'
	attack_ends
	server <<-'EOF'
		repeated=$(grep -c nfsd_cb_restart: $TRACING/trace)
		[ $repeated -gt 0 ] || fail "nothing was too long"
		[ $repeated -lt 20 ] || fail "it was repeated $repeated times"
	EOF
}
too_long() {
	need_requester
	server_lease 20
	trace_begins server nfsd/nfsd_cb_restart
	beside_a_mount long
}

# A backward Call waits behind Replies for which there is no room, though there be enough for itself: called_behind
# SCENARIO CALLS [CONDITION...], where so many Calls have Replies by then.
called_behind() {
	local slots
	slots=$(server 'stat_of send_queue_size')
	SLOTS=$slots attack_begins "$1" "${@:3}"
	server calls=$((slots + 4 + $2)) mark="$1" <<-'EOF'
		# Three have made the session, and one has read the file.
		all_are_sent() { [ $(stat_of received_messages) = $calls ] && [ $(stat_of calls_outstanding) = 0 ]; }
		wait_for 20 all_are_sent
		trace_mark $mark
	EOF
	client 'echo >/run/$TEST.go'
	server mark="$1" <<-'EOF'
		is_sent() { trace_since $mark '^ *kworker/.* xprt_transmit: .* status=0'; }
		wait_for 20 is_sent
		waiting_are 1
	EOF
	# It costs no thread, and there is one only.
	client 'work_goes_on 55'
	client 'echo >/run/$TEST.go'
}
# What comes of that: behind_ends SCENARIO OUTCOMES.
behind_ends() {
	attack_comes_to "$2"
	server mark="$1" <<-'EOF'
		[ $(sed "1,/tracing_mark_write: $mark$/d" $TRACING/trace | grep -c 'kworker/.* xprt_transmit:') = 1 ] ||
			fail 'it was sent more than once'
	EOF
	attack_ends
}
behind() {
	called_behind backward-in-turn -4 ended_disconnected+2
	behind_ends backward-in-turn in_turn
	called_behind backward-dropped 1 ended_disconnected+2
	behind_ends backward-dropped destroyed
}
behind_and_stopped() {
	called_behind backward-waits 1 anew
	attack_comes_to waits
	server_goes_and_comes
	# As many as before, each of which has pages.
	server 'echo 1 >/proc/fs/nfsd/threads'
	client 'work_goes_on 55'
	attack_ends
}
without_waiting() {
	need_requester
	# The work meanwhile may take longer than the nine seconds that nfsd waits by default.
	server_lease 600
	# Replies of one thread have its order.
	defer server 'echo 4 >/proc/fs/nfsd/threads'
	server 'echo 1 >/proc/fs/nfsd/threads'
	trace_begins server sunrpc/xprt_transmit
	beside_a_mount "$1"
}

# A Call that has timed out keeps its credit, and the connection of a client that grants no other for ten seconds
# ends. The client's lease is longer than that, as nfsd calls back no client without one.
owed() { attack backward-owed ended ended_timed_out+1; }
never_answered() {
	need_requester
	server_lease 20
	beside_a_mount owed
}

test_case "chunk lists that ask for too much, or do not fit" beside_a_mount chunks
test_case "messages that are cut, or no Calls" beside_a_mount messages
[ "${TRANSPORT:-rxe}" = siw ] ||
	test_case "a Receive that no Send has used up, and a handshake whose end is lost" beside_a_mount fabric
test_case "more Calls than were granted, and more data than there is room for" beside_a_mount credits
test_case "memory that cannot be read, or is gone" beside_a_mount reads
test_case "Calls that nfsd drops" dropped
test_case "first Calls of Version Two that fail" first_calls
test_case "several chunks of data at a time, both ways" beside_a_mount forms
test_case "credit words, long Calls and XIDs as a requester likes" beside_a_mount choices
test_case "Replies that fit the Receives that a requester has announced, or not those that it has" beside_a_mount announced_sizes
test_case "Replies to backward Calls that are cut, too long, or none" called_back
test_case "nothing but Replies to backward Calls" only_backward
test_case "Replies to backward Calls that never come" never_answered
test_case "a backward Call behind Replies that wait for room" without_waiting behind
test_case "nfsd is stopped while a backward Call waits behind Replies" without_waiting behind_and_stopped
test_case "a backward Call that is too long for the requester" too_long
test_case "chunks that are too small for their results, or too many" beside_a_mount results
run_cases
