#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: kselftest.sh DIR
#
# Installs in DIR, which must not be there yet, the kselftests that the in-tree series carry, as the kernel's
# "make -C tools/testing/selftests TARGETS=net/sunrpc_rdma install" does it.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

to=${1:?usage: kselftest.sh DIR}
[ ! -e "$to" ] || die "$to is there already"
mkdir -p "$to"
to=$(cd "$to" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
# Of the kernel's tree what installing takes.
(cd "$KERNELS/src" && cp -r --parents scripts/subarch.include tools/scripts \
	tools/testing/selftests/{Makefile,lib.mk,kselftest,kselftest_install.sh,run_kselftest.sh} "$tree/")
mkdir "$tree/tools/testing/selftests/net"
"$here/in-tree/layout.py" "$PROJECT/rust" "$tree" selftests
BIND=$tree:$to "$here/in-buildroot.sh" make -C "$tree/tools/testing/selftests" TARGETS=net/sunrpc_rdma install INSTALL_PATH="$to" >"$CACHE/logs/kselftest-install.log" 2>&1 ||
	die "the kselftests cannot be installed (log: $CACHE/logs/kselftest-install.log)"
