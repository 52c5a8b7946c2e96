#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: bench-rounds.sh client|server FILE
#
# Runs under vm.sh, for bench.sh: round after round, loads each module in the machine of that role, C last, and has
# the client issue RPCs. Each sample is a line of FILE: round, module, nanoseconds of time and of the kernel's CPU for
# one RPC, load of the host, and the operation.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

role=$1 samples=$2
kinds=(rust)
[ ! -f "$PAYLOAD/bench/module.ko" ] || kinds+=(module)
guest='
set -e
parameters=/sys/module/rpcrdma_test_cost/parameters

load() {
	until [ "$(cat /sys/module/rpcrdma/refcnt)" = 0 ]; do sleep 0.1; done
	rmmod rpcrdma
	if [ "$1" = c ]; then modprobe rpcrdma; else insmod /lab/payload/bench/$1.ko; fi
}
# Each prints the nanoseconds that one RPC takes.
calls() { # COUNT PROCEDURE [SIZE]: one after the other
	echo "$1" >$parameters/count
	echo "${3:-4096}" >$parameters/size
	echo "$2" >$parameters/run
	echo $(($(cat $parameters/nanoseconds) / $1))
}
reads() { # COUNT DEPTH
	fio --minimal --name=bench --filename=/mnt/nfs/data --size=64M --direct=1 --ioengine=libaio --fallocate=none \
		--rw=randread --bs=4k --number_ios="$1" --iodepth="$2" >/run/fio
	ms=$(cut -d ";" -f 9 /run/fio)
	echo $((ms * 1000000 / $1))
}
'
# What the client runs; it issues that many RPCs, of which half are not timed if they come one after the other.
operations=(
	"NULL: calls 6000 null"
	"GETATTR: calls 6000 getattr"
	"READ 4 KiB: calls 4000 read"
	"WRITE 4 KiB: calls 3000 write"
	"READ 1 MiB: calls 30 read 1048576"
	"WRITE 1 MiB: calls 30 write 1048576"
	"READ 4 KiB, depth 16: reads 8000 16"
	"READ 4 KiB, depth 64: reads 8000 64"
)

printf '%s\n' "${operations[@]%%:*}" | grep -qE -- "$ONLY" || die "no RPC matches ONLY=$ONLY"

kernel_pid() { cat "$RUN/um/$1/pid"; }
cpu_ns() { awk '{ ns += $1 } END { printf "%.0f", ns }' "/proc/$(kernel_pid "$role")/task"/*/schedstat; }

# So that no other process of the host comes between: schedule --fifo 1, or --other 0.
schedule() {
	local name
	for name in client server; do chrt --all-tasks "$1" --pid "$2" "$(kernel_pid $name)"; done
}

# exchange KIND: the module of the measured role, and a new mount.
exchange() {
	client_run "$guest mountpoint -q /mnt/nfs && umount /mnt/nfs; [ $role = server ] || load $1" &&
		{ [ "$role" = client ] || server_run "$guest /lab/guest/server stop; load $1; /lab/guest/server resume"; } &&
		client_run 'mount -t nfs -o rdma,port=20049,vers=3,sec=sys,nolock server:/export /mnt/nfs'
}

# measure ROUND KIND
measure() {
	local operation name count before ns cpu load
	exchange "$2" || die "the module of $2 does not carry a mount in round $1, see above"
	for operation in "${operations[@]}"; do
		name=${operation%%:*} operation=${operation#*: }
		[[ $name =~ $ONLY ]] || continue
		read -r _ count _ <<<"$operation"
		[[ $operation = reads* ]] || count=$((2 * count))
		schedule --fifo 1
		before=$(cpu_ns)
		ns=$(client_run "$guest $operation") || die "$name failed in round $1 with the module of $2: $ns"
		cpu=$((($(cpu_ns) - before) / count))
		schedule --other 0
		read -r load _ </proc/loadavg
		printf '%d %s %d %d %s %s\n' "$1" "$2" "$ns" "$cpu" "$load" "$name" >>"$samples"
	done
}

server_run 'head -c 64M /dev/urandom >/export/data'
client_run 'insmod /lab/payload/rpcrdma_test_cost.ko path=/mnt/nfs/data'
# The machines do not get into each other's way.
cpu=0
for name in client server; do
	for pid in "$(kernel_pid $name)" $(cat "/proc/$(kernel_pid $name)/task"/*/children); do
		taskset --all-tasks --cpu-list --pid $cpu "$pid" >/dev/null
	done
	cpu=$((cpu + 1))
done
start=$SECONDS
measure 0 c
for ((round = 1; SECONDS - start < 60 * MINUTES || round <= 3; round++)); do
	for kind in "${kinds[@]}" c; do measure $round "$kind"; done
	kinds=("${kinds[@]:1}" "${kinds[0]}")
	say "[bench $role] round $round, $((SECONDS - start)) s of $((60 * MINUTES)) s"
done
client_run 'umount /mnt/nfs; rmmod rpcrdma_test_cost'
