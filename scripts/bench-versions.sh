#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: bench-versions.sh [--keep]
#
# Counts what RPCs of NFSv4.2 metadata take in each version of the protocol (selftests/long/versions.sh), with
# this module at both ends, and prints a table; --keep puts it into Documentation/benchmarks.rst too.
# KERNEL=um|custom, and what else vm.sh takes.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

document=()
case ${1:-} in
'') ;;
--keep) document=(--document "$PROJECT/Documentation/benchmarks.rst") ;;
*) die "usage: bench-versions.sh [--keep]" ;;
esac
export KERNEL=${KERNEL:-um}
"$here/host-packages.sh" vm "$KERNEL"
"$here/kernel.sh" "$KERNEL" >/dev/null
"$here/module.sh" "$KERNEL" >&2
out=$KERNELS/build/$KERNEL-versions
CLIENT=rust PEER=rust "$here/vm.sh" "$here/selftests.sh" "$PROJECT/selftests/long/versions.sh" | tee "$out" >&2
BIND=$out "$here/in-buildroot.sh" python3 "$PROJECT/selftests/bench/versions.py" "$out" "${document[@]}"
