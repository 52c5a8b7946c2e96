#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A thousand connections that are idle and fifty that are busy, in machines of a gibibyte each. The
# kernel's own server ends at some tens of these.
# limit: 1200

. "$(dirname "$0")/../lib/test.sh"

IDLE_MOUNTS=63
BUSY_MOUNTS=5

# Mounts of N, from 1, each by an address of its own, which makes them several to NFS.
each='
	address() { printf "192.0.2.%d" $((20 + $1)); }
	all=$(seq '"$((IDLE_MOUNTS + BUSY_MOUNTS))"')
	busy=$(seq '"$((IDLE_MOUNTS + 1)) $((IDLE_MOUNTS + BUSY_MOUNTS))"')
	'

gone() {
	LIMIT=300 client "$each"'for n in $all; do ! mountpoint -q $MNT.$n || umount $MNT.$n; rm -rf $MNT.$n; done'
}

many() {
	local slots
	server_dir /export
	server "$each"'for n in $all; do ip address add $(address $n)/24 dev $NETDEV; done'
	defer "server '$each"'for n in $all; do ip address del $(address $n)/24 dev $NETDEV; done'"'"
	defer gone
	# A client of this size has no room for so many connections with all of their slots.
	slots=$(client 'cat /proc/sys/sunrpc/rdma_slot_table_entries')
	defer "client 'echo $slots >/proc/sys/sunrpc/rdma_slot_table_entries'"
	LIMIT=600 client "$each"'
		for n in $all; do
			mkdir -p $MNT.$n
			connections=16 slots=16
			[ $n -le '$IDLE_MOUNTS' ] || connections=10 slots='"$slots"'
			echo $slots >/proc/sys/sunrpc/rdma_slot_table_entries
			mount -t nfs -o rdma,port=20049,vers=3,sec=sys,nolock,nconnect=$connections $(address $n):/export $MNT.$n
			# A Call by each connection.
			for i in $(seq $((2 * connections))); do [ ! -e $MNT.$n/$TEST/no.$i ]; done
		done'
	server '
		count=$(ls -d /sys/kernel/debug/rpcrdma/connection-* | wc -l)
		printf "%d connections\n" $count
		[ $count -ge '$((16 * IDLE_MOUNTS + 10 * BUSY_MOUNTS))' ] || fail "some are missing"
		awk "/^Mem(Total|Available):/" /proc/meminfo'
	LIMIT=300 client "$each"'
		jobs=()
		for n in $busy; do jobs+=(--name=busy.$n --directory=$MNT.$n/$TEST); done
		fio --name=global --thread --size=16M --direct=1 --ioengine=libaio --fallocate=none --rw=randrw --bs=64k --iodepth=64 \
			--loops=8 --verify=crc32c --verify_fatal=1 "${jobs[@]}" --output=/run/$TEST.fio || fail "$(cat /run/$TEST.fio)"
		for n in $all; do
			: >$MNT.$n/$TEST/after
			rm $MNT.$n/$TEST/after
		done'
	server '
		awk "/^MemAvailable:/" /proc/meminfo
		awk "\$1 == \"peer\" { n++ } \$1 ~ /^(receives_posted|receive_buffers|pages_held)\$/ { sum[\$1] += \$2 }
			END { for (name in sum) print name, sum[name], \"in\", n }" /sys/kernel/debug/rpcrdma/connection-*/connection'
}

test_case "a thousand idle connections and fifty busy ones" many
run_cases
