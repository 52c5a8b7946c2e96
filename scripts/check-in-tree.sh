#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check-in-tree.sh
#
# Lays the module out on a copy of the kernel source by in-tree.sh, builds each patch in a copy of the
# custom kernel's objects, and has the tree's own tools look at the whole. Prints KTAP. KERNEL_SERIES chooses
# the kernel.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

work=$KERNELS/in-tree
folder=net/sunrpc/xprtrdma_rust

# Make with the copies at the places of the originals, whose paths the objects have: nothing is built
# anew that is not touched.
kbuild() {
	# shellcheck disable=SC2016
	BIND=$KERNELS/src:$KERNELS/custom "$here/as-root.sh" sh -ec '
		mount --bind "$1/src" "$2/src"
		mount --bind "$1/obj" "$2/custom"
		here=$3
		shift 3
		exec "$here/in-buildroot.sh" "$@"' sh "$work" "$KERNELS" "$here" \
		make -C "$KERNELS/src" O="$KERNELS/custom" ARCH=x86 LLVM=-19 KCFLAGS= CFLAGS_MODULE= -j"$JOBS" "$@"
}

# in-tree.sh calls this after each patch.
if [ "${1:-}" = build ]; then
	log=$work/logs/${2//\//-}
	config=$work/obj/.config
	changed=
	for option in SUNRPC_XPRT_RDMA_RUST SUNRPC_XPRT_RDMA_RUST_KUNIT_TEST; do
		if grep -qx "config $option" "$work/src/$folder/Kconfig" && ! grep -qx "CONFIG_$option=y" "$config"; then
			printf 'CONFIG_%s=y\n' "$option" >>"$config"
			changed=olddefconfig
		fi
	done
	: >"$log"
	for goal in $changed "$folder/"; do
		kbuild "$goal" >>"$log" 2>&1 || {
			tail -n 15 "$log" >&2
			die "patch $2 does not build (log: $log)"
		}
	done
	exit
fi

. "$here/ktap.sh"
"$here/buildroot.sh" tools
"$here/buildroot.sh" docs
"$here/kernel.sh" custom >/dev/null
rm -rf "$work"
mkdir -p "$work/logs"
copy() {
	cp -a --reflink=auto "$KERNELS/src" "$work/src"
	cp -a --reflink=auto "$KERNELS/custom" "$work/obj"
}
logged in-tree-copy "see the log" copy

# The patches are nobody's here.
export GIT_AUTHOR_NAME='The rpcrdma developers' GIT_AUTHOR_EMAIL=rpcrdma@example.org
export GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL
start=$SECONDS
result patches_build "$({ "$here/in-tree.sh" "$work/src" "$here/check-in-tree.sh" build 2>&1 >/dev/null || echo failed; } |
	grep -v ' patches in ' || true)"
[ "$failed" -eq 0 ] || exit 1
say "[in-tree] built in $((SECONDS - start))s"
for log in "$work"/logs/*; do
	result "$(basename "$log")_has_no_warning" "$(grep -A5 -i 'warning' "$log" || true)"
done

cd "$work/src"
# The lists of patches, each with its size.
server=$(find "$work/patches/server" -name '*.patch' ! -name '0000-*' | wc -l)
list() { git log --reverse --format='#   %s:' --shortstat "$1" | awk 'NF' | paste -d '' - -; }
printf '# client series:\n%s\n# server series:\n%s\n' \
	"$(list "$(git log --format=%h --diff-filter=A -- "$folder/Kconfig")^..HEAD~$server")" "$(list "HEAD~$server..HEAD")"
for patch in "$work"/patches/*/*.patch; do
	[[ $patch != */0000-* ]] || continue
	result "checkpatch_$(basename "$(dirname "$patch")")_$(basename "$patch" | cut -c1-4)" \
		"$("$here/in-buildroot.sh" perl scripts/checkpatch.pl --strict --terse --show-types "$patch" 2>&1 || echo "status $?")"
done

# Lines of a build about the module's own files.
complaints() { grep -A5 -E "$folder.*(warning|error)|^(warning|error)|No such file" "$1" || true; }

result sparse "$(kbuild C=2 CHECK=sparse "$folder/" >"$work/logs/sparse" 2>&1 || echo failed; complaints "$work/logs/sparse")"
mapfile -t c < <(find "$folder" -name '*.[ch]')
result clippy "$(kbuild CLIPPY=1 "$folder/" >"$work/logs/clippy" 2>&1 || echo failed; complaints "$work/logs/clippy")"
result kernel-doc "$("$here/in-buildroot.sh" scripts/kernel-doc -none -Wall "${c[@]}" 2>&1 || echo failed)"
result rustfmt "$(find "$folder" -name '*.rs' -print0 | xargs -0 "$here/in-buildroot.sh" rustfmt --edition 2021 --check --config-path .rustfmt.toml 2>&1 || true)"
# It asks git which files there are.
result maintainers "$(perl scripts/get_maintainer.pl --self-test=patterns 2>&1 | grep xprtrdma || true)"

# The whole folder above: the C transport is not built beside, and the module links.
result one_of_the_two "$(kbuild net/sunrpc/ >"$work/logs/sunrpc" 2>&1 || echo failed
	grep rpcrdma "$work/obj/net/sunrpc/modules.order" | grep -vx "$folder/rpcrdma.o" || true)"
