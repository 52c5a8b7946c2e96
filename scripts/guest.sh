#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: guest.sh KERNEL
#
# Makes what a virtual machine boots from, beside its kernel: the root disk, one for all kernels,
# and an initramfs with that kernel's modules, unpacked, because an emulated CPU is slow at xz.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

kernel=${1:?usage: guest.sh KERNEL}
guest=$CACHE/guest
packages=(
	nfs-common nfs-kernel-server rpcbind rdma-core rdmacm-utils ibverbs-utils
	iproute2 iputils-ping kmod procps busybox-static
	fio acl attr nfs4-acl-tools e2fsprogs tcpdump strace
	krb5-kdc krb5-admin-server krb5-user ethtool
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
	local want="$RELEASE ${packages[*]}" mode=root include site
	stamped "$guest/root.stamp" "$want" && return 0
	"$here/host-packages.sh" build
	"$here/buildroot.sh"
	lock guest-root
	stamped "$guest/root.stamp" "$want" && return 0
	mkdir -p "$guest"
	rm -f "$guest/root.stamp" "$guest/root.img" "$guest/root.tar"
	[ "$(id -u)" -eq 0 ] || mode=unshare
	include=$(IFS=,; printf '%s' "${packages[*]}")
	site=$(mirror)
	logged guest-root "check the network and the mirror in this machine's apt sources, then start again" \
		mmdebstrap --mode="$mode" --variant=minbase --include="$include" \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
		--customize-hook='mkdir -p "$1/lab" "$1/export" "$1/mnt/nfs" "$1/var/lib/nfs/nfsdcld" "$1/var/lib/nfs/rpc_pipefs"' \
		--customize-hook='ln -sfn /lab/modules "$1/usr/lib/modules"' \
		--customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' \
		"$RELEASE" "$guest/root.tar" "$site"
	# A private copy-on-write view is all that a machine gets, so the room is for what a test writes.
	disk() {
		rm -f "$guest/root.img.tmp"
		truncate -s 2G "$guest/root.img.tmp"
		"$here/in-buildroot.sh" mke2fs -q -t ext4 -L root -O ^has_journal -d "$guest/root.tar" "$guest/root.img.tmp"
		mkdir -p "$guest/bin"
		tar -xOf "$guest/root.tar" ./usr/bin/busybox >"$guest/bin/busybox"
		chmod 755 "$guest/bin/busybox"
		rm "$guest/root.tar"
		mv "$guest/root.img.tmp" "$guest/root.img"
	}
	logged guest-disk "see the log" disk
	stamp "$guest/root.stamp" "$want"
}

initramfs() {
	local tree=$KERNELS/$kernel want work
	want="$(cat "$tree.stamp" "$guest/root.stamp" "$here/guest/initramfs") ${modules[*]}"
	stamped "$tree.initrd.stamp" "$want" && return 0
	lock "guest-$kernel"
	stamped "$tree.initrd.stamp" "$want" && return 0
	work=$tree.initrd-root
	rm -rf "$work"
	mkdir -p "$work"/{bin,dev,proc,sys,new,lab/modules}
	cp "$guest/bin/busybox" "$work/bin/"
	install -m 755 "$here/guest/initramfs" "$work/init"
	logged "guest-$kernel" "see the log" \
		"$here/in-buildroot.sh" "$here/pack-modules.sh" "$tree/modules/" "$work" "${modules[@]}"
	pack "$work" "$tree.initrd"
	rm -rf "$work"
	stamp "$tree.initrd.stamp" "$want"
}

[ -f "$KERNELS/$kernel.stamp" ] || die "the $kernel kernel is not built: run scripts/kernel.sh $kernel"
root_disk
initramfs
