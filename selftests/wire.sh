#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What travels, in the eyes of another decoder: a capture of a whole mount goes through Wireshark's
# dissector, which must find nothing malformed, and the same in every header as rpcrdma-decode, which
# is our decoder.

. "$(dirname "$0")/lib/test.sh"

# The commands of the host's build root.
in_root() { BIND=$RUN "$(dirname "$VM_LIB")/in-buildroot.sh" "$@"; }

# Two passes, as Wireshark itself makes: in a first one its NFS dissector calls replies malformed
# whose data was placed directly.
wireshark() {
	in_root tshark -2 -r "$RUN/wire.pcap" --enable-heuristic rpcrdma_infiniband "$@" 2>"$RUN/wire.tshark" || {
		cat "$RUN/wire.tshark"
		fail "tshark cannot read the capture"
	}
}

# Prints these fields of all frames that a filter lets through: fields FILTER FIELD...
fields() {
	local filter=$1 field arguments=()
	shift
	for field; do
		arguments+=(-e "$field")
	done
	wireshark -Y "$filter" -T fields "${arguments[@]}"
}

# A Send that rxe repeats, because its acknowledgement took so long, is no second message.
drop_repeated() {
	local frames
	fields 'infiniband.bth.opcode in {0..5, 22, 23}' \
		frame.number ip.src infiniband.bth.destqp infiniband.bth.psn infiniband.bth.opcode |
		awk '{ frame = $1; $1 = "" } seen[$0]++ { print frame }' >"$RUN/wire.repeated"
	mapfile -t frames <"$RUN/wire.repeated"
	[ ${#frames[@]} -gt 0 ] || return 0
	printf '%6d packets of Sends, repeated by rxe\n' ${#frames[@]}
	in_root editcap -F pcap "$RUN/wire.pcap" "$RUN/wire.once" "${frames[@]}"
	mv "$RUN/wire.once" "$RUN/wire.pcap"
}

capture_begins() {
	client_background capture 'exec tcpdump -i $NETDEV -Z root -s 0 -B 16384 -U -w /run/wire.pcap udp port 4791 2>/run/wire.log'
	defer 'client "rm -f /run/wire.*"'
	defer 'client "! pkill -INT -x tcpdump || wait_for 30 test -f /run/job.capture.status"'
	client 'wait_for 30 grep -qs "listening on" /run/wire.log'
}

# The connection's end, a DREP of the connection manager, is the last that there is to wait for.
capture_ends() {
	client '
		ended() { tcpdump -r /run/wire.pcap "udp[8] = 0x64 and udp[44:2] = 0x16" 2>/dev/null | grep -q .; }
		wait_for 30 ended
		pkill -INT -x tcpdump'
	client_wait capture
	client 'cat /run/wire.log; grep -q "^0 packets dropped" /run/wire.log'
	client 'gzip -c /run/wire.pcap | base64' | base64 -d | gzip -d >"$RUN/wire.pcap"
	drop_repeated
	in_root "$DECODE" --json "$RUN/wire.pcap" >"$RUN/wire.json"
}

# A list of names, of ACL entries or attributes, and data of every size go over the wire both ways.
work() {
	client "
		cd \$MNT/$TEST
		for size in 0 1 500 1025 3000 4096 70001 300000; do
			head -c \$size /dev/urandom >data.\$size
		done
		for i in {1..200}; do : >\"an entry whose name has some length, number \$i\"; done
		ln -s \$(head -c 3060 /dev/urandom | base64 -w 0 | tr / _) link
		sha256sum data.* >/run/$TEST.sums
		sync -f .
		drop_caches
		sha256sum --quiet -c /run/$TEST.sums
		[ \$(ls | wc -l) = 209 ]
		rm /run/$TEST.sums"
	case $1 in
	3)
		# More entries go into a Call than fit inline.
		client "
			cd \$MNT/$TEST
			for i in {1..165}; do printf 'user:%d:r-x\ngroup:%d:-w-\n' \$((10000 + i)) \$((20000 + i)); done >/run/$TEST.acl
			setfacl -n -M /run/$TEST.acl data.1
			rm /run/$TEST.acl"
		;;
	*)
		client "
			cd \$MNT/$TEST
			setfattr -n user.wire -v \"\$(head -c 12288 /dev/urandom | base64 -w 0)\" data.1
			drop_caches
			[ \$(getfattr --only-values -n user.wire data.1 | wc -c) = 16384 ]"
		;;
	esac
}

# Each form must have been there, or the comparison says nothing about it: seen NAME JQ-CONDITION.
seen() {
	local count
	count=$(in_root jq -s "map(select(has(\"xid\") and ($2))) | length" "$RUN/wire.json")
	printf '%6d %s\n' "$count" "$1"
	[ "$count" -gt 0 ] || fail "there is no message with this: $1"
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

nothing_malformed() {
	# RDMA Writes and answers to RDMA Reads carry file data alone, in whose first bytes tshark looks
	# for an Ethernet type.
	wireshark -Y '_ws.malformed && !(infiniband.bth.opcode >= 6 && infiniband.bth.opcode <= 16)' >"$RUN/wire.malformed"
	[ ! -s "$RUN/wire.malformed" ] || {
		head -n 20 "$RUN/wire.malformed"
		fail "tshark calls these malformed"
	}
	in_root jq -c 'select(has("refused"))' "$RUN/wire.json" >"$RUN/wire.refused"
	[ ! -s "$RUN/wire.refused" ] || {
		head -n 20 "$RUN/wire.refused"
		fail "rpcrdma-decode refuses these"
	}
	printf '%6d messages, none of them malformed\n' "$(fields rpcordma frame.number | wc -l)"
}

# same WHAT: wire.theirs and wire.ours are.
same() {
	[ -s "$RUN/wire.theirs" ] || fail "there are no $1 to compare"
	diff -u "$RUN/wire.theirs" "$RUN/wire.ours" >"$RUN/wire.diff" || {
		head -n 40 "$RUN/wire.diff"
		fail "tshark (-) and rpcrdma-decode (+) do not see the same $1"
	}
	printf '%6d %s are the same\n' "$(wc -l <"$RUN/wire.theirs")" "$1"
}

same_headers() {
	fields rpcordma frame.number rpcordma.xid rpcordma.version rpcordma.flow_control rpcordma.msg_type rpcordma.errcode \
		rpcordma.reads_count rpcordma.writes_count rpcordma.reply_count rpcordma.segment_count rpcordma.position \
		rpcordma.rdma_handle rpcordma.rdma_length rpcordma.rdma_offset >"$RUN/wire.theirs"
	in_root jq -r -f "$lib/wire.jq" "$RUN/wire.json" >"$RUN/wire.ours"
	same headers
	# Only or last packet of a Send, with or without a key to invalidate.
	fields 'infiniband.bth.opcode in {2, 4, 22, 23}' frame.number >"$RUN/wire.theirs"
	cut -f 1 "$RUN/wire.ours" >"$RUN/wire.frames"
	mv "$RUN/wire.frames" "$RUN/wire.ours"
	same Sends
}

same_private_data() {
	local attribute frame data send receive invalidation
	fields 'infiniband.mad.attributeid in {0x10, 0x13}' frame.number infiniband.mad.attributeid \
		infiniband.cm.req.ip_cm.private infiniband.cm.rep.private |
		while IFS=$'\t' read -r frame attribute data; do
			data=${data//$'\t'/}
			printf '%d %d %s\n' "$frame" "$attribute" "${data:0:16}"
		done >"$RUN/wire.theirs"
	in_root jq -r 'select(.private_data) | [.frame, {REQ: 16, REP: 19}[.cm],
		(.private_data | .send, .receive, if .remote_invalidation then 1 else 0 end)] | join(" ")' "$RUN/wire.json" |
		while read -r frame attribute send receive invalidation; do
			printf '%d %d f6ab0e1801%02x%02x%02x\n' "$frame" "$attribute" "$invalidation" \
				$((send / 1024 - 1)) $((receive / 1024 - 1))
		done >"$RUN/wire.ours"
	same "messages with private data"
}

# Whether these fields of all frames are the same: always WHAT VALUES <FIELDS.
always() {
	tr '\t' ' ' | sort -u >"$RUN/wire.values"
	[ "$(<"$RUN/wire.values")" = "$2" ] || {
		cat "$RUN/wire.values"
		fail "$1 should be $2"
	}
}

# What the REQ asks for: the service identifier of TCP port 20049 (IBA annex A11), a reliable connection,
# no flow control, 6 retries of what is lost and as many of what finds no Receive, no RDMA Read of our own
# but as many of the peer's as rxe can serve.
parameters() {
	local req=infiniband.cm.req
	fields $req $req.{serviceid,transpsvctype,srq,e2eflowctrl,retrcount,rnrretrcount,initdepth,responderres} |
		always 'the parameters of the connection' '0x0000000001064e51 0x00 0x00 0x00 0x06 0x06 0x00 0x80'
}

# What a session may send backward: 16 Calls of a page each, less what comes before an RPC message.
# Each field is there for both directions.
back_channel() {
	fields 'nfs.opcode == 43 && rpc.msgtyp == 0' nfs.maxreqsize4 nfs.maxreqs4 | tr ',' '\t' | cut -f 2,4 |
		always 'size and number of backward Calls' '4068 16'
}

needed() {
	[ "${TRANSPORT:-rxe}" = rxe ] || skip "only rxe sends RoCEv2"
	[ -x "$DECODE" ] || skip "rpcrdma-decode is not built, see README.rst"
	in_root sh -c 'command -v tshark && command -v editcap && command -v jq' >/dev/null ||
		skip "tshark, editcap and jq could not be added to the build root"
}

# Proves: V1-119, V1-148, BD-020.
judge() {
	needed
	server_dir /export
	capture_begins
	mount_nfs "$1"
	work "$1"
	unmount_nfs
	capture_ends
	all_forms_seen
	nothing_malformed
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
	defer "server 'fsfreeze -u /export/disk 2>/dev/null || true'"
	server 'fsfreeze -f /export/disk'
	client_background create ': >$MNT/$TEST/file'
	client '
		connects_are_more() { [ "$(xprt_stat 3)" -ge 3 ]; }
		wait_for 40 connects_are_more'
	server 'fsfreeze -u /export/disk'
	client_wait create
	unmount_nfs
	capture_ends
	fields 'rpcordma.msg_type in {0, 1} && udp.dstport == 4791 && ip.src == '"$(client 'echo $CLIENT')" \
		rpcordma.xid infiniband.bth.destqp | sort >"$RUN/wire.calls"
	uniq -d "$RUN/wire.calls" >"$RUN/wire.twice"
	[ ! -s "$RUN/wire.twice" ] || fail "sent twice on one connection: $(<"$RUN/wire.twice")"
	cut -f 1 "$RUN/wire.calls" | uniq -c | sort -n | tail -n 1 >"$RUN/wire.most"
	printf '%d Calls, one of them on %d connections\n' "$(wc -l <"$RUN/wire.calls")" "$(awk '{ print $1 }' "$RUN/wire.most")"
	awk '$1 < 3 { exit 1 }' "$RUN/wire.most" || fail "no Call was sent on three connections"
}

test_case "v3: another decoder sees the same" judge 3
test_case "v4.2: another decoder sees the same" judge 4.2
test_case "v3: a Call never goes out twice on one connection" never_twice
run_cases
