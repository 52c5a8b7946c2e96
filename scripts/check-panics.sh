#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check-panics.sh
#
# Shows that nothing that decodes bytes from the wire, or calculates with numbers from there, can
# panic. Prints KTAP.
#
# The core is compiled alone, by the command that the build for the stock kernel recorded: its
# optimisation, its core library, its overflow checks. Every function of these files is kept and is
# a root for the linker, which drops what none of them can reach: the rest of the core, copies of
# functions of the core library, and derived Debug. What is left may refer to the C memory
# functions, and to nothing else. Because generic functions exist only where they are used, each
# function and closure of the files must be among what was compiled. Faults that are put in on
# purpose show that all this sees them.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"
. "$here/ktap.sh"

tests=$PROJECT/selftests/panics
build=$KERNELS/build/stock
"$here/module.sh" stock >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export BIND="$work${BIND:+:$BIND}"
export RUSTC_BOOTSTRAP=1

# The core uses no other crate, so it gets none.
compiler=$(sed -n '1 { s/^[^=]*= //; s/ *;.*//; s/ --emit=.*//; s/ --extern [^ ]*//g; s/ --out-dir [^ ]*//; p }' \
	"$build/rust/.rpcrdma_main.o.cmd")
[[ $compiler == *' -Coverflow-checks=y '* ]] || die "the stock kernel's modules are built without overflow checks"
compiler+=' --cfg rpcrdma_selftest --cap-lints=allow --crate-name core_alone -Clink-dead-code'

# The files of the core that get bytes or numbers from the wire.
decoders='/rust/proto/(wire/[a-z_]+|message|requester/(decode|reconcile)|responder/(budget|call|decode|encode|layout|placement|refusal|stream)|v2/options)\.rs'

# The lines of these files on which a function or a closure starts, as FILE:LINE, but for tests.
in_source() {
	local files
	mapfile -t files < <(sed -n 's/:$//p' "$1/core.d" | grep -E "$decoders\$")
	awk '
		FNR == 1 || /^}/ { skipped = 0 }
		/^ *#\[cfg\(any\(test,/ { marked = 1 }
		/^ *(#|\/\/)/ { next }
		# What a trait declares has no code.
		/^ *fn .*;$/ { next }
		marked && /mod .*\{$/ { skipped = 1 }
		!marked && !skipped && /^ *(pub(\([a-z:]*\))? )?((const|unsafe|extern "C") )*fn / { print FILENAME ":" FNR }
		{ marked = 0 }' "${files[@]}"
	grep -oE "\{closure@[^ ]*$decoders:[^ ]*: " "$1/core.mir" |
		sed -E 's/^\{closure@(.*):[0-9]+: $/\1/' | sort -u
}

# The lines that the debug information has, each with the symbol of what was made of it.
compiled() {
	awk -F '"' '
		/ = !DIFile\(/ {
			split($1, word, " ")
			file[word[1]] = $2 ~ /^\// ? $2 : $4 "/" $2
		}
		/ = distinct !DISubprogram\(.*linkageName: / {
			split($5, word, /[ ,]+/)
			symbol[++n] = $4; where[n] = word[5]; line[n] = word[7]
		}
		END { for (i = 1; i <= n; i++) print file[where[i]] ":" line[i], symbol[i] }' "$1/core.ll"
}

# Symbols that the core must not refer to, and the functions that do.
unexpected() {
	sed -n 's/^ *U //p' "$1/undefined" |
		{ grep -vxE 'mem(cpy|move|set|cmp)|bcmp|__x86_return_thunk' || true; } |
		while IFS= read -r symbol; do
			awk -v symbol="$symbol" '
				/^[0-9a-f]+ <.*>:$/ { name = $0; gsub(/^[^<]*<|>:$/, "", name) }
				/ R_[^ ]*\t/ && index($0, symbol) { print name " refers to " symbol }' "$1/disassembly"
		done | sort -u
}

# Prints what is wrong with the core of a source tree: examine TREE DIR, where DIR is to be made.
examine() {
	local tree=$1 dir=$2 file line
	mkdir "$dir"
	"$here/in-buildroot.sh" sh -ec "
		cd '$dir'
		$compiler --emit=obj=core.o,dep-info=core.d -Zfunction-sections=y '$tree/selftests/panics/core.rs'
		$compiler --emit=llvm-ir=core.ll,mir=core.mir -Copt-level=0 -Cno-prepopulate-passes '$tree/selftests/panics/core.rs'"
	in_source "$dir" >"$dir/wanted"
	[ -s "$dir/wanted" ] || printf 'no function was found\n'
	compiled "$dir" >"$dir/compiled"
	awk 'NR == FNR { roots[$1] = roots[$1] " -u " $2; next }
		$1 in roots { print roots[$1]; next }
		{ print >"/dev/stderr" }' "$dir/compiled" "$dir/wanted" 2>"$dir/unused" >"$dir/roots"
	while IFS=: read -r file line; do
		printf 'nothing uses %s:%d: %s\n' "$(basename "$file")" "$line" "$(sed -n "${line}s/^ *//p" "$file")"
	done <"$dir/unused"
	"$here/in-buildroot.sh" sh -ec "
		cd '$dir'
		ld.lld-19 -r --gc-sections @roots -o linked.o core.o
		llvm-nm-19 -C -u linked.o >undefined
		objdump -dr -C --no-show-raw-insn linked.o >disassembly"
	unexpected "$dir"
}

printf 'TAP version 13\n1..2\n'
complaints=$(examine "$PROJECT" "$work/core")
printf '# %d functions and closures\n' "$(wc -l <"$work/core/wanted")"
result decoders_cannot_panic "$complaints"

mkdir -p "$work/tree/rust" "$work/tree/selftests"
cp -r "$PROJECT/rust/proto" "$work/tree/rust/"
cp -r "$tests" "$work/tree/selftests/"
cat "$tests/faults.rs" >>"$work/tree/rust/proto/message.rs"
examine "$work/tree" "$work/faults" >"$work/found"
# Each function says in the comment before it by what it is found.
result faults_are_found "$(sed -n 's|^// Found: ||p' "$tests/faults.rs" | while IFS= read -r text; do
	grep -qF -- "$text" "$work/found" || printf 'this was not found: %s\n' "$text"
done)"

exit $failed
