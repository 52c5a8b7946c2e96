#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Many backward Calls at once: delegations are recalled together, from an idle client and from one
# under full load; and many sessions, one after the other, on one connection.

. "$(dirname "$0")/lib/test.sh"

# More than a minute passes before the server hands out as many again.
COUNT=${COUNT:-64}

guest_add <<-'EOF'
	# Those of the numbered files.
	delegations() { cat /proc/fs/nfsd/clients/*/states 2>/dev/null |
		grep -cE "type: deleg.*/[0-9]+\"" || true; }
EOF

# A folder with so many small files, and a mount that has a delegation for each of them.
hand_out() {
	server_dir /export
	server COUNT="$COUNT" <<-'EOF'
		for n in $(seq $COUNT); do printf 'file %d\n' $n >/export/$TEST/$n; done
		end_grace
	EOF
	mount_nfs "$1"
	# Until the server has tried the connection's other direction it hands out nothing.
	server 'wait_for 20 callback_works'
	handed_out() {
		client 'cat $MNT/$TEST/[0-9]* >/dev/null'
		server least=$((COUNT * 2 / 3)) '[ $(delegations) -ge $least ]'
	}
	wait_for 150 handed_out
	server 'printf "%d delegations\n" $(delegations)'
}

# Not a client: each of these opens waits on the server itself until its delegation is returned.
recall_all() {
	LIMIT=80 server <<-'EOF'
		pids=()
		for file in /export/$TEST/[0-9]*; do
			printf "once more\n" >>$file &
			pids+=($!)
		done
		for pid in "${pids[@]}"; do wait $pid; done
		[ $(delegations) = 0 ] || fail "$(delegations) delegations are still there"
	EOF
	client COUNT="$COUNT" <<-'EOF'
		for n in $(seq $COUNT); do
			[ "$(cat $MNT/$TEST/$n)" = "file $n"$'\nonce more' ] ||
				fail "file $n is not what the server wrote"
		done
	EOF
}

# What a connection counts that is short of buffers for them.
no_overflow() {
	client mark="$mark" '! log_has $mark "send backchannel reply error|backchannel overflow"' ||
		fail "an answer was lost"
	if is_rust; then
		[ "$(client 'our_stat backward_overflows')" = 0 ] ||
			fail "there was no room for a call"
		[ "$(client 'xprt_stat 3')" = 1 ] || fail "the connection was lost"
	fi
	printf '%s connects\n' "$(client 'xprt_stat 3')"
}

idle() {
	local mark
	mark=$(client log_mark)
	hand_out "$1"
	recall_all
	no_overflow
	client 'umount $MNT && wait_for 10 module_unused'
}

# Every job has a request of its own under way all the time.
loaded() {
	local mark
	mark=$(client log_mark)
	hand_out "$1"
	client_background load <<-'EOF'
		rm -f /run/$TEST.stop
		while [ ! -f /run/$TEST.stop ]; do
			fio --name=load --directory=$MNT/$TEST --numjobs=24 --thread --size=256k \
				--bs=4k-64k --rw=randrw --direct=1 \
				--ioengine=psync --verify=crc32c --verify_fatal=1 \
				--output-format=terse --output=/run/$TEST.fio ||
				{ cat /run/$TEST.fio; exit 1; }
		done
	EOF
	defer client 'touch /run/$TEST.stop && wait_for 50 test -f /run/job.load.status'
	client <<-'EOF'
		sends=$(xprt_stat 6)
		busy() { [ $(xprt_stat 6) -gt $((sends + 200)) ]; }
		wait_for 50 busy
	EOF
	recall_all
	client 'touch /run/$TEST.stop'
	client_wait load
	no_overflow
	client <<-'EOF'
		rm -f /run/$TEST.*
		umount $MNT
		wait_for 10 module_unused
	EOF
}

# The server forgets its client, which then makes a new session on the connection that it has.
sessions() {
	local n
	server_dir /export
	! server '[ -d $TRACING/events/nfsd ]' || trace_begins server nfsd/nfsd_cb_setup_err
	mount_nfs "$1"
	for n in {1..20}; do
		server n="$n" <<-'EOF'
			for client in /proc/fs/nfsd/clients/*/ctl; do echo expire >$client; done
			echo "round $n" >/export/$TEST/$n
		EOF
		client n="$n" '[ "$(cat $MNT/$TEST/$n)" = "round $n" ]'
	done
	server 'wait_for 20 callback_works'
	server '! grep -s nfsd_cb_setup_err: $TRACING/trace || fail "there was no callback client"'
	[ "$(client 'xprt_stat 3')" = 1 ] || fail "there was another connection"
	client 'umount $MNT && wait_for 10 module_unused'
}

test_case "v4.2: $COUNT delegations are recalled from an idle client" idle 4.2
test_case "v4.1: $COUNT delegations are recalled from a client under load" loaded 4.1
test_case "v4.1: twenty sessions on one connection" sessions 4.1
run_cases
