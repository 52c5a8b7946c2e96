#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs under vm.sh with VM_SHELL=1: mounts and gives a prompt in the client, on its second console.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

# rpcrdma-top as the package installs it.
for machine in server client; do
	vm_run $machine 60 "
		base64 -d <<<'$(tar -C "$PROJECT/tools" -cz --exclude=tests --exclude=__pycache__ rpcrdma-top | base64)' |
			tar -C /usr/share -xz
		ln -s ../share/rpcrdma-top/rpcrdma-top /usr/sbin/"
done
client_run "mount -t nfs -o rdma,port=20049,vers=${VERS:-4.2} server:/export /mnt/nfs"
say "The client has the server's /export at /mnt/nfs, and rpcrdma-top; 'exit' takes both machines down."
read -r rows columns < <(stty size </dev/tty)
LIMIT=1000000 client_run "cd /mnt/nfs; stty -F /dev/ttyS1 sane rows $rows columns $columns
	setsid -c -w bash -i </dev/ttyS1 >/dev/ttyS1 2>&1" || true
client_run "cd /; umount -a -t nfs,nfs4"
