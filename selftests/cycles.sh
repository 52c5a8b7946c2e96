#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Fifty times mount and unmount: after each, neither side holds anything of it any more.
# limit: 150

. "$(dirname "$0")/lib/test.sh"

CYCLES=50 WARM_UP=20

cycles() {
	local server_before
	# The first mount of each kind leaves caches behind that are made once.
	client '
		for vers in 3 4.2; do
			mount_nfs $vers
			ls $MNT >/dev/null
			umount $MNT
		done
		wait_for 10 module_unused'
	server_before=$(server '
		wait_for 20 sh -c "! rdma resource show cm_id | grep -q CONNECT"
		rdma_resources')
	LIMIT=120 client "
		transports() { (cd /sys/kernel/debug && printf '%s\n' sunrpc/rpc_xprt/* rpcrdma/[0-9]* | grep -c '[0-9]\$' || true); }
		# Of the kernel's threads those that belong to one workqueue; others come and go.
		threads() { cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^kworker/R' || true; }
		# KiB that the kernel took by parts, and all that it cannot give back, which wavers more.
		slabs() { awk '/^(SUnreclaim|KernelStack|VmallocUsed|Percpu):/ { kib += \$2 } END { print kib }' /proc/meminfo; }
		memory() {
			awk '/^MemTotal:/ { kib += \$2 } /^(MemFree|Buffers|Cached|SReclaimable|AnonPages):/ { kib -= \$2 }
				END { print kib }' /proc/meminfo
		}
		resources=\$(rdma_resources)
		transports=\$(transports)
		for n in {1..$CYCLES}; do
			[ \$((n % 2)) = 0 ] && vers=3 || vers=4.2
			mount_nfs \$vers
			[ \"\$(rdma_resources)\" != \"\$resources\" ] || fail 'a mount takes nothing from the device'
			ls \$MNT >/dev/null
			umount \$MNT
			wait_for 10 module_unused
			wait_for 10 rdma_resources_are \"\$resources\" || fail \"cycle \$n: the device had \$resources and has \$(rdma_resources)\"
			[ \$(transports) = \$transports ] || fail \"cycle \$n: debugfs had \$transports transports and has \$(transports)\"
			if [ \$n = $WARM_UP ]; then
				drop_caches
				threads=\$(threads) slabs=\$(slabs) memory=\$(memory)
			fi
		done
		# One may be on its way out; a leak would be one a cycle, or every other one.
		[ \$((\$(threads) - threads)) -lt \$((($CYCLES - $WARM_UP) / 4)) ] || fail \"there were \$threads threads and are \$(threads)\"
		drop_caches
		printf 'slabs and the like grew by %d KiB, memory in use by %d KiB\n' \$((\$(slabs) - slabs)) \$((\$(memory) - memory))
		# Such a kernel delays what it frees, and looks for leaks itself.
		[ ! -f /sys/kernel/debug/kmemleak ] || exit 0
		[ \$((\$(slabs) - slabs)) -lt \$((($CYCLES - $WARM_UP) * 8)) ] || fail 'a leak of 8 KiB a cycle or more'
		[ \$((\$(memory) - memory)) -lt \$((($CYCLES - $WARM_UP) * 100)) ] || fail 'a leak of 100 KiB a cycle or more'"
	server "wait_for 20 rdma_resources_are '$server_before' || fail \"the server's device had $server_before and has \$(rdma_resources)\""
}

test_case "$CYCLES mounts and unmounts leave nothing" cycles
run_cases
