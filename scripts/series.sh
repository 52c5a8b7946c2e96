# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For scripts that deal in kernels, after lib.sh: which series of them a run is with. SERIES names it,
# and KERNELS is the folder of the cache that has what belongs to it. KERNEL_SERIES=7.2 chooses one;
# without it the mirror's newest is taken that the checks were run with. KERNEL_SERIES=testing is the kernel
# of Debian testing, of whatever series, which the compilers from there have built.

# The series that the checks were run with, the oldest first.
TESTED=(7.2 7.3)

SUITE=$RELEASE-backports
[ "${KERNEL_SERIES:-}" != testing ] || SUITE=$TESTING RELEASE_TAG=$TESTING_TAG

# Takes the build root with the compilers of the stock kernel, for who builds for it.
compilers_of_stock() {
	[ "$SERIES" != testing ] || export ROOT=testing BUILDROOT=$CACHE/buildroot-testing
}

# Whether $1 is as new as $2, or newer.
as_new_as() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# Prints "SERIES RELEASE VERSION" for each series of which the mirror has all five packages of one
# version, the oldest first. What counts is the version of the headers package, because its name
# carries the kernel's release. To be called after private_apt.
offered_series() {
	local series release version package all
	versions() { apt-cache madison "$1" 2>/dev/null | awk -F' *[|] *' '{ print $2 }'; }
	for series in $(apt-cache pkgnames linux-source- | sed -n 's/^linux-source-\([0-9]*\.[0-9]*\)$/\1/p' | sort -V); do
		as_new_as "$series" "${TESTED[0]}" || continue
		for release in $(apt-cache pkgnames "linux-headers-$series." |
			sed -n "s/^linux-headers-\(.*$RELEASE_TAG-amd64\)\$/\1/p" | sort -rV); do
			for version in $(versions "linux-headers-$release"); do
				all=yes
				for package in source-"$series" {base,binary,modules}-"$release"; do
					versions "linux-$package" | grep -qxF -- "$version" || all=no
				done
				if [ $all = yes ]; then
					printf '%s %s %s\n' "$series" "$release" "$version"
					continue 3
				fi
			done
		done
	done
}

# The newest of the mirror's that is tested, or else the first one after those. A subshell, because
# the caller goes on with the machine's own apt.
choose_series() (
	local series chosen='' newer=''
	private_apt "$SUITE"
	for series in $(offered_series | cut -d ' ' -f 1); do
		if as_new_as "${TESTED[-1]}" "$series"; then
			[[ " ${TESTED[*]} " != *" $series "* ]] || chosen=$series
		else
			newer=${newer:-$series}
		fi
	done
	[ -n "$chosen$newer" ] ||
		die "the mirror has no kernel from ${TESTED[0]} on whose source, headers, base, binary and modules packages are of one version ($SUITE): try again later, or set KDIR to a prepared tree"
	[ -n "$chosen" ] ||
		say "the mirror has none of the kernels that this was tested with (${TESTED[*]}): trying $newer"
	stamp "$CACHE/series" "${TESTED[*]}: ${chosen:-$newer}"
)

if [ -z "${KERNEL_SERIES:-}" ]; then
	if [[ $(cat "$CACHE/series" 2>/dev/null) != "${TESTED[*]}: "* ]]; then
		lock series
		[[ $(cat "$CACHE/series" 2>/dev/null) == "${TESTED[*]}: "* ]] || choose_series
	fi
	KERNEL_SERIES=$(sed 's/.*: //' "$CACHE/series")
fi
if [ "$KERNEL_SERIES" != testing ] &&
	{ ! [[ $KERNEL_SERIES =~ ^[0-9]+\.[0-9]+$ ]] || ! as_new_as "$KERNEL_SERIES" "${TESTED[0]}"; }; then
	die "KERNEL_SERIES is a series of kernels from ${TESTED[0]} on, such as ${TESTED[-1]}, or testing, not $KERNEL_SERIES"
fi
export KERNEL_SERIES
SERIES=$KERNEL_SERIES
KERNELS=$CACHE/$SERIES
mkdir -p "$KERNELS"
