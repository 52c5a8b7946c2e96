#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: cost.sh client|server [--versions] [ARGUMENT...]
#        cost.sh keep
#
# Counts what RPCs cost in the machine of that role, with the C and with the Rust module there, and
# prints both side by side. The peer is C. With --versions the Rust module is at both ends, and speaks
# each version of the protocol. The arguments are those of selftests/cost/report.py after the folder.
# "keep" counts in both roles, and sets anew the ratios in selftests/cost.
# KERNEL=stock|custom.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

role=${1:-}
case $role in
client | server) shift ;;
keep)
	for role in client server; do
		"$0" $role --ratios "$PROJECT/selftests/cost/$role.txt" --keep
	done
	exit
	;;
*) die "usage: cost.sh client|server [--versions] [ARGUMENT...], or cost.sh keep" ;;
esac
name=$role kinds=(c rust)
if [ "${1:-}" = --versions ]; then
	shift
	name=$role-versions kinds=(one-1024 one-4096 two-4096)
fi
kernel=${KERNEL:-stock}
case $kernel in stock | custom) ;; *) die "KERNEL is stock or custom, not $kernel" ;; esac
"$here/host-packages.sh" vm "$kernel"
"$here/kernel.sh" "$kernel" >/dev/null
source=$PROJECT/selftests/cost
out=$KERNELS/build/$kernel-cost-$name
rm -rf "$out"
mkdir -p "$out/payload"

if [ -z "${MODULE:-}" ]; then
	"$here/module.sh" "$kernel" >&2
	MODULE=$KERNELS/build/$kernel/rust/rpcrdma.ko
fi
export MODULE SERVER_MODULE=$MODULE
SOURCE=$PROJECT/selftests/modules VARIANT=$kernel-tests "$here/module.sh" "$kernel" >&2
cp "$KERNELS/build/$kernel-tests/rpcrdma_test_cost.ko" "$out/payload/"

# QEMU 9 takes no plugin of the first interface, and earlier ones know no other.
interface=()
version=$(qemu-system-x86_64 --version | sed -n 's/^QEMU emulator version \([0-9]*\).*/\1/p')
[ "$version" -ge 9 ] || interface=(--cfg first_interface)
"$here/in-buildroot.sh" rustc --edition 2021 -O -C panic=abort --crate-type cdylib \
	--check-cfg 'cfg(first_interface)' "${interface[@]}" -o "$out/libcount.so" "$source/count.rs"

# Mitigations cost differently on each processor, and nothing here needs them.
for kind in "${kinds[@]}"; do
	mkdir "$out/$kind"
	client=c peer=c dialect=()
	case $kind in
	one-* | two-*) client=rust peer=rust dialect=("$kind") ;;
	*) [ "$role" = client ] && client=$kind || peer=$kind ;;
	esac
	CLIENT=$client PEER=$peer KERNEL=$kernel PAYLOAD=$out/payload APPEND=mitigations=off SMP=1 \
		PLUGIN=$out/libcount.so,out=$out/$kind PLUGIN_IN=$role \
		"$here/vm.sh" "$here/cost-rpcs.sh" "$role" "$out/$kind" "${dialect[@]}" >&2
done
"$here/in-buildroot.sh" python3 "$source/report.py" "$role" "$out" "$@"
