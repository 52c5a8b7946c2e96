#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Fifty times mount and unmount, or CYCLES: after each, neither side holds anything of it any more.

. "$(dirname "$0")/lib/test.sh"

CYCLES=${CYCLES:-50} WARM_UP=20

cycles() {
	local server_before
	# The first mount of each kind leaves caches behind that are made once.
	client <<-'EOF'
		for vers in 3 4.2; do
			mount_nfs $vers
			ls $MNT >/dev/null
			umount $MNT
		done
		wait_for 10 module_unused
	EOF
	server_before=$(server <<-'EOF'
		wait_for 20 sh -c "! rdma resource show cm_id | grep -q CONNECT"
		rdma_resources
	EOF
	)
	LIMIT=$((80 + CYCLES)) client CYCLES="$CYCLES" WARM_UP="$WARM_UP" <<-'EOF'
		resources=$(rdma_resources)
		transports=$(transports)
		for n in $(seq $CYCLES); do
			[ $((n % 2)) = 0 ] && vers=3 || vers=4.2
			mount_nfs $vers
			[ "$(rdma_resources)" != "$resources" ] ||
				fail 'a mount takes nothing from the device'
			ls $MNT >/dev/null
			umount $MNT
			wait_for 10 module_unused
			wait_for 10 rdma_resources_are "$resources" ||
				fail "cycle $n: had $resources and has $(rdma_resources)"
			[ $(transports) = $transports ] ||
				fail "cycle $n: $(transports) transports, and not $transports"
			[ $n != $WARM_UP ] || holds_mark
		done
		holds_check $((CYCLES - WARM_UP))
		module_reload
	EOF
	server server_before="$server_before" <<-'EOF'
		wait_for 20 rdma_resources_are "$server_before" ||
			fail "the server's device had $server_before and has $(rdma_resources)"
	EOF
}

test_case "$CYCLES mounts and unmounts leave nothing" cycles
run_cases
