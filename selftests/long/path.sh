#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The path between client and server loses, reorders or duplicates packets, or carries nothing at
# all for a while: the program on the mount sees only a pause.
# limit: 900
# virtual: mistreats packets on their way

. "$(dirname "$0")/../lib/test.sh"

# A counter of the RDMA devices of both machines together.
counter() {
	local sum=0 part machine
	for machine in client server; do
		part=$("$machine" name="$1" 'rdma_counter $name') ||
			skip "the device does not count $1"
		sum=$((sum + part))
	done
	printf '%d\n' $sum
}

# Works with files of this size on a mount while what either machine sends goes through netem with
# these options, of which this counter of the RDMA devices tells: bad_path VERS SIZE OPTIONS COUNTER.
bad_path() {
	local vers=$1 size=$2 options=$3 counter=$4 before after
	server_dir /export
	netem_begins client server
	mount_nfs "$vers"
	WORK_SIZE=$size work_begins
	before=$(counter "$counter")
	netem client "$options"
	netem server "$options"
	# What the devices give up after their own retries is sent again after the RPC's minute.
	LIMIT=240 client 'work_goes_on 230'
	after=$(counter "$counter")
	netem client
	netem server
	printf '%s: %d\n' "$counter" $((after - before))
	[ "$after" -gt "$before" ] || fail "the devices have noticed nothing"
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# As above, with a machine all of whose packets vanish for some seconds.
dead_path() {
	local vers=$1 machine=$2 seconds=$3 files
	server_dir /export
	netem_begins "$machine"
	mount_nfs "$vers"
	work_begins
	netem "$machine" 'loss 100%'
	files=$(client work_done)
	# Not to wait for anything: so long the fault lasts.
	LIMIT=$((seconds + 30)) client seconds="$seconds" 'sleep $seconds'
	[ "$(client work_done)" -le $((files + 1)) ] || fail "the path still carries something"
	netem "$machine"
	client 'work_goes_on 50'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# The devices' go back to the first packet that is missing, so that large messages hardly ever make it
# over the worst paths.
test_case "v4.2: 1 % of the packets are lost, either way" bad_path 4.2 256K "loss 1%" out_of_seq_request
test_case "v4.2: 5 % of the packets are lost, either way" bad_path 4.2 256K "loss 5%" out_of_seq_request
test_case "v4.2: 20 % of the packets are lost, either way" bad_path 4.2 16K "loss 20%" out_of_seq_request
test_case "v4.2: packets overtake each other" bad_path 4.2 256K "delay 2ms reorder 95%" out_of_seq_request
test_case "v4.2: packets arrive twice" bad_path 4.2 256K "duplicate 20%" duplicate_request
for vers in 3 4.2; do
	for machine in client server; do
		test_case "v$vers: what the $machine sends is swallowed for 5 seconds" dead_path $vers $machine 5
	done
done
run_cases
