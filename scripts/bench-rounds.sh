#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: bench-rounds.sh client|server FOLDER BOOT
#
# Runs under vm.sh: has the client do each workload, with the C and the Rust module in turn in the
# machine of that role, and leaves what came out in FOLDER, for selftests/bench/report.py. The first
# and the last round are C's.
# BOOT counts the machines before these, so that no rounds of theirs have numbers that follow another.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

role=$1 folder=$2 boot=$3
rounds=$((2 * BENCH_PAIRS + 1))
first=$((boot * (rounds + 3)))
# The memory of a mount is the client's; long/memory.sh has that of the server's connections.
own=memory
[ "$role" = client ] || own=
read -ra workloads <<<"${BENCH_WORKLOADS:-nothing null getattr create stat unlink randread_1 randread_16 randwrite_1 randwrite_16 mixed seqread seqwrite krb5p_read krb5p_write readdir tree mount reconnect reconnect_busy $own}"

guest="
. /lab/payload/bench/guest.sh
BENCH_VERS=$VERS BENCH_SECONDS=${BENCH_SECONDS:-2}
. /lab/payload/bench/workloads.sh
"
client() { client_run "$guest$1"; }
server() { server_run "$guest$1"; }

# The process that is the kernel of the machine that is measured. In User-Mode Linux programs have others.
kernel_pid() { cat "$RUN/um/$role/pid" 2>/dev/null || cat "$RUN/$role.pid"; }
cpu_nanoseconds() { cat "/proc/$(kernel_pid)/task"/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'; }

# Takes the module that is loaded away, and loads this one: exchange rust|c
exchange() {
	LIMIT=120 client bench_end &&
		case $role in
		client) LIMIT=120 client "bench_load $1" ;;
		server)
			LIMIT=120 server "
				/lab/guest/server stop
				bench_load $1
				/lab/guest/server resume"
			;;
		esac &&
		LIMIT=120 client bench_begin
}

# workload ROUND KIND NAME
workload() {
	local out=$folder/$1.$2.$3 before after
	before=$(cpu_nanoseconds)
	# A number belongs to the workload: tasks-16.
	LIMIT=120 client "bench_${3/-/ }" >"$out.tmp" || {
		cat "$out.tmp" >&2
		die "the workload $3 failed in round $1, with the $2 $role; what it said is above"
	}
	after=$(cpu_nanoseconds)
	printf 'cpu_nanoseconds %d\n' $((after - before)) | cat - "$out.tmp" >"$out"
	rm "$out.tmp"
	# The server does it, behind what is measured.
	[ "$3" != tree ] || server 'rm -r /export/bench/tree/*'
}

# Messages, and mebibytes each way, that perftest carries in a second between the same machines. The
# server of NFS is who asks for data and who writes it, so it does here. Connections take their time,
# which the difference of a long and a short run leaves out; perftest's own figures lack the clock
# of the CPU. -e makes it sleep for completions: polling, it would keep the only CPU from rxe. It
# cannot do so for RDMA Writes, so Sends, which carry the same packets, stand for them.
link() {
	local name=$1 tool=$2 short=$3 long=$4 count n us=()
	shift 4
	say "[bench] the link without RPC: $tool"
	for n in 1 2 3; do
		us=()
		for count in "$short" "$long"; do
			client "perftest_begin $tool -n $count $*" || return 1
			us+=("$(LIMIT=100 server "perftest_time $tool -n $count $* \$CLIENT")") || {
				say "${us[*]}"
				return 1
			}
		done
		printf '%s %d %d\n' "$name" $((long - short)) $((us[1] - us[0])) >>"$folder/links"
	done
}
links() {
	[ -d "$PAYLOAD/perftest" ] || return 0
	link messages ib_send_lat 100 40100 -s 128 &&
		link send ib_send_bw 10 60 -s 1048576 -t 4 &&
		link read ib_read_bw 10 60 -s 1048576 -t 4
}

# Delegations come and go with what the server remembers, and change the number of RPCs.
server '
	echo 0 >/proc/sys/fs/leases-enable
	mkdir -p /export/bench/entries-{1..5} /export/bench/files /export/bench/tree
	head -c 64M /dev/urandom >/export/bench/data
	for n in {1..5}; do (cd /export/bench/entries-$n && seq -f entry-%g 10000 | xargs touch); done
	for n in {1..64}; do ip address add 192.0.2.$((20 + n))/24 dev $NETDEV; done'
client 'printf "%s\n" "$(uname -r)"' >"$folder/release"
[ "$boot" != 0 ] || links || say "[bench] perftest failed, see above; there is nothing to compare the link with"

# shellcheck source=../selftests/lib/krb5.sh
. "$PROJECT/selftests/lib/krb5.sh"
if [[ " ${workloads[*]} " == *" krb5p_"* ]]; then
	lacking=$(realm_lacks)
	[ -z "$lacking" ] || die "$lacking: leave the workloads krb5p_read and krb5p_write out of BENCH_WORKLOADS"
	realm_begins
	# The client's principal is nobody on the server.
	server 'chmod 666 /export/bench/data'
fi

start=$SECONDS
for ((round = 0; round < rounds; round++)); do
	kind=c
	[ $((round % 2)) = 0 ] || kind=rust
	exchange $kind || die "the $kind $role did not load and carry a mount before round $round; what it said is above"
	read -r load _ </proc/loadavg
	printf '%d %s %s\n' $((first + round)) $kind "$load" >>"$folder/rounds"
	for name in "${workloads[@]}"; do
		workload $((first + round)) $kind "$name"
	done
	say "[bench] round $((round + 1)) of $rounds, $kind: $((SECONDS - start)) s so far, about $(((SECONDS - start) * (rounds - round - 1) / (round + 1))) s to go"
done
LIMIT=120 client 'bench_end && rmmod rpcrdma'
