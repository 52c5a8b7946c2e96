#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What one can see and set of the server: its files under debugfs, its counters and settings under
# /proc/sys/sunrpc/svc_rdma, its trace events, its lines in the log and its lock classes.

. "$(dirname "$0")/lib/test.sh"

here=$(cd "$(dirname "$0")" && pwd)

# Also run before each command in the server.
guest_add <<-'EOF'
	debug=/sys/kernel/debug/rpcrdma
	sysctls=/proc/sys/sunrpc/svc_rdma
	# RPCs whose Call and Reply had these forms.
	rpcs() {
		local call=$1 reply=$2
		awk -v form="^${call/any/.*}_call_${reply/any/.*}_reply$" \
			'$1 ~ form { sum += $2 } END { print sum + 0 }' "$(newest_connection)"/stats
	}
	is() { [ "$(stat_of $1)" = "$2" ]; }
	values_are() {
		local name value rc=0
		while read -r name value; do
			! is $name "$value" || continue
			printf "%s is %s, not %s\n" $name "$(stat_of $name)" "$value"
			rc=1
		done
		return $rc
	}
EOF

need_ours() {
	is_rust || skip "the client tells nothing to compare with"
	server '[ -d /sys/kernel/debug/rpcrdma ]' ||
		skip "the kernel's own server has no such files"
}
need_sysctls() { server '[ -d /proc/sys/sunrpc/svc_rdma ]' ||
	skip "there are no settings of the server"; }

# Reads and writes data, names and a directory: inline, with Read chunks, Write chunks and Reply
# chunks.
do_something() {
	client <<-'EOF'
		dir=$MNT/$TEST
		head -c 300K /dev/urandom >$dir/data
		sync $dir/data
		for i in {1..100}; do : >"$dir/an entry whose name has some length, number $i"; done
		drop_caches
		[ $(cat $dir/data | wc -c) = 307200 ]
		[ $(ls $dir | wc -l) = 101 ]
	EOF
}

# What the client's files say, as words for the server.
client_stats() {
	client names="$*" <<-'EOF'
		for name in $names; do printf '%s ' "$(our_stat $name)"; done
		echo
	EOF
}

# A Call waits for a file system, and those that come after it do not.
oldest_call_is_seen() {
	need_ours
	server_dir /export/disk
	server 'touch /export/disk/$TEST/file'
	mount_nfs 3 noac /export/disk
	defer server 'fsfreeze -u /export/disk 2>/dev/null || true'
	server 'fsfreeze -f /export/disk'
	client_background program 'chmod 600 $MNT/$TEST/file'
	server 'ages() { [ "$(stat_of oldest_call_ms)" -ge 1000 ]; }; wait_for 20 ages'
	client 'stat $MNT/$TEST >/dev/null'
	server <<-'EOF'
		count=$(stat_of calls_outstanding) age=$(stat_of oldest_call_ms)
		[ $count = 1 ] && [ $age -ge 1000 ] || fail "$count Calls, the oldest for $age ms"
	EOF
	! is_rust || client <<-'EOF'
		count=$(our_stat calls_outstanding) age=$(our_stat oldest_call_ms)
		[ $count = 1 ] && [ $age -ge 1000 ] || fail "$count Calls, the oldest for $age ms"
	EOF
	server 'fsfreeze -u /export/disk'
	client_wait program
	server <<-'EOF'
		idle() { [ "$(stat_of calls_outstanding) $(stat_of oldest_call_ms)" = "0 0" ]; }
		wait_for 5 idle
	EOF
	! is_rust || client '[ "$(our_stat calls_outstanding) $(our_stat oldest_call_ms)" = "0 0" ]'
	client 'umount $MNT && wait_for 10 module_unused'
}

