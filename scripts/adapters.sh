#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: adapters.sh [TEST...]
#
# Runs under vm.sh: takes its two machines for real ones. The kselftests as the kernel's tree installs them,
# which PAYLOAD has in kselftest/, are run in the client, with NETIF set and the server driven by ssh. All of
# them, or the named ones, such as mount. Afterwards both machines must be as they were. Prints KTAP.
# With IPV6=1 the machines have no other addresses.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"
. "$here/ktap.sh"

folder=/lab/payload/kselftest

# No service, no mount, no module of the transport, but ours where modprobe finds it; the server has sshd, and the
# client its key.
server_run '
	exportfs -ua
	rpc.nfsd 0
	pkill -x "rpc.mountd|rpc.statd|nfsdcld|rpcbind"
	while pgrep -x "rpc.mountd|rpc.statd|nfsdcld|rpcbind|nfsd" >/dev/null; do sleep 0.1; done
	umount -R /export
	umount /proc/fs/nfsd
	rm -f /etc/exports'
client_run '
	pkill -x "rpc.statd|rpcbind"
	while pgrep -x "rpc.statd|rpcbind" >/dev/null; do sleep 0.1; done'
for machine in server client; do
	"${machine}_run" '
		until rmmod rpcrdma; do sleep 0.1; done
		for name in nfsd nfsv4 nfsv3 nfs; do ! grep -q "^$name " /proc/modules || modprobe -r $name; done
		# The folder /lab is one that the tests have for themselves.
		rm /usr/lib/modules
		mkdir /usr/lib/modules
		mount --bind /lab/modules /usr/lib/modules
		modules=/lib/modules/$(uname -r)
		mkdir -p $modules/updates
		[ -f /lab/payload/rpcrdma.ko ] && cp /lab/payload/rpcrdma.ko $modules/updates/
		depmod
		# As udev makes them, for the runner.
		ln -sfn /proc/self/fd /dev/fd
		for n in "0 stdin" "1 stdout" "2 stderr"; do ln -sfn /proc/self/fd/${n% *} /dev/${n#* }; done
		modinfo -n rpcrdma'
done
family=
if [ -n "${IPV6:-}" ]; then
	family=ipv6_
	server_run 'ip address flush dev $NETDEV to $SERVER'
	client_run 'ip address flush dev $NETDEV to $CLIENT'
fi
client_run 'mkdir -p -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N "" -f ~/.ssh/id_ed25519'
key=$(client_run 'cat ~/.ssh/id_ed25519.pub')
server_run "
	mkdir -p -m 700 ~/.ssh /run/sshd
	printf '%s\n' '$key' >~/.ssh/authorized_keys
	/usr/sbin/sshd"
client_run "
	cp -r $folder ~/kselftest
	[ -z '$family' ] || SERVER=\$SERVER6
	cat >~/kselftest/net/sunrpc_rdma/net.config <<-END
		# Variables set in a file
		NETIF=\$NETDEV
		LOCAL_V4=\$CLIENT
		LOCAL_V6=\"\$CLIENT6\"
		REMOTE_V4=\$SERVER
		REMOTE_V6=\"\$SERVER6\"
		REMOTE_TYPE=ssh
		REMOTE_ARGS=\"-o StrictHostKeyChecking=accept-new root@\$SERVER\"
	END
	[ -z '$family' ] || sed -i '/^[A-Z]*_V4=/d' ~/kselftest/net/sunrpc_rdma/net.config
	# The first connection, which notes the server's key.
	ssh -o StrictHostKeyChecking=accept-new root@\$SERVER true"

# What must be as before. Counters of devices and what is cached are not.
state() {
	"${1}_run" '
		printf "modules: %s\n" "$(cut -d " " -f 1 /proc/modules | sort | tr "\n" " ")"
		sort /proc/mounts
		ps -e -o comm= | grep -vE "kworker|sshd|^(ps|sort|bash|timeout|sleep|grep)$" | sort
		(cd / && ls -d /* /mnt/* /run/* | grep -v "/run/agent\." && find /etc /var/lib/nfs -type f -print0 | sort -z | xargs -0 sha256sum)
		ls /sys/kernel/debug /sys/kernel/tracing/instances
		ip address; rdma link show; tc qdisc
		for file in /proc/sys/sunrpc/* /proc/sys/vm/* /sys/module/sunrpc/parameters/*; do
			case $file in */drop_caches) ;; *) printf "%s: %s\n" $file "$(cat $file 2>/dev/null)" ;; esac
		done' | sed 's/valid_lft.*//'
}

# A test with net.config changed by sed says why it cannot run: refuses NAME SED-COMMANDS WORDS.
refuses() {
	local said
	said=$(client_run "
		rm -rf ~/other
		cp -r ~/kselftest ~/other
		cd ~/other/net/sunrpc_rdma
		sed -i '$2' net.config
		./mount.sh" || true)
	result "refuses_$1" "$(grep -qF "$3" <<<"$said" || printf '%s\n' "$said")"
}

for machine in server client; do state $machine >"$RUN/$machine.before"; done
refuses without_an_interface '/^NETIF=/d' '# SKIP NETIF names no interface'
refuses without_a_server '/^REMOTE_ARGS=/d' 'not ok 1 REMOTE_ARGS is not set'
refuses without_a_way_there 's/^REMOTE_ARGS=.*/REMOTE_ARGS=127.0.0.1/' 'does not get into the server'
if [ -z "$family" ]; then
	refuses without_its_address 's/^REMOTE_V4=.*/REMOTE_V4=192.0.2.99/' 'has no interface with the address 192.0.2.99'
	refuses without_an_adapter 's/^NETIF=.*/NETIF=lo/; s/^LOCAL_V4=.*/LOCAL_V4=127.0.0.1/' "no device of the client's interface lo"
	refuses without_an_address '/^[A-Z]*_V[46]=/d' 'neither LOCAL_V4 nor LOCAL_V6 is set'
	refuses with_half_a_pair '/^LOCAL_V6=/d' 'LOCAL_V6 and REMOTE_V6 go together'
fi
tests=("$@")
[ $# -gt 0 ] || mapfile -t tests < <(client_run "sed -n 's|^net/sunrpc_rdma:\(.*\)\.sh\$|\1|p' ~/kselftest/kselftest-list.txt")
for name in "${tests[@]}"; do
	rc=0
	LIMIT=600 client_run "cd ~/kselftest && set -o pipefail; ./run_kselftest.sh -t net/sunrpc_rdma:$name.sh | cat" >"$RUN/$name.ktap" || rc=$?
	sed 's/^/# /' "$RUN/$name.ktap"
	# Of a nested test the runner passes on what it says, as comments.
	passed=$(grep -cE '^# ok ' "$RUN/$name.ktap" || true)
	result "adapters_$family$name" "$(grep -E '^# not ok |^not ok ' "$RUN/$name.ktap" || true
		[ "$rc" = 0 ] || echo "the runner's exit status is $rc"
		[ "$passed" -gt 0 ] || grep -q '# SKIP' "$RUN/$name.ktap" || echo "no result")"
	for machine in server client; do
		state $machine >"$RUN/$machine.after"
		result "$family${name}_leaves_the_${machine}_as_it_was" "$(diff "$RUN/$machine.before" "$RUN/$machine.after")"
	done
done
printf '1..%d\n' "$number"
[ "$failed" -eq 0 ]
