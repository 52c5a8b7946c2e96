#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What sunrpc and nfsd do with a transport of the server's: Calls that wait for a cache, Calls that
# come once more, a limit of Calls at a time, exports for privileged ports, statistics.

. "$(dirname "$0")/lib/test.sh"

guest_add <"$lib/inject-guest.sh"

# nfsd has forgotten who may use what, and is not to wait for who knows: it puts such a Call aside,
# and takes it up again when it has been told. What the Call has brought along has to be there by
# then.
deferred() {
	local connects
	need_injection server
	server_dir /export
	mount_nfs 3
	connects=$(client 'xprt_stat 3')
	# Only what is sent inline can be put aside, so this has no data.
	client <<-'EOF'
		cd $MNT/$TEST
		for n in {1..20}; do : >"a file with a name that is checked, number $n"; done
	EOF
	trace_begins server sunrpc/svc_defer_drop sunrpc/svc_defer_queue sunrpc/svc_defer_recv
	nobody_waits
	for _ in {1..5}; do
		server 'exportfs -f'
		client <<-'EOF'
			drop_caches
			names=$(ls $MNT/$TEST | wc -l)
			[ $names = 20 ] || fail "there are $names names"
			mkdir "$MNT/$TEST/a folder" && rmdir "$MNT/$TEST/a folder"
		EOF
	done
	server 'inject_ends'
	server <<-'EOF'
		cat $TRACING/trace | grep -c svc_defer_recv: | sed "s/$/ Calls were taken up again/"
		[ $(grep -c svc_defer_recv: $TRACING/trace) -ge 5 ] || fail "$(cat $TRACING/trace)"
		! grep svc_defer_drop: $TRACING/trace || fail "a Call was dropped"
		# It has forgotten the client as well as the export: one Call is put aside for each.
		again=$(sed -n "s/.* svc_defer_recv:.* xid=//p" $TRACING/trace | sort | uniq -d |
			wc -l)
		printf "%d of them more than once\n" $again
		[ $again -gt 0 ] || fail "no Call was put aside twice"
	EOF
	client <<-'EOF'
		[ "$(xprt_stat 7)" = "$(xprt_stat 6)" ] ||
			fail "$(xprt_stat 7) Replies to $(xprt_stat 6) Calls"
		[ "$(xprt_stat 8)" = 0 ] || fail "$(xprt_stat 8) Replies to no Call"
	EOF
	[ "$(client 'xprt_stat 3')" = "$connects" ] || fail "the connection did not outlast it"
	client 'umount $MNT && wait_for 10 module_unused'
}

# For the rest of the case no thread waits for what nfsd asks of its helpers: the Call is put aside
# at once.
nobody_waits() {
	defer server inject_ends
	server INJECT=cache 'inject_begins 100'
}

# The connection of a Call that is put aside ends before the answer is there.
deferred_for_nobody() {
	need_injection server
	server_dir /export
	mount_nfs 3
	client ': >$MNT/$TEST/file; drop_caches'
	trace_begins server sunrpc/svc_defer sunrpc/svc_defer_drop sunrpc/svc_xprt_detach
	nobody_waits
	defer server 'pkill -CONT rpc.mountd'
	server 'pkill -STOP rpc.mountd && exportfs -f'
	client_background names '[ "$(ls $MNT/$TEST)" = file ]'
	server 'wait_for 30 grep -q "svc_defer:" $TRACING/trace'
	client 'break_connections'
	server <<-'EOF'
		wait_for 20 grep -q svc_xprt_detach: $TRACING/trace
		pkill -CONT rpc.mountd
		wait_for 30 grep -q svc_defer_drop: $TRACING/trace
	EOF
	LIMIT=100 client_wait names
	client 'umount $MNT && wait_for 10 module_unused'
	! is_served || server 'clients_gone 20'
}

# What nfsd has answered from its cache.
guest_add <<-'EOF'
	cache_hits() { awk '/^rc / { print $2 }' /proc/net/rpc/nfsd; }
EOF

# The connection breaks when Calls are on their way, and the client sends them once more on the next
# one, from another port. What nfsd did must not be done twice.
sent_again() {
	need_injection client
	server_dir /export
	mount_nfs_timeo 3
	defer client inject_ends
	LIMIT=150 client <<-'EOF'
		inject_begins 15
		for n in {1..40}; do
			mkdir $MNT/$TEST/$n || fail 'a folder was made twice'
			mv $MNT/$TEST/$n $MNT/$TEST/moved || fail 'a folder was moved twice'
			rmdir $MNT/$TEST/moved || fail 'a folder was removed twice'
		done
		inject_ends
		printf '%d connections were broken\n' $(injected)
		has_injected 5 || fail 'those are too few'
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
}

# The same for certain: the Reply is kept from being sent until the Call has come again.
sent_again_without_a_reply() {
	local hits
	need_injection client
	server '[ -f /lab/payload/rpcrdma_test_delay.ko ]' ||
		skip "the payload has no rpcrdma_test_delay.ko"
	server_dir /export
	mount_nfs_timeo 3
	defer client_wait written
	defer client 'touch /run/$TEST.write'
	hits=$(server cache_hits)
	defer client inject_ends
	# A file that is open already, so that nothing else is asked for before.
	client 'rm -f /run/$TEST.open /run/$TEST.write'
	client_background written <<-'EOF'
		exec 3>$MNT/$TEST/file
		touch /run/$TEST.open
		wait_for 40 test -f /run/$TEST.write
		dd if=/dev/zero bs=4k count=1 oflag=direct status=none >&3
	EOF
	client 'wait_for 20 test -f /run/$TEST.open'
	MACHINE=server delay_events one_reply=600000
	client 'touch /run/$TEST.write'
	server <<-'EOF'
		is_kept() { [ "$(delayed)" = 1 ]; }
		wait_for 20 is_kept
	EOF
	client <<-'EOF'
		inject_begins 100 1
		stat -f $MNT >/dev/null
		inject_is_over
	EOF
	client_wait written
	server hits="$hits" <<-'EOF'
		now=$(cache_hits)
		printf 'nfsd has answered %d Calls from its cache\n' $((now - hits))
		[ $now -gt $hits ] || fail 'no Call came twice'
	EOF
	delays_end server
	client 'umount $MNT && wait_for 10 module_unused'
}

