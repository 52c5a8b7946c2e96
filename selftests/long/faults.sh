#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# EVENTS faults of all kinds at either end, one after the other, in an order that SEED decides, while programs
# write, read and compare. After each the work has to go on. A table tells how often each kind was tried,
# and the longest time from the fault until two more files were through; then nothing is left at either end.
# limit: 5400
# expect: WARNING: drivers/infiniband/sw/rxe/rxe_comp\.c
# virtual: breaks the machines in every way

. "$(dirname "$0")/../lib/test.sh"

EVENTS=${EVENTS:-500} SEED=${SEED:-1}
guest_add <"$lib/inject-guest.sh"
guest_add <"$lib/shortage-guest.sh"

# Kinds of faults, and how many of a hundred are of each.
kinds=(address disconnect shortage loss reorder duplicate blackhole device restart kill)
shares=(25 23 15 6 6 6 4 5 2 8)
# With this module in the server there are those as well: sunrpc breaks a connection there, allocations of
# the module's fail, its device or the module goes and comes, the client vanishes without a word.
served_kinds=(address disconnect shortage loss reorder duplicate blackhole device restart kill
	served_disconnect served_shortage served_device reload vanish)
served_shares=(8 8 8 5 5 5 4 4 3 8 18 10 6 3 5)
! is_served || kinds=("${served_kinds[@]}") shares=("${served_shares[@]}")
declare -A tried=() recovered=() longest=()
data_errors='not known'
machines=(client server)

# Tells how many milliseconds it took until the work went on.
guest_add <<-'EOF'
	fault_begins() { echo "${EPOCHREALTIME/./}" >/run/faults.began; }
	fault_over() {
		# NFS asks after 60 s for a Reply whose loss nothing tells of.
		work_goes_on 100
		echo $(((${EPOCHREALTIME/./} - $(cat /run/faults.began)) / 1000))
	}
EOF

# Each of these gets a number to choose with, and ends with the fault over or on its way out.

do_address() { client break_connections; }
# disconnect MACHINE
disconnect() {
	"$1" INJECT="$1" <<-'EOF'
		inject_begins 100 1
		wait_for 30 inject_is_over
		inject_ends
	EOF
}
do_disconnect() { disconnect client; }
do_served_disconnect() { disconnect server; }
# shortage MACHINE NUMBER: a connection that has all that it needs would allocate nothing, a new one does.
shortage() {
	"$1" nth=$((2 + $2 % 9)) 'shortage_begins $nth'
	# What breaks it waits for an attempt to connect, of which none may succeed.
	client_background break break_connections
	"$1" <<-'EOF'
		wait_for 30 has_failed 3
		shortage_ends
	EOF
	client_wait break
}
do_shortage() { shortage client "$1"; }
do_served_shortage() { shortage server "$1"; }
burst() {
	netem "$1" "$2"
	client 'work_goes_on 100'
	netem "$1"
}
do_loss() { burst "${machines[$1 % 2]}" "loss $((1 + $1 / 2 % 5))%"; }
do_reorder() { burst "${machines[$1 % 2]}" "delay 2ms reorder 95%"; }
do_duplicate() { burst "${machines[$1 % 2]}" "duplicate 20%"; }
do_blackhole() {
	netem "${machines[$1 % 2]}" "loss 100%"
	# Not to wait for anything: so long the fault lasts.
	sleep $((1 + $1 / 2 % 5))
	netem "${machines[$1 % 2]}"
}
do_device() {
	client 'rdma link delete $RDMA_LINK && rdma_link_add'
}
do_served_device() {
	server 'rdma link delete $RDMA_LINK && rdma_link_add'
}
# The client's device goes while nothing reaches the server, which hears nothing of it, and has RDMA Reads
# under way, or Replies.
do_vanish() {
	netem client 'loss 100%'
	client 'rdma link delete $RDMA_LINK && rdma_link_add'
	netem client
}
do_restart() {
	server '/lab/guest/server stop'
	server '/lab/guest/server resume'
}
do_reload() {
	server <<-'EOF'
		/lab/guest/server stop
		wait_for 20 module_unused
		rmmod rpcrdma
		insmod /lab/payload/server/rpcrdma.ko
		/lab/guest/server resume
	EOF
}
do_kill() {
	local flags=(if=source iflag=direct of=/dev/null)
	[ $(($1 % 2)) = 0 ] || flags=(if=/run/faults.data of=target oflag=direct conv=notrunc)
	client flags="${flags[*]}" <<-'EOF'
		cd $MNT/$TEST
		rm -f /run/faults.rounds
		gone() { ! kill -0 $1 2>/dev/null; }
		setsid bash -c "while :; do dd $flags bs=1M status=none && echo >>/run/faults.rounds; done" &
		pid=$!
		trap 'kill -KILL -- -$pid 2>/dev/null || true' EXIT
		wait_for 60 test -s /run/faults.rounds
		kill -KILL -- -$pid
		wait $pid 2>/dev/null || true
		wait_for 60 gone -$pid
		cmp source /run/faults.data
	EOF
}

