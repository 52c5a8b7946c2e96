#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What a responder may say wrong: Replies for nobody, malformed ones, chunks that were not offered,
# errors, grants, backward Calls. Each ends a Call with the right status or leaves it alone.
# virtual: has rpcrdma-peer listen at an address of the server

. "$(dirname "$0")/lib/peer.sh"

# Proves: V1-007, V1-033, V1-083, V1-095, V1-097, V1-116, BD-017.
honest() {
	calls_end \
		'honest | calls=null,write,read,long,list,exchange | bad_replies=0' \
		'honest | calls=null,write,read,long,list,exchange size=400000'
}

# Proves: V1-010, V1-011, V1-013, V1-040, V1-043, V1-049, V1-050, V1-053, V1-060, V1-070, V1-109,
# Proves: V1-143, V1-145, V1-153, V1-157.
shapes() {
	local all=null,write,read,long,list,exchange
	calls_end \
		"shapes | calls=$all size=5001" \
		"shapes | calls=$all size=400002" \
		"shapes | calls=$all size=103" \
		"shapes | calls=null,write*9+,sent,read*9+,sent,long*9+,sent,list*9+,sent,exchange*9+ size=4023"
}

# Proves: V1-026, V1-030, V1-031.
thresholds() {
	calls_end \
		'exactly-1024 | calls=list size=964' \
		'exactly-1024 | calls=long size=952' \
		'exactly-4096 | calls=list size=4036' \
		'exactly-4096 | calls=long size=4024'
}

# Proves: V1-157, BD-012, BD-013.
receives() {
	local refused
	refused=$(sends_refused)
	calls_end \
		'all-receives | calls=null,null*128+ backward=1 | backward_calls=48' \
		'bad-replies | calls=null*300 | bad_replies=300'
	# The peer repeats what finds no Receive, so the connection lives on.
	[ "$(sends_refused)" = "$refused" ] || fail "messages found no Receive: $refused before, $(sends_refused) by now"
}

# Backward Calls that come before the client knows that the connection is up: no forward Call is in
# front of their Replies, though each of the last connection had a credit.
receives_early() {
	delay_events connected=200
	calls_end 'all-receives | calls=null,null*128+ backward=1 | backward_calls=48'
}

# How many Sends have met a client without a Receive.
sends_refused() { client 'rdma_counter send_rnr_err'; }

# Proves: BD-011, BD-029.
replies() {
	calls_end \
		'other-xid | calls=null | dropped_messages=32' \
		'earlier-xid | calls=null,read,list,write,long,null | dropped_messages=15' \
		'repeated | calls=null,read,write,list,null,read,write,list | dropped_messages=200' \
		'unsolicited | calls=null' \
		'too-early | calls=read*6+ backward=1' \
		'too-early | calls=list*6+ backward=1' \
		'long-replies | calls=null*4' \
		'short-replies | calls=null*3' \
		'other-versions | calls=null*7,write*7,read*7,long*7,list*7,exchange*7 backward=1 | bad_replies=42 vers_errors_sent=0 chunk_errors_sent=0'
}

# Proves: V1-006, V1-128, SEC-015.
malformed() {
	calls_end \
		'vectors | calls=null*60 backward=1' \
		'garbage | calls=null | vers_errors_sent=60' \
		'garbage-for-calls | calls=null*76 | bad_replies=76' \
		'too-long | calls=null*2'
}

# The first connection ends for that, and the client does not ask again whether this peer is there.
refuses_writes() {
	trace_begins client sunrpc/xprt_timer
	MEANWHILE=waits_for_long calls_end 'refuses-writes | calls=null*2 | ended_remote_error=1'
}
waits_for_long() {
	client <<-'EOF'
		late() { [ "$(grep -c xprt_timer: $TRACING/trace)" -ge 3 ]; }
		wait_for 40 late
	EOF
	peer_goes_on
}

not_a_send() {
	[ "${TRANSPORT:-rxe}" != siw ] || skip "iWARP has no RDMA Write With Immediate"
	calls_end 'not-a-send | calls=null*2 | ended_not_a_send=1'
}

# Proves: V1-017, V1-018, V1-020, V1-023, V1-028, V1-029.
credits() {
	calls_end \
		'no-credits | calls=null*20+ | failed_requests=0' \
		'one-credit | calls=null*20+ | failed_requests=0' \
		'all-credits | calls=null,null*200+ | failed_requests=0' \
		'fewer-credits | calls=null,null*148+ | failed_requests=0'
}

# The responder goes on with Calls that are killed, so their credits are not to be had.
# Proves: V1-018, V1-028, V1-029.
killed() {
	calls_end \
		'killed-late | calls=null,null*16+,sent,kill+,null*40+ | failed_requests=0' \
		'killed-malformed | calls=null,null*16+,sent,kill+,null*40+ | failed_requests=0' \
		'killed-made-up | calls=null,null*16+,sent,kill+,null*40+ | failed_requests=0'
}

