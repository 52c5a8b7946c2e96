#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Installs the module as a person does who keeps it: make install into a module tree that has the C
# module, a boot, and the first mount by RDMA loads ours. After make uninstall and another boot it
# loads the C module. Prints KTAP. KERNEL=stock|custom

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

kernel=${KERNEL:-stock}
"$here/host-packages.sh" vm "$kernel"
tree=$("$here/kernel.sh" "$kernel")
"$here/module.sh" "$kernel" >&2
"$here/guest.sh" "$kernel"
root=$(mktemp -d "${TMPDIR:-/tmp}/rpcrdma.XXXXXX")
trap 'rm -rf "$root"' EXIT
# The tree that the machine would boot with.
(cd "$root" && cpio --extract --make-directories --quiet 'lab/modules/*' lib/modules <"$tree.initrd")

bad=0
reach() {
	BIND=$root "$here/in-buildroot.sh" make -C "$PROJECT" --no-print-directory KDIR="$tree" \
		MO="$KERNELS/build/$kernel" INSTALL_MOD_PATH="$root" "$1" >&2
}
# boots_with GOAL MODULE: after this goal of make it is this one that a mount loads.
boots_with() {
	local result=ok
	reach "$1"
	KERNEL=$kernel CLIENT=none OVERLAY=$root "$here/vm.sh" "$here/first-mount.sh" "$2" | sed 's/^/# /' || {
		result='not ok'
		bad=1
	}
	printf '%s - after make %s and a boot a mount loads the %s module\n' "$result" "$1" "$2"
}

printf '1..3\n'
boots_with install rust
boots_with uninstall c
result=ok
reach uninstall || result='not ok' bad=1
printf '%s - make uninstall has nothing to say where nothing is installed\n' "$result"
exit $bad
