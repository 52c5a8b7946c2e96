#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Downloads one version of Debian's kernel packages and unpacks them into the cache: the source, the
# flavour's configuration, the headers (for Module.symvers), the binary, its modules and their lists.
# KSRC=DIR uses another unpacked source for the kernels that are built here; the stock kernel
# always uses Debian's.

. "$(dirname "$0")/lib.sh"

done_stamp=$CACHE/linux-src.stamp
[ -f "$done_stamp" ] && exit 0
"$here/host-packages.sh" build
lock kernel-source
[ -f "$done_stamp" ] && exit 0

private_apt "$RELEASE-backports"

# The lowest series from 7.2 on for which all six packages of one version are there. What counts
# is the version of the headers package, because its name carries the kernel's release.
offered() { apt-cache madison "$1" 2>/dev/null | awk -F' *[|] *' '{ print $2 }'; }
has() { offered "$1" | grep -qxF -- "$2"; }
choose() {
	local series release version package all
	for series in $(apt-cache pkgnames linux-source- | sed -n 's/^linux-source-\([0-9]*\.[0-9]*\)$/\1/p' | sort -V); do
		[ "$(printf '%s\n' 7.2 "$series" | sort -V | head -n 1)" = 7.2 ] || continue
		for release in $(apt-cache pkgnames "linux-headers-$series." |
			sed -n "s/^linux-headers-\(.*$RELEASE_TAG-amd64\)\$/\1/p" | sort -rV); do
			for version in $(offered "linux-headers-$release"); do
				all=yes
				for package in {source,config}-"$series" {base,binary,modules}-"$release"; do
					has "linux-$package" "$version" || all=no
				done
				if [ $all = yes ]; then
					printf '%s %s %s\n' "$series" "$release" "$version"
					return
				fi
			done
		done
	done
}
read -r series release version < <(choose) ||
	die "the mirror has no kernel from 7.2 on whose source, config, headers, base, binary and modules packages are of one version ($RELEASE-backports): try again later, or set KDIR to a prepared tree"
say "kernel $release, package version $version"

tmp=$CACHE/debs.tmp
rm -rf "$tmp" "$CACHE/debs" "$CACHE/linux-src" "$CACHE/linux-src.tmp"
mkdir -p "$tmp/unpacked"
cd "$tmp"
logged kernel-download "check the network, then start again" \
	apt-get download linux-{source,config}-"$series=$version" \
	linux-{headers,base,binary,modules}-"$release=$version"
unpack() {
	local deb
	for deb in *.deb; do
		dpkg-deb -x "$deb" unpacked
		rm "$deb"
	done
	mkdir "$CACHE/linux-src.tmp"
	tar -xf unpacked/usr/src/linux-source-*.tar.xz -C "$CACHE/linux-src.tmp" --strip-components=1
	rm unpacked/usr/src/linux-source-*.tar.xz
}
logged kernel-unpack "remove $CACHE and start again" unpack
mv "$CACHE/linux-src.tmp" "$CACHE/linux-src"
mv "$tmp" "$CACHE/debs"
stamp "$done_stamp" "$release $series $version"
