#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: bench-headers.sh
#
# Prints what the protocol core takes for typical headers, on this machine and outside the kernel:
# nanoseconds (criterion's median) and instructions (callgrind).

. "$(dirname "$0")/lib.sh"

manifest=$PROJECT/selftests/bench/Cargo.toml
out=$CACHE/build/${VARIANT:-bench}
log=$CACHE/logs/bench-headers.log
# How often an operation is repeated. It runs once before, for the messages that it needs.
count=999

mkdir -p "$CACHE/cargo"
export CARGO_HOME=$CACHE/cargo CARGO_TARGET_DIR=$out
in_root() { "$here/in-buildroot.sh" "$@"; }

"$here/buildroot.sh" tools
in_root cargo build --release --bin repeat --manifest-path "$manifest" >&2
logged bench-headers "see the log" in_root cargo bench --manifest-path "$manifest" --bench headers -- \
	--warm-up-time 1 --measurement-time 2

printf '%-12s  %-21s  %12s  %12s\n' operation RPC nanoseconds instructions
for operation in encode_call decode_call encode_reply decode_reply; do
	for rpc in NULL 'READ with 1 segment' 'READ with 4 segments' 'READ with 16 segments'; do
		nanoseconds=$(in_root jq .median.point_estimate "$out/criterion/$operation/$rpc/new/estimates.json")
		in_root valgrind --tool=callgrind --callgrind-out-file=/dev/null \
			--toggle-collect="rpcrdma_bench::${operation}_of*" \
			"$out/release/repeat" "$operation" "$rpc" $count >"$log" 2>&1 || {
			cat "$log" >&2
			die "valgrind failed"
		}
		collected=$(sed -n 's/.*Collected : //p' "$log")
		printf '%-12s  %-21s  %12.1f  %12d\n' $operation "$rpc" "$nanoseconds" $((collected / (count + 1)))
	done
done
