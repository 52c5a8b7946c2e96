#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What one can look into: debugfs and the trace events tell what was made to happen, and rpcrdma-top
# shows it.

. "$(dirname "$0")/lib/test.sh"

here=$(cd "$(dirname "$0")" && pwd)
guest_add <"$lib/inject-guest.sh"

need_ours() { is_rust || skip "the kernel's own module has no such files"; }

# A value of debugfs becomes this: comes_to SECONDS NAME VALUE.
comes_to() {
	client name="$2" value="$3" limit="$1" \
		'is() { [ "$(our_stat $name)" = "$value" ]; }; wait_for $limit is' ||
		fail "$2 is not $3 but '$(client name="$2" 'our_stat $name')'"
}

# Each line "NAME VALUE" of the input is what debugfs has.
guest_add <<-'EOF'
	values_are() {
		local name value found rc=0
		while read -r name value; do
			found=$(our_stat $name)
			[ "$found" = "$value" ] || {
				printf '%s is %s, not %s\n' "$name" "$found" "$value"
				rc=1
			}
		done
		return $rc
	}
EOF

# Reads and writes data, names and a directory: all forms but a Position Zero chunk.
do_something() {
	client <<-'EOF'
		dir=$MNT/$TEST
		head -c 300K /dev/urandom >$dir/data
		sync $dir/data
		for i in {1..400}; do : >"$dir/an entry whose name has some length, number $i"; done
		drop_caches
		[ $(cat $dir/data | wc -c) = 307200 ]
		[ $(ls $dir | wc -l) = 401 ]
	EOF
}

# Proves: BD-012.
counters_agree() {
	need_ours
	server_dir /export
	client '[ -f /proc/sys/sunrpc/rdma_max_inline_read ]' ||
		skip "the settings need CONFIG_SUNRPC_DEBUG"
	defer client 'sysctl -q sunrpc.rdma_max_inline_read=4096 sunrpc.rdma_max_inline_write=4096'
	client 'sysctl -q sunrpc.rdma_max_inline_read=8192 sunrpc.rdma_max_inline_write=2048'
	mount_nfs 3
	do_something
	# The server speaks of 4096 both ways.
	client <<-'EOF'
		values_are <<-END
			state connected
			peer $SERVER
			peer_port 20049
			source $CLIENT
			device $RDMA_LINK
			device_port 1
			connects 1
			own_send 2048
			own_receive 8192
			peer_send 4096
			peer_receive 4096
			inline_send 2048
			inline_receive 4096
			credits_requested $(sysctl -n sunrpc.rdma_slot_table_entries)
			regions_idle $(our_stat regions_allocated)
			regions_offered 0
			regions_invalidating 0
			credits_in_use 0
			bad_replies 0
			dropped_messages 0
			last_end
			last_failure
		END
	EOF
	client <<-'EOF'
		listed() { rdma resource show $1 | grep "$2 $(our_stat $3) .*rpcrdma" ||
			fail "rdma resource does not have the $3"; }
		listed cm_id lqpn queue_pair
		listed cq cqn completion_queue
		buffers=$(our_stat receive_buffers)
		[ $(our_stat receives_posted) -gt $((buffers - 8)) ] ||
			fail "more than a batch of Receives is not posted"
		least=$(($(our_stat credits_requested) + 16))
		[ $((buffers - 7)) -ge $least ] ||
			fail "$buffers buffers are too few for $least Receives beside a batch"
		sum() { local sum=0 name; for name; do sum=$((sum + $(our_stat $name))); done
		echo $sum; }
		sent=$(sum inline_calls read_chunk_calls position_zero_calls)
		expected=$(sum inline_replies_expected write_chunk_calls reply_chunk_calls)
		[ $sent = $(xprt_stat 6) ] ||
			fail "mountstats counts $(xprt_stat 6) Calls, and debugfs $sent"
		[ $expected = $sent ] || fail "$sent Calls expect $expected Replies"
		# do_something writes as many.
		[ $(our_stat call_bytes) -ge $((307200 + $(our_stat pullup_bytes))) ] ||
			fail "$(our_stat call_bytes) bytes, $(our_stat pullup_bytes) inline"
		cd /sys/kernel/debug/rpcrdma/[0-9]*
		of() { awk -v call=$1 -v reply=$2 \
			'(call == "any" || $1 == call) && (reply == "any" || $2 == reply) {
				sum += $4 } END { print sum + 0 }' latency; }
		[ $(of any any) = $(xprt_stat 7) ] ||
			fail "mountstats has $(xprt_stat 7) Replies, the histograms $(of any any)"
		[ $(of inline any) = $(our_stat inline_calls) ]
		[ $(of read any) = $(our_stat read_chunk_calls) ]
		[ $(of any write) = $(our_stat write_chunk_calls) ]
		[ $(of any reply) = $(our_stat reply_chunk_calls) ]
		for name in read_chunk_calls write_chunk_calls reply_chunk_calls; do
			[ $(our_stat $name) -gt 0 ] || fail "no $name"
		done
		for limit in $(awk '$3 != "inf" { print $3 }' latency); do
			[ $limit -ge 1024 ] && [ $((limit & (limit - 1))) = 0 ] ||
				fail "$limit ns is no limit of a class"
		done
	EOF
}

