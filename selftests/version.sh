#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Which version of the protocol is spoken: for each setting of either end, and each kind of it; what is
# remembered of a server; and what a responder may do to a client that offers Version Two.
# limit: 1200
# virtual: has rpcrdma-peer listen at an address of the server

. "$(dirname "$0")/lib/peer.sh"
. "$(dirname "$0")/lib/version.sh"

guest_add <"$lib/inject-guest.sh"
TIMEOUT=$((2000 * ${SLOW:-1}))

guest_add <<-'EOF'
	INJECT=server
	# Lines "NAME VALUE" that what "our_stat" or "stat_of" tells has to have.
	are_by() {
		local name value found
		while read -r name value; do
			found=$($1 $name)
			[ "$found" = "$value" ] || fail "$name is $found, not $value"
		done
	}
	are() { are_by our_stat; }
	accepted_are() { are_by stat_of; }
EOF

ranges() {
	local machine setting
	for machine in client server; do
		offers $machine || continue
		setting=${machine}_setting
		defer "$machine" file="${!setting}" 'echo off >$file'
		"$machine" setting="${!setting}" <<-'EOF'
			[ $(cat $setting) = off ]
			for word in offered required off; do
				echo $word >$setting
				[ $(cat $setting) = $word ] || fail "it is $(cat $setting) after $word was written"
			done
			for word in on 1 offer requiredd '' -; do
				! echo $word 2>/dev/null >$setting || fail "it accepts $word"
				[ $(cat $setting) = off ]
			done
		EOF
	done
}

