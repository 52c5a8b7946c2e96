# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The machine that scripts/check-package.sh installs the packages in: how it is made, started, and asked what modules
# it has. Says on standard output what is wrong, if anything is.
#
# apt installs in a folder that is the machine's disk, in namespaces without a network, because rustc takes
# an hour where a CPU is emulated. What boots in QEMU is a disk made from that folder, with the kernel and
# the initramfs of its /boot.
# The folder of the fresh Debian and the packages that apt will want are kept in the cache.

place=$CACHE/package
fresh=$place/fresh
machine=$place/machine
disk=$place/disk.img
archives=$place/archives
packages=(
	systemd-sysv udev kmod initramfs-tools zstd apt-utils
	iproute2 nfs-common nfs-kernel-server
)

# Runs a command in a folder that has a Debian, as its root: inside FOLDER online|offline COMMAND...
inside() {
	local folder=$1 net=(unshare --net)
	[ "$2" = offline ] || net=()
	shift 2
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
	vm_read debian 600 || {
		cat "$RUN/debian.host" >&2
		tail -n 30 "$RUN/debian.log" >&2
		die "the machine did not start with $1"
	}
	exec {vm_out}>&-
}

shut_down() {
	vm_run debian 60 'systemctl --no-block poweroff' >/dev/null 2>&1 || true
	timeout 600 tail --pid="$(cat "$RUN/debian.pid")" -f /dev/null || {
		vm_end debian
		die "the machine did not shut down"
	}
}

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
# What is wrong with "$2" as a text that has "$1": tells TEXT SAID
tells() { [[ $2 == *"$1"* ]] || printf 'it says: %s\n' "$2"; }
# The same for all of a text, with a pattern: says PATTERN SAID
# shellcheck disable=SC2053
says() { [[ $2 == $1 ]] || printf 'it says: %s\n' "${2:-nothing}"; }

ours_of() { sha256sum <"$(modules_of "$1")/$ours"; }
