# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What every test here sources: cases, their results and what undoes them. A case is a function
# that runs in a shell of its own and ends at its first failing command.
#
#   test_case DESCRIPTION FUNCTION [ARGUMENT...]   adds a case
#   run_cases                  runs all of them (or those that ONLY=REGEX names) and ends the test
#   defer COMMAND...           has it run when the case ends, last one first; it must succeed then
#   client [NAME=VALUE]... 'COMMANDS'      runs them in the client, with these variables and with
#                              lib/guest.sh; LIMIT=SECONDS before it
#   client [NAME=VALUE]... <<-'EOF'        the same with commands of more than one line
#   server ...                 the same in the server
#   guest_add ...              has all later commands of the test in either machine know these, too
#   fail TEXT...               ends the case with a failure
#   wait_for SECONDS COMMAND   waits until it succeeds; fails when that takes longer
#   skip TEXT...               ends it as skipped
#   other_test FILE [REGEX]    runs another test's cases
#   needs_machines TEXT...     the same between real machines: it TEXT, which is for virtual ones

set -euo pipefail

lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Started by itself it runs between real machines, if NETIF names an interface of this one.
[ -n "${VM_LIB:-}" ] || exec "$lib/adapters.sh" "$(cd "$(dirname "$0")" && pwd)/$(basename "$0")"
# shellcheck source=/dev/null
. "$VM_LIB"
# shellcheck source=/dev/null
. "${KTAP_HELPERS:?}"

# On the host only its fail and wait_for are of use.
. "$lib/guest.sh"

TEST=$(basename "$0" .sh)
guest=$(<"$lib/guest.sh")$'\n'
names=() functions=() deferred=() offered=()

