#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Prints QEMU's arguments for the fastest way of running a guest. A machine may have /dev/kvm and
# yet run no guest with it, so one is booted, with a limit, once after each start of the machine.

. "$(dirname "$0")/lib.sh"

tcg="-accel tcg,thread=multi -cpu max"
[ -w /dev/kvm ] || {
	printf '%s\n' "$tcg"
	exit 0
}
boot=$(cat /proc/sys/kernel/random/boot_id)
known=$CACHE/accel
if [ ! -f "$known" ] || [ "$(head -n 1 "$known")" != "$boot" ]; then
	lock accel
	initrd=$(find "$CACHE" -mindepth 2 -maxdepth 2 -name '*.initrd' ! -name 'um*' ! -name 'arm64*' | head -n 1)
	# Without anything to boot nothing is known yet.
	[ -n "$initrd" ] || {
		printf '%s\n' "$tcg"
		exit 0
	}
	if timeout 10 qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -serial stdio \
		-accel kvm -cpu host -m 512 -kernel "${initrd%.initrd}/vmlinuz" -initrd "$initrd" \
		-append "console=ttyS0 panic=-1 role=probe" </dev/null 2>/dev/null | grep -q 'lab: guest alive'; then
		use="-accel kvm -cpu host"
	else
		use=$tcg
	fi
	printf '%s\n%s\n' "$boot" "$use" >"$known.tmp"
	mv "$known.tmp" "$known"
fi
tail -n 1 "$known"