# There are Send buffers up to a limit. With more Calls than that the others wait until some have
# arrived.
sends_run_out() {
	local slots=/proc/sys/sunrpc/rdma_slot_table_entries
	need_ours
	server_dir /export
	server_set max_requests 256
	defer client file=$slots value="$(client file=$slots 'cat $file')" 'echo $value >$file'
	client file=$slots 'echo 256 >$file'
	mount_nfs 3
	client 'data_file 4M 4k'
	netem_begins client
	netem client 'delay 500ms'
	client 'read_ahead 240 4M 4k'
	[ "$(client 'our_stat credits_granted')" -gt 128 ] ||
		skip "the server has no memory for the Receives of more Calls than buffers"
	client <<-'EOF'
		[ $(our_stat send_queue_full) -gt 0 ] || fail 'all had a send buffer'
		[ $(our_stat send_buffers) -lt 240 ]
		[ $(xprt_stat 26) = $(our_stat send_queue_full) ] ||
			fail "mountstats says $(xprt_stat 26)"
		printf '%d buffers; %d times none\n' \
			$(our_stat send_buffers) $(our_stat send_queue_full)
	EOF
	comes_to 10 credits_in_use 0
}

# NFSv4 lowers the timeouts of its transports to the server's lease.
lease_lowers_timeouts() {
	need_ours
	server_dir /export
	server_lease 20
	mount_nfs 3
	client <<-'EOF'
		values_are <<-END
			connect_timeout_ms 60000
			max_reconnect_timeout_ms 15000
		END
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
	mount_nfs 4.2
	client <<-'EOF'
		values_are <<-END
			connect_timeout_ms 20000
			max_reconnect_timeout_ms 10000
		END
	EOF
}

# The server goes and comes back; then fault injection and a removal of the device end connections.
ends_have_causes() {
	local mark
	need_ours
	server_dir /export
	mount_nfs 3
	client 'ls $MNT >/dev/null'
	defer server '[ $(cat /proc/fs/nfsd/threads) != 0 ] || /lab/guest/server resume'
	server '/lab/guest/server stop'
	comes_to 10 ended_disconnected 1
	comes_to 1 last_end disconnected
	mark=$(client log_mark)
	client_background listing 'ls $MNT >/dev/null'
	client <<-'EOF'
		refused() { [ "$(our_stat connect_failed_rejected)" -ge 1 ]; }
		wait_for 30 refused
	EOF
	comes_to 1 last_failure rejected
	server '/lab/guest/server resume'
	client_wait listing
	client <<-'EOF'
		values_are <<-END
			state connected
			connects 2
			ended_disconnected 1
			last_end disconnected
		END
	EOF
	client mark="$mark" <<-'EOF'
		log_since $mark | grep 'rpcrdma: server' >/run/$TEST.log
		cat /run/$TEST.log
		[ $(wc -l </run/$TEST.log) = 1 ] ||
			fail 'that is not one line for a series of failures'
		line="server $SERVER port 20049 (xprt [0-9]*): device $RDMA_LINK: "
		grep -q "$line.*the peer rejected the connection (" /run/$TEST.log
		rm /run/$TEST.log
	EOF

	needs_machines "goes on by taking the client's RDMA device away"
	defer client rdma_link_add
	LIMIT=30 client 'rdma link delete $RDMA_LINK'
	comes_to 10 ended_device_removed 1
	client rdma_link_add
	client 'ls $MNT/$TEST >/dev/null'
	comes_to 1 last_end device_removed

	need_injection client
	defer client inject_ends
	client 'inject_begins 100 1'
	client 'drop_caches; ls $MNT/$TEST >/dev/null'
	comes_to 10 ended_injected 1
	client 'drop_caches; ls $MNT/$TEST >/dev/null'
}