# No connection has a completion queue in common with another one, be it of another module:
# completions in one of the core's pool may be handled at the same time.
queues_are_apart() {
	need_ours
	server_dir /export
	mount_nfs 3 nconnect=8
	client 'data_file 2M 64k && drop_caches && read_at_once 8 128k 64k'
	server <<-'EOF'
		set -- $(cat $debug/connection-*/connection | sed -n "s/^completion_queue //p")
		queues=$(printf "%s\n" "$@" | sort -u | wc -l)
		printf "%d connections have %d completion queues\n" $# $queues
		[ $# = 8 ]
		[ $queues = 8 ]
		# Nor does any have a second one.
		queues=$(rdma resource show cq | grep -c "comm \[rpcrdma\]")
		[ $queues = 8 ] || fail "the device has $queues of rpcrdma"
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
	server 'clients_gone 20'
}

# Reads a counter below svc_rdma.
counter() { server name="$1" 'cat $sysctls/rdma_stat_$name'; }

# Proves: BD-014, V1-021.
counters_agree() {
	local calls inline reads zero writes replies read_segments invalidations delivered
	local own_send own_receive inline_send inline_receive requested granted port
	need_ours
	server_dir /export
	for name in recv read write; do server name="$name" 'echo 0 >$sysctls/rdma_stat_$name'; done
	mount_nfs 3
	do_something
	read -r inline reads zero writes replies read_segments invalidations delivered < \
		<(client_stats inline_calls read_chunk_calls position_zero_calls \
		write_chunk_calls reply_chunk_replies read_segments \
		remote_invalidations delivered_bytes)
	read -r own_send own_receive inline_send inline_receive requested granted port < \
		<(client_stats own_send own_receive inline_send inline_receive \
		credits_requested credits_granted source_port)
	calls=$((inline + reads + zero))
	# The last completion may be still to come.
	server calls="$calls" inline="$inline" reads="$reads" fetched=$((reads + zero)) \
		zero="$zero" writes="$writes" replies="$replies" delivered="$delivered" \
		read_segments="$read_segments" invalidations="$invalidations" \
		own_send="$own_send" own_receive="$own_receive" inline_send="$inline_send" \
		inline_receive="$inline_receive" requested="$requested" granted="$granted" \
		port="$port" <<-'EOF'
		wait_for 10 is answered_calls $calls
		cat $(newest_connection)/*
		[ $(rpcs inline any) = $inline ] ||
			fail "$(rpcs inline any) inline Calls, and the client has sent $inline"
		[ $(rpcs read any) = $reads ] ||
			fail "$(rpcs read any) Read chunks, and the client has sent $reads"
		[ $(rpcs position_zero any) = $zero ]
		[ $(rpcs several_reads any) = 0 ]
		[ $reads -gt 0 ]
		[ $writes -gt 0 ]
		[ $replies -gt 0 ]
		[ $(rpcs any write) -gt 0 ]
		[ $(rpcs any write) -le $writes ]
		[ $(rpcs any reply) = $replies ] ||
			fail "$(rpcs any reply) Reply chunks, and the client has seen $replies"
		[ $(rpcs any write_and_reply) = 0 ]
		[ $(stat_of write_bytes) = $delivered ] ||
			fail "$(stat_of write_bytes) bytes, and the client has seen $delivered"
		[ $(stat_of read_bytes) -ge 307200 ]
		[ $(stat_of write_segments) -ge $(($(rpcs any write) + replies)) ]
		values_are <<-END
			state connected
			peer $CLIENT
			source $SERVER
			source_port 20049
			device $RDMA_LINK
			device_port 1
			received_messages $calls
			read_segments $read_segments
			remote_invalidations $invalidations
			refused_messages 0
			vers_errors_sent 0
			chunk_errors_sent 0
			garbage_args_sent 0
			failed_requests 0
			send_queue_full 0
			calls_outstanding 0
			send_queue_used 0
			send_contexts_used 0
			send_queue_pending 0
			reply_pages 0
			own_send 4096
			own_receive 4096
			peer_send $own_send
			peer_receive $own_receive
			inline_send $inline_receive
			inline_receive $inline_send
			credits_requested $requested
			credits_granted $granted
			peer_port $port
		END
		listed() { rdma -d resource show $1 | grep "$2 $(stat_of $3) .*comm \[$4\]" ||
			fail "rdma resource does not have the $3 of $4"; }
		listed cm_id lqpn queue_pair rpcrdma
		listed cq cqn completion_queue rpcrdma
		[ $(stat_of receives_posted) -ge $(stat_of credits_granted) ] ||
			fail 'more is granted than Receives are posted'
		[ $(stat_of receive_buffers) -ge $(stat_of receives_posted) ]
		[ $(stat_of credits_limit) -le $(stat_of credits_max) ]
		[ $(stat_of credits_max) -le $(cat $sysctls/max_requests) ]
		[ $(stat_of send_queue_most) -gt 0 ]
		# The contexts of a connection without RPCs are freed after a while.
		[ $(stat_of send_contexts) -le $(stat_of send_queue_most) ]
		[ $(stat_of read_pages) = 0 ]
		[ $(listener_of read_pages) = 0 ]
		[ $(listener_of reply_pages) = 0 ]
		of() {
			awk -v step=$1 '$1 == step { sum += $3 } END { print sum + 0 }' \
				$(newest_connection)/latency
		}
		for step in waiting executing sending; do
			[ $(of $step) = $calls ] ||
				fail "$(of $step) times of $step for $calls RPCs"
		done
		[ $(of reading) = $fetched ]
		for limit in $(awk '$2 != "inf" { print $2 }' $(newest_connection)/latency); do
			[ $limit -ge 1024 ] && [ $((limit & (limit - 1))) = 0 ] ||
				fail "$limit ns is no limit of a class"
		done
		[ $(cat $sysctls/rdma_stat_recv) = $calls ] ||
			fail "rdma_stat_recv is $(cat $sysctls/rdma_stat_recv) and not $calls"
		[ $(cat $sysctls/rdma_stat_read) = $read_segments ]
		[ $(cat $sysctls/rdma_stat_write) = $(stat_of write_segments) ]
	EOF
}

# The settings that others have too, with or without a listener.
settings() {
	local name
	need_sysctls
	for name in max_requests max_req_size max_outbound_read_requests; do
		defer server name="$name" value="$(server name="$name" 'cat $sysctls/$name')" \
			'echo $value >$sysctls/$name'
	done
	server <<-'EOF'
		cd $sysctls
		check_setting max_requests 128 4 16384
		check_setting max_req_size 4096 4096 65536
		ours=255
		[ -f /lab/payload/server/rpcrdma.ko ] || ours=16
		check_setting max_outbound_read_requests $ours 1 255
		for name in rdma_stat_{rq_starve,rq_poll,rq_prod,sq_poll,sq_prod}; do
			[ "$(cat $name)" = 0 ]
			echo 0 >$name
			! echo 1 2>/dev/null >$name || fail "$name accepts 1"
		done
		for name in rdma_stat_{read,recv,write,sq_starve}; do
			for text in 0 7 word; do
				echo $text >$name
				[ "$(cat $name)" = 0 ] || fail "$name is $(cat $name) after a write"
			done
		done
	EOF
}

# Connections made after a change have the new values.
# Proves: V1-027.
settings_count() {
	need_ours
	server_dir /export
	defer server 'echo 128 >$sysctls/max_requests; echo 4096 >$sysctls/max_req_size'
	server 'echo 4 >$sysctls/max_requests; echo 8192 >$sysctls/max_req_size'
	mount_nfs 3
	client <<-'EOF'
		for name in {1..40}; do head -c 2000 /dev/zero >$MNT/$TEST/$name & done
		wait
		[ $(our_stat credits_granted) -le 4 ] ||
			fail "$(our_stat credits_granted) credits were granted"
		[ $(our_stat peer_receive) = 8192 ] && [ $(our_stat peer_send) = 8192 ]
	EOF
	server <<-'EOF'
		[ $(stat_of credits_max) = 4 ] && [ $(stat_of own_receive) = 8192 ] &&
			[ $(stat_of own_send) = 8192 ]
	EOF
}

# Connections end for different causes, and the listener remembers.
ends_have_causes() {
	local accepted refused removals
	need_ours
	server_dir /export
	accepted=$(server 'listener_of accepted')
	refused=$(server 'listener_of "(rejected|accept_failures)"')
	removals=$(server 'listener_of ended_device_removed')
	mount_nfs 3
	client 'ls $MNT >/dev/null'
	server wanted=$((accepted + 1)) refused="$refused" <<-'EOF'
		[ $(listener_of connections) = 1 ]
		[ $(listener_of accepted) = $wanted ]
		[ $(listener_of port) = 20049 ]
		[ $(listener_of '(rejected|accept_failures)') = $refused ]
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
	server <<-'EOF'
		gone() { [ $(listener_of connections) = 0 ]; }
		wait_for 10 gone
		[ -z "$(newest_connection)" ] || fail 'a connection still has its files'
		grep ^last_ $(listener_folder)/listener
		grep -qx 'last_end disconnected' $(listener_folder)/listener
		[ $(listener_of last_end_age_ms) -lt 60000 ]
		[ $(listener_of ended_disconnected) -ge 1 ]
	EOF
	mount_nfs 3
	needs_machines "goes on by taking the server's RDMA device away"
	defer server rdma_link_add
	LIMIT=60 server wanted=$((removals + 1)) <<-'EOF'
		rdma link delete $RDMA_LINK
		removed() { [ "$(listener_of ended_device_removed)" = $wanted ]; }
		wait_for 10 removed
		rdma_link_add
	EOF
	client 'ls $MNT/$TEST >/dev/null'
}

# Of many connections.
many_end() {
	local mark
	need_ours
	mark=$(server log_mark)
	server_dir /export
	mount_nfs 3 nconnect=8
	LIMIT=200 client <<-'EOF'
		for i in {1..16}; do
			# Each connection has its turn.
			for n in {1..16}; do : >$MNT/$TEST/$i.$n; done
			break_connections
		done
		: >$MNT/$TEST/file
	EOF
	server mark="$mark" <<-'EOF'
		[ $(listener_of connections) -ge 1 ]
		[ $(listener_of ended_disconnected) -gt 100 ]
		if log_has $mark "rpcrdma: client"; then
			fail "a connection that the client gives up is no failure"
		fi
	EOF
}

trace_is_off() { server 'echo 0 >$TRACING/events/rpcrdma/enable; echo >$TRACING/trace'; }

events_tell() {
	local calls reads
	need_ours
	server '[ -d $TRACING/events/rpcrdma ]' || skip "the kernel has no tracepoints"
	server_dir /export
	defer trace_is_off
	trace_is_off
	defer server size="$(server 'cut -d " " -f 1 $TRACING/buffer_size_kb')" \
		'echo $size >$TRACING/buffer_size_kb'
	server 'echo 16384 >$TRACING/buffer_size_kb; echo 1 >$TRACING/events/rpcrdma/enable'
	mount_nfs 3
	do_something
	read -r calls reads < <(client <<-'EOF'
		echo \
			$(($(our_stat inline_calls) + $(our_stat read_chunk_calls))) \
			$(our_stat read_segments)
	EOF
	)
	server calls="$calls" reads="$reads" <<-'EOF'
		trace=$TRACING/trace
		count() { grep -c " svcrdma_$1: " $trace || true; }
		wait_for 10 is answered_calls $calls
		for name in decode_rqst decode_rseg decode_wseg encode_wseg post_recv \
			post_send post_read_chunk post_write_chunk wc_recv wc_send wc_read; do
			[ $(count $name) -gt 0 ] || fail "$name was not seen"
			printf '%s %d\n' $name $(count $name)
		done
		for name in wc_recv decode_rqst post_send wc_send; do
			[ $(count $name) = $calls ] ||
				fail "$(count $name) $name for $calls Calls"
		done
		[ $(count decode_rseg) = $reads ]
		[ $(count encode_wseg) = $(stat_of write_segments) ]
		[ $(count wc_read) = $(count post_read_chunk) ]
		[ $(grep ' svcrdma_post_send: ' $trace |
			grep -cv inv_rkey=0x00000000) = $(stat_of remote_invalidations) ]
		line="cq.id=$(stat_of completion_queue) cid=[0-9]* totalbytes=[0-9]*"
		line+=" latency-us=[0-9]*"
		grep -q " svcrdma_wc_read: $line$" $trace
		xids() {
			sed -n "s/.* svcrdma_$1: .*xid=0x\([0-9a-f]\{8\}\).*/\1/p" $trace |
				sort -u | wc -l
		}
		[ $(xids decode_rqst) = $calls ]
		# A completion decodes each Call, and a thread posts its RDMA Reads.
		by_threads() { grep -cE "^ *nfsd-[0-9]+ .* svcrdma_$1: " $trace || true; }
		[ $(by_threads decode_rqst) = 0 ] ||
			fail "threads decode $(by_threads decode_rqst) Calls"
		[ $(by_threads post_read_chunk) = $(count post_read_chunk) ] ||
			fail "threads post RDMA Reads for $(by_threads post_read_chunk) Calls"
		! grep ' xprtrdma_' $trace || fail 'the client of this machine does nothing'
		if grep -E '(^|[^0-9a-f])ffff[89a-f][0-9a-f]{11}([^0-9a-f]|$)' $trace; then
			fail 'a kernel address is in the trace'
		fi
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
	server <<-'EOF'
		seen() { grep -q " svcrdma_wc_recv_flush: .* status=WR_FLUSH_ERR " $TRACING/trace; }
		wait_for 10 seen
	EOF
	trace_is_off
	mount_nfs 3
	client 'ls $MNT >/dev/null'
	server '! grep svcrdma_ $TRACING/trace'
}

