#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the server grants a connection: more when its client uses all of it, as far as there is memory for the Receives,
# and never less.
# virtual: takes the server's memory away

. "$(dirname "$0")/lib/test.sh"

guest_add <"$lib/shortage-guest.sh"

# Also run before each command in the server.
guest_add <<-'EOF'
	limit_is() { [ "$(stat_of credits_limit)" = "$1" ]; }
	granted_beyond() { [ "$(stat_of credits_granted)" -gt "$1" ]; }
	# Messages for which rxe found no Receive.
	not_ready() { rdma_counter send_rnr_err 2>/dev/null || echo 0; }

	# Whether allocations fail of nfsd alone, 1 or 0. The kernel looks at the stack of each allocation that might
	# fail, which makes a machine so slow that its packets are taken for lost.
	nfsd_alone() {
		local comm
		for comm in $(grep -lx nfsd /proc/[0-9]*/comm); do echo "$1" >"${comm%comm}make-it-fail"; done
		echo "$1" >/sys/kernel/debug/failslab/task-filter
	}
EOF

# A mount, and how many Calls its connection may have at first.
begin() {
	server '[ -d /sys/kernel/debug/rpcrdma ]' || skip "the kernel's own server has no such files"
	server_dir /export/disk
	mount_nfs 3 '' /export/disk
	client 'calling truncate -s 1M $MNT/$TEST/data'
	first=$(server 'stat_of credits_limit')
	max=$(server 'stat_of credits_max')
	[ "$first" -lt "$max" ] || fail "the limit is $first at first, and at most $max"
	server first="$first" '! granted_beyond $first'
}

# Many small WRITEs at once. The file system stands still until as many Calls as are granted are in the server: one
# that answers each before the next arrives has no reason to grant more.
load_begins() {
	defer server 'fsfreeze -u /export/disk 2>/dev/null || true'
	server 'fsfreeze -f /export/disk'
	client_background load <<-'EOF'
		fio --name=load --filename=$MNT/$TEST/data --rw=write --direct=1 --ioengine=libaio \
			--iodepth=128 --bs=4k --size=1M --fallocate=none --output=/dev/null
	EOF
	server <<-'EOF'
		are_waiting() { [ "$(stat_of calls_outstanding)" -ge "$(stat_of credits_granted)" ]; }
		wait_for 30 are_waiting
		fsfreeze -u /export/disk
	EOF
}
load() {
	load_begins
	client_wait load
}

# With its load the grant rises; without, it stays, and so do its Receives.
with_load() {
	local first max most not_ready
	not_ready=$(server not_ready)
	begin
	load
	most=$(server 'stat_of credits_granted')
	printf 'granted: %d at first, %d under load, of %d\n' "$first" "$most" "$max"
	[ "$most" -gt "$first" ] || fail "the grant has not risen"
	client 'for n in {1..200}; do calling true; done'
	server most="$most" 'limit_is $most && [ $(stat_of receives_posted) -ge $most ]' || fail "the grant has fallen"
	# Where the device does not repeat a Send without a Receive the connection would have ended.
	[ "$(server 'not_ready')" = "$not_ready" ] && [ "$(client 'xprt_stat 3')" = 1 ] ||
		fail "there was no Receive for a Call that was granted"
}

# The device's queues are small: its Receives take a quarter of what one holds at most, whatever the setting says.
small_device() {
	local first max
	server '[ -d /sys/kernel/debug/rpcrdma ]' || skip "the kernel's own server has no such files"
	MACHINE=server limit_devices max_qp_wr=160
	begin
	[ "$max" -le 40 ] || fail "$max may be granted"
	load
	server first="$first" max="$max" <<-'EOF'
		granted=$(stat_of credits_granted) posted=$(stat_of receives_posted)
		printf 'granted: %d, posted: %d\n' $granted $posted
		[ $granted -gt $first ] || fail 'the grant has not risen'
		[ $granted -le $max ] && [ $posted -ge $granted ]
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# No memory for more Receives than there are.
without_memory() {
	local first max not_ready
	need_filter server
	server_anew
	not_ready=$(server not_ready)
	begin
	defer server 'shortage_ends; nfsd_alone 0'
	server <<-'EOF'
		nfsd_alone 1
		shortage_begins 1 "" SvcxprtRdma10post_recvs
	EOF
	load_begins
	server first="$first" <<-'EOF'
		starves() { [ $(listener_of starved_grants) -ge 3 ]; }
		wait_for 30 starves
		grep -E '^(credits|receive)' $(newest_connection)/connection
		! granted_beyond $(stat_of receive_buffers) || fail 'there are not as many Receives'
		limit_is $first || fail 'the limit has risen'
		shortage_ends
		nfsd_alone 0
	EOF
	client_wait load
	server not_ready="$not_ready" <<-'EOF'
		[ $(not_ready) = $not_ready ] || fail 'there was no Receive for a Call that was granted'
		printf '%d times memory was short\n' $(listener_of starved_grants)
	EOF
	load
	server first="$first" 'granted_beyond $first || fail "the grant does not rise with memory"'
}

test_case "grants rise with the load of a connection, and stay" with_load
test_case "a small device: they rise as far as its queues hold Receives" small_device
test_case "they do not rise while there is no memory for its Receives" without_memory
run_cases
