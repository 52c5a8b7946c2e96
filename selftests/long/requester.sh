#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Ten thousand connections come and go beside a mount that works on files, every tenth of them with a Call, and
# the server has in the end what it had before.
# limit: 2400
# virtual: runs rpcrdma-peer in the client

. "$(dirname "$0")/../lib/requester.sh"

COUNT=10000

many() {
	local start
	# What is only made once is there afterwards.
	attack comes-and-goes 5_answered listener:connections=1 ended_disconnected+50
	start=$SECONDS
	WAIT=2000 attack comes-and-goes-$COUNT $((COUNT / 10))_answered listener:connections=1 \
		"accepted+$COUNT" "ended_disconnected+$COUNT"
	printf '%d connections in %d seconds\n' $COUNT $((SECONDS - start))
}

test_case "ten thousand connections come and go" beside_a_mount many
run_cases