# No two Replies under way have the same number, be there as many as ever or fewer before.
contexts_are_told_apart() {
	need_ours
	server '[ -d $TRACING/events/rpcrdma ]' || skip "the kernel has no tracepoints"
	server_dir /export
	mount_nfs 3
	client 'data_file 1M 4k'
	trace_begins server rpcrdma/svcrdma_post_send rpcrdma/svcrdma_wc_send
	client <<-'EOF'
		for i in {1..8}; do
			drop_caches
			read_at_once 8 128k 4k
			stat $MNT/$TEST >/dev/null
		done
	EOF
	server <<-'EOF'
		awk '
			match($0, /cq\.id=[0-9]+ cid=[0-9]+/) { name = substr($0, RSTART, RLENGTH) }
			/ svcrdma_post_send: / {
				n++
				if (name in sent) { print "twice: " name; wrong++ }
				sent[name]
				names[name]
			}
			/ svcrdma_wc_send: / { delete sent[name] }
			END {
				for (name in names) m++
				print n + 0, "Replies, ", m + 0, "contexts"
				exit !n || m < 3 || wrong
			}
		' $TRACING/trace
	EOF
}

# What a requester does wrong, message by message.
wrongs_are_traced() {
	need_requester
	server '[ -d $TRACING/events/rpcrdma ]' || skip "the kernel has no tracepoints"
	defer trace_is_off
	trace_is_off
	server_dir /export
	server <<-'EOF'
		head -c 100000 /dev/urandom >/export/$TEST/file
		end_grace
		echo 1 >$TRACING/events/rpcrdma/enable
	EOF
	# The last one takes its Replies late, if at all.
	LIMIT=100 client <<-'EOF'
		FILE=/export/$TEST/file /lab/payload/rpcrdma-peer --requester $SERVER \
			cut versions not-calls longer small-receives \
			bad-handle bad-write-handle takes-no-replies </dev/null
	EOF
	server <<-'EOF'
		seen() { grep -c " svcrdma_$1: " $TRACING/trace || true; }
		seen_as() {
			[ "$(seen "$1")" = "$2" ] || fail "$1 was seen $(seen "$1") times for $2"
		}
		seen_as decode_short_err 3
		seen_as decode_badvers_err 3
		seen_as err_vers 3
		seen_as decode_badproc_err 4
		seen_as decode_parse_err 9
		# One of four of not-calls is neither a Call nor a Reply nor an error.
		seen_as decode_drop_err 25
		seen_as wc_recv_err 1
		seen_as wc_read_err 5
		seen_as wc_write_err 1
		seen_as wc_send_err 1
		for name in err_chunk wc_{recv,send,read,write}_flush sq_full; do
			[ "$(seen $name)" -gt 0 ] || fail "$name was not seen"
		done
	EOF
}

