#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: module.sh KERNEL [MAKE-ARGUMENT...]
#
# Builds the module in the build root against one of the cache's kernels; the output goes to
# SERIES/build/KERNEL in the cache, or to SERIES/build/$VARIANT. SOURCE=DIR builds another folder's modules.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

kernel=${1:?usage: module.sh KERNEL [MAKE-ARGUMENT...]}
shift
out=$KERNELS/build/${VARIANT:-$kernel}
compilers_of_stock
tree=$("$here/kernel.sh" "$kernel")
[ ! -f "${SOURCE:-$PROJECT}/modules.order" ] || die "the source tree holds the output of another build: run make KDIR=TREE clean with that build's tree first"
mkdir -p "$out"
[ -z "${KSRC:-}" ] || export BIND="$KSRC${BIND:+:$BIND}"
"$here/in-buildroot.sh" make -C "$PROJECT" --no-print-directory -j"$JOBS" KDIR="$tree" MO="$out" SOURCE="${SOURCE:-}" "$@" modules
