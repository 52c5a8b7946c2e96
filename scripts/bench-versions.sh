#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: bench-versions.sh [--keep]
#
# Counts and times what RPCs of NFSv4.2 metadata take in each version of the protocol
# (selftests/long/versions.sh), with this module at both ends, and prints a table; --keep puts it into
# Documentation/benchmarks.rst too. KERNEL=um|custom|stock, and what else vm.sh takes.
#
#   BENCH_PAIRS=12      how often each version is measured

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

document=()
case ${1:-} in
'') ;;
--keep) document=(--document "$PROJECT/Documentation/benchmarks.rst") ;;
*) die "usage: bench-versions.sh [--keep]" ;;
esac
export KERNEL=${KERNEL:-um} BENCH_PAIRS=${BENCH_PAIRS:-12}
[[ $BENCH_PAIRS =~ ^([2-9]|[1-9][0-9]+)$ ]] || die "BENCH_PAIRS is a number from 2 on, not $BENCH_PAIRS"
"$here/host-packages.sh" vm "$KERNEL"
"$here/kernel.sh" "$KERNEL" >/dev/null
if [ -z "${MODULE:-}" ]; then
	"$here/module.sh" "$KERNEL" >&2
	MODULE=$KERNELS/build/${VARIANT:-$KERNEL}/rust/rpcrdma.ko
fi
export MODULE SERVER_MODULE=$MODULE
out=$KERNELS/build/${VARIANT:-$KERNEL}-versions
CLIENT=rust PEER=rust "$here/vm.sh" "$here/selftests.sh" "$PROJECT/selftests/long/versions.sh" | tee "$out" >&2
BIND=$out "$here/in-buildroot.sh" env KERNEL="$KERNEL" python3 "$PROJECT/selftests/bench/versions.py" "$out" "${document[@]}"
