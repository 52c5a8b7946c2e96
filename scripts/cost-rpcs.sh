#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: cost-rpcs.sh client|server FOLDER
#
# Runs under vm.sh, with a plugin that counts in the machine of that role: has the client issue RPCs,
# and puts their names and the machine's symbols beside what the plugin writes into FOLDER.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

role=$1 folder=$2
parameters=/sys/module/rpcrdma_test_cost/parameters

issue() { LIMIT=300 client_run "cd $parameters && echo $1 >count && echo $2 >size && echo $3 >run"; }

# Counts so many calls: cost NAME COUNT PROCEDURE [SIZE]. In the client the module has the marks around
# them. In the server they are around all that it does meanwhile, once everything was used before.
cost() {
	local size=${4:-4096}
	if [ "$role" = client ]; then
		issue "$2" "$size" "$3"
	else
		issue "$2" "$size" "$3" && server_run "echo begin >$parameters/run" &&
			issue "$(($2 / 2))" "$size" "$3" && server_run "echo end >$parameters/run"
	fi || die "$1 was not counted, see above"
	printf '%s\n' "$1" >>"$folder/names"
}

path_is() { client_run "printf %s $1 >$parameters/path" || die "the module does not take the path $1"; }

# Delegations come and go with what the server remembers, and change the number of RPCs.
server_run 'echo 0 >/proc/sys/fs/leases-enable'
client_run "
	set -e
	mount -t nfs -o rdma,port=20049,vers=3,sec=sys,nolock server:/export /mnt/nfs
	head -c 1M /dev/urandom >/mnt/nfs/cost
	sync /mnt/nfs/cost
	mkdir /mnt/nfs/entries
	seq -f /mnt/nfs/entries/%g 400 | xargs touch
	insmod /lab/payload/rpcrdma_test_cost.ko path=/mnt/nfs/cost"
[ "$role" = client ] || server_run 'insmod /lab/payload/rpcrdma_test_cost.ko'
cost NULL 512 null
cost GETATTR 512 getattr
cost "READ 4 KiB" 512 read
cost "WRITE 4 KiB" 512 write
cost "READ 1 MiB" 64 read 1048576
cost "WRITE 1 MiB" 64 write 1048576
path_is /mnt/nfs/entries
cost READDIRPLUS 64 readdir
client_run "mkdir /mnt/v4 && mount -t nfs -o rdma,port=20049,vers=4.2,sec=sys server:/export /mnt/v4"
path_is /mnt/v4/cost
cost "OPEN, CLOSE" 512 create
client_run 'umount /mnt/v4'
"${role}_run" "grep -i ' [tw] ' /proc/kallsyms | gzip" | gzip -d >"$folder/symbols"
# The last user of the C transport goes some time after the mount.
client_run '
	rmmod rpcrdma_test_cost
	umount /mnt/nfs
	until [ "$(cat /sys/module/rpcrdma/refcnt)" = 0 ]; do sleep 0.1; done
	rmmod rpcrdma'
[ "$role" = client ] || server_run 'rmmod rpcrdma_test_cost'
