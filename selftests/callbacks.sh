#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The server's side of the backward direction: transports that end with their connections, credits
# that are kept, clients that say nothing for a while, and what people and fault injection do to
# such a transport.

. "$(dirname "$0")/lib/test.sh"

need_served

guest_add <"$lib/inject-guest.sh"
guest_add <<-'EOF'
	delegations() { cat /proc/fs/nfsd/clients/*/states 2>/dev/null |
		grep -cE "type: deleg.*/file[0-9]+\"" || true; }
	# The files of this name that sysfs has of the transports to the client.
	backward_files() {
		local found
		found=$(grep -ls "$CLIENT" \
			/sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/dstaddr) ||
			fail "sysfs has no backward transport"
		printf '%s\n' "${found//dstaddr/$1}"
	}
EOF

# A mount whose client can be called, with a delegation for each of COUNT files that it holds open.
hand_out() {
	local vers=$1 count=$2
	server_dir /export
	server count="$count" <<-'EOF'
		for n in $(seq $count); do printf 'the first\n' >/export/$TEST/file$n; done
		end_grace
	EOF
	mount_nfs "$vers"
	server 'wait_for 20 callback_works'
	handed_out() {
		client 'cat $MNT/$TEST/file* >/dev/null'
		server count="$count" '[ $(delegations) = $count ]'
	}
	wait_for 60 handed_out
}

# An open on the server itself waits for the delegation to be returned.
guest_add <<-'EOF'
	recall_all() {
		local file pid pids=()
		for file in /export/$TEST/file*; do
			printf 'once more\n' >>$file &
			pids+=($!)
		done
		for pid in "${pids[@]}"; do wait $pid; done
		[ $(delegations) = 0 ] || fail "$(delegations) delegations are still there"
	}
EOF

# Proves: BD-007, BD-009, BD-010.
credits() {
	local count=6
	trace_begins server sunrpc/xprt_get_cong
	hand_out "$1" $count
	LIMIT=60 server recall_all
	server count="$count" <<-'EOF'
		sed -n 's/.*xprt_get_cong:.* cong=\([0-9]*\) cwnd=\([0-9]*\).*/\1 \2/p' \
			$TRACING/trace >/run/$TEST.cong
		[ $(wc -l </run/$TEST.cong) -ge $count ] || fail 'too few Calls'
		# What is taken when another is asked for: of one for the first Call, then of two at
		# most.
		head -n 1 /run/$TEST.cong | grep -qx '0 256' ||
			fail "at first it was $(head -n 1 /run/$TEST.cong)"
		awk '$1 > $2 || $2 > 512 { print; bad = 1 } END { exit bad }' /run/$TEST.cong
		grep -q ' 512$' /run/$TEST.cong || fail 'nothing was granted'
		rm /run/$TEST.cong
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
}

# The connection breaks, and Calls come on the one that replaces it.
reconnect() {
	client <<-'EOF'
		before=$(xprt_stat 3)
		break_connections
		reconnected() { ls $MNT >/dev/null && [ "$(xprt_stat 3)" -gt $before ]; }
		wait_for 40 reconnected
	EOF
	server 'wait_for 20 callback_works'
}

# A Receive is posted for each Call under way, beyond those for what is granted and those to spare:
# of the first connection, or, receives VERS again, of another one.
# Proves: BD-015, BD-016.
receives() {
	local spare before
	client '[ -f /lab/payload/rpcrdma_test_delay.ko ]' ||
		skip "the payload has no rpcrdma_test_delay.ko"
	spare=$(sed -n 's/^pub(super) const SPARE_RECEIVES: u32 = \([0-9]*\);$/\1/p' \
		"$lib/../../rust/server/sizes.rs")
	hand_out "$1" 2
	[ "${2:-}" != again ] || reconnect
	delay_events backward_call=120000
	before=$(server 'echo $(stat_of backward_calls) $(stat_of received_messages)')
	server before="$before" spare="$spare" <<-'EOF'
		rm -f /run/$TEST.recalled*
		read -r sent came <<<"$before"
		for n in 1 2; do
			(printf 'once more\n' >>/export/$TEST/file$n
			touch /run/$TEST.recalled$n) </dev/null >/dev/null 2>&1 &
		done
		sends() { [ $(stat_of backward_calls) -gt $sent ]; }
		wait_for 20 sends
		# What comes meanwhile takes a Receive, which need not be replaced at once.
		calls=$(($(stat_of backward_calls) - sent)) posted=$(stat_of receives_posted)
		came=$(($(stat_of received_messages) - came)) granted=$(stat_of credits_granted)
		printf "%d Receives, %d backward Calls, %d granted, %d to spare; %d came\n" \
			$posted $calls $granted $spare $came
		[ $((posted + came)) -ge $((granted + spare + calls)) ]
	EOF
	delays_end
	server <<-'EOF'
		wait_for 40 test -f /run/$TEST.recalled1
		wait_for 40 test -f /run/$TEST.recalled2; rm /run/$TEST.recalled*
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
	server 'wait_for 20 no_backward'
}

