#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A file of the mount is swap space: its transport is counted as one that swaps, and connects with
# memory reserves.

. "$(dirname "$0")/lib/test.sh"

# What rpcrdma_test_swap tells.
swap='
	told=/sys/module/rpcrdma_test_swap/parameters
	# The queue pairs, or regions, made since it was loaded with reserves, and those without: made WHAT.
	made() { read -r all reserves <$told/$1; printf "%d with reserves, %d without\n" $reserves $((all - reserves)); }
	swappers() { tr "\n" " " <$told/swappers; }
'
swap_client() { client "$swap$1"; }

# Mounts with swap space that is not used yet: space_begins VERS.
space_begins() {
	client 'grep -qw rpc_clnt_swap_activate /proc/kallsyms' || skip "the kernel has no swap space over NFS"
	server_dir /export
	# It must have no holes.
	server 'dd if=/dev/zero of=/export/$TEST/space bs=1M count=96 status=none && chmod 600 /export/$TEST/space'
	mount_nfs "$1"
	client 'mkswap -q $MNT/$TEST/space'
	defer "client '! grep -q /space /proc/swaps || swapoff \$MNT/\$TEST/space'"
}

# Ends the connection and waits for another.
reconnect='
	reconnect() {
		before=$(xprt_stat 3)
		connects_are_more() { [ $(xprt_stat 3) -gt $before ]; }
		for transport in /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma; do echo $SERVER >$transport/dstaddr; done
		: >$MNT/$TEST/$before
		wait_for 30 connects_are_more
	}
'

swap_space() {
	client '[ -f /lab/payload/rpcrdma_test_swap.ko ]' || skip "the payload has no rpcrdma_test_swap.ko"
	defer "client '! grep -q ^rpcrdma_test_swap /proc/modules || { wait_for 40 module_unused && rmmod rpcrdma_test_swap; }'"
	client 'insmod /lab/payload/rpcrdma_test_swap.ko'
	space_begins "$1"
	swap_client "$reconnect"'
		[ "$(made queue_pairs)" = "0 with reserves, 1 without" ] || fail "queue pairs: $(made queue_pairs)"
		[ "$(swappers)" = "0 " ] || fail "the transport is a swapper already: $(swappers)"
		swapon $MNT/$TEST/space
		[ "$(swappers)" = "1 " ] || fail "nobody has counted the swap space: $(swappers)"
		reconnect
		printf "queue pairs: %s; regions: %s\n" "$(made queue_pairs)" "$(made regions)"
		[ "$(made queue_pairs)" = "1 with reserves, 1 without" ] || fail "the worker that connects has no reserves"
		[[ $(made regions) != "0 with"* ]] || fail "no region was made with reserves"
		swapoff $MNT/$TEST/space
		[ "$(swappers)" = "0 " ] || fail "the transport counts as a swapper still: $(swappers)"
		reconnect
		[ "$(made queue_pairs)" = "1 with reserves, 2 without" ] || fail "queue pairs: $(made queue_pairs)"'
	client 'umount $MNT && wait_for 40 module_unused && rmmod rpcrdma_test_swap'
}

for vers in 3 4.2; do
	test_case "v$vers: a transport for swap space has reserves" swap_space $vers
done
run_cases
