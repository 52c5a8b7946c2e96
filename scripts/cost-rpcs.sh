#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: cost-rpcs.sh client|server FOLDER [DIALECT]
#
# Runs under vm.sh, with a plugin that counts in the machine of that role: has the client issue RPCs,
# and puts their names and the machine's symbols beside what the plugin writes into FOLDER. DIALECT is
# a version with the size of its messages (selftests/lib/version-guest.sh), which this module speaks.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

role=$1 folder=$2 dialect=${3:-}
guest=$(cat "$PROJECT"/selftests/lib/{guest,version-guest}.sh)$'\n'
parameters=/sys/module/rpcrdma_test_cost/parameters

issue() { LIMIT=900 client_run "cd $parameters && echo $1 >count && echo $2 >size && echo $3 >run"; }

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

# Of the last mount.
check_dialect() { [ -z "$dialect" ] || client_run "$guest check_dialect $dialect"; }

path_is() { client_run "printf %s $1 >$parameters/path" || die "the module does not take the path $1"; }

# Delegations come and go with what the server remembers, and change the number of RPCs.
server_run 'echo 0 >/proc/sys/fs/leases-enable'
if [ -n "$dialect" ]; then
	server_run "$guest echo offered >\$server_setting"
	client_run "$guest speak $dialect"
fi
client_run "
	set -e
	mount -t nfs -o rdma,port=20049,vers=3,sec=sys,nolock server:/export /mnt/nfs
	head -c 1M /dev/urandom >/mnt/nfs/cost
	sync /mnt/nfs/cost
	mkdir /mnt/nfs/entries
	seq -f /mnt/nfs/entries/%g 400 | xargs touch
	insmod /lab/payload/rpcrdma_test_cost.ko path=/mnt/nfs/cost"
check_dialect
[ "$role" = client ] || server_run 'insmod /lab/payload/rpcrdma_test_cost.ko'
cost NULL 4096 null
cost GETATTR 4096 getattr
cost "READ 4 KiB" 4096 read
cost "WRITE 4 KiB" 4096 write
if [ -n "$dialect" ]; then
	# Messages of 4096 bytes have room for that.
	cost "READ 2 KiB" 4096 read 2048
	cost "WRITE 2 KiB" 4096 write 2048
else
	cost "READ 1 MiB" 64 read 1048576
	cost "WRITE 1 MiB" 64 write 1048576
fi
path_is /mnt/nfs/entries
cost READDIRPLUS 64 readdir
client_run "mkdir /mnt/v4 && mount -t nfs -o rdma,port=20049,vers=4.2,sec=sys server:/export /mnt/v4"
check_dialect
path_is /mnt/v4/cost
cost "OPEN, CLOSE" 4096 create
client_run 'umount /mnt/v4'
"${role}_run" "grep -i ' [tw] ' /proc/kallsyms | gzip" | gzip -d >"$folder/symbols"
# The last user of the C transport goes some time after the mount.
client_run '
	rmmod rpcrdma_test_cost
	umount /mnt/nfs
	until [ "$(cat /sys/module/rpcrdma/refcnt)" = 0 ]; do sleep 0.1; done
	rmmod rpcrdma'
[ "$role" = client ] || server_run 'rmmod rpcrdma_test_cost'
