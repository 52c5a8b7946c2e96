#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The 27 columns of the transport's line in mountstats, each compared with what was done, and the
# lines of operations.

. "$(dirname "$0")/lib/test.sh"

# Bytes of a file that is longer than a message may be, and of one that is not.
LARGE=300003 SMALL=1000

guest_add <<-'EOF'
	# Keeps the columns as they are now, from 1: remember; and tells by how much one has grown:
	# grown N.
	remember() { for n in {1..27}; do kept[n]=$(xprt_stat $n); done; }
	grown() { echo $(($(xprt_stat $1) - kept[$1])); }
	# The columns are the same as before but for these: only N...
	only() {
		local n
		for n in {11..27}; do
			[[ " $* " = *" $n "* ]] || [ $(grown $n) = 0 ] ||
				fail "column $n has grown by $(grown $n)"
		done
	}
	is() { test $2 "$3" $4 || fail "$1: $2 $3 $4 is not true"; }
EOF

columns_tell() {
	server_dir /export
	server LARGE="$LARGE" SMALL="$SMALL" <<-'EOF'
		cd /export/$TEST
		head -c $LARGE /dev/urandom >large
		head -c $SMALL /dev/urandom >small
		mkdir many
		for i in {1..300}; do : >"many/an entry whose name has some length, number $i"; done
	EOF
	mount_nfs 3
	client LARGE="$LARGE" SMALL="$SMALL" <<-'EOF'
		[ $(grep -cP '^\txprt:\trdma ' /proc/self/mountstats) = 1 ]
		line=$(grep -P '^\txprt:\trdma ' /proc/self/mountstats)
		[[ ${line#*rdma} =~ ^(\ [0-9]+){27}\ *$ ]] || fail "not 27 numbers: $line"
		cd $MNT/$TEST
		ls >/dev/null
		# A new file asks for its folder's ACL, which is a Reply chunk.
		touch large.new small.new
		is source-port $(xprt_stat 1) = 0
		is bindings $(xprt_stat 2) = 0
		is connects $(xprt_stat 3) = 1
		# Seconds.
		is time-to-connect $(xprt_stat 4) -le 60

		remember
		dd if=large bs=1M count=1 iflag=direct status=none | sha256sum >/run/$TEST.sums
		is segments-of-Write-chunks $(grown 12) -ge 1
		is offered-bytes $(grown 14) -ge 1048576
		is delivered-bytes $(grown 15) = $LARGE
		is copied $(grown 16) -le 2000
		only 12 14 15 16 17 24 25

		# The regions are used again.
		remember
		for n in {1..20}; do
			dd if=large of=/dev/null bs=1M count=1 iflag=direct status=none
		done
		is delivered-bytes $(grown 15) = $((20 * LARGE))
		is regions-made $(grown 24) = 0

		remember
		dd if=small bs=$SMALL count=1 iflag=direct status=none | sha256sum >>/run/$TEST.sums
		is copied-from-Replies $(grown 17) -ge $SMALL
		only 16 17

		remember
		head -c $LARGE /dev/urandom >/run/$TEST.large
		dd if=/run/$TEST.large of=large.new bs=1M oflag=direct status=none
		is segments-of-Read-chunks $(grown 11) -ge 1
		is copied $(grown 16) -le 4000
		only 11 16 17 24 25

		remember
		head -c $SMALL /run/$TEST.large >/run/$TEST.small
		dd if=/run/$TEST.small of=small.new bs=1M oflag=direct status=none
		is copied-to-send-buffers $(grown 16) -ge $SMALL
		only 16 17

		remember
		[ $(ls -U many | wc -l) = 300 ]
		is segments-of-Reply-chunks $(grown 13) -ge 1
		is delivered-bytes $(grown 15) -ge 12000
		is offered-bytes $(grown 14) -ge $(grown 15)
		only 13 14 15 16 17 24 25

		remember
		for i in {1..165}; do
			printf 'user:%d:r-x\ngroup:%d:-w-\n' $((10000 + i)) $((20000 + i))
		done >/run/$TEST.acl
		setfacl -n -M /run/$TEST.acl small.new
		is whole-calls-as-chunks $(grown 21) -ge 1
		only 11 13 14 15 16 17 18 21 24 25

		# No call is under way, and the time since the last one is in seconds.
		is replies $(xprt_stat 7) = $(xprt_stat 6)
		is idle $(xprt_stat 5) -le 60
		for n in 8 19 20 22 23 26 27; do is column-$n $(xprt_stat $n) = 0; done
		[ $(xprt_stat 24) -gt 0 ] || fail 'no region was allocated'
		# Buffers have the size that is needed, where the C module has to make some larger.
		[ ! -f /lab/payload/rpcrdma.ko ] || is buffers-made-larger $(xprt_stat 18) = 0
	EOF
	client <<-'EOF' | cut -d ' ' -f 1 >"$RUN/$TEST.client"
		sed 's/-/x/' /run/$TEST.sums
		sha256sum </run/$TEST.large
		sha256sum </run/$TEST.small
		rm /run/$TEST.*
	EOF
	server <<-'EOF' | cut -d ' ' -f 1 | diff - "$RUN/$TEST.client"
		cd /export/$TEST
		for file in large small large.new small.new; do sha256sum <$file; done
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
}

# Columns 6 to 8, 3 and 10 over a new connection.
connects_count() {
	server_dir /export
	mount_nfs 3
	work_begins
	client <<-'EOF'
		remember
		break_connections
		connected() { [ $(grown 3) = 1 ]; }
		wait_for 30 connected
		work_goes_on 30
	EOF
	work_ends
	client <<-'EOF'
		is replies $(xprt_stat 7) -le $(xprt_stat 6)
		is replies $(xprt_stat 7) -gt 10
		is bad-replies $(xprt_stat 20) = 0
		umount $MNT
		wait_for 10 module_unused
	EOF
}

# The line of each operation: how many there were, sent how often, their bytes and their time.
operations_tell() {
	server_dir /export
	mount_nfs 3
	client LARGE="$LARGE" <<-'EOF'
		# A field of the operation's line: ops, sent, timeouts, bytes sent, received, three
		# times.
		of() { awk -v op=$1: -v n=$2 \
			'/^device .* mounted on / { here = $5 == "/mnt/nfs" }
			here && $1 == op { print $(n + 1) }' /proc/self/mountstats; }
		[ $(of WRITE 1) = 0 ]
		[ $(of READ 1) = 0 ]
		head -c $LARGE /dev/urandom >/run/$TEST.large
		dd if=/run/$TEST.large of=$MNT/$TEST/large bs=1M oflag=direct status=none
		dd if=$MNT/$TEST/large bs=1M iflag=direct status=none | cmp - /run/$TEST.large
		rm /run/$TEST.large
		for op in READ WRITE; do
			is $op-operations $(of $op 1) -ge 1
			is $op-transmissions $(of $op 2) = $(of $op 1)
			is $op-timeouts $(of $op 3) = 0
			is $op-time $(of $op 8) -ge $(of $op 7)
		done
		is bytes-sent $(of WRITE 4) -ge $LARGE
		is bytes-of-WRITE-beside-the-data $(of WRITE 4) \
			-le $((LARGE + 400 * $(of WRITE 1)))
		is bytes-received $(of READ 5) -ge $LARGE
		is bytes-of-READ-beside-the-data $(of READ 5) \
			-le $((LARGE + 400 * $(of READ 1)))
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
}

test_case "v3: the line of each operation" operations_tell
test_case "v3: every column tells what was done" columns_tell
test_case "v3: a new connection" connects_count
run_cases
