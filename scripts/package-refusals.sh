# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the package says where the module cannot be built or loaded, for scripts/check-package.sh: the machine of
# scripts/package-machine.sh has the oldest of the tested kernels, and the module for it. That is what it has again
# in the end. Each function prints its results.

state=$machine/var/lib/dkms/rpcrdma-rust
# What a build has left that takes room.
build_left() { ls -d "$state/$version/build"/{linux,tree} 2>/dev/null || true; }
# dkms forgets the module when it fails to build it again, and is made to remember it.
keep_state() { "$here/as-root.sh" cp -a "$state" "$state.away"; }
restore_state() { "$here/as-root.sh" sh -ec 'rm -rf "$1"; mv "$1.away" "$1"' sh "$state"; }

# What is wrong when the module of the oldest kernel is to be built again and cannot be: lacks NAME PATTERN
# INSTEAD FILE... The files are away meanwhile, and the command INSTEAD may put others in their place.
lacks() {
	local name=$1 pattern=$2 log=$CACHE/logs/package-$1.log before status=0
	shift 2
	say "[package] $name, log in $log"
	before=$(ours_of "$old")
	inside "$machine" offline sh -c '
		kernel=$1 version=$2 instead=$3 status=0
		shift 3
		# Some programs take a library whatever its name ends with.
		away() { printf "%s/away.%s\n" "${1%/*}" "${1##*/}"; }
		for file; do mv "$file" "$(away "$file")" || exit; done
		eval "$instead"
		dkms build --force "rpcrdma-rust/$version" -k "$kernel" || status=$?
		for file; do
			rm -f "$file"
			mv "$(away "$file")" "$file" || exit
		done
		[ -z "$(dpkg --audit)" ] || exit
		exit $status' sh "$old" "$version" "$@" >"$log" 2>&1 || status=$?
	[ $status -eq 77 ] || printf 'status %s, log: %s\n' $status "$log"
	says "the rpcrdma module that was built before: $pattern" "$(said "$name" "$old")"
	[ "$before" = "$(ours_of "$old")" ] || echo "its module is another one"
	build_left
}
# One result of that: missing NAME PATTERN INSTEAD FILE...
missing() { result "without_$1" "$(lacks "no-$@")"; }
# A script that says that it is something else: program TEXT
program() { printf 'printf "%%s\\n" "#!/bin/sh" "echo %s" >"$1"; chmod 755 "$1"' "$1"; }
# What dpkg knows, with another version of a package: other PACKAGE
other() { printf 'sed "/^Package: %s\$/,/^\$/s/^Version: .*/Version: 0/" "$(away "$1")" >"$1"' "$1"; }
# A source that makes next to nothing, and says that it is this version: source_of VERSION
source_of() {
	cat <<-EOF
		mkdir -p /tmp/source/linux-source-$series
		cat >/tmp/source/linux-source-$series/Makefile <<-"END"
			.RECIPEPREFIX = >
			kernelversion:
			>@echo $1
			prepare:
			>mkdir -p \$(O)/include/config \$(O)/rust
			>echo $old >\$(O)/include/config/kernel.release
			>echo "EXPORT_SYMBOL_RUST_GPL(_Rstrange);" >\$(O)/rust/exports_core_generated.h
			olddefconfig modules_prepare:
		END
		tar -C /tmp/source -cJf "\$1" linux-source-$series
	EOF
}

# What is wrong when dkms tries a kernel of somebody's own, and the hooks of its installation, after a change:
# tries_own NAME STATUS PATTERN CHANGE
tries_own() {
	local name=$1 want=$2 pattern=$3 log=$CACHE/logs/package-$1.log status=0
	say "[package] $name, log in $log"
	inside "$machine" offline sh -ec '
		own=$1 version=$2 headers=/usr/src/linux-headers-$1 status=0
		eval "$3"
		list() {
			find "/usr/lib/modules/$own" /var/lib/dkms /var/lib/rpcrdma-rust-dkms/log -path "*/build" -prune -o -print \
				2>/dev/null | sort
		}
		list >/tmp/before
		dkms build "rpcrdma-rust/$version" -k "$own" || status=$?
		for hook in dkms rpcrdma-rust-dkms; do /etc/kernel/postinst.d/$hook "$own"; done
		list | diff /tmp/before -
		exit $status' sh "$own" "$version" "$4" >"$log" 2>&1 || status=$?
	[ $status -eq "$want" ] || printf 'status %s, log: %s\n' $status "$log"
	says "its own rpcrdma module: $pattern" "$(said "$name" "$own")"
	build_left
}

