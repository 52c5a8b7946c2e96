#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: cost-client.sh FOLDER
#
# Runs under vm.sh, in whose client a plugin counts: has RPCs issued, and puts their names and the
# client's symbols beside what the plugin writes into FOLDER.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

folder=$1

# Counts so many calls: cost NAME COUNT PROCEDURE [SIZE].
cost() {
	LIMIT=300 client_run "cd /sys/module/rpcrdma_test_cost/parameters &&
		echo $2 >count && echo ${4:-4096} >size && echo $3 >run" || die "$1 was not counted, see above"
	printf '%s\n' "$1" >>"$folder/names"
}

client_run "
	set -e
	mount -t nfs -o rdma,port=20049,vers=3,sec=sys,nolock server:/export /mnt/nfs
	head -c 1M /dev/urandom >/mnt/nfs/cost
	sync /mnt/nfs/cost
	insmod /lab/payload/rpcrdma_test_cost.ko path=/mnt/nfs/cost"
cost NULL 512 null
cost GETATTR 512 getattr
cost "READ 4 KiB" 512 read
cost "WRITE 4 KiB" 512 write
cost "READ 1 MiB" 64 read 1048576
cost "WRITE 1 MiB" 64 write 1048576
client_run "
	set -e
	mkdir /mnt/v4
	mount -t nfs -o rdma,port=20049,vers=4.2,sec=sys server:/export /mnt/v4
	echo /mnt/v4/cost >/sys/module/rpcrdma_test_cost/parameters/path"
cost "OPEN, CLOSE" 512 create
client_run 'umount /mnt/v4'
client_run "grep -i ' [tw] ' /proc/kallsyms | gzip" | gzip -d >"$folder/symbols"
client_run 'rmmod rpcrdma_test_cost && umount /mnt/nfs && rmmod rpcrdma'
