# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For tests with a requester that breaks the rules. It runs in the client (selftests/peer), beside a mount.
#
#   beside_a_mount FUNCTION    calls it while a mount works on files, and compares what the server holds with
#                              what it held before
#   attack SCENARIO OUTCOMES [CONDITION...]
#                              has the requester run a scenario, and compares what comes of each message
#   attack_begins SCENARIO [CONDITION...]
#   attack_comes_to OUTCOMES
#   attack_ends                the same in three steps
#   server_goes_and_comes      ends nfsd, takes its module away, and brings both back
#
# Each attack prints a line with the memory that the server's kernel holds: before, while the requester is
# through with its messages, and after. It may take what the server's limits allow (held), and is to leave
# no more than holds_check lets two hundred repetitions leave, and each file of the mount meanwhile; but
# where the kernel looks for leaks itself.
#
# A condition is on a value of the requester's newest connection while that is up (NAME=N, NAME<N, NAME>N),
# on one of the listener then (listener:NAME=N), or on by how much one of the listener has grown when all is
# over, and only the mount's connection is left (NAME+N). All ends of connections are told, by
# ended_CAUSE+N; without any it is one connection, which the requester has ended. Before the others,
# "anew" says that none are told, as the listener is a new one by then. WAIT=SECONDS before attack, or
# attack_comes_to, is how long the outcomes may take.

# shellcheck source=/dev/null
. "$(dirname "${BASH_SOURCE[0]}")/test.sh"

# Also run before each command in the server.
guest_add <<-'EOF'
	# Values of the newest connection, or of the listener: NAME=N, NAME<N, NAME>N. Some are only counted once
	# a Send has completed, which its receiver may see before.
	is_true() {
		local found
		found=$($1 ${2%%[=<>]*})
		case $2 in
		*">"*) [ "$found" -gt "${2#*>}" ] ;;
		*"<"*) [ "$found" -lt "${2#*<}" ] ;;
		*) [ "$found" = "${2#*=}" ] ;;
		esac
	}
	compare() { wait_for 10 is_true "$@" || fail "it is $($1 ${2%%[=<>]*})"; }
	# Whether chains wait on so many connections for room on their send queues.
	waiting_are() { [ "$(cat /sys/kernel/debug/rpcrdma/connection-*/connection | grep -c "^send_queue_pending [1-9]")" = "$1" ]; }
	# Whether the Replies of the listener have as many pages as they may have.
	pages_are_used_up() { [ "$(listener_of reply_pages)" -ge "$(listener_of reply_pages_limit)" ]; }
	# No thread of nfsd waits for anything (S or D) but work (I).
	none_waits() {
		local comm
		! for comm in $(grep -slx nfsd /proc/[0-9]*/comm); do grep -s "^State:" "${comm%comm}status"; done | grep -q "	[SD] "
	}
	connections_are() { [ "$(listener_of connections)" = "$1" ]; }
	# KiB that the kernel holds: by parts, and what it cannot give back. Free pages that a CPU keeps are free.
	memory() {
		awk -v page=$(($(getconf PAGESIZE) / 1024)) -v parts="$(kernel_parts)" -v all="$(kernel_memory)" \
			'$1 == "count:" { all -= page * $2 } END { print parts, all }' /proc/zoneinfo
	}
	# KiB that connections may take: each as much as in long/memory.sh, its Receives beyond those of its first grant, and
	# the pages of its Calls.
	allowed() {
		local receives
		receives=$(cat /sys/kernel/debug/rpcrdma/connection-*/connection 2>/dev/null |
			awk '$1 == "receive_buffers" && $2 > 18 { more += $2 - 18 } END { print more + 0 }')
		echo $(($(listener_of connections) * 254 + $(listener_of read_pages) * $(getconf PAGESIZE) / 1024 + receives * 4))
	}
EOF

requester_stop() {
	client '[ ! -f /run/$TEST.pid ] || kill $(cat /run/$TEST.pid) 2>/dev/null || true; rm -f /run/$TEST.*'
}

# Starts a scenario: requester_begins SCENARIO.
requester_begins() {
	client SLOTS="${SLOTS:-}" CONNECTIONS="${CONNECTIONS:-}" CALLS="${CALLS:-}" SIZE="${SIZE:-}" scenario="$1" <<-'EOF'
		rm -f /run/$TEST.*
		mkfifo /run/$TEST.go
		: >/run/$TEST.out
		export SLOW SLOTS CONNECTIONS CALLS SIZE FILE=/export/$TEST/file
		setsid /lab/payload/rpcrdma-peer --requester $SERVER $scenario <>/run/$TEST.go >/run/$TEST.out 2>&1 &
		echo $! >/run/$TEST.pid
	EOF
}

