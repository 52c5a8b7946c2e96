#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What travels when Version Two is offered: Wireshark with the dissector in tools/ sees the same in every
# header as rpcrdma-decode, and the first messages of a connection agree on its version.
# virtual: captures packets, which no RDMA adapter shows

. "$(dirname "$0")/lib/capture.sh"
. "$(dirname "$0")/lib/version.sh"

dissectors=(-X "lua_script:$(cd "$(dirname "$0")/.." && pwd)/tools/rpcrdma-version-two.lua")

# Data and names both ways, in messages of every form.
work() {
	client <<-'EOF'
		cd $MNT/$TEST
		for size in 0 500 1500 3000 5000 70001; do head -c $size /dev/urandom >data.$size; done
		for i in {1..200}; do : >"an entry whose name has some length, number $i"; done
		ln -s $(head -c 3060 /dev/urandom | base64 -w 0 | tr / _) link
		sha256sum data.* >/run/$TEST.sums
		sync -f .
		drop_caches
		sha256sum --quiet -c /run/$TEST.sums
		[ $(ls | wc -l) = 207 ]
	EOF
}

captured() {
	needed
	need_client
	settings "$1" "$2"
	server_dir /export
	capture_begins
	mount_nfs 4.2
	work
	unmount_nfs
	capture_ends
	nothing_malformed 'rpcrdma2 || rpcordma'
	printf 'the first messages, as rpcrdma-decode and as tshark print them:\n'
	in_root "$DECODE" "$files.pcap" >"$files.text"
	grep -v ' CM ' "$files.text" | sed -n 1,4p
	wireshark -Y 'rpcrdma2 || rpcordma' >"$files.lines"
	sed -n 1,4p "$files.lines"
}

# Of a message in several packets the dissector prints the first one's number, rpcrdma-decode the last one's.
same_headers() {
	fields rpcrdma2 rpcrdma2.xid rpcrdma2.version rpcrdma2.credits rpcrdma2.procedure rpcrdma2.error \
		rpcrdma2.reads rpcrdma2.writes rpcrdma2.reply rpcrdma2.position rpcrdma2.handle rpcrdma2.length rpcrdma2.offset |
		sort >"$files.theirs"
	in_root jq -r '
		def list(f): [f] | map(tostring) | join(",");
		def segments: .reads[]?, .writes[]?[], .reply[]?;
		select(.version == 2) | [
			.xid, .version, .credits,
			{RDMA_MSG: 0, RDMA_NOMSG: 1, RDMA_ERROR: 4, RDMA_OPTIONAL: 5}[.procedure],
			{ERR_VERS: 1, ERR_CHUNK: 2, ERR_INVAL_OPTION: 3}[.error // ""],
			if has("reads") then (.reads | length), (.writes | length), ([.reply[]?] | length) else null, null, null end,
			list(.reads[]?.position), list(segments.handle), list(segments.length), list(segments.offset)
		] | @tsv' "$files.json" | sort >"$files.ours"
	same headers
}

# Proves: V2-029, V2-035.
agreed() {
	need_server
	captured offered offered
	same_headers
	# The first one fits where a responder of Version One receives it.
	in_root jq -rs 'map(select(.xid)) | (map(.version) | unique | tostring), (.[0].length <= 1024 | tostring)' "$files.json" |
		always 'versions, and whether the first message has at most 1024 bytes' "$(printf '%s\n' '[2]' true)"
	seen 'messages of more than 1024 bytes' '.length > 1024'
	seen 'Calls with a Read chunk' '.procedure == "RDMA_MSG" and .reads != []'
	seen 'Replies with a Write chunk' '.direction == "reply" and .writes != []'
}

# One message in Version Two is answered by ERR_VERS, which is in that version as well, and comes again in
# Version One.
# Proves: PD-022, V2-031.
refused() {
	captured offered off
	same_headers
	# A Send alone in its packet, and not one With Invalidate.
	fields 'rpcrdma2.error == 1' infiniband.bth.opcode | always 'the kind of Send that says so' 4
	in_root jq -rs 'map(select(.xid)) | (map(select(.version == 2)) | length), (map(select(.error == "ERR_VERS")) | length),
		(.[0].version, .[1].error, .[1].versions, .[2].version | tostring), (.[0].xid == .[2].xid and .[1].xid == .[0].xid | tostring)' "$files.json" |
		awk '{ printf "%s ", $0 }' | always 'the exchange' '2 1 2 ERR_VERS [1,1] 1 true '
}

test_case "both ends offer Version Two" agreed
test_case "the client alone offers it" refused
run_cases
