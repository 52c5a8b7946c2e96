#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# RPCSEC_GSS with Kerberos: files and directories by each of its services, compared on the other
# side. Integrity and privacy change the bytes of the data, so nothing of them may be placed
# directly (RFC 8166 section 8.2): no Read chunk but at position zero, and no Write chunk at all.
# virtual: makes a realm of Kerberos of the machines

. "$(dirname "$0")/lib/test.sh"

# Numbers of the columns in mountstats.
guest_add <<-'EOF'
	READ_CHUNKS=11 WRITE_CHUNKS=12 REPLY_CHUNKS=13 POSITION_ZERO=21
EOF

# shellcheck source=/dev/null
. "$(dirname "$0")/lib/krb5.sh"

# A mount, and a folder in it that everybody may write to: mount_krb5 VERS FLAVOR.
mount_krb5() {
	server_dir /export
	server 'chmod 777 /export/$TEST'
	client vers="$1" flavor="$2" 'mount -t nfs -o rdma,port=20049,vers=$vers,sec=$flavor $SERVER:/export $MNT'
	defer unmount_nfs
	client flavor="$2" 'grep -q " /mnt/nfs .*proto=rdma.*,sec=$flavor," /proc/mounts || fail "$(cat /proc/mounts)"'
}

# Files of these sizes, of random data, with their checksums.
if [ -n "${LONG:-}" ]; then
	SIZES='1 3 4 4095 4097 65537 1048576 1048577' ENTRIES=400
else
	SIZES='3 4096 1048577' ENTRIES=100
fi
guest_add SIZES="$SIZES" <<-'EOF'
	make_files() {
		local n
		rm -rf /run/$TEST
		mkdir /run/$TEST
		cd /run/$TEST
		# shellcheck disable=SC2094 # A file is named after its size.
		for n in $SIZES; do head -c $n /dev/urandom >$n; done
		sha256sum * >sums
	}
EOF

# Proves: SEC-010, SEC-012, SEC-013, SEC-014.
all_forms() {
	local vers=$1 flavor=$2 there here
	trace_begins client rpcrdma/xprtrdma_chunk_read
	mount_krb5 "$vers" "$flavor"
	client <<-'EOF'
		make_files
		# Half of it through the cache.
		for n in *[13579]; do cp $n $MNT/$TEST/$n; done
		for n in *[02468] sums; do dd if=$n of=$MNT/$TEST/$n bs=1M oflag=direct status=none; done
		sync -f $MNT
	EOF
	server 'cd /export/$TEST && sha256sum --quiet -c sums'
	server ENTRIES="$ENTRIES" <<-'EOF'
		make_files
		rm /export/$TEST/*
		mv * /export/$TEST/
		mkdir /export/$TEST/folder && cd /export/$TEST/folder
		for i in $(seq $ENTRIES); do : >"an entry whose name has some length, number $i"; done
	EOF
	client <<-'EOF'
		drop_caches
		cd $MNT/$TEST
		sha256sum --quiet -c sums
		for n in $SIZES; do
			dd if=$n bs=1M iflag=direct status=none | sha256sum | sed "s/-/$n/"
		done | sort >/run/$TEST/direct
		sort sums | diff - /run/$TEST/direct
		# A longer one the kernel's NFSv4 code cannot make with privacy, over TCP as well.
		ln -s $(head -c 2250 /dev/urandom | base64 -w 0 | tr / _) link
	EOF
	for what in 'ls folder | sort | sha256sum' 'readlink link'; do
		here=$(client what="$what" 'drop_caches; cd $MNT/$TEST && eval "$what"')
		there=$(server what="$what" 'cd /export/$TEST && eval "$what"')
		[ "$here" = "$there" ] || fail "server and client do not see the same: $what"
	done
	# gss_create_new() does not clear the flags, one of which says that a flavor changes the data.
	[ "$flavor" != krb5 ] ||
		client '[ $(xprt_stat $WRITE_CHUNKS) -gt 0 ] || dmesg | grep -q "heap alloc:on"' ||
		skip "sunrpc has found the flag set that says that krb5 changes the data"
	client flavor="$flavor" <<-'EOF'
		echo columns: $(xprt_stat $READ_CHUNKS) $(xprt_stat $WRITE_CHUNKS) $(xprt_stat $REPLY_CHUNKS) $(xprt_stat $POSITION_ZERO)
		[ $(xprt_stat $REPLY_CHUNKS) -gt 0 ]
		case $flavor in
		sys | krb5)
			# The payload itself is as it was.
			[ $(xprt_stat $WRITE_CHUNKS) -gt 0 ]
			[ $(xprt_stat $READ_CHUNKS) -gt 0 ]
			[ $(xprt_stat $POSITION_ZERO) = 0 ] || fail 'a Call went as a chunk as a whole'
			# No word of the header with its credential and verifier, nor of what follows the data.
			sed -n 's/.* xprtrdma_chunk_read: .* pos=[0-9]* \([0-9]*\)@.*/\1/p' $TRACING/trace >/run/$TEST/reduced
			reduced=$(awk '{ sum += $1 } END { print sum + 0 }' /run/$TEST/reduced)
			data=$(cd /run/$TEST && cat $SIZES | wc -c)
			[ $reduced -gt 0 ]
			# The kernel's own client offers more.
			[ ! -d /sys/kernel/debug/rpcrdma ] || [ $reduced -le $data ] || fail "$reduced bytes went in Read chunks, and the data has $data"
			;;
		*)
			[ $(xprt_stat $WRITE_CHUNKS) = 0 ] || fail 'data was to be placed directly'
			[ $(xprt_stat $POSITION_ZERO) -gt 0 ] || fail 'no Call went as a chunk as a whole'
			[ "$(our_stat read_chunk_calls || echo 0)" = 0 ] || fail 'data was to be fetched by itself'
			;;
		esac
		rm -r /run/$TEST
		umount $MNT
		wait_for 10 module_unused
	EOF
}