# Each holds the module, goes with its connection, and then the module can go.
ends() {
	local n uses
	server_dir /export
	server 'wait_for 20 no_backward; wait_for 20 no_connections'
	uses=$(server module_uses)
	for n in {1..5}; do
		client vers="$1" 'mount_nfs $vers'
		defer unmount_nfs
		server uses="$uses" <<-'EOF'
			wait_for 20 callback_works
			[ $(backward) = 1 ] || fail "there are $(backward)"
			uses_are() { [ $(module_uses) = $1 ]; }
			wait_for 10 uses_are $((uses + 2)) ||
				fail "a connection and its callbacks make $uses $(module_uses)"
		EOF
		client 'umount $MNT && wait_for 10 module_unused'
		server 'wait_for 20 no_backward'
	done
	defer server '/lab/guest/server resume'
	server <<-'EOF'
		/lab/guest/server stop
		wait_for 20 module_unused
		rmmod rpcrdma
		insmod /lab/payload/server/rpcrdma.ko
	EOF
}

# The client keeps the Call in its hands until that is given up, and answers it then. Its device
# goes on, so the connection lasts however long that takes.
silent() {
	# What is looked at while nfsd waits takes longer on a slow or emulated machine.
	server_lease $((30 * ${SLOW:-1}))
	hand_out "$1" 1
	delay_events backward_call=120000
	server <<-'EOF'
		rm -f /run/$TEST.recalled
		(printf "once more\n" >>/export/$TEST/file1
		touch /run/$TEST.recalled) </dev/null >/dev/null 2>&1 &
	EOF
	server <<-'EOF'
		call_fails() { ! callback_works; }
		wait_for 20 call_fails
		[ ! -f /run/$TEST.recalled ] || fail "the delegation came back"
	EOF
	delays_end
	server <<-'EOF'
		wait_for 40 test -f /run/$TEST.recalled; rm /run/$TEST.recalled
		wait_for 40 callback_works
	EOF
	client '[ "$(tail -n 1 $MNT/$TEST/file1)" = "once more" ]'
	# What it said at last is found to be for the Call that was given up.
	server <<-'EOF'
		credits_are_back() {
			local windows
			windows=$(grep -h "^cur_cong=" $(backward_files xprt_info)) &&
				! grep -v '=0$' <<<"$windows"
		}
		wait_for 20 credits_are_back
	EOF
	[ "$(client 'xprt_stat 3')" = 1 ] || ! is_rust || fail "the connection was lost"
	client 'umount $MNT && wait_for 10 module_unused'
	server 'wait_for 20 no_backward'
}

# What can be written to its files in sysfs.
sysfs() {
	hand_out "$1" 1
	server <<-'EOF'
		cat $(backward_files xprt_info) $(backward_files xprt_state) \
			$(backward_files srcaddr) >/dev/null
		for file in $(backward_files dstaddr); do
			! echo 192.0.2.77 2>/dev/null >$file ||
				fail "the client got another address"
			! echo 1 2>/dev/null >${file%/*/*}/add_xprt ||
				fail "a connection got another backward transport"
		done
		[ $(backward) = 1 ] || fail "there are $(backward) backward transports"
	EOF
	LIMIT=60 server recall_all
	client 'umount $MNT && wait_for 10 module_unused'
	server 'wait_for 20 no_backward'
}

# The connection is gone, and its svc_xprt is freed, but a reader keeps nfsd's RPC client.
outlived() {
	server '[ -d /sys/kernel/debug/sunrpc/rpc_clnt ]' ||
		skip "the kernel has no debugfs of sunrpc"
	hand_out "$1" 1
	server <<-'EOF'
		info=$(grep -ls "addr: *$CLIENT" /sys/kernel/debug/sunrpc/rpc_clnt/*/xprt/info)
		rm -f /run/$TEST.stop /run/$TEST.reads
		(exec 9<${info%/xprt/info}/tasks
		touch /run/$TEST.reads
		until [ -f /run/$TEST.stop ]; do sleep 0.1; done) </dev/null >/dev/null 2>&1 &
		wait_for 10 test -f /run/$TEST.reads
	EOF
	defer server 'touch /run/$TEST.stop'
	client 'umount $MNT && wait_for 10 module_unused'
	server <<-'EOF'
		wait_for 20 no_connections
		for file in $(backward_files dstaddr); do
			said=$( (echo 1 >${file%/*/*}/add_xprt) 2>&1) &&
				fail "it got another transport"
			grep -q "Broken pipe" <<<"$said" || fail "$said"
		done
		touch /run/$TEST.stop
		wait_for 20 no_backward
	EOF
}

# sunrpc breaks the connection after the first Calls.
# Proves: BD-019.
injected() {
	need_injection server
	hand_out "$1" 4
	defer server inject_ends
	LIMIT=120 server <<-'EOF'
		inject_begins 100 2
		recall_all
		has_injected 2
		inject_ends
	EOF
	client 'for n in {1..4}; do [ "$(tail -n 1 $MNT/$TEST/file$n)" = "once more" ]; done'
	[ "$(client 'xprt_stat 3')" -gt 1 ] || ! is_rust || fail "there was no other connection"
	client 'umount $MNT && wait_for 10 module_unused'
	server 'wait_for 20 no_backward'
}

test_case "v4.1: no more Calls than were granted" credits 4.1
test_case "v4.2: each has a Receive for its Reply" receives 4.2
test_case "v4.2: each has one on another connection as well" receives 4.2 again
test_case "v4.2: they end with their connections" ends 4.2
test_case "v4.2: a client says nothing for a while" silent 4.2
test_case "v4.1: what sysfs lets people do" sysfs 4.1
test_case "v4.2: one outlives its connection" outlived 4.2
test_case "v4.2: the connection breaks as they are sent" injected 4.2
run_cases
