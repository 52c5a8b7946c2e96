# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Who offers Version Two. It comes behind lib/guest.sh.
#
#   speak DIALECT           at a server that offers Version Two, later mounts of the client are of that
#                           dialect, a version with the size of its messages: one-1024, one-4096 or two-4096
#   check_dialect DIALECT   fails if the mount has another

client_setting=/proc/sys/sunrpc/rdma_version_two
server_setting=/proc/sys/sunrpc/svc_rdma/version_two
speak() {
	local word=off name
	[ "${1%-*}" = one ] || word=offered
	echo $word >$client_setting
	for name in read write; do echo "${1#*-}" >/proc/sys/sunrpc/rdma_max_inline_$name; done
}
check_dialect() {
	local words=(none one two) is
	is=${words[$(our_stat version)]}-$(our_stat inline_send)
	[ "$is" = "$1" ] && [ "$(our_stat inline_receive)" = "${1#*-}" ] ||
		fail "it is $is and not $1, and receives $(our_stat inline_receive) bytes"
}
