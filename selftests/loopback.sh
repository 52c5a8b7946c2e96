#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# One machine in both roles: the server mounts its own export. What one role waits for must not be what the
# other one needs for it, least of all memory.
# virtual: mounts the server's export in the server

. "$(dirname "$0")/lib/test.sh"

unmount_own() { server '! mountpoint -q $MNT || umount $MNT'; }
# The same as mount_nfs, in the server: mount_own VERS [EXPORT].
mount_own() {
	defer unmount_own
	server vers="$1" folder="${2:-/export}" 'mount_nfs $vers "" "$folder"'
}

# Data by all ways, compared in the folder that is exported.
own_export() {
	server_dir /export
	mount_own "$1"
	server <<-'EOF'
		dir=$MNT/$TEST
		grep -q "$MNT .*proto=rdma.*addr=$SERVER" /proc/mounts
		head -c 3000001 /dev/urandom >/run/$TEST.data
		cp /run/$TEST.data $dir/buffered
		dd if=/run/$TEST.data of=$dir/direct bs=1M oflag=direct status=none
		for n in {1..500}; do : >"$dir/an entry whose name has some length, number $n"; done
		sync $dir/buffered
		drop_caches
		for file in buffered direct; do
			cmp /run/$TEST.data /export/$TEST/$file
			cmp /run/$TEST.data $dir/$file
			dd if=$dir/$file bs=1M iflag=direct status=none | cmp - /run/$TEST.data
		done
		ls $dir | sort >/run/$TEST.client
		ls /export/$TEST | sort | cmp - /run/$TEST.client
		rm /run/$TEST.*
		umount $MNT
	EOF
}

# Both roles at once: another machine works on the export meanwhile.
beside_another() {
	server_dir /export
	mount_nfs "$1"
	work_begins
	mount_own "$1"
	server <<-'EOF'
		# Not where the other one works.
		mkdir $MNT/$TEST.own
		for n in {1..20}; do
			head -c 1M /dev/urandom >/run/$TEST.data
			dd if=/run/$TEST.data of=$MNT/$TEST.own/$n bs=1M conv=fsync status=none
			drop_caches
			cmp /run/$TEST.data $MNT/$TEST.own/$n
		done
		rm -r $MNT/$TEST.own /run/$TEST.data
		umount $MNT
	EOF
	client 'work_goes_on 30'
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

guest_add <<-'EOF'
	scanned() { awk '/^pgscan_(direct|kswapd) / { sum += $2 } END { print sum }' /proc/vmstat; }
EOF

# Little memory is left, and little of that may be dirty, so that programs wait until what the client side has
# dirtied is written back: the server side must not.
little_memory() {
	is_served || skip "the kernel's own server may wait for its own client for ever"
	server_dir /export/disk
	mount_own "$1" /export/disk
	defer server '! mountpoint -q /run/hog || umount /run/hog; rm -rf /run/hog'
	defer server 'sysctl -qw vm.dirty_ratio=20 vm.dirty_background_ratio=10'
	# Nothing takes from tmpfs what it has, without swap space.
	server <<-'EOF'
		sysctl -qw vm.dirty_bytes=$((16 << 20)) vm.dirty_background_bytes=$((8 << 20))
		mkdir -p /run/hog
		mount -t tmpfs -o size=100% none /run/hog
		drop_caches
		available=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
		head -c $((available - 256 * 1024))K /dev/zero >/run/hog/file
		awk '/^MemAvailable:/ { print $2, "KiB are available" }' /proc/meminfo
		scanned >/run/$TEST.scanned
	EOF
	LIMIT=300 server <<-'EOF'
		cd $MNT/$TEST
		fio --name=data --directory=$MNT/$TEST --size=64M --bs=64k --numjobs=4 --rw=write --ioengine=psync \
			--verify=crc32c --do_verify=0 --end_fsync=1 --output=/run/$TEST.fio || fail "$(cat /run/$TEST.fio)"
		drop_caches
		fio --name=data --directory=$MNT/$TEST --size=64M --bs=64k --numjobs=4 --rw=read --ioengine=psync \
			--verify=crc32c --verify_fatal=1 --output=/run/$TEST.fio || fail "$(cat /run/$TEST.fio)"
		scanned=$(($(scanned) - $(cat /run/$TEST.scanned)))
		[ $scanned -gt 1000 ] || fail "there was memory enough: $scanned pages were scanned"
		cd /
		rm /run/$TEST.*
		umount $MNT
	EOF
}

for vers in 3 4.2; do
	test_case "v$vers: a machine mounts its own export" own_export $vers
done
test_case "v4.2: while another machine works on it" beside_another 4.2
for vers in 3 4.2; do
	test_case "v$vers: with little memory" little_memory $vers
done
run_cases
