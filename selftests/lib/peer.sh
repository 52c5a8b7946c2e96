# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For tests with a responder that breaks the rules. It runs in the server (selftests/peer) and
# answers Calls that a module issues in the client (selftests/modules/calls.c), or a mount.
#
#   peer_start SCENARIO...     starts the peer, for the rest of the case
#   calls_end ITEM...          one scenario after the other, each with a client of its own
#   calls_end_so SCENARIO PARAMETERS STATUSES   one that the peer does not end by itself
#
# An ITEM is 'SCENARIO | PARAMETERS OF THE MODULE [| CONDITION...]'. A condition compares a counter
# of the transport with a number: NAME=N, or NAME>N. Each Call has to end as the peer expects, and
# nobody may write to its memory afterwards; nothing is left behind. MEANWHILE=COMMAND before
# calls_end is run on the host when the Calls have begun; peer_goes_on lets a scenario go on that waits
# for that.

# shellcheck source=/dev/null
. "$(dirname "${BASH_SOURCE[0]}")/test.sh"

# shellcheck disable=SC2154 # test.sh sets it.
guest_add <"$lib/peer-guest.sh"

peer_start() {
	local payload
	payload=$(client 'ls /lab/payload')
	grep -q '^rpcrdma_test_calls.ko$' <<<"$payload" || skip "the payload has no rpcrdma_test_calls.ko"
	grep -q '^rpcrdma-peer$' <<<"$payload" || skip "the payload has no rpcrdma-peer"
	server scenarios="$*" <<-'EOF'
		modprobe -q ib_uverbs
		modprobe -q rdma_ucm
		rm -f /run/$TEST.*
		mkfifo /run/$TEST.go
		setsid /lab/payload/rpcrdma-peer $scenarios <>/run/$TEST.go >/run/$TEST.out 2>&1 &
		echo $! >/run/$TEST.pid
		wait_for 10 grep -q listening /run/$TEST.out
	EOF
	defer peer_stop
}

peer_stop() {
	server '[ ! -f /run/$TEST.pid ] || kill $(cat /run/$TEST.pid) 2>/dev/null || true; rm -f /run/$TEST.*'
}

peer_goes_on() { server 'echo >/run/$TEST.go'; }

# Has the module issue its Calls, as often as there are ITEMs.
calls_issue() {
	local item scenario parameters conditions script=''
	for item; do
		IFS='|' read -r scenario parameters conditions <<<"$item"
		script+="issue ${scenario// /} '$parameters' '$conditions'"$'\n'
	done
	defer client '! grep -q ^rpcrdma_test_calls /proc/modules || rmmod rpcrdma_test_calls'
	client_background calls script="$script" <<-'EOF'
		resources=$(rdma_resources)
		rm -f /run/$TEST.*
		{
			eval "$script"
		} >/run/$TEST.statuses
		# A transport is there until the pause before its next attempt to connect is over.
		wait_for 40 module_unused
		wait_for 10 rdma_resources_are "$resources" || fail "the device had $resources and has $(rdma_resources)"
	EOF
	${MEANWHILE:-true}
	LIMIT=150 client_wait calls
}

# Compares how Calls have ended with what was expected of them.
calls_compare() {
	local found
	found=$(client 'cat /run/$TEST.statuses' | squeeze)
	cut -c1-200 <<<"$found"
	diff <(printf '%s\n' "$1") <(printf '%s\n' "$found") || fail "Calls ended otherwise than expected (<)"
	client 'cat /run/$TEST.wrong; [ ! -s /run/$TEST.wrong ]; rm /run/$TEST.*'
}

calls_end() {
	local scenarios=("${@%%|*}")
	peer_start "${scenarios[*]}"
	calls_issue "$@"
	server 'gone() { ! kill -0 $1 2>/dev/null; }; wait_for 30 gone $(cat /run/$TEST.pid)'
	calls_compare "$(server 'grep -v listening /run/$TEST.out' | squeeze)"
}

calls_end_so() {
	peer_start "$1"
	calls_issue "$1 | $2"
	calls_compare "$1: $3"
	peer_stop
}
