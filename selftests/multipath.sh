#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Mounts with several connections: I/O goes over all of them, one that breaks, moves or is removed
# under I/O loses nothing, and a second address of the server joins the first.
# virtual: gives the server more addresses and takes the client's RDMA device away

. "$(dirname "$0")/lib/test.sh"

SECOND=192.0.2.11 THIRD=192.0.2.12

# What the cases have in common in a machine. columns N prints column N of mountstats for each
# transport of the mount, transport N goes to the folder of one of them in sysfs.
guest_add <<-'EOF'
	columns() {
		awk -v n="$1" -v mnt=$MNT '/^device .* mounted on / { here = $5 == mnt }
			here && $1 == "xprt:" && $2 == "rdma" { print $(n + 2) }' /proc/self/mountstats
	}
	transport() {
		local all=(/sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma)
		cd ${all[0]%/*}
		[ -z "${1:-}" ] || cd "$(printf "%s\n" xprt-*-rdma | sort -V | sed -n "$1p")"
	}
	# note_sends, then whether each transport has sent more than eight Calls since. sysfs and mountstats
	# may name the transports in another order, so that no line is that of a certain one.
	note_sends() { mapfile -t sends <<<"$(columns 6)"; }
	all_have_shares() {
		local now line
		mapfile -t now <<<"$(columns 6)"
		[ ${#now[@]} = ${#sends[@]} ] || return
		for line in "${!now[@]}"; do
			[ ${now[line]} -gt $((sends[line] + 8)) ] || return
		done
	}
	connections_to() { rdma -d resource show cm_id | grep "state CONNECT " | grep -cF "dst-addr $1:20049 " || true; }
	is_connected_to() { [ "$(connections_to "$1")" = "$2" ]; }
	queue_pairs() { rdma resource show qp | grep -c "type RC state RTS" || true; }
	# Of either kernel module; user space has others.
	protection_domains() { rdma resource show pd | grep -cF "comm [rpcrdma]" || true; }
	# Runs a command for each of eight files at the same time.
	each() {
		local pids=() n pid
		for n in {1..8}; do
			"$@" $n &
			pids+=($!)
		done
		for pid in "${pids[@]}"; do wait $pid; done
	}
	write_file() { dd if=/run/$TEST/$1 of=$MNT/$TEST/$1 bs=64K oflag=direct status=none; }
	read_file() { dd if=$MNT/$TEST/$1 of=/run/$TEST/$1 bs=64K iflag=direct status=none; }
	make_files() {
		local n
		mkdir -p /run/$TEST
		cd /run/$TEST
		for n in {1..8}; do head -c 512K /dev/urandom >$n; done
		sha256sum [1-8] >/run/$TEST.sums
	}
EOF

# Eight files to the server, compared there, and eight others from it.
verified_io() {
	client 'make_files; each write_file; cp /run/$TEST.sums $MNT/$TEST/sums && sync $MNT/$TEST/sums'
	server <<-'EOF'
		cd /export/$TEST && sha256sum --quiet -c sums
		make_files
		cp /run/$TEST/* /export/$TEST/ && cp /run/$TEST.sums /export/$TEST/sums
		rm -r /run/$TEST*
	EOF
	client <<-'EOF'
		rm -rf /run/$TEST/*
		each read_file
		cd /run/$TEST
		drop_caches
		sha256sum --quiet -c $MNT/$TEST/sums
		rm -r /run/$TEST*
	EOF
}

# Every one of COUNT transports has sent, and offered and filled chunks: shares COUNT [LEAST-SENDS].
shares() {
	client few="${2:-1}" count="$1" <<-'EOF'
		for column in 6 7 11 12 15; do
			least=1
			[ $column != 6 ] || least=$few
			[ $(columns $column | wc -l) = $count ] || fail "not $count transports: $(columns $column | wc -l)"
			echo column $column: $(columns $column)
			for value in $(columns $column); do
				[ $value -ge $least ] || fail "column $column is $value in a transport"
			done
		done
	EOF
}

# Proves: SEC-003.
several_connections() {
	local vers=$1 before domains
	server_dir /export
	before=$(client 'queue_pairs')
	domains=$(client 'protection_domains')
	mount_nfs "$vers" nconnect=4
	client <<-'EOF'
		grep -q ' /mnt/nfs .*,nconnect=4,' /proc/mounts
		[ $(columns 6 | wc -l) = 4 ] || fail 'not four transports in mountstats'
	EOF
	verified_io
	# 64 WRITEs and READs each: an even share would be 32.
	shares 4 16
	client before="$before" domains="$domains" <<-'EOF'
		[ $(queue_pairs) = $((before + 4)) ] || fail "not four queue pairs more than $before: $(queue_pairs)"
		[ $(protection_domains) = $((domains + 4)) ] || fail "not four protection domains more than $domains: $(rdma resource show pd)"
		[ "$(columns 3 | tr -d '\n')" = 1111 ] || fail "some connected more than once: $(columns 3)"
		if [ -f /lab/payload/rpcrdma.ko ]; then
			ports=$(sed -n 's/^src_port=//p' /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/xprt_info | sort -u | wc -l)
			[ $ports = 4 ] || fail "the connections come from $ports ports"
		fi
	EOF
	server '[ $(rdma -d resource show cm_id | grep -c "state CONNECT .*dst-addr $CLIENT:") -ge 4 ] || fail "$(rdma -d resource show cm_id)"'
	client 'umount $MNT && wait_for 10 module_unused'
}

# One of four connections is broken while a program works on the mount.
one_breaks() {
	server_dir /export
	mount_nfs "$1" nconnect=4
	work_begins
	client <<-'EOF'
		connects() { columns 3 | sort | tr -d '\n'; }
		[ $(connects) = 1111 ] || fail "some connected more than once: $(columns 3)"
		transport 3
		set_address . $SERVER
		connected_again() { [ $(connects) != 1111 ]; }
		wait_for 30 connected_again
		note_sends
		wait_for 30 all_have_shares
		[ $(connects) = 1112 ] || fail "connects: $(columns 3)"
		work_goes_on 30
	EOF
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# One of four connections moves to another address of the server under I/O.
one_moves() {
	server_dir /export
	server_address $SECOND
	mount_nfs "$1" nconnect=4
	work_begins
	client SECOND="$SECOND" <<-'EOF'
		is_connected_to $SERVER 4 || fail "$(rdma -d resource show cm_id)"
		transport 3
		set_address . $SECOND
		wait_for 30 is_connected_to $SECOND 1
		is_connected_to $SERVER 3 || fail "$(rdma -d resource show cm_id)"
		[ $(cat dstaddr) = $SECOND ]
		note_sends
		wait_for 30 all_have_shares
	EOF
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# An administrator takes a connection out of use, back into it, away, and adds one.
one_goes() {
	local name
	server_dir /export
	mount_nfs "$1" nconnect=4
	work_begins
	client <<-'EOF'
		queue_pairs=$(queue_pairs)
		folders() { find /sys/kernel/debug/rpcrdma -mindepth 1 -name '[0-9]*' 2>/dev/null | wc -l; }
		count=$(folders || true)
		transport
		name=$(printf '%s\n' xprt-*-rdma | sort -V | sed -n 3p)

		echo offline >$name/xprt_state
		grep -q OFFLINE $name/xprt_state
		wait_for 20 sh -c "grep -q tasks_queuelen=0 $name/xprt_info"
		[ $(columns 6 | wc -l) = 3 ] || fail "still $(columns 6 | wc -l) transports in mountstats"
		note_sends
		wait_for 30 all_have_shares

		echo online >$name/xprt_state
		wait_for 10 grep -q 'CONNECTED' $name/xprt_state
		! grep OFFLINE $name/xprt_state || fail 'it is still off line'
		note_sends
		wait_for 30 all_have_shares

		echo offline >$name/xprt_state
		echo remove >$name/xprt_state
		gone() { [ ! -e $name ] && [ $(queue_pairs) = $((queue_pairs - 1)) ]; }
		wait_for 30 gone
		# Only ours has one for each.
		[ $count = 0 ] || [ $(folders) = $((count - 1)) ] || fail 'its folder in debugfs stays'
		work_goes_on 30

		echo 1 >add_xprt
		four() { [ $(columns 6 | wc -l) = 4 ] && [ $(queue_pairs) = $queue_pairs ]; }
		wait_for 30 four
		note_sends
		wait_for 30 all_have_shares
	EOF
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# other_mount ADDRESS [OPTIONS]: one more mount of the same export.
other_mount() {
	client name="$1" options="${2:+,$2}" <<-'EOF'
		mkdir -p /mnt/$name
		mount -t nfs -o rdma,port=20049,vers=4.2,sec=sys$options $name:/export /mnt/$name
	EOF
	defer client name="$1" '! mountpoint -q /mnt/$name || umount /mnt/$name; rmdir /mnt/$name'
}

# A second address of the server carries the same session, if the mount may have one; no third.
session_trunking() {
	local mark
	server_dir /export
	server_address $SECOND
	server_address $THIRD
	mark=$(client log_mark)
	mount_nfs 4.2 max_connect=2
	client 'grep -q " /mnt/nfs .*,max_connect=2," /proc/mounts'
	other_mount $SECOND max_connect=2
	client SECOND="$SECOND" mark="$mark" <<-'EOF'
		wait_for 10 is_connected_to $SECOND 1
		is_connected_to $SERVER 1
		transport
		[ "$(cat xprt-*-rdma/dstaddr | sort -V | tr '\n' ' ')" = "$SERVER $SECOND " ] || fail "$(grep . xprt-*-rdma/dstaddr)"
		[ $(cat xprt-*-rdma/xprt_info | grep -c main_xprt=1) = 1 ]
		! log_has $mark 'reached max allowed number'
	EOF
	other_mount $THIRD max_connect=2
	client mark="$mark" THIRD="$THIRD" SECOND="$SECOND" <<-'EOF'
		log_has $mark 'reached max allowed number .2. did not add transport'
		is_connected_to $THIRD 0
		[ $(columns 6 | wc -l) = 2 ]
		# One client of the server's, so one session.
		ls /mnt/$SECOND/$TEST /mnt/$THIRD/$TEST
	EOF
	# Mounts of v4.0, which end without a word, are known until their lease is over.
	server '[ $(cat /proc/fs/nfsd/clients/*/info | grep -c "^minor version: 2$") = 1 ] || fail "$(cat /proc/fs/nfsd/clients/*/info)"'
	verified_io
	shares 2 32
}

# Without leave the second address adds nothing.
no_trunking() {
	server_address $SECOND
	mount_nfs 4.2
	other_mount $SECOND
	client SECOND="$SECOND" <<-'EOF'
		is_connected_to $SERVER 1
		is_connected_to $SECOND 0
		[ $(columns 6 | wc -l) = 1 ]
	EOF
}

for vers in 3 4.2; do
	test_case "v$vers, nconnect=4: I/O goes over four connections" several_connections $vers
done
test_case "v3: one of four connections breaks under I/O" one_breaks 3
test_case "v4.2: one of four connections moves to another address under I/O" one_moves 4.2
test_case "v3: one of four is taken off line, removed, and added under I/O" one_goes 3
test_case "v4.2, max_connect=2: a second address joins the session, a third does not" session_trunking
test_case "v4.2: without max_connect no address joins" no_trunking
run_cases
