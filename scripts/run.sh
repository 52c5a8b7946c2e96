#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: run.sh
#
# The whole thing once: builds what is missing, boots a server and a client, carries real files
# over NFS/RDMA, and says what travelled. VERS=3|4.0|4.1|4.2, and vm.sh's KERNEL, CLIENT, ...

. "$(dirname "$0")/lib.sh"

vers=${VERS:-4.2}
case $vers in 3 | 4.0 | 4.1 | 4.2) ;; *) die "VERS is 3, 4.0, 4.1 or 4.2, not $vers" ;; esac
[ "${PEER:-c}" = c ] || die "PEER=$PEER is not there yet: the only server so far is the kernel's own, PEER=c"
kernel=${KERNEL:-stock}

"$here/host-packages.sh" vm "$kernel"
"$here/kernel.sh" "$kernel" >/dev/null
[ "${CLIENT:-rust}" = c ] || [ -n "${MODULE:-}" ] || "$here/module.sh" "$kernel"

# A real source tree with the checksum of each file: a few hundred files, or some thousands where
# no CPU is emulated.
dirs=(fs/nfs fs/nfsd fs/lockd fs/btrfs net/sunrpc)
files=$CACHE/tree
if [[ $kernel = um* ]]; then
	dirs+=(include/linux)
	files+=-um
fi
tree() {
	local want
	want=$(cat "$CACHE/linux-src.stamp")
	stamped "$files.stamp" "$want" && return 0
	lock tree
	stamped "$files.stamp" "$want" && return 0
	rm -rf "$files"
	mkdir -p "$files"
	tar -C "$CACHE/linux-src" -cf "$files/tree.tar" "${dirs[@]}"
	(cd "$CACHE/linux-src" && find "${dirs[@]}" -type f -print0 | sort -z | xargs -0 sha256sum) >"$files/tree.sha256"
	stamp "$files.stamp" "$want"
}
tree
export VERS=$vers PAYLOAD=$files
exec "$here/vm.sh" "$here/${1:-job.sh}"
