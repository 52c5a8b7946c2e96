#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Builds the Debian packages in the build root, from the files that git knows, and prints where they are.
# lintian has to have nothing to say about them.

. "$(dirname "$0")/lib.sh"

cd "$PROJECT"
"$here/buildroot.sh" packaging
# All runs build in the same folder.
lock deb
version=$(sed -n '1s/^rpcrdma-rust (\(.*\)).*/\1/p' debian/changelog)
module=$(sed -n 's/^MODULE_VERSION("\(.*\)");/\1/p' rust/helpers/modinfo.c)
[ "$version" = "${module:-none}" ] ||
	die "debian/changelog has version ${version:-none}, and rust/helpers/modinfo.c ${module:-none}: make them equal"
files=$(git ls-files --cached --others --exclude-standard) ||
	die "git does not list the files: run this in a clone that is yours"

work=$CACHE/build/deb
source=$work/rpcrdma-rust-$version
rm -rf "$work"
mkdir -p "$source" "$CACHE/cargo"
# Of those that are about to be deleted only the names are left.
while IFS= read -r file; do
	[ ! -e "$file" ] || printf '%s\0' "$file"
done <<<"$files" | xargs --null cp --parents --no-dereference --preserve=mode,timestamps --target-directory="$source"

export CARGO_HOME=$CACHE/cargo
logged deb-crates "check the network, then start again" \
	"$here/in-buildroot.sh" cargo fetch --locked --manifest-path "$source/tools/rpcrdma-decode/Cargo.toml"
package() {
	cd "$source"
	"$here/in-buildroot.sh" dpkg-buildpackage --build=binary --no-sign
	"$here/in-buildroot.sh" lintian --allow-root --no-cfg --display-info --pedantic \
		--fail-on error,warning,info,pedantic ../*.changes
}
logged deb "see the log" package
rm -rf "$CACHE/deb"
mkdir "$CACHE/deb"
mv "$work"/*.deb "$CACHE/deb/"
rm -rf "$work"
printf '%s\n' "$CACHE"/deb/*.deb
