#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: first-mount.sh rust|c
#
# Runs under vm.sh in a client that has loaded no transport: a mount loads this one, and works.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

client_run '
	set -euo pipefail
	fail() { printf "%s\n" "$*"; exit 1; }
	! grep -q "^rpcrdma " /proc/modules || fail "the transport is loaded before the mount"
	mount -t nfs -o rdma,port=20049,vers=4.2,sec=sys server:/export /mnt/nfs
	grep " /mnt/nfs .*proto=rdma" /proc/mounts || fail "the mount is not by RDMA"
	head -c 1M /dev/urandom >/run/data
	cp /run/data /mnt/nfs/data
	sync /mnt/nfs/data
	echo 3 >/proc/sys/vm/drop_caches
	cmp /run/data /mnt/nfs/data
	rm /mnt/nfs/data
	modinfo -n rpcrdma
	# Only the module of ours has this folder.
	[ -d /sys/kernel/debug/rpcrdma ] && loaded=rust || loaded=c
	umount /mnt/nfs
	rmmod rpcrdma
	[ $loaded = '"$1"' ] || fail "the mount has loaded the $loaded module"'
