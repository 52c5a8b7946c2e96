#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: in-tree.sh DIR [COMMAND...]
#
# Lays the module out on the unpacked kernel source DIR of 7.3 or later, as net/sunrpc/xprtrdma_rust and
# with all that belongs to it there, patch by patch. If DIR is a git repository, the patches are
# commits on its branch; otherwise it becomes one that has only the files that they change, and the
# licenses. The patches, in two series with a cover letter each, go to DIR/../patches, which must not be
# there yet. COMMAND is run after each, with its name, such as client/proto, as last argument, and ends
# everything if it fails. Patches are signed off by who runs this, as git knows them.

. "$(dirname "$0")/lib.sh"

[ $# -gt 0 ] && [ -f "$1/MAINTAINERS" ] || die "usage: in-tree.sh DIR [COMMAND...], where DIR is a kernel source"
dir=$(cd "$1" && pwd)
shift
out=$(dirname "$dir")/patches
layout=$here/in-tree/layout.py

version=$(series_of "$dir")
[ "$(printf '%s\n' 7.3 "$version" | sort -V | head -n 1)" = 7.3 ] ||
	die "$dir has Linux $version, and the patches are for 7.3 or later: take another source"
[ ! -e "$dir/net/sunrpc/xprtrdma_rust" ] ||
	die "$dir has an xprtrdma_rust already: type git -C $dir log, and git reset --hard to the commit before the patches"
[ ! -e "$out" ] || die "$out is there already, and may be somebody's: remove it"
git_in() { git -C "$dir" -c core.autocrlf=false -c core.fileMode=true "$@"; }
git var GIT_COMMITTER_IDENT >/dev/null 2>&1 ||
	die "git does not know who signs the patches off: type git config --global user.name and user.email"
touched=(MAINTAINERS net/sunrpc/Kconfig net/sunrpc/Makefile Documentation/filesystems/nfs/index.rst
	tools/testing/selftests/Makefile)
if [ ! -e "$dir/.git" ]; then
	git -c init.defaultBranch=xprtrdma_rust init --quiet "$dir"
	git_in add --force "${touched[@]}" LICENSES
	git_in commit --quiet --message "the files of the kernel that the patches change"
fi
git_in diff --quiet HEAD -- || die "$dir has changes that are not committed, which would go into the patches"

mkdir "$out"
base=$(git_in rev-parse HEAD)
declare -A first last
while read -r series name; do
	first[$series]=${first[$series]:-$(git_in rev-parse HEAD)}
	"$layout" "$PROJECT/rust" "$dir" "$series/$name"
	git_in add --force "${touched[@]}" net/sunrpc/xprtrdma_rust
	for folder in Documentation/filesystems/nfs/xprtrdma-rust tools/testing/selftests/net/sunrpc_rdma; do
		[ ! -d "$dir/$folder" ] || git_in add --force "$folder"
	done
	[ $# -eq 0 ] || "$@" "$series/$name"
	git_in commit --quiet --signoff --cleanup=strip --file "$here/in-tree/$series/$name.msg"
	last[$series]=$(git_in rev-parse HEAD)
done < <("$layout" list)

for series in client server; do
	git_in format-patch --quiet --cover-letter --cover-from-description=none --subject-prefix="PATCH $series" \
		--output-directory "$out/$series" "${first[$series]}..${last[$series]}"
	cover=$out/$series/0000-cover-letter.patch
	sed '/^#/d' "$here/in-tree/$series/cover" >"$out/cover"
	awk -v subject="$(head -n 1 "$out/cover")" -v body="$out/cover" '
		{ sub(/\*\*\* SUBJECT HERE \*\*\*/, subject) }
		/\*\*\* BLURB HERE \*\*\*/ {
			while ((getline line < body) > 0) if (n++ > 1) print line
			next
		}
		{ print }' "$cover" >"$cover.tmp"
	mv "$cover.tmp" "$cover"
	rm "$out/cover"
done
say "$(git_in rev-list --count "$base..HEAD") patches in $out"
