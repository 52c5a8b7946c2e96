#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: vectors.sh FILE
#
# Runs the rows of a vector file (selftests/vectors/README.md) against the protocol code: one line
# for each that fails, then the counts.

. "$(dirname "$0")/lib.sh"

file=$(realpath "${1:?usage: vectors.sh FILE}")
[ -r "$file" ] || die "$file cannot be read"
BIND="$(dirname "$file")" cargo_in host run --quiet --manifest-path "$PROJECT/selftests/host/Cargo.toml" \
	--bin vectors -- "$file"
