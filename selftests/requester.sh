#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A requester that breaks the rules, beside a mount that keeps to them: each message has its answer on the
# wire, or its connection an end with a cause; memory comes back; and the mount goes on.
# limit: 1800

. "$(dirname "$0")/lib/test.sh"

# Also run before each command in the server.
guest+='
# Values of the newest connection, or of the listener: NAME=N, NAME<N, NAME>N.
compare() {
	local found name=${2%%[=<>]*}
	found=$($1 $name)
	case $2 in
	*">"*) [ "$found" -gt "${2#*>}" ] ;;
	*"<"*) [ "$found" -lt "${2#*<}" ] ;;
	*) [ "$found" = "${2#*=}" ] ;;
	esac || fail "$2 is not true: it is $found"
}
connections_are() { [ "$(listener_of connections)" = "$1" ]; }
'

need_server() {
	server '[ -d /sys/kernel/debug/rpcrdma ]' || skip "the kernel's own server has no such files"
	client '[ -f /lab/payload/rpcrdma-peer ]' || skip "the payload has no rpcrdma-peer"
	client 'modprobe -q ib_uverbs; modprobe -q rdma_ucm'
}

requester_stop() {
	client '[ ! -f /run/$TEST.pid ] || kill $(cat /run/$TEST.pid) 2>/dev/null || true; rm -f /run/$TEST.*'
}

# attack SCENARIO OUTCOMES [CONDITION...]: what comes of each message is compared, then conditions on values of
# its connection, while that is up. What stays is compared with what was there before: 'ended_CAUSE+N' is a
# condition on the listener when all is over, and then only the mount's connection is left.
attack() {
	local scenario=$1 expected=$2 condition found before=() checks='' name was more
	shift 2
	for condition; do
		case $condition in
		*+*) before+=("${condition%+*} $(server "listener_of '${condition%+*}'") ${condition##*+}") ;;
		listener:*) checks+="compare listener_of '${condition#*:}'"$'\n' ;;
		*) checks+="compare stat_of '$condition'"$'\n' ;;
		esac
	done
	LIMIT=$((${WAIT:-50} + 70)) client "
		rm -f /run/$TEST.*
		mkfifo /run/$TEST.go
		: >/run/$TEST.out
		FILE=/export/$TEST/file setsid /lab/payload/rpcrdma-peer --requester \$SERVER $scenario <>/run/$TEST.go >/run/$TEST.out 2>&1 &
		echo \$! >/run/$TEST.pid
		wait_for ${WAIT:-50} grep -q '^$scenario: ' /run/$TEST.out"
	found=$(client "cat /run/$TEST.out" | squeeze)
	printf '%s\n' "$found"
	[ "$found" = "$scenario: $expected" ] || fail "that should be $expected"
	server "$checks"
	client "
		gone() { ! kill -0 \$(cat /run/$TEST.pid) 2>/dev/null; }
		echo >/run/$TEST.go
		wait_for 20 gone"
	LIMIT=120 server "wait_for 100 connections_are 1"
	for condition in "${before[@]}"; do
		read -r name was more <<<"$condition"
		server "[ \$(listener_of '$name') = $((was + more)) ] || { cat /sys/kernel/debug/rpcrdma/listener-*/ends; fail \"$name was $was, and is \$(listener_of '$name')\"; }"
	done
}

# A mount that works on files while the attacks go on.
beside_a_mount() {
	need_server
	defer requester_stop
	# What is only made once is there afterwards.
	mount_nfs 4.2
	client 'ls $MNT >/dev/null && umount $MNT && wait_for 10 module_unused'
	server 'clients_gone 20; holds_mark'
	server_dir /export
	server "head -c 100000 /dev/urandom >/export/$TEST/file"
	mount_nfs 4.2
	work_begins
	server 'for end in /proc/fs/lockd/nlm_end_grace /proc/fs/nfsd/v4_end_grace; do grep -q Y $end || echo Y >$end; done'
	"$1"
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
	server "clients_gone 20; rm -r /export/$TEST; mkdir /export/$TEST; holds_check 200"
}

