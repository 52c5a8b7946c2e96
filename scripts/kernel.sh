#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: kernel.sh stock|custom|debug|um|um-debug|um-leaks|minimal|newest-gcc|newest-clang|arm64-4k|arm64-64k|release
#
# Prepares or builds one kernel in the cache, and prints its build tree, to be used as KDIR:
#   stock   Debian's own kernel, with the Rust metadata that its header package lacks made again
#   custom  .config.fragment and kernel/x86.config, built with clang
#   debug   the same with the slow checkers of kernel/debug.config
#   um      User-Mode Linux: .config.fragment and kernel/um.config
#   um-debug  User-Mode Linux with the slow checkers, which is the faster place for them
#   um-leaks  User-Mode Linux with kmemleak, which is too slow together with the others
#   minimal kernel/minimal.config, only prepared, to build the module against
#   newest-gcc, newest-clang  the configuration of custom, only prepared, with the compilers that Debian
#           testing has (ROOT=testing, see buildroot.sh)
#   arm64-4k, arm64-64k  the configuration of custom for arm64, with pages of 4 or 64 KiB
#   release Debian's own kernel of the release, older than 7.2, which one of the machines may have
# KERNEL_SERIES chooses the series of all but the last (see series.sh). KSRC=DIR builds all but the first from another unpacked kernel source of 7.2 or later.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

kind=${1:-}
tree=$KERNELS/$kind

stock() {
	local release version headers
	read -r release _ version <"$KERNELS/src.stamp"
	stamped "$tree.stamp" "$release $version" && return 0
	lock "kernel-$kind"
	stamped "$tree.stamp" "$release $version" && return 0
	rm -rf "$tree"
	headers=$KERNELS/debs/unpacked/usr/src/linux-headers-$release
	logged "kernel-$kind" "see the log; if the build root's compiler is not the kernel's, remove $BUILDROOT.stamp and $tree, and start again" \
		"$here/in-buildroot.sh" env JOBS="$JOBS" "$here/rust-metadata.sh" "$KERNELS/src" "$headers" "$tree" "$release"
	cp "$KERNELS/debs/unpacked/usr/lib/modules/$release/vmlinuz" "$tree/vmlinuz"
	ln -sfn "$KERNELS/debs/unpacked/usr/lib/modules/$release" "$tree/modules"
	stamp "$tree.stamp" "$release $version"
}

