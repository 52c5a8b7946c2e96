#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What a responder may reach: memory that a Call has offered, in the way that it was offered, until
# the Call has ended. It can take the access back itself, also from other Calls than it should.
# virtual: has rpcrdma-peer listen at an address of the server

. "$(dirname "$0")/lib/peer.sh"

# Proves: V1-008, PD-005, PD-006, PD-019, PD-023.
invalidation() {
	calls_end \
		'invalidates | calls=read,write,list,long,exchange | remote_invalidations=5' \
		'invalidates-other-call | calls=null,read+,sent,list,write+,sent,read,list+,sent,long' \
		'invalidates-for-nobody | calls=read,write,list' \
		'invalidates-unknown | calls=read,write,list,long' \
		'invalidates-twice | calls=read*3,write*2,list*3,exchange*2'
}

# A Call of every form, and one behind each that says that the client is through with it.
BETWEEN=null,read,null,write,null,list,null,long,null

# Proves: V1-058, V1-117, SEC-006, SEC-007.
after_replies() {
	calls_end \
		"late-after-reply | calls=$BETWEEN" \
		"late-after-invalidation | calls=$BETWEEN" \
		"late-after-error | calls=$BETWEEN" \
		"late-after-bad-reply | calls=$BETWEEN"
}

# Proves: V1-118, SEC-003.
without_replies() {
	local killed=null form
	for form in read write list long; do
		killed+=,$form+,sent,null,kill,null
	done
	calls_end \
		"late-after-timeout | calls=${BETWEEN/,/,timeout=$((2000 * ${SLOW:-1})),},timeout=60000" \
		"late-after-kill | calls=$killed" \
		'late-on-next-connection | calls=null,read,write,list,long'
}

# Proves: SEC-001.
during_calls() {
	calls_end \
		'out-of-bounds | calls=null,read,write,list,long | ended_disconnected>0' \
		'wrong-access | calls=null,read,write,list,long | ended_disconnected>0'
}

# Proves: V1-140.
no_invalidation() {
	limit_devices no_invalidation=1
	calls_end 'cannot-be-invalidated | calls=read,write,list,long | failed_requests=0'
}

# A Call times out, which ends its connection, and is released while its memory is still mapped.
while_ending() {
	delay_events timed_out=$((1500 * ${SLOW:-1})) deregistered=$((4000 * ${SLOW:-1}))
	calls_end_so never-answers "calls=null,timeout=$((2000 * ${SLOW:-1})),read,timeout=60000" '0 -110 0'
	client '[ "$(delayed)" = 2 ]'
}

test_case "remote invalidation of these and other handles" invalidation
test_case "no access behind the end of a Call" after_replies
test_case "no access behind the end of a Call without a Reply" without_replies
test_case "no access but to what is offered" during_calls
test_case "memory that cannot be invalidated" no_invalidation
test_case "a Call that ends with its connection" while_ending
run_cases
