#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: check.sh [long] [STEP...]
#
# Runs the checks one after the other, all of them or the named ones. Each prints KTAP, cargo's own
# summary, or nothing but its exit status; the last line sums up what they counted.

. "$(dirname "$0")/lib.sh"

cd "$PROJECT"
steps=(layers conformance format shell scripts host panics clippy oldest kunit run selftests pairs)
if [ "${1:-}" = long ]; then
	shift
	steps=(minimal editor fuzz litmus in-tree kernels arm64 um um-debug um-leaks adapters custom debug stock dma forced ipv4 matrix release series install package cost)
fi
[ $# -eq 0 ] || steps=("$@")
check_machines "${KERNEL:-custom}"
# The kselftests of the step "test".
tests=()
if [ "${steps[*]}" = test ]; then
	[ -n "${T:-}" ] || die "say which test, such as: make test T=mount (selftests/README.rst has a list)"
	for name in $T; do
		file=selftests/$name.sh
		[ -x "$file" ] || die "there is no $file: T is one of $(printf '%s\n' selftests/{,long/}*.sh | sed 's,selftests/\(.*\)\.sh,\1,' | paste -sd ' ')"
		tests+=("$file")
	done
	export KERNEL=${KERNEL:-um}
fi
. "$here/series.sh"
# What is missing is said before anything is built. Only QEMU's machines need QEMU.
for name in "${steps[@]}"; do
	case $name in
	layers | conformance | format | shell | scripts | host | panics | clippy | minimal | editor | fuzz | litmus)
		"$here/host-packages.sh" build
		;;
	um* | adapters | forced | in-tree | ipv4 | matrix | carried) "$here/host-packages.sh" vm um ;;
	*) "$here/host-packages.sh" vm "${KERNEL:-}" ;;
	esac
done

step_layers() { "$here/check-layers.sh"; }

# The documents, too: Sphinx has no warning.
step_conformance() {
	"$here/check-conformance.sh"
	"$here/htmldocs.sh" >&2
}

# rustfmt leaves long comments alone, of which checkpatch complains.
step_format() {
	! grep -rnE '^.{101,}$' rust --include='*.rs' || die "these lines have more than 100 columns"
	"$here/in-buildroot.sh" sh -c \
		'find rust selftests tools -name "*.rs" -not -path "*/target/*" -print0 | xargs -0 rustfmt --edition 2021 --check --color never --config-path .rustfmt.toml'
}

step_shell() { "$here/check-shell.sh"; }

step_scripts() { "$here/check-scripts.sh"; }

# The tool is compiled with the core, whose own tests need not run once more.
step_host() {
	cargo_in host test --manifest-path selftests/host/Cargo.toml
	cargo_in host test --manifest-path tools/rpcrdma-decode/Cargo.toml -- --skip proto::
	(cd tools/rpcrdma-top && "$here/in-buildroot.sh" python3 -B -m unittest)
}

step_panics() { "$here/check-panics.sh"; }

# Clippy may change the code that comes out, so its objects are kept apart. The stock tree needs no kernel build.
step_clippy() {
	local kernel=${KERNEL:-stock}
	VARIANT=$kernel-clippy "$here/module.sh" "$kernel" CLIPPY=1
}

# The oldest series of kernels may lack what the others have.
step_oldest() {
	local series=${TESTED[0]}
	# The step before was with it, or somebody wants to know about Debian testing alone.
	case $SERIES in "$series" | testing) return ;; esac
	if [ ! -f "$CACHE/$series/src.stamp" ] && ! (private_apt "$SUITE" && offered_series) | grep "^$series " >&2; then
		printf 'ok - oldest # SKIP the mirror has no kernel of series %s\n' "$series"
		return
	fi
	KERNEL_SERIES=$series "$here/check.sh" clippy
}

step_kunit() {
	local kernel=${KERNEL:-custom}
	VARIANT=$kernel-kunit "$here/module.sh" "$kernel" KUNIT_TESTS=1 >&2
	KERNEL=$kernel MODULE=$KERNELS/build/$kernel-kunit/rust/rpcrdma.ko "$here/vm.sh" "$here/kunit.sh"
}

step_run() { "$here/run.sh"; }

# Kselftests for which there is no time in the hour that all may take with an empty cache.
later=(selftests/{badpeer,bond,callbacks,crowd,device,frozen,grants,handshake,inject,jail,krb5,link,listener,look,look-server,loopback,modest,mountstats,multipath,netns,recalls,removal,requester,rpcbind,service,settings,swap,unplug,version,wire-two}.sh)

