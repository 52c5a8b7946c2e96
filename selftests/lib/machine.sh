#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: machine.sh begin client|server NETIF|- LOCAL REMOTE [LOCAL6 REMOTE6]
#        machine.sh run SECONDS <COMMANDS
#        machine.sh end [REGEX]
#
# Runs in a real machine for lib/adapters.sh. begin looks whether the machine has what the tests
# need, and makes a mount namespace of their own in it: the machine's folders, beside them /lab,
# /export and /mnt/nfs as virtual machines have them, and empty ones instead of /run and
# /var/lib/nfs. So what the tests mount, export and leave in files is nobody else's. run has bash
# run COMMANDS there. end takes all of it away again, modules that were not loaded before included,
# and tells what it could not undo, and of what the kernel complained, but for REGEX.

set -euo pipefail

export PATH=/usr/sbin:/usr/bin:/sbin:/bin
dir=/run/rpcrdma-selftests
ns=$dir/private/ns
nfsd=/proc/fs/nfsd
instance=instances/rpcrdma-selftests

die() {
	printf '%s\n' "$*" >&2
	exit 1
}

loaded() { grep -q "^$1 " /proc/modules; }
uses() { awk -v name="$1" '$1 == name { print $3 }' /proc/modules; }

# wait_for SECONDS COMMAND...: whether it succeeds in that time.
wait_for() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.1
	done
}

# What the tests need, each missing part with a sentence.
check() {
	local name lacking=()
	local tools=(rdma ip modinfo modprobe insmod rmmod nsenter unshare timeout base64)
	tools+=(pgrep getfacl getfattr)
	[ "$(id -u)" = 0 ] || die "the tests need root in the $role"
	case $role in
	client) tools+=(mount.nfs fio setfacl rpcinfo rpcbind rpc.statd) ;;
	server) tools+=(rpc.nfsd exportfs rpc.mountd nfsdcld rpcinfo rpcbind rpc.statd) ;;
	esac
	for name in "${tools[@]}"; do
		command -v "$name" >/dev/null || lacking+=("$name")
	done
	[ ${#lacking[@]} -eq 0 ] || die "the $role lacks these programs: ${lacking[*]}"
	name=$(modinfo -n rpcrdma 2>/dev/null) || die "the $role's kernel has no module rpcrdma"
	[ "$name" != "(builtin)" ] ||
		die "the $role's kernel has rpcrdma built in, and the tests need a module"
	[ "$(uses rpcrdma)" = "" ] || [ "$(uses rpcrdma)" = 0 ] ||
		die "somebody uses the $role's rpcrdma: unmount what is mounted by RDMA"
	[ "$role" = client ] || ! pgrep -x 'rpc.mountd|nfsd' >/dev/null ||
		die "the server serves somebody: stop its NFS service for the tests"
	[ "$netif" != - ] || netif=$(ip -o address show to "$local" | awk 'NR == 1 { print $2 }')
	[ -n "$netif" ] || die "the server has no interface with the address $local"
	[ -d "/sys/class/net/$netif" ] || die "the $role has no interface $netif"
	[ -n "$(ip -o address show dev "$netif" to "$local")" ] ||
		die "the $role's interface $netif does not have the address $local"
	link=$(rdma link show |
		awk -v netif="$netif" \
		'$0 ~ " netdev " netif "( |$)" && !n++ { sub("/.*", "", $2); print $2 }')
	[ -n "$link" ] ||
		die "rdma link show has no device of the $role's interface $netif"
}

begin() {
	umask 022
	check
	mkdir "$dir/private"
	# A namespace can be kept in a file only where mounts are not passed on.
	mount -t tmpfs -o size=64k none "$dir/private"
	mount --make-private "$dir/private"
	touch "$ns"
	cut -d ' ' -f 1 /proc/modules >"$dir/modules"
	printf 'rpcrdma-selftests: begin\n' >/dev/kmsg
	case $role in
	client) modprobe -a nfs rpcrdma && { modprobe -aq nfsv3 nfsv4 || true; } ;;
	server) modprobe -a nfsd rpcrdma ;;
	esac || die "the $role's kernel does not load the modules, see its log"
	unshare --mount="$ns" --propagation private bash "$dir/machine" "inside" "$role" "$netif" \
		"$local" "$remote" "$local6" "$remote6" "$link"
}

