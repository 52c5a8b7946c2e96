#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: litmus.sh [FILE...]
#
# Runs the litmus tests of selftests/litmus, or the named ones, through herd7 and the kernel's memory
# model. See selftests/litmus/README.rst. Prints KTAP.

export ROOT=testing
. "$(dirname "$0")/lib.sh"
. "$here/ktap.sh"
. "$here/series.sh"

[ $# -gt 0 ] || set -- "$PROJECT"/selftests/litmus/*.litmus
"$here/buildroot.sh"
"$here/kernel-source.sh"
model=$KERNELS/src/tools/memory-model
work=$(mktemp -d /tmp/litmus.XXXXXX)
trap 'rm -rf "$work"' EXIT

# What is wrong if herd7 does not observe that: expect OBSERVATION FILE. A data race, of which it tells before,
# is as bad as what must not happen.
expect() {
	local seen
	seen=$(cd "$model" && "$here/in-buildroot.sh" herd7 -conf linux-kernel.cfg "$2" 2>"$work/errors" |
		sed -n -e 's/^Flag data-race$/Sometimes/p' -e 's/^Observation [^ ]* \([A-Za-z]*\) .*/\1/p')
	seen=${seen%%$'\n'*}
	[ "$seen" = "$1" ] || printf '%s instead of %s\n' "${seen:-nothing}" "$1"
	cat "$work/errors"
}

for file; do
	file=$(realpath "$file")
	name=$(basename "$file" .litmus)
	result "${name}_never" "$(expect Never "$file")"
	number_of=0
	while IFS= read -r script; do
		number_of=$((number_of + 1))
		sed -e "/^{/,\${" -e "$script" -e "}" "$file" >"$work/weak.litmus" || true
		! cmp -s "$file" "$work/weak.litmus" || : >"$work/weak.litmus"
		result "${name}_weakened_$number_of" "$(expect Sometimes "$work/weak.litmus" | sed "s|\$| with $script|")"
	done < <(sed -n 's/^ \* Weak: //p' "$file")
done
printf '1..%d\n' "$number"
[ "$failed" -eq 0 ]
