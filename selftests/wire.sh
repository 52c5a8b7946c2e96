#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What travels, in the eyes of another decoder: a capture of a whole mount goes through Wireshark's
# dissector, which must find nothing malformed, and the same in every header as rpcrdma-decode, which
# is our decoder.
# virtual: captures packets, which no RDMA adapter shows

. "$(dirname "$0")/lib/capture.sh"

# A list of names, of ACL entries or attributes, and data of every size go over the wire both ways.
work() {
	client <<-'EOF'
		cd $MNT/$TEST
		for size in 0 1 500 1025 3000 4096 70001 300000; do
			head -c $size /dev/urandom >data.$size
		done
		for i in {1..200}; do : >"an entry whose name has some length, number $i"; done
		ln -s $(head -c 3060 /dev/urandom | base64 -w 0 | tr / _) link
		sha256sum data.* >/run/$TEST.sums
		sync -f .
		drop_caches
		sha256sum --quiet -c /run/$TEST.sums
		[ $(ls | wc -l) = 209 ]
		rm /run/$TEST.sums
	EOF
	case $1 in
	3)
		# More entries go into a Call than fit inline.
		client <<-'EOF'
			cd $MNT/$TEST
			for i in {1..165}; do printf 'user:%d:r-x\ngroup:%d:-w-\n' $((10000 + i)) $((20000 + i)); done >/run/$TEST.acl
			setfacl -n -M /run/$TEST.acl data.1
			rm /run/$TEST.acl
		EOF
		;;
	*)
		client <<-'EOF'
			cd $MNT/$TEST
			setfattr -n user.wire -v "$(attribute_value)" data.1
			drop_caches
			[ $(getfattr --only-values -n user.wire data.1 | wc -c) = 16384 ]
		EOF
		;;
	esac
}

all_forms_seen() {
	seen 'Calls inline' '.direction == "call" and .procedure == "RDMA_MSG" and .reads == []'
	seen 'Replies inline' '.direction == "reply" and .procedure == "RDMA_MSG" and .writes == []'
	seen 'Calls with a Read chunk' '.procedure == "RDMA_MSG" and .reads != []'
	seen 'Calls in a Position Zero chunk' '.procedure == "RDMA_NOMSG" and .direction == "call"'
	seen 'Calls that offer a Write chunk' '.direction == "call" and .writes != []'
	seen 'Replies with a Write chunk' '.direction == "reply" and .writes != []'
	seen 'Calls that offer a Reply chunk' '.direction == "call" and .reply != null'
	seen 'Replies in a Reply chunk' '.procedure == "RDMA_NOMSG" and .direction == "reply"'
}

same_headers() {
	fields rpcordma frame.number rpcordma.xid rpcordma.version rpcordma.flow_control rpcordma.msg_type rpcordma.errcode \
		rpcordma.reads_count rpcordma.writes_count rpcordma.reply_count rpcordma.segment_count rpcordma.position \
		rpcordma.rdma_handle rpcordma.rdma_length rpcordma.rdma_offset >"$files.theirs"
	in_root jq -r -f "$lib/wire.jq" "$files.json" >"$files.ours"
	same headers
	# Only or last packet of a Send, with or without a key to invalidate.
	fields 'infiniband.bth.opcode in {2, 4, 22, 23}' frame.number >"$files.theirs"
	cut -f 1 "$files.ours" >"$files.frames"
	mv "$files.frames" "$files.ours"
	same Sends
}

same_private_data() {
	local attribute frame data send receive invalidation
	fields 'infiniband.mad.attributeid in {0x10, 0x13}' frame.number infiniband.mad.attributeid \
		infiniband.cm.req.ip_cm.private infiniband.cm.rep.private |
		while IFS=$'\t' read -r frame attribute data; do
			data=${data//$'\t'/}
			printf '%d %d %s\n' "$frame" "$attribute" "${data:0:16}"
		done >"$files.theirs"
	in_root jq -r 'select(.private_data) | [.frame, {REQ: 16, REP: 19}[.cm],
		(.private_data | .send, .receive, if .remote_invalidation then 1 else 0 end)] | join(" ")' "$files.json" |
		while read -r frame attribute send receive invalidation; do
			printf '%d %d f6ab0e1801%02x%02x%02x\n' "$frame" "$attribute" "$invalidation" \
				$((send / 1024 - 1)) $((receive / 1024 - 1))
		done >"$files.ours"
	same "messages with private data"
}

