#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: fuzz.sh [TARGET...]
#
# Fuzzes the protocol core with libFuzzer, FUZZ_SECONDS for each target (30), and prints KTAP with
# the executions, the edges of the compiled code that were covered, and the inputs that this takes.
# It starts from the test vectors and what earlier runs found, which is kept in fuzz/ of the cache.
# An input that breaks something is kept beside it.

. "$(dirname "$0")/lib.sh"

crate=$PROJECT/selftests/fuzz
out=$CACHE/build/fuzz
found=$CACHE/fuzz
# What cargo fuzz asks of rustc, but for the sanitizers, whose runtime Debian's rustc does not have.
flags="--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
	flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done

mkdir -p "$CACHE/cargo" "$found"
export CARGO_HOME=$CACHE/cargo CARGO_TARGET_DIR=$out
cargo() { "$here/in-buildroot.sh" env CXX=g++-14 RUSTFLAGS="${rustflags:-}" cargo "$@" >&2; }
host=$("$here/in-buildroot.sh" rustc -vV | sed -n 's/^host: //p')
# With a target named, the flags do not reach what runs while building.
rustflags=$flags cargo build --release --target "$host" --manifest-path "$crate/Cargo.toml"
rm -rf "$out/seeds"
cargo run --quiet --manifest-path "$PROJECT/selftests/host/Cargo.toml" --bin seeds -- \
	"$PROJECT/selftests/vectors/vectors.tsv" "$out/seeds"

if [ $# -eq 0 ]; then
	for file in "$crate"/fuzz_targets/*.rs; do
		set -- "$@" "$(basename "$file" .rs)"
	done
fi
printf 'TAP version 13\n1..%d\n' $#
number=0 failed=0
for target; do
	number=$((number + 1))
	mkdir -p "$found/$target" "$out/seeds/$target"
	log=$CACHE/logs/fuzz-$target.log
	rc=0
	"$here/in-buildroot.sh" "$out/$host/release/$target" -max_total_time="${FUZZ_SECONDS:-30}" -print_final_stats=1 \
		-artifact_prefix="$found/$target." "$found/$target" "$out/seeds/$target" >"$log" 2>&1 || rc=$?
	# The last line of progress, and the sum.
	seen=$(awk '/ cov: / { for (i = 1; i < NF; i++) value[$i] = $(i + 1) }
		/^stat::number_of_executed_units:/ { runs = $2 }
		END {
			split(value["corp:"], inputs, "/")
			printf "%d executions, %d edges, %d inputs\n", runs, value["cov:"], inputs[1]
		}' "$log")
	if [ $rc -eq 0 ]; then
		printf 'ok %d %s: %s\n' $number "$target" "$seen"
	else
		failed=1
		printf 'not ok %d %s: %s\n' $number "$target" "$seen"
		grep -E '^(thread |assertion | +(left|right): |SUMMARY|Base64: |artifact_prefix)' "$log" | sed 's/^/#   /' ||
			tail -n 5 "$log" | sed 's/^/#   /'
	fi
done
exit $failed
