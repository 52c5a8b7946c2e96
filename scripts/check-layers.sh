#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks by reading what no compiler checks: which layer may name which (by imports.py), where unsafe
# code may be and that each piece of it says why it is sound, and a few habits of every file. Prints KTAP.

. "$(dirname "$0")/lib.sh"
. "$here/ktap.sh"

cd "$PROJECT"
# Tracked, or about to be.
list=$(git ls-files --cached --others --exclude-standard) ||
	die "git does not list the files: run this in a clone that is yours"
mapfile -t files < <(sort -u <<<"$list")
existing=()
for file in "${files[@]}"; do
	[ ! -f "$file" ] || existing+=("$file")
done

# A rule is a name and a command that prints every line which breaks it.
rule() {
	local name=$1
	shift
	result "$name" "$("$@" || true)"
}

# Rust files below the given folders.
sources() {
	local dir
	for dir; do
		[ ! -d "$dir" ] || find "$dir" -name '*.rs' -print
	done
}

# Lines of code, not of comment, that match: names PATTERN FILE...
names() {
	local pattern=$1
	shift
	[ $# -eq 0 ] || grep -nHP "$pattern" "$@" | grep -vP '^[^:]*:\d+:\s*//' | grep -vP "//.*($pattern)" || true
}

outside_unsafe_layers() {
	sources rust | grep -vE '^rust/((bindings|rdma|sunrpc|sysctl)/|(bindings|trace|debugfs|sysctl)\.rs$)' || true
}

# A comment that says SAFETY must be right above each unsafe block or impl.
unexplained() {
	sources rust | sort | xargs -r awk '
		FNR == 1 { delete line }
		{
			line[FNR] = $0
			if ($0 ~ /unsafe[ \t]*(\{|impl)/ && $0 !~ /^[ \t]*\/\//) {
				found = 0
				# One comment may cover a statement that is broken over some lines.
				for (i = FNR - 1; i > 0 && i >= FNR - 15 && !found; i--) {
					if (line[i] ~ /SAFETY:/) found = 1
					else if (line[i] ~ /^[ \t]*\}?$/ || line[i] ~ /;[ \t]*$/) break
				}
				if (!found) print FILENAME ":" FNR ":" $0
			}
		}'
}

without_spdx() {
	local file
	for file in "${existing[@]}"; do
		case $file in
		*/Cargo.lock | *.tsv | COPYING | LICENSES/*) continue ;;
		# Their formats have no comments.
		debian/changelog | debian/copyright | debian/source/format) continue ;;
		esac
		head -n 3 "$file" | grep -q 'SPDX-License-Identifier: ' || printf '%s\n' "$file"
	done
}

# A folder right below the root has a name that others have too.
paths_of_here() {
	local path patterns=(-e "$HOME/")
	for path in "$PROJECT" "$CACHE"; do
		[[ $path != /*/* ]] || patterns+=(-e "$path/")
	done
	grep -nHF "${patterns[@]}" -- "${existing[@]}"
}

mirrors() {
	local hosts
	hosts=$(grep -rhoE 'https?://[^/ ]+' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | sed 's|.*//||' | sort -u)
	[ -z "$hosts" ] || grep -nHF -e "$hosts" -- "${existing[@]}"
}

# What the in-tree series would say of files that only this repository has.
leftovers() { "$here/in-buildroot.sh" "$here/in-tree/layout.py" leftovers rust; }

mapfile -t outside < <(outside_unsafe_layers)

# What imports.py knows to check: who may name what, through every module on the way.
imports=(
	proto_uses_nothing
	bindings_use_nothing
	rdma_knows_no_other_layer
	sunrpc_knows_no_other_layer
	trace_imports_no_layer
	client_and_server_name_what_they_may
	client_and_server_are_strangers
	only_the_root_knows_the_roles
	no_circles
	no_circles_in_tests
)
broken=$("$here/in-buildroot.sh" "$here/imports.py" check "${imports[@]}")
breaks() { awk -F '\t' -v rule="$1" '$1 == rule { print $2 }' <<<"$broken"; }

printf 'TAP version 13\n1..%d\n' $((${#imports[@]} + 6))
for name in "${imports[@]}"; do
	rule "$name" breaks "$name"
done
rule unsafe_only_below names '\bunsafe\b' "${outside[@]}"
rule safety_comments unexplained
rule spdx without_spdx
rule in_tree_leftovers leftovers
rule no_path_of_this_machine paths_of_here
rule no_mirror mirrors
exit $failed
