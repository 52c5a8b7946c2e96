# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034 # The commands that follow this text use the variables.
#
# What stands before every command that a test runs in a machine.

set -euo pipefail
MNT=/mnt/nfs
# The server's address as it stands before a colon, and what the names of protocols end with for it.
case ${SERVER:-} in
*:*) AT_SERVER="[$SERVER]" SIX=6 ;;
*) AT_SERVER=${SERVER:-} SIX= ;;
esac

fail() {
	printf '%s\n' "$*"
	exit 1
}

# What people want to see of a machine in which something failed.
show_state() {
	local file text
	for file in /sys/kernel/debug/rpcrdma/*/{connection,stats} \
		/sys/kernel/debug/sunrpc/{rpc_clnt/*/tasks,rpc_xprt/*/info} \
		/sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/xprt_{info,state} \
		/proc/fs/nfsd/clients/*/info; do
		text=$(cat "$file" 2>/dev/null) || true
		[ -z "$text" ] || printf '%s:\n%s\n' "$file" "$text"
	done
	awk '/xprt:.rdma/' /proc/self/mountstats
	# Who waits in the kernel, and where.
	for file in $(grep -ls '^State:.D' /proc/[0-9]*/status); do
		cat "${file%/*}"/{comm,stack} || true
	done
	rdma -d resource show cm_id || true
	# A software device that sends something again (completer_retry_err) registers what comes
	# behind it once more, which fails and ends the connection.
	rdma statistic show || true
	dmesg | tail -n 20
}

# wait_for SECONDS COMMAND...: whether the command succeeds in that time, or in as many times that
# as a slow kernel is slower.
wait_for() {
	local end=$((SECONDS + $1 * ${SLOW:-1}))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || {
			printf 'no success in time: %s\n' "$*" >&2
			return 1
		}
		sleep 0.1
	done
}

# Runs a command behind some Calls, for which a slow machine executes no program:
# wait_for 55 calling more.
calling() {
	local n
	for n in {1..20}; do [ ! -e "$MNT/$TEST/$SRANDOM" ]; done
	"$@"
}

mount_nfs() {
	mount -t nfs -o "proto=rdma$SIX,port=20049,vers=$1,sec=sys${2:+,$2}" \
		"$AT_SERVER:${3:-/export}" $MNT
}

# Number N, from 1, of the line that the transport writes to mountstats.
xprt_stat() {
	awk -v n="$1" '/^device .* mounted on / { here = $5 == "'$MNT'" }
		here && $1 == "xprt:" && $2 == "rdma" { print $(n + 2); exit }' \
			/proc/self/mountstats
}

# Whether the mount's transport counts as connected: the only RDMA mount's, or all of them.
xprt_connected() {
	local states
	states=$(cat /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/xprt_state) &&
		! grep -qvw CONNECTED <<<"$states"
}
xprt_unconnected() { ! xprt_connected; }

# Gives a transport of sysfs an address, which ends its connection, be it the old one: set_address
# FOLDER ADDRESS. Who waits there for the send lock is not woken when a sender lets it go
# (xprt_clear_locked()), so the wait is given up and begun again. Not too soon: an address that was
# taken by then is given once more.
set_address() {
	until printf '%s\n' "$2" | timeout -s KILL "${SLOW:-1}" tee "$1/dstaddr" >/dev/null; do
		[ $? = 137 ] || fail "$1 does not take the address $2"
	done
}
# Ends the connections of all RDMA transports.
break_connections() {
	local transport
	for transport in /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma; do set_address \
		"$transport" "$SERVER"; done
}

# A value of our module's debugfs, of the transport with the highest number.
our_stat() {
	local dir
	dir=$(find /sys/kernel/debug/rpcrdma -mindepth 1 -maxdepth 1 -name '[0-9]*' 2>/dev/null |
		sort -V | tail -n 1)
	[ -n "$dir" ] && awk -v name="$1" '$1 == name { print $2 }' "$dir/stats" "$dir/connection"
}

# The same of our server: of the connection that was accepted last, and of the listener at an
# address, or at all of the family. Of values whose names match the second sums up: stat_of NAME,
# listener_of REGEX [ADDRESS].
newest_connection() {
	find /sys/kernel/debug/rpcrdma -mindepth 1 -maxdepth 1 -name 'connection-*' 2>/dev/null |
		sort -V | tail -n 1
}
stat_of() { awk -v name="$1" '$1 == name { print $2 }' "$(newest_connection)"/{stats,connection}; }
listener_folder() {
	local all=0.0.0.0
	[ -z "$SIX" ] || all=::
	dirname "$(grep -lx "address ${1:-$all}" /sys/kernel/debug/rpcrdma/listener-*/listener |
		sort -V | tail -n 1)"
}
listener_of() {
	awk -v name="^$1\$" '$1 ~ name { sum += $2 } END { print sum + 0 }' \
		"$(listener_folder "${2:-}")/listener"
}