# Some Sends of the server cannot be posted, which ends the connection.
failures_are_told() {
	local mark
	need_ours
	server_dir /export
	server '[ -f /lab/payload/rpcrdma_test_limits.ko ]' ||
		skip "the payload has no rpcrdma_test_limits.ko"
	server <<-'EOF'
		gone() { [ "$(listener_of connections)" = 0 ]; }; wait_for 10 gone
		insmod /lab/payload/rpcrdma_test_limits.ko failing_sends=8
	EOF
	defer server 'rmmod rpcrdma_test_limits'
	defer server 'gone() { [ $(listener_of connections) = 0 ]; }; wait_for 10 gone'
	server_anew
	mark=$(server log_mark)
	mount_nfs 3
	LIMIT=120 client <<-'EOF'
		for i in {1..200}; do : >$MNT/$TEST/$i; done
		[ $(ls $MNT/$TEST | wc -l) = 200 ]
	EOF
	server mark="$mark" <<-'EOF'
		failed=$(listener_of ended_post_failed)
		printf '%d connections have failed\n' $failed
		[ $failed -gt 20 ] || fail 'that is not enough for this test'
		why='its connection has failed: the device refused a work request \(post_failed\)'
		wait_for 10 lines_tell ended_post_failed $mark "client $CLIENT: $why"
	EOF
}

