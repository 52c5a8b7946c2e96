# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The machines of vm.sh in QEMU, joined by a stream of packets through a socket.

kernels=(stock custom debug release arm64-4k arm64-64k)

# qemu_start NAME TREE MAC NETDEV
qemu_start() {
	local name=$1 tree=$2 words shell=() plugin=() program=(qemu-system-x86_64 -machine pc) root=root
	# On a busy host the few ticks that the kernel waits for at first may come too late.
	# vm_where sends an interrupt that cannot be masked.
	words="console=ttyS0 no_timer_check unknown_nmi_panic"
	case $tree in
	# The interpreter of ACPI runs into its own time limits under all the checkers.
	*/debug) words+=" acpi=off" ;;
	*/arm64-*)
		words="console=ttyAMA0" root=root-arm64
		# Signed pointers cost an emulator much, and nothing here is about them.
		program=(qemu-system-aarch64 -machine virt,gic-version=3)
		accel=(-accel tcg,thread=multi -cpu max,pauth=off)
		;;
	esac
	words+=" $(words "$name")"
	[ "$name" != client ] || [ -z "${VM_SHELL:-}" ] || shell=(-chardev 'stdio,id=shell,signal=off' -serial chardev:shell)
	# Only an emulated machine has plugins.
	if [ "$name" = "${PLUGIN_IN:-client}" ] && [ -n "${PLUGIN:-}" ]; then
		accel=(-accel tcg -cpu max)
		plugin=(-plugin "$PLUGIN")
	fi
	# A pool of pages in the network driver would run softirqs wherever a packet is freed, and rxe frees
	# packets with the lock of its queue pair held, which those softirqs take. virtio_net has no pool for
	# packets of more than 1500 bytes each of which is one buffer; init sets the MTU that is used.
	# The snapshot file of the root disk lives where QEMU finds TMPDIR.
	TMPDIR=$RUN launch "$name" "${program[@]}" -nodefaults -no-user-config -no-reboot -display none \
		"${accel[@]}" "${plugin[@]}" -name "$name" -m "${MEM:-1024}" -smp "${SMP:-1}" \
		-kernel "$tree/vmlinuz" -initrd "$RUN/$name.initrd" -append "$words" \
		-drive "file=$CACHE/guest/$root.img,format=raw,if=virtio,snapshot=on" \
		-device virtio-rng-pci -device virtio-serial-pci \
		-chardev "pipe,id=agent,path=$RUN/$name.agent" -device virtserialport,chardev=agent,name=agent \
		-netdev "$4" -device "virtio-net-pci,netdev=net,mac=$3,mrg_rxbuf=off,host_mtu=$((${MTU:-1500} + 1)),romfile=" \
		-monitor "unix:$RUN/$name.monitor,server=on,wait=off" -serial "file:$RUN/$name.log" "${shell[@]}"
}

machines_start() {
	local accel
	read -ra accel < <("${here:?}/accel.sh")
	qemu_start server "$1" 52:54:00:00:00:01 "stream,id=net,server=on,addr.type=unix,addr.path=$RUN/net"
	until [ -S "$RUN/net" ]; do
		vm_alive server || die "QEMU did not start: $(cat "$RUN/server.host")"
		sleep 0.1
	done
	qemu_start client "$2" 52:54:00:00:00:02 "stream,id=net,server=off,addr.type=unix,addr.path=$RUN/net"
}
