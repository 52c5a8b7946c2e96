#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A file of the mount is swap space: its transport is counted as one that swaps, and connects with
# memory reserves, and never with memory that a file system has to give back first; what a program
# holds in memory goes out over it and comes back as it was, whatever other mounts wait for.
# virtual: swaps to a file on the mount, and has memory be short

. "$(dirname "$0")/lib/test.sh"

# What rpcrdma_test_swap tells, a control group whose programs may have 8 MiB, and a mount of another server.
guest_add <<-'EOF'
	told=/sys/module/rpcrdma_test_swap/parameters
	group=/run/$TEST.cgroup/limited
	dead=/run/$TEST.dead
	# The queue pairs, or regions, made since it was loaded with reserves, and those without: made WHAT.
	made() { read -r all reserves _ <$told/$1; printf "%d with reserves, %d without\n" $reserves $((all - reserves)); }
	# Those of them whose memory might have been waited for until a file system gives it back.
	waiting() { read -r _ _ waiting <$told/$1; printf "%d\n" $waiting; }
	swappers() { tr "\n" " " <$told/swappers; }
	# The number of each page, as 256 lines of 16 bytes.
	pages() { seq -f %015.0f 0 $(($1 * 256 - 1)); }
	# Whether they are all in the file, or which are not, and what is in their place.
	same() {
		limited "pages 6144 | cmp - /run/$TEST.data" && return 0
		awk '$0 + 0 != NR - 1 && !((NR - 1) % 256) { printf "page %d is page %s\n", (NR - 1) / 256, $0 / 256 }' /run/$TEST.data >/run/$TEST.other
		sed 30q /run/$TEST.other
		fail "$(wc -l </run/$TEST.other) pages are others"
	}
	# Runs a command in the group.
	limited() { (echo $BASHPID >$group/cgroup.procs && eval "$1"); }
EOF

group_begins() {
	client 'mkdir -p /run/$TEST.cgroup && mount -t cgroup2 none /run/$TEST.cgroup'
	defer client 'umount /run/$TEST.cgroup && rmdir /run/$TEST.cgroup'
	client 'grep -qw memory /run/$TEST.cgroup/cgroup.controllers' || skip "the kernel limits no group's memory"
	defer client 'echo -memory >/run/$TEST.cgroup/cgroup.subtree_control'
	client 'echo +memory >/run/$TEST.cgroup/cgroup.subtree_control'
	defer client 'rmdir $group'
	client 'mkdir $group && echo 8M >$group/memory.max'
}

# Mounts with swap space that is not used yet: space_begins VERS.
space_begins() {
	client 'grep -qw rpc_clnt_swap_activate /proc/kallsyms' || skip "the kernel has no swap space over NFS"
	server_dir /export
	# It must have no holes.
	server 'dd if=/dev/zero of=/export/$TEST/space bs=1M count=48 status=none && chmod 600 /export/$TEST/space'
	mount_nfs "$1"
	client 'mkswap -q $MNT/$TEST/space'
	defer client '! grep -q /space /proc/swaps || swapoff $MNT/$TEST/space'
}

# Ends the connection and waits for another.
guest_add <<-'EOF'
	# break_connection ADDRESS: that to this address.
	break_connection() { set_address "$(dirname "$(grep -lx "$1" /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/dstaddr)")" "$1"; }
	reconnect() {
		before=$(xprt_stat 3)
		connects_are_more() { [ $(xprt_stat 3) -gt $before ]; }
		break_connection $SERVER
		: >$MNT/$TEST/$before
		wait_for 30 connects_are_more
	}
EOF

swap_space() {
	client '[ -f /lab/payload/rpcrdma_test_swap.ko ]' || skip "the payload has no rpcrdma_test_swap.ko"
	defer client '! grep -q ^rpcrdma_test_swap /proc/modules || { wait_for 40 module_unused && rmmod rpcrdma_test_swap; }'
	client 'insmod /lab/payload/rpcrdma_test_swap.ko'
	space_begins "$1"
	client <<-'EOF'
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
		[ "$(made queue_pairs)" = "1 with reserves, 2 without" ] || fail "queue pairs: $(made queue_pairs)"
		[ "$(waiting queue_pairs) $(waiting regions)" = "0 0" ] || fail "made while file systems may wait for it: queue pairs $(waiting queue_pairs), regions $(waiting regions)"
	EOF
	client 'umount $MNT && wait_for 40 module_unused && rmmod rpcrdma_test_swap'
}

# content_begins VERS
content_begins() {
	# The memory of its programs comes back wrong, over TCP and from a disk too.
	client '! grep -q "User Mode Linux" /proc/cpuinfo' || skip "User-Mode Linux confuses its programs' pages when they swap"
	group_begins
	space_begins "$1"
	defer client 'rm -f /run/$TEST.data'
	client 'swapon $MNT/$TEST/space'
}
goes_out_and_in() {
	LIMIT=200 client <<-'EOF'
		reads=$(xprt_stat 11) writes=$(xprt_stat 12)
		limited "pages 6144 >/run/$TEST.data"
		swapped=$(cat $group/memory.swap.current)
		printf "%d KiB of memory are in swap space\n" $((swapped / 1024))
		[ $swapped -ge $((8 << 20)) ] || fail "that is less than the limit makes it"
		same
		printf "segments of Read chunks: %d, of Write chunks: %d\n" $(($(xprt_stat 11) - reads)) $(($(xprt_stat 12) - writes))
		[ $(xprt_stat 11) -gt $reads ]
		[ $(xprt_stat 12) -gt $writes ]
		echo max >$group/memory.max
		swapoff $MNT/$TEST/space
		same
	EOF
}

content() {
	content_begins "$1"
	goes_out_and_in
	client 'umount $MNT && wait_for 10 module_unused'
}

OTHER=192.0.2.11
guest_add OTHER="$OTHER" true

# A task waits for another server, which nothing reaches any more. While an attempt to connect to it is under way, which
# takes half a minute, the transport for swap space connects anew, and then carries it.
beside_a_dead_server() {
	is_rust || skip "the kernel's own module does not tell of its attempts to connect"
	content_begins "$1"
	server_address $OTHER
	defer client '! mountpoint -q $dead || umount $dead; rmdir $dead'
	client 'mkdir $dead && mount -t nfs -o proto=rdma,port=20049,vers=3,nolock $OTHER:/export $dead && : >$dead/$TEST/file'
	tasks_wait client 600
	defer client 'wait_for 100 test -f /run/job.tasks.status'
	defer client 'ip neigh del $OTHER dev $NETDEV'
	client 'ip neigh replace $OTHER dev $NETDEV nud permanent lladdr 52:54:00:00:00:99'
	client_background tasks 'dd if=/dev/zero of=$dead/$TEST/file bs=1M count=4 conv=fsync status=none'
	client <<-'EOF'
		break_connection $OTHER
		connecting() { [ "$(our_stat state)" = connecting ]; }
		wait_for 20 connecting
		reconnect
		[ "$(our_stat state)" = connecting ] || fail "it waited for an attempt to connect to another server"
		! our_stat connect_failed_timed_out | grep . || fail "it waited for an attempt to connect to another server"
	EOF
	goes_out_and_in
	client '[ ! -f /run/job.tasks.status ] && ip neigh del $OTHER dev $NETDEV'
	LIMIT=150 client_wait tasks
	client 'umount $dead'
	server_forgets
}

for vers in 3 4.2; do
	test_case "v$vers: a transport for swap space has reserves" swap_space $vers
done
test_case "v4.2: memory goes out and comes back" content 4.2
test_case "v4.2: the same while another server is dead" beside_a_dead_server 4.2
run_cases
