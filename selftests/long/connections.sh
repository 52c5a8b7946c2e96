#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A thousand connections that are idle and fifty that are busy, in machines of a gibibyte each. With the kernel's
# own server (PEER=c) it is printed how many there are when its machine has no memory left, which ends it.
# limit: 1200
# virtual: needs machines with little memory

. "$(dirname "$0")/../lib/test.sh"

IDLE_MOUNTS=63
BUSY_MOUNTS=5

# Mounts of N, from 1, each by an address of its own, which makes them several to NFS.
guest_add IDLE_MOUNTS="$IDLE_MOUNTS" BUSY_MOUNTS="$BUSY_MOUNTS" <<-'EOF'
	address() { printf '192.0.2.%d' $((20 + $1)); }
	all=$(seq $((IDLE_MOUNTS + BUSY_MOUNTS)))
	busy=$(seq $((IDLE_MOUNTS + 1)) $((IDLE_MOUNTS + BUSY_MOUNTS)))
EOF

# gone [OPTIONS OF UMOUNT]
gone() {
	LIMIT=300 client force="$*" <<-'EOF'
		for n in $all; do
			! mountpoint -q $MNT.$n || umount $force $MNT.$n
			rm -rf $MNT.$n
		done
		rm -f /run/$TEST.*
	EOF
}

many() {
	local slots soft='' force='' mounted=true memory
	# A Call that is never answered would keep the client for ever.
	is_served || soft=,soft,timeo=100,retrans=1,retry=0 force='-f -l'
	server_dir /export
	server 'for n in $all; do ip address add $(address $n)/24 dev $NETDEV; done'
	defer server 'for n in $all; do ip address del $(address $n)/24 dev $NETDEV; done'
	# shellcheck disable=SC2086 # Options.
	defer gone $force
	memory=$(server <<-'EOF'
		awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo
	EOF
	)
	# A client of this size has no room for so many connections with all of their slots.
	slots=$(client 'cat /proc/sys/sunrpc/rdma_slot_table_entries')
	defer client slots="$slots" 'echo $slots >/proc/sys/sunrpc/rdma_slot_table_entries'
	LIMIT=600 client most="$slots" soft="$soft" <<-'EOF' || mounted=false
		made=0
		echo $made >/run/$TEST.made
		for n in $all; do
			mkdir -p $MNT.$n
			connections=16 slots=16
			[ $n -le $IDLE_MOUNTS ] || connections=10 slots=$most
			echo $slots >/proc/sys/sunrpc/rdma_slot_table_entries
			mount -t nfs -o rdma,port=20049,vers=3,sec=sys,nolock,nconnect=$connections$soft $(address $n):/export $MNT.$n
			# Calls by each connection.
			for i in $(seq $((2 * connections))); do
				text=$(stat $MNT.$n/$TEST/no.$i 2>&1) || true
				[[ $text = *"No such file"* ]] || fail "$text"
			done
			made=$((made + connections))
			echo $made >/run/$TEST.made
		done
	EOF
	printf '%d connections were made, of a server that has %d MiB\n' "$(client 'cat /run/$TEST.made')" "$memory"
	$mounted || fail "there are no more"
	server <<-'EOF'
		count=$(ls -d /sys/kernel/debug/rpcrdma/connection-* | wc -l)
		printf "%d connections\n" $count
		[ $count -ge $((16 * IDLE_MOUNTS + 10 * BUSY_MOUNTS)) ] || fail "some are missing"
		awk "/^Mem(Total|Available):/" /proc/meminfo
	EOF
	LIMIT=300 client <<-'EOF'
		jobs=()
		for n in $busy; do jobs+=("--name=busy.$n" "--directory=$MNT.$n/$TEST"); done
		fio --name=global --thread --size=16M --direct=1 --ioengine=libaio --fallocate=none --rw=randrw --bs=64k --iodepth=64 \
			--loops=8 --verify=crc32c --verify_fatal=1 "${jobs[@]}" --output=/run/$TEST.fio || fail "$(cat /run/$TEST.fio)"
		for n in $all; do
			: >$MNT.$n/$TEST/after
			rm $MNT.$n/$TEST/after
		done
	EOF
	server <<-'EOF'
		awk "/^MemAvailable:/" /proc/meminfo
		awk '
			FNR == 1 { files++ }
			{ sum[$1] += $2; seen[$1]++ }
			END {
				count = split("receives_posted receive_buffers read_pages reply_pages", names)
				for (i = 1; i <= count; i++) {
					print names[i], sum[names[i]] + 0, "in", seen[names[i]] + 0, "of", files
					if (!files || seen[names[i]] != files) lacks = 1
				}
				exit lacks || sum["read_pages"] + sum["reply_pages"]
			}' /sys/kernel/debug/rpcrdma/connection-*/connection || fail "a value lacks, or pages are kept for no Call"
	EOF
}

test_case "a thousand idle connections and fifty busy ones" many
run_cases
