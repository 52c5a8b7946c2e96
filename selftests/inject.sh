#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# sunrpc breaks the client's connection after some of the sends: under I/O, and while sessions are
# created and destroyed. The program sees only pauses.

. "$(dirname "$0")/lib/test.sh"

guest_add <"$lib/inject-guest.sh"

under_io() {
	local connects
	need_injection client
	server_dir /export
	mount_nfs_timeo "$1"
	work_begins
	connects=$(client 'xprt_stat 3')
	defer client inject_ends
	client percent="$2" times="$3" <<-'EOF'
		inject_begins $percent
		wait_for 55 calling has_injected $times
	EOF
	client 'work_goes_on 55'
	client <<-'EOF'
		inject_ends
		printf "%d times the connection was broken\n" $(injected)
	EOF
	client 'work_goes_on 30'
	printf 'connects: %d before, %d after\n' "$connects" "$(client 'xprt_stat 3')"
	[ "$(client 'xprt_stat 3')" -gt "$connects" ] || fail "there was no new connection"
	work_ends
	ends_agree
	client 'umount $MNT && wait_for 10 module_unused'
}

# A session is created when the mount begins and destroyed when it ends, over connections that
# break.
sessions() {
	need_injection client
	server_dir /export
	defer unmount_nfs
	defer client inject_ends
	LIMIT=120 client vers="$1" <<-'EOF'
		mounts=0
		inject_begins 10
		for n in {1..4}; do
			# A mount may well give up; what it has begun must be undone then.
			if mount_nfs $vers; then
				mounts=$((mounts + 1))
				printf '%d\n' $n >$MNT/$TEST/file
				sync $MNT/$TEST/file
				[ "$(cat $MNT/$TEST/file)" = $n ]
				umount $MNT
			fi
			wait_for 20 module_unused
		done
		inject_ends
		printf '%d of 4 mounts, %d broken connections\n' $mounts $(injected)
		has_injected 5 && [ $mounts -gt 0 ]
	EOF
	mount_nfs "$1"
	client 'ls $MNT >/dev/null && umount $MNT'
}

for vers in 3 4.2; do
	test_case "v$vers: the connection breaks after 1 % of the sends" under_io $vers 1 2
	test_case "v$vers: the connection breaks after 10 % of the sends" under_io $vers 10 5
done
test_case "v4.1: sessions are created while connections break" sessions 4.1
run_cases
