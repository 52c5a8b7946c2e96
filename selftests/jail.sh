#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A second NFS server, in a network namespace of the server's machine: its listeners and connections are the
# namespace's own, and neither sees the clients of the other. The first namespace forwards its packets.
# virtual: has the server route for a network namespace

. "$(dirname "$0")/lib/test.sh"

guest_add <"$lib/netns-guest.sh"
guest_add <<-'EOF'
	INNER=192.0.2.3
	# In the namespace, where the files that daemons share are its own as well.
	inside() { nsenter --net=/run/netns/inner --mount=/run/$TEST.mounts/ns "$@"; }
	jail_begins() {
		inner_begins $INNER/24
		ip route add $INNER dev outer
		# Each side of this machine takes it for the other.
		sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.$NETDEV.proxy_arp=1 net.ipv4.conf.outer.proxy_arp=1
		# A namespace of mounts is kept where changes do not spread.
		mkdir -p /run/$TEST.mounts
		mount -t tmpfs --make-private none /run/$TEST.mounts
		: >/run/$TEST.mounts/ns
		nsenter --net=/run/netns/inner unshare --mount=/run/$TEST.mounts/ns --propagation private true
		inside sh -ec "
			mount -t tmpfs none /var/lib/nfs
			mkdir -p /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/nfsdcld /var/lib/nfs/v4recovery
			touch /var/lib/nfs/etab /var/lib/nfs/rmtab
			# The port mapper is that of the first namespace.
			mount --bind /dev/null /run/rpcbind.sock
			mount -t tmpfs none /export
			mkdir -p /export/$TEST
			echo in the jail >/export/which
			mount -t nfsd nfsd /proc/fs/nfsd"
		inside rdma link add inner type $TRANSPORT netdev inner
		# It needs no port mapper: its clients are told the port, and use NFSv4.
		inside sh -ec "
			echo 10 >/proc/fs/nfsd/nfsv4gracetime
			exportfs -o rw,insecure,no_root_squash,no_subtree_check,fsid=7 *:/export
			rpc.mountd --no-nfs-version 3 --no-udp"
		jail_threads
	}
	jail_threads() { inside sh -ec "rpc.nfsd --no-nfs-version 3 --tcp --no-udp 2 && echo rdma 20049 >/proc/fs/nfsd/portlist"; }
	jail_stop() { inside rpc.nfsd 0; }
	jail_ends() {
		local pid
		[ ! -e /run/netns/inner ] || {
			inside rpc.nfsd 0 || true
			inside exportfs -ua || true
			for pid in $(ip netns pids inner); do kill $pid || true; done
			! inside rdma link show inner/1 >/dev/null 2>&1 || inside rdma link delete inner
			umount /run/$TEST.mounts/ns
			umount /run/$TEST.mounts
			rmdir /run/$TEST.mounts
			inner_ends
		}
		sysctl -qw net.ipv4.ip_forward=0 net.ipv4.conf.$NETDEV.proxy_arp=0
	}
	mount_jail() { mount -t nfs -o rdma,port=20049,vers=$1,sec=sys $INNER:/export $MNT; }
EOF

jail_begins() {
	defer server '[ ! -e /run/netns/inner ] || jail_ends'
	server jail_begins
	defer unmount_nfs
}

own_server() {
	server_dir /export
	server 'echo outside >/export/which'
	defer server 'rm -f /export/which'
	jail_begins
	client vers="$1" <<-'EOF'
		mount_jail $vers
		[ "$(cat $MNT/which)" = "in the jail" ] || fail "that is the other server: $(cat $MNT/which)"
		umount $MNT
		mount_nfs $vers
		[ "$(cat $MNT/which)" = outside ] || fail "that is the other server: $(cat $MNT/which)"
		umount $MNT
	EOF
	# The connection is on the device of the namespace.
	client vers="$1" 'mount_jail $vers'
	server '[[ $(rdma resource show qp link inner/1) = *"type RC state RTS"* ]] || fail "$(rdma resource show qp)"'
	client 'rm -f /run/work.*'
	client_background work 'work 100K'
	defer client 'work_end && wait_for 50 test -f /run/job.work.status'
	client 'work_goes_on 30'
	# Only the one in the namespace ends, and only there.
	server <<-'EOF'
		jail_stop
		[ "$(cat /proc/fs/nfsd/threads)" = 4 ]
		rdma -d resource show cm_id | grep "state LISTEN " | grep "src-addr 0.0.0.0:20049 "
		jail_threads
	EOF
	client <<-'EOF'
		work_goes_on 60
		work_end
	EOF
	client_wait work || fail "the program that worked on the mount saw an error"
	server 'inside sh -ec "cd /export/$TEST && sha256sum --quiet -c sums"'
	client 'work_forget; umount $MNT && wait_for 10 module_unused'
	server jail_ends
}

# What fails in a namespace does not keep it: a hundred times nfsd is to listen where it does already, and a hundred
# connects are not accepted, before there is a queue pair and behind that.
nothing_keeps_it() {
	local limits
	client '[ -f /lab/payload/rpcrdma-peer ]' || skip "the payload has no rpcrdma-peer"
	client 'modprobe -q ib_uverbs; modprobe -q rdma_ucm'
	jail_begins
	server <<-'EOF'
		inside sh -ec '
		for n in $(seq 100); do
			! echo rdma 20049 2>/dev/null >/proc/fs/nfsd/portlist || exit 1
		done' || fail 'it listens twice at a port'
	EOF
	for limits in "max_qp_wr=200 max_send_sge=1" failing_receives=1; do
		# The kernel's own transport makes do with small queues.
		[ "$limits" = failing_receives=1 ] || is_served || continue
		limit_server $limits
		client <<-'EOF'
			found=$(timeout 100 /lab/payload/rpcrdma-peer --requester $INNER refused-50 </dev/null 2>/dev/null)
			[ "$found" = "refused-50: 50_refused" ] || fail "$found"
		EOF
		limits_end server
	done
	! is_served || server <<-'EOF'
		[ "$(all_listeners_of accept_failures)" = 100 ] || fail "$(all_listeners_of accept_failures) were not accepted"
	EOF
	# Its interfaces go when nothing refers to it any longer.
	server jail_ends
}

for vers in 4.1 4.2; do
	test_case "v$vers: a server in a namespace, beside one outside" own_server $vers
done
test_case "listens and connects that fail in a namespace, which then goes" nothing_keeps_it
run_cases
