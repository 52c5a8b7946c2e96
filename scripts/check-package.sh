#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check-package.sh
#
# What somebody goes through who installs the packages: a fresh Debian with the oldest of the tested
# kernels gets them, is told what a build lacks, boots, exports and mounts by RDMA; Debian's own kernel without
# CONFIG_RUST comes beside, and the newest of the tested ones, first without its source package; the package
# is upgraded when the source of one of them is gone, rejected in a lockdown, and purged. Prints KTAP.
#
# apt installs in a folder that is the machine's disk, in namespaces without a network, because rustc takes
# an hour where a CPU is emulated. What boots in QEMU is a disk made from that folder, with the kernel and
# the initramfs of its /boot. The purge runs in the booted machine, and the next boot is from what that left.
# The folder of the fresh Debian and the packages that apt will want are kept in the cache.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"
. "$here/ktap.sh"
. "$here/vm-lib.sh"

place=$CACHE/package
fresh=$place/fresh
machine=$place/machine
disk=$place/disk.img
archives=$place/archives
packages=(
	systemd-sysv udev kmod initramfs-tools zstd apt-utils
	iproute2 nfs-common nfs-kernel-server
)
address=192.0.2.1

# Runs a command in a folder that has a Debian, as its root: inside FOLDER online|offline COMMAND...
inside() {
	local folder=$1 net=(unshare --net)
	[ "$2" = offline ] || net=()
	shift 2
	# shellcheck disable=SC2016
	"$here/as-root.sh" "${net[@]}" sh -ec '
		folder=$1 archives=$2
		shift 2
		for dir in /proc /dev; do mount --rbind "$dir" "$folder$dir"; done
		mount -t tmpfs none "$folder/tmp"
		mount --bind "$archives" "$folder/var/cache/apt/archives"
		mount -t tmpfs none "$folder/run"
		# For the names of mirrors.
		[ ! -e /etc/resolv.conf ] || cp /etc/resolv.conf "$folder/run/resolv.conf"
		exec chroot "$folder" /usr/bin/env -C / -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
			PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' sh "$folder" "$archives" "$@"
}
# Nobody turns the folder's power off.
apt=(apt-get --quiet --yes -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io)
remove() { "$here/as-root.sh" rm -rf --one-file-system "$@"; }

# The packages of a kernel of backports that the admin guide names: kernel_packages RELEASE.
kernel_packages() {
	printf '%s/%s\n' "linux-image-$1" "$RELEASE-backports" "linux-headers-$1" "$RELEASE-backports"
}
source_package() { printf 'linux-source-%s/%s\n' "$(cut -d . -f 1,2 <<<"$1")" "$RELEASE-backports"; }

# Makes the fresh Debian, with the oldest tested kernel, and writes the releases of the kernels beside it.
make_fresh() {
	local want="$RELEASE ${TESTED[*]} ${packages[*]}" site include offered advice
	advice="check the network and the mirror in this machine's apt sources, then start again"
	stamped "$fresh.stamp" "$want" && return 0
	site=$(mirror)
	include=$(IFS=,; printf '%s' "${packages[*]}")
	offered=$(private_apt "$RELEASE-backports" && offered_series)
	for series in "${TESTED[0]}" "${TESTED[-1]}"; do
		sed -n "s/^$series \([^ ]*\) .*/\1/p" <<<"$offered"
	done >"$place/kernels.tmp"
	[ "$(wc -l <"$place/kernels.tmp")" -eq 2 ] ||
		die "the mirror has not all of the kernels ${TESTED[0]} and ${TESTED[-1]}: try again later"
	remove "$fresh" "$archives"
	mkdir -p "$fresh" "$archives"
	debian() {
		local kernel
		kernel=$(head -n 1 "$place/kernels.tmp")
		# A user can make no device files, and gets those that there are.
		mmdebstrap --mode="$(mmdebstrap_mode)" --variant=minbase \
			--include="$include" --format=tar "$RELEASE" - \
			"deb $site $RELEASE main" "deb $site $RELEASE-backports main" |
			"$here/as-root.sh" tar --extract --preserve-permissions --numeric-owner --exclude='./dev/*' --directory="$fresh"
		"$here/as-root.sh" sh -ec '
			cd "$1"
			ln -sfn /run/resolv.conf etc/resolv.conf
			echo "LABEL=root / ext4 defaults 0 1" >etc/fstab
			echo debian >etc/hostname' sh "$fresh"
		inside "$fresh" online "${apt[@]}" update
		# shellcheck disable=SC2046
		inside "$fresh" online "${apt[@]}" install $(kernel_packages "$kernel") "$(source_package "$kernel")"
	}
	logged package-debian "$advice" debian
	mv "$place/kernels.tmp" "$place/kernels"
	stamp "$fresh.stamp" "$want"
}

