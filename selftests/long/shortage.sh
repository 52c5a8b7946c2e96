#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Allocations fail that the transport, or what it calls, makes: during steady I/O, and while it
# connects. The program on a hard mount sees only pauses, and what failed is tried again in measure.

. "$(dirname "$0")/../lib/test.sh"

shortage=$(<"$lib/shortage-guest.sh")$'\n'
short_client() { client "$shortage$1"; }

need_filter() {
	client '[ -f /sys/kernel/debug/failslab/require-start ]' || skip "the kernel cannot choose which allocations to fail"
}

# The transport keeps what it has allocated. So many threads more want more of everything.
steady() {
	need_filter
	server_dir /export
	mount_nfs "$1"
	client 'data_file 4M 16k'
	work_begins
	defer 'short_client shortage_ends'
	short_client "shortage_begins $2"
	short_client "
		read_at_once 64 64k 16k
		shortage_ends
		printf '%d allocations failed\n' \$(failed)
		has_failed 5 || fail 'that is not enough to tell anything'"
	client 'work_goes_on 30'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# Every new connection needs a lot of memory at once.
reconnecting() {
	need_filter
	server_dir /export
	mount_nfs "$1"
	work_begins
	defer 'short_client shortage_ends'
	defer 'client rdma_link_add'
	short_client "shortage_begins $2"
	for _ in {1..3}; do
		client 'rdma link delete $RDMA_LINK && rdma_link_add'
		client 'work_goes_on 55'
	done
	short_client '
		shortage_ends
		printf "%d allocations failed\n" $(failed)
		has_failed 1 || fail "no allocation failed"'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# With no memory at all each attempt fails at once. There are to be a few a second, not thousands.
paced() {
	local attempts
	need_filter
	server_dir /export
	mount_nfs "$1"
	work_begins
	defer 'short_client shortage_ends'
	defer 'client rdma_link_add'
	short_client '
		shortage_begins 1
		rdma link delete $RDMA_LINK
		rdma_link_add
		wait_for 30 has_failed 3'
	attempts=$(short_client 'before=$(failed); sleep 5; echo $(($(failed) - before))')
	printf '%d allocations failed in five seconds\n' "$attempts"
	[ "$attempts" -le 500 ] || fail "it tries again too soon"
	short_client shortage_ends
	client 'work_goes_on 55'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

for every in 2 10; do
	test_case "v4.2: one in $every of the transport's allocations fails under I/O" steady 4.2 $every
done
# A connection needs about four hundred of them, so that every other attempt fails, or every third.
for vers in 3 4.2; do
	for every in 500 1000; do
		test_case "v$vers: one in $every of them fails during reconnects" reconnecting $vers $every
	done
done
test_case "v4.2: without memory the pace of reconnects is slow" paced 4.2
run_cases
