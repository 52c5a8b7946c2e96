#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Files of sizes around every boundary, written by the client and read by the server and the other
# way round, compared by checksum. The inline threshold is found by looking at the counters.

. "$(dirname "$0")/lib/test.sh"

# Pieces of random data, one for each size, with their checksums.
guest_add <<-'EOF'
	make_pieces() {
		rm -rf /run/$TEST
		mkdir -p /run/$TEST
		head -c $(($(printf '%s\n' "$@" | sort -n | tail -n 1) + 4096)) /dev/urandom \
			>/run/$TEST.source
		cd /run/$TEST
		for n; do
			# shellcheck disable=SC2094 # A file is named after its size.
			tail -c +$((n % 4093 + 1)) /run/$TEST.source | head -c $n >$n || true
			[ $(stat -c %s $n) = $n ]
		done
		sha256sum * >/run/$TEST.sha256
	}
EOF

# The largest payload that still goes inline, found by bisection: largest_inline COLUMN COMMAND...
guest_add <<-'EOF'
	largest_inline() {
		local column=$1 inline=1 chunk=8192 n before
		shift
		while [ $((chunk - inline)) -gt 1 ]; do
			n=$(((inline + chunk) / 2))
			before=$(xprt_stat $column)
			"$@" $n
			if [ $(xprt_stat $column) -gt $before ]; then chunk=$n; else inline=$n; fi
		done
		printf "%d\n" $inline
	}
	write_probe() {
		dd if=/dev/zero of=$MNT/$TEST/probe bs=$1 count=1 oflag=direct \
			conv=notrunc status=none
	}
	read_probe() {
		dd if=$MNT/$TEST/probe of=/dev/null bs=$1 count=1 iflag=direct status=none
	}
EOF

# Proves: V1-057, V1-075.
check_sizes() {
	local vers=$1 mode=$2 rsize=$3 large=${4:-} options='' direct='' inline size sizes
	[ "$rsize" = 1048576 ] || options=rsize=$rsize,wsize=$rsize
	[ "$mode" = buffered ] || direct=yes
	server_dir /export
	server 'chmod 777 /export/$TEST'
	mount_nfs "$vers" "$options"
	client rsize="$rsize" 'grep -q " /mnt/nfs .*rsize=$rsize,wsize=$rsize," /proc/mounts'

	inline=$(client <<-'EOF'
		write=$(largest_inline 11 write_probe)
		write_probe 8192
		read=$(largest_inline 12 read_probe)
		rm $MNT/$TEST/probe
		echo $write $read
	EOF
	)
	printf 'payloads of up to %s bytes (write, read) go inline\n' "$inline"
	sizes="0 1 3 4 5 4095 4096 4097 $((rsize - 1)) $rsize $((rsize + 1)) $large"
	for size in $inline; do
		if [ "$size" -lt 1024 ] || [ "$size" -gt 4096 ]; then
			fail "$size is no plausible bound of an inline payload"
		fi
		sizes+=" $(seq -s ' ' $((size - 1)) $((size + 2)))"
	done

	client sizes="$sizes" 'make_pieces $sizes'
	client direct="$direct" <<-'EOF'
		cd /run/$TEST
		for n in *; do
			if [ -n "$direct" ] && [ $n -gt 0 ]; then
				dd if=$n of=$MNT/$TEST/$n bs=$n count=1 iflag=fullblock \
					oflag=direct status=none
			else
				cp $n $MNT/$TEST/$n
			fi
		done
		sync -f $MNT
	EOF
	client 'cat /run/$TEST.sha256' >"$RUN/$TEST.sha256"
	put server "$RUN/$TEST.sha256" "/run/$TEST.sha256"
	server <<-'EOF'
		cd /export/$TEST && [ $(ls | wc -l) = $(wc -l </run/$TEST.sha256) ] &&
			sha256sum --quiet -c /run/$TEST.sha256
	EOF

	# Other data under the same names comes from the server.
	server sizes="$sizes" \
		'make_pieces $sizes; rm /export/$TEST/*; mv /run/$TEST/* /export/$TEST'
	server 'cat /run/$TEST.sha256' >"$RUN/$TEST.sha256"
	put client "$RUN/$TEST.sha256" "/run/$TEST.sha256"
	client direct="$direct" <<-'EOF'
		drop_caches
		cd $MNT/$TEST
		[ $(ls | wc -l) = $(wc -l </run/$TEST.sha256) ]
		if [ -n "$direct" ]; then
			for n in *; do
				dd if=$n of=/run/$TEST/$n bs=$((n + 1)) iflag=direct status=none
			done
			cd /run/$TEST
		fi
		sha256sum --quiet -c /run/$TEST.sha256
	EOF
	client 'rm -rf /run/$TEST /run/$TEST.*'
	server 'rm -rf /run/$TEST /run/$TEST.*'
}