# Fetches what apt will want to install without a network.
fetch() {
	local want deb=$1 tools=$2
	want="$(cat "$fresh.stamp" "$place/kernels") $(sha256sum <"$PROJECT/debian/control")"
	stamped "$archives.stamp" "$want" && return 0
	fetched() {
		"$here/as-root.sh" cp "$deb" "$fresh/var/tmp/package.deb"
		"$here/as-root.sh" cp "$tools" "$fresh/var/tmp/tools.deb"
		# shellcheck disable=SC2046
		inside "$fresh" online "${apt[@]}" install --download-only /var/tmp/{package,tools}.deb man-db \
			linux-image-amd64 linux-headers-amd64 $(kernel_packages "$new") "$(source_package "$new")"
		"$here/as-root.sh" rm "$fresh"/var/tmp/{package,tools}.deb
	}
	logged package-fetch "check the network, then start again" fetched
	stamp "$archives.stamp" "$want"
}

# The disk as it is now, from the folder: boots follow, that write to it.
make_disk() {
	rm -f "$disk"
	truncate -s 16G "$disk"
	"$here/in-buildroot.sh" mke2fs -q -t ext4 -L root -d "$machine" "$disk"
}
on_disk() { BIND=$RUN "$here/in-buildroot.sh" debugfs -R "$1" "$disk" 2>/dev/null; }

# Boots what is on the disk as a boot loader would, until somebody answers: boot RELEASE [PARAMETER...]
boot() {
	local accel file vm_out
	say "[package] boot $*"
	read -ra accel < <("$here/accel.sh")
	for file in vmlinuz initrd.img; do
		on_disk "dump /boot/$file-$1 $RUN/$file"
		[ -s "$RUN/$file" ] || die "the machine has no /boot/$file-$1"
	done
	rm -f "$RUN"/debian.agent.* "$RUN/debian.seen"
	mkfifo "$RUN/debian.agent.in" "$RUN/debian.agent.out"
	# On a busy host an emulated machine takes longer than systemd waits for a device or a mount.
	TMPDIR=$RUN qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -machine pc \
		"${accel[@]}" -name debian -m 2048 -smp 2 -kernel "$RUN/vmlinuz" -initrd "$RUN/initrd.img" \
		-append "root=LABEL=root rw console=ttyS0 no_timer_check panic=-1 oops=panic systemd.default_timeout_start_sec=infinity systemd.default_device_timeout_sec=infinity ${*:2}" \
		-drive "file=$disk,format=raw,if=virtio" -device virtio-rng-pci -device virtio-serial-pci \
		-chardev "pipe,id=agent,path=$RUN/debian.agent" -device virtserialport,chardev=agent,name=agent \
		-netdev user,id=net,restrict=on -device virtio-net-pci,netdev=net,romfile= \
		-serial "file:$RUN/debian.log" </dev/null >"$RUN/debian.host" 2>&1 &
	printf '%d\n' $! >"$RUN/debian.pid"
	exec {vm_out}<>"$RUN/debian.agent.out"
	vm_read debian "${BOOT_LIMIT:-600}" || {
		cat "$RUN/debian.host" >&2
		tail -n 30 "$RUN/debian.log" >&2
		die "the machine did not start with $1"
	}
	exec {vm_out}>&-
}

shut_down() {
	vm_run debian 60 'systemctl --no-block poweroff' >/dev/null 2>&1 || true
	timeout "${BOOT_LIMIT:-600}" tail --pid="$(cat "$RUN/debian.pid")" -f /dev/null || {
		vm_end debian
		die "the machine did not shut down"
	}
}

