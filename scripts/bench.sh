#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: bench.sh [client|server]...
#
# Times RPCs with the C and the Rust module in turn in that role (default: one role after the other), in two
# User-Mode Linux machines with C in the other role, and prints the ratios of time and of the kernel's CPU.
# Documentation/benchmarks.rst has the method.
#
#   MINUTES=9       how long each role is measured, three rounds at least
#   MODULE=FILE     a third module to measure in the same run: an rpcrdma.ko built for the same kernel
#   ONLY=REGEX      the operations to measure, by their names in the table

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

roles=("$@")
[ ${#roles[@]} -gt 0 ] || roles=(client server)
for role in "${roles[@]}"; do
	[[ $role =~ ^(client|server)$ ]] || die "usage: bench.sh [client|server]..."
done
export MINUTES=${MINUTES:-9} ONLY=${ONLY:-}
[[ $MINUTES =~ ^[0-9]+$ ]] || die "MINUTES is a number, not $MINUTES"
[ "$(nproc)" -ge 2 ] || die "each machine needs a CPU of its own"
chrt --fifo 1 true 2>/dev/null || die "the machines' threads are SCHED_FIFO meanwhile: run this as root"

"$here/host-packages.sh" vm um
"$here/kernel.sh" um >/dev/null
"$here/module.sh" um >&2
SOURCE=$PROJECT/selftests/modules VARIANT=um-tests "$here/module.sh" um >&2
build=$KERNELS/build
out=$build/um-bench payload=$build/um-bench/payload
rm -rf "$payload"
mkdir -p "$payload/bench"
cp "$build/um-tests/rpcrdma_test_cost.ko" "$payload/"
cp "$build/um/rust/rpcrdma.ko" "$payload/bench/rust.ko"
[ -z "${MODULE:-}" ] || cp "$MODULE" "$payload/bench/module.ko"
"$here/in-buildroot.sh" llvm-strip-19 --strip-debug "$payload"/bench/*.ko

for role in "${roles[@]}"; do
	rm -f "$out/$role"
	KERNEL=um CLIENT=c PEER=c SMP=1 PAYLOAD=$payload "$here/vm.sh" "$here/bench-rounds.sh" "$role" "$out/$role" >&2
	"$here/in-buildroot.sh" "$here/bench_table.py" "$role" "$out/$role"
done
say "the samples are in $out; make benchmarks shows them as a page"
