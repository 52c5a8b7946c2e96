#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check-conformance.sh
#
# Compares the tables of selftests/conformance with the rows that there are, with the tests, which name
# their rows after "Proves:", and with the vectors. Each row that counts as shown must be shown by a test of
# code that is in a release module. Of selftests/features it looks up the tests. Prints KTAP.

. "$(dirname "$0")/lib.sh"
. "$here/ktap.sh"

cd "$PROJECT"

# The ids of all rows: those of each group are numbered from 1.
all_rows() {
	seq -f 'V1-%03g' 166
	seq -f 'BD-%03g' 30
	seq -f 'PD-%03g' 37
	seq -f 'V2-%03g' 39
	seq -f 'SEC-%03g' 19
}

# "ROW<tab>SHOWN BY" for each row of the tables.
documented() { awk -F '\t' 'FNR > 1 { print $1 "\t" $5 }' selftests/conformance/*.tsv; }

# "ROW<tab>TEST" for each test that a row names.
named() {
	documented | grep -vP '\tno test:' | awk -F '\t' '{
		gsub(/``[^`]*``/, "", $2)
		# Of what is planned the core may have tests already.
		if ($2 ~ /^planned:/ && !sub(/^planned: .*; so far /, "", $2)) next
		n = split($2, tests, ",")
		for (i = 1; i <= n; i++) {
			gsub(/^ +| +$/, "", tests[i])
			if (tests[i] != "") print $1 "\t" tests[i]
		}
	}'
}

# "ROW<tab>TEST" for each row that a test names, and "-<tab>PLACE" for one that is at no test.
tagged() {
	find rust selftests/host/src -name '*.rs' | sort | xargs awk '
		function stray() { if (rows != "") print "-\t" place; rows = "" }
		FNR == 1 {
			stray()
			n = split(FILENAME, path, "/")
			module = path[n] == "mod.rs" ? path[n - 1] : substr(path[n], 1, length(path[n]) - 3)
		}
		/^ *\/\/\/ Proves: / { place = FILENAME ":" FNR; sub(/.*Proves: /, ""); rows = rows " " $0; test = 0 }
		/^ *#\[test\]/ { test = 1 }
		/^ *(pub )?fn / && rows != "" {
			sub(/.*fn /, "")
			sub(/\(.*/, "")
			gsub(/[,.]/, " ", rows)
			n = test ? split(rows, ids, " ") : 0
			for (i = 1; i <= n; i++) print ids[i] "\t" module "::" $0
			if (test) rows = ""
			stray()
		}
		END { stray() }'
	find selftests -maxdepth 2 -name '*.sh' | sort | xargs awk '
		function stray() { if (rows != "") print "-\t" place; rows = "" }
		FNR == 1 { stray(); n = split(FILENAME, path, "/") }
		/^# Proves: / { place = FILENAME ":" FNR; sub(/.*Proves: /, ""); rows = rows " " $0; next }
		/^[a-z_0-9]+\(\) \{/ && rows != "" {
			sub(/\(.*/, "")
			gsub(/[,.]/, " ", rows)
			of[FILENAME " " $0] = rows
			name[FILENAME " " $0] = path[n] ": " $0
			rows = ""
		}
		/^[\t ]*test_case / { for (i = 3; i <= NF; i++) case_of[FILENAME " " $i] = 1 }
		END {
			stray()
			for (key in of) {
				n = split(of[key], ids, " ")
				for (i = 1; i <= n; i++) print (key in case_of ? ids[i] : "-") "\t" name[key]
			}
		}'
}

unknown_rows() { comm -3 <(all_rows | sort) <(documented | cut -f 1 | sort); }

without_reason() { documented | grep -vP '\t(planned: \w|no test: \w|``|\w+::\w|[\w-]+\.sh: \w)'; }

missing_tags() { comm -23 <(named | sort) <(tagged | sort); }

unnamed_tags() { comm -13 <(named | sort) <(tagged | sort); }

missing_vectors() {
	local row cell patterns pattern ids id
	mapfile -t ids < <(cut -f 1 selftests/vectors/*.tsv)
	documented | sed -nE 's/\t[^`]*``([^`]*)``.*/\t\1/p' | while IFS=$'\t' read -r row cell; do
		read -ra patterns <<<"$cell"
		for pattern in "${patterns[@]}"; do
			for id in "${ids[@]}"; do
				# shellcheck disable=SC2053 # It is a pattern.
				[[ $id != $pattern ]] || continue 2
			done
			printf '%s\t%s\n' "$row" "$pattern"
		done
	done
}

# Vectors that are decoded as a release module decodes what it receives: in either role, and in either
# version where it is set to. What is too long for its Receive no decoder sees.
decoded() {
	awk -F '\t' '$2 == "privdata" || ($2 ~ /^v[12]hdr$/ && $5 != "close") { print $1 }' selftests/vectors/*.tsv
}

# The files with tests of what only tests use, as a pattern.
of_testing() {
	grep -rlE 'proto::testing::(options|requester)' rust/proto/testing/*_tests.rs selftests/host/src/properties |
		sed 's|/mod\.rs$||; s|.*/||; s|\.rs$||' | paste -sd '|'
}

# Rows that are shown by no test of what a release module has: a kselftest, such a vector, or a test in a
# file that names nothing of proto/testing but the simulation.
not_of_the_module() {
	local row cell ids id pattern
	mapfile -t ids < <(decoded)
	{
		named | grep -P '\t[\w-]+\.sh: ' | cut -f 1
		named | grep -P '\t\w+::' | grep -vP "\t($(of_testing))::" | cut -f 1
		documented | sed -nE 's/\t[^`]*``([^`]*)``.*/\t\1/p' | while IFS=$'\t' read -r row cell; do
			read -ra patterns <<<"$cell"
			for pattern in "${patterns[@]}"; do
				for id in "${ids[@]}"; do
					# shellcheck disable=SC2053 # It is a pattern.
					[[ $id != $pattern ]] || printf '%s\n' "$row"
				done
			done
		done
	} | sort -u >"$shown"
	documented | grep -vP '\t(planned|no test):' | cut -f 1 | sort | comm -23 - "$shown"
}

# Kselftests with a case, and suites of KUnit, that the features name and that do not exist.
missing_cases() {
	local file case cases
	grep -ohP '[\w/-]+\.sh: [a-z]\w*(, (?!see )[a-z]\w*(?![\w.:/-]))*' selftests/features/*.tsv | sort -u |
		while IFS=: read -r file cases; do
			for case in ${cases//,/ }; do
				grep -qs "^$case() {" selftests/{,long/}"$file" ||
					printf '%s: %s\n' "$file" "$case"
			done
		done
	grep -ohP '(KUnit|,) rpcrdma_\w+' selftests/features/*.tsv | sed 's/.* //' | sort -u |
		while read -r case; do
			grep -rqF "kunit_tests($case)" rust || printf 'KUnit %s\n' "$case"
		done
}

# A rule is a name and a command that prints every line which breaks it.
rule() { result "$1" "$("$1" || true)"; }

shown=$(mktemp)
trap 'rm -f "$shown"' EXIT
printf 'TAP version 13\n1..7\n'
rule unknown_rows
rule without_reason
rule missing_tags
rule unnamed_tags
rule missing_vectors
rule not_of_the_module
rule missing_cases
exit $failed