# What is wrong when files are to be carried by this module: carries RELEASE rust|c
carries() {
	vm_run debian 300 '
		set -euo pipefail
		release='"$1"' transport='"$2"' version='"$version"' address='"$address"'
		fail() { printf "%s\n" "$*"; exit 1; }
		[ "$(uname -r)" = "$release" ] || fail "it runs $(uname -r)"
		case $(modinfo -n rpcrdma) in */updates/dkms/*) found=rust ;; *) found=c ;; esac
		[ $found = $transport ] || fail "modinfo names $(modinfo -n rpcrdma)"
		if [ $transport = rust ]; then
			[ "$(modinfo -F version rpcrdma)" = $version ] || fail "it is version $(modinfo -F version rpcrdma)"
			[ -n "$(modinfo -F signer rpcrdma)" ] || fail "it is not signed"
		fi
		for path in /sys/class/net/*; do
			[ ! -e "$path/device" ] || link=${path##*/}
		done
		ip link set $link up
		ip address replace $address/24 dev $link
		modprobe rdma_rxe
		[ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev $link
		systemctl start nfs-server
		grep -x "rdma 20049" /proc/fs/nfsd/portlist || fail "it does not export by RDMA"
		mount -t nfs -o rdma,port=20049,vers=4.2 $address:/srv /mnt
		grep " /mnt .*proto=rdma" /proc/mounts || fail "the mount is not by RDMA"
		# Only the module in Rust has this folder.
		[ -d /sys/kernel/debug/rpcrdma ] && loaded=rust || loaded=c
		[ $loaded = $transport ] || fail "the $loaded module is loaded"
		if [ -x /usr/sbin/rpcrdma-rust-ctl ]; then
			[ $transport = rust ] && name="the module in Rust, version $version" || name="the C module"
			rpcrdma-rust-ctl status >/var/tmp/status
			grep -x "Loaded now: $name" /var/tmp/status || fail "$(cat /var/tmp/status)"
		fi
		[ $transport = c ] || grep -x "credits_requested *64" /sys/kernel/debug/rpcrdma/*/connection ||
			fail "the first mount does not heed /etc/sysctl.d"
		head -c 16M /dev/urandom >/var/tmp/data
		cp /var/tmp/data /mnt/data
		sync /mnt/data
		echo 3 >/proc/sys/vm/drop_caches
		cmp /var/tmp/data /mnt/data
		cmp /var/tmp/data /srv/data
		[ $transport = c ] || rpcrdma-top --once | grep -F $address || fail "rpcrdma-top does not show the mount"
		rm /mnt/data
		umount /mnt
		systemctl stop nfs-server
		modprobe -r rpcrdma || fail "it cannot be unloaded"' >"$RUN/carries" 2>&1 || cat "$RUN/carries"
	"$here/complaints.sh" debian
}

# What the unit of the package has written to the kernel log of this boot, or nothing.
said_at_boot() {
	# shellcheck disable=SC2016
	vm_run debian 300 '
		until [ "$(systemctl show --property ExecMainExitTimestampMonotonic --value rpcrdma-rust-dkms)" != 0 ]; do
			sleep 0.1
		done
		dmesg --notime | sed -n "s/.*rpcrdma-rust: /rpcrdma-rust: /p"' 2>&1 || echo "status $?"
}

# What is wrong with what a kernel says that is locked down and knows no key of dkms's, and that loads but
# signed modules.
locked_down() {
	local quote
	vm_run debian 300 '
		set -u
		fail() { printf "%s\n" "$*"; exit 1; }
		grep -F "[integrity]" /sys/kernel/security/lockdown || fail "there is no lockdown"
		told=$(/usr/lib/rpcrdma-rust-dkms/say-secure-boot)
		[[ $told == *"is locked down, without Secure Boot"* ]] || fail "it says: $told"
		rejects() {
			"$@" && fail "it works: $*"
			dmesg --notime
			dmesg --clear
		}
		modprobe rdma_cm && modprobe sunrpc || exit
		dmesg --clear
		rejects modprobe rpcrdma
		echo 1 >/sys/module/module/parameters/sig_enforce
		rejects modprobe rpcrdma
		xz -dc "$(modinfo -n rpcrdma)" >/var/tmp/signed.ko
		strip --strip-debug -o /var/tmp/unsigned.ko /var/tmp/signed.ko
		rejects insmod /var/tmp/unsigned.ko
		rm /var/tmp/{un,}signed.ko' >"$RUN/locked" 2>&1 || {
		cat "$RUN/locked"
		return
	}
	while IFS= read -r quote; do
		grep -qF -- "$quote" "$RUN/locked" || {
			printf 'the guide quotes: %s\n' "$quote"
			cat "$RUN/locked"
		}
	done < <(guide_quotes)
}
# The lines that the guide has of a kernel that does not load the module, and there are three.
guide_quotes() {
	sed -n 's/^    \(\(Lockdown: \|Loading of \).*\)/\1/p' Documentation/admin-guide.rst | grep . || echo "none at all"
}

# Keeps what a kernel has without ours, to be compared with in the end: remember RELEASE
remember() {
	# shellcheck disable=SC2016
	"$here/as-root.sh" sh -ec '
		mkdir -p "$2/boot" "$2/modules"
		cp -a "$1/boot/initrd.img-$3" "$2/boot/"
		cp -a "$1/usr/lib/modules/$3" "$2/modules/"' sh "$machine" "$place/before" "$1"
}

# A package like ours of a newer version: newer DEB
newer() {
	local dir=$RUN/newer
	rm -rf "$dir"
	dpkg-deb --raw-extract "$deb" "$dir"
	mv "$dir/usr/src/rpcrdma-rust-$version" "$dir/usr/src/rpcrdma-rust-$version.1"
	grep -rlF "$version" "$dir"/DEBIAN "$dir"/usr/src/*/{dkms.conf,rust/helpers/modinfo.c} |
		xargs sed -i "s/${version//./\\.}/$version.1/"
	dpkg-deb --root-owner-group --build "$dir" "$1" >/dev/null
	rm -rf "$dir"
}

