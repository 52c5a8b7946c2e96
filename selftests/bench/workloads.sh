# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What scripts/bench-rounds.sh has the client do: one function for each workload. It comes behind
# lib/guest.sh. Each prints lines "NAME NUMBER...", and, where fio did the work, a line "fio" and
# what fio has to say.

TEST=bench
DIR=$MNT/bench
BENCH_SECONDS=${BENCH_SECONDS:-2}

# The seconds that this machine's kernel worked, in ticks of 10 ms, and its RPCs for mounts. Both
# leave a number in a variable, so that no program runs for them.
system_ticks() {
	local system irq softirq
	read -r _ _ _ system _ _ irq softirq _ </proc/stat
	ticks=$((system + irq + softirq))
}
nfs_rpcs() {
	local name number
	while read -r name number _; do
		[ "$name" != rpc ] || rpcs=$number
	done </proc/net/rpc/nfs
}

# counted COMMAND...: runs it, and says how long it took, and how many RPCs and ticks.
counted() {
	local start rpcs ticks rpcs_before ticks_before
	nfs_rpcs
	system_ticks
	rpcs_before=$rpcs ticks_before=$ticks start=${EPOCHREALTIME/./}
	"$@" >&2
	printf 'microseconds %d\n' $((${EPOCHREALTIME/./} - start))
	nfs_rpcs
	system_ticks
	printf 'rpcs %d\nticks %d\n' $((rpcs - rpcs_before)) $((ticks - ticks_before))
}

# bench_fio ARGUMENT...: fio on one job, with its answer behind the figures.
bench_fio() {
	rm -f /run/bench.fio
	counted fio --name=bench --output-format=json --output=/run/bench.fio \
		--percentile_list=50:99:99.9 --fallocate=none --randrepeat=1 "$@"
	printf 'fio\n'
	cat /run/bench.fio
}

# io MODE BLOCK DEPTH [ARGUMENT...]: direct I/O on one file that is there, for some seconds.
io() {
	local mode=$1 block=$2 depth=$3
	shift 3
	bench_fio --filename="$DIR/data" --size=64M --overwrite=1 --direct=1 --ioengine=libaio \
		--time_based --runtime="$BENCH_SECONDS" --rw="$mode" --bs="$block" --iodepth="$depth" "$@"
}

# calls NAME COUNT: RPCs that the tests' module issues one after the other, from the kernel.
calls() {
	insmod /lab/payload/rpcrdma_test_cost.ko path="$DIR/data" count="$2" timed=1
	cd /sys/module/rpcrdma_test_cost/parameters || return
	counted eval "echo $1 >run"
	printf 'calls %d\nnanoseconds ' "$2"
	cat result
	cd /
	rmmod rpcrdma_test_cost
}

# files ENGINE: one of fio's engines that create and remove files.
files() {
	# shellcheck disable=SC2016 # The number is fio's to put in.
	bench_fio --ioengine="$1" --directory="$DIR/files" --filename_format='file.$filenum' \
		--nrfiles=3000 --filesize=4k --openfiles=1 --create_on_open=1
}

bench_nothing() { counted true; }
bench_null() { calls null 10000; }
bench_getattr() { calls getattr 10000; }
bench_create() { files filecreate; }
# fio looks at every file before it measures, and then finds them in the cache. The call with a number
# is clock_gettime(CLOCK_MONOTONIC) of x86-64, for which Perl has no name here.
stat_files() {
	perl -e '
		sub now { my $time = "\0" x 16; syscall(228, 1, $time); my ($s, $ns) = unpack("q2", $time); $s * 1e9 + $ns }
		for my $n (0 .. 2999) {
			my $before = now();
			stat("$ARGV[0]/file.$n") or die "file.$n: $!\n";
			push @took, now() - $before;
		}
		@took = sort { $a <=> $b } @took;
		printf "items %d\nlatency_nanoseconds %d %d %d\n", scalar @took, map { $took[$_ * @took] } 0.5, 0.99, 0.999' "$DIR/files" >/run/bench.stat
}
bench_stat() {
	drop_caches
	counted stat_files
	cat /run/bench.stat
}
bench_unlink() { files filedelete; }
bench_randread_1() { io randread 4k 1; }
bench_randread_16() { io randread 4k 16; }
bench_randwrite_1() { io randwrite 4k 1; }
bench_randwrite_16() { io randwrite 4k 16; }
bench_mixed() { io randrw 32k 16 --rwmixread=70; }
bench_seqread() { io read 1M 2; }
bench_seqwrite() { io write 1M 2; }