# Files through the cache and beside it, each compared on the other side.
some_files() {
	local vers=$1 flavor=$2
	mount_krb5 "$vers" "$flavor"
	client vers="$vers" <<-'EOF'
		grep -q " /mnt/nfs .*,vers=$vers," /proc/mounts || fail "$(cat /proc/mounts)"
		make_files
		for n in *[13579] sums; do cp $n $MNT/$TEST/$n; done
		for n in *[02468]; do dd if=$n of=$MNT/$TEST/$n bs=1M oflag=direct status=none; done
		sync -f $MNT
		cd / && rm -r /run/$TEST
	EOF
	server <<-'EOF'
		cd /export/$TEST && sha256sum --quiet -c sums && rm *
		make_files
		mv * /export/$TEST/
	EOF
	client <<-'EOF'
		drop_caches
		cd $MNT/$TEST
		sha256sum --quiet -c sums
		while read -r sum name; do
			[ $(dd if=$name bs=1M iflag=direct status=none | sha256sum | cut -d ' ' -f 1) = $sum ]
		done <sums
		cd /
		umount $MNT
		wait_for 10 module_unused
	EOF
}

# A Call that is sent again has to be wrapped again, once its sequence number is too old.
reconnect() {
	mount_krb5 "$1" "$2"
	work_begins
	client <<-'EOF'
		for n in {1..3}; do
			break_connections
			work_goes_on 60
		done
		[ $(xprt_stat 3) -gt 3 ] || fail "it connected $(xprt_stat 3) times only"
	EOF
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
}

# Counts how often a word that a file is full of is seen on the wire, on its way to the server and
# back: words_seen FLAVOR.
words_seen() {
	client flavor="$1" 'mount -t nfs -o rdma,port=20049,vers=4.2,sec=$flavor $SERVER:/export $MNT'
	client flavor="$1" <<-'EOF' >&2
		yes the-$flavor-word | head -c 64K >/run/$TEST.data || true
		tcpdump -s 2048 -B 8192 --immediate-mode -U -Z root -i $NETDEV -w /run/$TEST.pcap 'udp port 4791 or tcp port 20049' 2>/run/$TEST.dump &
		wait_for 10 grep -q 'listening on' /run/$TEST.dump
		dd if=/run/$TEST.data of=$MNT/$TEST/file bs=64K oflag=direct status=none
		# Inline.
		head -c 100 /run/$TEST.data >$MNT/$TEST/short
		drop_caches
		cmp /run/$TEST.data $MNT/$TEST/file
		umount $MNT
		captured() { [ $(stat -c %s /run/$TEST.pcap) -gt 131072 ]; }
		wait_for 20 captured
		kill %1
		wait %1 || true
		grep -aoF the-$flavor-word /run/$TEST.pcap >/run/$TEST.words || true
	EOF
	client 'wc -l </run/$TEST.words && rm /run/$TEST.*'
}