# Debian's kernel as it is, with its modules and nothing to build against.
release() {
	local package
	[ -f "$tree.stamp" ] && return 0
	lock "kernel-$kind"
	[ -f "$tree.stamp" ] && return 0
	private_apt "$RELEASE"
	package=$(apt-cache depends linux-image-amd64 | sed -n 's/^  Depends: \(linux-image-.*-amd64\)$/\1/p' | head -n 1)
	[ -n "$package" ] || die "the mirror has no kernel of Debian $RELEASE: try again later"
	rm -rf "$tree"
	mkdir -p "$tree/deb"
	(
		cd "$tree/deb"
		logged "kernel-$kind" "check the network, then start again" apt-get download "$package"
		dpkg-deb -x ./*.deb .
		rm ./*.deb
	)
	ln -s "$tree"/deb/boot/vmlinuz-* "$tree/vmlinuz"
	ln -s "$tree"/deb/usr/lib/modules/* "$tree/modules"
	stamp "$tree.stamp" "$package"
}

# The packages unpacked from Debian carry only a signed image and its modules; these are built.
built() {
	local src=${KSRC:-$KERNELS/src} arch=x86 image=arch/x86/boot/bzImage goals=(bzImage modules) want series
	local fragments=("$PROJECT/.config.fragment") flags= module_flags= mended=() compiler=(LLVM=-19)
	case $kind in
	custom) fragments+=("$here/kernel/x86.config") ;;
	debug) fragments+=("$here/kernel/x86.config" "$here/kernel/debug.config") ;;
	um | um-debug | um-leaks)
		fragments+=("$here/kernel/um.config")
		# In the large model clang puts data where neither lockdep nor kmemleak takes it for the kernel's.
		# The vDSO has the small one, and warnings of what does not matter to it are errors.
		[ "$kind" = um ] || {
			fragments+=("$here/kernel/${kind#um-}.config")
			flags="-mlarge-data-threshold=0x7fffffff -Wno-unused-command-line-argument"
			# Modules are further away than what is then taken for near.
			module_flags=-mlarge-data-threshold=0
		}
		# What arrives while a machine without work is about to sleep, with interrupts off, does not
		# keep it from sleeping to the next tick, up to 10 ms later: that signal is not waited for.
		mended+=(os-Linux/time.c 's/sigaddset(&set, SIGALRM);/sigaddset(\&set, SIGALRM), sigaddset(\&set, SIGIO);/' '(&set, SIGIO)')
		mended+=(os-Linux/signal.c '/^int timer_alarm_pending/,/^}/s/& SIGALRM_MASK/\& (SIGALRM_MASK | SIGIO_MASK)/' '(SIGALRM_MASK | SIGIO_MASK)')
		# For the signals of other CPUs there is a system call whenever interrupts go off or on: more than
		# half of the time, in machines of one CPU.
		mended+=(os-Linux/smp.c 's/^\t__local_ipi_set(/\tif (uml_ncpus > 1)\n\t&/' 'if (uml_ncpus > 1)')
		# The network driver takes locks of its softirqs with softirqs on. Lockdep tells, and from
		# then on looks at no lock.
		mended+=(drivers/vector_kern.c '/^static void vector_reset_stats/,/^}/s/\bspin_\(un\)\?lock(/spin_\1lock_bh(/' 'spin_lock_bh(&vp->rx_queue->head_lock)')
		arch=um
		image=linux
		goals=(linux modules)
		;;
	minimal) fragments=("$here/kernel/minimal.config") ;;
	arm64-*)
		fragments+=("$here/kernel/arm64.config" "$here/kernel/$kind.config")
		arch=arm64
		image=arch/arm64/boot/Image
		goals=(Image modules)
		;;
	newest-gcc | newest-clang)
		[ "${ROOT:-}" = testing ] || die "$kind is for the compilers of ROOT=testing"
		fragments+=("$here/kernel/x86.config")
		compiler=(LLVM=1)
		[ "$kind" = newest-clang ] || compiler=()
		;;
	esac
	[ -f "$src/Makefile" ] || die "$src is no kernel source: set KSRC to one, or unset it"
	series=$(series_of "$src")
	[ ! -f "$here/kernel/$series.config" ] || fragments+=("$here/kernel/$series.config")
	[ -z "${KSRC:-}" ] || export BIND="$KSRC${BIND:+:$BIND}"
	want="$src $(cat "$KERNELS/src.stamp" 2>/dev/null) $(cat "${fragments[@]}" | sha256sum)${flags:+ $flags $module_flags}${mended[*]:+ ${mended[*]}}"
	stamped "$tree.stamp" "$want" && return 0
	lock "kernel-$kind"
	stamped "$tree.stamp" "$want" && return 0
	rm -f "$tree.stamp"
	mkdir -p "$tree"
	cat "${fragments[@]}" >"$tree/fragment"
	build() {
		local make=("$here/in-buildroot.sh" make -C "$src" O="$tree" ARCH="$arch" "${compiler[@]}" KCFLAGS="$flags"
			CFLAGS_MODULE="$module_flags" -j"$JOBS")
		[ -n "${KSRC:-}" ] || mend "${mended[@]}"
		"${make[@]}" allnoconfig KCONFIG_ALLCONFIG="$tree/fragment"
		check_config
		if [[ $kind = minimal || $kind = newest-* ]]; then
			"${make[@]}" prepare
			"${make[@]}" modules_prepare
			return
		fi
		"${make[@]}" "${goals[@]}"
		rm -rf "$tree/modules.tmp" "$tree/modules"
		"${make[@]}" modules_install INSTALL_MOD_PATH="$tree/modules.tmp" INSTALL_MOD_STRIP=1 DEPMOD=true
		mv "$tree/modules.tmp/lib/modules/"* "$tree/modules"
		# One that runs as a program cannot be written to.
		cp --remove-destination "$tree/$image" "$tree/vmlinuz"
	}
	logged "kernel-$kind" "see the log; to start over, remove $tree" build
	stamp "$tree.stamp" "$want"
}

# Changes files of User-Mode Linux, in ways that change nothing the second time and leave this text:
# FILE SED-SCRIPT TEXT...
mend() {
	while [ $# -gt 0 ]; do
		sed -i "$2" "$src/arch/um/$1"
		grep -qF -- "$3" "$src/arch/um/$1" || {
			printf 'what is to be mended in arch/um/%s is not there: see whether this kernel needs it\n' "$1"
			return 1
		}
		shift 3
	done
}

# Kconfig drops silently what depends on something that is not set; here it is told.
check_config() {
	local line lost=()
	while read -r line; do
		case $line in
		*=n) ! grep -q "^${line%=n}=" "$tree/.config" || lost+=("$line") ;;
		*) grep -qxF -- "$line" "$tree/.config" || lost+=("$line") ;;
		esac
	done < <(sed -n 's/^# \(CONFIG_.*\) is not set$/\1=n/p; /^CONFIG_/p' "$tree/fragment")
	[ ${#lost[@]} -eq 0 ] || {
		printf 'not taken from the fragment: %s\n' "${lost[@]}"
		return 1
	}
}

case $kind in
stock)
	[ "$(uname -m)" = x86_64 ] || die "the stock kernel is an amd64 one: set KDIR to a prepared tree on this machine"
	compilers_of_stock
	"$here/buildroot.sh"
	"$here/kernel-source.sh"
	stock
	;;
release)
	[ "$(uname -m)" = x86_64 ] || die "this kernel of Debian's is an amd64 one"
	"$here/host-packages.sh" build
	release
	;;
custom | debug | um | um-debug | um-leaks | minimal | newest-gcc | newest-clang | arm64-4k | arm64-64k)
	[ "$SERIES" != testing ] || die "KERNEL_SERIES=testing is for the stock kernel"
	"$here/buildroot.sh"
	[ -n "${KSRC:-}" ] || "$here/kernel-source.sh"
	built
	;;
*) die "usage: kernel.sh stock|custom|debug|um|um-debug|um-leaks|minimal|newest-gcc|newest-clang|arm64-4k|arm64-64k|release" ;;
esac
printf '%s\n' "$tree"
