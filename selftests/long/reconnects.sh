#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Two thousand connections end in the middle of I/O and are made again, ended by either side at any
# point of an RPC, and a hundred times the server's threads stop: the program sees nothing of it,
# and nothing is left of them at either end.
# limit: 2400
# virtual: takes longer than a kselftest may

. "$(dirname "$0")/../lib/test.sh"

guest_add <"$lib/inject-guest.sh"
BREAKS=${BREAKS:-500} RESTARTS=${RESTARTS:-100}

# Runs a command with work going on on a mount.
during_work() {
	local connects
	mount_nfs_timeo "$vers"
	work_begins
	connects=$(client 'xprt_stat 3')
	"$@"
	printf '%d connections were made meanwhile\n' $(($(client 'xprt_stat 3') - connects))
	client 'work_goes_on 60'
	work_ends
	mount_ends
}

# Does so for a while, to warm up, and then NUMBER times: nothing_left NUMBER COMMAND, which gets
# the number.
nothing_left() {
	local resources
	server_dir /export
	during_work "$2" 10
	resources=$(client 'rdma_resources; holds_mark')
	server_mark
	during_work "$2" "$1"
	LIMIT=120 client resources="$resources" times="$1" <<-'EOF'
		wait_for 10 rdma_resources_are "$resources" || fail "the device had $resources and has $(rdma_resources)"
		holds_check $times
		module_reload
	EOF
	server_check "$1"
}

break_connections() {
	local reached=$(($(client 'xprt_stat 3') + $1))
	"$machine" INJECT="$machine" EVERY=10 'inject_begins 100'
	LIMIT=1000 client reached="$reached" <<-'EOF'
		made() { [ $(xprt_stat 3) -ge $reached ]; }
		until made; do work_goes_on 60; done
	EOF
	"$machine" 'inject_ends'
}

breaks() {
	local vers=$1 machine=$2
	need_injection "$machine"
	defer "$machine" inject_ends
	nothing_left "$BREAKS" break_connections
}

restart_server() {
	local connects n
	connects=$(client 'xprt_stat 3')
	for ((n = 0; n < $1; n++)); do
		server '/lab/guest/server stop'
		server '/lab/guest/server resume'
		client 'work_goes_on 55'
	done
	[ "$(client 'xprt_stat 3')" -ge $((connects + $1)) ] || fail "there are fewer connections than restarts"
}

restarts() {
	local vers=$1
	nothing_left "$RESTARTS" restart_server
}

for machine in client server; do
	for vers in 3 4.2; do
		test_case "v$vers: the $machine breaks $BREAKS connections" breaks $vers $machine
	done
done
test_case "v4.2: the server's threads stop and start $RESTARTS times" restarts 4.2
run_cases
