#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A delegation that the server hands out and then recalls, over the connection's other direction.

. "$(dirname "$0")/lib/test.sh"

guest_add <<-'EOF'
	delegations() { cat /proc/fs/nfsd/clients/*/states 2>/dev/null | grep -c "type: deleg" ||
		true; }
	has_delegation() { [ $(delegations) -gt 0 ]; }
	events=/sys/kernel/tracing/events/nfsd trace=/sys/kernel/tracing/trace
EOF

# Proves: BD-001, BD-016, BD-017, BD-022, BD-025, BD-028.
recall() {
	local vers=$1 reconnect=${2:-} calls
	[ -z "$reconnect" ] || needs_machines "takes the client's RDMA device away"
	server_dir /export
	server <<-'EOF'
		printf 'the first\n' >/export/$TEST/file
		[ $(delegations) = 0 ] || fail 'there is a delegation already'
		end_grace
		[ -d $events/nfsd_cb_recall ] || exit 0
		echo >$trace
		for event in nfsd_cb_recall nfsd_cb_recall_done; do
			echo 1 >$events/$event/enable
		done
	EOF
	defer server 'for file in $events/nfsd_cb_recall*/enable; do echo 0 >$file; done'
	mount_nfs "$vers"
	if [ -n "$reconnect" ]; then
		is_rust || skip "with the kernel's own client the removal of a device may not end"
		# The connection goes with the device; the session has to be bound to the next one.
		defer client rdma_link_add
		client 'rdma link delete $RDMA_LINK && rdma_link_add'
		client 'ls $MNT/$TEST >/dev/null'
	fi
	# Until the server has tried the connection's other direction it hands out nothing.
	server 'wait_for 10 callback_works'
	# It holds the file open, and with it the delegation, until it is told.
	client 'rm -f /run/$TEST.*'
	client_background holder <<-'EOF'
		exec 3<$MNT/$TEST/file
		cat <&3 >/run/$TEST.first
		touch /run/$TEST.open
		wait_for 60 test -f /run/$TEST.stop
		cat $MNT/$TEST/file >/run/$TEST.second
	EOF
	defer client 'touch /run/$TEST.stop'
	client 'wait_for 20 test -f /run/$TEST.open'
	server 'has_delegation || fail "the client got no delegation"'
	calls=$(client 'our_stat backward_calls || true')

	# Not a client: an open on the server itself waits for the delegation in just the same way.
	LIMIT=40 server <<-'EOF'
		timeout 30 bash -c "echo the second >>/export/$TEST/file" ||
			fail 'the delegation was not returned'
	EOF
	server <<-'EOF'
		! has_delegation || fail 'the delegation is still there'
		if [ -d $events/nfsd_cb_recall ]; then
			grep -q 'nfsd_cb_recall:' $trace || fail 'there was no recall'
			grep -q 'nfsd_cb_recall_done:.*status=0' $trace ||
				{ cat $trace; fail 'no recall was answered'; }
		fi
	EOF
	if [ -n "$calls" ]; then
		[ "$(client 'our_stat backward_calls')" -gt "$calls" ] ||
			fail "the transport counted no backward call"
	fi

	client 'touch /run/$TEST.stop'
	client_wait holder
	client <<-'EOF'
		[ "$(cat /run/$TEST.first)" = 'the first' ]
		[ "$(tail -n 1 /run/$TEST.second)" = 'the second' ] ||
			fail 'the client does not see what was written'
		[ "$(wc -l </run/$TEST.second)" = 2 ]
		rm /run/$TEST.*
		umount $MNT
		wait_for 10 module_unused
	EOF
	# Of the connection that went with the device the server may not know.
	[ -z "$reconnect" ] || server_anew
}

for vers in 4.1 4.2; do
	test_case "v$vers: a delegation is recalled and returned" recall $vers
done
test_case "v4.2: the same on a second connection" recall 4.2 reconnect
run_cases
