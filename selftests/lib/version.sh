# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For tests of either version of the protocol, behind test.sh: who offers Version Two.

guest+='
client_setting=/proc/sys/sunrpc/rdma_version_two
server_setting=/proc/sys/sunrpc/svc_rdma/version_two
'

offers() { "$1" "[ -f \$$1_setting ]"; }

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