# What the module needs of others, each with who exports it, if anybody does.
needed=$("$here/in-buildroot.sh" llvm-nm-19 --undefined-only --just-symbol-name "$work/obj/$folder/rpcrdma.o" |
	awk 'FNR == NR { exporter[$2] = $3; next } { print $1, exporter[$1] }' "$KERNELS/custom/Module.symvers" -)
result finds_all_symbols "$(awk 'NF < 2 && $1 != "__this_module"' <<<"$needed")"

# Why the abstractions are not part of the kernel crate, which is in vmlinux.
modules=$(awk 'NF > 1 && $2 != "vmlinux" { print $2 }' <<<"$needed" | sort | uniq -c)
printf '%s\n' "$modules" | sed 's/^ */# functions of modules that this one calls: /'
result abstractions_need_modules "$([ -n "$modules" ] || echo 'they could be in rust/kernel')"
# The documents of the folder that this one's are in; those that link to others warn there.
result htmldocs "$("$here/in-buildroot.sh" make -C "$work/src" O="$work/docs" htmldocs SPHINXDIRS=filesystems/nfs \
	>"$work/logs/htmldocs" 2>&1 || echo failed; grep -E 'xprtrdma-rust|Error' "$work/logs/htmldocs" || true
	[ -s "$work/docs/Documentation/output/filesystems/nfs/xprtrdma-rust/index.html" ] || echo 'no page was made')"

# The tree's own tool builds a kernel for User-Mode Linux with what .kunitconfig says, and boots it.
kunit() {
	"$here/in-buildroot.sh" "$work/src/tools/testing/kunit/kunit.py" "$1" --build_dir="$work/kunit" "${@:2}" \
		>"$work/logs/kunit-$1" 2>&1 && return
	tail -n 20 "$work/logs/kunit-$1"
	return 1
}
cd "$work/src"
say "[in-tree] builds a kernel with kunit.py, in $work/logs/kunit-build"
result kunit "$({ kunit config --kunitconfig="$folder" --make_options=LLVM=-19 &&
	kunit build --kunitconfig="$folder" --make_options=LLVM=-19 --jobs="$JOBS" && kunit exec; } ||
	echo failed)"
say "[in-tree] $(grep -o 'Testing complete.*' "$work/logs/kunit-exec" || true)"

# The module as such, through modpost, which does not see what other modules export and warns of it.
result module "$(kbuild KBUILD_MODPOST_WARN=1 "$folder/rpcrdma.ko" >"$work/logs/module" 2>&1 || tail -n 5 "$work/logs/module"
	"$here/in-buildroot.sh" modinfo -F alias "$work/obj/$folder/rpcrdma.ko" 2>&1 | grep -qx svcrdma || echo 'there is no module')"
# And without the option, when the one in C is back.
option_off() {
	sed -i 's/^CONFIG_SUNRPC_XPRT_RDMA_RUST=y$/# CONFIG_SUNRPC_XPRT_RDMA_RUST is not set/' "$work/obj/.config"
	kbuild olddefconfig && kbuild net/sunrpc/
}
cp "$work/obj/.config" "$work/config"
result option_off "$(option_off >"$work/logs/off" 2>&1 || tail -n 5 "$work/logs/off"
	grep rpcrdma "$work/obj/net/sunrpc/modules.order" | grep -vx net/sunrpc/xprtrdma/rpcrdma.o || true)"
cp "$work/config" "$work/obj/.config"
kbuild olddefconfig >"$work/logs/on" 2>&1

# Another CPU, of whose kernel nothing else is built but what that takes. No objects are at hand for it.
arm64() {
	local make=("$here/in-buildroot.sh" make -C "$work/src" O="$work/arm64" ARCH=arm64 LLVM=-19 -j"$JOBS") file
	mkdir "$work/arm64"
	for file in "$PROJECT/.config.fragment" "$here"/kernel/{arm64,arm64-4k,"$SERIES"}.config; do
		[ ! -f "$file" ] || cat "$file"
	done >"$work/arm64/fragment"
	printf 'CONFIG_SUNRPC_XPRT_RDMA_RUST%s=y\n' '' _KUNIT_TEST >>"$work/arm64/fragment"
	"${make[@]}" allnoconfig KCONFIG_ALLCONFIG="$work/arm64/fragment" && "${make[@]}" "$folder/"
}
start=$SECONDS
say "[in-tree] builds for arm64, in $work/logs/arm64"
result arm64 "$(arm64 >"$work/logs/arm64" 2>&1 || tail -n 5 "$work/logs/arm64"
	complaints "$work/logs/arm64"
	grep -qx 'CONFIG_SUNRPC_XPRT_RDMA_RUST_KUNIT_TEST=y' "$work/arm64/.config" || echo 'the option got lost'
	[ -f "$work/arm64/$folder/rpcrdma.o" ] || echo 'it is not there')"
say "[in-tree] built for arm64 in $((SECONDS - start))s"

# Last, because other flags have much of the tree built anew.
result W=1 "$(kbuild W=1 "$folder/" >"$work/logs/W1" 2>&1 || echo failed; complaints "$work/logs/W1")"
printf '1..%d\n' "$number"
[ "$failed" -eq 0 ]
# The patches and the logs stay, the copies have gigabytes.
rm -rf "$work"/{src,obj,docs,kunit,arm64}
