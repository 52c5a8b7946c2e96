#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# With a parameter of the RDMA core that has it register the memory of every RDMA Read and RDMA Write of
# the server, whatever the device would do without.
# boot: ib_core.force_mr=1
# limit: 900
# virtual: boots machines with the parameter

. "$(dirname "$0")/lib/test.sh"

forced() { server 'grep -qw ib_core.force_mr=1 /proc/cmdline' || skip "the machines were not booted with APPEND=ib_core.force_mr=1"; }

guest_add <<-'EOF'
	limits=/sys/module/rpcrdma_test_limits/parameters
	counted() { awk -v kind="$1" '$1 == kind { print $2 }' $limits/work; }
EOF

# Runs another test's cases over it: other NAME [REGEX].
other() {
	forced
	other_test "$(dirname "$0")/$1.sh" "${2:-}"
}

# Regions of so few pages that a transfer takes several, more than there are for all at once: PAGES.
short_regions() {
	local before
	forced
	MACHINE=server limit_devices count_work=1 max_fast_reg_pages="$2"
	server_dir /export
	mount_nfs "$1"
	LIMIT=200 client 'data_file 16M 1M'
	before=$(server 'counted registrations')
	LIMIT=200 client 'drop_caches; read_at_once 8 2M 1M'
	server before="$before" <<-'EOF'
		registered=$(($(counted registrations) - before))
		printf '%d regions for 16 MiB\n' $registered
		[ $registered -gt 0 ] || fail 'nothing was registered'
	EOF
	[ "$(client 'xprt_stat 3')" = 1 ] || fail "the connection has ended"
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

# While regions take no pages a Call costs its connection, when the tries of a second have failed, for that cause, and
# comes again on the next: maps_fail VERS.
maps_fail() {
	forced
	server 'clients_gone 20'
	# Not before it is changed.
	MACHINE=server limit_devices failing_maps=1000000000
	server_anew
	server_dir /export
	mount_nfs_timeo "$1"
	client 'head -c 64K /dev/urandom >/run/$TEST.data'
	defer client 'rm -f /run/$TEST.data'
	client ': >$MNT/$TEST/file'
	fail_for local_resources 'dd if=/run/$TEST.data of=$MNT/$TEST/file bs=64K oflag=direct status=none'
	fail_for reply_failed 'dd if=$MNT/$TEST/file bs=64K iflag=direct status=none | cmp - /run/$TEST.data'
	client 'umount $MNT && wait_for 10 module_unused'
	server 'clients_gone 20'
	limits_end server
}
# Connections end for a cause, and for no other, until regions take pages again: fail_for CAUSE COMMAND-OF-THE-CLIENT.
fail_for() {
	local before
	before=$(server 'counted failed_maps; listener_of "ended_.*"' | tr '\n' ' ')
	server 'echo 1 >$limits/failing_maps'
	client_background transfer "$2"
	server cause="$1" before="$before" <<-'EOF'
		read -r maps ends <<<"$before"
		ended() { [ "$(listener_of "ended_$cause")" -ge 2 ]; }
		wait_for 60 ended
		echo 1000000000 >$limits/failing_maps
	EOF
	LIMIT=100 client_wait transfer
	server cause="$1" before="$before" <<-'EOF'
		read -r maps ends <<<"$before"
		maps=$(($(counted failed_maps) - maps)) ends=$(($(listener_of "ended_.*") - ends))
		printf "%d regions took no pages, %d connections ended\n" $maps $ends
		[ "$(listener_of "ended_$cause")" = $ends ] || fail "$(cat /sys/kernel/debug/rpcrdma/listener-*/listener)"
		[ $maps -ge $((2 * ends)) ] || fail "some were not tried again"
	EOF
}

for pages in 256 19; do
	test_case "v3: regions of $pages pages" short_regions 3 $pages
done
for vers in 3 4.2; do
	test_case "v$vers: regions take no pages for a second" maps_fail $vers
done
# Pending Replies and Reads that are dropped have regions; a Reply of too many RDMA Writes has none.
test_case "crowd.sh" other crowd 'the last chain waits'
test_case "requester.sh" other requester 'too small for their results|fit the Receives'
test_case "mount.sh" other mount 'v3|v4.2'
test_case "io.sh" other io 'v3, direct|v4.2, buffered'
test_case "forms.sh" other forms
test_case "killed.sh" other killed 'v3'
test_case "removal.sh" other removal 'under I/O'
run_cases
