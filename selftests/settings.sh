#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The settings in /proc/sys/sunrpc: what each accepts, and what it changes or does not.

. "$(dirname "$0")/lib/test.sh"

# Numbers of the columns in mountstats.
guest_add <<-'EOF'
	READ_CHUNKS=11 WRITE_CHUNKS=12
EOF
settings=(rdma_slot_table_entries rdma_max_inline_read rdma_max_inline_write
	rdma_inline_write_padding
	rdma_memreg_strategy rdma_pad_optimize)

need_settings() {
	client '[ -f /proc/sys/sunrpc/rdma_slot_table_entries ]' ||
		skip "the settings need CONFIG_SUNRPC_DEBUG"
}

# Whatever a case sets is as before when it ends.
settings_kept() {
	local name value
	need_settings
	for name in "${settings[@]}"; do
		value=$(client name="$name" 'cat /proc/sys/sunrpc/$name')
		defer client name="$name" value="$value" 'echo $value >/proc/sys/sunrpc/$name'
	done
}

ranges() {
	settings_kept
	client <<-'EOF'
		cd /proc/sys/sunrpc
		page=$(getconf PAGESIZE)
		check_setting rdma_slot_table_entries 128 4 16384
		check_setting rdma_max_inline_read 4096 1024 65536
		check_setting rdma_max_inline_write 4096 1024 65536
		check_setting rdma_inline_write_padding 0 0 $page
		check_setting rdma_memreg_strategy 5 0 6
		for value in -2147483648 2147483647; do
			echo $value >rdma_pad_optimize
			[ "$(cat rdma_pad_optimize)" = $value ]
		done
	EOF
}

# Files of 2000 bytes, each read and written once.
guest_add <<-'EOF'
	small_files() {
		local n
		for n in {1..8}; do
			head -c 2000 /dev/urandom >/run/$TEST.data
			dd if=/run/$TEST.data of=$MNT/$TEST/$1.$n bs=2000 oflag=direct status=none
			dd if=$MNT/$TEST/$1.$n bs=2000 count=1 iflag=direct status=none |
				cmp - /run/$TEST.data
		done
		rm /run/$TEST.data
	}
EOF

# How many chunks the files take on a mount made after this: small_files READ-CHUNKS WRITE-CHUNKS.
small_files_take() {
	mount_nfs 3
	client reads="$1" writes="$2" <<-'EOF'
		small_files "$reads.$writes"
		[ "$(xprt_stat $READ_CHUNKS) $(xprt_stat $WRITE_CHUNKS)" = "$reads $writes" ] ||
			fail "$(xprt_stat $READ_CHUNKS) and $(xprt_stat $WRITE_CHUNKS)"
	EOF
}

end_mount() { client 'umount $MNT && wait_for 10 module_unused'; }

thresholds() {
	settings_kept
	server_dir /export
	small_files_take 0 0
	# They count for connections that come later, of this mount as well.
	client <<-'EOF'
		echo 1024 >/proc/sys/sunrpc/rdma_max_inline_write
		small_files still
		[ $(xprt_stat $READ_CHUNKS) = 0 ] ||
			fail 'the connection has another threshold now'
		break_connections
		small_files again
		[ $(xprt_stat 3) = 2 ]
		[ $(xprt_stat $READ_CHUNKS) = 8 ] ||
			fail 'the new connection has the old threshold'
	EOF
	end_mount
	small_files_take 8 0
	end_mount
	client <<-'EOF'
		cd /proc/sys/sunrpc; echo 4096 >rdma_max_inline_write
		echo 1024 >rdma_max_inline_read
	EOF
	small_files_take 0 8
	end_mount
	# More than the server takes or sends changes nothing.
	client <<-'EOF'
		cd /proc/sys/sunrpc; echo 65536 >rdma_max_inline_write
		echo 65536 >rdma_max_inline_read
	EOF
	small_files_take 0 0
	end_mount
}

# Sixteen threads at once wait for the fewest slots, and for no others. Whenever a Call is sent,
# mountstats adds up the Calls under way, in column 9, and those that wait for a slot, in column 10.
wait_for_slots() {
	client slots="$1" <<-'EOF'
		data_file 1M 4k
		sends=$(xprt_stat 6) under_way=$(xprt_stat 9) waiting=$(xprt_stat 10)
		read_at_once 16 64k 4k
		sends=$(($(xprt_stat 6) - sends))
		under_way=$(($(xprt_stat 9) - under_way))
		waiting=$(($(xprt_stat 10) - waiting))
		printf '%d Calls, %d under way and %d waiting while they were sent\n' \
			$sends $under_way $waiting
		[ $sends -ge 256 ]
		[ $under_way -gt $sends ]
		[ $under_way -le $((sends * slots)) ]
		if [ $slots = 4 ]; then [ $waiting -gt 0 ]; else [ $waiting = 0 ]; fi
	EOF
}

# More than the device's queues hold become as many as they do; the C module then does not mount.
slots() {
	local n
	settings_kept
	server_dir /export
	for n in 4 16384; do
		client n="$n" 'echo $n >/proc/sys/sunrpc/rdma_slot_table_entries'
		mount_nfs 3
		if is_rust; then
			client n="$n" <<-'EOF'
				requested=$(our_stat credits_requested)
				printf '%d slots: credits for %d\n' $n $requested
				[ $requested = $n ] || { [ $n = 16384 ] &&
					[ $requested -gt 128 ]; } ||
					fail 'that is not what was set'
			EOF
		fi
		wait_for_slots $n
		end_mount
	done
}

# The same I/O takes the same chunks and the same bytes.
without_effect() {
	local before after
	settings_kept
	server_dir /export
	numbers() {
		small_files_take 0 0 >&2
		client 'for n in 11 12 13 14 15 16 17 21; do xprt_stat $n; done'
		end_mount >&2
	}
	before=$(numbers)
	client <<-'EOF'
		cd /proc/sys/sunrpc
		echo 512 >rdma_inline_write_padding
		echo 6 >rdma_memreg_strategy
		echo 1 >rdma_pad_optimize
	EOF
	after=$(numbers)
	[ "$before" = "$after" ] ||
		fail "columns 11 to 17 and 21 were ${before//$'\n'/ } and are ${after//$'\n'/ }"
}

test_case "ranges and defaults" ranges
test_case "v3: thresholds of later connections" thresholds
test_case "v3: slots of later mounts" slots
test_case "v3: the other three are accepted and without effect" without_effect
run_cases
