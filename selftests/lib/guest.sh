# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034 # The commands that follow this text use the variables.
#
# What stands before every command that a test runs in a machine.

set -euo pipefail
MNT=/mnt/nfs

fail() {
	printf '%s\n' "$*"
	exit 1
}

# wait_for SECONDS COMMAND...: waits until the command succeeds, for no longer than that.
wait_for() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || fail "no success in time: $*"
		sleep 0.1
	done
}

mount_nfs() {
	mount -t nfs -o "rdma,port=20049,vers=$1,sec=sys${2:+,$2}" "$SERVER:${3:-/export}" $MNT
}

# Number N, from 1, of the line that the transport writes to mountstats.
xprt_stat() {
	awk -v n="$1" '/^device .* mounted on / { here = $5 == "'$MNT'" }
		here && $1 == "xprt:" && $2 == "rdma" { print $(n + 2); exit }' /proc/self/mountstats
}

# Whether the mount's transport counts as connected: the only RDMA mount's, or all of them.
xprt_connected() { ! cat /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/xprt_state | grep -qvw CONNECTED; }
xprt_unconnected() { ! xprt_connected; }

# A value of our module's debugfs, of the transport with the highest number.
our_stat() {
	local dir
	dir=$(find /sys/kernel/debug/rpcrdma -mindepth 1 -maxdepth 1 -name '[0-9]*' 2>/dev/null | sort -V | tail -n 1)
	[ -n "$dir" ] && awk -v name="$1" '$1 == name { print $2 }' "$dir/stats" "$dir/connection"
}

module_file() {
	if [ -f /lab/payload/rpcrdma.ko ]; then
		printf '/lab/payload/rpcrdma.ko\n'
	else
		modinfo -n rpcrdma
	fi
}
module_loaded() { grep -q '^rpcrdma ' /proc/modules; }
# Prints nothing when the module is not loaded.
module_uses() { awk '$1 == "rpcrdma" { print $3 }' /proc/modules; }
module_unused() { [ "$(module_uses)" = 0 ]; }
module_load() { insmod "$(module_file)"; }

# What the RDMA device holds: queue pairs, completion queues and so on, as one line.
rdma_resources() { rdma resource show | grep -oE '(qp|cq|pd|mr|cm_id) [0-9]+' | tr '\n' ' '; }
rdma_resources_are() { [ "$(rdma_resources)" = "$1" ]; }

# Take the machine's RDMA device away and add it again; neither minds what is there.
rdma_link_delete() { ! rdma link show "$RDMA_LINK/1" >/dev/null 2>&1 || rdma link delete "$RDMA_LINK"; }
rdma_link_add() {
	rdma link show "$RDMA_LINK/1" >/dev/null 2>&1 || rdma link add "$RDMA_LINK" type "$TRANSPORT" netdev "$NETDEV"
}

# The events that trace_begins in lib/test.sh asked for, and marks among them.
TRACING=/sys/kernel/tracing
trace_mark() { printf '%s\n' "$1" >$TRACING/trace_marker; }
trace_since() { sed "1,/tracing_mark_write: $1\$/d" $TRACING/trace | grep -q "$2"; }
trace_between() { sed "1,/tracing_mark_write: $1\$/d; /tracing_mark_write: $2\$/,\$d" $TRACING/trace; }

# The kernel's messages since this mark, wherever the log begins by now.
log_mark() {
	local mark=mark-$RANDOM$RANDOM
	printf '%s: %s\n' "$TEST" "$mark" >/dev/kmsg
	printf '%s\n' "$mark"
}
log_since() { dmesg | sed "1,/$1/d"; }
log_has() { log_since "$1" | grep -qE "$2"; }

drop_caches() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# Writes file after file of this size to the mount and reads each back, until work_end; an error
# ends it.
work() {
	local n=0 files=$MNT/$TEST
	head -c "$1" /dev/urandom >/run/work.data
	while [ ! -f /run/work.stop ]; do
		n=$((n + 1))
		{ echo $n && cat /run/work.data; } >/run/work.file
		dd if=/run/work.file of="$files/$n" bs=1M conv=fsync status=none
		dd if="$files/$n" bs=1M iflag=direct status=none | cmp - /run/work.file
		sha256sum </run/work.file | sed "s/-/$n/" >>/run/work.sums
		echo $n >/run/work.count.tmp
		mv /run/work.count.tmp /run/work.count
	done
	cp /run/work.sums "$files/sums"
	sync "$files/sums"
}
work_done() { cat /run/work.count 2>/dev/null || echo 0; }
work_reached() { [ "$(work_done)" -ge "$1" ]; }
# Waits until two more files are through, not just one that was nearly so: work_goes_on SECONDS.
work_goes_on() { wait_for "$1" work_reached $(($(work_done) + 2)); }
work_end() { touch /run/work.stop; }
work_forget() { rm -f /run/work.*; }
