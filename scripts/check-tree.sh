#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check-tree.sh KDIR RUSTC BINDGEN [KERNEL]
#
# Says in one sentence why a Rust module cannot be built against a kernel tree, before kbuild
# says it in many, and what to do. With KERNEL, the tree is the header package of that release of a
# distribution's, and what is looked for beside the compilers is the library's source, of which
# rust-metadata.sh makes the metadata.

kdir=$1 rustc=$2 bindgen=$3 release=${4:-}

die() {
	printf 'rpcrdma: %s\n' "$*" >&2
	exit 1
}

# setting NAME: the value of a string of the configuration.
setting() {
	sed -n "s/^CONFIG_$1=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$conf"
}

# advice OTHERWISE [=VERSION | --reinstall] PACKAGE...: what to do. With a distribution's headers that is to
# install Debian's packages, of the version that begins so if apt knows one, and to have dkms try again.
advice() {
	otherwise=$1 version='' line='apt install'
	shift
	[ -n "$release" ] || {
		printf '%s.' "$otherwise"
		return
	}
	case $1 in
	=*)
		version=$(apt-cache madison "$2" 2>/dev/null |
			awk -F ' *[|] *' -v want="${1#=}" '$2 ~ "^" want "[^0-9.]" { print "=" $2; exit }')
		line="$line --allow-downgrades"
		[ -n "$version" ] || {
			printf 'install these packages in version %s: ' "${1#=}"
			line='apt install'
		}
		shift
		;;
	--*)
		line="$line $1"
		shift
		;;
	esac
	for package; do
		line="$line $package$version"
	done
	printf 'type: %s && dkms autoinstall -k %s' "$line" "$release"
}

conf=$kdir/include/config/auto.conf
[ -f "$conf" ] || die "$kdir is not a prepared kernel tree: $(advice "run 'make modules_prepare' there, or set KDIR to one" --reinstall "linux-headers-$release")"
grep -qx 'CONFIG_RUST=y' "$conf" || die "the kernel in $kdir is configured without CONFIG_RUST, so no Rust module fits it: set KDIR to the tree of one that has it, or set CONFIG_RUST=y there and build that kernel anew."
for option in SUNRPC INFINIBAND_ADDR_TRANS; do
	grep -q "^CONFIG_$option=[ym]\$" "$conf" || die "the kernel in $kdir is configured without CONFIG_$option, which this transport needs: set KDIR to the tree of one that has it, or set it there and build that kernel anew."
done
! grep -qx 'CONFIG_SUNRPC_XPRT_RDMA=y' "$conf" || die "the kernel in $kdir has the C module built in, beside which no other one can be loaded: set CONFIG_SUNRPC_XPRT_RDMA=m there and build that kernel anew."
if [ -z "$release" ]; then
	for file in libkernel.rmeta libcore.rmeta libpin_init.rmeta libmacros.so; do
		[ -f "$kdir/rust/$file" ] ||
			die "$kdir has no Rust metadata (rust/$file is missing), as is usual for a distribution's header package: scripts/kernel.sh stock makes a tree that has it."
	done
fi

# minimum TOOL OTHERWISE: the oldest version of a tool that the tree takes, which only whole trees say.
minimum() {
	for dir in "$kdir" "$kdir/source"; do
		[ ! -f "$dir/scripts/min-tool-version.sh" ] || {
			sh "$dir/scripts/min-tool-version.sh" "$1"
			return
		}
	done
	echo "$2"
}

want=$(setting RUSTC_VERSION_TEXT)
number=$(printf '%s\n' "$want" | cut -d ' ' -f 2)
have=$("$rustc" --version 2>/dev/null) ||
	die "there is no rustc named $rustc: $(advice 'set RUSTC' "=$number" rustc libstd-rust-dev rust-src)"
[ "$have" = "$want" ] ||
	die "$rustc is '$have', but $kdir was built by '$want', and Rust metadata fits one compiler only: $(advice 'install that one, or set RUSTC to it' "=$number" rustc libstd-rust-dev rust-src)"
least=$(minimum bindgen 0.71.1)
command -v "$bindgen" >/dev/null ||
	die "there is no bindgen named $bindgen: $(advice "install bindgen $least or later, or set BINDGEN" bindgen)"
have=$("$bindgen" --version 2>/dev/null | sed -n '1s/^bindgen \([0-9.]*\).*/\1/p')
[ "$(printf '%s\n' "$least" "${have:-0}" | sort -V | head -n 1)" = "$least" ] ||
	die "$bindgen is ${have:-of no version that it tells}, but $kdir takes $least or later: $(advice 'install that, or set BINDGEN to it' bindgen)"
header=$(mktemp --suffix=.h) || exit 1
"$bindgen" "$header" >/dev/null 2>&1
status=$?
rm -f "$header"
[ $status -eq 0 ] ||
	die "$bindgen finds no libclang: $(advice 'install libclang-dev, or set LIBCLANG_PATH to its folder' libclang-dev)"
[ -n "$release" ] || exit 0
library=$("$rustc" --print sysroot)/lib/rustlib/src/rust/library
[ -f "$library/core/src/lib.rs" ] ||
	die "the source of Rust's library is not in $library: $(advice '' "=$number" rust-src)"
# The library's source is that of the compiler. Debian's packages do not say so.
packages=$(dpkg-query --show --showformat='${Version}\n' rustc rust-src 2>/dev/null | sort -u | wc -l)
[ "$packages" -le 1 ] ||
	die "rust-src is of another version than rustc: $(advice '' "=$number" rustc libstd-rust-dev rust-src)"
cc=$(setting CC_VERSION_TEXT)
cc=${cc%% *}
command -v "$cc" >/dev/null || die "there is no $cc, which built $kdir: $(advice '' "$(printf '%s\n' "$cc" | sed 's/.*-linux-gnu-//')")"
