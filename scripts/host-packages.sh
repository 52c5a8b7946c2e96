#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: host-packages.sh build|vm [KERNEL]
#
# Looks for the few programs that the machine itself must have, to build or also to run virtual
# machines with KERNEL. Root gets what is missing installed, after it is named; anyone else gets
# the one line to type.

. "$(dirname "$0")/lib.sh"

missing=()
need() {
	command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}

need mmdebstrap mmdebstrap
need flock util-linux
need xz xz-utils
[ -f /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
if [ "$(id -u)" -ne 0 ]; then
	need newuidmap uidmap
fi
if [ "${1:-build}" = vm ]; then
	case ${2:-} in
	um*) ;;
	arm64-*) need qemu-system-aarch64 qemu-system-arm ;;
	*) need qemu-system-x86_64 qemu-system-x86 ;;
	esac
	need cpio cpio
	need git git
fi

[ ${#missing[@]} -gt 0 ] || exit 0
line="apt-get install --yes --no-install-recommends ${missing[*]}"
if [ "$(id -u)" -ne 0 ]; then
	die "Debian packages are missing; type: sudo $line"
fi
say "installing missing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# A fresh machine may have no package lists, or old ones that name vanished files.
if ! $line >"$CACHE/logs/apt-install.log" 2>&1; then
	logged apt-update "check the network and this machine's apt sources" apt-get update
	# shellcheck disable=SC2086 # The line is a list of words.
	logged apt-install "check this machine's apt sources" $line
fi