# The same of all its listeners together, also of one whose service has ended: all_listeners_of
# NAME.
all_listeners_of() {
	cat /sys/kernel/debug/rpcrdma/listener-*/listener 2>/dev/null |
		awk -v name="$1" \
		'$1 == name { sum += $2; seen = 1 } END { print seen ? sum : "nothing" }' || true
}

# Nobody gets a delegation while old locks may still be claimed, of NFSv3 or of v4.
end_grace() {
	local knob
	for knob in /proc/fs/lockd/nlm_end_grace /proc/fs/nfsd/v4_end_grace; do
		grep -q Y $knob || echo Y >$knob
	done
}

# Whether nfsd can call back a client of NFSv4.1 or later. One of NFSv4.0 stays for as long as its
# lease, and is called by TCP.
callback_works() { grep -ls '^minor version: [12]' /proc/fs/nfsd/clients/*/info |
	xargs grep -qs 'callback state: UP'; }

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
# None of these files is there: absent FILE...
absent() {
	local file
	for file; do
		[ ! -e "$file" ] || fail "$file is left"
	done
}
# Of a module that was not loaded, neither threads nor files stay.
module_left_nothing() {
	local threads
	! module_loaded || fail "the module is loaded"
	absent /sys/kernel/debug/rpcrdma /proc/sys/sunrpc/{rdma_max_inline_read,svc_rdma}
	# A worker of all queues that is idle still has the name of the last one, behind a minus.
	threads=$(grep . /proc/[0-9]*/comm 2>/dev/null || true)
	! grep -E ":(rpcrdma|kworker/(R-|.*[+])rpcrd)" <<<"$threads" || fail "a thread is left"
}

# How often somebody has slept since delay_events, of lib/test.sh.
delayed() { cat /sys/module/rpcrdma_test_delay/parameters/hits; }
delayed_are() { [ "$(delayed)" = "$1" ]; }

# What the RDMA device holds: queue pairs, completion queues and so on, as one line.
rdma_resources() { rdma resource show | grep -oE '(qp|cq|pd|mr|cm_id) [0-9]+' | tr '\n' ' '; }
rdma_resources_are() { [ "$(rdma_resources)" = "$1" ]; }

# Unloads the module, after which the device must have nothing of it.
module_unload() {
	local kind left
	rmmod rpcrdma
	for kind in qp cq pd mr cm_id; do
		left=$(rdma resource show $kind)
		! grep -F '[rpcrdma]' <<<"$left" ||
			fail "the module has gone, and has left a $kind"
	done
}
module_reload() {
	module_unload
	module_load
}

# What the RDMA device has counted, by the counter's name. Not all devices have each.
rdma_counter() { cat "/sys/class/infiniband/$RDMA_LINK/ports/1/hw_counters/$1"; }

# Take the machine's RDMA device away and add it again; neither minds what is there.
rdma_link_delete() { ! rdma link show "$RDMA_LINK/1" >/dev/null 2>&1 ||
	rdma link delete "$RDMA_LINK"; }
rdma_link_add() {
	rdma link show "$RDMA_LINK/1" >/dev/null 2>&1 ||
		rdma link add "$RDMA_LINK" type "$TRANSPORT" netdev "$NETDEV"
}

# The events that trace_begins in lib/test.sh asked for, and marks among them.
TRACING=/sys/kernel/tracing
trace_mark() { printf '%s\n' "$1" >$TRACING/trace_marker; }
trace_since() { [ -n "$(sed "1,/tracing_mark_write: $1\$/d" $TRACING/trace | grep -m 1 "$2")" ]; }
trace_between() { sed "1,/tracing_mark_write: $1\$/d; /tracing_mark_write: $2\$/,\$d" \
	$TRACING/trace; }

