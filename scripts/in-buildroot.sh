#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: in-buildroot.sh COMMAND...
#
# Runs a command inside the build root. The project, the cache, /tmp and the folders named in BIND
# (separated by colons) are there under the same absolute paths, so that a path means the same
# inside and outside; the working directory and the exit status are kept.

. "$(dirname "$0")/lib.sh"

[ $# -gt 0 ] || die "usage: in-buildroot.sh COMMAND..."
[ -f "$BUILDROOT.stamp" ] || "$here/buildroot.sh"

# What a command may want to know from outside: the terminal, cargo's places, the way to the network.
keep=()
for name in TERM RUSTC_BOOTSTRAP RUST_LIB_SRC SSL_CERT_FILE http_proxy https_proxy no_proxy "${!CARGO_@}"; do
	[ -z "${!name:-}" ] || keep+=("$name=${!name}")
done
mounts=/tmp:$PROJECT:$CACHE${BIND:+:$BIND}
for file in /etc/resolv.conf "${SSL_CERT_FILE:-}"; do
	[ ! -f "$file" ] || mounts+=:$file
done

inner='
set -eu
root=$1 mounts=$2 cwd=$3
shift 3
for dir in /proc /dev /sys; do mount --rbind "$dir" "$root$dir"; done
IFS=:
for path in $mounts; do
	if [ -d "$path" ]; then
		mkdir -p "$root$path"
	else
		mkdir -p "$root${path%/*}"
		[ -e "$root$path" ] || : >"$root$path"
	fi
	mount --bind "$path" "$root$path"
done
unset IFS
exec chroot "$root" /usr/bin/env -C "$cwd" -i HOME=/root LANG=C.UTF-8 \
	PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin "$@"
'
exec "$here/as-root.sh" sh -c "$inner" in-buildroot "$BUILDROOT" "$mounts" "$PWD" "${keep[@]}" "$@"
