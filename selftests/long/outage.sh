#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# How long programs feel an outage, beside TCP; CLIENT=c for the kernel's own module. The server's packets are lost
# after it has acknowledged a Call: the time until the client looks for another connection, and until it has one
# when the packets come again. The server's file system is frozen for longer than an RPC's minute: the time from the
# thaw to the first completed write, and to one of each writer.
# limit: 2400
# virtual: mistreats packets on their way

. "$(dirname "$0")/../lib/test.sh"

FROZEN=${FROZEN:-140} WRITERS=${WRITERS:-12}

# mount_by rdma|tcp VERS
mount_by() {
	defer unmount_nfs
	if [ "$1" = rdma ]; then
		client vers="$2" 'mount_nfs $vers "" /export/disk'
	else
		client vers="$2" 'mount -t nfs -o proto=tcp,vers=$vers,sec=sys $AT_SERVER:/export/disk $MNT'
	fi
	# Its folder in sysfs, without the transports of side protocols.
	client proto="$1" <<-'EOF'
		grep -lE '^dst_port=(2049|20049)$' /sys/kernel/sunrpc/xprt-switches/*/xprt-*-$proto/xprt_info |
			xargs dirname >/run/$TEST.xprt
	EOF
	defer client 'rm -f /run/$TEST.*'
}

# Whether it is connected, and the time since START in hundredths of a second.
guest_add <<-'EOF'
	is_up() { grep -qw CONNECTED "$(cat /run/$TEST.xprt)/xprt_state"; }
	is_down() { ! is_up; }
	now() { echo $(($(date +%s%N) / 10000000)); }
	tell() { printf "%s: %d.%02d s\n" "$1" $((($(now) - $2) / 100)) $((($(now) - $2) % 100)); }
EOF

# Threads of nfsd wait for a file system that is frozen, and are not taken for hung.
freeze_begins() {
	tasks_wait server 400
	defer server 'fsfreeze -u / 2>/dev/null || true'
}

lost() {
	server_dir /export/disk
	server 'touch /export/disk/$TEST/file'
	netem_begins server
	mount_by "$1" "$2"
	tasks_wait client 400
	# The Call waits for the file system.
	freeze_begins
	server 'sync; fsfreeze -f /'
	client_background program 'touch $MNT/$TEST/new'
	# The packets of the last Call have their acknowledgement when nothing is sent any more.
	client <<-'EOF'
		sent() { cat /sys/class/net/$NETDEV/statistics/tx_packets; }
		quiet() { local n; n=$(sent); for i in {1..20}; do sleep 0.05; [ "$(sent)" = "$n" ] || return 1; done; }
		waits() { grep -q xprt_pending /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks; }
		wait_for 20 waits
		wait_for 20 quiet
	EOF
	netem server 'loss 100%'
	LIMIT=330 client proto="$1" vers="$2" <<-'EOF'
		start=$(now)
		echo $start >/run/$TEST.start
		wait_for 300 is_down
		tell "$proto v$vers: loss noticed after" $start
	EOF
	netem server
	LIMIT=200 client proto="$1" vers="$2" <<-'EOF'
		start=$(now)
		wait_for 180 is_up
		tell "$proto v$vers: connected after the path is back" $start
	EOF
	server 'fsfreeze -u /'
	LIMIT=200 client_wait program
	client 'umount $MNT && wait_for 10 module_unused'
}

writers() {
	client_background writers WRITERS="$WRITERS" <<-'EOF'
		i=0
		while [ $((i += 1)) -le $WRITERS ]; do
			(while [ ! -f /run/$TEST.stop ]; do
				head -c 65536 /dev/zero | dd of=$MNT/$TEST/$i bs=64K conv=fsync status=none
				now >>/run/$TEST.done.$i
			done) &
		done
		wait
	EOF
}

thawed() {
	server_dir /export/disk
	mount_by "$1" "$2"
	tasks_wait client 400
	client 'rm -f /run/$TEST.stop'
	writers
	defer client 'touch /run/$TEST.stop'
	client WRITERS="$WRITERS" 'all() { [ $(ls /run/$TEST.done.* | wc -l) = $WRITERS ]; }; wait_for 30 all'
	freeze_begins
	server 'fsfreeze -f /'
	# Not to wait for anything: so long it is frozen.
	sleep "$FROZEN"
	server 'fsfreeze -u /'
	LIMIT=200 client proto="$1" vers="$2" WRITERS="$WRITERS" <<-'EOF'
		start=$(now)
		newer() { [ $(tail -qn 1 /run/$TEST.done.* | awk -v start=$start '$1 >= start' | wc -l) -ge $1 ]; }
		wait_for 180 newer 1
		tell "$proto v$vers: first write after the thaw" $start
		wait_for 180 newer $WRITERS
		tell "$proto v$vers: a write of each after the thaw" $start
		touch /run/$TEST.stop
	EOF
	[ "$1" = tcp ] || client 'printf "connections: %d\n" $(xprt_stat 3)'
	LIMIT=200 client_wait writers
	client 'umount $MNT && wait_for 10 module_unused'
}

for vers in 3 4.2; do
	for proto in rdma tcp; do
		test_case "v$vers by $proto: the server's packets are lost" lost $proto $vers
		test_case "v$vers by $proto: a file system is frozen for $FROZEN seconds" thawed $proto $vers
	done
done
run_cases
