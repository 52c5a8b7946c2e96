#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: vm.sh COMMAND...
#
# Boots a server and a client joined by a network of their own, loads the transports, runs
# COMMAND on the host (it finds vm-lib.sh's commands useful), and takes everything down again.
# The exit status is COMMAND's, or 1 when a kernel complained meanwhile.
#
#   KERNEL=stock|custom|debug   what both run in QEMU
#   SERVER_KERNEL=release|...   what the server runs; release is Debian's own, older than 7.2
#   CLIENT_KERNEL=release|...   the same for the client
#   KERNEL_SERIES=7.2|...       of which series of kernels (see series.sh); SERVER_SERIES for the server's
#   KERNEL=arm64-4k|arm64-64k   the same on another CPU, always emulated
#   KERNEL=um|um-debug|um-leaks both are User-Mode Linux, which runs at the speed of the host
#   CLIENT=rust|c|none          the client's transport: ours, the kernel's own, or what it finds
#   PEER=rust|c                 the server's transport: ours, or the kernel's own
#                               (default of both: rust, or c on a kernel that ours is not for)
#   MODULE=FILE                 our module (default: where make puts it for the client's kernel)
#   SERVER_MODULE=FILE          the same for the server (default: the same, or where make puts it for SERVER_KERNEL)
#   PAYLOAD=DIR                 a folder to have as /lab/payload in both
#   OVERLAY=DIR                 files that the client has instead of its own below /lab
#   TRANSPORT=rxe|siw MTU=N SMP=N MEM=MIB
#   PLUGIN=FILE[,NAME=VALUE]    a plugin for the QEMU of PLUGIN_IN=client|server (default: client)
#   APPEND=WORDS                more for the kernels' command lines
#   EXPECT=REGEX                kernel complaints that are part of the test
#   KEEP=1                      keeps the logs of a run that went well
#   VM_SHELL=1                  joins the client's second serial port to the terminal

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"
. "$here/vm-lib.sh"

kernel=${KERNEL:-stock}
server_kernel=${SERVER_KERNEL:-$kernel}
client_kernel=${CLIENT_KERNEL:-$kernel}
# Ours is for kernels of 7.2 and later.
transport_of() { [ "$1" = release ] && printf 'c\n' || printf 'rust\n'; }
client=${CLIENT:-$(transport_of "$client_kernel")}
peer=${PEER:-$(transport_of "$server_kernel")}
[ $# -gt 0 ] || die "usage: vm.sh COMMAND..."
terminal=
[ -z "${VM_SHELL:-}" ] || terminal=$(stty -g 2>/dev/null </dev/tty) || die "there is no terminal to give a prompt on"
check_machines "$kernel"

# Each of these files has kernels, the list of those that its machines can run, and machines_start
# SERVER-TREE CLIENT-TREE, which starts both.
case $kernel in um | um-*) machines=um ;; *) machines=qemu ;; esac
# shellcheck source=vm-um.sh
. "$here/vm-$machines.sh"
"$here/host-packages.sh" vm "$kernel"
# Makes what a machine boots from, and prints the folder with its kernel: boots_from KERNEL SERIES.
boots_from() {
	[[ " ${kernels[*]} " = *" $1 "* ]] || die "KERNEL is stock, custom, debug, for one of them also release, or um, um-debug, um-leaks, arm64-4k or arm64-64k for both machines, not $1"
	KERNEL_SERIES=$2 "$here/kernel.sh" "$1"
	KERNEL_SERIES=$2 "$here/guest.sh" "$1"
}
server_tree=$(boots_from "$server_kernel" "${SERVER_SERIES:-$SERIES}")
tree=$(boots_from "$client_kernel" "$SERIES")
# Under all the checkers everything takes several times as long, and so may each step.
case $kernel in *debug | *leaks) export SLOW=4 ;; esac
module=${MODULE:-$KERNELS/build/$client_kernel/rust/rpcrdma.ko}
[ "$client" != rust ] || [ -f "$module" ] || die "$module is missing: build it with scripts/module.sh $client_kernel"
[ "$server_tree" = "$tree" ] && server_module=$module ||
	server_module=$(dirname "$server_tree")/build/$server_kernel/rust/rpcrdma.ko