attack_begins() {
	local condition ends=0
	scenario=$1 checks='' before=()
	shift
	for condition; do [[ $condition != ended_*+* ]] || ends=$((ends + ${condition##*+})); done
	if [ "${1:-}" = anew ]; then
		shift
	else
		# One that nothing is said of ends with the requester, which has it.
		[ $ends != 0 ] || { ends=1 && set -- "$@" ended_disconnected+1; }
		set -- "$@" "ended_.*+$ends"
	fi
	for condition; do
		case $condition in
		*+*) before+=("${condition%+*} $(server name="${condition%+*}" 'listener_of "$name"') ${condition##*+}") ;;
		listener:*) checks+="compare listener_of '${condition#*:}'"$'\n' ;;
		*) checks+="compare stat_of '$condition'"$'\n' ;;
		esac
	done
	requester_begins "$scenario"
}

attack_comes_to() {
	found=$(LIMIT=$((${WAIT:-50} + 70)) client limit="${WAIT:-50}" scenario="$scenario" <<-'EOF'
		wait_for $limit grep -q "^$scenario: " /run/$TEST.out
		cat /run/$TEST.out
	EOF
	) || fail "$found"
	found=$(squeeze <<<"$found")
	[ "$found" = "$scenario: $1" ] || fail "$found: that should be $1"
	held=$(server checks="$checks" 'eval "$checks"; echo $(memory) $(allowed)') || fail "$found: $held"
}

attack_ends() {
	local condition name was more files times allowed parts after
	files=$(client <<-'EOF'
		gone() { ! kill -0 $(cat /run/$TEST.pid) 2>/dev/null; }
		# Nobody may be there any more to read it.
		echo 1<>/run/$TEST.go
		wait_for 20 gone
		work_done
	EOF
	)
	after=$(LIMIT=120 server 'wait_for 100 connections_are 1; shrink_slabs; memory') || fail "$found: $after"
	times=$((200 + files - memory[2]))
	read -r _ held allowed <<<"$held"
	read -r parts after <<<"$after"
	printf '%s, %d KiB before, %d held, %d after\n' "$found" "${memory[1]}" "$held" "$after"
	if ! server finds_leaks; then
		[ $((held - memory[1])) -lt $((allowed + times * 100)) ] || fail "that is more than $allowed KiB for its connections and their Calls"
		[ $((parts - memory[0])) -lt $((times * 8)) ] || fail "it has left $((parts - memory[0])) KiB of slabs and the like"
		[ $((after - memory[1])) -lt $((times * 100)) ] || fail "it has left $((after - memory[1])) KiB"
	fi
	memory=("$parts" "$after" "$files")
	for condition in "${before[@]}"; do
		read -r name was more <<<"$condition"
		server name="$name" was="$was" more="$more" <<-'EOF'
			[ $(listener_of "$name") = $((was + more)) ] || {
				cat /sys/kernel/debug/rpcrdma/listener-*/listener
				fail "$name was $was, and is $(listener_of "$name")"
			}
		EOF
	done
}

attack() {
	local outcomes=$2
	attack_begins "$1" "${@:3}"
	attack_comes_to "$outcomes"
	client 'work_goes_on 55'
	attack_ends
}

# nfsd ends and its module can go, without waiting for any client, and both come back. On a machine that has nothing
# else to do that takes less than two seconds; the server gives no silent client up before twenty.
server_goes_and_comes() {
	defer server '[ $(cat /proc/fs/nfsd/threads) != 0 ] || /lab/guest/server resume'
	defer server 'module_loaded || insmod /lab/payload/server/rpcrdma.ko'
	LIMIT=150 server <<-'EOF'
		start=${EPOCHREALTIME/./}
		/lab/guest/server stop
		took=$(((${EPOCHREALTIME/./} - start) / 1000))
		printf "nfsd has ended within %d ms\n" $took
		[ $took -lt $((10000 * ${SLOW:-1})) ] || fail "that is too slow"
		wait_for 20 module_unused
		! ls -d /sys/kernel/debug/rpcrdma/*-* 2>/dev/null || fail "the service has ended, and has left files"
		module_unload
		insmod /lab/payload/server/rpcrdma.ko
		/lab/guest/server resume
	EOF
}

beside_a_mount() {
	local memory scenario found held checks before
	need_requester
	defer requester_stop
	# What is only made once is there afterwards: as many pages for RDMA Reads as the listener keeps.
	mount_nfs 4.2
	client 'dd if=/dev/zero of=$MNT/$TEST.first bs=1M count=16 conv=fsync status=none && rm $MNT/$TEST.first'
	client 'umount $MNT && wait_for 10 module_unused'
	server 'clients_gone 20; holds_mark'
	server_dir /export
	server 'head -c 100000 /dev/urandom >/export/$TEST/file'
	mount_nfs 4.2
	work_begins
	server 'end_grace'
	# By parts, in all, and the files of the work by then.
	read -ra memory <<<"$(server 'shrink_slabs; memory') $(client work_done)"
	"$1"
	work_ends
	client 'umount $MNT && wait_for 10 module_unused'
	server 'clients_gone 20; rm -r /export/$TEST; mkdir /export/$TEST; holds_check 200'
}
