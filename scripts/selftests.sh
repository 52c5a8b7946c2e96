#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: selftests.sh TEST...
#
# Runs under vm.sh: each test gets the same pair of machines, and has to leave it as it was. Tests
# print KTAP and exit with 4 to skip. A kernel complaint during a test makes it fail.
# A test finds vm-lib.sh in VM_LIB, the kernel's KTAP helpers in KTAP_HELPERS, and rpcrdma-decode
# in DECODE. A test that has not ended after ten minutes hangs; a line "# limit: SECONDS" in it gives
# it longer. DURATION says how many seconds those are to take that can go on for ever, and may stand
# in such a line. A line "# expect: REGEX" names complaints that are not the client's, a line
# "# boot: WORDS" what the kernels' command lines must have (vm.sh's APPEND).

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"
. "$here/vm-lib.sh"

export VM_LIB=$here/vm-lib.sh
export DECODE=$CACHE/build/host/release/rpcrdma-decode
# The machine that builds need have no Python.
export RPCRDMA_TOP=$PROJECT/tools/rpcrdma-top/rpcrdma-top PYTHON="$here/in-buildroot.sh python3"
export KTAP_HELPERS=$KERNELS/src/tools/testing/selftests/kselftest/ktap_helpers.sh
export DURATION=${DURATION:-240}
bad=0 running=
# In the background, with a shell that waits, a test does not outlive an interrupt.
trap '[ -z "$running" ] || kill "$running" 2>/dev/null; exit 130' INT TERM
for file; do
	name=$(basename "$file" .sh)
	start=$SECONDS rc=0
	limit=$(sed -n 's/^# limit: \([0-9A-Z+* ]*\)$/\1/p' "$file")
	limit=$(((${limit:-600}) * ${SLOW:-1}))
	printf '# %s\n' "$name"
	timeout -k 10 "$limit" "$file" </dev/null >"$RUN/$name.ktap" 2>&1 &
	running=$!
	wait "$running" || rc=$?
	running=
	cat "$RUN/$name.ktap"
	case $rc in
	0) ;;
	4) grep -q '# SKIP' "$RUN/$name.ktap" || printf 'ok - %s # SKIP\n' "$name" ;;
	124 | 137) printf 'not ok - %s: no end within %d seconds\n' "$name" "$limit" ;;
	*) grep -q '^not ok ' "$RUN/$name.ktap" || printf 'not ok - %s: exit status %d\n' "$name" $rc ;;
	esac
	[ $rc -eq 0 ] || [ $rc -eq 4 ] || bad=1
	if [ $rc -eq 0 ] && ! grep -qE '^(ok |1\.\.0)' "$RUN/$name.ktap"; then
		printf 'not ok - %s: it reported no result\n' "$name"
		bad=1
	fi
	expect=$(sed -n 's/^# expect: //p' "$file")
	if ! EXPECT=${expect:-${EXPECT:-}} "$here/complaints.sh"; then
		printf 'not ok - %s: a kernel complained\n' "$name"
		bad=1
	fi
	for machine in server client; do
		vm_alive $machine || die "the $machine machine died in $name"
	done
	printf '# %s took %ds\n' "$name" $((SECONDS - start))
done
if [ -n "${ONLY:-}" ] && ! grep -qE '^(not )?ok |# SKIP' "$RUN"/*.ktap; then
	printf 'not ok - no case of these tests matches ONLY=%s\n' "$ONLY"
	bad=1
fi
exit $bad