# What differs between two trees, or nothing: same WHAT OLD NEW
same() { diff -r --no-dereference "$2" "$3" 2>&1 | head -n 20 | sed "s/^/$1: /"; }
modules_of() { printf '%s/usr/lib/modules/%s\n' "$machine" "$1"; }
# The modules of this name that a kernel has, below its folder.
found_for() { (cd "$(modules_of "$1")" && find * -name 'rpcrdma.ko*' | sort); }
theirs=kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz
ours=updates/dkms/rpcrdma.ko.xz

# What is wrong with the modules of a kernel, and with its initramfs: has RELEASE MODULE...
has() {
	diff <(printf '%s\n' "${@:2}") <(found_for "$1") || true
	# Theirs, or ours if there is one.
	prefers "$1" "${*: -1}"
}
# What is wrong unless it is this one that modprobe loads, from the initramfs as well: prefers RELEASE MODULE
prefers() {
	local found
	found=$(inside "$machine" offline modinfo -k "$1" -n rpcrdma)
	[ "$found" = "/lib/modules/$1/$2" ] || printf 'modinfo names %s\n' "$found"
	found=$(inside "$machine" offline lsinitramfs "/boot/initrd.img-$1" | grep '/rpcrdma\.ko')
	[ "$found" = "usr/lib/modules/$1/$2" ] || printf 'its initramfs has: %s\n' "$found"
}
ctl() { inside "$machine" offline rpcrdma-rust-ctl "$@" 2>&1; }

# Runs a command in the machine, and says what is wrong if it fails: works NAME COMMAND...
works() {
	local log=$CACHE/logs/package-$1.log
	say "[package] $1, log in $log"
	shift
	inside "$machine" offline "$@" >"$log" 2>&1 || {
		tail -n 20 "$log"
		printf 'log: %s\n' "$log"
	}
}

