#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A mount of each NFS version, looked at from both sides, with one file each way.

. "$(dirname "$0")/lib/test.sh"

# Proves: V1-149.
check_mount() {
	local vers=$1
	server_dir /export
	mount_nfs "$vers"
	client vers="$vers" <<-'EOF'
		options=$(awk '$2 == "/mnt/nfs" { print $4 }' /proc/mounts)
		printf '%s\n' "$options"
		wanted="vers=$vers proto=rdma$SIX port=20049"
		# What v3 has beside NFS goes over TCP.
		[ $vers != 3 ] || wanted+=" mountproto=tcp$SIX"
		for want in $wanted; do
			[[ ,$options, = *,$want,* ]] ||
				fail "no $want among the mount's options"
		done
		line=$(grep -P '^\txprt:\trdma ' /proc/self/mountstats)
		[ "$(wc -w <<<"${line#*rdma}")" = 27 ] || fail "not 27 columns: $line"
		# The connection comes from no port that only root may have.
		source=$(rdma -d resource show cm_id |
			sed -n "s/.*src-addr $CLIENT:\([0-9]*\) dst-addr $SERVER:20049 .*/\1/p")
		printf 'the connection comes from port %s\n' "$source"
		[ "$source" -ge 1024 ]
		[ "$(xprt_stat 3)" -ge 1 ]
		[ "$(xprt_stat 6)" -ge 1 ]
		[ "$(xprt_stat 7)" -ge 1 ]
		[ "$(module_uses)" -gt 0 ]
	EOF
	server vers="$vers" 'echo "from the server to v$vers" >/export/$TEST/down'
	client vers="$vers" <<-'EOF'
		[ "$(cat $MNT/$TEST/down)" = "from the server to v$vers" ] ||
			fail 'the server wrote something else'
		echo "from the client by v$vers" >$MNT/$TEST/up && sync $MNT/$TEST/up
	EOF
	server vers="$vers" <<-'EOF'
		[ "$(cat /export/$TEST/up)" = "from the client by v$vers" ] ||
			fail 'the client wrote something else'
	EOF
	client <<-'EOF'
		umount $MNT
		! grep "$MNT" /proc/mounts || fail "it is still mounted"
		wait_for 10 module_unused
	EOF
}

# What sunrpc shows of the transport in debugfs.
debugfs_shows() {
	has_kernel client 7.2 || skip "the client's kernel may show less"
	mount_nfs 4.2
	client <<-'EOF'
		info=$(cat /sys/kernel/debug/sunrpc/rpc_xprt/*/info)
		printf '%s\n' "$info"
		for line in "netid: rdma$SIX" "addr:  $SERVER" \
			'port:  20049' "netns: $(stat -L -c %i /proc/self/ns/net)"; do
			grep -qFx "$line" <<<"$info" || fail "no line '$line'"
		done
		state=$(sed -n 's/^state: //p' <<<"$info")
		# Bound and connected, and nothing that ends it.
		[ $((state & 0x12)) = $((0x12)) ] && [ $((state & 0xc)) = 0 ] ||
			fail "the state is $state"
		[ ! -f /lab/payload/rpcrdma.ko ] || grep -qFx "saddr: $CLIENT" <<<"$info" ||
			fail 'no source address'
	EOF
}

# What sunrpc shows of this end of the connection is what the connection manager has.
source_shown() {
	is_rust || skip "the C module does not tell its source address"
	mount_nfs 4.2
	client <<-'EOF'
		cd /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma
		address=$(cat srcaddr) port=$(sed -n "s/^src_port=//p" xprt_info)
		[ "$address" = "$CLIENT" ] || fail "srcaddr is $address"
		rdma -d resource show cm_id | grep -F "src-addr $CLIENT:$port " |
			grep -F "dst-addr $SERVER:20049" ||
			fail "no connection from port $port: $(rdma -d resource show cm_id)"
	EOF
}

for vers in 3 4.0 4.1 4.2; do
	test_case "NFS v$vers" check_mount $vers
done

# Proves: V1-149.
over_ipv6() {
	client '[ -n "$SERVER6" ]' || skip "LOCAL_V6 and REMOTE_V6 are not set"
	client <<-'EOF'
		mount -t nfs -o proto=rdma6,port=20049,vers=4.2 "[$SERVER6]:/export" $MNT
		grep " $MNT nfs4 .*proto=rdma6,port=20049" /proc/mounts
		ls $MNT >/dev/null
		umount $MNT
		wait_for 10 module_unused
	EOF
}
# Addresses that only mean something together with an interface.
guest_add <<-'EOF'
	link_local() {
		ip -6 -o address show dev $NETDEV scope link | sed 's/.* inet6 \([^/]*\).*/\1/'
	}
EOF
over_link_local() {
	local peer own
	needs_machines "takes link-local addresses"
	peer=$(server link_local) own=$(client link_local)
	[ -n "$peer" ] && [ -n "$own" ] || skip "the machines have no such addresses"
	server_dir /export
	defer unmount_nfs
	client peer="$peer" <<-'EOF' >"$RUN/$TEST.sum"
		mount -t nfs -o proto=rdma6,port=20049,vers=4.2 "[$peer%$NETDEV]:/export" $MNT
		grep " $MNT nfs4 .*proto=rdma6,port=20049" /proc/mounts
		dd if=/dev/urandom of=$MNT/$TEST/data bs=100000 count=3 conv=fsync status=none
		drop_caches
		sha256sum <$MNT/$TEST/data
	EOF
	tail -n 1 "$RUN/$TEST.sum" | diff - <(server 'sha256sum </export/$TEST/data')
	client 'umount $MNT && wait_for 10 module_unused'
}

# NFS refuses it for a mount; for a referral our class does, see KUnit rpcrdma_sunrpc_class.
tls_refused() {
	local policy
	for policy in tls mtls; do
		client policy="$policy" <<-'EOF'
			options=proto=rdma$SIX,port=20049,vers=4.2,xprtsec=$policy
			! mount -t nfs -o $options $AT_SERVER:/export $MNT 2>/run/$TEST.err ||
				fail 'the mount went well'
			cat /run/$TEST.err
			grep -q '^mount.nfs: .*mount option' /run/$TEST.err
			rm /run/$TEST.err
		EOF
	done
}

test_case "over IPv6" over_ipv6
test_case "over IPv6, link-local" over_link_local
test_case "RPC over TLS is refused" tls_refused
test_case "the source address in sysfs" source_shown
test_case "the transport in sunrpc's debugfs" debugfs_shows
run_cases