# Data and names both ways, checked; a directory larger than any threshold.
work() {
	client <<-'EOF'
		cd $MNT/$TEST
		for size in 0 500 1500 3000 5000 70001; do head -c $size /dev/urandom >data.$size; done
		for i in {1..60}; do : >"an entry whose name has some length, number $i"; done
		sha256sum data.* >/run/$TEST.sums
		sync -f .
		drop_caches
		sha256sum --quiet -c /run/$TEST.sums
		[ $(ls | wc -l) = 66 ]
		rm /run/$TEST.sums
		rm -r ./*
	EOF
}

# mounts VERS CLIENT SERVER VERSION: with these settings both ends speak this version.
# Proves: V1-163, V2-029, V2-030, V2-031, V2-035, V2-037.
mounts() {
	local refused=0
	[ "$2" = off ] || need_client
	[ "$3" = off ] || need_server
	[ "$2 $4" != 'offered 1' ] || refused=1
	settings "$2" "$3"
	server_dir /export
	mount_nfs "$1"
	work
	! offers client || client version="$4" refused="$refused" <<-'EOF'
		are <<-END
			version $version
			version_fallbacks $refused
			vers_errors_received $refused
			vers_errors_sent 0
			bad_replies 0
			inline_send 4096
			inline_receive 4096
		END
	EOF
	! offers server || server version="$4" refused="$refused" <<-'EOF'
		accepted_are <<-END
			version $version
			vers_errors_sent $refused
			chunk_errors_sent 0
			refused_messages $refused
			inline_send 4096
		END
	EOF
	client 'umount $MNT && wait_for 10 module_unused'
}

# Larger messages, by what both ends say of themselves when they connect.
# Proves: V2-004.
larger() {
	local old
	need_client
	need_server
	settings offered offered
	server_set max_req_size 16384
	for name in read write; do
		old=$(client name="$name" 'cat /proc/sys/sunrpc/rdma_max_inline_$name')
		defer client old="$old" name="$name" 'echo $old >/proc/sys/sunrpc/rdma_max_inline_$name'
		client name="$name" 'echo 8192 >/proc/sys/sunrpc/rdma_max_inline_$name'
	done
	server_dir /export
	mount_nfs 4.2
	work
	client <<-'EOF'
		are <<-END
			version 2
			inline_send 8192
			inline_receive 8192
		END
	EOF
	server <<-'EOF'
		accepted_are <<-END
			version 2
			inline_send 8192
		END
	EOF
}

# A mount of which one end requires what the other has not: refused_mount VERS CLIENT SERVER
refused_mount() {
	[ "$2" = off ] || need_client
	[ "$3" = off ] || need_server
	settings "$2" "$3"
	client vers="$1" setting="$2" <<-'EOF'
		rc=0 mark=$(log_mark)
		timeout 50 mount -t nfs -o rdma,port=20049,vers=$vers,sec=sys,retry=0,soft,timeo=20,retrans=1 $SERVER:/export $MNT 2>/run/$TEST.err || rc=$?
		cat /run/$TEST.err
		rm /run/$TEST.err
		[ $rc != 0 ] && [ $rc != 124 ] || fail "the mount ended with $rc"
		[ $setting = off ] ||
			log_has $mark 'it speaks Versions 1 to 1 of RPC-over-RDMA; this end speaks 1 and 2 if sunrpc.rdma_version_two is set to "offered"'
		wait_for 40 module_unused
	EOF
}

# What was learned of a server holds for the connections that follow, until the setting is written.
remembered() {
	need_client
	settings offered off
	server_dir /export
	mount_nfs 4.2
	client <<-'EOF'
		again() {
			break_connections
			wait_for 50 calling xprt_connected
		}
		are <<<"version_fallbacks 1"
		again
		are <<<"version_fallbacks 1"
		are <<<"version 1"
		echo offered >$client_setting
		again
		are <<<"version_fallbacks 2"
		are <<<"version 1"
	EOF
	work
}

# Connections that follow have what is set by then, whatever was spoken before.
changed() {
	need_client
	need_server
	settings offered off
	server_dir /export
	mount_nfs 4.2
	work
	client 'are <<<"version 1"'
	server 'echo offered >$server_setting'
	client 'echo offered >$client_setting; break_connections; wait_for 50 calling xprt_connected'
	work
	client 'are <<<"version 2"'
	server 'echo off >$server_setting'
	client 'break_connections; wait_for 50 calling xprt_connected'
	work
	client 'are <<<"version 1"; echo off >$client_setting; break_connections; wait_for 50 calling xprt_connected'
	work
	client 'are <<<"version 1"'
}

# Nor do later mounts of the server try again, nor the other transports of a mount.
outlasts() {
	need_client
	settings offered off
	server_dir /export
	mount_nfs 4.2
	client <<-'EOF'
		are <<-END
			version 1
			version_fallbacks 1
			known_version 1
		END
		umount $MNT
		wait_for 10 module_unused
		mount_nfs 4.2 nconnect=4
		for folder in /sys/kernel/debug/rpcrdma/[0-9]*; do
			awk '/^state/ && $2 == "connected" { n++ } /^version / { v = $2 } /^version_fallbacks/ { f = $2 } END { print n + 0, v, f + 0 }' $folder/connection $folder/stats
		done >/run/$TEST.found
		[ "$(sort -u /run/$TEST.found)" = "1 1 0" ] && [ "$(wc -l </run/$TEST.found)" = 4 ] || fail "they have, if they are connected, versions and fallbacks $(cat /run/$TEST.found)"
		rm /run/$TEST.found
	EOF
	work
	client 'umount $MNT && wait_for 10 module_unused'
	# It is tried again once that is to be forgotten.
	! offers server || server 'echo offered >$server_setting'
	client 'echo offered >$client_setting'
	client 'mount_nfs 4.2'
	if offers server; then
		client 'are <<<"version 2"; [ -z "$(our_stat known_version)" ] || fail "it is known to speak $(our_stat known_version)"'
	else
		client 'are <<<"version_fallbacks 1"'
	fi
	work
}

# peer_ends SETTING ITEM...: ends Calls to a peer as that expects, of which nothing is known before each.
peer_ends() {
	local guest=$guest
	guest_add word="$1" 'issue_begins() { echo $word >$client_setting; }'
	need_client
	defer client 'echo off >$client_setting'
	calls_end "${@:2}"
}

# Proves: V2-001, V2-002, V2-003, V2-005, V2-026, V2-027, V2-028, V2-030, V2-036.
agreed() {
	peer_ends offered 'two-agrees | calls=null,long,list,exchange,read,write size=2000 | version_fallbacks=0 vers_errors_received=0' \
		'two-agrees | calls=long+,list+,read+,write+,exchange+ size=5000 | version_fallbacks=0' \
		'two-exactly-4096 | calls=null,list size=4036 | version_fallbacks=0' \
		'two-exactly-4096 | calls=null,long size=4024 | version_fallbacks=0'
}

# The first Call is one of each form.
# Proves: V2-027, V2-028, V2-032, V2-035, V2-036.
refused() {
	local form items=()
	for form in null read write list long exchange; do
		items+=("two-refused | calls=$form,null,list,long size=2000 | version_fallbacks=1 vers_errors_received=1")
	done
	peer_ends offered "${items[@]}" 'two-refused-in-one | calls=exchange,null | version_fallbacks=1' \
		'two-refused-without-end | calls=read,null,null | version_fallbacks=1 ended_no_common_version=1'
}

# Proves: V2-033, V2-034, V2-039.
lost() {
	peer_ends offered 'two-lost | calls=read,null | version_fallbacks=0 known_version=1' \
		'two-lost-and-required | calls=read,list,null | version_fallbacks=0 known_version= ended_higher_version=1' \
		'two-executed-and-lost | calls=write,list,null | version_fallbacks=0 known_version=1' \
		'two-refused-and-lost | calls=write,null | version_fallbacks=1' \
		"two-unanswered | calls=null,null timeout_ms=$TIMEOUT | version_fallbacks=0"
}

# The same where it matters who is first: a fault point holds the client back meanwhile.
# Proves: V2-033, V2-034.
lost_between() {
	# Before the first message: nothing was learned, and Version Two is tried once more.
	trace_begins client rdma_cma/cm_event_done
	delay_events connected=600000
	MEANWHILE=ends_unused peer_ends offered \
		'two-not-begun | calls=read,null | version_fallbacks=0 known_version= connects=2'
	client 'insmod /lab/payload/rpcrdma_test_delay.ko refused=700'
	# Between the refusal and the Call in Version One.
	peer_ends offered 'two-refused-and-gone | calls=write,read,null | known_version=1 known_version_s>60'
	client '[ "$(delayed)" = 1 ]'
}

# Has the peer end the connection that the client has made, and is held back with, and lets the client
# go on when it knows. What ends before the client has taken it over was a failed attempt for it.
ends_unused() {
	client 'wait_for 30 delayed_are 1'
	peer_goes_on
	client 'wait_for 30 grep -q "DISCONNECTED consumer returns" $TRACING/trace'
	delays_end
}

# The first Call is killed. That its connection is lost then says nothing of Version Two; an answer does.
# Proves: V2-034.
killed() {
	peer_ends offered 'two-killed | calls=write+,sent,kill,null,read | known_version='
	trace_begins client rpcrdma/xprtrdma_version
	MEANWHILE=refused_when_killed peer_ends offered \
		'two-killed-and-refused | calls=read+,sent,kill,null,list | known_version=1 known_version_s>60'
	client '[ "$(grep -c xprtrdma_version: $TRACING/trace)" = 1 ]'
}

refused_when_killed() {
	client 'is_killed() { [ "$(our_stat local_invalidations)" = 1 ]; }; wait_for 30 is_killed'
	peer_goes_on
}

lost_later() {
	peer_ends offered 'two-agreed-and-lost | calls=null,read,list size=2000 | version_fallbacks=0 known_version='
}

# The server takes the first message, and the connection breaks before its Reply is sent.
first_reply_lost() {
	need_client
	need_server
	need_injection server
	settings offered offered
	server_dir /export
	mount_nfs_timeo 4.2
	client 'are <<<"version 2"'
	defer server inject_ends
	server 'inject_begins 100 1'
	client 'break_connections; wait_for 55 calling xprt_connected'
	server 'inject_is_over'
	work
	client <<-'EOF'
		are <<-END
			version 1
			version_fallbacks 0
			known_version 1
		END
	EOF
}

# The server has the first message in its hands when the connection goes, and its refusal is lost: the
# client, which ended the connection itself, has learned nothing, and hears it on the next one.
refusal_lost() {
	need_client
	need_server
	settings offered off
	server_dir /export
	mount_nfs 4.2
	client 'are <<<"version_fallbacks 1"'
	MACHINE=server delay_events refusing=600000
	client 'echo offered >$client_setting; break_connections'
	client_background caller 'ls $MNT/$TEST'
	server 'wait_for 20 delayed_are 1'
	client 'are <<<"version_fallbacks 1"; break_connections'
	server 'wait_for 40 delayed_are 2'
	delays_end server
	client_wait caller
	work
	client <<-'EOF'
		are <<-END
			version 1
			version_fallbacks 2
			vers_errors_received 2
			known_version 1
		END
	EOF
}

# Proves: V2-007, V2-008, V2-009, V2-010, V2-011, V2-012, V2-014, V2-016, V2-022, V2-038, V2-039.
hostile() {
	peer_ends offered 'two-answered-in-one | calls=list,null,read size=2000 | version_fallbacks=0' \
		'two-without-common-version | calls=null,read,list,exchange,null | ended_no_common_version=4' \
		'two-and-another-error | calls=read,write,exchange,long,list,null | chunk_errors_received=1 option_errors_received=1' \
		'two-then-others | calls=null,null,read,list,null | vers_errors_received=1' \
		'two-with-options | calls=null,read,list,null | option_errors_sent=8 chunk_errors_sent=8'
}

# Proves: V2-039.
required() {
	local mark
	mark=$(client log_mark)
	peer_ends required 'two-required-and-one | calls=list,null,null | ended_no_common_version=1'
	client mark="$mark" 'log_has $mark "it speaks Versions 1 to 1 of RPC-over-RDMA"'
}

# Proves: V2-024.
backward() { peer_ends offered 'two-backward | calls=null,null,null backward=1 | backward_calls=3'; }

test_case "what the settings accept" ranges
for vers in 3 4.2; do
	test_case "v$vers: neither end offers Version Two" mounts $vers off off 1
	test_case "v$vers: the server alone offers it" mounts $vers off offered 1
	test_case "v$vers: the client alone offers it" mounts $vers offered off 1
	test_case "v$vers: both ends offer it" mounts $vers offered offered 2
	test_case "v$vers: the client requires it" mounts $vers required offered 2
	test_case "v$vers: the server requires it" mounts $vers offered required 2
	test_case "v$vers: both ends require it" mounts $vers required required 2
	test_case "v$vers: the client requires it of a server without" refused_mount $vers required off
	test_case "v$vers: the server requires it of a client without" refused_mount $vers off required
done
test_case "what is known of a server" remembered
test_case "what is known of it later" outlasts
test_case "settings that change" changed
test_case "larger messages than the default" larger
test_case "a responder of both versions" agreed
test_case "a responder of Version One" refused
test_case "lost first messages" lost
test_case "connections lost before the first message, and behind its refusal" lost_between
test_case "connections lost behind the agreement" lost_later
test_case "first Calls that are killed" killed
test_case "a first Reply that is lost" first_reply_lost
test_case "a refusal that is lost" refusal_lost
test_case "responders that break the rules" hostile
test_case "a responder that answers in Version One where Two is required" required
test_case "backward Calls" backward
run_cases
