#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Downloads one version of Debian's kernel packages and unpacks them into the cache: the source, the
# headers (for the configuration and Module.symvers), the binary, its modules and their lists.
# KERNEL_SERIES chooses the series (see series.sh). KSRC=DIR uses another unpacked source for the
# kernels that are built here; the stock kernel always uses Debian's.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

done_stamp=$KERNELS/src.stamp
[ -f "$done_stamp" ] && exit 0
"$here/host-packages.sh" build
lock kernel-source
[ -f "$done_stamp" ] && exit 0

private_apt "$SUITE"
offered=$(offered_series)
# Of testing's only one is not on its way out.
chosen=$(grep "^$SERIES " <<<"$offered" || [ "$SERIES" != testing ] || tail -n 1 <<<"$offered")
read -r series release version < <(grep . <<<"$chosen") ||
	die "the mirror has no kernel $SERIES all of whose packages are of one version ($SUITE), but $(awk '{ printf "%s%s", sep, $1; sep = ", " } END { if (!NR) printf "none" }' <<<"$offered"): choose one by KERNEL_SERIES, or set KDIR to a prepared tree"
say "kernel $release, package version $version"

tmp=$KERNELS/debs.tmp
rm -rf "$tmp" "$KERNELS/debs" "$KERNELS/src" "$KERNELS/src.tmp"
mkdir -p "$tmp/unpacked"
cd "$tmp"
logged kernel-download "check the network, then start again" \
	apt-get download linux-source-"$series=$version" \
	linux-{headers,base,binary,modules}-"$release=$version"
unpack() {
	local deb
	for deb in *.deb; do
		dpkg-deb -x "$deb" unpacked
		rm "$deb"
	done
	mkdir "$KERNELS/src.tmp"
	tar -xf unpacked/usr/src/linux-source-*.tar.xz -C "$KERNELS/src.tmp" --strip-components=1
	rm unpacked/usr/src/linux-source-*.tar.xz
}
logged kernel-unpack "remove $KERNELS and start again" unpack
mv "$KERNELS/src.tmp" "$KERNELS/src"
mv "$tmp" "$KERNELS/debs"
stamp "$done_stamp" "$release $series $version"