# What was said in the step NAME of RELEASE, behind the words that name the module that it keeps: said NAME RELEASE
said() { sed -n "s/^rpcrdma-rust: kernel $2 keeps //p" "$CACHE/logs/package-$1.log" | sort -u; }
# Does what has been said is to be typed, and nothing else: takes NAME ADVICE
takes() {
	[[ $2 == "apt install linux-source-"* ]] || {
		printf 'it says: %s\n' "$2"
		return
	}
	works "$1" sh -c "${2/apt install/${apt[*]} install}"
}
# What is wrong with "$2" as a text that has "$1": tells TEXT SAID
tells() { [[ $2 == *"$1"* ]] || printf 'it says: %s\n' "$2"; }
# The same for all of a text, with a pattern: says PATTERN SAID
# shellcheck disable=SC2053
says() { [[ $2 == $1 ]] || printf 'it says: %s\n' "${2:-nothing}"; }

ours_of() { sha256sum <"$(modules_of "$1")/$ours"; }
# What a build has left that takes room.
build_left() { ls -d "$machine/var/lib/dkms/rpcrdma-rust/$version/build"/{linux,tree} 2>/dev/null || true; }

# What is wrong when the module of the oldest kernel is to be built again and cannot be: lacks NAME PATTERN
# INSTEAD FILE... The files are away meanwhile, and the command INSTEAD may put others in their place.
lacks() {
	local name=$1 pattern=$2 log=$CACHE/logs/package-$1.log before status=0
	shift 2
	say "[package] $name, log in $log"
	before=$(ours_of "$old")
	# shellcheck disable=SC2016
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
	# shellcheck disable=SC2016
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
	# shellcheck disable=SC2016
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

cd "$PROJECT"
"$here/host-packages.sh" vm
lock package
mkdir -p "$place"
debs=$("$here/deb.sh")
deb=$(grep /rpcrdma-rust-dkms_ <<<"$debs")
tools=$(grep /rpcrdma-rust-tools_ <<<"$debs")
version=$(sed -n '1s/^rpcrdma-rust (\(.*\)).*/\1/p' "$PROJECT/debian/changelog")
make_fresh
{ read -r old && read -r new; } <"$place/kernels"
fetch "$deb" "$tools"

RUN=$(mktemp -d "${TMPDIR:-/tmp}/rpcrdma.XXXXXX")
export RUN
finish() {
	local rc=$?
	trap - EXIT
	{
		vm_end debian
		wait
		jobs
	} >/dev/null 2>&1
	remove "$machine" "$disk" "$place/before" "$place/after"
	rm -f "$RUN"/{vmlinuz,initrd.img,debian.agent.*,debian.lock}
	if [ $rc -ne 0 ]; then
		say "failed (status $rc): the machine's console and kernel log are in $RUN"
	else
		rm -rf "$RUN"
	fi
	exit $rc
}
trap finish EXIT
trap 'exit 130' INT TERM

remove "$machine" "$disk" "$place/before" "$place/after"
newer "$RUN/newer.deb"
"$here/as-root.sh" sh -ec '
	fresh=$1 machine=$2 guest=$3 deb=$4 newer=$5 tools=$6
	cp -a "$fresh" "$machine"
	cd "$machine"
	cp "$deb" var/tmp/package.deb
	cp "$newer" var/tmp/newer.deb
	cp "$tools" var/tmp/tools.deb
	mkdir lab
	cp -r "$guest" lab/guest
	cat >etc/systemd/system/agent.service <<-EOF
		[Unit]
		Requires=dev-virtio\x2dports-agent.device
		After=dev-virtio\x2dports-agent.device nfs-server.service
		[Service]
		ExecStart=/lab/guest/agent /dev/virtio-ports/agent
	EOF
	ln -s /etc/systemd/system/agent.service etc/systemd/system/multi-user.target.wants/
	echo "/srv *(rw,insecure,no_root_squash,no_subtree_check)" >etc/exports
	echo "sunrpc.rdma_slot_table_entries = 64" >etc/sysctl.d/rpcrdma.conf
	mkdir -p etc/nfs.conf.d
	printf "[nfsd]\nrdma=y\nrdma-port=20049\ngrace-time=10\n" >etc/nfs.conf.d/rdma.conf
	# As if it mounted its root by RDMA.
	printf "%s\n" "#!/bin/sh" "[ \"\$1\" = prereqs ] || . /usr/share/initramfs-tools/hook-functions" \
		"[ \"\$1\" = prereqs ] || manual_add_modules rpcrdma" >etc/initramfs-tools/hooks/rpcrdma
	chmod 755 etc/initramfs-tools/hooks/rpcrdma' sh "$fresh" "$machine" "$here/guest" "$deb" "$RUN/newer.deb" "$tools"
rm "$RUN/newer.deb"

bad=$(works initramfs update-initramfs -u -k "$old"; has "$old" $theirs)
result "${old}_has_the_c_module" "$bad"
[ -z "$bad" ] || exit 1
remember "$old"

bad=$(works install "${apt[@]}" install /var/tmp/package.deb)
result installs_without_a_network "$bad"
result "${old}_gets_ours_beside" "$(has "$old" $theirs $ours)"
rust="the module in Rust, version $version"
c='the C module'
result installing_tells_what_comes_next "$(tells "with kernel $old: $rust
To change that, type: rpcrdma-rust-ctl use c" "$(<"$CACHE/logs/package-install.log")")"

bad=$(works tools "${apt[@]}" install /var/tmp/tools.deb man-db)
result tools_install_without_a_network "$bad"
# One message of RFC 8166, an RDMA_ERROR.
result tools_run "$(works tools-run sh -exc '
	rpcrdma-top --help | grep "^usage: rpcrdma-top"
	rpcrdma-decode --help | grep "^usage: rpcrdma-decode"
	rpcrdma-decode --hex 11223344000000010000002000000004000000010000000100000001 | grep "xid 0x11223344 v1 .*ERR_VERS"
	man -w 8 rpcrdma-top
	man -w 1 rpcrdma-decode')"

# Both are there, and either can be chosen.
result use_c "$(tells "with kernel $old: $c: 'rpcrdma-rust-ctl use c' was typed
To change that, type: rpcrdma-rust-ctl use rust" "$(ctl use c)"; prefers "$old" $theirs)"
result use_c_stays_when_installed_again "$(ctl configure >/dev/null; prefers "$old" $theirs)"
result use_rust "$(tells "with kernel $old: $rust
To change that, type: rpcrdma-rust-ctl use c" "$(ctl use rust)"; prefers "$old" $ours)"
result use_another_is_an_error "$(tells 'usage: rpcrdma-rust-ctl' "$(ctl use rst && echo 'it does not fail')")"

# Another package that has the module, and one that has the modules that ours needs.
# shellcheck disable=SC2016
result conflicts_with_another_package "$(tells 'rpcrdma-rust-dkms conflicts with vastnfs-dkms' "$(inside "$machine" offline sh -ec '
	mkdir -p /tmp/other/DEBIAN
	printf "%s\n" "Package: vastnfs-dkms" "Version: 1" "Architecture: all" "Maintainer: none <none@example.org>" \
		"Description: another owner of rpcrdma.ko" >/tmp/other/DEBIAN/control
	dpkg-deb --build /tmp/other /tmp/other.deb
	! dpkg --install /tmp/other.deb' 2>&1 || echo 'it is installed')")"
state=$machine/var/lib/dkms/rpcrdma-rust
"$here/as-root.sh" cp -a "$state" "$state.away"
# shellcheck disable=SC2016
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
"$here/as-root.sh" rm -rf "$state"
"$here/as-root.sh" mv "$state.away" "$state"

# What is said of a kernel that was built without Rust, or whose headers do not do.
own=$old-own
again='type: * && dkms autoinstall -k '
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

# What is said when something is missing, or of another version, one by one. The module that is there stays.
# dkms forgets it at the first try, and is made to remember it in the end.
series=$(cut -d . -f 1,2 <<<"$old")
retry="$again$old"
"$here/as-root.sh" cp -a "$state" "$state.away"
gcc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$machine/boot/config-$old")
symvers=/usr/src/linux-headers-$old/Module.symvers
tarball=/usr/src/linux-source-$series.tar.xz
status_file=/var/lib/dpkg/status
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
# shellcheck disable=SC2016
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
"$here/as-root.sh" rm -rf "$state"
"$here/as-root.sh" mv "$state.away" "$state"
result "${old}_still_has_ours_after_all" "$(has "$old" $theirs $ours; says '*: installed*' \
	"$(inside "$machine" offline dkms status -k "$old")")"

# Of keys that the machine has to know.
enroll() { printf "rpcrdma-rust: Secure Boot is on: *before you type '%s', boot, and enroll that key." "$1"; }
import='mokutil --import /var/lib/dkms/mok.pub'
locked='rpcrdma-rust: the kernel is locked down, without Secure Boot: *GRUB_CMDLINE_LINUX*update-grub*'
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
choice=$machine/etc/depmod.d/rpcrdma-rust.conf
"$here/as-root.sh" rm "$choice"
said=$(secure_boot 1 '' "$(mokutil not)" 'rpcrdma-rust-ctl configure')
result secure_boot_without_the_key_keeps_the_c_module "$(says "*$(enroll "$import")"*"with kernel $old: $c: the kernel rejects *" \
	"$said"; prefers "$old" $theirs)"
result secure_boot_with_the_key_takes_ours "$(tells "with kernel $old: $rust
" "$(secure_boot 1 '' "$(mokutil already)" 'rpcrdma-rust-ctl use rust')"; prefers "$old" $ours)"
result secure_boot_does_not_choose_again "$(tells "with kernel $old: $rust: it cannot be loaded: Secure Boot is on: " \
	"$(secure_boot 1 '' "$(mokutil not)" 'rpcrdma-rust-ctl configure')"; prefers "$old" $ours)"
"$here/as-root.sh" rm "$choice"
result no_secure_boot_chooses_nothing "$(secure_boot 0 '' '' 'rpcrdma-rust-ctl configure' >/dev/null
	[ ! -e "$choice" ] || cat "$choice")"

make_disk
boot "$old"
result "${old}_boots_with_ours" "$(carries "$old" rust)"
result "${old}_has_nothing_to_tell_at_boot" "$(said_at_boot)"
result "${old}_changes_over_without_a_boot" "$(vm_run debian 300 'rpcrdma-rust-ctl use c' >"$RUN/use" 2>&1 || cat "$RUN/use"
	carries "$old" c)"
