#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A server that does not answer. Its whole machine stands still: the client ends the connection within
# seconds, and the program sees only a pause; a client that waits finds its connection again. Or only nfsd does,
# as on a file system that is frozen: the connection stays, until a Call has waited for all of its time.
# virtual: stops the server's machine for a while

. "$(dirname "$0")/lib/requester.sh"

freeze() { kill -STOP "$(<"$RUN/server.pid")"; }
thaw() { kill -CONT "$(<"$RUN/server.pid")"; }

# How the connection is lost: within some seconds, although an RPC has a minute before it is late.
connection_ends() {
	client <<-'EOF'
		start=$SECONDS
		wait_for 40 xprt_unconnected
		printf "the connection ended %d seconds after the loss\n" $((SECONDS - start))
	EOF
}

frozen() {
	# All that is in flight has to fit into the socket between the machines. QEMU keeps what does not
	# in the client's network card, and rxe waits for it, for 50 s, before it destroys a queue pair.
	local WORK_SIZE=32K connects
	server_dir /export
	mount_nfs "$1"
	work_begins
	connects=$(client 'xprt_stat 3')
	freeze
	# Nothing is refused and nobody hangs up: only what is not acknowledged tells.
	connection_ends
	thaw
	client 'work_goes_on 50'
	[ "$(client 'xprt_stat 3')" -gt "$connects" ] || fail "there was no new connection"
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# Replies are under way for all of that time, and for longer than any may be. When the server's clock goes on, its
# watchdog may run before it hears that they have completed, and the last time that it ran they were under way as well.
outlasted() {
	need_requester
	defer requester_stop
	defer server value="$(server 'sysctl -n kernel.watchdog 2>/dev/null || echo 0')" \
		'sysctl -qw kernel.watchdog=$value 2>/dev/null || true'
	# The kernel may take that for a CPU that is stuck.
	server 'sysctl -qw kernel.watchdog=0 2>/dev/null || true'
	defer 'thaw'
	server_anew
	requester_begins takes-later
	server <<-'EOF'
		two_wait() { [ "$(stat_of answered_calls)" = 1 ] && [ "$(stat_of send_queue_used)" = 2 ]; }
		wait_for 8 two_wait
		# It runs every ten seconds, and has run once.
		aged() { [ "$(stat_of age_ms)" -gt 12000 ]; }
		wait_for 20 aged
		[ "$(stat_of age_ms)" -lt 18000 ] || fail "that took too long"
	EOF
	freeze
	# Nothing tells that this is over but the clock.
	sleep 60
	thaw
	client <<-'EOF'
		echo >/run/$TEST.go
		wait_for 20 grep -q "^takes-later: " /run/$TEST.out
		cat /run/$TEST.out
		grep -qx "takes-later: answered answered answered" /run/$TEST.out
	EOF
	server '[ "$(listener_of "ended_.*")" = 0 ] || fail "$(cat /sys/kernel/debug/rpcrdma/listener-*/listener)"'
	requester_stop
	server 'clients_gone 20'
}

# Has the server keep all Replies until nfsd_goes_on, and a program wait for one. The Call was acknowledged
# by then: nfsd_stands_still [PROGRAM].
nfsd_stands_still() {
	MACHINE=server delay_events replies=600000
	[ $# -gt 0 ] || set -- 'stat $MNT/$TEST/file >/dev/null'
	client_background program "$1"
	server 'stopped() { [ "$(delayed)" -gt 0 ]; }; wait_for 20 stopped'
}
nfsd_goes_on() { delays_end server; }

mount_with_file() {
	server_dir /export
	server 'touch /export/$TEST/file'
	mount_nfs "$@"
}

# The machine stands still after it has acknowledged the Call. The client has nothing to send, and asks.
acknowledged() {
	mount_with_file "$1" noac
	nfsd_stands_still
	freeze
	connection_ends
	thaw
	ended_by retries_exceeded
	nfsd_goes_on
	LIMIT=100 client_wait program
	client 'umount $MNT && wait_for 10 module_unused'
}

# RPCs are late again and again, and the peer lives: no connection ends, and nothing is sent twice.
lives() {
	mount_with_file "$1" noac,timeo=30,retrans=15
	trace_begins client sunrpc/xprt_timer
	nfsd_stands_still
	client <<-'EOF'
		late() { [ "$(grep -c xprt_timer: $TRACING/trace)" -ge 4 ]; }
		wait_for 40 late
		xprt_connected
	EOF
	nfsd_goes_on
	client_wait program
	client <<-'EOF'
		[ $(xprt_stat 3) = 1 ] || fail "there were $(xprt_stat 3) connections, the last ended: $(our_stat last_end)"
		umount $MNT && wait_for 10 module_unused
	EOF
}

# A server may have dropped the Call: it is sent again when its time is over, on another connection.
time_is_over() {
	mount_with_file "$1" noac,timeo=20,retrans=2
	nfsd_stands_still
	client <<-'EOF'
		start=$SECONDS
		again() { [ "$(xprt_stat 3)" -ge 2 ]; }
		wait_for 40 again
		printf "another connection %d seconds later\n" $((SECONDS - start))
	EOF
	ended_by rpc_timeout
	nfsd_goes_on
	LIMIT=100 client_wait program
	client 'umount $MNT && wait_for 10 module_unused'
}

# That is also when a soft mount gives up.
soft() {
	mount_with_file "$1" noac,soft,timeo=20,retrans=2
	nfsd_stands_still '
		start=$SECONDS
		! stat $MNT/$TEST/file || fail "there was an answer"
		printf "it failed after %d seconds\n" $((SECONDS - start))
		[ $((SECONDS - start)) -le $((30 * SLOW)) ] || fail "each of some RPCs has 6 seconds"'
	LIMIT=60 client_wait program
	nfsd_goes_on
	client 'umount $MNT && wait_for 10 module_unused'
}

for vers in 3 4.2; do
	test_case "v$vers" frozen $vers
	test_case "v$vers: with a Call that was acknowledged" acknowledged $vers
	test_case "v$vers: only nfsd" lives $vers
	test_case "v$vers: only nfsd, for longer than a Call may take" time_is_over $vers
	test_case "v$vers: only nfsd, soft" soft $vers
done
test_case "a client that waits" outlasted
run_cases
