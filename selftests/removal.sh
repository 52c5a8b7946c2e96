#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The RDMA device goes away under I/O, or while the client connects, and comes back: its removal is
# not held up, and the program sees only a pause.
# virtual: takes the client's RDMA device away

. "$(dirname "$0")/lib/test.sh"

remove_device() {
	server_dir /export
	mount_nfs "$1"
	work_begins
	defer client rdma_link_add
	# The kernel's own client takes more than a minute.
	is_rust || tasks_wait client 120
	start=$SECONDS
	LIMIT=100 client 'rdma link delete $RDMA_LINK'
	printf 'the removal took about %d seconds\n' $((SECONDS - start))
	client <<-'EOF'
		! grep $RDMA_LINK <<<"$(rdma link show)" || fail "the device is still there"
		rdma_link_add
	EOF
	client 'work_goes_on 60'
	work_ends
	server_forgets
}

# The path is dead, so that the connection manager repeats its request, for minutes. Only the order of
# events tells that the removal has not waited for that.
remove_while_connecting() {
	is_rust || skip "with the kernel's own client the removal of a device may not end"
	# The server believes the old connection alive until it sends something there. That would be the
	# recall of a delegation, for which its own programs wait most of a minute.
	server 'sysctl -qw fs.leases-enable=0'
	defer server 'sysctl -qw fs.leases-enable=1'
	server_dir /export
	netem_begins client
	mount_nfs "$1"
	work_begins
	defer client 'ip neigh del $SERVER dev $NETDEV'
	defer client rdma_link_add
	# What resolves the address must not be the first to fail.
	client 'ip neigh replace $SERVER dev $NETDEV nud permanent lladdr $(ip neigh show $SERVER dev $NETDEV | sed "s/.*lladdr \([^ ]*\).*/\1/")'
	trace_begins client rpcrdma/xprtrdma_device_removal rdma_cma/cm_event_handler rdma_cma/cm_send_req rdma_cma/cm_id_destroy ib_mad/ib_mad_ib_send_mad
	netem client 'loss 100%'
	client <<-'EOF'
		rdma link delete $RDMA_LINK
		rdma_link_add
		trace_mark "the device is back"
		wait_for 50 trace_since "the device is back" cm_send_req:
	EOF
	LIMIT=150 client <<-'EOF'
		trace_mark "the removal begins"
		rdma link delete $RDMA_LINK
		trace_mark "the removal is over"
		trace_between "the removal begins" "the removal is over" >/run/$TEST.trace
		cat /run/$TEST.trace
	EOF
	client <<-'EOF'
		grep -q "xprtrdma_device_removal:" /run/$TEST.trace || fail "nobody was told of the removal"
		! grep -q "cm_event_handler:.*UNREACHABLE" /run/$TEST.trace || fail "the connection manager gave up before"
		# A request has this number.
		[ "$(grep -c "ib_mad_ib_send_mad:.* attr_id 0x10 " /run/$TEST.trace)" -lt 2 ] || fail "the connection manager went on all the while"
		rm /run/$TEST.trace
	EOF
	netem client
	client rdma_link_add
	client 'work_goes_on 60'
	work_ends
	server_forgets
}

# Programs come while there is no device, and RPCs are slow to hear so. By then the next attempt to
# connect is under way, whose connection they must not end.
slow_to_hear() {
	local connects
	server_dir /export
	mount_nfs "$1"
	work_begins
	connects=$(client 'xprt_stat 3')
	# Less than the pause before the second attempt.
	delay_events failed_connect=700
	# Not in the folder that the other program has locked.
	client_background programs <<-'EOF'
		rm -f /run/$TEST.*
		n=0
		while [ ! -f /run/$TEST.stop ]; do
			n=$((n + 1))
			stat $MNT/none$n >/dev/null 2>&1 &
			sleep 0.1
		done
		wait
	EOF
	defer client 'touch /run/$TEST.stop && wait_for 50 test -f /run/job.programs.status'
	defer client rdma_link_add
	client <<-'EOF'
		rdma link delete $RDMA_LINK
		failed() { [ "$(delayed)" -gt 0 ]; }
		wait_for 30 failed
		rdma_link_add
		work_goes_on 55
	EOF
	work_ends
	client 'touch /run/$TEST.stop'
	client_wait programs
	client wanted=$((connects + 1)) connects="$connects" <<-'EOF'
		rm -f /run/$TEST.*
		printf '%d RPCs were slow to hear of a failure\n' $(delayed)
		[ $(xprt_stat 3) = $wanted ] || fail "the transport had $connects connections and has had $(xprt_stat 3)"
	EOF
	server_forgets
}

# There is no device when a mount begins. mount.nfs tries again and again, and each try leaves one line.
device_comes_late() {
	is_rust || skip "the kernel's own client ends a mount at once, with EPROTO"
	defer client rdma_link_add
	defer unmount_nfs
	client <<-'EOF'
		rdma_link_delete
		log_mark >/run/$TEST.mark
	EOF
	client_background mount <<-'EOF'
		strace -qq -f -e trace=mount -o /run/$TEST.calls mount -t nfs -o proto=rdma$SIX,port=20049,vers=4.2 $AT_SERVER:/export $MNT
	EOF
	client <<-'EOF'
		failed() { grep -c "= -1 " /run/$TEST.calls || true; }
		four() { [ "$(failed)" -ge 4 ]; }
		wait_for 50 four
		rdma_link_add
	EOF
	LIMIT=100 client_wait mount
	client <<-'EOF'
		ls $MNT >/dev/null
		failed=$(grep -c "= -1 " /run/$TEST.calls)
		lines=$(log_since $(cat /run/$TEST.mark) | grep -c "rpcrdma: server .*: device none: no RDMA device")
		[ $lines = $failed ] || fail "$failed tries have failed, and have left $lines lines"
		rm /run/$TEST.*
		umount $MNT && wait_for 10 module_unused
	EOF
}

test_case "v4.2: the device comes when a mount has begun" device_comes_late
test_case "v4.2: the device is removed and added under I/O" remove_device 4.2
test_case "v3: RPCs are slow to hear that there was no device" slow_to_hear 3
for vers in 3 4.2; do
	test_case "v$vers: the device is removed while the client connects" remove_while_connecting $vers
done
run_cases