# Prints what to run in a machine: the variables that the arguments set, then the commands, which
# are the last argument or standard input.
text_of() {
	local commands
	while [[ ${1:-} =~ ^[A-Za-z_][A-Za-z_0-9]*= ]]; do
		printf '%s%q\n' "${BASH_REMATCH[0]}" "${1#*=}"
		shift
	done
	[ $# -gt 0 ] || set -- "$(cat)"
	[ $# = 1 ] && [ -n "$1" ] || fail "these are no commands for a machine: ${*@Q}"
	printf '%s\n' "$1"
}

guest_add() { guest+=$(text_of "$@")$'\n'; }
guest_add TEST="$TEST" TRANSPORT="${TRANSPORT:-rxe}" SLOW="${SLOW:-1}" true

needs_machines() { [ -z "${ADAPTERS:-}" ] || skip "it $*, which is for virtual machines"; }

client() {
	local text
	text=$(text_of "$@") || exit
	client_run "$guest$text"
}
server() {
	local text
	text=$(text_of "$@") || exit
	server_run "$guest$text"
}

# For tests that take the interface of a machine down.
need_link_down() {
	client '! grep -q "User Mode Linux" /proc/cpuinfo' ||
		skip "an interface of User-Mode Linux that was down stays deaf"
}

# Starts commands in the client's background, which are given as to client:
# client_background NAME ...
client_background() {
	local text
	text=$(text_of "${@:2}") || exit
	text=$(text_of name="$1" text=". /lab/guest/env; $guest$text" <<-'EOF'
		rm -f /run/job.$name.*
		(
			bash -c "$text" >/run/job.$name.out 2>&1
			echo $? >/run/job.$name.tmp
			mv /run/job.$name.tmp /run/job.$name.status
		) >/dev/null 2>&1 &
	EOF
	)
	client_run "$text"
}
# Waits for their end, prints their output, returns their status: client_wait NAME.
client_wait() {
	client name="$1" <<-'EOF'
		until [ -f /run/job.$name.status ]; do sleep 0.1; done
		cat /run/job.$name.out
		exit $(cat /run/job.$name.status)
	EOF
}

# Copies a small file of this machine into one of the two: put MACHINE FILE PATH.
put() { LIMIT=60 "$1" path="$3" data="$(base64 "$2")" 'base64 -d <<<"$data" >"$path"'; }

skip() {
	printf 'SKIP: %s\n' "$*"
	exit 4
}

defer() {
	[ $# = 1 ] || set -- "$(printf '%q ' "$@")"
	deferred=("$1" "${deferred[@]}")
}

run_deferred() {
	local rc=$? command machine
	trap - EXIT
	case $rc in
	0 | 4) ;;
	*)
		for machine in client server; do
			printf 'the %s, when that failed:\n' "$machine"
			# One that the case has stopped could not answer, and would be ended for
			# that.
			[ ! -f "$RUN/$machine.pid" ] || kill -CONT "$(<"$RUN/$machine.pid")" || true
			LIMIT=20 "$machine" show_state || true
		done
		;;
	esac
	for command in "${deferred[@]}"; do
		# An error of bash's own would end this shell, as if all was well.
		(eval "$command") || {
			printf 'this failed to undo something: %s\n' "$command"
			rc=1
		}
	done
	exit "$rc"
}

test_case() {
	offered+=("$1")
	if [[ $1 =~ ${ONLY:-} ]]; then
		names+=("$1")
		shift
		functions+=("$(printf '%q ' "$@")")
	fi
}

run_cases() {
	local i rc
	if [ ${#names[@]} -eq 0 ]; then
		printf '# no case matches ONLY=%s, of these:\n' "${ONLY:-}"
		printf '#   %s\n' "${offered[@]}"
	fi
	ktap_print_header
	ktap_set_plan ${#names[@]}
	for i in "${!names[@]}"; do
		# Not in a condition: there the shell would go on after a failure.
		set +e
		(
			set -e
			trap run_deferred EXIT
			eval "${functions[i]}"
		) 2>&1 | sed -u -e 's/^/# /' -e '$a\' # The result begins a line.
		rc=${PIPESTATUS[0]}
		set -e
		case $rc in
		0) ktap_test_pass "$TEST: ${names[i]}" ;;
		4) ktap_test_skip "$TEST: ${names[i]}" ;;
		*) ktap_test_fail "$TEST: ${names[i]}" ;;
		esac
	done
	ktap_finished
}

# Runs another test's cases, or those that REGEX names, and skips if all of them do:
# other_test FILE [REGEX].
other_test() {
	ONLY=${2:-} "$1" | tee "$RUN/$TEST.other"
	grep -q '^ok ' "$RUN/$TEST.other" || fail "no case has a name like $2"
	grep '^ok ' "$RUN/$TEST.other" | grep -qv '# SKIP' || skip "none of its cases could run"
}

# Mounts the server's export for the rest of the case: mount_nfs VERS [OPTIONS [EXPORT]].
mount_nfs() {
	client vers="$1" options="${2:-}" folder="${3:-/export}" \
		'mount_nfs $vers "$options" "$folder"'
	defer unmount_nfs
}

# The same, but NFS sends a Call once more after 10 s rather than 60. Of some Replies that went with
# their connection only the time that passes tells the client: a server that still works at a Call
# of v3 drops it when the next connection brings it again (of its duplicate request cache:
# RC_DROPIT).
mount_nfs_timeo() { mount_nfs "$1" timeo=100; }

unmount_nfs() { client '! mountpoint -q $MNT || umount $MNT'; }

# Ends the mount, and empties the folder of server_dir /export.
mount_ends() {
	client 'umount $MNT && wait_for 10 module_unused'
	server 'rm -r /export/$TEST/*'
}

# Makes a folder of the test's own in an export of the server, for the rest of the case.
server_dir() {
	server folder="$1" 'mkdir -p $folder/$TEST'
	defer server folder="$1" 'rm -rf "$folder/${TEST:?}"'
}

# The module of ours or the kernel's own, whichever is under test.
is_rust() { client '[ -f /lab/payload/rpcrdma.ko ]'; }

# The same of the server's.
is_served() { server '[ -f /lab/payload/server/rpcrdma.ko ]'; }
need_served() { is_served || skip "the server's transport is the kernel's own"; }

# For tests that have sunrpc break connections, or allocations fail, in client|server.
need_injection() {
	"$1" '[ -d /sys/kernel/debug/fail_sunrpc ]' ||
		skip "the $1's kernel injects no faults into sunrpc"
}
need_filter() {
	"$1" '[ -f /sys/kernel/debug/failslab/require-start ]' ||
		skip "the $1's kernel cannot choose which allocations to fail"
}

# For tests in which rpcrdma-peer is a requester, in the client, of our server.
need_requester() {
	server '[ -d /sys/kernel/debug/rpcrdma ]' ||
		skip "the kernel's own server has no such files"
	client '[ -f /lab/payload/rpcrdma-peer ]' || skip "the payload has no rpcrdma-peer"
	client 'modprobe -q ib_uverbs; modprobe -q rdma_ucm'
}

# What our server holds when its clients have gone: server_mark notes it, and server_check N fails
# if N times something left anything behind. GONE=SECONDS before either waits so long for
# connections to end. The service is stopped meanwhile, and with it goes what nfsd remembers of the
# last Calls. The kernel's own transport leaves backward transports behind, and is not looked at.
server_mark() { server_rests 'rdma_resources >/run/holds.resources; holds_mark'; }
server_check() {
	server_rests times="$1" <<-'EOF'
		resources=$(cat /run/holds.resources)
		wait_for 10 rdma_resources_are "$resources" ||
			fail "the device had $resources and has $(rdma_resources)"
		holds_check $times
	EOF
}
server_rests() {
	local text
	is_served || return 0
	text=$(text_of "$@") || exit
	LIMIT=$((${GONE:-30} + 120)) server limit="${GONE:-30}" commands="$text" <<-'EOF'
		clients_gone $limit
		trap '/lab/guest/server resume' EXIT
		/lab/guest/server stop
		wait_for 20 module_unused
		! ls -d /sys/kernel/debug/rpcrdma/*-* 2>/dev/null ||
			fail 'the service has ended, and has left files'
		eval "$commands"
	EOF
}

# Whether a machine has this kernel or a later one: has_kernel client|server VERSION.
has_kernel() { "$1" version="$2" 'printf "%s\n" $version "$(uname -r)" | sort -VC'; }

# tasks_wait client|server SECONDS: in this case tasks of the machine may wait for as long, and are
# not taken for hung.
tasks_wait() {
	local file=/proc/sys/kernel/hung_task_timeout_secs
	defer "$1" file=$file seconds="$("$1" file=$file 'cat $file')" 'echo $seconds >$file'
	"$1" file=$file seconds="$2" 'echo $seconds >$file'
}

# Sets a setting of svcrdma for the rest of the case: server_set NAME VALUE.
server_set() {
	local file=/proc/sys/sunrpc/svc_rdma/$1
	defer server file="$file" value="$(server file="$file" 'cat $file')" 'echo $value >$file'
	server file="$file" value="$2" 'echo $value >$file'
}

# Gives the server one more address for the rest of the case, and waits until its device has it.
server_address() {
	server address="$1" bytes="${1//./ }" <<-'EOF'
		ip address add $address/24 dev $NETDEV
		usable() { grep -qs "$(printf ':ffff:%02x%02x:%02x%02x' $bytes)" \
			/sys/class/infiniband/$RDMA_LINK/ports/1/gids/*; }
		wait_for 10 usable
	EOF
	defer server address="$1" 'ip address delete $address/24 dev $NETDEV'
}

# Changes a setting of nfsd that it takes only while it has no threads: nfsd_set NAME VALUE.
nfsd_set() {
	server file="/proc/fs/nfsd/$1" value="$2" <<-'EOF'
		/lab/guest/server stop
		echo $value >$file
		/lab/guest/server resume
	EOF
}

# The seconds of a lease, while the server has no clients, for the rest of the case. nfsd waits a
# tenth of them for the Reply to a callback.
server_lease() {
	defer nfsd_set nfsv4leasetime "$(server 'cat /proc/fs/nfsd/nfsv4leasetime')"
	nfsd_set nfsv4leasetime "$1"
}

# Has our server begin anew, while it has no clients: a new listener has counted nothing, and may
# write all of its lines.
server_anew() { server '/lab/guest/server stop; /lab/guest/server resume'; }

# Unmounts, and has the server end connections of which the client could not tell it, as its device
# was taken away or there was no memory: other tests look for those that the server has.
server_forgets() {
	client 'umount $MNT && wait_for 10 module_unused'
	server_anew
}

# top_copies client|server: copies what rpcrdma-top reads in that machine, for top_of.
top_copies() {
	copy=$RUN/$TEST.copy
	mkdir "$copy"
	defer rm -r "$copy"
	"$1" <<-'EOF' | base64 -d | tar -C "$copy" -xz
		mkdir /run/$TEST
		cd /
		cp -r --parents proc/self/mounts proc/self/mountinfo sys/kernel/debug/rpcrdma \
			sys/module/rpcrdma/version /run/$TEST
		# Of the rest names and links are enough; sys/fs/nfs comes with NFS' client.
		{ find sys/fs/nfs sys/kernel/sunrpc -type d -o -type l 2>/dev/null || true; } |
			tar -c --no-recursion -T - | tar -C /run/$TEST -x
		tar -C /run/$TEST -cz . | base64
		rm -r /run/$TEST
	EOF
}

# Python, where PYTHON says if it is not this machine's, and rpcrdma-top on that copy.
python() { BIND=$RUN ${PYTHON:-python3} "$@"; }
top_of() { python "$RPCRDMA_TOP" --root "$copy" "$@"; }
need_top() {
	[ -n "${PYTHON:-}" ] || command -v python3 >/dev/null || skip "there is no python3"
	RPCRDMA_TOP=${RPCRDMA_TOP:-$(command -v rpcrdma-top)} || skip "there is no rpcrdma-top"
}

# Writes words that repeat as WORD*TIMES.
squeeze() {
	awk '{
		line = $1
		for (i = 2; i <= NF; i += n) {
			for (n = 1; $(i + n) == $i; n++);
			line = line " " $i (n > 1 ? "*" n : "")
		}
		print line
	}'
}

# The server recalls a delegation that the client has by its mount.
backward_call() {
	server <<-'EOF'
		end_grace
		wait_for 10 callback_works
		echo here >/export/$TEST/delegated
	EOF
	client 'rm -f /run/$TEST-delegation.*'
	client_background holder <<-'EOF'
		exec 3<$MNT/$TEST/delegated
		cat <&3
		touch /run/$TEST-delegation.open
		wait_for 60 test -f /run/$TEST-delegation.stop
	EOF
	defer client 'touch /run/$TEST-delegation.stop'
	client 'wait_for 20 test -f /run/$TEST-delegation.open'
	server <<-'EOF'
		grep -qs "type: deleg" /proc/fs/nfsd/clients/*/states ||
			fail "the client got no delegation"
	EOF
	LIMIT=40 server <<-'EOF'
		timeout 30 bash -c "echo there >>/export/$TEST/delegated" ||
			fail 'the delegation was not returned'
	EOF
	client 'touch /run/$TEST-delegation.stop'
	client_wait holder
	client 'rm -f /run/$TEST-delegation.*'
}

# Keeps the client busy with files on its mount until work_ends, which collects and checks them;
# WORK_SIZE=SIZE before it says how large they are.
work_begins() {
	client work_forget
	client_background work size="${WORK_SIZE:-256K}" 'work $size'
	defer client 'work_end && wait_for 50 test -f /run/job.work.status'
	client 'work_goes_on 30'
}

work_ends() {
	client work_end
	client_wait work || fail "the program that worked on the mount saw an error"
	printf '%s files written, read and compared\n' "$(client work_done)"
	server <<-'EOF'
		cd /export/$TEST
		[ $(wc -l <sums) -ge 4 ] ||
			fail "these are too few: $(wc -l sums) of $(ls | wc -l) files"
		sha256sum --quiet -c sums
	EOF
	client work_forget
}

# Has fio write files on the mount and verify them, again and again until fio_ends: fio_begins
# ARGUMENT...
fio_begins() {
	client 'rm -f /run/fio.*'
	defer client 'rm -f /run/fio.*'
	defer client 'touch /run/fio.stop && wait_for 50 test -f /run/job.fio.status'
	client_background fio arguments="$*" <<-'EOF'
		mkdir -p $MNT/$TEST/fio
		until [ -f /run/fio.stop ]; do
			fio --name=file --directory=$MNT/$TEST/fio --direct=1 --verify=crc32c \
				--do_verify=1 --verify_fatal=1 $arguments >/run/fio.out ||
				{ cat /run/fio.out; exit 1; }
			echo >>/run/fio.verified
		done
	EOF
}
fio_ends() {
	client 'touch /run/fio.stop'
	LIMIT=150 client_wait fio || fail "fio saw an error"
	client <<-'EOF'
		[ -s /run/fio.verified ] || fail "fio has not verified anything"
		printf "%d times fio has verified its files\n" $(wc -l </run/fio.verified)
	EOF
}

# Waits for three connections more under that work, and that it goes on then.
work_outlasts_three() {
	local connects
	connects=$(client 'xprt_stat 3')
	client connects="$connects" <<-'EOF'
		more() { [ $(($(xprt_stat 3) - connects)) -ge 3 ]; }
		wait_for 55 calling more
		work_goes_on 55
	EOF
}

# Traces these events in a machine for the rest of the case: trace_begins MACHINE SYSTEM/EVENT...
trace_begins() {
	local machine=$1 missing ours=is_rust
	shift
	[ "$machine" = client ] || ours=is_served
	missing=$("$machine" events="$*" <<-'EOF'
		for event in $events; do [ -d $TRACING/events/$event ] || echo $event; done
	EOF
	)
	# Ours has all that are documented, in a kernel that has any.
	[[ $missing != *rpcrdma/* ]] || ! "$ours" || ! "$machine" '[ -d $TRACING/events ]' ||
		fail "the $machine's module lacks trace events: $missing"
	[ -z "$missing" ] || skip "the $machine has no trace events $missing"
	defer "$machine" 'echo >$TRACING/set_event && echo >$TRACING/trace'
	"$machine" events="$*" <<-'EOF'
		echo >$TRACING/trace
		for event in $events; do echo 1 >$TRACING/events/$event/enable; done
	EOF
}

# What ours says of how connections of the mount ended: ended_by CAUSE.
ended_by() {
	! is_rust || client cause="$1" \
		'[ -n "$(our_stat ended_$cause)" ] || fail "no connection ended for $cause"'
}

# And that each had one end, but for the one that is up.
ends_agree() {
	! is_rust || client <<-'EOF'
		ends=$(awk '/^ended_/ { sum += $2 } END { print sum + 0 }' \
			/sys/kernel/debug/rpcrdma/[0-9]*/stats)
		[ $((ends + 1)) = $(xprt_stat 3) ] ||
			fail "$(xprt_stat 3) connections have $ends ends"
	EOF
}

# Changes what the RDMA devices of the client, or MACHINE=server, can do for the rest of the case,
# or until limits_end, by parameters of modules/rpcrdma_test_limits.c: limit_devices PARAMETER...
limit_devices() {
	local machine=${MACHINE:-client}
	"$machine" '[ -f /lab/payload/rpcrdma_test_limits.ko ]' ||
		skip "the payload has no rpcrdma_test_limits.ko"
	"$machine" parameters="$*" 'insmod /lab/payload/rpcrdma_test_limits.ko $parameters'
	defer limits_end "$machine"
}
limits_end() { "${1:-client}" \
	'! grep -q ^rpcrdma_test_limits /proc/modules || rmmod rpcrdma_test_limits'; }
# The limits of the server's device are those that a connection finds when it is accepted.
limit_server() { MACHINE=server limit_devices "$@"; }

# For each connection that was not accepted the log has a line with the client, the reason and the
# error: not_accepted MARK REASON ERRNO NUMBER. The listener was new at the mark. User-Mode Linux
# has no names of errors.
not_accepted() {
	server mark="$1" reason="$2 \\(($3|Error\\($4\\))\\)" <<-'EOF'
		printf '%d connections could not be accepted\n' $(listener_of accept_failures)
		wait_for 10 lines_tell accept_failures $mark \
			"client $CLIENT: cannot accept its connection: $reason"
	EOF
}

# Has who passes certain trace events in the client, or MACHINE=server, sleep there for the rest of
# the case, or until delays_end, see modules/rpcrdma_test_delay.c: delay_events PARAMETER...
delay_events() {
	local machine=${MACHINE:-client}
	"$machine" '[ -f /lab/payload/rpcrdma_test_delay.ko ]' ||
		skip "the payload has no rpcrdma_test_delay.ko"
	"$machine" parameters="$*" 'insmod /lab/payload/rpcrdma_test_delay.ko $parameters'
	defer delays_end "$machine"
}
delays_end() { "${1:-client}" \
	'! grep -q ^rpcrdma_test_delay /proc/modules || rmmod rpcrdma_test_delay'; }

# Has netem mistreat all that these machines send, for the rest of the case: netem_begins MACHINE...
# At first it lets everything through. It comes before I/O, and goes after it, because software RDMA
# devices take the moment at which a queueing discipline changes for a local error.
netem_begins() {
	local machine
	needs_machines "mistreats packets on their way"
	for machine; do
		"$machine" <<-'EOF' || skip "the $machine has no netem"
			modprobe -q sch_netem || true
			tc qdisc add dev $NETDEV root netem limit 100000
		EOF
		defer "$machine" 'tc qdisc del dev $NETDEV root'
	done
}

# Sets or resets, without options, what netem does to what this machine sends: netem MACHINE
# OPTIONS.
netem() { "$1" options="${2:-loss 0}" \
	'tc qdisc change dev $NETDEV root netem limit 100000 $options'; }