# Sequential I/O with privacy, where neither side can place anything directly: krb5p MODE.
krb5p() {
	umount "$MNT"
	mount_bench sec=krb5p
	io "$1" 1M 2
	umount "$MNT"
	mount_bench
}
bench_krb5p_read() { krb5p read; }
bench_krb5p_write() { krb5p write; }

bench_readdir() {
	drop_caches
	counted sh -c "ls -U1 $DIR/entries-* >/run/bench.entries"
	printf 'items %d\n' "$(grep -c entry- /run/bench.entries)"
}

# Once takes a second, which is short beside what else the machine does.
unpack_trees() {
	local n
	for n in {1..4}; do
		mkdir "$DIR/tree/$n"
		tar -xf /lab/payload/tree.tar -C "$DIR/tree/$n"
		sync -f "$DIR/tree/$n"
	done
}
bench_tree() {
	counted unpack_trees
	printf 'items %d\n' $((4 * $(wc -l </lab/payload/tree.sha256)))
}

# mount_bench [OPTIONS]
mount_bench() { mount -t nfs -o "rdma,port=20049,vers=$BENCH_VERS,${1:-sec=sys}" "$SERVER:/export" "$MNT"; }

bench_mount() {
	local start
	printf 'microseconds_each'
	for _ in {1..5}; do
		umount "$MNT"
		start=${EPOCHREALTIME/./}
		mount_bench
		printf ' %d' $((${EPOCHREALTIME/./} - start))
	done
	printf '\n'
}

# A program takes longer to start than a connection to be made, so none does in what is timed: the
# shell itself gives sysfs the address once more, and looks for a name that costs an RPC.
bench_reconnect() {
	local address start times='' before n
	address=$(echo /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/dstaddr)
	for n in {1..5}; do
		before=$(xprt_stat 3)
		start=${EPOCHREALTIME/./}
		printf '%s\n' "$SERVER" >"$address"
		[ ! -e "$DIR/entries-1/no.$n" ]
		times+=" $((${EPOCHREALTIME/./} - start))"
		[ "$(xprt_stat 3)" -gt "$before" ] || fail "the connection did not break"
	done
	printf 'microseconds_each%s\n' "$times"
}

