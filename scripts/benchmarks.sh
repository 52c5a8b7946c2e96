#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: benchmarks.sh
#
# Makes a page of what cost.sh and bench.sh have measured last, and prints its name.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

"$here/in-buildroot.sh" python3 "$here/benchmarks.py" "$KERNELS/build" "$KERNELS/build/benchmarks.html"
