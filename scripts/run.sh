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
kernel=${KERNEL:-stock}
check_machines "$kernel"

"$here/host-packages.sh" vm "$kernel"
"$here/kernel.sh" "$kernel" >/dev/null
client_kernel=${CLIENT_KERNEL:-$kernel} server_kernel=${SERVER_KERNEL:-$kernel}
# ours TRANSPORT KERNEL: whether a machine has this transport, where there is one for its kernel.
ours() { [ "${1:-rust}" = rust ] && [ "$2" != release ]; }
[ -n "${MODULE:-}" ] || ! ours "${CLIENT:-}" "$client_kernel" || "$here/module.sh" "$client_kernel"
[ -n "${SERVER_MODULE:-${MODULE:-}}" ] || ! ours "${PEER:-}" "$server_kernel" ||
	KERNEL_SERIES=${SERVER_SERIES:-${KERNEL_SERIES:-}} "$here/module.sh" "$server_kernel"

# Where no CPU is emulated there is time for more files.
size=small
[[ $kernel != um* ]] || size=large
PAYLOAD=$("$here/tree.sh" $size)
export VERS=$vers PAYLOAD
exec "$here/vm.sh" "$here/${1:-job.sh}"
