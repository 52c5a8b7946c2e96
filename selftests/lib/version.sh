# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For tests of either version of the protocol, behind test.sh: who offers Version Two.

# shellcheck source=version-guest.sh
. "$lib/version-guest.sh"
guest_add <"$lib/version-guest.sh"

# Whether a machine offers it, as ours does in any case.
offers() {
	local ours=is_rust setting=$1_setting
	[ "$1" = client ] || ours=is_served
	"$1" file="${!setting}" '[ -f $file ]' || { ! "$ours" || fail "the $1 has no setting for it"; false; }
}

# Sets both ends, as far as they can be set, for the rest of the case: settings CLIENT SERVER.
settings() {
	local machine setting
	for machine in client server; do
		setting=${machine}_setting
		if offers $machine; then
			defer "$machine" file="${!setting}" 'echo off >$file'
			"$machine" file="${!setting}" word="$1" 'echo $word >$file'
		fi
		shift
	done
}

need_client() { offers client || skip "the client speaks Version One only"; }
need_server() { offers server || skip "the server speaks Version One only"; }