# What the REQ asks for: the service identifier of TCP port 20049 (IBA annex A11), a reliable connection,
# no flow control, 6 retries of what is lost and as many of what finds no Receive, no RDMA Read of our own
# but as many of the peer's as rxe can serve.
parameters() {
	local req=infiniband.cm.req
	fields $req $req.{serviceid,transpsvctype,srq,e2eflowctrl,retrcount,rnrretrcount,initdepth,responderres} |
		always 'the parameters of the connection' '0x0000000001064e51 0x00 0x00 0x00 0x06 0x06 0x00 0x80'
	# The server reads, and no client does; it repeats what finds no Receive for ever.
	! is_served || fields infiniband.cm.rep infiniband.cm.rep.{initdepth,respres,rnrretrcount} |
		always 'what the server has accepted' '0x80 0x00 0x07'
}

# What a session may send backward: 16 Calls of a page each, less what comes before an RPC message.
# Each field is there for both directions. Neither the server's Calls nor the Replies to them invalidate.
back_channel() {
	local backward
	backward=$(client 'echo "rpc.msgtyp == 0 && ip.src == $SERVER || rpc.msgtyp == 1 && ip.src == $CLIENT"')
	fields 'nfs.opcode == 43 && rpc.msgtyp == 0' nfs.maxreqsize4 nfs.maxreqs4 | tr ',' '\t' | cut -f 2,4 |
		always 'size and number of backward Calls' '4068 16'
	fields "rpcordma.msg_type == 0 && ($backward)" infiniband.bth.opcode |
		always 'the kind of Send that backward messages are' 4
}

# Proves: V1-119, V1-148, BD-020, PD-022.
judge() {
	needed
	server_dir /export
	capture_begins
	mount_nfs "$1"
	work "$1"
	[ "$1" = 3 ] || backward_call
	unmount_nfs
	capture_ends
	all_forms_seen
	nothing_malformed rpcordma
	same_headers
	same_private_data
	parameters
	[ "$1" = 3 ] || back_channel
}

# A server that cannot write drops a Call that it has already: the client sends it again and again,
# but each time on another connection.
never_twice() {
	needed
	server_dir /export/disk
	capture_begins
	mount_nfs 3 timeo=30 /export/disk
	defer server 'fsfreeze -u /export/disk 2>/dev/null || true'
	server 'fsfreeze -f /export/disk'
	client_background create ': >$MNT/$TEST/file'
	client <<-'EOF'
		connects_are_more() { [ "$(xprt_stat 3)" -ge 3 ]; }
		wait_for 40 connects_are_more
	EOF
	server 'fsfreeze -u /export/disk'
	client_wait create
	unmount_nfs
	capture_ends
	fields 'rpcordma.msg_type in {0, 1} && udp.dstport == 4791 && ip.src == '"$(client 'echo $CLIENT')" \
		rpcordma.xid infiniband.bth.destqp | sort >"$files.calls"
	uniq -d "$files.calls" >"$files.twice"
	[ ! -s "$files.twice" ] || fail "sent twice on one connection: $(<"$files.twice")"
	cut -f 1 "$files.calls" | uniq -c | sort -n | tail -n 1 >"$files.most"
	printf '%d Calls, one of them on %d connections\n' "$(wc -l <"$files.calls")" "$(awk '{ print $1 }' "$files.most")"
	awk '$1 >= 3 { several = 1 } END { exit !several }' "$files.most" || fail "no Call was sent on three connections"
}

