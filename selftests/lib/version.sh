# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For tests of either version of the protocol, behind test.sh: who offers Version Two.

guest+='
client_setting=/proc/sys/sunrpc/rdma_version_two
server_setting=/proc/sys/sunrpc/svc_rdma/version_two

# A dialect is a version with the size of its messages: one-1024, one-4096 or two-4096. At a server that offers
# Version Two, later mounts of the client are of that dialect: speak DIALECT.
speak() {
	local word=off name
	[ ${1%-*} = one ] || word=offered
	echo $word >$client_setting
	for name in read write; do echo ${1#*-} >/proc/sys/sunrpc/rdma_max_inline_$name; done
}
# Fails if the mount has another: check_dialect DIALECT.
check_dialect() {
	local words=(none one two) is
	is=${words[$(our_stat version)]}-$(our_stat inline_send)
	[ $is = $1 ] && [ $(our_stat inline_receive) = ${1#*-} ] ||
		fail "it is $is and not $1, and receives $(our_stat inline_receive) bytes"
}
'

# Whether a machine offers it, as ours does in any case.
offers() {
	local ours=is_rust
	[ "$1" = client ] || ours=is_served
	"$1" "[ -f \$$1_setting ]" || { ! "$ours" || fail "the $1 has no setting for it"; false; }
}

# Sets both ends, as far as they can be set, for the rest of the case: settings CLIENT SERVER.
settings() {
	local machine
	for machine in client server; do
		if offers $machine; then
			defer "$machine 'echo off >\$${machine}_setting'"
			$machine "echo $1 >\$${machine}_setting"
		fi
		shift
	done
}

need_client() { offers client || skip "the client speaks Version One only"; }
need_server() { offers server || skip "the server speaks Version One only"; }