# What say-secure-boot or another PROGRAM says where the value of the firmware's variable and the kernel's lockdown
# are such, after a command: secure_boot BYTE LOCKDOWN [COMMAND [PROGRAM]]
secure_boot() {
	inside "$machine" offline sh -ec '
		cd /tmp
		mkdir efivars bin
		printf "\006\000\000\000\00$1" >efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
		printf "%s\n" "$2" >lockdown
		eval "$3"
		EFIVARS=/tmp/efivars LOCKDOWN=/tmp/lockdown PATH=/tmp/bin:$PATH $4' \
		sh "$1" "$2" "${3:-}" "${4:-/usr/lib/rpcrdma-rust-dkms/say-secure-boot}" 2>&1
}
# One that says of each key that it is enrolled, or not: mokutil already|not
mokutil() { printf 'printf "%%s\\n" "#!/bin/sh" "echo \\$2 is %s enrolled" >bin/mokutil; chmod 755 bin/mokutil' "$1"; }

# Another package that has the module, and one that has the modules that ours needs.
check_others() {
	result conflicts_with_another_package "$(tells 'rpcrdma-rust-dkms conflicts with vastnfs-dkms' "$(inside "$machine" offline sh -ec '
		mkdir -p /tmp/other/DEBIAN
		printf "%s\n" "Package: vastnfs-dkms" "Version: 1" "Architecture: all" "Maintainer: none <none@example.org>" \
			"Description: another owner of rpcrdma.ko" >/tmp/other/DEBIAN/control
		dpkg-deb --build /tmp/other /tmp/other.deb
		! dpkg --install /tmp/other.deb' 2>&1 || echo 'it is installed')")"
	keep_state
	result another_ib_core_tells "$(works foreign sh -ec '
		modules=/lib/modules/$1 other=$modules/updates/ofed/ib_core.ko.xz status=0
		mkdir "${other%/*}"
		cp "$modules/kernel/drivers/infiniband/core/ib_core.ko.xz" "$other"
		depmod "$1"
		dkms build --force "rpcrdma-rust/$2" -k "$1" || status=$?
		rpcrdma-rust-ctl status
		rm -r "${other%/*}"
		depmod "$1"
		[ $status -eq 77 ]' sh "$old" "$version"
		says "the rpcrdma module that was built before: */updates/ofed/ib_core.ko.xz is not the kernel's own ib_core, *" \
			"$(said foreign "$old")"
		tells "it cannot be loaded: /lib/modules/$old/updates/ofed/ib_core.ko.xz is not" "$(<"$CACHE/logs/package-foreign.log")")"
	restore_state
}

# What is to be typed when something else was mended.
again='type: * && dkms autoinstall -k '