shut_down

# The line that the guide names would bring the newest kernel with its source, which is there before dkms looks.
line=$(sed -n 's/^    apt install \(linux-image-.*\)/\1/p' Documentation/admin-guide.rst)
# shellcheck disable=SC2086
result guide_brings_the_source "$(inside "$machine" offline apt-get --simulate install $line 2>&1 | awk '
	/^Inst linux-source-[0-9]/ { have[substr($2, length("linux-source-") + 1)] }
	/^Conf linux-headers-[0-9.]*[+][^ ]*-amd64/ {
		split(substr($2, length("linux-headers-") + 1), number, ".")
		series = number[1] "." number[2]
		if (!(series in have)) print "the headers of " series " are set up without linux-source-" series
		kernels++
	}
	END { if (!kernels) print "it brings no kernel" }')"

# A kernel without CONFIG_RUST.
bad=$(works release "${apt[@]}" install linux-image-amd64 linux-headers-amd64)
release=$(inside "$machine" offline sh -c 'ls /usr/lib/modules' | grep -vxF -e "$old")
result "${release}_installs" "$bad"
result "${release}_keeps_its_own" "$(has "$release" $theirs)"
remember "$release"
result "${release}_tells_why" "$(tells 'its own rpcrdma module: it is older than ' "$(said release "$release")")"
result "${release}_has_it_in_the_status" "$(tells "with kernel $release: $c: it is older than 7.2." "$(ctl status)")"

