#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: bench.sh client|server [--scale] [--keep]
#
# Measures the C and the Rust module in turn in that role, with the same peer, in several pairs of
# machines, one after the other, and writes a JSON file with every sample, a table, and plots. --keep
# puts table and plots into Documentation too.
# --scale measures, in fewer rounds, how figures change with the number of mounts, connections, calls
# at the same time, and slots.
#
#   BENCH_BOOTS=4       how often the machines are started, to be measured in
#   BENCH_PAIRS=2       how often each module is measured in each of them; C is once more
#   BENCH_SECONDS=2     how long each workload of I/O takes
#   BENCH_WORKLOADS=    the names of those to run (see bench-rounds.sh; default: all)
#   BENCH_OUT=DIR       where the results go
#   CLIENT=c PEER=c     the peer's transport
#   KERNEL=um VERS=4.2  and what else vm.sh takes

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

export KERNEL=${KERNEL:-um} VERS=${VERS:-4.2}
usage="usage: bench.sh client|server [--scale] [--keep]"
role=${1:-} keep='' name=bench
case $role in client | server) shift ;; *) die "$usage" ;; esac
for argument; do
	case $argument in
	--keep) keep=yes ;;
	--scale) name=scale ;;
	*) die "$usage" ;;
	esac
done
# Slots and the memory of a mount are the client's.
if [ $name = scale ]; then
	export BENCH_BOOTS=${BENCH_BOOTS:-1}
	export BENCH_PAIRS=${BENCH_PAIRS:-3}
	own=(slots-{16,64,256,1024} memory-{16,32,64})
	[ $role = client ] || own=()
	export BENCH_WORKLOADS=${BENCH_WORKLOADS:-nothing $(printf '%s ' mounts-{1,2,4,8,16,32,64} nconnect-{1,2,4,8} tasks-{1,2,4,8,16,32,64,128,256,512} "${own[@]}")}
fi
[ $role = client ] || name=server-$name
export BENCH_BOOTS=${BENCH_BOOTS:-4} BENCH_PAIRS=${BENCH_PAIRS:-2}
for number in BENCH_BOOTS BENCH_PAIRS; do
	[[ ${!number} =~ ^[1-9][0-9]*$ ]] || die "$number is a number from 1 on, not ${!number}"
done
document=$PROJECT/Documentation/benchmarks.rst
# Not when all is measured.
[ -z "$keep" ] || grep -qF ".. The table of $name begins here." "$document" ||
	die "$document has no place for the table of $name"
source=$PROJECT/selftests/bench
out=${BENCH_OUT:-$CACHE/$name}
build=$KERNELS/build/${VARIANT:-$KERNEL}

"$here/host-packages.sh" vm "$KERNEL"
"$here/kernel.sh" "$KERNEL" >/dev/null
"$here/buildroot.sh" tools
if [ -z "${MODULE:-}" ]; then
	"$here/module.sh" "$KERNEL" >&2
	MODULE=$build/rust/rpcrdma.ko
fi
SOURCE=$PROJECT/selftests/modules VARIANT=${VARIANT:-$KERNEL}-tests "$here/module.sh" "$KERNEL" >&2
tree=$("$here/tree.sh" small)

payload=$build-bench
rm -rf "$payload" "$out"
mkdir -p "$payload"/{bench,perftest} "$out/samples"
cp "$build-tests/rpcrdma_test_cost.ko" "$tree"/tree.* "$payload/"
cp "$source/workloads.sh" "$PROJECT/selftests/lib/guest.sh" "$payload/bench/"
cp "$MODULE" "$payload/bench/rpcrdma.ko"
"$here/in-buildroot.sh" strip --strip-debug "$payload/bench/rpcrdma.ko"
# The machines have what uses verbs, but not perftest nor all of its libraries.
"$here/in-buildroot.sh" sh -c 'cp /usr/bin/ib_send_lat /usr/bin/ib_send_bw /usr/bin/ib_read_bw /usr/lib/$(uname -m)-linux-gnu/libibverbs/librxe-rdmav*.so "$0" &&
	ldd "$0"/ib_* | awk "/=> \// { print \$3 }" | grep -E "/lib(ibumad|mlx5|efa|hns|pci|bnxt_re)" | sort -u | xargs -r cp -Lt "$0"' "$payload/perftest"

BIND=$out${BIND:+:$BIND}
export BIND
client=${CLIENT:-c} peer=${PEER:-c}
# What is measured begins as C.
[ $role = client ] && client=c || peer=c
for ((boot = 0; boot < BENCH_BOOTS; boot++)); do
	say "[bench] machines $((boot + 1)) of $BENCH_BOOTS"
	CLIENT=$client PEER=$peer SMP=1 PAYLOAD=$payload "$here/vm.sh" "$here/bench-rounds.sh" $role "$out/samples" $boot >&2
done
in_root() { "$here/in-buildroot.sh" "$@"; }
documents=()
[ -z "$keep" ] || documents=(--document "$document" --table "$name")
in_root env KERNEL="$KERNEL" VERS="$VERS" python3 "$source/report.py" $role "$out/samples" "$out/$name.json" "${documents[@]}"
in_root python3 "$here/bench-plot.py" "$out/$name.json" "$out/plots"
if [ -n "$keep" ]; then
	mkdir -p "$PROJECT/Documentation/plots"
	prefix=
	[ $role = client ] || prefix=server-
	for plot in "$out/plots"/*.svg; do cp "$plot" "$PROJECT/Documentation/plots/$prefix${plot##*/}"; done
fi
say "every sample is in $out/$name.json, plots are in $out/plots"
