#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs under vm.sh: mounts, unpacks a source tree, checks it, lets fio verify random I/O, shows
# what travelled, unmounts and unloads. The first step that fails ends it. The tree is in PAYLOAD.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

vers=${VERS:-4.2}
times=()
# The wall time of each step is part of the answer.
timed() {
	local what=$1 start=${EPOCHREALTIME/./} us
	shift
	printf '%s ...\n' "$what"
	client_run "$1" || die "$what failed, see above"
	us=$((${EPOCHREALTIME/./} - start))
	times+=("$(printf '%-44s %7d.%02d s' "$what" $((us / 1000000)) $((us % 1000000 / 10000)))")
}

# Only ours has this folder.
transport='[ -d /sys/kernel/debug/rpcrdma ] && echo rust || echo c; uname -r'
for machine in client server; do
	{ read -r what; read -r release; } < <("${machine}_run" "$transport")
	printf '%s: %s transport on %s\n' "$machine" "$what" "$release"
done
printf 'NFS v%s\n' "$vers"
timed mount "mount -t nfs -o rdma,port=20049,vers=$vers,sec=sys server:/export /mnt/nfs && grep -q 'proto=rdma' /proc/mounts"
LIMIT=300 timed "unpack $(wc -l <"$PAYLOAD/tree.sha256") files" "mkdir /mnt/nfs/tree && tar -xf /lab/payload/tree.tar -C /mnt/nfs/tree && sync"
LIMIT=300 timed "check every checksum, caches dropped" "echo 3 >/proc/sys/vm/drop_caches && cd /mnt/nfs/tree && sha256sum --quiet -c /lab/payload/tree.sha256"
LIMIT=300 timed "fio, 16 MiB random read/write with crc32c" "fio --name=verify --directory=/mnt/nfs --size=16M --bs=4k-64k --rw=randrw --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 --ioengine=psync --randseed=1 --output-format=terse --output=/run/fio.out || { cat /run/fio.out; exit 1; }"
stats=$(client_run "cat /proc/self/mountstats; grep -rs . /sys/kernel/debug/rpcrdma/ || true")
LIMIT=120 timed unmount "umount /mnt/nfs"
timed "unload" "rmmod rpcrdma && ! grep -q '^rpcrdma ' /proc/modules"
printf '\n'
printf '%s\n' "${times[@]}"
printf '\n'
"$here/travelled.awk" <<<"$stats"
