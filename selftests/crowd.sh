#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Requesters with connections that say nothing, stall, do not last, or are too many, beside a mount: each has an end
# with a cause, memory comes back, and the mount goes on.
# limit: 1800
# virtual: runs rpcrdma-peer in the client

. "$(dirname "$0")/lib/requester.sh"

connections() {
	attack silent 20_up listener:connections=21 ended_disconnected+20
	attack half-open 10_up listener:connections=11 ended_rejected+10
	# Only the connections that threads wait for end, and soon.
	attack takes-no-replies ended ended_timed_out+1
	attack comes-and-goes 5_answered listener:connections=1 ended_disconnected+50
}

# Nor are Replies kept for long which a requester does not take, whether it goes on with Calls or not. That no
# other Replies are under way, nor were any with data, makes sure who looks.
not_taken() {
	local scenario
	need_requester
	defer requester_stop
	server_dir /export
	server_anew
	server "head -c 100000 /dev/urandom >/export/$TEST/file; end_grace"
	for scenario in holds leaves; do
		attack_begins $scenario-replies
		WAIT=200 attack_comes_to ended
		server '
			is_told() { [ "$(listener_of ended_timed_out)" = 1 ]; }
			(wait_for 10 is_told) ||
				fail "the last connections ended for $(cat /sys/kernel/debug/rpcrdma/listener-*/ends)"'
		requester_stop
		server 'clients_gone 20'
		server_anew
	done
}

# Of connections whose client has shown access to no file sunrpc keeps 64 (XPT_MAX_TMP_CONN) and the
# one that it accepts then: each beyond costs the oldest one. Then more connects wait than its listener
# has room for (MAX_WAITING): those beyond are refused, and the mount goes on.
too_many() {
	local mark
	attack silent-100 '65_up ended*35' listener:connections=66 ended_closed+35 ended_disconnected+65
	mark=$(server log_mark)
	wait_in_vain burst 256 44_refused rejected+44
	server "wait_for 10 lines_tell rejected $mark \
		\"client \$CLIENT: its connect was rejected, as too many wait to be accepted\""
}