# The transports through which a server calls its client: they are told by its address, and from
# that of a client of NFSv4.0, which goes by TCP. The last one ends some time after the connection.
backward() { cat /sys/kernel/debug/sunrpc/rpc_xprt/*/info | grep -A1 "^netid: rdma" |
	grep -c "^addr: *$CLIENT\$" || true; }
no_backward() { [ "$(backward)" = 0 ]; }

# Whether our server has no connection, nor one that is on its way in or out.
no_connections() {
	[ "$(all_listeners_of connections)" = 0 ] && [ -z "$(newest_connection)" ] &&
		[ -z "$(rdma resource show cm_id | grep CONNECT)" ]
}
# Waits until its clients have gone, which have left nothing then: clients_gone SECONDS.
clients_gone() {
	local name
	wait_for "$1" no_connections
	wait_for 20 no_backward
	for name in read_pages reply_pages; do
		[ "$(all_listeners_of $name)" = 0 ] ||
			fail "the listeners have $name $(all_listeners_of $name)"
	done
}

# What must not grow with repetition. Transports that debugfs shows, sunrpc's, whose numbers are
# hexadecimal, and ours:
transports() {
	printf '%s\n' /sys/kernel/debug/{sunrpc/rpc_xprt,rpcrdma}/* | grep -cE '/[0-9a-f]+$' || true
}
# Of the kernel's threads those that belong to one workqueue; others come and go.
workqueue_threads() { cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^kworker/R' || true; }
# KiB that the kernel took by parts. What describes a chunk of per-CPU memory is megabytes, which it
# takes when a few more variables than before need one, whosever they are.
kernel_parts() {
	local page
	page=$(getconf PAGESIZE)
	{ cat /proc/meminfo /proc/vmallocinfo 2>/dev/null || true; } | awk -v page="$page" '
		/^(SUnreclaim|KernelStack|VmallocUsed|Percpu):/ { kib += $2 }
		/ pcpu_create_chunk\+/ { kib -= ($2 - page) / 1024 }
		END { print kib }'
}
# KiB that it cannot give back, with free pages that its CPUs keep.
kernel_memory() {
	awk '/^MemTotal:/ { kib += $2 }
		/^(MemFree|Buffers|Cached|SReclaimable|AnonPages):/ { kib -= $2 }
		END { print kib }' /proc/meminfo
}
# Pages in use that it counts among nothing else, such as those of packets and of modules.
other_pages() {
	awk -v page=$(($(getconf PAGESIZE) / 1024)) '
		/^MemTotal:/ { kib += $2 }
		/^(MemFree|Buffers|Cached|SwapCached|SReclaimable|SUnreclaim):/ { kib -= $2 }
		/^(AnonPages|KernelStack|PageTables|VmallocUsed|Percpu):/ { kib -= $2 }
		# Free pages that a CPU keeps.
		$1 == "count:" { kib -= page * $2 }
		END { print int(kib / page) }' /proc/meminfo /proc/zoneinfo
}
# Gives back what is only kept in reserve, so that the rest can be counted.
give_reserves_back() { shrink_slabs drop_caches; }
# shrink_slabs [COMMAND], which runs before. The files by which slabs are shrunk are open already,
# or a count would find those that the one before has left to RCU.
shrink_slabs() {
	local cache shrink files=()
	for cache in /sys/kernel/slab/*/shrink; do
		[ ! -e "$cache" ] || { exec {shrink}>"$cache" && files+=("$shrink"); }
	done
	"$@"
	for shrink in "${files[@]}"; do
		echo 1 >&"$shrink"
		exec {shrink}>&-
	done
}
# Objects in use of each kind, if this kernel tells. Areas of vmalloc stay when they are free, until
# there are many; what they hold is among the parts.
slab_objects() { [ ! -r /proc/slabinfo ] ||
	awk 'NR > 2 && $1 != "vmap_area" { print $1, $2 }' /proc/slabinfo; }
# Such a kernel delays what it frees, and looks for leaks itself.
finds_leaks() { [ -f /sys/kernel/debug/kmemleak ]; }

# holds_mark notes all of these; holds_check N fails if N times something left anything behind.
holds_mark() {
	give_reserves_back
	transports >/run/holds.transports
	workqueue_threads >/run/holds.threads
	slab_objects >/run/holds.objects
	printf '%d %d\n' "$(kernel_parts)" "$(other_pages)" >/run/holds.memory
}
# Whether there are fewer than so many more objects of each kind, or prints which are more.
holds_objects() {
	give_reserves_back
	slab_objects >/run/holds.now
	awk -v n="$1" 'NR == FNR { had[$1] = $2; next }
		$2 - had[$1] >= n { print $1, had[$1] + 0, $2; grown = 1 }
		END { exit grown }' /run/holds.objects /run/holds.now
}
holds_check() {
	local parts pages most=$((8 * ($1 < 50 ? 50 : $1))) few=$(($1 < 400 ? 200 : $1 / 2))
	# Slabs come and go by pages, which can be large.
	local least=$((24 * $(getconf PAGESIZE) / 1024))
	[ $most -gt $least ] || most=$least
	give_reserves_back
	# That of an earlier mount by NFSv4.0 goes when its lease ends.
	[ "$(transports)" -le "$(cat /run/holds.transports)" ] ||
		fail "debugfs had $(cat /run/holds.transports) transports and has $(transports)"
	# Some may be on their way out; a leak would be one each time, or every other time.
	[ $(($(workqueue_threads) - $(cat /run/holds.threads))) -lt 8 ] ||
		fail "$(workqueue_threads) threads of workqueues, not $(cat /run/holds.threads)"
	read -r parts pages </run/holds.memory
	parts=$(($(kernel_parts) - parts)) pages=$(($(other_pages) - pages))
	printf 'slabs and the like grew by %d KiB, and there are %d more pages of no such kind\n' \
		$parts $pages
	# In a real machine others come and go as well.
	[ -z "${ADAPTERS:-}" ] && ! finds_leaks || return 0
	# All of these waver: the number of objects, or of pages, by some dozens. So a few
	# repetitions tell nothing.
	[ $parts -lt $most ] || fail "a leak of $most KiB or more, for $1 times"
	[ $pages -lt $few ] || fail "a leak of a page each time, or every other time"
	# Those that RCU frees go a little later.
	wait_for 20 holds_objects $few >/run/holds.grown ||
		fail "kernel objects of a kind, then and now: $(tail -n 5 /run/holds.grown)"
}

