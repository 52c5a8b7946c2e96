#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the versions of the protocol make of NFSv4.2 metadata: Version One with messages of 1024 bytes, and of
# 4096 as private data announces, and Version Two. The order goes there and back, BENCH_PAIRS times in all, so that
# a machine that becomes slower tells nothing. Lines "figures", "load" and "release" are for
# scripts/bench-versions.sh.
# limit: 1800
# virtual: takes longer than a kselftest may

. "$(dirname "$0")/../lib/test.sh"
. "$(dirname "$0")/../lib/version.sh"

guest+='
FILES=1000
COUNTERS="inline_calls read_chunk_calls position_zero_calls reply_chunk_calls reply_chunk_replies"

create_files() { for ((n = 0; n < FILES; n++)); do : >file.$n; done; }
open_files() { for ((n = 0; n < FILES; n++)); do exec 9<file.$n; exec 9<&-; done; }
# Each is a LOOKUP, with the attributes.
stat_files() { for ((n = 0; n < FILES; n++)); do [ -f file.$n ]; done; }
read_folder() { local names=(entries/*); [ ${#names[@]} = 3000 ]; }
# Their text does not fit a message of 1024 bytes. Its last part is the name of the link, so that one program makes
# all of them.
link_files() {
	local text
	printf -v text "%02000d" 0
	ln -s $text/link.{1..500} .
}
follow_links() { readlink link.{1..500} >/dev/null; }
unlink_files() { rm file.* link.*; }

# measured DIALECT WORKLOAD: what it takes, the microseconds first.
measured() {
	local name before= after= start us
	case $2 in open_files | stat_files | read_folder | follow_links) drop_caches ;; esac
	for name in $COUNTERS; do before+=" $(our_stat $name)"; done
	start=${EPOCHREALTIME/./}
	$2
	us=$((${EPOCHREALTIME/./} - start))
	for name in $COUNTERS; do after+=" $(our_stat $name)"; done
	set -- $1 $2 $before $after
	printf "figures %s %s %d %d %d %d %d %d\n" $1 $2 $us \
		$(($8 - $3)) $(($9 - $4)) $((${10} - $5)) $((${11} - $6)) $((${12} - $7))
}
'

# all_of DIALECT: every workload, on a mount of its own.
all_of() {
	local load
	read -r load _ </proc/loadavg
	printf 'load %s\n' "$load"
	client "
		speak $1
		mount_nfs 4.2
		: >\$MNT/\$TEST/opened
		rm \$MNT/\$TEST/opened
		check_dialect $1"
	LIMIT=300 client "
		cd \$MNT/\$TEST
		for workload in create_files open_files stat_files read_folder link_files follow_links unlink_files; do measured $1 \$workload; done
		cd / && umount \$MNT && wait_for 10 module_unused"
}

compared() {
	local name old pair dialects=(one-1024 one-4096 two-4096)
	need_client
	need_server
	settings off offered
	for name in read write; do
		old=$(client "cat /proc/sys/sunrpc/rdma_max_inline_$name")
		defer "client 'echo $old >/proc/sys/sunrpc/rdma_max_inline_$name'"
	done
	# Delegations come and go with what the server remembers, and change the number of RPCs.
	old=$(server 'cat /proc/sys/fs/leases-enable')
	defer "server 'echo $old >/proc/sys/fs/leases-enable'"
	server 'echo 0 >/proc/sys/fs/leases-enable'
	server_dir /export
	server 'mkdir /export/$TEST/entries && cd /export/$TEST/entries && seq -f "an entry with a longer name, %g" 3000 | tr "\n" "\0" | xargs -0 touch'
	client 'printf "release %s\n" "$(uname -r)"'
	defer unmount_nfs
	for ((pair = 0; pair < ${BENCH_PAIRS:-2}; pair++)); do
		for name in "${dialects[@]}"; do all_of "$name"; done
		dialects=("${dialects[2]}" "${dialects[1]}" "${dialects[0]}")
	done
}

test_case "NFSv4.2 metadata in both versions" compared
run_cases
