#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: litmus.sh [--code] [FILE...]
#
# Runs the litmus tests of selftests/litmus, or the named ones, through herd7 and the kernel's memory
# model. See selftests/litmus/README.rst. With --code only what each says of the code is looked up, which
# needs neither. Prints KTAP.

export ROOT=testing
. "$(dirname "$0")/lib.sh"
. "$here/ktap.sh"

only_code=
if [ "${1:-}" = --code ]; then
	only_code=yes
	shift
fi
[ $# -gt 0 ] || set -- "$PROJECT"/selftests/litmus/*.litmus
if [ -z "$only_code" ]; then
	. "$here/series.sh"
	"$here/buildroot.sh"
	"$here/kernel-source.sh"
	model=$KERNELS/src/tools/memory-model
	work=$(mktemp -d /tmp/litmus.XXXXXX)
	trap 'rm -rf "$work"' EXIT
fi

# What is wrong if herd7 does not observe that: expect OBSERVATION FILE
expect() {
	local seen
	seen=$(cd "$model" && "$here/in-buildroot.sh" herd7 -conf linux-kernel.cfg "$2" 2>"$work/errors" |
		sed -n 's/^Observation [^ ]* \([A-Za-z]*\) .*/\1/p')
	[ "$seen" = "$1" ] || printf '%s instead of %s\n' "${seen:-nothing}" "$1"
	cat "$work/errors"
}

# Texts that the code of a test does not have.
missing() {
	local line
	while IFS= read -r line; do
		grep -qF -- "${line#*: }" "$PROJECT/${line%%: *}" || printf '%s\n' "$line"
	done < <(sed -n 's/^ \* Code: //p' "$1")
}

for file; do
	file=$(realpath "$file")
	name=$(basename "$file" .litmus)
	result "${name}_is_in_the_code" "$(missing "$file")"
	[ -z "$only_code" ] || continue
	result "${name}_never" "$(expect Never "$file")"
	number_of=0
	while IFS= read -r script; do
		number_of=$((number_of + 1))
		sed -e "/^{/,\${" -e "$script" -e "}" "$file" >"$work/weak.litmus"
		result "${name}_weakened_$number_of" "$(expect Sometimes "$work/weak.litmus" | sed "s|\$| with $script|")"
	done < <(sed -n 's/^ \* Weak: //p' "$file")
done
printf '1..%d\n' "$number"
[ "$failed" -eq 0 ]
