#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The server's threads end and start again in the middle of I/O: the program sees only a pause.

. "$(dirname "$0")/lib/test.sh"

restart() {
	local connects mark
	server_dir /export
	mount_nfs "$1"
	work_begins
	connects=$(client 'xprt_stat 3')
	mark=$(server log_mark)
	server '/lab/guest/server stop'
	server '/lab/guest/server resume'
	client 'work_goes_on 55'
	[ "$(client 'xprt_stat 3')" -gt "$connects" ] || fail "there was no new connection"
	work_ends
	server mark="$mark" <<-'EOF'
		! log_has $mark 'its connection has failed' ||
			fail "the end of the service is no failure: $(log_since $mark)"
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
}

for vers in 3 4.2; do
	test_case "v$vers" restart $vers
done
run_cases
