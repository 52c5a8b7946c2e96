#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: pack-modules.sh FROM ROOT MODULE...
#
# Copies the named modules and all that they depend on from the module tree FROM to
# ROOT/lab/modules/RELEASE, uncompressed, with an index of their own. Runs in the build root.

set -euo pipefail

from=$(realpath "$1") root=$2
shift 2
release=$(basename "$from")
if [ ! -d "$from/kernel" ]; then
	printf '%s is no module tree\n' "$from" >&2
	exit 1
fi
base=$(mktemp -d)
trap 'rm -rf "$base"' EXIT
# An installed tree is named after its release; a built one gets its name from its own files.
if [ -f "$from/../include/config/kernel.release" ]; then
	release=$(cat "$from/../include/config/kernel.release")
fi
mkdir -p "$base/lib/modules"
cp -rs "$from" "$base/lib/modules/$release"
depmod -b "$base" "$release"
to=$root/lab/modules/$release
mkdir -p "$to"
cp "$from"/modules.{builtin,builtin.modinfo,order} "$to/"
for module; do
	# A module that this kernel has built in, or not at all, has nothing to copy.
	modprobe -d "$base" -S "$release" --show-depends "$module" 2>/dev/null || true
done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u | while read -r file; do
	name=$(basename "$file")
	case $name in
	*.xz) xz -dc "$file" >"$to/${name%.xz}" ;;
	*.zst) zstd -dqc "$file" >"$to/${name%.zst}" ;;
	*) cp -L "$file" "$to/$name" ;;
	esac
done
mkdir -p "$root/lib"
ln -sfn ../lab/modules "$root/lib/modules"
depmod -b "$root" "$release"
