#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check-package.sh
#
# What somebody goes through who installs the DKMS package: a fresh Debian with the oldest of the tested
# kernels gets it, boots, exports and mounts by RDMA; Debian's own kernel without CONFIG_RUST comes beside,
# and the newest of the tested ones, first without its source package; the package is upgraded when the
# source of one of them is gone, and purged. Prints KTAP.
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
	local want deb=$1
	want="$(cat "$fresh.stamp" "$place/kernels") $(sha256sum <"$PROJECT/debian/control")"
	stamped "$archives.stamp" "$want" && return 0
	fetched() {
		"$here/as-root.sh" cp "$deb" "$fresh/var/tmp/package.deb"
		# shellcheck disable=SC2046
		inside "$fresh" online "${apt[@]}" install --download-only /var/tmp/package.deb linux-image-amd64 linux-headers-amd64 \
			$(kernel_packages "$new") "$(source_package "$new")"
		"$here/as-root.sh" rm "$fresh/var/tmp/package.deb"
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

# Boots what is on the disk as a boot loader would, until somebody answers: boot RELEASE
boot() {
	local accel file vm_out
	say "[package] boot $1"
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
		-append "root=LABEL=root rw console=ttyS0 no_timer_check panic=-1 oops=panic systemd.default_timeout_start_sec=infinity systemd.default_device_timeout_sec=infinity" \
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
		ip address add $address/24 dev $link
		modprobe rdma_rxe
		rdma link add rxe0 type rxe netdev $link
		systemctl start nfs-server
		grep -x "rdma 20049" /proc/fs/nfsd/portlist || fail "it does not export by RDMA"
		mount -t nfs -o rdma,port=20049,vers=4.2 $address:/srv /mnt
		grep " /mnt .*proto=rdma" /proc/mounts || fail "the mount is not by RDMA"
		# Only the module in Rust has this folder.
		[ -d /sys/kernel/debug/rpcrdma ] && loaded=rust || loaded=c
		[ $loaded = $transport ] || fail "the $loaded module is loaded"
		head -c 16M /dev/urandom >/var/tmp/data
		cp /var/tmp/data /mnt/data
		sync /mnt/data
		echo 3 >/proc/sys/vm/drop_caches
		cmp /var/tmp/data /mnt/data
		cmp /var/tmp/data /srv/data
		rm /mnt/data
		umount /mnt
		systemctl stop nfs-server
		modprobe -r rpcrdma || fail "it cannot be unloaded"' >"$RUN/carries" 2>&1 || cat "$RUN/carries"
	"$here/complaints.sh" debian
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
	local release=$1 in_initramfs
	shift
	diff <(printf '%s\n' "$@") <(found_for "$release") || true
	# Theirs, or ours if there is one.
	in_initramfs=$(inside "$machine" offline lsinitramfs "/boot/initrd.img-$release" | grep '/rpcrdma\.ko')
	[ "$in_initramfs" = "usr/lib/modules/$release/${*: -1}" ] || printf 'its initramfs has: %s\n' "$in_initramfs"
}

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

cd "$PROJECT"
"$here/host-packages.sh" vm
lock package
mkdir -p "$place"
deb=$("$here/deb.sh" | grep /rpcrdma-rust-dkms_)
version=$(sed -n '1s/^rpcrdma-rust (\(.*\)).*/\1/p' "$PROJECT/debian/changelog")
make_fresh
{ read -r old && read -r new; } <"$place/kernels"
fetch "$deb"

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
	fresh=$1 machine=$2 guest=$3 deb=$4 newer=$5
	cp -a "$fresh" "$machine"
	cd "$machine"
	cp "$deb" var/tmp/package.deb
	cp "$newer" var/tmp/newer.deb
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
	mkdir -p etc/nfs.conf.d
	printf "[nfsd]\nrdma=y\nrdma-port=20049\ngrace-time=10\n" >etc/nfs.conf.d/rdma.conf
	# As if it mounted its root by RDMA.
	printf "%s\n" "#!/bin/sh" "[ \"\$1\" = prereqs ] || . /usr/share/initramfs-tools/hook-functions" \
		"[ \"\$1\" = prereqs ] || manual_add_modules rpcrdma" >etc/initramfs-tools/hooks/rpcrdma
	chmod 755 etc/initramfs-tools/hooks/rpcrdma' sh "$fresh" "$machine" "$here/guest" "$deb" "$RUN/newer.deb"
rm "$RUN/newer.deb"

bad=$(works initramfs update-initramfs -u -k "$old"; has "$old" $theirs)
result "${old}_has_the_c_module" "$bad"
[ -z "$bad" ] || exit 1
remember "$old"

bad=$(works install "${apt[@]}" install /var/tmp/package.deb)
result installs_without_a_network "$bad"
result "${old}_gets_ours_beside" "$(has "$old" $theirs $ours)"
make_disk
boot "$old"
result "${old}_boots_with_ours" "$(carries "$old" rust)"
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

# The newest one, whose source comes when what is said tells to get it.
# shellcheck disable=SC2046
result "${new}_installs_without_source" "$(works upgrade "${apt[@]}" install $(kernel_packages "$new"))"
result "${new}_keeps_its_own" "$(has "$new" $theirs)"
remember "$new"
advice=$(said upgrade "$new" | sed -n 's/.*, type: //p')
result "${new}_takes_that_advice" "$(takes advice "$advice")"
result "${new}_gets_ours_beside" "$(has "$new" $theirs $ours)"
result "${old}_still_has_ours" "$(has "$old" $theirs $ours)"

# The package is upgraded, when the source of the older one is gone. What it has goes on, and is replaced
# when that can be built again.
ours_of() { sha256sum <"$(modules_of "$1")/$ours"; }
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
shut_down
boot "$new"
result "${new}_boots_with_ours" "$(carries "$new" rust)"

# In the machine, which has it loaded meanwhile, and then from what that has left.
result purges "$(vm_run debian 3600 '
	modprobe rpcrdma
	DEBIAN_FRONTEND=noninteractive apt-get --yes purge rpcrdma-rust-dkms >/var/tmp/purge.log 2>&1 || { cat /var/tmp/purge.log; exit 1; }
	left=$(ls -d /usr/src/rpcrdma-rust* /var/lib/{dkms/,}rpcrdma-rust* /etc/kernel/*/rpcrdma-rust* 2>/dev/null || true)
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
