# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What tests find instead of the functions that drive virtual machines, when lib/adapters.sh runs
# them between two real ones. It exports RUN, a folder for the run, and REMOTE_ARGS.
#
#   server_run 'COMMAND'      runs it in the server, prints its output, returns its status
#   client_run 'COMMAND'      the same in the client; LIMIT=SECONDS before either, default 120

machine_program=/run/rpcrdma-selftests/machine

# One connection for all commands: to make one takes longer than most of them.
remote() {
	# shellcheck disable=SC2086 # They are options, and a host.
	ssh -q -o BatchMode=yes -o ControlMaster=auto -o ControlPersist=yes \
		-o ControlPath="$RUN/ssh" $REMOTE_ARGS "$@"
}

client_run() { bash $machine_program run "${LIMIT:-120}" <<<"$1"; }
server_run() { remote bash $machine_program run "${LIMIT:-120}" <<<"$1"; }