# Only one Call of a connection at a time: whoever finishes one has to look for the next.
one_at_a_time() {
	defer server 'echo 0 >/sys/module/sunrpc/parameters/svc_rpc_per_connection_limit'
	server_dir /export
	mount_nfs "$1"
	client 'data_file 4M 16K'
	trace_begins server sunrpc/svc_xprt_no_write_space
	server 'echo 1 >/sys/module/sunrpc/parameters/svc_rpc_per_connection_limit'
	client 'drop_caches && read_at_once 16 256K 16K'
	server 'grep -q svc_xprt_no_write_space: $TRACING/trace || fail "no Call had to wait"'
	work_begins
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# An export for privileged ports only. No client has one with RDMA, and yet its Calls count as if
# they came from one, whatever the threads have served before: as with the kernel's own transport.
secure_port() {
	server_dir /export
	# By NFSv4 one comes from one export into another where something is mounted.
	server <<-'EOF'
		mount -t tmpfs none /export/$TEST
		exportfs -i -o rw,secure,no_root_squash,no_subtree_check,fsid=9 "*:/export/$TEST"
	EOF
	defer server 'exportfs -u "*:/export/$TEST"; exportfs -f; umount -l /export/$TEST'
	client 'mkdir -p $MNT.tcp'
	defer client '! mountpoint -q $MNT.tcp || umount $MNT.tcp; rmdir $MNT.tcp'
	mount_nfs "$1" '' "/export/$TEST"
	# A mount of the same version would use the connection that there is.
	client <<-'EOF'
		tcp=vers=4.0,proto=tcp$SIX,sec=sys,noresvport
		mount -t nfs -o $tcp $AT_SERVER:/export $MNT.tcp
		for n in {1..40}; do
			: >$MNT.tcp/$TEST.$n && rm $MNT.tcp/$TEST.$n
			: >$MNT/$n
		done
		drop_caches
		[ $(ls $MNT | wc -l) = 40 ] || fail 'there are names missing'
		umount $MNT.tcp
		! mount -t nfs -o $tcp $AT_SERVER:/export/$TEST $MNT.tcp 2>&1 ||
			fail 'this export is for any port'
	EOF
}

# What the server has counted: packets, those by UDP and by TCP, connections by TCP; and of its
# pools packets, transports that a thread was to look at, and threads that were woken.
guest_add <<-'EOF'
	counts() {
		awk '/^net / { print $2, $3, $4, $5 }
			FILENAME ~ /pool_stats/ && !/^#/ { packets += $2; looks += $3; woken += $4 }
			END { print packets, looks, woken }' \
			/proc/net/rpc/nfsd /proc/fs/nfsd/pool_stats | tr '\n' ' '
	}
EOF

# Each Call is a packet, and neither a Call nor the connection is one by UDP or by TCP.
counted() {
	local before after calls packets udp tcp connections in_pools looks woken
	server_dir /export
	read -ra before <<<"$(server counts)"
	mount_nfs 4.2
	# One at a time: sunrpc counts without a lock.
	client 'for _ in {1..10}; do calling true; done'
	calls=$(client 'xprt_stat 7')
	read -ra after <<<"$(server counts)"
	read -r packets udp tcp connections in_pools looks woken <<<"$(
		for n in {0..6}; do printf '%d ' $((after[n] - before[n])); done
	)"
	printf '%d Replies: %d packets, %d in pools, %d looks at transports, %d threads woken\n' \
		"$calls" "$packets" "$in_pools" "$looks" "$woken"
	[ "$calls" -gt 200 ] || fail "those are too few for this test"
	[ "$packets" -ge "$calls" ] || fail "some are no packets"
	[ "$in_pools" -ge "$calls" ] || fail "some are no packets of a pool"
	[ "$udp $tcp $connections" = "0 0 0" ] ||
		fail "$udp packets were by UDP, $tcp by TCP, with $connections connections"
	[ "$woken" -gt 0 ] || fail "no thread was woken"
	# The kernel's own transport has a thread look once more behind each Call.
	! is_served || [ "$looks" -le $((in_pools * 3 / 2)) ] ||
		fail "threads have looked for Calls that were not there"
	client 'umount $MNT && wait_for 10 module_unused'
}

test_case "v3: Calls wait for what nfsd has forgotten" deferred
test_case "v3: the connection of a Call that waits for that ends" deferred_for_nobody
test_case "v3: nothing is done twice when connections break" sent_again
test_case "v3: a Call comes again, as its Reply was kept" sent_again_without_a_reply
for vers in 3 4.2; do
	test_case "v$vers: one Call at a time" one_at_a_time $vers
done
for vers in 3 4.2; do
	test_case "v$vers: an export for privileged ports only" secure_port $vers
done
test_case "v4.2: what sunrpc counts of the server's packets" counted
run_cases
