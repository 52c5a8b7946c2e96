#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: litmus.sh [--code] [FILE...]
#
# Runs the litmus tests of selftests/litmus, or the named ones, through herd7 and the kernel's memory
# model. See selftests/litmus/README.rst. With --code only what each says of the code is looked up, which
# needs neither. Prints KTAP.
#
# "Code: FILE: TEXT" in a test is a text that the file has exactly once. Lines of the test right below, seven
# blanks behind their asterisk, go on with the text: they are the next lines of the file, where those that
# are empty or only a // comment do not count, nor do the blanks that a line begins with. What stands on the
# first of the lines before the text, and on the last one behind it, does not matter.

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

# How often a file has a text: occurrences TEXT FILE
occurrences() {
	TEXT=$1 awk '
		{ sub(/^[ \t]+/, "") }
		!/^(\/\/|$)/ { code = code $0 "\n" }
		END {
			while ((at = index(code, ENVIRON["TEXT"])) > 0) {
				count++
				code = substr(code, at + 1)
			}
			print count + 0
		}' "$2"
}

# Texts that the code of a test does not have once.
astray() {
	local text texts count
	mapfile -d '' -t texts < <(sed -n -e 's/^ \* Code: /\x00/p' -e 's/^ \*       //p' "$1")
	for text in "${texts[@]:1}"; do
		text=${text%$'\n'}
		count=$(occurrences "${text#*: }" "$PROJECT/${text%%: *}")
		[ "$count" = 1 ] || printf '%s times instead of once: %s\n' "${count:-0}" "$text"
	done
}

for file; do
	file=$(realpath "$file")
	name=$(basename "$file" .litmus)
	result "${name}_is_in_the_code" "$(astray "$file")"
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
