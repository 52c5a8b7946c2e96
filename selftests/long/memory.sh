#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the server holds for connections that were used and then fall idle: 64 of them, by four mounts to four
# of its addresses. The kernel's own server takes some MiB for each, so the machines want MEM=4000 for PEER=c.
# limit: 1800
# virtual: gives the server more addresses

. "$(dirname "$0")/../lib/test.sh"

CONNECTIONS=64

available() {
	server <<-'EOF'
		give_reserves_back
		# Free pages that a CPU keeps do not count as available.
		awk -v page=$(($(getconf PAGESIZE) / 1024)) \
			'/^MemAvailable:/ { sum += $2 } $1 == "count:" { sum += page * $2 } END { print sum }' /proc/{meminfo,zoneinfo}
	EOF
}

# Names alone, one after the other.
quiet() {
	client <<-'EOF'
		for n in 11 12 13 14; do
			for i in {1..64}; do : >$MNT.$n/$TEST/$i; done
			rm $MNT.$n/$TEST/*
		done
	EOF
}
# busy BYTES: reads and writes of so many, as many at once as the mount has slots.
busy() {
	LIMIT=500 client mib=$(($1 / 1048576)) <<-'EOF'
		# use N WAY BLOCK DEPTH
		use() {
			fio --name=use --directory=$MNT.$1/$TEST --filename_format=$1.'$jobnum' --numjobs=8 --thread --size=8M \
				--direct=1 --ioengine=libaio --rw=$2 --bs=$3 --iodepth=$4 --output=/run/$TEST.fio ||
				fail "$(cat /run/$TEST.fio)"
		}
		for n in 11 12 13 14; do
			for way in write read; do
				use $n $way ${mib}M 6
				use $n $way 64K 64
			done
		done
	EOF
	quiet
}

# idle_connections USE BYTES MOST: reads and writes have that many bytes, and a connection takes at most so many KiB.
idle_connections() {
	local use=$1 size=$2 most=$3 before after each
	if [ "$(server 'cat /proc/fs/nfsd/max_block_size')" != "$size" ]; then
		defer nfsd_set max_block_size "$(server 'cat /proc/fs/nfsd/max_block_size')"
		nfsd_set max_block_size "$size"
	fi
	server_dir /export
	server 'for n in 11 12 13 14; do ip address add 192.0.2.$n/24 dev $NETDEV; done'
	defer server 'for n in 11 12 13 14; do ip address del 192.0.2.$n/24 dev $NETDEV; done'
	defer client 'for n in 11 12 13 14; do ! mountpoint -q $MNT.$n || umount $MNT.$n; rm -rf $MNT.$n; done'
	# What is only made once is there afterwards.
	mount_nfs 3
	client 'head -c 4M /dev/urandom >$MNT/$TEST/first && rm $MNT/$TEST/first && umount $MNT && wait_for 10 module_unused'
	before=$(available)
	LIMIT=200 client <<-'EOF'
		for n in 11 12 13 14; do
			mkdir -p $MNT.$n
			mount -t nfs -o rdma,port=20049,vers=3,sec=sys,nolock,nconnect=16 192.0.2.$n:/export $MNT.$n
		done
	EOF
	$use $size
	server <<-'EOF'
		[ ! -d /sys/kernel/debug/rpcrdma ] || awk '
			$1 == "peer" { connections++ }
			$1 ~ /^(credits_granted|receives_posted|receive_buffers|send_queue_size|send_contexts)$/ { sum[$1] += $2 }
			END { for (name in sum) print name, sum[name] / connections, "for each of", connections }' /sys/kernel/debug/rpcrdma/connection-*/connection
	EOF
	after=$(available)
	each=$(((before - after) / CONNECTIONS))
	printf '%d KiB for each of %d connections that are idle\n' $each $CONNECTIONS
	server CONNECTIONS="$CONNECTIONS" <<-'EOF'
		queue_pairs=$(rdma resource show qp | grep -c "type RC")
		[ $queue_pairs = $CONNECTIONS ] || fail "there are $queue_pairs connections"
	EOF
	is_served || return 0
	[ $each -le "$most" ] || fail "that is more than $most KiB"
}

test_case "connections that were never busy, 1 MiB" idle_connections quiet 1048576 260
test_case "connections that were busy once, 1 MiB" idle_connections busy 1048576 750
test_case "connections that were busy once, 4 MiB" idle_connections busy 4194304 800
run_cases