# As many as the log may have a line for each.
few() {
	local mark
	mark=$(server log_mark)
	wait_in_vain burst-5 5 0_refused rejected+0
	# User-Mode Linux has no names of errors.
	server "wait_for 10 lines_tell accept_failures $mark \
		\"client \$CLIENT: cannot accept its connection: (EINVAL|Error\\(22\\))\"
		[ \$(grep -c svcrdma_accept_err: \$TRACING/trace) = 5 ]"
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
	server "
		told() { [ \$(grep -c ' REJECTED consumer returns' \$TRACING/trace) = $(($2 + 1)) ]; }
		wait_for 60 told"
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

# How many threads have waited in vain for room on a send queue, and for how many milliseconds at most: in all,
# and before the first connection ended.
waited="awk '
	{ for (i = 2; i < NF && \$i !~ /^(svcrdma_|cm_event_handler:)/; i++); now = \$(i - 1) + 0 }
	\$i == \"svcrdma_sq_full:\" { since[\$1] = now }
	/ cm_event_handler:.* DISCONNECTED / && !before { for (thread in since) if (now - since[thread] > before) before = now - since[thread] }
	\$i == \"svcrdma_send_err:\" && \$1 in since {
		if (now - since[\$1] > most) most = now - since[\$1]
		seen[\$1]
		delete since[\$1]
	}
	END { for (thread in seen) n++; printf \"%d %d %d\", n, 1000 * most, 1000 * before }' \$TRACING/trace"

# All threads of nfsd wait for room on the send queues of a requester that takes no Replies, and it ends these
# connections. Nothing that was sent completes or fails by that, and nobody is left to close them: only the end
# itself can wake the threads before their time (TIME_LIMIT) is over.
woken() {
	local threads most before
	attack_begins full-and-gone-8 ended_disconnected+8
	server '
		# Of all that a thread waits for only this can be interrupted (S): one without work is I.
		waiting() { for comm in $(grep -slx nfsd /proc/[0-9]*/comm); do grep -s "^State:.S" "${comm%comm}status"; done | wc -l; }
		all_wait() {
			grep -qs "^send_queue_full [1-9]" /sys/kernel/debug/rpcrdma/connection-*/stats &&
				[ "$(waiting)" = "$(cat /proc/fs/nfsd/threads)" ]
		}
		wait_for 20 all_wait'
	client "echo 1<>/run/$TEST.go"
	attack_comes_to 'ended*8'
	read -r threads most before <<<"$(server "$waited")"
	printf '%d threads have waited for up to %d ms, up to %d before the end\n' "$threads" "$most" "$before"
	[ "$before" -lt 8000 ] || skip "the machine took about as long to look as threads wait"
	client 'work_goes_on 55'
	attack_ends
	[ "$threads" = "$(server 'cat /proc/fs/nfsd/threads')" ] || fail 'that is not all of nfsd'
	[ "$most" -lt 9900 ] || fail 'they were not woken before their time was over'
}

# With events that are traced, whose memory stays.
traced() {
	need_requester
	trace_begins server rpcrdma/svcrdma_sq_full rpcrdma/svcrdma_send_err rdma_cma/cm_event_handler
	beside_a_mount "$@"
}

# nfsd is to end while all of its threads wait for room on the send queues of a requester that takes no Replies.
# Each waits for ten seconds (TIME_LIMIT), and may come to another such connection before it is its turn to end.
stopped() {
	defer "server '
		module_loaded || insmod /lab/payload/server/rpcrdma.ko
		[ \$(cat /proc/fs/nfsd/threads) != 0 ] || /lab/guest/server resume'"
	attack_begins takes-no-replies-8 anew
	LIMIT=150 server '
		full() { [ "$(grep -s "^send_queue_full [1-9]" /sys/kernel/debug/rpcrdma/connection-*/stats | wc -l)" -ge "$(cat /proc/fs/nfsd/threads)" ]; }
		wait_for 20 full
		start=$SECONDS
		/lab/guest/server stop
		printf "nfsd ended within %d seconds\n" $((SECONDS - start))
		wait_for 20 module_unused
		! ls -d /sys/kernel/debug/rpcrdma/*-* 2>/dev/null || fail "the service has ended, and has left files"
		module_unload
		insmod /lab/payload/server/rpcrdma.ko
		/lab/guest/server resume'
	attack_comes_to 'ended*8'
	client 'work_goes_on 55'
	attack_ends
}

# How long an operation of an honest client takes at most beside connections that stall, in milliseconds. Threads of
# nfsd wait for room on a send queue, ten seconds each time (TIME_LIMIT), and all of them for as long as the scenario
# takes (20 seconds) if it has connections enough.
SLOWEST_MS=25000

# Connections, each with so many Calls, whose Replies or Reads fill the server's send queues and do not complete:
# stalled SCENARIO CONNECTIONS CALLS.
stalled() {
	client '[ -f /lab/payload/rpcrdma-peer ]' || skip "the payload has no rpcrdma-peer"
	client 'modprobe -q ib_uverbs; modprobe -q rdma_ucm'
	mount_nfs 4.2
	server_dir /export
	server "head -c 100000 /dev/urandom >/export/$TEST/file
		end_grace"
	defer requester_stop
	# One builtin for each operation: a program takes a while to start.
	LIMIT=150 client "
		: >/run/$TEST.out
		export CONNECTIONS=$2 CALLS=$3 FILE=/export/$TEST/file
		/lab/payload/rpcrdma-peer --requester \$SERVER $1 </dev/null >/run/$TEST.out 2>&1 &
		echo \$! >/run/$TEST.pid
		files=0 slowest=0 what= name=\$MNT/$TEST/honest
		timed() {
			local start=\${EPOCHREALTIME/./} took
			\"\$@\"
			took=\$(((\${EPOCHREALTIME/./} - start) / 1000))
			[ \$took -le \$slowest ] || { slowest=\$took; what=\$1; }
		}
		make() { : >\$name; }
		fill() { echo honest >>\$name; }
		remove() { rm \$name; }
		until grep -q '^$1: ' /run/$TEST.out; do
			timed make
			timed fill
			timed remove
			files=\$((files + 1))
		done
		[[ \$(cat /run/$TEST.out) = *_ended ]] || fail \"\$(cat /run/$TEST.out)\"
		printf '%s: %d files beside %d connections with %d Calls, the slowest operation (%s) took %d ms\n' \
			\"\$(cat /run/$TEST.out)\" \$files $2 $3 \$what \$slowest
		wait
		umount \$MNT
		[ \$slowest -lt $SLOWEST_MS ] || fail 'that is too slow'"
	! is_served || server 'clients_gone 20'
}

test_case "Replies that are not taken" not_taken
test_case "connections that say nothing, are not completed, or do not last" beside_a_mount connections
test_case "more connections than are kept, and more connects than may wait" anew too_many
test_case "connects whose client has gone when it is their turn" anew few
test_case "connections end while all threads of nfsd wait for room on their send queues" traced woken
test_case "nfsd is stopped while a send queue is full" beside_a_mount stopped
test_case "an honest client beside 4 connections that take no Replies" stalled stalls-placed 4 8
test_case "an honest client beside 8 connections with as many Calls as there can be" stalled stalls-placed 8 126
test_case "an honest client beside 16 connections that take no Replies" stalled stalls-placed 16 8
test_case "an honest client beside connections that take no inline Replies" stalled stalls-inline 4 126
test_case "an honest client beside connections that take a Reply now and then" stalled stalls-slowly 4 8
test_case "an honest client beside strangers with many Read segments" stalled stalls-reads 4 2
run_cases
