#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check-tree.sh KDIR RUSTC BINDGEN [headers]
#
# Says in one sentence why a Rust module cannot be built against a kernel tree, before kbuild
# says it in many. With "headers", the tree is a distribution's header package, and what is looked
# for beside the compilers is the library's source, of which rust-metadata.sh makes the metadata.

kdir=$1 rustc=$2 bindgen=$3 headers=${4:-}

die() {
	printf 'rpcrdma: %s\n' "$*" >&2
	exit 1
}

# setting NAME: the value of a string of the configuration.
setting() {
	sed -n "s/^CONFIG_$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$conf"
}

conf=$kdir/include/config/auto.conf
[ -f "$conf" ] || die "$kdir is not a prepared kernel tree: run 'make modules_prepare' there, or set KDIR to one."
grep -qx 'CONFIG_RUST=y' "$conf" || die "the kernel in $kdir is configured without CONFIG_RUST, so no Rust module fits it."
if [ -z "$headers" ]; then
	for file in libkernel.rmeta libcore.rmeta libpin_init.rmeta libmacros.so; do
		[ -f "$kdir/rust/$file" ] ||
			die "$kdir has no Rust metadata (rust/$file is missing), as is usual for a distribution's header package: scripts/kernel.sh stock makes a tree that has it."
	done
fi
have=$("$rustc" --version 2>/dev/null) || die "there is no rustc named $rustc: set RUSTC."
want=$(setting RUSTC_VERSION_TEXT)
[ "$have" = "$want" ] || die "$rustc is '$have', but $kdir was built by '$want', and Rust metadata fits one compiler only: install that one, or set RUSTC to it."
command -v "$bindgen" >/dev/null || die "there is no bindgen named $bindgen: install bindgen 0.71.1 or later, or set BINDGEN."
header=$(mktemp --suffix=.h) || exit 1
"$bindgen" "$header" >/dev/null 2>&1
status=$?
rm -f "$header"
[ $status -eq 0 ] || die "$bindgen finds no libclang: install libclang-dev, or set LIBCLANG_PATH to its folder."
[ -n "$headers" ] || exit 0
library=$("$rustc" --print sysroot)/lib/rustlib/src/rust/library
[ -f "$library/core/src/lib.rs" ] || die "the source of Rust's library is not in $library: install rust-src."
cc=$(setting CC_VERSION_TEXT)
command -v "${cc%% *}" >/dev/null || die "there is no ${cc%% *}, which built $kdir: install it."
