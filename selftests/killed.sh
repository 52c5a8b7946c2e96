#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Programs are killed in the middle of large direct reads and writes: what they left under way must
# neither hang nor write into memory that others got meanwhile.

. "$(dirname "$0")/lib/test.sh"

ROUNDS=4

# Proves: V1-118.
kill_program() {
	local vers=$1
	server_dir /export
	mount_nfs "$vers"
	LIMIT=120 client ROUNDS="$ROUNDS" <<-'EOF'
		dir=$MNT/$TEST
		head -c 4M /dev/urandom >/run/$TEST.data
		cp /run/$TEST.data $dir/source
		sync $dir/source
		sends() { xprt_stat 6; }
		busy() { [ $(sends) -ge $1 ]; }
		gone() { ! kill -0 $1 2>/dev/null; }
		writer() {
			while :; do
				dd if=/run/$TEST.data of=$dir/target bs=4M oflag=direct \
					conv=notrunc status=none
			done
		}
		reader() {
			while :; do
				dd if=$dir/source of=/dev/null bs=4M iflag=direct status=none
			done
		}
		pid=
		trap '[ -z "$pid" ] || kill -KILL -- -$pid 2>/dev/null || true' EXIT
		for n in $(seq $ROUNDS); do
			for what in reader writer; do
				setsid bash -c "$(declare -f $what); TEST=$TEST dir=$dir; $what" &
				pid=$!
				wait_for 30 busy $(($(sends) + 10 + n))
				kill -KILL -- -$pid
				wait $pid 2>/dev/null || true
				# The group has ended when no process of it is left, dead or alive.
				wait_for 30 gone -$pid
				cmp $dir/source /run/$TEST.data
			done
		done
		drop_caches
		cmp $dir/source /run/$TEST.data
		cp /run/$TEST.data $dir/after
		sync $dir/after
		drop_caches
		cmp $dir/after /run/$TEST.data
		rm -f $dir/target /run/$TEST.data
		umount $MNT
		wait_for 10 module_unused
	EOF
	server 'cmp /export/$TEST/source /export/$TEST/after'
}

for vers in 3 4.2; do
	test_case "v$vers: readers and writers are killed" kill_program $vers
done
run_cases