# The kernel's messages since this mark, wherever the log begins by now.
log_mark() {
	local mark=mark-$RANDOM$RANDOM
	printf '%s: %s\n' "$TEST" "$mark" >/dev/kmsg
	printf '%s\n' "$mark"
}
log_since() { dmesg | sed "1,/$1/d"; }
# The status of a pipe is also that of who still writes when grep has found what it looks for.
log_has() { [ -n "$(log_since "$1" | grep -m 1 -E "$2")" ]; }
# Whether a listener that was new at the mark has a line there for each time that it has counted,
# which has to be once; of more than ten as many as it may write, ten in each minute: lines_tell
# COUNTER MARK REGEX.
lines_tell() {
	local times lines
	times=$(listener_of "$1")
	lines=$(log_since "$2" | grep -cE "(^|\\] )rpcrdma: $3\$" || true)
	if [ "$times" -le 10 ]; then
		[ "$lines" = "$times" ] && [ "$lines" -gt 0 ]
	else
		[ "$lines" -ge 10 ] && [ "$lines" -le 20 ] && [ "$lines" -le "$times" ]
	fi
}

# check_setting FILE DEFAULT LEAST MOST: it has that value, takes those from LEAST to MOST, and no
# others.
check_setting() {
	local value
	[ "$(cat "$1")" = "$2" ] || fail "$1 is $(cat "$1") and not $2"
	for value in "$3" "$4"; do
		echo "$value" >"$1"
		[ "$(cat "$1")" = "$value" ] || fail "$1 is $(cat "$1") after $value was written"
	done
	for value in $(($3 - 1)) $(($4 + 1)) -1 word; do
		! echo "$value" 2>/dev/null >"$1" || fail "$1 accepts $value"
		[ "$(cat "$1")" = "$4" ] || fail "$1 became $(cat "$1") when it refused $value"
	done
}

drop_caches() {
	local info
	# A server of 7.3 would do that for ever if it took the last session meanwhile: its shrinker
	# of slots goes on until it has seen as many sessions as there were
	# (nfsd_slot_shrinker_scan()), and that of clients, which runs at the same time, expires
	# those whose lease is over.
	for info in $(grep -lsE "^status: (courtesy|expirable)" /proc/fs/nfsd/clients/*/info); do
		echo expire >"${info%/*}/ctl"
	done
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# A file on the mount whose blocks tell what they have to hold: data_file SIZE BLOCK [ARGUMENT...].
data_file() {
	fio --name=data --filename="$MNT/$TEST/data" --size="$1" --bs="$2" --rw=write \
		--verify=crc32c --do_verify=0 --output=/dev/null "${@:3}"
}
# Reads it and verifies it: read_data ARGUMENT...
read_data() {
	fio --name=data --filename="$MNT/$TEST/data" --rw=read --direct=1 --verify=crc32c \
		--verify_fatal=1 \
		--output-format=terse --output="/run/$TEST.fio" "$@" ||
		fail "$(cat "/run/$TEST.fio")"
}
# 16 KiB for setfattr, which does not take for text what begins with 0x or 0s.
attribute_value() { printf A; head -c 12288 /dev/urandom | base64 -w 0 | tail -c +2; }
# So many threads read a part of it each, at the same time: read_at_once THREADS SIZE BLOCK.
read_at_once() {
	read_data --numjobs="$1" --thread --size="$2" --offset_increment="$2" --bs="$3" \
		--ioengine=psync
}
# One thread reads it, so many blocks at the same time: read_ahead DEPTH SIZE BLOCK.
read_ahead() { read_data --iodepth="$1" --size="$2" --bs="$3" --ioengine=libaio; }
# Data by large and small RPCs, many at a time.
verified_data() {
	data_file 8M 1M
	drop_caches
	read_at_once 8 1M 1M
	data_file 1M 4K
	drop_caches
	read_at_once 8 128K 4K
	head -c 1000001 /dev/urandom >/run/$TEST.data
	dd if=/run/$TEST.data of=$MNT/$TEST/odd bs=300001 oflag=direct status=none
	drop_caches
	cmp /run/$TEST.data $MNT/$TEST/odd
	rm /run/$TEST.data
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
