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
# The purge runs in the booted machine, and the next boot is from what that left.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"
. "$here/ktap.sh"
. "$here/vm-lib.sh"
. "$here/package-machine.sh"
. "$here/package-refusals.sh"

address=192.0.2.1

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
		if [ $transport = rust ]; then
			rpcrdma-top --once | grep -F $address || fail "rpcrdma-top does not show the mount"
			[ "$(systemctl is-enabled rpcrdma-top-prometheus.timer)" = disabled ] || fail "the timer is not disabled"
			metrics=/var/lib/prometheus/node-exporter
			mkdir -p $metrics
			systemctl start rpcrdma-top-prometheus
			grep "^rpcrdma_client_connected.* 1$" $metrics/rpcrdma.prom || fail "it writes no metrics"
		fi
		rm /mnt/data
		umount /mnt
		systemctl stop nfs-server
		modprobe -r rpcrdma || fail "it cannot be unloaded"' >"$RUN/carries" 2>&1 || cat "$RUN/carries"
	"$here/complaints.sh" debian
}

# What the unit of the package has written to the kernel log of this boot, or nothing.
said_at_boot() {
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

# Does what has been said is to be typed, and nothing else: takes NAME ADVICE
takes() {
	[[ $2 == "apt install linux-source-"* ]] || {
		printf 'it says: %s\n' "$2"
		return
	}
	works "$1" sh -c "${2/apt install/${apt[*]} install}"
}

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

check_others
check_own_kernel
check_missing
check_secure_boot

make_disk
boot "$old"
result "${old}_boots_with_ours" "$(carries "$old" rust)"
result "${old}_has_nothing_to_tell_at_boot" "$(said_at_boot)"
result "${old}_changes_over_without_a_boot" "$(vm_run debian 3600 'rpcrdma-rust-ctl use c' >"$RUN/use" 2>&1 || cat "$RUN/use"
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