trace_is_off() { client 'echo 0 >$TRACING/events/rpcrdma/enable; echo >$TRACING/trace'; }

# Each of these is seen: seen NAME...
seen() {
	client names="$*" <<-'EOF'
		missing=
		for name in $names; do grep -q " xprtrdma_$name: " /sys/kernel/tracing/trace ||
			missing+=" $name"; done
		[ -z "$missing" ] || fail "not seen:$missing"
	EOF
}

events_tell() {
	need_ours
	client '[ -d /sys/kernel/tracing/events/rpcrdma ]' || skip "the kernel has no tracepoints"
	server_dir /export
	defer trace_is_off
	trace_is_off
	defer client size="$(client 'cut -d " " -f 1 $TRACING/buffer_size_kb')" \
		'echo $size >$TRACING/buffer_size_kb'
	client <<-'EOF'
		echo 16384 >/sys/kernel/tracing/buffer_size_kb
		echo 1 >/sys/kernel/tracing/events/rpcrdma/enable
	EOF
	mount_nfs 4.2
	do_something
	seen op_connect connect inline_thresh createmrs frwr_alloc post_recvs post_recv \
		wc_receive marshal chunk_read \
		chunk_write chunk_reply mr_map mr_fastreg post_send wc_send reply mr_reminv \
		mr_unmap cb_setup op_set_cto
	client <<-'EOF'
		trace=/sys/kernel/tracing/trace
		count() { grep -c " xprtrdma_$1: " $trace || true; }
		[ $(count marshal) = $(count post_send) ] ||
			fail "$(count marshal) Calls, $(count post_send) Sends"
		[ $(count marshal) = $(xprt_stat 6) ] ||
			fail "$(count marshal) Calls, $(xprt_stat 6) in mountstats"
		[ $(count reply) = $(xprt_stat 7) ] ||
			fail "$(count reply) Replies, $(xprt_stat 7) in mountstats"
		[ $(count chunk_read) = $(xprt_stat 11) ]
		[ $(count chunk_write) = $(xprt_stat 12) ]
		[ $(count chunk_reply) = $(xprt_stat 13) ]
		[ $(count mr_reminv) = $(our_stat remote_invalidations) ]
		[ $(count mr_localinv) = $(our_stat local_invalidations) ]
		signaled=$(grep -c " xprtrdma_post_send: .* signaled$" $trace)
		[ $((signaled * 8)) -lt $(count post_send) ] ||
			fail "$signaled of $(count post_send) Sends were signalled"
		grep -q " xprtrdma_connect: xprt=[0-9]* rc=0$" $trace
		grep -q " xprtrdma_post_send: cq.id=$(our_stat completion_queue) " $trace
		xids() { sed -n "s/.* xprtrdma_$1: .*$2\([0-9a-f]\{8\}\).*/\1/p" $trace | sort -u; }
		forms() { grep -q " xprtrdma_marshal: .* $1$" $trace || fail "no $1"; }
		forms "pullup/inline"
		forms "read list/inline"
		forms "pullup/write list"
		[ "$(xids marshal xid=0x)" = "$(xids reply xid=0x)" ] ||
			fail "not every Call has its Reply"
		# The XID is in the offset of each region, which is why it names no kernel address.
		[ -n "$(xids mr_map @0x)" ]
		[ "$(xids mr_map @0x)" = "$(xids "chunk_[a-z]*" @0x)" ]
		if grep -E "(^|[^0-9a-f])ffff[89a-f][0-9a-f]{11}([^0-9a-f]|$)" $trace; then
			fail "a kernel address is in the trace"
		fi
	EOF
	backward_call
	seen cb_call cb_reply
	client 'umount $MNT && wait_for 10 module_unused'
	seen disconnect frwr_dereg
	client 'grep -q " xprtrdma_disconnect: xprt=[0-9]* cause=closed$" /sys/kernel/tracing/trace'
	client 'echo >/sys/kernel/tracing/trace; ! mount_nfs 4.2 retry=0,port=20050 2>/dev/null'
	seen connect
	client <<-'EOF'
		grep -q " xprtrdma_connect: xprt=[0-9]* rc=-111 cause=rejected$" \
			/sys/kernel/tracing/trace
	EOF
	trace_is_off
	mount_nfs 3
	client 'ls $MNT >/dev/null; ! grep xprtrdma_ /sys/kernel/tracing/trace'
}

