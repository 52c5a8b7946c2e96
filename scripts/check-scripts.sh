#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check-scripts.sh
#
# What make and the scripts say of wrong words and of trees that do not do, before they build anything, and what
# they leave alone. Prints KTAP. Needs neither a build root nor a kernel.

. "$(dirname "$0")/lib.sh"
. "$here/ktap.sh"

dir=$(mktemp -d "${TMPDIR:-/tmp}/rpcrdma.XXXXXX")
trap 'rm -rf --one-file-system "$dir"' EXIT
export RPCRDMA_CACHE=$dir/cache
# What goes on in spite of a wrong word ends here.
mkdir "$dir/bin"
for name in apt-get mmdebstrap; do
	printf '#!/bin/sh\necho it begins to fetch packages >&2\nexit 1\n' >"$dir/bin/$name"
done
chmod 755 "$dir"/bin/*
export PATH=$dir/bin:$PATH
make=(env -u MAKEFLAGS -u MAKELEVEL make -s -C "$PROJECT")

# What is wrong unless a command fails and says this: rejects PATTERN COMMAND...
rejects() {
	local said status=0
	said=$("${@:2}" 2>&1) || status=$?
	[ $status -ne 0 ] || echo "it does not fail"
	# shellcheck disable=SC2053
	[[ $said == $1 ]] || printf 'it says: %s\n' "$said"
}

for goal in run shell test; do
	result "make_${goal}_rejects_a_transport" "$(rejects "*: TRANSPORT is one of 'rxe siw', not 'tcp'*" "${make[@]}" $goal TRANSPORT=tcp)"
done
result make_run_rejects_a_client "$(rejects "*: CLIENT is one of *, not 'C'*" "${make[@]}" run CLIENT=C)"
result make_run_rejects_a_peer "$(rejects "*: PEER is one of *, not 'none'*" "${make[@]}" run PEER=none)"
result make_run_rejects_siw_for_stock "$(rejects '*: the stock kernel has no siw*' "${make[@]}" run TRANSPORT=siw)"
result make_test_rejects_no_name "$(rejects '*: say which test, such as*' "${make[@]}" test)"
result make_test_rejects_another_name "$(rejects '*: there is no selftests/mout.sh: T is one of *' "${make[@]}" test T=mout)"

# A tree has a configuration only: tree_with LINE...
tree_with() {
	mkdir -p "$dir/tree/include/config"
	printf '%s\n' CONFIG_RUST=y "$@" >"$dir/tree/include/config/auto.conf"
}
tree() { rejects "rpcrdma: the kernel in $dir/tree $1" "${make[@]}" KDIR="$dir/tree" tree; }
tree_with CONFIG_INFINIBAND_ADDR_TRANS=y
result a_tree_without_sunrpc "$(tree 'is configured without CONFIG_SUNRPC,*')"
tree_with CONFIG_SUNRPC=m
result a_tree_without_address_translation "$(tree 'is configured without CONFIG_INFINIBAND_ADDR_TRANS,*')"
tree_with CONFIG_SUNRPC=y CONFIG_INFINIBAND_ADDR_TRANS=y CONFIG_SUNRPC_XPRT_RDMA=y
result a_tree_with_the_c_module_built_in "$(tree 'has the C module built in*')"

printf 'clean:\n\t@echo cleaned $(M)\n' >"$dir/tree/Makefile"
builds=("$RPCRDMA_CACHE"/{build,7.3/build})
mkdir -p "${builds[@]}"
result make_clean_with_a_tree "$(
	[ "$("${make[@]}" KDIR="$dir/tree" clean)" = "cleaned $PROJECT" ] || echo "it does not clean this folder"
	ls -d "${builds[@]}" 2>&1 >/dev/null
)"
result make_clean "$("${make[@]}" clean 2>&1; ls -d "${builds[@]}" 2>/dev/null)"

printf '1..%d\n' "$number"
[ "$failed" -eq 0 ]