# The newest one, whose source comes when what is said tells to get it.
# shellcheck disable=SC2046
result "${new}_installs_without_source" "$(works upgrade "${apt[@]}" install $(kernel_packages "$new"))"
result "${new}_keeps_its_own" "$(has "$new" $theirs)"
remember "$new"
advice=$(said upgrade "$new" | sed -n 's/.*, type: //p')
result "${new}_has_it_in_the_status" "$(tells "with kernel $new: $c: the kernel's source is missing, type: $advice" "$(ctl status)")"
result "${new}_takes_that_advice" "$(takes advice "$advice")"
result "${new}_gets_ours_beside" "$(has "$new" $theirs $ours; tells "with kernel $new: $rust
" "$(ctl status)")"
result "${old}_still_has_ours" "$(has "$old" $theirs $ours)"

# The package is upgraded, when the source of the older one is gone. What it has goes on, and is replaced
# when that can be built again.
without_source() {
	local package
	package=$(source_package "$old")
	# shellcheck disable=SC2016
	works "$1" sh -ec 'dpkg --purge "$1"; dpkg --install /var/tmp/newer.deb' sh "${package%/*}"
}
kept=$(ours_of "$old")
replaced=$(ours_of "$new")
version=$version.1
bad=$(without_source package-upgrade)
result upgrades_without_a_source "$bad"
result "${old}_keeps_the_older_one" "$(has "$old" $theirs $ours; [ "$kept" = "$(ours_of "$old")" ] || echo "it is another one")"
result "${old}_tells_so" "$(tells 'the rpcrdma module of the earlier package: ' "$(said package-upgrade "$old")")"
result "${new}_gets_the_newer_one" "$(has "$new" $theirs $ours; [ "$replaced" != "$(ours_of "$new")" ] || echo "it is the older one")"
advice=$(said package-upgrade "$old" | sed -n 's/.*, type: //p')
result "${old}_takes_that_advice" "$(takes package-advice "$advice")"
result "${old}_gets_the_newer_one" "$(has "$old" $theirs $ours; [ "$kept" != "$(ours_of "$old")" ] || echo "it is the older one")"
kept=$(ours_of "$old")
result installs_again_without_a_source "$(without_source package-again)"
result "${old}_keeps_what_it_has" "$(has "$old" $theirs $ours; [ "$kept" = "$(ours_of "$old")" ] || echo "it is another one")"
make_disk
boot "$release"
result "${release}_boots_with_the_c_module" "$(carries "$release" c)"
result "${release}_tells_why_at_boot" "$(says 'rpcrdma-rust: mounts and exports by RDMA use the C module: it is older than 7.2.' "$(said_at_boot)")"
shut_down
boot "$new" lockdown=integrity
result "${new}_loads_no_unknown_key_in_a_lockdown" "$(locked_down)"
shut_down
boot "$new"
result "${new}_boots_with_ours" "$(carries "$new" rust)"