# Five times the time from the end of the connection, with 100 READs outstanding all the time, until 100
# have ended on the next one; their first Replies are that the session does not know it. The trace tells,
# as to look on a program would take the CPU.
bench_reconnect_busy() {
	local BENCH_SECONDS=60 address sends fio writer never times='' event
	local events=(sunrpc/xprt_disconnect_force sunrpc/xprt_connect nfs/nfs_readpage_done)
	address=$(echo /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/dstaddr)
	sends=$(xprt_stat 6)
	mkfifo /run/bench.never
	exec {never}<>/run/bench.never
	rm /run/bench.never
	echo mono >$TRACING/trace_clock
	for event in "${events[@]}"; do echo 1 >"$TRACING/events/$event/enable"; done
	io randread 4k 100 >/run/bench.busy &
	fio=$!
	busy() { [ "$(xprt_stat 6)" -gt $((sends + 200)) ]; }
	wait_for 20 busy
	for _ in {1..5}; do
		echo >$TRACING/trace
		# As set_address does, but without a program; nothing is ever to be read.
		until
			printf '%s\n' "$SERVER" >"$address" &
			writer=$!
			read -rt 1 -u "$never" || true
			! kill -KILL $writer 2>/dev/null
		do :; done
		times+=$(awk '{ for (i = 1; i < NF && $i !~ /^[0-9]+[.][0-9]+:$/; i++); time = $i + 0; event = $(i + 1) }
			event == "xprt_disconnect_force:" && !ended { ended = time }
			event == "xprt_connect:" && ended { began = 1 }
			event == "nfs_readpage_done:" && began && ++reads == 100 { printf " %d", (time - ended) * 1e6; exit }' $TRACING/trace)
	done
	for event in "${events[@]}"; do echo 0 >"$TRACING/events/$event/enable"; done
	# It has no more to do than to last until now.
	pkill -INT -x fio || true
	wait $fio || true
	[ "$(wc -w <<<"$times")" = 5 ] || fail "the connection did not break with 100 calls outstanding each time:$times"
	printf 'microseconds_each%s\n' "$times"
}

# What a mount more takes: the mean of so many, each by an address of the server's own, which are
# one mount only but for v3. First after the mount, then after random I/O.
more_mounts() {
	local n
	for n in $(seq "$1"); do
		mkdir -p "/mnt/more.$n"
		mount -t nfs -o rdma,port=20049,vers=3,sec=sys,nolock "192.0.2.$((20 + n)):/export" "/mnt/more.$n"
	done
}
more_work() {
	local n jobs=()
	for n in $(seq "$1"); do jobs+=(--name="more.$n" --filename="/mnt/more.$n/bench/data"); done
	fio --name=global --thread --size=64M --overwrite=1 --direct=1 --ioengine=libaio --fallocate=none \
		--rw=randrw --bs=32k --iodepth=16 --number_ios=200 "${jobs[@]}" --output=/run/bench.more
}
bench_memory() {
	local count=${1:-8} before idle busy n transports_before
	transports_before=$(transports)
	drop_caches
	before=$(kernel_memory)
	more_mounts "$count"
	idle=$(kernel_memory)
	more_work "$count"
	busy=$(kernel_memory)
	for n in $(seq "$count"); do umount "/mnt/more.$n"; done
	# What is on its way out would count for what is measured next.
	all_gone() { [ "$(transports)" = "$transports_before" ]; }
	wait_for 20 all_gone
	printf 'idle_kib %d\nbusy_kib %d\n' $(((idle - before) / count)) $(((busy - before) / count))
}

# How figures change with one number: mounts, connections of the mount, calls at the same time, and
# slots. The calls of the mounts are those of one program, which takes their files in turn.
bench_mounts() {
	local n files=''
	more_mounts "$1"
	for n in $(seq "$1"); do files+=:/mnt/more.$n/bench/data; done
	bench_fio --filename="${files#:}" --filesize=64M --size=$(($1 * 64))M --overwrite=1 --direct=1 \
		--ioengine=libaio --time_based --runtime="$BENCH_SECONDS" --rw=randread --bs=4k --iodepth=64
	for n in $(seq "$1"); do umount "/mnt/more.$n"; done
}
bench_nconnect() {
	umount "$MNT"
	wait_for 10 module_unused
	mount_bench sec=sys,nconnect="$1"
	io randread 4k 64
	umount "$MNT"
	wait_for 10 module_unused
	mount_bench
}
bench_tasks() { io randread 4k "$1"; }
bench_slots() {
	local entries=/proc/sys/sunrpc/rdma_slot_table_entries before
	before=$(<$entries)
	umount "$MNT"
	wait_for 10 module_unused
	echo "$1" >$entries
	mount_bench
	echo "$before" >$entries
	io randread 4k 256
	umount "$MNT"
	wait_for 10 module_unused
	mount_bench
}

# bench_load rust|c: takes the module that is loaded away, and loads this one. Either role does it.
bench_load() {
	wait_for 10 module_unused
	rmmod rpcrdma
	case $1 in
	rust) insmod /lab/payload/bench/rpcrdma.ko ;;
	c) modprobe rpcrdma ;;
	esac
}

# What the client does before and behind the workloads of a round.
bench_end() {
	! mountpoint -q "$MNT" || umount "$MNT"
	wait_for 10 module_unused
}
bench_begin() {
	mount_bench
	# The first call that opens a file sets up a session, and waits for the grace period of the server.
	: >"$DIR/opened"
}

# perftest from the payload, with the libraries that this machine lacks. The driver's name gets its
# version behind it.
perftest() {
	local tool=$1
	shift
	IBV_DRIVERS=/lab/payload/perftest/librxe LD_LIBRARY_PATH=/lab/payload/perftest /lab/payload/perftest/"$tool" -e -F -d "$RDMA_LINK" -p 18515 "$@"
}
# The end that waits: it is there when its port is.
perftest_begin() {
	modprobe -q ib_uverbs || true
	perftest "$@" >/run/perftest 2>&1 &
	# The port, in hexadecimal, of a socket that listens.
	listens() { grep -qsE ':4853 [0-9A-F]+:0000 0A ' /proc/net/tcp /proc/net/tcp6; }
	(wait_for 10 listens) || fail "$(cat /run/perftest)"
}
perftest_time() {
	local start=${EPOCHREALTIME/./}
	modprobe -q ib_uverbs || true
	timeout 60 bash -c "$(declare -f perftest)"'; perftest "$@"' perftest "$@" >/run/perftest 2>&1 || fail "$(cat /run/perftest)"
	printf '%d\n' $((${EPOCHREALTIME/./} - start))
}
