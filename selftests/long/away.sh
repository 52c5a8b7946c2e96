#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The server is away for minutes, longer than a lease and than any time limit of an RPC, and comes
# back: the program sees only a pause.
# limit: 1500
# virtual: takes longer than a kselftest may

. "$(dirname "$0")/../lib/test.sh"

AWAY=200

threads_go() { server '/lab/guest/server stop'; }
threads_come() { server '[ $(cat /proc/fs/nfsd/threads) != 0 ] || /lab/guest/server resume'; }
# What the server sends is lost, so that nobody tells the client anything.
packets_go() { netem server 'loss 100%'; }
packets_come() { netem server; }

away() {
	local vers=$1 what=$2 before now
	server_dir /export
	[ "$what" = threads ] || netem_begins server
	mount_nfs "$vers"
	# Who waits for a page to be written cannot be killed, and waits as long as the server is away.
	tasks_wait client $((AWAY + 120))
	work_begins
	defer "${what}_come"
	"${what}_go"
	before=$(client work_done)
	sleep "$AWAY"
	now=$(client work_done)
	[ "$now" -le $((before + 1)) ] || fail "$((now - before)) files were written without a server"
	"${what}_come"
	LIMIT=130 client 'work_goes_on 120'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

for vers in 3 4.2; do
	test_case "v$vers: no server for $AWAY seconds" away $vers threads
	test_case "v$vers: a silent server for $AWAY seconds" away $vers packets
done
run_cases
