#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check-kernels.sh
#
# Builds the module from one source for each tested series of kernels with each compiler that there is
# for it, and for the kernel of Debian testing, and carries files over a mount where there is a kernel to boot. Prints KTAP, and as a comment
# the rows of the table in Documentation/testing.rst.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"
. "$here/ktap.sh"

rows=() rustc=() format='%-8s %-12s %-14s %-8s %-6s %s'
# What a setting of a built tree's configuration says: setting TREE NAME
setting() { sed -n "s/^CONFIG_$2=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$1/include/config/auto.conf"; }

# The module for one kernel, and what is wrong with it: build SERIES KERNEL ROOT ARGUMENT...
build() {
	local log=$CACHE/logs/kernels-$1-$2.log
	KERNEL_SERIES=$1 ROOT=$3 VARIANT=$2-kernels "$here/module.sh" "$2" "${@:4}" >"$log" 2>&1 || {
		tail -n 5 "$log"
		return
	}
	grep -A5 '^warning\|: warning:' "$log" || true
}

# row SERIES KERNEL BUILT RUN
row() {
	local tree=$CACHE/$1/$2 name=$2 cc version
	[ "$1" != testing ] || name=testing
	cc=$(setting "$tree" CC_VERSION_TEXT |
		sed -E 's/^[^ ]*gcc[^(]*\([^)]*\) ([0-9.]+).*/gcc \1/; s/.*clang version ([0-9.]+).*/clang \1/')
	version=$(setting "$tree" RUSTC_VERSION_TEXT | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
	rustc+=("${version%.*}")
	rows+=("$(printf "$format" "$(grep -oE '^[0-9.]+' "$tree/include/config/kernel.release")" "$name" "$cc" "$version" "$3" "$4")")
}

yes_or_no() { [ -z "$1" ] && echo yes || echo no; }

for series in "${TESTED[@]}" testing; do
	for kernel in stock custom newest-gcc newest-clang; do
		[ "$series" != testing ] || [ $kernel = stock ] || continue
		case $kernel in
		newest-*)
			# Only prepared, so that the kernel's symbols have no list.
			bad=$(build "$series" "$kernel" testing KBUILD_MODPOST_WARN=1)
			run=-
			;;
		*)
			bad=$(build "$series" "$kernel" '')
			log=$CACHE/logs/kernels-$series-$kernel-run.log
			wrong=
			[ -z "$bad" ] || wrong='it was not built, or with a warning'
			[ -n "$bad" ] || KERNEL_SERIES=$series KERNEL=$kernel "$here/run.sh" >"$log" 2>&1 || wrong=$(tail -n 20 "$log")
			result "${series}_${kernel}_carries_files" "$wrong"
			run=$(yes_or_no "$bad$wrong")
			;;
		esac
		result "${series}_${kernel}_builds_without_a_warning" "$bad"
		row "$series" "$kernel" "$(yes_or_no "$bad")" "$run"
	done
done
printf "# $format\n" kernel tree compiler rustc built run
printf '# %s\n' "${rows[@]}"

# The Makefile says which versions were tried first and last.
said() { sed -n "s/^TRIED_$1 = //p" "$PROJECT/Makefile"; }
# ends WORD...: the first and the last of the versions.
ends() { printf '%s\n' "$@" | sort -V | sed -n '1p;$p' | paste -sd ' '; }
result makefile_names_kernels "$([ "$(ends "${TESTED[@]}")" = "$(said LINUX)" ] || ends "${TESTED[@]}")"
result makefile_names_rustc "$([ "$(ends "${rustc[@]}")" = "$(said RUSTC)" ] || ends "${rustc[@]}")"
printf '1..%d\n' "$number"
[ "$failed" -eq 0 ]
