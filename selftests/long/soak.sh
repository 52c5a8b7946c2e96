#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Many programs work on one mount for DURATION seconds, each in its own way, and check what they
# read; afterwards nothing is left of it on the device, in the slabs or in debugfs, at either end.
# limit: 900 + 2 * DURATION
# virtual: counts what the kernel allocates, which others do as well

. "$(dirname "$0")/../lib/test.sh"

# Each of these does one round of its work, and may use $dir, a folder of its own on the mount.
guest_add <<-'EOF'
	verify() {
		fio --name="$worker" --directory="$dir" --verify=crc32c --do_verify=1 --verify_fatal=1 "$@" >/run/soak.$worker.fio ||
			{ cat /run/soak.$worker.fio; return 1; }
	}
	random_direct() { verify --size=4M --bsrange=512-128k --rw=randrw --direct=1 --ioengine=psync --numjobs=2; }
	deep_direct() { verify --size=8M --bs=64k --rw=randwrite --direct=1 --ioengine=libaio --iodepth=16; }
	buffered() { verify --size=8M --bsrange=1k-1M --rw=randwrite --ioengine=psync --fsync=16; }
	mapped() { verify --size=4M --bs=4k --rw=randwrite --ioengine=mmap; }
	tree() {
		tar -C "$dir" -xf /run/soak.tar
		(cd "$dir" && sha256sum --quiet -c /run/soak.sums)
		rm -r "${dir:?}"/*
	}
	names() {
		local n
		for n in {1..40}; do
			: >"$dir/$n.$(printf "%0200d" "$n")"
			ln -s "$(printf "%01000d" "$n")" "$dir/link.$n"
			mv "$dir/link.$n" "$dir/renamed.$n"
		done
		[ "$(ls "$dir" | wc -l)" = 80 ]
		rm -r "${dir:?}"/*
	}
	whole() {
		dd if=/run/soak.data of="$dir/file" bs=1M oflag=direct status=none
		dd if="$dir/file" bs=1M iflag=direct status=none | cmp - /run/soak.data
		cp "$dir/file" "$dir/copy"
		cmp "$dir/copy" /run/soak.data
	}
	caches() { echo 3 >/proc/sys/vm/drop_caches; sleep 5; }
	work_in_rounds() {
		dir=$MNT/$TEST/$worker
		mkdir -p "$dir"
		until [ -f /run/soak.stop ]; do
			$worker
			echo >>/run/soak.$worker.rounds
		done
	}
EOF
workers=(random_direct deep_direct buffered mapped tree names whole caches)

load_ends() {
	LIMIT=150 client workers="${workers[*]}" <<-'EOF'
		touch /run/soak.stop
		for worker in $workers; do
			wait_for 120 test -f /run/job.$worker.status
		done
	EOF
}

# load SECONDS: all of them at once for so long, and none may stand still.
load() {
	local worker end=$((SECONDS + $1))
	client 'rm -f /run/soak.stop /run/soak.*.rounds'
	for worker in "${workers[@]}"; do
		client_background "$worker" "$rounds; worker=$worker; work_in_rounds"
	done
	while [ $SECONDS -lt $end ]; do
		LIMIT=330 client workers="${workers[*]}" <<-'EOF'
			rounds() { [ ! -f /run/soak.$1.rounds ] || wc -l </run/soak.$1.rounds; }
			past() {
				[ ! -f /run/job.$1.status ] || { cat /run/job.$1.out; fail "$1 has ended"; }
				[ 0$(rounds $1) -gt ${before[$1]:-0} ]
			}
			declare -A before
			for worker in $workers; do
				before[$worker]=$(rounds $worker)
			done
			end=$((SECONDS + 300))
			for worker in $workers; do
				wait_for $((end - SECONDS)) past $worker
			done
		EOF
	done
	load_ends
	for worker in "${workers[@]}"; do
		client_wait "$worker" || fail "$worker saw an error"
	done
	client 'cd /run && wc -l soak.*.rounds | sed "s/soak.//; s/.rounds/ rounds/"'
}

soak() {
	local resources
	defer client 'rm -rf /run/soak.*'
	LIMIT=120 client <<-'EOF'
		head -c 8M /dev/urandom >/run/soak.data
		cd /usr
		find share lib bin -type f -size -256k | sort | sed -n 1,100p >/run/soak.list
		tar -cf /run/soak.tar -T /run/soak.list
		xargs sha256sum </run/soak.list >/run/soak.sums
		printf "%d files, %d KiB\n" $(wc -l </run/soak.list) $(($(stat -c %s /run/soak.tar) / 1024))
	EOF
	server_dir /export
	mount_nfs "$1"
	defer load_ends
	load 20
	mount_ends
	resources=$(client 'rdma_resources; holds_mark')
	server_mark
	mount_nfs "$1"
	load "$DURATION"
	client 'sha256sum </run/soak.data' >"$RUN/soak.sum"
	server sum="$(cat "$RUN/soak.sum")" <<-'EOF'
		[ "$(sha256sum </export/$TEST/whole/copy)" = "$sum" ] || fail "the server has something else"
	EOF
	mount_ends
	client resources="$resources" <<-'EOF'
		wait_for 10 rdma_resources_are "$resources" || fail "the device had $resources and has $(rdma_resources)"
		holds_check 500
	EOF
	server_check 500
}

for vers in 3 4.2; do
	test_case "v$vers: $DURATION seconds of mixed load" soak $vers
done
run_cases
