#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: cost.sh client|server [ARGUMENT...]
#
# Counts what RPCs cost in the machine of that role, with the C and with the Rust module there, and
# prints both side by side. The peer is C. The arguments are those of selftests/cost/report.py after
# the folder. KERNEL=stock|custom.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

role=${1:-}
case $role in client | server) shift ;; *) die "usage: cost.sh client|server [ARGUMENT...]" ;; esac
kernel=${KERNEL:-stock}
case $kernel in stock | custom) ;; *) die "KERNEL is stock or custom, not $kernel" ;; esac
"$here/host-packages.sh" vm "$kernel"
"$here/kernel.sh" "$kernel" >/dev/null
source=$PROJECT/selftests/cost
out=$KERNELS/build/${VARIANT:-$kernel}-cost-$role
rm -rf "$out"
mkdir -p "$out"/{c,rust,payload}

if [ -z "${MODULE:-}" ]; then
	"$here/module.sh" "$kernel" >&2
	MODULE=$KERNELS/build/${VARIANT:-$kernel}/rust/rpcrdma.ko
fi
export MODULE SERVER_MODULE=$MODULE
SOURCE=$PROJECT/selftests/modules VARIANT=${VARIANT:-$kernel}-tests "$here/module.sh" "$kernel" >&2
cp "$KERNELS/build/${VARIANT:-$kernel}-tests/rpcrdma_test_cost.ko" "$out/payload/"

# QEMU 9 takes no plugin of the first interface, and earlier ones know no other.
interface=()
version=$(qemu-system-x86_64 --version | sed -n 's/^QEMU emulator version \([0-9]*\).*/\1/p')
[ "$version" -ge 9 ] || interface=(--cfg first_interface)
"$here/in-buildroot.sh" rustc --edition 2021 -O -C panic=abort --crate-type cdylib \
	--check-cfg 'cfg(first_interface)' "${interface[@]}" -o "$out/libcount.so" "$source/count.rs"

# Mitigations cost differently on each processor, and nothing here needs them.
for transport in c rust; do
	client=c peer=c
	[ $role = client ] && client=$transport || peer=$transport
	CLIENT=$client PEER=$peer KERNEL=$kernel PAYLOAD=$out/payload APPEND=mitigations=off SMP=1 \
		PLUGIN=$out/libcount.so,out=$out/$transport PLUGIN_IN=$role \
		"$here/vm.sh" "$here/cost-rpcs.sh" $role "$out/$transport" >&2
done
"$here/in-buildroot.sh" python3 "$source/report.py" "$role" "$out" "$@"
