#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The server's whole machine stands still for longer than an RPC may take, in the middle of I/O:
# the client gives the silent connection up, and the program sees only a pause. A client that waits finds its
# connection again.
# virtual: stops the server's machine for a while

. "$(dirname "$0")/lib/requester.sh"

freeze() { kill -STOP "$(<"$RUN/server.pid")"; }
thaw() { kill -CONT "$(<"$RUN/server.pid")"; }

frozen() {
	# All that is in flight has to fit into the socket between the machines. QEMU keeps what does not
	# in the client's network card, and rxe waits for it, for 50 s, before it destroys a queue pair.
	local WORK_SIZE=32K connects
	server_dir /export
	mount_nfs "$1" timeo=30
	work_begins
	connects=$(client 'xprt_stat 3')
	freeze
	# Nothing is refused and nobody hangs up: only the time that passes tells.
	client 'wait_for 40 xprt_unconnected'
	thaw
	client 'work_goes_on 50'
	ended_by rpc_timeout
	[ "$(client 'xprt_stat 3')" -gt "$connects" ] || fail "there was no new connection"
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# Replies are under way for all of that time, and for longer than any may be. When the server's clock goes on, its
# watchdog may run before it hears that they have completed, and the last time that it ran they were under way as well.
outlasted() {
	need_requester
	defer requester_stop
	defer "server 'sysctl -qw kernel.watchdog=$(server 'sysctl -n kernel.watchdog 2>/dev/null || echo 0') 2>/dev/null || true'"
	# The kernel may take that for a CPU that is stuck.
	server 'sysctl -qw kernel.watchdog=0 2>/dev/null || true'
	defer 'thaw'
	server_anew
	requester_begins takes-later
	server '
		two_wait() { [ "$(stat_of answered_calls)" = 1 ] && [ "$(stat_of send_queue_used)" = 2 ]; }
		wait_for 8 two_wait
		# It runs every ten seconds, and has run once.
		aged() { [ "$(stat_of age_ms)" -gt 12000 ]; }
		wait_for 20 aged
		[ "$(stat_of age_ms)" -lt 18000 ] || fail "that took too long"'
	freeze
	# Nothing tells that this is over but the clock.
	sleep 60
	thaw
	client 'echo >/run/$TEST.go
		wait_for 20 grep -q "^takes-later: " /run/$TEST.out
		cat /run/$TEST.out
		grep -qx "takes-later: answered answered answered" /run/$TEST.out'
	server '[ "$(listener_of "ended_.*")" = 0 ] || fail "$(cat /sys/kernel/debug/rpcrdma/listener-*/listener)"'
	requester_stop
	server 'clients_gone 20'
}

for vers in 3 4.2; do
	test_case "v$vers" frozen $vers
done
test_case "a client that waits" outlasted
run_cases
