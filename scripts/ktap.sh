# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Results for checks that print KTAP without a kernel source, which has helpers for it.

number=0 failed=0

# result NAME COMPLAINTS: one result, good if there are no complaints; "failed" is 1 after a bad one.
result() {
	number=$((number + 1))
	if [ -z "$2" ]; then
		printf 'ok %d %s\n' $number "$1"
	else
		printf 'not ok %d %s\n' $number "$1"
		printf '%s\n' "$2" | sed 's/^/#   /'
		failed=1
	fi
}