# Scripts of perf and bpftrace read fields by their names, which are those of the kernel's own
# module.
fields_are_those_of_c() {
	client '[ -d /sys/kernel/tracing/events/rpcrdma ]' || skip "the kernel has no tracepoints"
	server_dir /export
	mount_nfs 3
	client <<-'EOF'
		has() {
			local event=$1 field
			shift
			for field; do
				grep -q "field:.* $field;" $TRACING/events/rpcrdma/$event/format ||
					fail "$event has no $field"
			done
		}
		has xprtrdma_op_connect delay
		has xprtrdma_inline_thresh inline_send inline_recv max_send max_recv
		has xprtrdma_createmrs count
		has xprtrdma_chunk_read task_id client_id pos handle length offset is_last
		has xprtrdma_marshal task_id client_id xid hdrlen headlen pagelen taillen \
			rtype wtype
		grep -q '{ 3, "read list" }.*{ 4, "\*read list" }.*{ 5, "write list" }' \
			$TRACING/events/rpcrdma/xprtrdma_marshal/format ||
			fail "rtype and wtype are not those of C"
		has xprtrdma_marshal_failed task_id client_id xid ret
		has xprtrdma_post_send cq_id completion_id signaled
		has xprtrdma_post_send_err cq_id rc
		has xprtrdma_post_recvs cq_id count
		has xprtrdma_post_recvs_err cq_id status
		has xprtrdma_wc_receive cq_id completion_id received status vendor_err
		has xprtrdma_wc_send cq_id completion_id status vendor_err
		has xprtrdma_mr_map mr_id nents handle length offset dir
		has xprtrdma_frwr_maperr mr_id nents num_mapped
		has xprtrdma_reply task_id client_id xid credits
		has xprtrdma_reply_hdr_err xid version proc
		has xprtrdma_fixup task_id client_id fixup headlen pagelen taillen
		has xprtrdma_cb_setup reqs
		has svcrdma_wc_recv cq_id completion_id received
		has svcrdma_wc_read cq_id completion_id totalbytes read_latency
		has svcrdma_wc_write_err cq_id completion_id status vendor_err
		has svcrdma_rq_post_err status
		has svcrdma_post_send cq_id completion_id num_sge inv_rkey
		has svcrdma_post_read_chunk cq_id completion_id sqecount
		has svcrdma_sq_full cq_id avail depth
		has svcrdma_decode_rqst cq_id completion_id xid vers credits proc hdrlen
		has svcrdma_encode_wseg cq_id completion_id segno handle length offset
		has svcrdma_send_err xid status
	EOF
}

# Replies open the window again, Call by Call.
first_credit() {
	server_dir /export
	mount_nfs 3
	trace_begins client rpcrdma/xprtrdma_op_connect sunrpc/xprt_get_cong
	client <<-'EOF'
		windows() { sed "1,/$1/d" $TRACING/trace |
			sed -n "s/.* xprt_get_cong: .* cwnd=\([0-9]*\).*/\1/p"; }
		trace_mark "Calls on the first connection"
		ls $MNT/$TEST
		[ $(windows "Calls on the first connection" | tail -n 1) -gt 256 ] ||
			fail "the window has not opened"
		break_connections
		drop_caches
		: >$MNT/$TEST/file
		windows xprtrdma_op_connect: >/run/$TEST.windows
		printf "congestion windows: %s\n" "$(tr "\n" " " </run/$TEST.windows)"
		[ $(head -n 1 /run/$TEST.windows) = 256 ] ||
			fail "the first Call has more than one credit"
		[ $(tail -n 1 /run/$TEST.windows) -gt 256 ]
		rm /run/$TEST.windows
		umount $MNT
		wait_for 10 module_unused
	EOF
}