privacy() {
	local seen
	server_dir /export
	server 'chmod 777 /export/$TEST'
	defer unmount_nfs
	seen=$(words_seen krb5i)
	printf 'with integrity alone the word was seen %d times\n' "$seen"
	[ "$seen" -gt 1000 ] || fail "the capture does not show what travels"
	seen=$(words_seen krb5p)
	[ "$seen" = 0 ] || fail "with privacy the word was seen $seen times"
}

# What is wrapped comes inline, even if the client asks for direct placement. Ours refuses it then.
#
# Proves: SEC-013.
not_placed() {
	local flavor=$1 again="! read_it || fail 'the client took what was not placed'"
	is_served || skip "the kernel's own server places it"
	is_rust || again=read_it
	client '[ -f /lab/payload/rpcrdma_test_placed.ko ]' || skip "the payload has no rpcrdma_test_placed.ko"
	trace_begins server rpcrdma/svcrdma_encode_wseg
	mount_krb5 4.1 "$flavor"
	server 'head -c 300 /dev/urandom >/export/$TEST/short'
	defer client '! grep -q ^rpcrdma_test_placed /proc/modules || rmmod rpcrdma_test_placed'
	client again="$again" <<-'EOF'
		read_it() { dd if=$MNT/$TEST/short of=/dev/null bs=64K iflag=direct status=none; }
		read_it
		insmod /lab/payload/rpcrdma_test_placed.ko
		chunks=$(xprt_stat $WRITE_CHUNKS)
		eval "$again"
		[ $(xprt_stat $WRITE_CHUNKS) -gt $chunks ] || fail 'nothing was to be placed'
		rmmod rpcrdma_test_placed
		umount $MNT
		wait_for 10 module_unused
	EOF
	server <<-'EOF'
		! sed -n "s/.*_encode_wseg: .* segno=[0-9]* \([0-9]*\)@.*/\1/p" $TRACING/trace | grep -v '^0$' || fail "it was placed"
	EOF
}

# Privacy has each Call in pages of its own, which a region over them keeps, until it is unmapped.
pages_go() {
	mount_krb5 4.2 krb5p
	client <<-'EOF'
		cd $MNT/$TEST
		fill() { dd if=/dev/zero of=file bs=1M count=$1 oflag=direct status=none; }
		fill 4
		drop_caches
		before=$(kernel_memory)
		fill 16
		drop_caches
		grown=$(($(kernel_memory) - before))
		echo "16 MiB were written, and the kernel took $grown KiB"
		[ $grown -lt 8192 ]
		cd /
		umount $MNT
		wait_for 10 module_unused
	EOF
}

no_key() {
	client 'mv /etc/krb5.keytab /run/keytab; rm -f /tmp/krb5cc*'
	defer client 'mv /run/keytab /etc/krb5.keytab'
	defer unmount_nfs
	client <<-'EOF'
		! mount -t nfs -o rdma,port=20049,vers=4.2,sec=krb5 $SERVER:/export $MNT 2>/run/$TEST.err || fail 'the mount went well'
		grep -i 'access denied' /run/$TEST.err || fail "$(cat /run/$TEST.err)"
		rm /run/$TEST.err
		wait_for 10 module_unused
	EOF
}

realm_missing=$(realm_lacks)
[ -z "$realm_missing" ] || skip "$realm_missing"
trap realm_ends EXIT
realm_begins
for flavor in krb5 krb5i krb5p; do
	test_case "v4.2, $flavor: files, directories and links" all_forms 4.2 $flavor
done
for vers in 3 4.0 4.1; do
	for flavor in krb5 krb5i krb5p; do
		test_case "v$vers, $flavor: some files" some_files $vers $flavor
	done
done
test_case "krb5p: the pages of Calls go" pages_go
for flavor in krb5i krb5p; do
	test_case "$flavor: what is wrapped is never placed directly" not_placed $flavor
done
test_case "krb5: without a key there is no mount" no_key
if [ -n "${LONG:-}" ]; then
	test_case "v4.2, sys: the same without Kerberos" all_forms 4.2 sys
	for flavor in krb5i krb5p; do
		test_case "v3, $flavor: files, directories and links" all_forms 3 $flavor
	done
	test_case "v4.2, krb5p: the connection breaks under I/O" reconnect 4.2 krb5p
	test_case "v3, krb5i: the connection breaks under I/O" reconnect 3 krb5i
	test_case "krb5p: nothing of a file's contents is seen on the wire" privacy
fi
run_cases