# Somebody reads all files again and again while connections come and go.
read_meanwhile() {
	need_ours
	server_dir /export
	server <<-'EOF'
		rm -f /run/$TEST.*
		(
			looks=0 found=0
			while [ ! -f /run/$TEST.stop ]; do
				cat $debug/*/* >/run/$TEST.read 2>/dev/null || true
				looks=$((looks + 1))
				now=$(grep -c '^state connected' /run/$TEST.read || true)
				found=$((found + now))
				echo $looks $found >/run/$TEST.now
				mv /run/$TEST.now /run/$TEST.looks
			done
			touch /run/$TEST.stopped
		) >/dev/null 2>&1 &
	EOF
	defer server 'rm /run/$TEST.*'
	defer server 'touch /run/$TEST.stop; wait_for 20 test -f /run/$TEST.stopped'
	LIMIT=120 client <<-'EOF'
		for i in {1..5}; do
			mount_nfs 3 nconnect=4
			for n in {1..12}; do : >$MNT/$TEST/$n; done
			break_connections
			for n in {1..12}; do : >$MNT/$TEST/$n; done
			umount $MNT
		done
		wait_for 10 module_unused
	EOF
	server <<-'EOF'
		read -r looks found </run/$TEST.looks
		printf '%d looks found %d connections\n' $looks $found
		[ $looks -ge 5 ] && [ $found -gt 0 ]
	EOF
}

# lockdep knows each lock by the name that it was given, once somebody has taken it: so it does
# after a connection
# with data and its end, but for the locks of what goes wrong (rpcrdma_unanswerable, rpcrdma_log).
locks_have_classes() {
	server '[ -d $debug ]' || skip "the kernel's own server has no such locks"
	server '[ -f /proc/lockdep ]' || skip "the server's kernel has no lockdep"
	server_dir /export
	mount_nfs 3
	do_something
	client 'umount $MNT && wait_for 10 module_unused'
	server <<-'EOF'
		clients_gone 20
		for name in listener connect_requests device_users ends incoming send recv bc; do
			grep -qE ": rpcrdma_$name(#[0-9]+)?$" /proc/lockdep ||
				fail "there is no class rpcrdma_$name"
		done
	EOF
}

# rpcrdma-top, on a copy of the server's files.
top_shows() {
	local copy text client device words
	need_ours
	need_top
	client=$(server 'echo $CLIENT') device=$(server 'echo $RDMA_LINK')
	server_dir /export
	mount_nfs 3
	do_something
	top_copies server
	text=$(top_of)
	printf '%s\n' "$text"
	words="${client//./\\.} +connected +- +[0-9.]+ +[0-9.]+ +<[0-9]+[mu]?s +<[0-9]+[mu]?s"
	[ "$(grep -cE "^ *[0-9]+ +$words +0( |$)" <<<"$text")" = 1 ]
	[ "$(wc -L <<<"$text")" -le 80 ]
	[ "$(grep -cE '^ *[0-9]+ +(0\.0\.0\.0|::) +20049 +[01] ' <<<"$text")" = 2 ]
	text=$(top_of --details)
	printf '%s\n' "$text"
	[ "$(grep -c "^connection [0-9]*: client $client port " <<<"$text")" = 1 ]
	grep -q "^  connected for [0-9]*s by $device/1 " <<<"$text"
	grep -qE '^  read +inline +[0-9]+$' <<<"$text"
	grep -qE '^  executing +[0-9]+ ' <<<"$text"
	top_of --json >"$copy/json"
	python - "$copy" <<-'EOF'
		import json, pathlib, sys
		root = pathlib.Path(sys.argv[1])
		told = json.loads((root / "json").read_text())
		debug = root / "sys/kernel/debug/rpcrdma"
		assert len(told["connections"]) == 1 and len(told["listeners"]) == 2, told
		for connection in told["connections"]:
		    folder = debug / f"connection-{connection['number']}"
		    for name in ("connection", "stats"):
		        lines = (f"{key} {value}" for key, value in connection[name].items())
		        there = sorted((folder / name).read_text().splitlines())
		        assert sorted(lines) == there, name
		    line = "{step} {below_ns} {count}"
		    lines = (line.format(**entry) for entry in connection["latency"])
		    assert sorted(lines) == sorted((folder / "latency").read_text().splitlines())
		for listener in told["listeners"]:
		    folder = debug / f"listener-{listener['number']}"
		    lines = (f"{key} {value}" for key, value in listener["listener"].items())
		    assert sorted(lines) == sorted((folder / "listener").read_text().splitlines())
	EOF
	# What a client that keeps to the rules, and has room, does not bring about.
	sed -i -e 's/^send_queue_full 0$/send_queue_full 2/' \
		-e 's/^excess_calls 0$/excess_calls 30/' \
		-e 's/^option_errors_sent 0$/option_errors_sent 400/' \
		"$copy"/sys/kernel/debug/rpcrdma/connection-*/stats
	[ "$(top_of | grep -cE "^ *[0-9]+ +$words +430( |$)")" = 1 ] || fail "$(top_of)"
	text=$(top_of --details)
	grep -qx '  waits: 2 send_queue_full' <<<"$text" || fail "$text"
	grep -qx '  errors: 30 excess_calls, 400 option_errors_sent' <<<"$text" || fail "$text"
}

test_case "the counters of a connection agree with the client's" counters_agree
test_case "the oldest Call is seen beside later ones that are answered" oldest_call_is_seen
test_case "connections have a completion queue each" queues_are_apart
test_case "the settings have their ranges, and writes set counters to zero" settings
test_case "connections that come later have the settings" settings_count
test_case "connections end for the causes that ended them" ends_have_causes
test_case "the ends of many connections are counted, and are no failures" many_end
test_case "connections that fail leave a line in the log, but not too many" failures_are_told
test_case "the trace events tell what happens" events_tell
test_case "the trace events tell the contexts of Replies apart" contexts_are_told_apart
test_case "the trace events tell what a requester does wrong" wrongs_are_traced
test_case "the files are read while connections come and go" read_meanwhile
test_case "lockdep knows its locks by their names" locks_have_classes
test_case "rpcrdma-top shows it" top_shows
run_cases
