#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: rust-metadata.sh SOURCE HEADERS TREE RELEASE
#
# Makes TREE a prepared tree of a distribution's kernel, with the Rust metadata that its header package
# lacks: it is made again from the kernel's SOURCE and the configuration in HEADERS, by the compilers
# that are installed, which must be those that built the kernel. RUSTC and BINDGEN name two of them.
# What is wrong is said in one sentence, with what to type; AGAIN is the command that tries again.

set -eu

source=$1 headers=$2 tree=$3 release=$4
symvers=$headers/Module.symvers

die() {
	printf 'rpcrdma: %s\n' "$*" >&2
	exit 1
}

# put_back PACKAGE...: the line that brings back what Debian's packages have.
put_back() { printf 'type: apt install --reinstall %s%s' "$*" "${AGAIN:+ && $AGAIN}"; }

series=$(printf '%s\n' "$release" | cut -d . -f 1,2)
source_differs() {
	die "the source is that of $1, and cannot become $release: $(put_back "linux-source-$series")"
}
# What is seen at once comes before what takes minutes.
awk '$2 ~ /^_R/ && $3 == "vmlinux" { found = 1 } END { exit !found }' "$symvers" ||
	die "the kernel $release exports no Rust symbols, if $symvers is complete: $(put_back "linux-headers-$release")"
base=$(make -s -C "$source" kernelversion)
case $release in "$base"[!0-9.]*) ;; *) source_differs "$base" ;; esac

mkdir -p "$tree"
cp "$headers/.config" "$tree/.config"
cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$tree/.config")
# Debian's package of it.
gcc=${cc#*-linux-gnu-}
goal() {
	make -C "$source" O="$tree" LOCALVERSION="${release#"$base"}" CC="$cc" HOSTCC="$gcc" \
		RUSTC="${RUSTC:-rustc}" BINDGEN="${BINDGEN:-bindgen}" -j"${JOBS:-$(nproc)}" "$1"
}
# Kconfig drops silently what a missing program makes impossible, and structs change with it.
goal olddefconfig
lost=$(grep -E '^CONFIG_' "$headers/.config" | grep -vE '_VERSION(_TEXT)?=' | grep -vxF -f "$tree/.config" | paste -sd ' ' -)
[ -z "$lost" ] ||
	die "the configuration of $release does not come out with the programs that are installed, $lost is lost: $(put_back pahole bindgen rustc rust-src "$gcc")"
# Side by side these two race.
goal prepare
goal modules_prepare
made=$(cat "$tree/include/config/kernel.release")
[ "$made" = "$release" ] || source_differs "$made"

# A Rust symbol's name holds a hash of compiler and flags, so equal names mean metadata that fits.
strange=$(cat "$tree"/rust/exports_*_generated.h | awk '
	FNR == NR { sub(/^EXPORT_SYMBOL_RUST_GPL\(/, ""); sub(/\);.*/, ""); made[$1]; next }
	$2 ~ /^_R/ && $3 == "vmlinux" {
		all++
		if (!($2 in made)) { missing++; example = $2 }
	}
	END {
		if (!all) print "no Rust symbol is made here"
		else if (missing) print missing " of the " all " Rust symbols get other names here, such as " example
	}' - "$symvers")
[ -z "$strange" ] ||
	die "rustc, or its flags, are not those that built $release, $strange: $(put_back rustc libstd-rust-dev rust-src "linux-headers-$release")"
cp "$symvers" "$tree/Module.symvers"
