#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: guest.sh KERNEL
#
# Makes what a virtual machine boots from, beside its kernel: the root disk, one for all kernels of an
# architecture, and an initramfs with that kernel's modules, unpacked, because an emulated CPU is slow at xz.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

kernel=${1:?usage: guest.sh KERNEL}
guest=$CACHE/guest
root=$guest/root
case $kernel in arm64-*) root=$guest/root-arm64 ;; esac
packages=(
	nfs-common nfs-kernel-server rpcbind rdma-core rdmacm-utils ibverbs-utils
	iproute2 iputils-ping kmod procps busybox-static
	fio acl attr nfs4-acl-tools e2fsprogs tcpdump strace
	krb5-kdc krb5-admin-server krb5-user ethtool
	# A server that is driven by ssh, see scripts/adapters.sh.
	openssh-server openssh-client
)
# What the virtual machines load; what these depend on comes along.
modules=(
	virtio_blk virtio_net ext4
	sunrpc rpcsec_gss_krb5 nfs nfsv3 nfsv4 nfsd rpcrdma
	rdma_rxe siw ib_uverbs rdma_ucm
	sch_netem bonding veth dummy loop
	# For which Kerberos' ciphers ask at run time.
	krb5enc authenc cts
	# For which kernels before 7.0 do.
	crc32c_generic crc32_generic sha256_generic
)

root_disk() {
	local want="$RELEASE ${packages[*]}" include site
	stamped "$guest/root.stamp" "$want" && return 0
	"$here/host-packages.sh" build
	"$here/buildroot.sh"
	lock guest-root
	stamped "$guest/root.stamp" "$want" && return 0
	mkdir -p "$guest"
	rm -f "$guest/root.stamp" "$guest/root.img" "$guest/root.tar"
	include=$(IFS=,; printf '%s' "${packages[*]}")
	site=$(mirror)
	logged guest-root "check the network and the mirror in this machine's apt sources, then start again" \
		mmdebstrap --mode="$(mmdebstrap_mode)" --variant=minbase --include="$include" \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
		--customize-hook='mkdir -p "$1/lab" "$1/export" "$1/mnt/nfs" "$1/var/lib/nfs/nfsdcld" "$1/var/lib/nfs/rpc_pipefs"' \
		--customize-hook='ln -sfn /lab/modules "$1/usr/lib/modules"' \
		--customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' \
		"$RELEASE" "$guest/root.tar" "$site"
	logged guest-disk "see the log" disk "$guest/root.tar" "$guest/root.img"
	stamp "$guest/root.stamp" "$want"
}

# disk FOLDER-OR-ARCHIVE IMAGE. A private copy-on-write view is all that a machine gets, so the room is for
# what a test writes.
disk() {
	rm -f "$2.tmp"
	truncate -s 2G "$2.tmp"
	"$here/in-buildroot.sh" mke2fs -q -t ext4 -L root -O ^has_journal -d "$1" "$2.tmp"
	"$here/as-root.sh" rm -rf "$1"
	mv "$2.tmp" "$2"
}

# The packages of the disk for amd64, unpacked: their scripts run on no other CPU, and what these have
# written there is the same for all.
arm64_disk() {
	local tree=$root.tree want site include
	want=$(cat "$guest/root.stamp")
	stamped "$root.stamp" "$want" && return 0
	lock guest-arm64
	stamped "$root.stamp" "$want" && return 0
	rm -f "$root.stamp"
	"$here/as-root.sh" rm -rf "$tree"
	mkdir "$tree"
	"$here/in-buildroot.sh" debugfs -R "rdump / $tree" "$guest/root.img" >"$CACHE/logs/guest-arm64-base.log" 2>&1
	include=$(sed -n '/^Package: /{s///;h}; /^Architecture: amd64/{g;p}' "$tree/var/lib/dpkg/status" | paste -sd ,)
	site=$(mirror)
	unpack() {
		mmdebstrap --mode="$(mmdebstrap_mode)" --variant=extract --architectures=arm64 \
			--include="$include" --format=tar "$RELEASE" - "$site" |
			"$here/as-root.sh" tar --extract --preserve-permissions --numeric-owner --keep-directory-symlink \
				--exclude=./dev --exclude='./usr/share/*/*' --directory="$tree"
	}
	logged guest-arm64 "check the network and the mirror in this machine's apt sources, then start again" unpack
	logged guest-arm64-disk "see the log" disk "$tree" "$root.img"
	stamp "$root.stamp" "$want"
}

initramfs() {
	local tree=$KERNELS/$kernel want work
	want="$(cat "$tree.stamp" "$root.stamp" "$here/guest/initramfs") ${modules[*]}"
	stamped "$tree.initrd.stamp" "$want" && return 0
	lock "guest-$kernel"
	stamped "$tree.initrd.stamp" "$want" && return 0
	work=$tree.initrd-root
	rm -rf "$work"
	mkdir -p "$work"/{bin,dev,proc,sys,new,lab/modules}
	"$here/in-buildroot.sh" debugfs -R "dump /usr/bin/busybox $work/bin/busybox" "$root.img" 2>/dev/null
	chmod 755 "$work/bin/busybox"
	install -m 755 "$here/guest/initramfs" "$work/init"
	logged "guest-$kernel" "see the log" \
		"$here/in-buildroot.sh" "$here/pack-modules.sh" "$tree/modules/" "$work" "${modules[@]}"
	pack "$work" "$tree.initrd"
	rm -rf "$work"
	stamp "$tree.initrd.stamp" "$want"
}

[ -f "$KERNELS/$kernel.stamp" ] || die "the $kernel kernel is not built: run scripts/kernel.sh $kernel"
root_disk
[ "$root" = "$guest/root" ] || arm64_disk
initramfs