server_module=${SERVER_MODULE:-$server_module}
[ "$peer" != rust ] || [ -f "$server_module" ] || die "$server_module is missing: build it with KERNEL_SERIES=${SERVER_SERIES:-$SERIES} scripts/module.sh $server_kernel"

RUN=$(mktemp -d "${TMPDIR:-/tmp}/rpcrdma.XXXXXX")
export RUN
finish() {
	local rc=$?
	trap - EXIT
	# Unless it has listed what it knows, the shell tells that they were killed.
	{
		vm_end client
		vm_end server
		wait
		jobs
	} >/dev/null 2>&1
	[ -z "$terminal" ] || stty "$terminal" </dev/tty
	rm -f "$RUN"/*.initrd "$RUN"/*.agent.* "$RUN"/*.lock "$RUN"/*.cow "$RUN/net"
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

# Puts a module into a folder of the payload: carry FILE FOLDER.
carry() {
	cp "$1" "$2/rpcrdma.ko"
	BIND="$RUN${BIND:+:$BIND}" "$here/in-buildroot.sh" llvm-strip-19 --strip-debug "$2/rpcrdma.ko"
}

payload() {
	local dir=$RUN/payload/lab
	mkdir -p "$dir/payload"
	cp -r "$here/guest" "$dir/guest"
	[ -z "${PAYLOAD:-}" ] || cp -r "$PAYLOAD/." "$dir/payload/"
	mkdir -p "$dir/payload/server"
	[ "$client" != rust ] || carry "$module" "$dir/payload"
	[ "$peer" != rust ] || carry "$server_module" "$dir/payload/server"
	pack "$RUN/payload" "$RUN/payload.initrd"
	rm -r "$RUN/payload"
	cat "$tree.initrd" "$RUN/payload.initrd" >"$RUN/client.initrd"
	if [ -n "${OVERLAY:-}" ]; then
		pack "$OVERLAY" "$RUN/overlay.initrd"
		cat "$RUN/overlay.initrd" >>"$RUN/client.initrd"
		rm "$RUN/overlay.initrd"
	fi
	cat "$server_tree.initrd" "$RUN/payload.initrd" >"$RUN/server.initrd"
	rm "$RUN/payload.initrd"
}

# Runs the program that is a machine, in the background: launch NAME COMMAND... Standard input and
# output are the terminal for the machine that gives a prompt on it.
launch() {
	local name=$1 in=/dev/null out=$RUN/$1.host
	shift
	[ "$name" != client ] || [ -z "${VM_SHELL:-}" ] || in=/dev/tty out=/dev/tty
	"$@" <"$in" >"$out" 2>"$RUN/$name.host" &
	printf '%d\n' $! >"$RUN/$name.pid"
}

# The kernel's command line, apart from what a kind of machine adds.
words() {
	local checks=
	# The arrays of free objects from which SLUB allocates keep pointers to those that it has given out,
	# so that kmemleak takes none for lost. Caches with checks have no such arrays.
	case $kernel in debug | um-leaks) checks=slab_debug=F ;; esac
	printf '%s\n' "$checks loglevel=7 log_buf_len=4M panic=-1 oops=panic kunit.enable=1 kunit.autorun=1 role=$1 transport=${TRANSPORT:-rxe} mtu=${MTU:-1500} ${APPEND:-}"
}

wait_ready() {
	local vm_out
	exec {vm_out}<>"$RUN/$1.agent.out"
	vm_read "$1" 240 || {
		cat "$RUN/$1.host" >&2
		tail -n 20 "$RUN/$1.log" >&2
		die "the $1 machine did not start"
	}
	exec {vm_out}>&-
}

payload
for name in server client; do
	mkfifo "$RUN/$name.agent.in" "$RUN/$name.agent.out"
done
machines_start "$server_tree" "$tree"
wait_ready server
wait_ready client
server_run "/lab/guest/server start $peer" || die "the server did not start, see above"
client_run "/lab/guest/client $client" || die "the client's transport did not load, see above"

rc=0
"$@" || rc=$?
"$here/complaints.sh" >&2 || [ $rc -ne 0 ] || rc=1
exit $rc
