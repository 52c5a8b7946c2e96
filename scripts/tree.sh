#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: tree.sh small|large
#
# Packs a real source tree, of a few hundred files or some thousands, as tree.tar, with the checksum
# of each file in tree.sha256, and prints the folder that has both.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

dirs=(fs/nfs fs/nfsd fs/lockd fs/btrfs net/sunrpc)
files=$KERNELS/tree
case ${1:-} in
small) ;;
large)
	dirs+=(include/linux)
	files+=-large
	;;
*) die "usage: tree.sh small|large" ;;
esac
[ -f "$KERNELS/src.stamp" ] || "$here/kernel-source.sh"
want=$(cat "$KERNELS/src.stamp")
if ! stamped "$files.stamp" "$want"; then
	lock tree
	if ! stamped "$files.stamp" "$want"; then
		rm -rf "$files"
		mkdir -p "$files"
		tar -C "$KERNELS/src" -cf "$files/tree.tar" "${dirs[@]}"
		(cd "$KERNELS/src" && find "${dirs[@]}" -type f -print0 | sort -z | xargs -0 sha256sum) >"$files/tree.sha256"
		stamp "$files.stamp" "$want"
	fi
fi
printf '%s\n' "$files"
