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
		client "mount_nfs $2 '' /export/disk"
	else
		client "mount -t nfs -o proto=tcp,vers=$2,sec=sys \$AT_SERVER:/export/disk \$MNT"
	fi
	# Of all transports to the server but NLM's and the like the newest: its folder in sysfs.
	client 'ls -d /sys/kernel/sunrpc/xprt-switches/*/xprt-*-'"$1"' | sort -V | tail -n 1 >/run/'"$TEST"'.xprt'
	defer "client 'rm -f /run/$TEST.*'"
}

# Waits until the transport is connected, or is not, and prints the seconds since START in hundredths.
guest+='
is_up() { grep -qw CONNECTED "$(cat /run/$TEST.xprt)/xprt_state"; }
is_down() { ! is_up; }
now() { echo $(($(date +%s%N) / 10000000)); }
tell() { printf "%s: %d.%02d s\n" "$1" $((($(now) - $2) / 100)) $((($(now) - $2) % 100)); }
'

lost() {
	server_dir /export/disk
	server "touch /export/disk/$TEST/file"
	netem_begins server
	mount_by "$1" "$2"
	client_waits 400
	# The Call waits for the file system.
	defer "server 'fsfreeze -u / 2>/dev/null || true'"
	server 'sync; fsfreeze -f /'
	client_background program "touch \$MNT/$TEST/new"
	# The packets of the last Call have their acknowledgement when nothing is sent any more.
	client '
		sent() { cat /sys/class/net/$NETDEV/statistics/tx_packets; }
		quiet() { local n; n=$(sent); for i in {1..20}; do sleep 0.05; [ "$(sent)" = "$n" ] || return 1; done; }
		waits() { grep -q xprt_pending /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks; }
		wait_for 20 waits
		wait_for 20 quiet'
	netem server 'loss 100%'
	LIMIT=330 client "start=\$(now); echo \$start >/run/$TEST.start; wait_for 300 is_down; tell '$1 v$2: loss noticed after' \$start"
	netem server
	LIMIT=200 client "start=\$(now); wait_for 180 is_up; tell '$1 v$2: connected after the path is back' \$start"
	server 'fsfreeze -u /'
	LIMIT=200 client_wait program
	client 'umount $MNT && wait_for 10 module_unused'
}

writers() {
	client_background writers "
		i=0
		while [ \$((i += 1)) -le $WRITERS ]; do
			(while [ ! -f /run/$TEST.stop ]; do
				head -c 65536 /dev/zero | dd of=\$MNT/$TEST/\$i bs=64K conv=fsync status=none
				now >/run/$TEST.done.\$i
			done) &
		done
		wait"
}

thawed() {
	server_dir /export/disk
	mount_by "$1" "$2"
	client_waits 400
	client "rm -f /run/$TEST.stop"
	writers
	defer "client 'touch /run/$TEST.stop'"
	client "all() { [ \$(ls /run/$TEST.done.* | wc -l) = $WRITERS ]; }; wait_for 30 all"
	defer "server 'fsfreeze -u / 2>/dev/null || true'"
	server 'fsfreeze -f /'
	# Not to wait for anything: so long it is frozen.
	sleep "$FROZEN"
	server 'fsfreeze -u /'
	LIMIT=200 client "
		start=\$(now)
		newer() { [ \$(cat /run/$TEST.done.* | awk -v start=\$start '\$1 >= start' | wc -l) -ge \$1 ]; }
		wait_for 180 newer 1
		tell '$1 v$2: first write after the thaw' \$start
		wait_for 180 newer $WRITERS
		tell '$1 v$2: a write of each after the thaw' \$start
		touch /run/$TEST.stop"
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
