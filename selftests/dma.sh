#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Over a device for which memory is mapped for DMA, every mapping being a bounce buffer: a mapping that
# is missing, is not synchronised or has the wrong direction shows as wrong bytes, one that is left
# as a slot of the bounce buffers that stays in use. What it runs is other tests' cases.
# boot: swiotlb=force
# limit: 900
# virtual: loads another kind of software device

. "$(dirname "$0")/lib/test.sh"

machines=(client)
! is_served || machines+=(server)

# For the rest of the case the machines with our module have that device, and nothing mapped is left at its
# end.
dma_device() {
	local machine
	client '[ -f /lab/payload/rdma_rxe.ko ]' || skip "the payload has no rdma_rxe.ko, see scripts/dma-device.sh"
	client 'grep -qw swiotlb=force /proc/cmdline' || skip "the machines were not booted with APPEND=swiotlb=force"
	for machine in "${machines[@]}"; do
		defer "$machine" 'rdma_link_delete; rmmod rdma_rxe; modprobe rdma_rxe; rdma_link_add'
		"$machine" parameters="${DEVICE:-}" <<-'EOF'
			rdma_link_delete
			rmmod rdma_rxe
			insmod /lab/payload/rdma_rxe.ko $parameters
			rdma_link_add
			bounced >/run/$TEST.bounced
		EOF
		defer "$machine" 'wait_for 20 nothing_mapped'
	done
}
guest_add <<-'EOF'
	bounced() { cat /sys/kernel/debug/swiotlb/io_tlb_used; }
	# The connection manager sends some messages yet when a connection has ended.
	nothing_mapped() { [ "$(bounced)" = "$(cat /run/$TEST.bounced)" ]; }
EOF

# Runs another test's cases over it: other NAME [REGEX].
other() {
	dma_device
	other_test "$(dirname "$0")/$1.sh" "${2:-}"
}

# The same, where each bounce buffer begins with a slot: what is mapped of a page has another offset then.
moved() { DEVICE=keep_offsets=0 other "$@"; }

# What is mapped for a mount is mapped in bounce buffers; readers and writers at the same time.
load() {
	local machine
	dma_device
	server_dir /export
	mount_nfs "$1"
	LIMIT=200 client <<-'EOF'
		data_file 16M 64K
		drop_caches
		read_at_once 4 4M 64K
		read_ahead 16 16M 64K
		[ $(bounced) -ge $(($(cat /run/$TEST.bounced) + 64)) ] || fail "nothing of the mount is in bounce buffers"
	EOF
	for machine in "${machines[@]}"; do
		"$machine" <<-'EOF'
			printf "%s: %d slots before the mount, %d with it\n" $(hostname) $(cat /run/$TEST.bounced) $(bounced)
			[ $(bounced) -gt $(cat /run/$TEST.bounced) ] || fail "nothing of the connection is in bounce buffers"
		EOF
	done
	work_begins
	client 'work_goes_on 30'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused && wait_for 20 nothing_mapped'
}

for vers in 3 4.2; do
	test_case "v$vers: readers and writers" load $vers
done
test_case "mount.sh" other mount 'v3|v4.2'
test_case "io.sh" other io 'v3, direct|v4.2, buffered'
test_case "forms.sh" other forms
test_case "backchannel.sh" other backchannel 'v4.2: a delegation'
# Not those after which memory stays mapped for good.
test_case "device.sh" other device 'v3: (a Send|memory|regions)|fourth attempt'
test_case "restart.sh" other restart 'v4.2'
test_case "removal.sh" other removal 'under I/O'
test_case "killed.sh" other killed 'v3'
test_case "moved: mount.sh" moved mount 'v4.2'
test_case "moved: io.sh" moved io 'v3, direct'
test_case "moved: forms.sh" moved forms
run_cases