# What is said of a kernel that was built without Rust, or whose headers do not do.
check_own_kernel() {
	local own=$old-own
	result own_kernel_without_headers "$(tries_own no-headers 21 "its headers are missing, type: apt install linux-headers-$own" '
		old=${own%-own}
		mkdir -p "/usr/lib/modules/$own/kernel"
		cp "/boot/config-$old" "/boot/config-$own"
		cp -rs "/usr/src/linux-headers-$old" "$headers"')"
	result own_kernel_without_rust "$(tries_own no-rust 77 'it was built without CONFIG_RUST.' '
		for file in .config include/config/auto.conf; do
			mv "$headers/$file" "$headers/$file.away"
			grep -v "^CONFIG_RUST=" "$headers/$file.away" >"$headers/$file"
		done
		cp "$headers/.config" "/boot/config-$own"
		ln -s "$headers" "/usr/lib/modules/$own/build"')"
	result own_kernel_of_no_package "$(tries_own no-package 77 "its headers come from no package *ln -sfn TREE /lib/modules/$own/build && ${again#*&& }$own" '
		for file in .config include/config/auto.conf; do mv "$headers/$file.away" "$headers/$file"; done
		cp "$headers/.config" "/boot/config-$own"')"
	result own_kernel_that_is_not_prepared "$(tries_own no-config 77 "* is not a prepared kernel tree: $again$own" '
		rm "$headers/include/config/auto.conf"')"
	"$here/as-root.sh" rm -rf "$machine"/{boot/config-,usr/lib/modules/,usr/src/linux-headers-}"$own"
}

# What is said when something is missing, or of another version, one by one. The module that is there stays.
check_missing() {
	local gcc libclang retry=$again$old series status_file=/var/lib/dpkg/status symvers tarball why
	keep_state
	series=$(cut -d . -f 1,2 <<<"$old")
	gcc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$machine/boot/config-$old")
	symvers=/usr/src/linux-headers-$old/Module.symvers
	tarball=/usr/src/linux-source-$series.tar.xz
	missing libelf "libelf-dev is missing, ${retry/\*/apt install libelf-dev=*}" '' /usr/include/libelf.h
	missing rustc "there is no rustc named rustc: $retry" '' /usr/bin/rustc
	missing fitting-rustc "rustc is 'rustc 0.1', but * was built by 'rustc *: $retry" "$(program 'rustc 0.1')" /usr/bin/rustc
	missing bindgen "there is no bindgen named bindgen: ${retry/\*/apt install bindgen}" '' /usr/bin/bindgen
	missing fitting-bindgen "bindgen is 0.1, but * takes * or later: $retry" "$(program 'bindgen 0.1')" /usr/bin/bindgen
	mapfile -t libclang < <(cd "$machine" && find usr/lib -name 'libclang[-.]*so*' -printf '/%p\n')
	missing libclang "bindgen finds no libclang: ${retry/\*/apt install libclang-dev}" '' "${libclang[@]}"
	missing rust-src "the source of Rust's library is not in *: ${retry/\*/apt install *rust-src*}" '' \
		"$(cd "$machine" && find usr/src -path 'usr/src/rustc-[^/]*/library/core/src/lib.rs' -not -path '*/tests/*' -printf '/%p\n')"
	missing fitting-rust-src "rust-src is of another version than rustc: $retry" "$(other rust-src)" $status_file
	missing compiler "there is no $gcc, which built *: $retry" '' "/usr/bin/$gcc"
	missing source "the kernel's source is missing, ${retry/\*/apt install linux-source-$series=*}" '' "$tarball"
	missing fitting-source "linux-source-$series is of version 0 instead of *, $retry" \
		"$(other "linux-source-$series")" $status_file
	missing pahole "the configuration of $old does not come out with *CONFIG_DEBUG_INFO_BTF=y* is lost: $retry" '' /usr/bin/pahole
	missing source-of-that-name "the source is that of 1.0, and cannot become $old: $retry" "$(source_of 1.0)" "$tarball"
	missing rust-symbols "the kernel $old exports no Rust symbols, if *: $retry" "$(source_of "${old%%[!0-9.]*}"); : >\"\$2\"" \
		"$tarball" "$symvers"
	missing fitting-symbols "* of the * Rust symbols get other names here, such as _R*: $retry" "$(source_of "${old%%[!0-9.]*}")" \
		"$tarball"
	# Whatever else fails is in a log, which a try for another kernel does not take away.
	why=/var/lib/rpcrdma-rust-dkms/log/$old
	missing whole-source "unpacking the source failed: look into $why, mend it, and type: ${retry#*&& }" 'echo nothing >"$1"' "$tarball"
	result what_fails_is_kept "$(grep -q 'xz\|tar' "$machine$why" 2>&1 || echo "$why does not tell why it failed")"
	result an_ended_build_leaves_nothing "$(works ended sh -c '
		build=/var/lib/dkms/rpcrdma-rust/$2/build
		setsid dkms build --force "rpcrdma-rust/$2" -k "$1" &
		until [ -d "$build/linux/drivers" ]; do
			kill -0 $! || exit
			sleep 0.1
		done
		kill -s TERM -- -$!
		while kill -s 0 -- -$! 2>/dev/null; do sleep 0.1; done
		for left in "$build/linux" "$build/tree"; do
			[ ! -e "$left" ] || exit 1
		done' sh "$old" "$version"; build_left)"
	restore_state
	result "${old}_still_has_ours_after_all" "$(has "$old" $theirs $ours; says '*: installed*' \
		"$(inside "$machine" offline dkms status -k "$old")")"
}

# Of keys that the machine has to know.
enroll() { printf "rpcrdma-rust: Secure Boot is on: *before you type '%s', boot, and enroll that key." "$1"; }
import='mokutil --import /var/lib/dkms/mok.pub'
locked='rpcrdma-rust: the kernel is locked down, without Secure Boot: *GRUB_CMDLINE_LINUX*update-grub*'
check_secure_boot() {
	local choice=$machine/etc/depmod.d/rpcrdma-rust.conf said
	result secure_boot_off_says_nothing "$(says '' "$(secure_boot 0 '[none] integrity confidentiality')")"
	result secure_boot_on_tells "$(says "$(enroll "apt install mokutil && $import")" "$(secure_boot 1 '[none] integrity')")"
	result secure_boot_knows_mokutil "$(says "$(enroll "$import")" "$(secure_boot 1 'none [integrity]' "$(mokutil not)")")"
	result secure_boot_with_the_key_says_nothing "$(says '' "$(secure_boot 1 'none [integrity]' "$(mokutil already)")")"
	result secure_boot_without_a_key "$(says "$(enroll "dkms generate_mok && $import")" "$(secure_boot 1 '' \
		"$(mokutil not); mv /var/lib/dkms/mok.pub /var/lib/dkms/mok.away; trap 'mv /var/lib/dkms/mok.away /var/lib/dkms/mok.pub' EXIT")")"
	result lockdown_tells "$(says "$locked" "$(secure_boot 0 'none [integrity] confidentiality')")"
	result lockdown_without_efi_tells "$(says "$locked" "$(secure_boot 0 'none integrity [confidentiality]' 'rm -r efivars')")"
	result no_efi_says_nothing "$(says '' "$(secure_boot 0 '' 'rm -r efivars lockdown')")"

	# With a key that is not enrolled the C module stays in use, unless somebody wants it otherwise.
	"$here/as-root.sh" rm "$choice"
	said=$(secure_boot 1 '' "$(mokutil not)" 'rpcrdma-rust-ctl configure')
	result secure_boot_without_the_key_keeps_the_c_module "$(says "*$(enroll "$import")"*"with kernel $old: $c: the kernel rejects *" \
		"$said"; prefers "$old" $theirs)"
	result secure_boot_with_the_key_takes_ours "$(tells "with kernel $old: $rust"$'\n' \
		"$(secure_boot 1 '' "$(mokutil already)" 'rpcrdma-rust-ctl use rust')"; prefers "$old" $ours)"
	result secure_boot_does_not_choose_again "$(tells "with kernel $old: $rust: it cannot be loaded: Secure Boot is on: " \
		"$(secure_boot 1 '' "$(mokutil not)" 'rpcrdma-rust-ctl configure')"; prefers "$old" $ours)"
	"$here/as-root.sh" rm "$choice"
	result no_secure_boot_chooses_nothing "$(secure_boot 0 '' '' 'rpcrdma-rust-ctl configure' >/dev/null
		[ ! -e "$choice" ] || cat "$choice")"
}
