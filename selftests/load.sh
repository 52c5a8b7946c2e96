#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Loading and unloading the transport's module.

. "$(dirname "$0")/lib/test.sh"

check_aliases() {
	client <<-'EOF'
		for alias in rpcrdma6 svcrdma xprtrdma; do
			grep -qx $alias <<<"$(modinfo -F alias "$(module_file)")" ||
				fail "there is no alias $alias"
		done
		[ "$(modinfo -F name "$(module_file)")" = rpcrdma ]
	EOF
}

reload() {
	defer client 'module_loaded || module_load'
	client <<-'EOF'
		module_unused || fail "the module is in use before the test: $(module_uses)"
		mark=$(log_mark)
		rmmod rpcrdma
		! module_loaded || fail "the module is loaded"
		log_has $mark "RPC: Unregistered rdma transport module\." ||
			fail "no word of the unload in the log"
		! log_has $mark "RPC: Registered" || fail "the log has a registration"
		module_load
		log_has $mark "RPC: Registered rdma transport module\." ||
			fail "no word of the load in the log"
		module_unused || fail "the module is in use after the load: $(module_uses)"
		! insmod "$(module_file)" 2>/run/$TEST.err || fail "the module was loaded twice"
		grep -q "File exists" /run/$TEST.err ||
			fail "the wrong error: $(cat /run/$TEST.err)"
	EOF
}

refuse_unload() {
	mount_nfs 3
	client <<-'EOF'
		[ "$(module_uses)" -gt 0 ] || fail "a mount does not hold the module"
		! rmmod rpcrdma 2>/run/$TEST.err || fail "a module in use was unloaded"
		grep -q "in use" /run/$TEST.err
		ls $MNT >/dev/null
		umount $MNT
		wait_for 10 module_unused
		rmmod rpcrdma
		module_load
	EOF
}

# second_class WHICH CLASS COUNT: for each role, what the log calls its class, and how many classes
# come before it.
second_class() {
	client '[ -f /lab/payload/rpcrdma_test_class.ko ]' ||
		skip "the payload has no rpcrdma_test_class.ko"
	defer client 'module_loaded || module_load'
	client which="$1" 'rmmod rpcrdma && insmod /lab/payload/rpcrdma_test_class.ko which=$which'
	defer client '! grep -q ^rpcrdma_test_class /proc/modules || rmmod rpcrdma_test_class'
	client class="$2" times="$3" <<-'EOF'
		name="$class" count=$times
		before=$(rdma_resources)
		mark=$(log_mark)
		! insmod "$(module_file)" 2>/run/$TEST.err || fail "a second class was registered"
		# The loader keeps EEXIST for modules of the same name and makes EBUSY of it
		# otherwise.
		grep -qE "File exists|Device or resource busy" /run/$TEST.err ||
			fail "the wrong error: $(cat /run/$TEST.err)"
		module_left_nothing
		log_has $mark "another module has registered the $name: unload it$"
		lines() { log_since $mark | grep -c "RPC: $1 rdma" || true; }
		[ "$(lines Registered) $(lines Unregistered)" = "$count $count" ] ||
			fail "the log has other registrations"
		# /proc takes these from their owners when it refuses one that is there already.
		cat /proc/sys/sunrpc/{rdma_slot_table_entries,rpc_debug} ||
			fail "files of others are gone"
		rdma_resources_are "$before" ||
			fail "the device had $before and has $(rdma_resources)"
		rmmod rpcrdma_test_class
		module_load
		log_has $mark "RPC: Registered rdma transport module\."
	EOF
}

reload_often() {
	defer client 'module_loaded || module_load'
	client <<-'EOF'
		before=$(rdma_resources)
		mark=$(log_mark)
		for _ in {1..20}; do
			rmmod rpcrdma
			module_load
		done
		[ "$(log_since $mark | grep -c "RPC: Registered rdma transport")" = 20 ]
		rdma_resources_are "$before" ||
			fail "the device had $before and has $(rdma_resources)"
		mount_nfs 3
		ls $MNT >/dev/null
		umount $MNT
	EOF
}

# The module goes in the very moment in which it can, with callbacks of sunrpc about to return.
unload_behind_unmounts() {
	defer client 'module_loaded || module_load'
	client <<-'EOF'
		for round in {1..10}; do
			mount_nfs 4.2
			ls $MNT >/dev/null
			umount $MNT
			wait_for 10 rmmod rpcrdma 2>/run/$TEST.err ||
				fail "round $round: $(tail -n 2 /run/$TEST.err)"
			module_load
		done
	EOF
}

# A worker that has dropped the last reference to the module has yet to leave it.
unload_behind_the_last_reference() {
	is_rust || skip "nothing waits for a worker of the C module"
	defer client 'module_loaded || module_load'
	delay_events last_put=500
	client <<-'EOF'
		for round in {1..3}; do
			hits=$(delayed)
			mount_nfs 4.2
			ls $MNT >/dev/null
			umount $MNT
			wait_for 10 rmmod rpcrdma 2>/run/$TEST.err ||
				fail "round $round: $(tail -n 2 /run/$TEST.err)"
			# mount.nfs may have had a transport more.
			printf "round %d: %d workers have slept\n" $round $(($(delayed) - hits))
			[ $(delayed) -gt $hits ]
			# The next module may well be in the place of this one.
			sleep 1
			module_load
		done
	EOF
}

test_case "modinfo names the aliases" check_aliases
test_case "the log tells of unload and load" reload
test_case "unload is refused while mounted" refuse_unload
test_case "a class that is there already refuses the module" second_class client \
	'transport class "rdma"' 0
test_case "a backward class that is there already refuses the module" second_class backward \
	'transport class "rdma backchannel"' 1
test_case "a server's class that is there already refuses the module" second_class server \
	'server class "rdma"' 2
test_case "twenty times unload and load" reload_often
test_case "unload right behind an unmount" unload_behind_unmounts
test_case "unload before a worker has left" unload_behind_the_last_reference
run_cases
