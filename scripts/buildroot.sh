#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: buildroot.sh [tools|packaging|arm64|docs|shell]
#
# Makes the build root: a Debian tree with the very compilers that built the stock kernel. With
# "tools" it also has what only some of the checks run there, with "packaging" what make deb does, with
# "arm64" what makes programs for that CPU, with "docs" what makes the kernel's documentation, with "shell" what
# reads shell scripts.
# ROOT=testing makes another one, with the newest compilers that Debian has, and herd7.

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
# These are added to a tree that is there, so that a change of them makes nothing be built anew.
tools=(sparse python3-ply python3-git tshark jq)
packaging=(build-essential debhelper dh-dkms lintian)
arm64=(gcc-aarch64-linux-gnu libc6-dev:arm64 libstd-rust-dev:arm64 librdmacm-dev:arm64 libibverbs-dev:arm64)
docs=(python3-sphinx python3-yaml)
shell=(shellcheck)
release=$RELEASE options=()
case ${ROOT:-} in
'') ;;
testing)
	release=$TESTING
	packages=(
		rustc rust-src rust-clippy bindgen make gcc g++ libc6-dev clang lld llvm libclang-dev
		bc bison flex libelf-dev libssl-dev pahole kmod cpio python3 rsync xz-utils ca-certificates
		herdtools7
	)
	# A mirror may be older than testing's lists are good for.
	options=(--aptopt='Acquire::Check-Valid-Until "false"')
	;;
*) die "ROOT is empty or testing, not $ROOT" ;;
esac
want="$release ${packages[*]}"
advice="check the network and the mirror in this machine's apt sources, then start again"

# add GROUP: one of the lists above, by its name.
add() {
	local -n group=$1
	stamped "$BUILDROOT.$1" "${group[*]}" && return
	# The user that apt would drop its rights to may not exist in a user namespace.
	logged "buildroot-$1" "$advice" "$here/in-buildroot.sh" env DEBIAN_FRONTEND=noninteractive \
		sh -c "set -- -o APT::Sandbox::User=root
			[ $1 != arm64 ] || dpkg --add-architecture arm64
			apt-get \$@ update && apt-get \$@ install --yes --no-install-recommends ${group[*]}"
	stamp "$BUILDROOT.$1" "${group[*]}"
}

case ${1:-} in
tools | packaging | arm64 | docs | shell)
	"$0"
	lock buildroot
	add "$1"
	exit
	;;
esac
stamped "$BUILDROOT.stamp" "$want" && exit 0
"$here/host-packages.sh" build
lock "$(basename "$BUILDROOT")"
stamped "$BUILDROOT.stamp" "$want" && exit 0

site=$(mirror)
include=$(IFS=,; printf '%s' "${packages[*]}")
# As root the tree is made directly; a user needs the namespaces that mmdebstrap unshares. From those
# nothing leads into a home folder that is closed to others, so that the tree comes as an archive. A
# user can make no device files, and in-buildroot.sh brings them along.
tree() {
	local common=(--variant=minbase --include="$include" "${options[@]}" "$release")
	if [ "$(id -u)" -eq 0 ]; then
		mmdebstrap --mode=root "${common[@]}" "$BUILDROOT.tmp" "$site"
		return
	fi
	mkdir "$BUILDROOT.tmp"
	mmdebstrap --mode=unshare --format=tar "${common[@]}" - "$site" |
		"$here/as-root.sh" tar --extract --preserve-permissions --numeric-owner \
			--exclude='./dev/*' --directory="$BUILDROOT.tmp"
}
remove() {
	[ ! -e "$1" ] || "$here/as-root.sh" rm -rf --one-file-system "$1"
}
remove "$BUILDROOT.tmp"
remove "$BUILDROOT"
rm -f "$BUILDROOT.stamp" "$BUILDROOT".{tools,packaging,arm64,docs,shell}
trap 'rc=$?; [ $rc -eq 0 ] || remove "$BUILDROOT.tmp"' EXIT
logged "$(basename "$BUILDROOT")" "$advice" tree
mv "$BUILDROOT.tmp" "$BUILDROOT"
stamp "$BUILDROOT.stamp" "$want"
