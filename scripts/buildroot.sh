#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes the build root: a Debian tree with the very compilers that built the stock kernel.

. "$(dirname "$0")/lib.sh"

packages=(
	rustc rust-src rust-clippy rustfmt cargo bindgen
	make gcc-14 g++-14 libc6-dev clang-19 lld-19 llvm-19 libclang-19-dev
	bc bison flex libelf-dev libssl-dev pahole kmod cpio python3 rsync xz-utils ca-certificates
	# The responder of selftests/peer is a user of these.
	librdmacm-dev libibverbs-dev
	# mke2fs fills the guest's root image from a tar archive, with libarchive.
	e2fsprogs libarchive13t64
)
want="$RELEASE ${packages[*]}"

stamped "$BUILDROOT.stamp" "$want" && exit 0
"$here/host-packages.sh" build
lock buildroot
stamped "$BUILDROOT.stamp" "$want" && exit 0

# As root the tree is made directly; a user needs the namespaces that mmdebstrap unshares.
mode=root
[ "$(id -u)" -eq 0 ] || mode=unshare
remove() {
	[ ! -e "$1" ] || "$here/as-root.sh" rm -rf --one-file-system "$1"
}
remove "$BUILDROOT.tmp"
remove "$BUILDROOT"
rm -f "$BUILDROOT.stamp"
trap 'rc=$?; [ $rc -eq 0 ] || remove "$BUILDROOT.tmp"' EXIT
include=$(IFS=,; printf '%s' "${packages[*]}")
logged buildroot "check the network and the mirror in this machine's apt sources, then start again" \
	mmdebstrap --mode="$mode" --variant=minbase --include="$include" \
	"$RELEASE" "$BUILDROOT.tmp" "$(mirror)"
mv "$BUILDROOT.tmp" "$BUILDROOT"
stamp "$BUILDROOT.stamp" "$want"
