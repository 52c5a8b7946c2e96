#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Writes tags, by which an editor finds the names of the module, of its tests, and of the kernel's headers
# that it is built on.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

command -v ctags >/dev/null || die "ctags is missing, type: apt install universal-ctags"
"$here/kernel-source.sh"
cd "$PROJECT"
ctags --recurse --exclude=target -f tags.tmp rust selftests tools scripts \
	"$KERNELS"/src/include/{rdma,linux/sunrpc,uapi/rdma,trace/events/*rdma*.h}
mv tags.tmp tags
