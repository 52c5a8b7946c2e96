#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: rust-metadata.sh SOURCE HEADERS TREE RELEASE
#
# Makes TREE a prepared tree of a distribution's kernel, with the Rust metadata that its header package
# lacks: it is made again from the kernel's SOURCE and the configuration in HEADERS, by the compilers
# that are installed, which must be those that built the kernel. RUSTC and BINDGEN name two of them.

set -eu

source=$1 headers=$2 tree=$3 release=$4
symvers=$headers/Module.symvers

die() {
	printf 'rpcrdma: %s\n' "$*" >&2
	exit 1
}

mkdir -p "$tree"
cp "$headers/.config" "$tree/.config"
cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$tree/.config")
base=$(make -s -C "$source" kernelversion)
goal() {
	make -C "$source" O="$tree" LOCALVERSION="${release#"$base"}" CC="$cc" HOSTCC="${cc#*-linux-gnu-}" \
		RUSTC="${RUSTC:-rustc}" BINDGEN="${BINDGEN:-bindgen}" -j"${JOBS:-$(nproc)}" "$1"
}
# Kconfig drops silently what a missing program makes impossible, and structs change with it.
goal olddefconfig
lost=$(grep -E '^CONFIG_' "$headers/.config" | grep -vE '_VERSION(_TEXT)?=' | grep -vxF -f "$tree/.config" | paste -sd ' ' -)
[ -z "$lost" ] || die "the configuration of $release does not come out with the programs that are installed: $lost is lost."
# Side by side these two race.
goal prepare
goal modules_prepare
[ "$(cat "$tree/include/config/kernel.release")" = "$release" ] ||
	die "the source is that of $base, and cannot become $release."

# A Rust symbol's name holds a hash of compiler and flags, so equal names mean metadata that fits.
cat "$tree"/rust/exports_*_generated.h | awk '
	FNR == NR { sub(/^EXPORT_SYMBOL_RUST_GPL\(/, ""); sub(/\);.*/, ""); made[$1]; next }
	$2 ~ /^_R/ && $3 == "vmlinux" {
		all++
		if (!($2 in made)) { missing++; example = $2 }
	}
	END {
		if (!all) print "rpcrdma: the kernel '"$release"' exports no Rust symbols."
		else if (missing) print "rpcrdma: " missing " of the " all " Rust symbols of '"$release"' get other names here (such as " example "): rustc, or its flags, are not those that built it."
		exit !all || missing
	}' - "$symvers" >&2
cp "$symvers" "$tree/Module.symvers"
