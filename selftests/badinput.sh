#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Mounts that cannot work: each fails soon, with an error that says why and one line in the kernel
# log that names the device and the reason, and leaves nothing behind.
# virtual: mounts by addresses of nobody and limits what the device can do

. "$(dirname "$0")/lib/test.sh"

# mount_fails ADDRESS PORT 'PATTERN OF MOUNT.NFS' 'PATTERN OF THE LOG': a mount by v4.2 fails so, of
# the server where the address is empty.
mount_fails() {
	defer unmount_nfs
	client port="$2" address="$1" said="$3" logged="$4" <<-'EOF'
		uses=$(module_uses) resources=$(rdma_resources)
		mark=$(log_mark)
		rc=0
		start=$SECONDS
		# It tries once more after a second.
		timeout 50 strace -qq -f -e trace=mount -o /run/$TEST.calls mount -t nfs -o rdma,port=$port,vers=4.2,retry=0 ${address:-$SERVER}:/export $MNT 2>/run/$TEST.err || rc=$?
		tries=$(grep -c '= -1 ' /run/$TEST.calls || true)
		cat /run/$TEST.err
		printf 'status %d after %d tries and about %d seconds\n' $rc $tries $((SECONDS - start))
		[ $rc != 0 ] || fail 'the mount went well'
		[ $rc != 124 ] || fail 'the mount did not give up'
		log_since $mark | grep rpcrdma >/run/$TEST.log || true
		cat /run/$TEST.log
		# The kernel's own module has odd errors for some of these, and mostly tells nothing.
		if [ -f /lab/payload/rpcrdma.ko ]; then
			grep -qiE "$said" /run/$TEST.err || fail 'this is not what mount.nfs should say'
			[ $(wc -l </run/$TEST.log) = $tries ] || fail 'that is not one line for each try'
			grep -qE "$logged" /run/$TEST.log || fail 'the line does not tell what happened'
		fi
		rm /run/$TEST.*
		wait_for 10 module_unused
		wait_for 10 rdma_resources_are "$resources" || fail "the device had $resources and has $(rdma_resources)"
	EOF
}

works_again() {
	mount_nfs 4.2
	client 'ls $MNT >/dev/null && umount $MNT'
}

# On iWARP the connect itself fails, before there is an event.
nobody_listens() {
	mount_fails '' 20050 'connection refused' 'port 20050 \(xprt [0-9]+\): device rdma0: the peer rejected the connection \(.+\)$'
	works_again
}

nobody_there() {
	mount_fails 192.0.2.77 20049 'no route|unreachable|timed out|not responding' '192\.0\.2\.77.*no answer for [0-9]+ s: the peer is down or unreachable'
	works_again
}

# The server's machine is up, but has no RDMA device. Once it has one again its listener does not hear, or not soon.
nobody_answers() {
	defer server rdma_link_add
	server rdma_link_delete
	mount_fails '' 20049 'no route|not responding' 'rdma0: no answer for [0-9]+ s: check RDMA on the server$'
	server rdma_link_add
	works_again
}

# A device that is too small in one way: small_device 'PARAMETER' 'PATTERN OF THE LOG'.
small_device() {
	limit_devices "$1"
	mount_fails '' 20049 'mount.nfs: .*(not supported|no such device|refused|invalid|cannot allocate|input/output|not responding|timed out)' "rdma0.*$2"
	limits_end
	works_again
}

# It has said that it takes more.
refused_queues() {
	limit_devices real_max_qp_wr=100
	mount_fails '' 20049 'incorrect mount option|invalid argument' 'rdma0: the device cannot carry this transport \((EINVAL|Error\(22\))\)$'
	limits_end
	works_again
}

# One that is small, but large enough.
modest_device() {
	is_rust || skip "the kernel's own module wants more of a device"
	limit_devices "$1"
	server_dir /export
	mount_nfs 4.2
	client <<-'EOF'
		head -c 1M /dev/urandom >/run/$TEST.data
		for n in {1..40}; do dd if=/run/$TEST.data of=$MNT/$TEST/file bs=$((n * 100)) seek=$n count=8 conv=notrunc,fsync status=none; done
		cp /run/$TEST.data $MNT/$TEST/file
		sync $MNT/$TEST/file
		drop_caches
		cmp $MNT/$TEST/file /run/$TEST.data
		sha256sum </run/$TEST.data >$MNT/$TEST/sum
		rm /run/$TEST.*
		umount $MNT
	EOF
	limits_end
	server '[ "$(sha256sum </export/$TEST/file)" = "$(cat /export/$TEST/sum)" ]'
}

test_case "nobody listens on the port" nobody_listens
test_case "nobody has the address" nobody_there
test_case "nobody answers" nobody_answers
test_case "the device cannot register memory" small_device no_frwr=1 '(FRWR|regist)'
test_case "the device has no SGE for a Send" small_device max_send_sge=0 '(SGE|gather)'
test_case "the device has short queues" small_device max_qp_wr=4 'work requests'
test_case "a device with one SGE for a Send is enough" modest_device max_send_sge=1
test_case "a device with queues of 1024 is enough" modest_device max_qp_wr=1024
test_case "the device takes no queues" refused_queues
run_cases
