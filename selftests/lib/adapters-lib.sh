# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What tests find instead of the functions that drive virtual machines, when lib/adapters.sh runs
# them between two real ones. It exports RUN, a folder for the run, and REMOTE_ARGS.
#
#   server_run 'COMMAND'      runs it in the server, prints its output, returns its status
#   client_run 'COMMAND'      the same in the client; LIMIT=SECONDS before either, default 120
#   client_start NAME 'CMD'   starts it in the background of the client
#   client_wait NAME          waits for it, prints its output, returns its status
#   NAME_put FILE PATH        copies a file into a machine (small ones)

machine_program=/run/rpcrdma-selftests/machine

# One connection for all commands: to make one takes longer than most of them.
remote() {
	# shellcheck disable=SC2086 # They are options, and a host.
	ssh -q -o BatchMode=yes -o ControlMaster=auto -o ControlPersist=yes \
		-o ControlPath="$RUN/ssh" $REMOTE_ARGS "$@"
}

client_run() { bash $machine_program run "${LIMIT:-120}" <<<"$1"; }
server_run() { remote bash $machine_program run "${LIMIT:-120}" <<<"$1"; }

vm_put() {
	"$1_run" "base64 -d >'$3' <<'END'
$(base64 "$2")
END"
}
server_put() { vm_put server "$@"; }
client_put() { vm_put client "$@"; }

client_start() {
	client_run "
		rm -f /run/job.$1.*
		(
			bash -c $(printf '%q' ". /lab/guest/env; $2") >/run/job.$1.out 2>&1
			echo \$? >/run/job.$1.tmp
			mv /run/job.$1.tmp /run/job.$1.status
		) >/dev/null 2>&1 &"
}
client_wait() {
	client_run "
		until [ -f /run/job.$1.status ]; do sleep 0.1; done
		cat /run/job.$1.out
		exit \$(cat /run/job.$1.status)"
}
