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

guest+='
registered() { awk "\$1 == \"registrations\" { print \$2 }" /sys/module/rpcrdma_test_limits/parameters/work; }
'

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
	before=$(server registered)
	LIMIT=200 client 'drop_caches; read_at_once 8 2M 1M'
	server "
		printf '%d regions for 16 MiB\n' \$((\$(registered) - $before))
		[ \$(registered) -gt $before ] || fail 'nothing was registered'"
	[ "$(client 'xprt_stat 3')" = 1 ] || fail "the connection has ended"
	client 'umount $MNT && wait_for 10 module_unused'
	limits_end server
}

for pages in 256 19; do
	test_case "v3: regions of $pages pages" short_regions 3 $pages
done
test_case "mount.sh" other mount 'v3|v4.2'
test_case "io.sh" other io 'v3, direct|v4.2, buffered'
test_case "forms.sh" other forms
test_case "killed.sh" other killed 'v3'
test_case "removal.sh" other removal 'under I/O'
run_cases
