#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The RDMA device goes away under I/O and comes back: its removal is not held up, and the program
# sees only a pause.
# limit: 150

. "$(dirname "$0")/lib/test.sh"

remove_device() {
	local link='rdma link add $RDMA_LINK type '"${TRANSPORT:-rxe}"' netdev $NETDEV' start
	server_dir /export
	mount_nfs "$1"
	work_begins
	defer "client 'rdma link show \$RDMA_LINK/1 >/dev/null 2>&1 || $link'"
	start=$SECONDS
	LIMIT=100 client 'rdma link delete $RDMA_LINK'
	printf 'the removal took about %d seconds\n' $((SECONDS - start))
	client "
		! rdma link show | grep -q \$RDMA_LINK
		$link"
	client 'work_goes_on 60'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
	[ $((SECONDS - start)) -lt 90 ]
}

test_case "v4.2: the device is removed and added under I/O" remove_device 4.2
run_cases