# A device whose queues are so short that there are fewer credits than Calls.
killed_with_chunks() {
	limit_devices max_qp_wr=1024
	calls_end 'killed-credits | calls=null,read*64+,sent,kill+,read*20+'
}

# Proves: V1-070, V1-155, V1-156.
chunks() {
	calls_end \
		'write-chunks | calls=read*16 | bad_replies=16' \
		'reply-chunks | calls=list*13 | bad_replies=13' \
		'chunks-for-nothing | calls=null*5 | bad_replies=5' \
		'unused-chunks | calls=read,list,read,list,read' \
		'short-chunks | calls=read*7' \
		'garbage-in-chunks | calls=list*3' \
		'unreduced | calls=read*4 | bad_replies=4'
}

# With regions of nineteen pages these chunks have two segments and more.
# Proves: V1-039, V1-066.
segments() {
	limit_devices max_fast_reg_pages=19
	calls_end \
		'honest | calls=write,read,long,list,exchange size=500000 | write_segments>6' \
		'write-chunks | calls=read*16 size=100000 | bad_replies=16' \
		'reply-chunks | calls=list*13 size=100000 | bad_replies=13' \
		'gaps | calls=read size=100000'
}

# Proves: V1-126, V1-127.
errors() {
	calls_end \
		'errors | calls=null*7,write*7,read*7,long*7,list*7,exchange*7 | bad_replies=42' \
		'undecodable-errors | calls=null,write,read,long,list,exchange backward=1 | bad_replies=0 dropped_messages=42' \
		'invalidates-by-error | calls=null,read+,sent,list,write+,sent,read,list+,sent,long | bad_replies=0 failed_requests=0 dropped_messages=6' \
		'errors-at-once | calls=null,null+,read+,write+,list+,long+,exchange+,read+,read+,list+,write | bad_replies=10'
}

# The answer comes while the task that sends the Call is not yet waiting for it.
early_errors() {
	limit_devices slow_sends=20
	calls_end 'errors | calls=null*42 | bad_replies=42'
}

# Proves: V1-086, V1-122, V1-132, BD-002, BD-003, BD-004, BD-006, BD-020, BD-021, BD-024, BD-026,
# Proves: BD-027, BD-030.
backward() {
	calls_end \
		'backward | calls=null backward=1 | backward_calls=3' \
		'backward-unserved | calls=null | backward_calls=0' \
		'backward-garbage | calls=null backward=1' \
		'backward-chunks | calls=null backward=1 | chunk_errors_sent=4' \
		'backward-long | calls=null backward=1 | backward_calls=1' \
		'backward-burst | calls=null*6 backward=1 | backward_calls=32 backward_overflows=68' \
		'backward-without-credits | calls=read*10+ backward=1' \
		'backward-across-connections | calls=null backward=1 | backward_replies_dropped=1'
}

# What the client does when it has its last Reply must not wait for the thread that has the Call, nor
# the other way round.
backward_at_the_end() {
	delay_events backward_call=2000
	calls_end 'backward-at-the-end | calls=null backward=1'
	client '[ "$(delayed)" = 2 ] || fail "the second Call did not come in time"'
}

# A Call that the service has in its hands outlives the client, so the last reference to the transport
# goes with it, and the module in that moment.
backward_outlives() {
	local guest=$guest
	guest_add <<-'EOF'
		issue_ends() {
			rmmod rpcrdma_test_calls &
			wait_for 30 sh -c "rmmod rpcrdma 2>/dev/null"
			wait $!
			module_load
		}
	EOF
	defer client 'module_loaded || module_load'
	calls_end 'backward-outlives | calls=null backward=1 outlive=1 | backward_calls=1'
}

test_case "an honest peer, for comparison" honest
test_case "the form of Calls" shapes
test_case "messages of just the size that is allowed" thresholds
test_case "Receives for all that may come at once" receives
test_case "the same, before the client knows of the connection" receives_early
test_case "Replies for nobody, again, too long and too short" replies
test_case "malformed messages and garbage" malformed
test_case "a Receive that no Send has used up" not_a_send
test_case "a queue pair that lets nobody write" refuses_writes
test_case "grants of no credit, and of all there are" credits
test_case "the credits of Calls that are killed" killed
test_case "killed Calls whose memory the peer still has" killed_with_chunks
test_case "chunks that were not offered" chunks
test_case "chunks of several segments" segments
test_case "RDMA_ERROR to Calls of every form" errors
test_case "RDMA_ERROR before a Call's sender is through" early_errors
test_case "backward Calls" backward
test_case "a backward Call at a transport's end" backward_at_the_end
test_case "unload behind a backward Call that was the transport's last user" backward_outlives
run_cases