# Somebody reads all files again and again while mounts and connections come and go.
read_meanwhile() {
	needs_machines "takes the client's RDMA device away"
	need_ours
	client 'rm -f /run/$TEST.*'
	client_background reader <<-'EOF'
		looks=0 states=
		while [ ! -f /run/$TEST.stop ]; do
			cat /sys/kernel/debug/rpcrdma/*/* >/run/$TEST.read 2>/dev/null || true
			states+=$(sed -n 's/^state/ /p' /run/$TEST.read)
			looks=$((looks + 1))
			echo $looks >/run/$TEST.looks
		done
		[[ $states = *' connected'* ]] || fail 'no look was at a connection'
	EOF
	defer client 'touch /run/$TEST.stop'
	defer unmount_nfs
	defer client rdma_link_add
	LIMIT=120 client <<-'EOF'
		looks() { [ $(cat /run/$TEST.looks 2>/dev/null || echo 0) -ge $1 ]; }
		wait_for 10 looks 1
		for i in {1..4}; do
			mount_nfs 3
			ls $MNT >/dev/null
			if [ $i = 2 ]; then
				rdma link delete $RDMA_LINK
				rdma_link_add
			fi
			# Not in the middle of one look, but of several.
			wait_for 20 looks $(($(cat /run/$TEST.looks) + 5))
			umount $MNT
		done
		wait_for 10 module_unused
		touch /run/$TEST.stop
	EOF
	client_wait reader
	client 'rm -f /run/$TEST.*'
	# Of the connection that went with the device it may not know.
	server_anew
}

# rpcrdma-top, on a copy of the client's files.
top_shows() {
	local copy text server device words
	need_ours
	need_top
	server=$(client 'echo $SERVER') device=$(client 'echo $RDMA_LINK')
	server_dir /export
	mount_nfs 4.2 nconnect=2
	do_something
	top_copies client
	# Any user may choose such a name for a place to mount something.
	printf '99 1 0:99 / /tmp/\351\fname rw - fuse none rw\n' >>"$copy/proc/self/mountinfo"
	text=$(top_of)
	printf '%s\n' "$text"
	[ "$(wc -l <<<"$text")" = 3 ]
	[ "$(wc -L <<<"$text")" -le 80 ]
	words="${server//./\\.} +connected +[0-9s-]+ +[0-9.]+ +[0-9.]+"
	words+=" +<[0-9]+[mu]?s +<[0-9]+[mu]?s +-"
	[ "$(grep -cE "^ *[0-9]+ +$words" <<<"$text")" = 2 ] ||
		fail "that is not a line for each connection"
	text=$(top_of --details)
	printf '%s\n' "$text"
	[ "$(grep -A 1 "^transport .*: $server port 20049$" <<<"$text" |
		grep -cx '  mounts: /mnt/nfs')" = 2 ]
	[ "$(grep -c "^  for [0-9]*s by $device/1 " <<<"$text")" = 2 ]
	grep -qE '^  inline +reply +[0-9]+ ' <<<"$text"
	top_of --json >"$copy/json"
	python - "$copy" <<-'EOF'
		import json, pathlib, sys
		root = pathlib.Path(sys.argv[1])
		told = json.loads((root / "json").read_text())["transports"]
		debug = root / "sys/kernel/debug/rpcrdma"
		folders = sorted(debug.iterdir(), key=lambda path: int(path.name))
		numbers = [int(path.name) for path in folders]
		assert [transport["xprt"] for transport in told] == numbers, told
		for transport, folder in zip(told, folders):
		    for name in ("connection", "stats"):
		        lines = (f"{key} {value}" for key, value in transport[name].items())
		        there = sorted((folder / name).read_text().splitlines())
		        assert sorted(lines) == there, name
		    line = "{call} {reply} {below_ns} {count}"
		    lines = (line.format(**entry) for entry in transport["latency"])
		    assert sorted(lines) == sorted((folder / "latency").read_text().splitlines())
		    assert transport["mounts"] == ["/mnt/nfs"]
		assert sum(transport["stats"]["inline_calls"] for transport in told) > 400
	EOF
	# What an honest server does not bring about.
	sed -i -e 's/^option_errors_sent 0$/option_errors_sent 2/' \
		-e 's/^option_errors_received 0$/option_errors_received 30/' \
		"$copy"/sys/kernel/debug/rpcrdma/*/stats
	[ "$(top_of --details |
		grep -cx '  errors: 2 option_errors_sent, 30 option_errors_received')" = 2 ]
	top_of --check || fail "something is in trouble"
	rm -r "$copy/sys"
	! top_of 2>"$copy/error" || fail "it found something where nothing is"
	grep -q 'rpcrdma is missing' "$copy/error"
}

test_case "the counters agree with mountstats and with the settings" counters_agree
test_case "connections end for the causes that ended them" ends_have_causes
test_case "the trace events tell what happens" events_tell
test_case \
	"the fields of trace events have the names of the kernel's own module" fields_are_those_of_c
test_case "a short lease lowers the timeouts" lease_lowers_timeouts
test_case "v3: Calls wait for a place in the queue of Sends" sends_run_out
test_case "v3: a new connection has one credit" first_credit
test_case "the files are read while mounts and connections come and go" read_meanwhile
test_case "rpcrdma-top shows it" top_shows
run_cases