# event KIND NUMBER
event() {
	local kind=$1 took
	tried[$kind]=$((${tried[$kind]:-0} + 1))
	client fault_begins
	"do_$kind" "$2"
	took=$(LIMIT=130 client fault_over) || fail "$kind: $took"
	recovered[$kind]=$((${recovered[$kind]:-0} + 1))
	[ "$took" -le "${longest[$kind]:-0}" ] || longest[$kind]=$took
}

# A row for each kind, and their sums.
table() {
	local kind all=0 over=0 most=0
	printf '%-17s %8s %9s %16s\n' event injected recovered 'longest stall/ms'
	for kind in "${kinds[@]}"; do
		printf '%-17s %8d %9d %16d\n' "$kind" "${tried[$kind]:-0}" "${recovered[$kind]:-0}" "${longest[$kind]:-0}"
		all=$((all + ${tried[$kind]:-0})) over=$((over + ${recovered[$kind]:-0}))
		[ "${longest[$kind]:-0}" -le "$most" ] || most=${longest[$kind]}
	done
	printf '%-17s %8d %9d %16d\n' all $all $over "$most"
	printf 'data errors: %s\n' "$data_errors"
}

# Programs that check what they read: small files in a row, and fio at random places of larger ones.
io_begins() {
	mount_nfs "$1"
	client <<-'EOF'
		rm -f /run/faults.*
		head -c 1M /dev/urandom >/run/faults.data
		cp /run/faults.data $MNT/$TEST/source
		sync $MNT/$TEST/source
	EOF
	fio_begins --size=2M --bsrange=512-128k --rw=randrw --ioengine=psync --numjobs=2
	WORK_SIZE=16K work_begins
}

io_ends() {
	fio_ends
	LIMIT=300 work_ends
	mount_ends
	client 'rm -f /run/faults.*'
	# Of a client that vanished while its connection was at rest the server hears nothing: nfsd would close that
	# connection after minutes.
	! is_served || do_restart
}

# Puts KIND NUMBER into plan, EVENTS times.
draw() {
	local kind share
	RANDOM=$SEED
	while [ ${#plan[@]} -lt "$EVENTS" ]; do
		share=$((RANDOM % 100)) kind=0
		while [ $share -ge "${shares[kind]}" ]; do
			share=$((share - shares[kind])) kind=$((kind + 1))
		done
		plan+=("${kinds[kind]} $RANDOM")
	done
}

faults() {
	local plan=() item resources went=0 start
	need_injection client
	# Those of others may not fail: the software RDMA devices then answer no more.
	if client '[ -f /sys/kernel/debug/failslab/require-start ]'; then
		defer client shortage_ends
		defer server shortage_ends
	else
		printf 'without shortage: the kernel cannot choose which allocations to fail\n'
		for item in "${!kinds[@]}"; do
			[[ ${kinds[item]} != *shortage ]] || shares[0]=$((shares[0] + shares[item])) shares[item]=0
		done
	fi
	draw
	server_dir /export
	defer client 'rm -f /run/faults.*'
	defer server '[ $(cat /proc/fs/nfsd/threads) != 0 ] || /lab/guest/server resume'
	! is_served || defer server 'module_loaded || insmod /lab/payload/server/rpcrdma.ko'
	defer client inject_ends
	defer server inject_ends
	netem_begins "${machines[@]}"
	defer client rdma_link_add
	defer server rdma_link_add
	# What the first of each kind takes is not counted.
	io_begins "$1"
	for item in "${!kinds[@]}"; do
		[ "${shares[item]}" = 0 ] || event "${kinds[item]}" 0
	done
	io_ends
	tried=() recovered=() longest=()
	resources=$(client 'rdma_resources; holds_mark')
	server_mark
	defer table
	start=$SECONDS
	io_begins "$1"
	for item in "${plan[@]}"; do
		# shellcheck disable=SC2086 # Two words.
		event $item
		went=$((went + 1))
		[ $((went % 100)) != 0 ] || printf '%d events in %d seconds\n' $went $((SECONDS - start))
	done
	io_ends
	data_errors=0
	LIMIT=120 client resources="$resources" EVENTS="$EVENTS" <<-'EOF'
		wait_for 10 rdma_resources_are "$resources" || fail "the device had $resources and has $(rdma_resources)"
		holds_check $EVENTS
	EOF
	server_check "$EVENTS"
}

test_case "v4.2: $EVENTS faults, seed $SEED" faults 4.2
run_cases
