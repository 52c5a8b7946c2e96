#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Installed below updates/, our module is what modprobe and every alias load beside the C module;
# taken away again, the C module is.
# virtual: installs and removes modules

. "$(dirname "$0")/lib/test.sh"

# Only the module of ours has this folder.
is_ours='[ -d /sys/kernel/debug/rpcrdma ]'

put_back() {
	client '
		! module_loaded || rmmod rpcrdma
		rm -rf "/lib/modules/$(uname -r)/updates"
		place=$(cat /run/c-module-place)
		[ ! -e "$place" ] || mv "$place" /run/c-module.ko
		depmod
		module_load'
}

beside_the_c_module() {
	is_rust || skip "the C module is installed by its kernel"
	client 'module_unused && [ -s /run/c-module-place ] && [ -f /run/c-module.ko ]' ||
		fail "the machine has no C module, or something uses ours"
	defer put_back
	client "
		rmmod rpcrdma
		mv /run/c-module.ko \"\$(cat /run/c-module-place)\"
		depmod
		modprobe rpcrdma
		! $is_ours || fail 'the C module is installed, and ours was loaded'
		rmmod rpcrdma
		updates=/lib/modules/\$(uname -r)/updates/rust
		mkdir -p \$updates
		cp /lab/payload/rpcrdma.ko \$updates/
		depmod
		for name in rpcrdma rpcrdma6 xprtrdma svcrdma; do
			[ \"\$(modinfo -n rpcrdma)\" = \$updates/rpcrdma.ko ] || fail \"modinfo names \$(modinfo -n rpcrdma)\"
			modprobe \$name
			$is_ours || fail \"modprobe \$name has loaded the C module\"
			rmmod rpcrdma
		done"
	# The mount itself loads the module, by the name of the network identifier.
	mount_nfs 4.2
	client "
		$is_ours || fail 'the mount has loaded the C module'
		umount \$MNT
		wait_for 10 module_unused
		rmmod rpcrdma
		rm -r /lib/modules/\$(uname -r)/updates
		depmod
		modprobe rpcrdma
		! $is_ours || fail 'ours was taken away, and loaded all the same'"
}

test_case "modprobe prefers it to the C module, and takes that again" beside_the_c_module
run_cases
