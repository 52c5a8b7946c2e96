#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A mount of each NFS version, looked at from both sides, with one file each way.

. "$(dirname "$0")/lib/test.sh"

check_mount() {
	local vers=$1
	server_dir /export
	mount_nfs "$vers"
	client "
		options=\$(awk '\$2 == \"/mnt/nfs\" { print \$4 }' /proc/mounts)
		printf '%s\n' \"\$options\"
		for want in vers=$vers proto=rdma port=20049; do
			[[ ,\$options, = *,\$want,* ]] || fail \"no \$want among the mount's options\"
		done
		line=\$(grep -P '^\txprt:\trdma ' /proc/self/mountstats)
		[ \"\$(wc -w <<<\"\${line#*rdma}\")\" = 27 ] || fail \"not 27 columns: \$line\"
		[ \"\$(xprt_stat 3)\" -ge 1 ] && [ \"\$(xprt_stat 6)\" -ge 1 ] && [ \"\$(xprt_stat 7)\" -ge 1 ]
		[ \"\$(module_uses)\" -gt 0 ]"
	server "printf 'from the server to v$vers\n' >/export/$TEST/down"
	client "
		[ \"\$(cat \$MNT/$TEST/down)\" = 'from the server to v$vers' ] || fail 'the server wrote something else'
		printf 'from the client by v$vers\n' >\$MNT/$TEST/up && sync \$MNT/$TEST/up"
	server "[ \"\$(cat /export/$TEST/up)\" = 'from the client by v$vers' ] || fail 'the client wrote something else'"
	client '
		umount $MNT
		! grep -q "$MNT" /proc/mounts
		wait_for 10 module_unused'
}

for vers in 3 4.0 4.1 4.2; do
	test_case "NFS v$vers" check_mount $vers
done

over_ipv6() {
	client '
		mount -t nfs -o proto=rdma6,port=20049,vers=4.2 "[$SERVER6]:/export" $MNT
		grep " $MNT nfs4 .*proto=rdma6,port=20049" /proc/mounts
		ls $MNT >/dev/null
		umount $MNT
		wait_for 10 module_unused'
}
test_case "over IPv6" over_ipv6
run_cases