step_selftests() {
	local file now=()
	for file in selftests/*.sh; do
		[[ " ${later[*]} " == *" $file "* ]] || now+=("$file")
	done
	selftests_on "${KERNEL:-custom}" "${now[@]}"
}

# With what their machines need.
step_test() {
	local file boot more=
	for file in "${tests[@]}"; do
		boot=$(sed -n 's/^# boot: //p' "$file")
		APPEND="${APPEND:-}${boot:+ $boot}"
		[ "$file" != selftests/dma.sh ] || more=$("$here/dma-device.sh" "$KERNEL")
	done
	export APPEND
	selftests_on "$KERNEL" "${tests[@]}"
}

# With the kernel's own module at one end.
step_pairs() {
	local rc=0
	PEER=c "$here/check.sh" paired || rc=1
	CLIENT=c "$here/check.sh" paired || rc=1
	return $rc
}
step_paired() { selftests_on "${KERNEL:-custom}" selftests/{mount,forms,backchannel}.sh; }

# What pairs of kernels have to carry at least.
step_main() { selftests_on "${KERNEL:-custom}" selftests/{mount,io,forms,backchannel}.sh; }

# The same with all that is not about one of the transports, and with the kernel's own at both ends, which
# tells a bug of ours from one of a test.
step_matrix() {
	local rc=0
	PEER=c "$here/check.sh" carried || rc=1
	CLIENT=c "$here/check.sh" carried || rc=1
	CLIENT=c PEER=c "$here/check.sh" carried || rc=1
	return $rc
}
step_carried() {
	selftests_on um selftests/{mount,io,forms,backchannel,callbacks,recalls,krb5,cycles,restart,killed,inject,look,multipath,rpcbind,removal,listener,loopback,service,unload,unplug}.sh
}

# With Debian 13's own kernel at one end.
step_release() {
	local rc=0
	CLIENT_KERNEL=release "$here/check.sh" run main || rc=1
	SERVER_KERNEL=release "$here/check.sh" run main || rc=1
	return $rc
}

# A tree without what the module can do without; its modules have no kernel to go into.
step_minimal() { VARIANT=minimal "$here/module.sh" minimal KBUILD_MODPOST_WARN=1; }

# What takes minutes runs where no CPU is emulated, and so does what the checkers slow down.
step_um() { selftests_on um selftests/*.sh selftests/long/*.sh; }

step_um-debug() { checked_on um-debug selftests/*.sh; }

step_um-leaks() { checked_on um-leaks selftests/*.sh; }

# With some of the long tests, made shorter for what the checkers cost.
checked_on() {
	BREAKS=50 RESTARTS=10 ROUNDS=10 EVENTS=${EVENTS:-60} \
		selftests_on "$@" selftests/long/{faults,reconnects,siw,unload}.sh
}

# Which allocations fail the kernel chooses by the stack, and User-Mode Linux' has no frames.
step_custom() {
	EVENTS=${EVENTS:-100} selftests_on custom "${later[@]}" selftests/long/{shortage,faults}.sh
}

# User-Mode Linux takes no interface down, and cannot say which allocations are to fail.
step_debug() {
	EVENTS=${EVENTS:-30} \
		selftests_on debug selftests/{mount,cycles,bond,link,grants}.sh selftests/long/{shortage,faults}.sh
}

step_stock() { selftests_on stock selftests/*.sh; }

# A device for which memory is mapped, in machines where every mapping is a bounce buffer.
step_dma() {
	local more
	more=$("$here/dma-device.sh" custom)
	APPEND=swiotlb=force selftests_on custom selftests/dma.sh
}

# Registered memory for all that the server transfers.
step_forced() { APPEND=ib_core.force_mr=1 selftests_on um selftests/forced.sh; }

step_ipv4() { APPEND=ipv6.disable=1 selftests_on um selftests/ipv4.sh; }

# The other series of kernels that there are, and a pair of machines of which each has another one.
step_series() {
	local series rc=0
	for series in "${TESTED[@]}"; do
		[ "$series" != "$SERIES" ] || continue
		KERNEL_SERIES=$series "$here/check.sh" panics clippy kunit run selftests || rc=1
		SERVER_SERIES=$series "$here/run.sh" || rc=1
	done
	return $rc
}

step_install() { "$here/check-install.sh"; }

step_package() { "$here/check-package.sh"; }

step_editor() { "$here/check-rust-project.sh"; }

step_fuzz() { "$here/fuzz.sh"; }

step_in-tree() { "$here/check-in-tree.sh"; }

step_kernels() { "$here/check-kernels.sh"; }

# CPUs that order memory weakly, two so that threads run at once, and large pages: KUnit's suites
# with the simulation, and kselftests.
step_arm64() {
	local kernel rc=0
	for kernel in arm64-4k arm64-64k; do
		SMP=2 KERNEL=$kernel "$here/check.sh" kunit arm64-selftests || rc=1
	done
	return $rc
}
step_arm64-selftests() {
	selftests_on "$KERNEL" selftests/{load,mount,io,forms,backchannel,cycles,fence,callbacks,listener,service,grants,unload,look-server}.sh
}

# The kselftests as the kernel's tree installs them, between two machines that are taken for real ones.
step_adapters() {
	local kernel=${KERNEL:-um} payload rc=0
	"$here/module.sh" "$kernel" >&2
	payload=$KERNELS/build/$kernel-adapters
	rm -rf "$payload"
	mkdir -p "$payload"
	"$here/kselftest.sh" "$payload/kselftest"
	KERNEL=$kernel PAYLOAD=$payload "$here/vm.sh" "$here/adapters.sh" || rc=1
	# Those that look at addresses.
	IPV6=1 KERNEL=$kernel PAYLOAD=$payload "$here/vm.sh" "$here/adapters.sh" \
		mount look rpcbind callbacks listener look-server service || rc=1
	return $rc
}

step_litmus() { "$here/litmus.sh"; }

# Fails when an RPC costs more of what C needs for it than it did.
step_cost() {
	local role rc=0
	for role in client server; do
		"$here/cost.sh" $role --ratios selftests/cost/$role.txt || rc=1
	done
	return $rc
}

# Runs kselftests, but those that have to be booted in another way than APPEND says; the file that the
# caller's "more" names, if there is one, goes into the payload.
selftests_on() {
	local kernel=$1 tests=() file payload boot
	shift
	for file; do
		[ -x "$file" ] || die "there is no $file"
		boot=$(sed -n 's/^# boot: //p' "$file")
		[ -n "$boot" ] && [[ " ${APPEND:-} " != *" $boot "* ]] || tests+=("$file")
	done
	[ ${#tests[@]} -gt 0 ] || die "none of these tests can run in machines that are booted like this: $*"
	"$here/module.sh" "$kernel" >&2
	# What these run on the host.
	if [[ " $* " = *wire* ]]; then
		"$here/buildroot.sh" tools >&2
		cargo_in host build --release --manifest-path tools/rpcrdma-decode/Cargo.toml >&2
	fi
	# The tests' own modules and the programs that they run in the machines.
	payload=$KERNELS/build/$kernel-payload
	rm -rf "$payload"
	mkdir -p "$payload"
	if [ -f selftests/modules/Kbuild ]; then
		SOURCE=$PROJECT/selftests/modules VARIANT=$kernel-tests "$here/module.sh" "$kernel" >&2
		cp "$KERNELS/build/$kernel-tests"/*.ko "$payload/"
	fi
	local peer=$CACHE/build/peer/release target=()
	if [[ $kernel = arm64-* ]]; then
		"$here/buildroot.sh" arm64 >&2
		export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
		target=(--target aarch64-unknown-linux-gnu)
		peer=$CACHE/build/peer/aarch64-unknown-linux-gnu/release
	fi
	cargo_in peer build --release "${target[@]}" --manifest-path selftests/peer/Cargo.toml >&2
	cp "$peer/rpcrdma-peer" "$payload/"
	[ -z "${more:-}" ] || cp "$more" "$payload/"
	KERNEL=$kernel PAYLOAD=$payload "$here/vm.sh" "$here/selftests.sh" "${tests[@]}"
}

# Prints "PASSED FAILED SKIPPED" for a step's output; what counts nothing counts as one.
count() {
	awk -v status="$2" '
		/^ok / { if (/# SKIP/) s++; else p++ }
		/^not ok / { f++ }
		/^1\.\.0 # SKIP/ { s++ }
		/^test result: / { p += $4; f += $6; s += $8 }
		END {
			if (status == 4 && p + f + s == 0) s++
			else if (status != 0 && f == 0) f++
			else if (p + f + s == 0) p++
			print p + 0, f + 0, s + 0
		}' "$1"
}

passed=0 failed=0 skipped=0 lost=()
for name in "${steps[@]}"; do
	declare -F "step_$name" >/dev/null || die "there is no step $name"
	log=$CACHE/logs/check-$name.log
	start=$SECONDS
	printf '\n== %s\n' "$name"
	# Not "|| rc=": in such a place the shell would not stop at a step's first failure.
	set +e
	(set -e; "step_$name") </dev/null 2>&1 | tee "$log"
	rc=${PIPESTATUS[0]}
	set -e
	read -r p f s < <(count "$log" "$rc")
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	[ "$f" -eq 0 ] || lost+=("$name")
	printf '== %s: %d passed, %d failed, %d skipped in %ds\n' "$name" "$p" "$f" "$s" $((SECONDS - start))
done
printf '\n'
[ ${#lost[@]} -eq 0 ] || printf 'failed in: %s (logs in %s)\n' "${lost[*]}" "$CACHE/logs"
printf '%d passed, %d failed%s\n' "$passed" "$failed" "$([ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped")"
[ "$failed" -eq 0 ]