# In the machine, which has it loaded meanwhile, and then from what that has left.
result purges "$(vm_run debian 3600 '
	modprobe rpcrdma
	DEBIAN_FRONTEND=noninteractive apt-get --yes purge rpcrdma-rust-dkms >/var/tmp/purge.log 2>&1 || { cat /var/tmp/purge.log; exit 1; }
	left=$(ls -d /usr/src/rpcrdma-rust* /var/lib/{dkms/,}rpcrdma-rust* /etc/{kernel,systemd/system}/*/rpcrdma-rust* \
		/etc/depmod.d/rpcrdma-rust* /usr/lib/modprobe.d/*rpcrdma-rust* 2>/dev/null || true)
	[ -z "$left" ] || { printf "it leaves %s\n" $left; exit 1; }' || echo "status $?")"
shut_down
after=$place/after
mkdir "$after"
on_disk "rdump /usr/lib/modules /boot $after"
unpacked() {
	"$here/as-root.sh" sh -ec 'rm -rf "$2/$3"; cp "$1" "$2/initrd"' sh "$1" "$machine/var/tmp" "$2"
	inside "$machine" offline unmkinitramfs /var/tmp/initrd "/var/tmp/$2"
}
for kernel in "$old" "$release" "$new"; do
	result "modules_of_${kernel}_are_as_before" "$(same modules "$place/before/modules/$kernel" "$after/modules/$kernel")"
	unpacked "$place/before/boot/initrd.img-$kernel" before
	unpacked "$after/boot/initrd.img-$kernel" after
	# The packages that ours depends on stay, and have brought files of their own; fsck is there since a boot.
	result "initramfs_of_${kernel}_is_as_before" "$(
		cd "$machine/var/tmp"
		same initramfs {before,after}/usr/lib/modules
		same initramfs before after | grep -v "^initramfs: Only in after" || true
	)"
done
boot "$new"
result "${new}_boots_with_the_c_module" "$(carries "$new" c)"
shut_down
printf '1..%d\n' "$number"
[ "$failed" -eq 0 ]
