#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A responder that does not answer Calls that were killed, which keep half of its credits, and then all.
# virtual: has rpcrdma-peer listen at an address of the server

. "$(dirname "$0")/../lib/peer.sh"

unanswered() {
	local killed='null,null*8+,sent,kill+'
	calls_end "killed-unanswered | calls=$killed,$killed,null*40+ timeout_ms=140000 | ended_rpc_timeout=1"
}

test_case "the Replies to killed Calls never come" unanswered
run_cases
