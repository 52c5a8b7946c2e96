#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Connections on which nothing comes are closed, and such as were never completed: nfsd looks every six minutes,
# marks what it finds, and closes what it finds marked and at rest.
# limit: 1200
# virtual: takes longer than a kselftest may

. "$(dirname "$0")/../lib/test.sh"

requesters_stop() { client 'kill $(cat /run/$TEST.*.pid) || true; rm -f /run/$TEST.*'; }

# requester SCENARIO OUTCOME: stays connected when it is through.
requester() {
	client scenario="$1" outcome="$2" <<-'EOF'
		: >/run/$TEST.$scenario.out
		mkfifo /run/$TEST.$scenario.go
		FILE=/export/$TEST/file setsid /lab/payload/rpcrdma-peer --requester $SERVER $scenario <>/run/$TEST.$scenario.go >/run/$TEST.$scenario.out 2>&1 &
		echo $! >/run/$TEST.$scenario.pid
		wait_for 50 grep -q "^$scenario: $outcome" /run/$TEST.$scenario.out
	EOF
}

aged() {
	need_requester
	server_dir /export
	server 'head -c 100000 /dev/urandom >/export/$TEST/file'
	local before
	before=$(server 'listener_of ended_closed')
	defer requesters_stop
	requester silent 20_up
	requester honest answered
	requester half-open 10_up
	server '[ "$(listener_of connections)" = 31 ] || fail "the connections are $(listener_of connections)"'
	LIMIT=900 server before="$before" <<-'EOF'
		connections_are() { [ "$(listener_of connections)" = "$1" ]; }
		start=$SECONDS
		wait_for 800 connections_are 0
		printf "they were closed after %d seconds\n" $((SECONDS - start))
		[ $((SECONDS - start)) -ge 300 ] || fail "that is too soon"
		closed=$(($(listener_of ended_closed) - before))
		[ $closed = 31 ] || fail "of 31 connections $closed were closed from above"
	EOF
}

test_case "connections that are idle for two rounds are closed" aged
run_cases
