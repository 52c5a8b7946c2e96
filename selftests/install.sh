#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Installed below updates/, our module is what modprobe and every alias load beside the C module, unless
# depmod's override says otherwise; taken away again, the C module is. Settings of /etc/sysctl.d count from the
# first mount on.
# virtual: installs and removes modules

. "$(dirname "$0")/lib/test.sh"

# Only the module of ours has this folder.
is_ours='[ -d /sys/kernel/debug/rpcrdma ]'

put_back() {
	client <<-'EOF'
		! module_loaded || rmmod rpcrdma
		rm -rf "/lib/modules/$(uname -r)/updates"
		rm -f /etc/{depmod,modprobe,sysctl}.d/*rpcrdma*
		find "/lib/modules/$(uname -r)/" -name rpcrdma.ko -exec mv {} /run/c-module.ko \;
		depmod
		module_load
	EOF
}

beside_the_c_module() {
	is_rust || skip "the C module is installed by its kernel"
	client 'module_unused && [ -s /run/c-module-place ] && [ -f /run/c-module.ko ]' ||
		fail "the machine has no C module, or something uses ours"
	defer put_back
	client is_ours="$is_ours" <<-'EOF'
		rmmod rpcrdma
		# Where kernels have it; these machines have no folders for modules.
		place=/lib/modules/$(uname -r)/kernel/net/sunrpc/xprtrdma
		mkdir -p $place
		mv /run/c-module.ko $place/rpcrdma.ko
		depmod
		modprobe rpcrdma
		! $is_ours || fail 'the C module is installed, and ours was loaded'
		rmmod rpcrdma
		updates=/lib/modules/$(uname -r)/updates/rust
		mkdir -p $updates
		cp /lab/payload/rpcrdma.ko $updates/
		depmod
		for name in rpcrdma rpcrdma6 xprtrdma svcrdma; do
			[ "$(modinfo -n rpcrdma)" = $updates/rpcrdma.ko ] || fail "modinfo names $(modinfo -n rpcrdma)"
			modprobe $name
			$is_ours || fail "modprobe $name has loaded the C module"
			rmmod rpcrdma
		done
		# As rpcrdma-rust-ctl use c does.
		mkdir -p /etc/{depmod,modprobe,sysctl}.d
		echo 'override rpcrdma * kernel/net/sunrpc/xprtrdma' >/etc/depmod.d/rpcrdma-rust.conf
		depmod
		modprobe rpcrdma
		! $is_ours || fail 'depmod overrides ours, and it was loaded'
		rmmod rpcrdma
		rm /etc/depmod.d/rpcrdma-rust.conf
		depmod
		echo 'sunrpc.rdma_slot_table_entries = 64' >/etc/sysctl.d/rpcrdma.conf
	EOF
	# What the package has in /usr/lib/modprobe.d.
	put client "$(dirname "$0")/../debian/40-rpcrdma-rust.conf" /etc/modprobe.d/40-rpcrdma-rust.conf
	# The mount itself loads the module, by the name of the network identifier.
	mount_nfs 4.2
	client is_ours="$is_ours" <<-'EOF'
		$is_ours || fail 'the mount has loaded the C module'
		grep -x 'credits_requested 64' /sys/kernel/debug/rpcrdma/*/connection ||
			fail 'the first mount does not heed /etc/sysctl.d'
		umount $MNT
		wait_for 10 module_unused
		rmmod rpcrdma
		rm -r /lib/modules/$(uname -r)/updates
		depmod
		modprobe rpcrdma
		! $is_ours || fail 'ours was taken away, and loaded all the same'
	EOF
}

test_case "modprobe prefers it to the C module, and takes that again" beside_the_c_module
run_cases