# With memory regions of so few pages a Call with a mebibyte has many, of which its Reply invalidates one.
# Proves: PD-006, PD-020.
one_of_several() {
	local sent
	needed
	is_rust || skip "the client tells nothing to compare with"
	is_served || skip "the kernel's own server invalidates none of several"
	server_dir /export
	limit_devices max_fast_reg_pages=19
	capture_begins
	mount_nfs 3
	client <<-'EOF'
		head -c 3M /dev/urandom >/run/$TEST.data
		dd if=/run/$TEST.data of=$MNT/$TEST/file bs=1M oflag=direct status=none
		dd if=$MNT/$TEST/file bs=1M iflag=direct status=none | cmp - /run/$TEST.data
		ls $MNT/$TEST >/dev/null
		# Regions that no Reply has invalidated go one after the other.
		back() { [ $(our_stat regions_idle) = $(our_stat regions_allocated) ]; }
		wait_for 10 back
	EOF
	sent=$(client 'echo $(our_stat remote_invalidations) $(our_stat local_invalidations)')
	sent+=" $(server 'stat_of remote_invalidations')"
	unmount_nfs
	capture_ends
	limits_end
	# Calls are Sends to the server, and what a Reply invalidates is in the packet.
	fields 'rpcordma.msg_type in {0, 1}' ip.src rpcordma.xid rpcordma.rdma_handle infiniband.ieth >"$files.handles"
	awk -F '\t' -v client="$(client 'echo $CLIENT')" -v sent="$sent" '
		$1 == client { handles[$2] = "," $3 ","; count[$2] = split($3, parts, ","); next }
		{
			# tshark has it twice, and without 0x.
			key = $4 == "" ? "" : "0x" substr($4, 1, 8)
			calls += count[$2] > 0
			several += count[$2] > 1
			all += count[$2]
			invalidated += key != ""
			if (count[$2] > 0 ? key == "" || !index(handles[$2], "," key ",") : key != "") {
				print "of " handles[$2] " it is " key
				bad = 1
			}
		}
		END {
			printf "%d Calls with %d handles, %d with several; %d Replies have invalidated one\n", calls, all, several, invalidated
			expected = invalidated " " all - invalidated " " invalidated
			if (sent != expected) { print "the ends have counted " sent ", and not " expected; bad = 1 }
			exit bad || several < 6 || invalidated != calls
		}' "$files.handles"
}

# Everything that these scenarios of selftests/peer do wrong has its words, and nothing else.
requester() {
	local scenarios=(too-many-segments too-many-chunks misfits position-zero cut versions not-calls beyond-the-grant)
	needed
	is_served || skip "the kernel's own server ends such connections"
	need_requester
	capture_begins
	LIMIT=120 client scenarios="${scenarios[*]}" \
		'/lab/payload/rpcrdma-peer --requester $SERVER $scenarios </dev/null' | squeeze
	client count="${#scenarios[@]}" <<-'EOF'
		ended() { [ $(tcpdump -r /run/$TEST.pcap 'udp[8] = 0x64 and udp[44:2] = 0x16' 2>/dev/null | wc -l) -ge $count ]; }
		wait_for 30 ended
	EOF
	capture_ends
	in_root jq -r --arg client "$(client 'echo $CLIENT')" \
		'select(.source == $client) | .wrong[]?.name, (.refused | values | .cause)' "$files.json" |
		sort | uniq -c | awk '{ print $2 == "Overrun" ? $2 : $2 " " $1 }' >"$files.ours"
	cat >"$files.theirs" <<-END
		MessageType 25
		NoChunks 1
		NoPositionZero 1
		Overrun
		PositionInRpcHeader 1
		PositionRange 4
		Procedure 4
		ReadSegments 2
		ReplySegments 1
		Short 3
		ShortPayload 4
		Truncated 5
		Unexpected 75
		Version 3
		WriteChunks 1
		WriteSegments 1
		WrongCount 4
	END
	diff "$files.theirs" "$files.ours" || fail "rpcrdma-decode (>) does not say what the requester has done wrong (<)"
}

# What the administrator wants the server to have under way is what it tells the device and the client.
few_reads() {
	needed
	is_served || skip "the kernel's own server does not look at the setting"
	server_dir /export
	server_set max_outbound_read_requests 4
	capture_begins
	mount_nfs 4.2
	unmount_nfs
	capture_ends
	fields infiniband.cm.rep infiniband.cm.rep.initdepth | always 'how many RDMA Reads may be under way' 0x04
}

test_case "v3: another decoder sees the same" judge 3
test_case "v4.2: another decoder sees the same" judge 4.2
test_case "v3: a Call never goes out twice on one connection" never_twice
test_case "v3: of several handles each Reply invalidates one" one_of_several
test_case "a requester that breaks rules, and what rpcrdma-decode says of it" requester
test_case "v4.2: few RDMA Reads at a time" few_reads
run_cases