# Proves: V1-074, V1-132, V1-134.
chunks() {
	attack honest 'answered*4' refused_messages=0 excess_calls=0 chunk_errors_sent=0
	attack too-many-segments 'err_chunk*3 answered' chunk_errors_sent=3 refused_messages=3
	attack too-many-chunks 'err_chunk*2 answered' chunk_errors_sent=2 refused_messages=2
	attack too-many-bytes 'err_chunk*4 answered' chunk_errors_sent=4 read_pages_most=0
	attack misfits 'garbage_args*5 err_chunk answered' garbage_args_sent=5 chunk_errors_sent=1 read_pages_most=0
	attack without-bytes 'answered*5' refused_messages=0
	attack same-memory 'answered*3' refused_messages=0
	attack position-zero 'err_chunk*5 answered' chunk_errors_sent=5 read_pages=0
}

messages() {
	attack cut 'silence*3 err_chunk*9 answered' refused_messages=12 chunk_errors_sent=9
	attack versions 'err_vers*3 err_chunk*4 answered' vers_errors_sent=3 chunk_errors_sent=4
	attack not-calls 'silence answered' calls_outstanding=0
	attack longer ended
}

# Proves: V1-019.
credits() {
	attack beyond-the-grant 'answered*600' 'excess_calls>0' refused_messages=0 'receive_buffers<140'
	# Two of the largest messages are less than 8 MiB.
	WAIT=200 attack overrun-reads 'answered*40' 'delayed_reads>0' 'read_pages_most>256' 'read_pages_most<2049' read_pages=0 calls_waiting=0
}

# Proves: V1-136, V1-138.
reads() {
	# The client's end may be faster to tell.
	local failed='ended_(work_request|disconnected)'
	attack bad-handle 'ended*5' "$failed+5"
	attack beyond-the-memory ended "$failed+1"
	attack bad-write-handle ended "$failed+1"
	attack sends-it-again 'ended err_chunk answered ended err_chunk short'
	attack hangs-up gone 'ended_.*+20'
	attack vanishes gone 'ended_.*+1'
	# As much as there is room for is held until the fabric gives up.
	attack crowd gone 'ended_.*+10' 'listener:read_pages_most>8000'
	# Where nothing gives up, who waits ends it.
	WAIT=100 attack holds-room 'ended*10' ended_timed_out+10
}

connections() {
	attack silent 20_up listener:connections=21 'ended_.*+20'
	attack half-open 10_up listener:connections=11 'ended_.*+10'
	# Only the connections that threads wait for end, and soon.
	attack takes-no-replies ended ended_timed_out+1
	attack comes-and-goes 5_answered listener:connections=1 'ended_.*+50'
}

# Proves: V1-014, V1-015, V1-080, V1-096.
choices() {
	attack choices '5 1*2 3 4*5 answered*2 err_chunk*2 answered' refused_messages=2 excess_calls=0
}

# Proves: V1-137.
results() {
	# 27 is NFS4ERR_FBIG.
	attack small-chunks 'nfs_0 nfs_27 in_reply_chunk err_chunk*3 nfs_0 nfs_27 nfs_0 in_reply_chunk err_chunk' \
		chunk_errors_sent=4 calls_outstanding=0
}

# Data in every form of Call and Reply that there is.
forms() {
	attack forms 'nfs_0 same nfs_0 same nfs_0 same' refused_messages=0 several_reads_call_inline_reply=2 \
		position_zero_call_inline_reply=1 inline_call_write_and_reply_reply=3
}

test_case "chunk lists that ask for too much, or do not fit" beside_a_mount chunks
test_case "messages that are cut, or no Calls" beside_a_mount messages
test_case "more Calls than were granted, and more data than there is room for" beside_a_mount credits
test_case "memory that cannot be read, or is gone" beside_a_mount reads
test_case "connections that say nothing, are not completed, or do not last" beside_a_mount connections
test_case "several chunks of data at a time, both ways" beside_a_mount forms
test_case "credit words, long Calls and XIDs as a requester likes" beside_a_mount choices
test_case "chunks that are too small for their results, or too many" beside_a_mount results
run_cases
