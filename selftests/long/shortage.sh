#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Allocations fail that the transport, or what it calls, makes, in the client or in the server: while the
# module is loaded, during steady I/O, and while it connects. The program on a hard mount sees only pauses,
# and what failed is tried again in measure.
# limit: 1800
# virtual: has allocations fail

. "$(dirname "$0")/../lib/test.sh"

guest_add <"$lib/shortage-guest.sh"

# Each allocation with which the module begins fails once. Then it is loaded without files in debugfs, or
# is not, and nothing stays of it.
loading() {
	need_filter client
	defer client 'module_loaded || module_load'
	defer client shortage_ends
	LIMIT=550 client <<-'EOF'
		resources=$(rdma_resources)
		file=$(module_file)
		rmmod rpcrdma
		shortage_at_load
		round=0 loaded=0
		until [ "$(failed)" -lt $round ]; do
			round=$((round + 1))
			if (
				echo $round >/proc/self/fail-nth
				exec insmod "$file"
			) 2>/run/$TEST.err; then
				loaded=$((loaded + 1))
				ls /proc/sys/sunrpc/{rdma_max_inline_read,svc_rdma} >/dev/null ||
					fail "number $round: loaded without its settings"
				rmmod rpcrdma
			else
				grep -q "Cannot allocate memory" /run/$TEST.err ||
					fail "number $round: $(cat /run/$TEST.err)"
			fi
			module_left_nothing
		done
		shortage_ends
		rm /run/$TEST.err
		printf "%d allocations, %d that may fail\n" $((round - 1)) $((loaded - 1))
		[ $round -gt 20 ] || fail "that is not enough to tell anything"
		rdma_resources_are "$resources" ||
			fail "the device had $resources and has $(rdma_resources)"
		mark=$(log_mark)
		module_load
		log_has $mark "RPC: Registered rdma transport module\."
	EOF
}

