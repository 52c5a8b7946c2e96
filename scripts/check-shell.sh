#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check-shell.sh
#
# Has shellcheck read what the kselftests run in their machines, which it takes for a string where it stands.

. "$(dirname "$0")/lib.sh"

"$here/buildroot.sh" shell >&2
cd "$PROJECT"
dir=$(mktemp -d "${TMPDIR:-/tmp}/rpcrdma.XXXXXX")
export BIND=$dir${BIND:+:$BIND}
trap 'rm -rf --one-file-system "$dir"' EXIT
cp .shellcheckrc "$dir/"
tests=(selftests/{,lib/,long/}*.sh)
rc=0
"$here/in-buildroot.sh" "$here/machine-texts.py" "$dir" "${tests[@]}" || rc=1
cd "$dir"
# Without what is no fault there: words that are to be split (2086, 2046, 2231), names of files that a test has
# chosen (2035, 2012, 2013), "A && B || fail" (2015), SERVER beside SERVER6 (2153), and subshells that stand for
# calls (2234, 2235).
"$here/in-buildroot.sh" shellcheck --format=gcc --exclude=SC2012,SC2013,SC2015,SC2035,SC2046,SC2086,SC2153,SC2231,SC2234,SC2235 \
	"${tests[@]}" || rc=1
exit $rc
