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

"$here/host-packages.sh" vm
"$here/kernel.sh" "$kernel" >/dev/null
[ "${CLIENT:-rust}" = c ] || [ -n "${MODULE:-}" ] || "$here/module.sh" "$kernel"

# A real source tree of a few hundred files, with the checksum of each.
files=$CACHE/tree
if ! stamped "$files.stamp" "$(cat "$CACHE/linux-src.stamp")"; then
	lock tree
	rm -rf "$files"
	mkdir -p "$files"
	cd "$CACHE/linux-src"
	dirs=(fs/nfs fs/nfsd fs/lockd fs/btrfs net/sunrpc)
	tar -cf "$files/tree.tar" "${dirs[@]}"
	find "${dirs[@]}" -type f -print0 | sort -z | xargs -0 sha256sum >"$files/tree.sha256"
	stamp "$files.stamp" "$(cat "$CACHE/linux-src.stamp")"
	cd "$PROJECT"
fi
export VERS=$vers PAYLOAD=$files
exec "$here/vm.sh" "$here/${1:-job.sh}"