# The transport keeps what it has allocated. So many threads more want more of everything.
steady() {
	need_filter client
	server_dir /export
	mount_nfs "$1"
	client 'data_file 4M 16k'
	work_begins
	defer client shortage_ends
	client nth="$2" 'shortage_begins $nth'
	client <<-'EOF'
		read_at_once 64 64k 16k
		shortage_ends
		printf '%d allocations failed\n' $(failed)
		has_failed 5 || fail 'that is not enough to tell anything'
	EOF
	client 'work_goes_on 30'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# With no memory at all the transport's own reserve of buffers lets data be written back, however new the
# connection is: nothing else may free memory.
written_back() {
	need_filter client
	server_dir /export
	mount_nfs "$1"
	client <<-'EOF'
		head -c 4M /dev/urandom >/run/$TEST.data
		: >$MNT/$TEST/file
	EOF
	defer client shortage_ends
	LIMIT=60 client <<-'EOF'
		{
			break_connections
			ls $MNT/$TEST >&2
			shortage_begins 1
			dd if=/run/$TEST.data bs=64k conv=fsync status=none
			shortage_ends
		} >$MNT/$TEST/file
		printf '%d allocations failed\n' $(failed)
		has_failed 5 || fail 'that is not enough to tell anything'
	EOF
	[ "$(client 'sha256sum </run/$TEST.data; rm /run/$TEST.data')" = "$(server 'sha256sum </export/$TEST/file')" ] ||
		fail "other data was written"
	mount_ends
}

# Every new connection needs a lot of memory at once.
reconnecting() {
	need_filter client
	server_dir /export
	mount_nfs "$1"
	work_begins
	defer client shortage_ends
	defer client rdma_link_add
	client nth="$2" 'shortage_begins $nth'
	for _ in {1..3}; do
		client 'rdma link delete $RDMA_LINK && rdma_link_add'
		client 'work_goes_on 55'
	done
	client <<-'EOF'
		shortage_ends
		printf "%d allocations failed\n" $(failed)
		has_failed 1 || fail "no allocation failed"
	EOF
	work_ends
	server_forgets
}

# With no memory at all each attempt fails at once. There are to be a few a second, not thousands.
paced() {
	local attempts
	need_filter client
	server_dir /export
	mount_nfs "$1"
	work_begins
	defer client shortage_ends
	# A device that is added waits until there is memory.
	client <<-'EOF'
		shortage_begins 1
		break_connections
		wait_for 30 has_failed 3
	EOF
	attempts=$(client <<-'EOF'
		before=$(failed)
		sleep 5
		echo $(($(failed) - before))
	EOF
	)
	printf '%d allocations failed in five seconds\n' "$attempts"
	[ "$attempts" -le 500 ] || fail "it tries again too soon"
	client shortage_ends
	client 'work_goes_on 55'
	work_ends
	server_forgets
}

# The same in the server: served FAILURES [ARGUMENT...]. What is only made once is there afterwards.
served() {
	need_served
	need_filter server
	server_dir /export
	defer server shortage_ends
	during_load true
	server_mark
	"$@"
	server_check 200
}

# Runs a command while many threads of the client write and verify.
during_load() {
	mount_nfs 4.2
	fio_begins --size=64k --bs=16k --rw=randwrite --ioengine=psync --thread --numjobs=64
	work_begins
	client 'wait_for 55 test -s /run/fio.verified'
	"$@"
	client 'work_goes_on 55'
	fio_ends
	work_ends
	mount_ends
}

# One that fails costs no connection, as a thread tries again: each time another one, of a WRITE on a new connection.
once() {
	local round connects failed=0
	mount_nfs 3
	for round in {1..12}; do
		client 'break_connections; dd if=/dev/urandom of=$MNT/$TEST/file bs=8K count=1 oflag=direct status=none'
		connects=$(client 'xprt_stat 3')
		server round="$round" 'shortage_begins $round 1'
		client <<-'EOF'
			head -c 256K /dev/urandom >/run/$TEST.data
			dd if=/run/$TEST.data of=$MNT/$TEST/file bs=256K oflag=direct conv=notrunc status=none
			drop_caches
			cmp /run/$TEST.data $MNT/$TEST/file
			rm /run/$TEST.data
		EOF
		failed=$((failed + $(server 'shortage_ends; failed')))
		[ "$(client 'xprt_stat 3')" = "$connects" ] || fail "one that failed has cost the connection"
	done
	printf '%d allocations failed\n' $failed
	[ $failed -ge 6 ] || fail "that is not enough to tell anything"
	mount_ends
}

# By how much a sum of values of the listener has risen: risen REGEX BEFORE.
risen() { server name="$1" before="$2" 'echo $(($(listener_of "$name") - before))'; }

# Some fail of a connection that is in use, which costs it: strikes EVERY.
strikes() {
	local before
	before=$(server 'listener_of "ended_.*"')
	for _ in {1..10}; do
		server nth="$1" 'shortage_strikes $nth'
		client 'work_goes_on 55'
	done
	printf '%d connections have ended\n' "$(risen 'ended_.*' "$before")"
	[ "$(risen 'ended_.*' "$before")" -gt 0 ] || fail "that is not enough to tell anything"
}

# A new connection needs more Receives for each Call that it is granted: renewals EVERY.
renewals() {
	local before round=0
	before=$(server 'listener_of starved_grants')
	server nth="$1" 'shortage_begins $nth'
	until [ "$(risen starved_grants "$before")" -gt 0 ]; do
		[ $((round += 1)) -le 20 ] || fail "no grant was starved after 20 connections"
		client break_connections
		client 'work_goes_on 55'
	done
	server <<-'EOF'
		shortage_ends
		printf "%d allocations failed\n" $(failed)
	EOF
	printf '%d connections: %d grants were starved\n' $round "$(risen starved_grants "$before")"
}

# With no memory at all no connection is accepted.
refusals() {
	local before
	before=$(server 'listener_of accept_failures')
	server 'shortage_begins 1'
	client break_connections
	server before="$before" <<-'EOF'
		refused() { [ $(($(listener_of accept_failures) - before)) -ge 3 ]; }
		wait_for 100 refused
		shortage_ends
	EOF
}

test_case "each allocation that loading makes fails once" loading
for every in 2 10; do
	test_case "v4.2: one in $every of the transport's allocations fails under I/O" steady 4.2 $every
done
for vers in 3 4.2; do
	test_case "v$vers: without memory data is written back" written_back $vers
done
# A connection needs about four hundred of them, so that every other attempt fails, or every third.
for vers in 3 4.2; do
	for every in 500 1000; do
		test_case "v$vers: one in $every of them fails during reconnects" reconnecting $vers $every
	done
done
test_case "v4.2: without memory the pace of reconnects is slow" paced 4.2
test_case "v3: one of the server's fails for each of several WRITEs" served once
for every in 2 10; do
	test_case "v4.2: ten times some of the server's fail, one in $every" served during_load strikes $every
done
test_case "v4.2: one in 500 of the server's fails during reconnects" served during_load renewals 500
test_case "v4.2: a server without memory refuses connections" served during_load refusals
run_cases
