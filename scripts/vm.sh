#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: vm.sh COMMAND...
#
# Boots a server and a client joined by a network of their own, loads the transports, runs
# COMMAND on the host (it finds vm-lib.sh's commands useful), and takes everything down again.
# The exit status is COMMAND's, or 1 when a kernel complained meanwhile.
#
#   KERNEL=stock|custom|debug   what both run (SERVER_KERNEL: the server alone)
#   CLIENT=rust|c               the client's transport: ours, or the kernel's own
#   MODULE=FILE                 our module (default: where make puts it for KERNEL)
#   PAYLOAD=DIR                 a folder to have as /lab/payload in both
#   TRANSPORT=rxe|siw MTU=N SMP=N MEM=MIB
#   APPEND=WORDS                more for the kernels' command lines
#   EXPECT=REGEX                kernel complaints that are part of the test
#   KEEP=1                      keeps the logs of a run that went well
#   VM_SHELL=1                  joins the client's second serial port to the terminal

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

kernel=${KERNEL:-stock}
server_kernel=${SERVER_KERNEL:-$kernel}
client=${CLIENT:-rust}
[ $# -gt 0 ] || die "usage: vm.sh COMMAND..."
[ -z "${VM_SHELL:-}" ] || { : </dev/tty; } 2>/dev/null || die "there is no terminal to give a prompt on"
case $client in rust | c) ;; *) die "CLIENT is rust or c, not $client" ;; esac

"$here/host-packages.sh" vm
for k in "$kernel" "$server_kernel"; do
	case $k in stock | custom | debug) ;; *) die "KERNEL is stock, custom or debug, not $k" ;; esac
	"$here/kernel.sh" "$k" >/dev/null
	"$here/guest.sh" "$k"
done
# Under all the checkers everything takes several times as long, and so may each step.
[ "$kernel" != debug ] || export SLOW=4
module=${MODULE:-$CACHE/build/$kernel/rust/rpcrdma.ko}
[ "$client" = c ] || [ -f "$module" ] || die "$module is missing: build it with scripts/module.sh $kernel"

RUN=$(mktemp -d "${TMPDIR:-/tmp}/rpcrdma.XXXXXX")
export RUN
finish() {
	local rc=$? name
	trap - EXIT
	for name in client server; do
		[ ! -f "$RUN/$name.pid" ] || kill "$(cat "$RUN/$name.pid")" 2>/dev/null || true
	done
	wait
	rm -f "$RUN"/*.initrd "$RUN"/*.agent.* "$RUN"/*.lock "$RUN/net"
	rm -rf "$RUN/payload"
	if [ "$rc" -ne 0 ]; then
		say "failed (status $rc): the consoles and kernel logs of both machines are in $RUN"
	elif [ -n "${KEEP:-}" ]; then
		say "the logs are in $RUN"
	else
		rm -rf "$RUN"
	fi
	exit "$rc"
}
trap finish EXIT
trap 'exit 130' INT TERM

payload() {
	local dir=$RUN/payload/lab
	mkdir -p "$dir/payload"
	cp -r "$here/guest" "$dir/guest"
	[ -z "${PAYLOAD:-}" ] || cp -r "$PAYLOAD/." "$dir/payload/"
	if [ "$client" = rust ]; then
		cp "$module" "$dir/payload/rpcrdma.ko"
		BIND=$RUN "$here/in-buildroot.sh" strip --strip-debug "$dir/payload/rpcrdma.ko"
	fi
	pack "$RUN/payload" "$RUN/payload.initrd"
	rm -r "$RUN/payload"
	cat "$CACHE/guest/initrd-$kernel.img" "$RUN/payload.initrd" >"$RUN/client.initrd"
	cat "$CACHE/guest/initrd-$server_kernel.img" "$RUN/payload.initrd" >"$RUN/server.initrd"
}

# One machine; what follows its name and kernel goes to QEMU.
start() {
	local name=$1 tree=$CACHE/$2 mac=$3 in=/dev/null out=$RUN/$1.qemu extra=${APPEND:-}
	# The interpreter of ACPI runs into its own time limits under all the checkers.
	[ "$2" != debug ] || extra+=" acpi=off"
	shift 3
	if [ "$name" = client ] && [ -n "${VM_SHELL:-}" ]; then
		in=/dev/tty out=/dev/tty
		set -- "$@" -chardev stdio,id=shell,signal=off -serial chardev:shell
	fi
	mkfifo "$RUN/$name.agent.in" "$RUN/$name.agent.out"
	# The snapshot file of the root disk lives where QEMU finds TMPDIR.
	TMPDIR=$RUN "${qemu[@]}" -name "$name" -m "${MEM:-1024}" -smp "${SMP:-1}" \
		-kernel "$tree/vmlinuz" -initrd "$RUN/$name.initrd" \
		-append "console=ttyS0 loglevel=7 log_buf_len=4M panic=-1 oops=panic kunit.enable=1 kunit.autorun=1 role=$name transport=${TRANSPORT:-rxe} mtu=${MTU:-1500} $extra" \
		-drive "file=$CACHE/guest/root.img,format=raw,if=virtio,snapshot=on" \
		-device virtio-rng-pci -device virtio-serial-pci \
		-chardev "pipe,id=agent,path=$RUN/$name.agent" -device virtserialport,chardev=agent,name=agent \
		-device "virtio-net-pci,netdev=net,mac=$mac,host_mtu=${MTU:-1500},romfile=" \
		-serial "file:$RUN/$name.log" "$@" <"$in" >"$out" 2>"$RUN/$name.qemu" &
	printf '%d\n' $! >"$RUN/$name.pid"
}

wait_ready() {
	local vm_out
	exec {vm_out}<>"$RUN/$1.agent.out"
	vm_read "$1" "${BOOT_LIMIT:-240}" || {
		cat "$RUN/$1.qemu" >&2
		tail -n 20 "$RUN/$1.log" >&2
		die "the $1 machine did not start"
	}
	exec {vm_out}>&-
}

qemu=(qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -machine pc)
read -ra accel < <("$here/accel.sh")
qemu+=("${accel[@]}")
payload
start server "$server_kernel" 52:54:00:00:00:01 -netdev "stream,id=net,server=on,addr.type=unix,addr.path=$RUN/net"
until [ -S "$RUN/net" ]; do
	vm_alive server || die "QEMU did not start: $(cat "$RUN/server.qemu")"
	sleep 0.1
done
start client "$kernel" 52:54:00:00:00:02 -netdev "stream,id=net,server=off,addr.type=unix,addr.path=$RUN/net"
rm -f "$RUN/payload.initrd"
wait_ready server
wait_ready client
server_run "/lab/guest/server start" || die "the server did not start, see above"
client_run "/lab/guest/client $client" || die "the client's transport did not load, see above"

rc=0
"$@" || rc=$?
"$here/complaints.sh" >&2 || [ $rc -ne 0 ] || rc=1
exit $rc
