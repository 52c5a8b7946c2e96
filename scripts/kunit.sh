#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs under vm.sh with a module that was built with KUNIT_TESTS=1: the suites ran when it was
# loaded, and their results are KTAP under debugfs.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

# The suites of one module are printed as the cases of one test each, so that they can be counted.
client_run 'cd /sys/kernel/debug/kunit 2>/dev/null && cat */results ||
	echo "    not ok 1 the module has no KUnit suite, or the kernel runs none"' | awk '
	/^ +1\.\./ { sub(/^ +1\.\./, ""); planned += $0; next }
	/^ +(not )?ok / { sub(/^ +/, ""); if (/^not/) bad = 1; ran++; print; next }
	/^(not )?ok |^1\.\./ { next }
	{ sub(/^KTAP/, "# KTAP"); print }
	END {
		if (ran != planned) {
			print "not ok " ran + 1 " cases ran: " ran + 0 " of " planned
			bad = 1
		}
		exit bad
	}'
