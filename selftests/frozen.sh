#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The server's whole machine stands still for longer than an RPC may take, in the middle of I/O:
# the client gives the silent connection up, and the program sees only a pause.
# virtual: stops the server's machine for a while

. "$(dirname "$0")/lib/test.sh"

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

for vers in 3 4.2; do
	test_case "v$vers" frozen $vers
done
run_cases