# nfsd copies into pages of its own what it otherwise takes from the page cache.
without_splice() {
	local file=/sys/kernel/debug/nfsd/disable-splice-read
	server file="$file" '[ -f $file ]' || skip "the server's kernel has no $file"
	defer server file="$file" 'echo 0 >$file'
	server file="$file" 'echo 1 >$file'
	check_sizes "$@"
}

# Memory of programs that begins anywhere in a page, with blocks that end anywhere, several at a
# time.
unaligned() {
	client 'perl -MFcntl -e 0' || skip "the client has no perl"
	server_dir /export
	server 'chmod 777 /export/$TEST'
	mount_nfs "$1"
	put client "$lib/unaligned.pl" "/run/$TEST.pl"
	LIMIT=120 client <<-'EOF'
		head -c 2M /dev/urandom >/run/$TEST.data
		perl /run/$TEST.pl write /run/$TEST.data $MNT/$TEST
		for file in $MNT/$TEST/*; do
			name=${file##*/}
			tail -c +$((${name%-*} + 1)) /run/$TEST.data |
				head -c $(stat -c %s $file) >/run/$TEST.data.$name || true
		done
		cd /run
		sha256sum $TEST.data.* | sed "s/ $TEST.data./ /" >/run/$TEST.sha256
		rm $TEST.data.*
	EOF
	client 'cat /run/$TEST.sha256' >"$RUN/$TEST.sha256"
	put server "$RUN/$TEST.sha256" "/run/$TEST.sha256"
	server <<-'EOF' >"$RUN/$TEST.sha256"
		cd /export/$TEST
		[ $(wc -l </run/$TEST.sha256) = 16 ]
		sha256sum --quiet -c /run/$TEST.sha256
		for file in *; do
			head -c $(stat -c %s $file) /dev/urandom >/run/$TEST.data
			cp /run/$TEST.data $file
		done
		sha256sum *
	EOF
	put client "$RUN/$TEST.sha256" "/run/$TEST.sha256"
	LIMIT=120 client <<-'EOF'
		drop_caches
		perl /run/$TEST.pl read /run/$TEST.data $MNT/$TEST
		cd /run
		sort -k 2 -o $TEST.sha256 $TEST.sha256
		sha256sum $TEST.data.* | sed "s/ $TEST.data./ /" | sort -k 2 | cmp - $TEST.sha256
		rm /run/$TEST.*
		[ $(xprt_stat 3) = 1 ] || fail 'the connection has ended'
		umount $MNT && wait_for 10 module_unused
	EOF
	server 'rm /run/$TEST.*'
}

# RPCs of 4 MiB, each way. No client of Linux's makes any: its NFS has 1 MiB at most
# (NFS_MAX_FILE_IO_SIZE), whatever a mount asks for, so that rpcrdma-peer does. It reads what the
# server has made, and writes that behind it.
large_rpcs() {
	local length=4194304
	need_served
	need_requester
	defer nfsd_set max_block_size 1048576
	nfsd_set max_block_size $length
	server_dir /export
	server length="$length" <<-'EOF'
		[ $(cat /proc/fs/nfsd/max_block_size) = $length ]
		head -c $length /dev/urandom >/export/$TEST/file
		end_grace
	EOF
	client <<-'EOF'
		FILE=/export/$TEST/file /lab/payload/rpcrdma-peer \
			--requester $SERVER large </dev/null >/run/$TEST.out
		cat /run/$TEST.out
	EOF
	[ "$(client 'cat /run/$TEST.out; rm /run/$TEST.out')" = \
		"large:$(for _ in 1 2 3; do printf ' %s_%d' read $length written $length; done)" ]
	server length="$length" <<-'EOF'
		cd /export/$TEST
		[ $(stat -c %s file) = $((4 * length)) ]
		for n in 1 2 3; do cmp -n $length ./file file 0 $((n * length)); done
	EOF
}

# The server's own idea of a largest block depends on its memory.
before=$(server 'cat /proc/fs/nfsd/max_block_size')
if [ "$before" -ne 1048576 ]; then
	trap 'nfsd_set max_block_size "$before"' EXIT
	nfsd_set max_block_size 1048576
fi

test_case "v3, buffered, rsize 64 KiB" check_sizes 3 buffered 65536
test_case "v3, direct, rsize 1 MiB, up to 16 MiB and a byte" check_sizes 3 direct 1048576 16777217
test_case \
	"v4.2, buffered, rsize 1 MiB, up to 16 MiB and a byte" \
	check_sizes 4.2 buffered 1048576 16777217
test_case "v4.2, direct, rsize 64 KiB" check_sizes 4.2 direct 65536
test_case "v4.2, direct, rsize 1 MiB, read without splice" without_splice 4.2 direct 1048576
for vers in 3 4.2; do
	test_case "v$vers, direct, from and to memory anywhere in a page" unaligned $vers
done
test_case "v4.0: RPCs of 4 MiB" large_rpcs
run_cases
