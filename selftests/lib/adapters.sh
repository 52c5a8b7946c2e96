#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: adapters.sh TEST... | end
#
# Runs tests between two real machines with RDMA adapters: this one is the client, and the server is
# driven by ssh. The variables are those of tools/testing/selftests/drivers/net, from the
# environment or from the file net.config beside the tests, see README.rst: NETIF, LOCAL_V4,
# LOCAL_V6, REMOTE_V4, REMOTE_V6, REMOTE_TYPE, REMOTE_ARGS. A test that is started by itself comes
# here. "end" undoes in both machines what a run has left that was cut off.

set -euo pipefail

lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=/run/rpcrdma-selftests

# No test can run, and this is why.
no_test() {
	printf 'TAP version 13\n1..1\nnot ok 1 %s\n' "$*"
	exit 1
}

# Like lib/py/env.py of drivers/net, where the file counts more than the environment.
read_config() {
	local line
	while IFS= read -r line || [ -n "$line" ]; do
		line=${line%%#*}
		line=$(sed 's/^ *//; s/ *$//; s/ *= */=/' <<<"$line")
		[ -n "$line" ] || continue
		[[ $line =~ ^([A-Z0-9_]+)=\"?([^\"]*)\"?$ ]] ||
			no_test "net.config has a line that is no NAME=VALUE: $line"
		export "${BASH_REMATCH[1]}=${BASH_REMATCH[2]}"
	done <"$1"
}

check_variables() {
	local name local_name remote_name
	for name in REMOTE_TYPE REMOTE_ARGS; do
		[ -n "${!name:-}" ] || no_test "$name is not set, which NETIF needs, see README.rst"
	done
	for name in V4 V6; do
		local_name=LOCAL_$name remote_name=REMOTE_$name
		[ "${!local_name:+set}" = "${!remote_name:+set}" ] ||
			no_test "$local_name and $remote_name go together, but one is not set"
	done
	[ -n "${LOCAL_V4:-}${LOCAL_V6:-}" ] ||
		no_test "neither LOCAL_V4 nor LOCAL_V6 is set, which NETIF needs, see README.rst"
	[ "$REMOTE_TYPE" = ssh ] ||
		no_test "REMOTE_TYPE is $REMOTE_TYPE, and the server can only be driven by ssh"
	[ "$(id -u)" = 0 ] || no_test "the tests need root"
	command -v ssh >/dev/null || no_test "there is no ssh to drive the server with"
}

# The helpers of kselftest, which has this folder in net/, or whose place somebody says.
find_helpers() {
	export KTAP_HELPERS=${KTAP_HELPERS:-$lib/../../../kselftest/ktap_helpers.sh}
	[ -f "$KTAP_HELPERS" ] ||
		no_test "KTAP_HELPERS has to name the kernel's kselftest/ktap_helpers.sh"
}

in_client() { bash -c "$1"; }
in_server() { remote "$1"; }

# The server first, which the client asks for its services.
begin() {
	local name netif said addresses
	# By IPv4 the tests go where there is an address.
	local here=${LOCAL_V4:-${LOCAL_V6:-}} there=${REMOTE_V4:-${REMOTE_V6:-}}
	remote true || no_test "ssh $REMOTE_ARGS does not get into the server without a password"
	for name in server client; do
		"in_$name" "mkdir -m 700 $dir" 2>/dev/null ||
			no_test "the $name has another run, or one that lib/adapters.sh end undoes"
		begun=("$name" "${begun[@]}")
		"in_$name" "cat >$dir/machine" <"$lib/machine.sh"
		if [ "$name" = server ]; then
			netif=- addresses="$there $here ${REMOTE_V6:-} ${LOCAL_V6:-}"
		else
			netif=$NETIF addresses="$here $there ${LOCAL_V6:-} ${REMOTE_V6:-}"
		fi
		said=$("in_$name" \
			"bash $dir/machine begin $name $netif $addresses" 2>&1 </dev/null) ||
			no_test "${said:-the $name cannot be made ready}"
	done
}

# Takes everything back, also when it was interrupted: end [REGEX-OF-COMPLAINTS].
end() {
	local rc=0 name
	for name in "${begun[@]}"; do
		"in_$name" "bash $dir/machine end $(printf '%q' "${1:-}")" </dev/null 2>&1 |
			sed "s/^/# the $name: /" || rc=1
	done
	begun=()
	return "$rc"
}

finish() {
	local rc=$?
	trap - EXIT
	end "${expect:-}" || [ "$rc" != 0 ] || rc=1
	[ ! -S "$RUN/ssh" ] || remote -O exit 2>/dev/null || true
	rm -rf "$RUN"
	exit "$rc"
}

[ $# -gt 0 ] || no_test "usage: adapters.sh TEST... | end"
config=$lib/../net.config
[ ! -f "$config" ] || read_config "$config"
if [ "$1" = end ]; then
	[ -n "${REMOTE_ARGS:-}" ] || no_test "REMOTE_ARGS is not set, by which ssh finds the server"
elif [ -z "${NETIF:-}" ]; then
	printf 'TAP version 13\n1..0 # SKIP NETIF names no interface, see README.rst\n'
	exit 4
else
	check_variables
	find_helpers
fi
export ADAPTERS=1 VM_LIB=$lib/adapters-lib.sh REMOTE_ARGS DURATION=${DURATION:-240}
RUN=$(mktemp -d "${TMPDIR:-/tmp}/rpcrdma.XXXXXX")
export RUN
. "$lib/adapters-lib.sh"
begun=() rc=0 running=
trap finish EXIT
trap '[ -z "$running" ] || kill -- "-$running" 2>/dev/null; exit 130' INT TERM HUP
if [ "$1" = end ]; then
	remote true || no_test "ssh $REMOTE_ARGS does not get into the server without a password"
	for name in client server; do
		if "in_$name" "[ -f $dir/machine ]"; then
			begun+=("$name")
		else
			"in_$name" "[ ! -d $dir ] || rmdir $dir"
			printf '# the %s has nothing to undo\n' "$name"
		fi
	done
	exit 0
fi
# Such tests have a line "# virtual: WHY".
if [ $# = 1 ] && why=$(grep -m 1 '^# virtual: ' "$1"); then
	printf 'TAP version 13\n1..0 # SKIP it %s, which is for virtual machines\n' "${why#*: }"
	exit 4
fi
begin
for file; do
	result=0
	expect=$(sed -n 's/^# expect: //p' "$file")
	# In the background, with a shell that waits, and in a group of its own, which an interrupt
	# ends.
	set -m
	"$file" </dev/null &
	running=$!
	set +m
	wait "$running" || result=$?
	running=
	[ $result = 0 ] || { [ $result = 4 ] && [ $# = 1 ]; } || rc=1
done
[ $rc != 0 ] || [ $# != 1 ] || rc=$result
exit "$rc"