# The folders of the namespace, from within.
make_root() {
	local root=$dir/root path owner
	mkdir -p "$root"
	mount -t tmpfs -o mode=755 none "$root"
	for path in /*; do
		case $path in /export | /lab | /mnt | /run) continue ;; esac
		if [ -L "$path" ]; then
			cp -P "$path" "$root/"
		elif [ -d "$path" ]; then
			mkdir "$root$path"
			mount --rbind "$path" "$root$path"
		fi
	done
	mkdir -p "$root"/{run,export,lab/guest,lab/payload/server,mnt/nfs,old}
	mount -t tmpfs -o mode=755 none "$root/run"
	mkdir -p "$root"/run/{lock,rpcbind,rpc_pipefs,sshd}
	if [ -S /run/rpcbind.sock ]; then
		touch "$root/run/rpcbind.sock"
		mount --bind /run/rpcbind.sock "$root/run/rpcbind.sock"
	fi
	cp "$dir/machine" "$root/lab/guest/machine"
	cd "$root"
	pivot_root . old
	umount -l /old
	rmdir /old

	owner=$(stat -c %u:%g /var/lib/nfs/sm 2>/dev/null || stat -c %u:%g /var/lib/nfs)
	mount -t tmpfs -o mode=755 none /var/lib/nfs
	mkdir -p /var/lib/nfs/{sm,sm.bak,nfsdcld,v4recovery,rpc_pipefs}
	touch /var/lib/nfs/{etab,rmtab,state}
	# The user of rpc.statd; nfsdcld wants its folder to be root's.
	chown "$owner" /var/lib/nfs /var/lib/nfs/{sm,sm.bak,state}
	mount -t rpc_pipefs none /run/rpc_pipefs
	mount --bind /run/rpc_pipefs /var/lib/nfs/rpc_pipefs
	mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
	mountpoint -q /sys/kernel/tracing ||
		mount -t tracefs none /sys/kernel/tracing 2>/dev/null || true
	# What the tests trace, and how much of it is kept, is apart from what others trace.
	if [ -d /sys/kernel/tracing/instances ]; then
		mkdir "/sys/kernel/tracing/$instance"
		mount --bind "/sys/kernel/tracing/$instance" /sys/kernel/tracing
	fi
}

# What the tests find in the environment, and under /lab.
make_lab() {
	local server=$remote client=$local server6=$remote6 client6=$local6 ours=/lab/payload
	if [ "$role" = server ]; then
		server=$local client=$remote server6=$local6 client6=$remote6
		ours=/lab/payload/server
	fi
	cat >/lab/guest/env <<-END
		export PATH=$PATH HOME=/root LANG=C.UTF-8 TERM=\${TERM:-linux}
		export SERVER=$server CLIENT=$client SERVER6=$server6 CLIENT6=$client6
		export RDMA_LINK=$link NETDEV=$netif ADAPTERS=1
	END
	cat >/lab/guest/server <<-'END'
		#!/bin/bash
		exec bash /lab/guest/machine "$1"
	END
	chmod +x /lab/guest/server
	# The tests know our module by this file.
	[ "$(modinfo -F description rpcrdma)" != "RPC-over-RDMA transport" ] ||
		ln -s "$(modinfo -n rpcrdma)" $ours/rpcrdma.ko
}

settings() {
	local file
	for file in /proc/sys/sunrpc/{rdma_*,svc_rdma/max_*,svc_rdma/version_two} \
		/sys/kernel/debug/fail_sunrpc/{ignore-*,interval,probability,times,verbose} \
		/sys/module/sunrpc/parameters/svc_rpc_per_connection_limit \
		/sys/kernel/debug/nfsd/disable-splice-read \
		$nfsd/{nfsv4gracetime,nfsv4leasetime,max_block_size}; do
		[ ! -f "$file" ] || printf '%s %s\n' "$file" "$(cat "$file" 2>/dev/null)"
	done
}

daemons() {
	# Where the machine has one that comes when it is asked, this asks.
	rpcinfo -p 127.0.0.1 >/dev/null 2>&1 || rpcbind -w
	pgrep -x rpc.statd >/dev/null || rpc.statd --no-notify
	[ "$role" = server ] || return 0
	pgrep -x nfsdcld >/dev/null || nfsdcld
	rpc.mountd --no-udp
}

threads_begin() {
	# Without a TCP socket the server ends up with no threads at all.
	rpc.nfsd --tcp --no-udp 4
	echo "rdma 20049" >$nfsd/portlist
}

inside() {
	make_root
	make_lab
	printf '%s\n' "$role" >/run/role
	[ "$role" = client ] || mountpoint -q $nfsd || mount -t nfsd none $nfsd
	settings >/run/settings
	daemons
	[ "$role" = server ] || return 0
	# Must be set before the first thread; less than ten is refused.
	echo 10 >$nfsd/nfsv4gracetime
	echo 1048576 >$nfsd/max_block_size
	mount -t tmpfs none /export
	chmod 1777 /export
	for address in "$remote" $remote6; do
		[[ $address != *:* ]] || address="[$address]"
		exportfs -i -o rw,insecure,no_root_squash,no_subtree_check,fsid=1 "$address:/export"
	done
	threads_begin
}

run() {
	local code out rc=0
	code=$(cat)
	# Nobody waits for what a command leaves in the background.
	out=$(mktemp "$dir/out.XXXXXX")
	timeout -k 5 "$1" nsenter --mount="$ns" bash -c ". /lab/guest/env; cd /root; $code" \
		>"$out" 2>&1 </dev/null || rc=$?
	[ $rc -ne 124 ] || printf 'the command was ended after %d seconds\n' "$1" >>"$out"
	cat "$out"
	rm "$out"
	return $rc
}

# The first half of the end, from within; everything is tried.
leave() {
	local file value
	awk '$2 ~ "^/mnt/nfs" { print $2 }' /proc/self/mounts | tac |
		while read -r file; do umount "$file"; done ||
		printf 'a mount of the tests did not go\n'
	# The service of the client's machine, if it has one, is not the tests'.
	if [ "$(cat /run/role)" = server ] && [ -f $nfsd/threads ]; then
		rpc.nfsd 0 || printf 'the threads of nfsd did not end\n'
		exportfs -f || printf 'the exports are still known\n'
	fi
	umount -R /export 2>/dev/null || true
	touch /run/settings
	settings >/run/settings.now
	{ diff /run/settings.now /run/settings || true; } | sed -n 's/^> //p' |
		while read -r file value; do
		printf '%s\n' "$value" >"$file" || printf '%s was %s\n' "$file" "$value"
	done
	file=/sys/kernel/tracing/$instance
	# Whatever still reads there ends with the namespace.
	! mountpoint -q /sys/kernel/tracing || umount -l /sys/kernel/tracing
	if [ -d "$file" ]; then
		wait_for 10 rmdir "$file" || printf 'the trace instance of the tests did not go\n'
	fi
}

# The processes of the namespace: daemons and what commands have left.
inhabitants() {
	local ours path
	ours=$(nsenter --mount="$ns" readlink /proc/self/ns/mnt)
	for path in /proc/[0-9]*; do
		[ "$(readlink "$path/ns/mnt" 2>/dev/null)" != "$ours" ] ||
			printf '%d\n' "${path#/proc/}"
	done
}
kill_inhabitants() {
	local pids
	pids=$(inhabitants)
	# shellcheck disable=SC2086 # A word for each.
	[ -z "$pids" ] || kill "$1" $pids 2>/dev/null || true
	[ -z "$pids" ]
}

unload() { ! loaded "$1" || rmmod "$1" 2>/dev/null; }

undo() {
	local name
	if [ -f "$ns" ]; then
		if mountpoint -q "$ns"; then
			nsenter --mount="$ns" bash /lab/guest/machine leave ||
				printf 'not all of the mounts and settings are as they were\n'
			wait_for 10 kill_inhabitants -TERM || wait_for 10 kill_inhabitants -KILL ||
				printf 'processes of the tests are left\n'
			umount "$ns"
		fi
		umount "$dir/private"
	fi
	# The last one that was loaded comes first there, before those that it needs.
	[ ! -f "$dir/modules" ] ||
		cut -d ' ' -f 1 /proc/modules | grep -vxF -f "$dir/modules" | while read -r name; do
		wait_for 10 unload "$name" ||
			printf 'the module %s was not loaded before, and stays\n' "$name"
	done
	rm -rf "$dir"
}

end() {
	local words='WARNING:|BUG[: ]|Oops|[Kk]ernel panic|general protection|UBSAN|KASAN'
	words+='|refcount_t|list_(add|del) corruption|task .* blocked'
	{
		dmesg | tac | sed '/rpcrdma-selftests: begin$/q' | tac | grep -E "$words" |
			grep -vE "${1:-^$}" | sed 's/^/the kernel complained: /' || true
		undo
	} >"$dir.left" 2>&1 || true
	cat "$dir.left"
	[ ! -s "$dir.left" ] || set -- failed
	rm "$dir.left"
	[ "${1:-}" != failed ]
}

verb=$1
shift
case $verb in
begin | inside) role=$1 netif=$2 local=$3 remote=$4 local6=${5:-} remote6=${6:-} link=${7:-} ;;
esac
case $verb in
begin | inside | leave | run | end) "$verb" "$@" ;;
stop) rpc.nfsd 0 ;;
resume) threads_begin ;;
*) die "usage: machine.sh begin|run|end ..." ;;
esac
