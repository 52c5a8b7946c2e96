#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Checks by grep what no compiler checks: which layer may name which, where unsafe code may be, and a few
# habits of every file. Prints KTAP.

. "$(dirname "$0")/lib.sh"
. "$here/ktap.sh"

cd "$PROJECT"
# Tracked, or about to be.
list=$(git ls-files --cached --others --exclude-standard) ||
	die "git does not list the files: run this in a clone that is yours"
existing=()
while IFS= read -r file; do
	[ ! -f "$file" ] || existing+=("$file")
done <<<"$list"

# A rule is a name and a command that prints every line which breaks it.
rule() {
	local name=$1
	shift
	result "$name" "$("$@" || true)"
}

sources() { find rust -name '*.rs' | sort; }

# "FILE LAYER" for each layer that a file names: what is behind crate::, also in trees of imports as rustfmt
# lays them out.
named() {
	sources | xargs awk '
		function names(text) { if (match(text, /[a-z_]+/)) print FILENAME, substr(text, RSTART, RLENGTH) }
		{ match($0, /^ */); depth = RLENGTH }
		FNR == 1 || (tree && depth < tree) { tree = 0 }
		/^ *\/\// { next }
		/use crate::\{$/ { tree = depth + 4; next }
		tree { if (depth == tree) names($0); next }
		{ line = $0 }
		/use crate::\{/ {
			sub(/.*use crate::\{/, "", line)
			while (gsub(/\{[^{}]*\}/, "", line)) ;
			n = split(line, parts, ",")
			for (i = 1; i <= n; i++) names(parts[i])
		}
		{
			n = split(line, parts, /crate::/)
			for (i = 2; i <= n; i++) if (parts[i] ~ /^[a-z_]/) names(parts[i])
		}'
}

# Files of a layer that name another one than those: strangers LAYER OTHER...
strangers() {
	local layer=$1
	named | awk -v layer="$layer" -v may=" $* " '
		$1 ~ "^rust/" layer "(/|\\.rs$)" && index(may, " " $2 " ") == 0 { print $1 " names " $2 }'
}

# Lines of code, not of comment, that match: code PATTERN FILE...
code() {
	local pattern=$1
	shift
	grep -nHP "$pattern" "$@" | grep -vP '^[^:]*:\d+:\s*//' | grep -vP "//.*($pattern)" || true
}

unsafe_outside() {
	local files
	mapfile -t files < <(sources | grep -vE '^rust/((bindings|rdma|sunrpc)/|(trace|debugfs|sysctl)\.rs$)')
	code '\bunsafe\b' "${files[@]}"
}

proto_names_crates() {
	local files
	mapfile -t files < <(find rust/proto -name '*.rs')
	code '\b(alloc|std|kernel)::' "${files[@]}" | grep -vF 'kernel::macros::kunit_tests' || true
}

without_spdx() {
	local file
	for file in "${existing[@]}"; do
		case $file in
		*/Cargo.lock | *.tsv) continue ;;
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
leftovers() { "$here/in-buildroot.sh" "$here/in-tree/layout.py" leftovers rust || echo 'it cannot be laid out, see above'; }

above=(error stats trace debugfs sysctl proto rdma sunrpc)
printf 'TAP version 13\n1..13\n'
rule proto_uses_nothing strangers proto
rule proto_uses_no_other_crate proto_names_crates
rule bindings_use_nothing strangers bindings
rule trace_knows_no_layer strangers trace bindings proto
rule rdma_knows_no_rpc strangers rdma bindings trace
rule sunrpc_knows_no_rdma strangers sunrpc bindings trace
rule client_is_apart strangers client "${above[@]}"
rule server_is_apart strangers server "${above[@]}"
rule unsafe_only_below unsafe_outside
rule spdx without_spdx
rule in_tree_leftovers leftovers
rule no_path_of_this_machine paths_of_here
rule no_mirror mirrors
exit $failed
