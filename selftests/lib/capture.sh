# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For tests that look at what travels: a capture, read by Wireshark's dissectors and by rpcrdma-decode.
#
#   needed                     ends the case where there is nothing to capture or to read it with
#   capture_begins             begins a capture in the client, that the case's end ends
#   capture_ends               ends it behind the end of a connection, and brings it here
#   fields FILTER FIELD...     prints these fields of the frames that a filter lets through
#   seen NAME JQ-CONDITION     fails unless there is such a message
#   nothing_malformed FILTER   fails if anything is, and counts what the filter lets through
#   same WHAT                  fails unless the files "theirs" and "ours" are the same
#   always WHAT VALUES         fails unless standard input has these fields, and no others
#
# A test that has dissectors of its own names them in the array "dissectors".

# shellcheck source=test.sh
. "$(dirname "${BASH_SOURCE[0]}")/test.sh"

# The files of the capture, here: NAME.pcap and what is made of it.
files=$RUN/$TEST
dissectors=()

needed() {
	[ "${TRANSPORT:-rxe}" = rxe ] || skip "only rxe sends RoCEv2"
	[ -x "$DECODE" ] || skip "rpcrdma-decode is not built, see README.rst"
	in_root sh -c 'command -v tshark && command -v editcap && command -v jq' >/dev/null ||
		skip "the build root lacks tshark, editcap or jq"
}

# The commands of the host's build root.
in_root() { BIND=$RUN "$(dirname "$VM_LIB")/in-buildroot.sh" "$@"; }

# Two passes, as Wireshark itself makes: in a first one its NFS dissector calls replies malformed
# whose data was placed directly. For root it would run no dissectors in Lua.
wireshark() {
	in_root setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search \
		tshark -2 "${dissectors[@]}" -r "$files.pcap" --enable-heuristic rpcrdma_infiniband "$@" 2>"$files.tshark" || {
		cat "$files.tshark"
		fail "tshark cannot read the capture"
	}
}

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
	local frames end
	fields 'infiniband.bth.opcode in {0..5, 22, 23}' \
		frame.number ip.src infiniband.bth.destqp infiniband.bth.psn infiniband.bth.opcode |
		awk '{ frame = $1; $1 = "" } seen[$0]++ { print frame }' >"$files.repeated"
	mapfile -t frames <"$files.repeated"
	[ ${#frames[@]} -gt 0 ] || return 0
	printf '%6d packets of Sends, repeated by rxe\n' ${#frames[@]}
	# It takes 512 at a time; the last ones first, so that the others keep their numbers.
	for ((end = ${#frames[@]}; end > 0; end -= 512)); do
		in_root editcap -F pcap "$files.pcap" "$files.once" "${frames[@]:end > 512 ? end - 512 : 0:end > 512 ? 512 : end}"
		mv "$files.once" "$files.pcap"
	done
}

capture_begins() {
	client_background capture 'exec tcpdump -i $NETDEV -Z root -s 0 -B 16384 -U -w /run/$TEST.pcap udp port 4791 2>/run/$TEST.log'
	defer client 'rm -f /run/$TEST.*'
	defer client '! pkill -INT -x tcpdump || wait_for 30 test -f /run/job.capture.status'
	client 'wait_for 30 grep -qs "listening on" /run/$TEST.log'
}

# The connection's end, a DREP of the connection manager, is the last that there is to wait for.
capture_ends() {
	client <<-'EOF'
		ended() { [ -n "$(tcpdump -r /run/$TEST.pcap "udp[8] = 0x64 and udp[44:2] = 0x16" 2>/dev/null)" ]; }
		wait_for 30 ended
		pkill -INT -x tcpdump
	EOF
	client_wait capture
	client 'cat /run/$TEST.log; grep -q "^0 packets dropped" /run/$TEST.log'
	client 'gzip -c /run/$TEST.pcap | base64' | base64 -d | gzip -d >"$files.pcap"
	drop_repeated
	in_root "$DECODE" --json "$files.pcap" >"$files.json"
}

# Each form must have been there, or a comparison says nothing about it.
seen() {
	local count
	count=$(in_root jq -s "map(select(has(\"xid\") and ($2))) | length" "$files.json")
	printf '%6d %s\n' "$count" "$1"
	[ "$count" -gt 0 ] || fail "there is no message with this: $1"
}

nothing_malformed() {
	# RDMA Writes and answers to RDMA Reads carry file data alone, in whose first bytes tshark looks
	# for an Ethernet type.
	wireshark -Y '_ws.malformed && !(infiniband.bth.opcode >= 6 && infiniband.bth.opcode <= 16)' >"$files.malformed"
	[ ! -s "$files.malformed" ] || {
		head -n 20 "$files.malformed"
		fail "tshark calls these malformed"
	}
	in_root jq -c 'select(has("refused"))' "$files.json" >"$files.refused"
	[ ! -s "$files.refused" ] || {
		head -n 20 "$files.refused"
		fail "rpcrdma-decode refuses these"
	}
	in_root jq -c 'select(has("wrong"))' "$files.json" >"$files.wrong"
	[ ! -s "$files.wrong" ] || {
		head -n 20 "$files.wrong"
		fail "rpcrdma-decode finds something wrong with these"
	}
	fields "$1" frame.number >"$files.frames"
	printf '%6d messages, none of them malformed\n' "$(wc -l <"$files.frames")"
}

same() {
	[ -s "$files.theirs" ] || fail "there are no $1 to compare"
	diff -u "$files.theirs" "$files.ours" >"$files.diff" || {
		head -n 40 "$files.diff"
		fail "tshark (-) and rpcrdma-decode (+) do not see the same $1"
	}
	printf '%6d %s are the same\n' "$(wc -l <"$files.theirs")" "$1"
}

always() {
	tr '\t' ' ' | sort -u >"$files.values"
	[ "$(<"$files.values")" = "$2" ] || {
		cat "$files.values"
		fail "$1 should be $2"
	}
}
