# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What every script here shares: places, messages, locks and stamps.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PROJECT=$(dirname "$here")
CACHE=${RPCRDMA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rpcrdma}
# ROOT=testing takes the build root with the compilers of Debian testing, and its tools.
BUILDROOT=$CACHE/buildroot${ROOT:+-$ROOT}
# The Debian release whose compiler built the stock kernel: package versions carry its number.
RELEASE=trixie
RELEASE_TAG=+deb13
# And the one that is to be the next.
TESTING=forky
TESTING_TAG=+deb14
JOBS=${JOBS:-$(nproc)}

# Who is not root does not find root's programs, such as chroot.
export PATH=$PATH:/usr/sbin:/sbin

mkdir -p "$CACHE/logs"

say() { printf '%s\n' "$*" >&2; }

die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# A step's stamp is written last, so that an interrupted step is done again.
stamped() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

stamp() {
	printf '%s\n' "$2" >"$1.tmp"
	mv "$1.tmp" "$1"
}

# The series of a kernel's source, such as 7.3.
series_of() { sed -n 's/^\(VERSION\|PATCHLEVEL\) = //p' "$1/Makefile" | paste -sd .; }

# one_of VARIABLE WORD...: it is unset or one of these.
one_of() {
	local value=${!1:-$2}
	[[ " ${*:2} " == *" $value "* ]] || die "$1 is one of '${*:2}', not '$value'"
}

# What the machines are asked to be, before anything is built: check_machines KERNEL.
check_machines() {
	one_of TRANSPORT rxe siw
	one_of CLIENT rust c none
	one_of PEER rust c
	[ "$1 ${TRANSPORT:-}" != "stock siw" ] || die "the stock kernel has no siw: set KERNEL=custom or KERNEL=um"
}

# Two runs of the same step must not collide: the second waits and then finds the work done.
lock() {
	exec {lock_fd}>"$CACHE/.lock-$1"
	flock -n "$lock_fd" || {
		say "waiting for another run that is busy with $1"
		flock "$lock_fd"
	}
}

# Runs a long command with its output in a log; a terminal sees a line of progress, a failure
# shows the end of the log and one sentence.
logged() {
	local name=$1 advice=$2 log=$CACHE/logs/$1.log start=$SECONDS pid rc=0
	shift 2
	say "[$name] started, log in $log"
	# In a process group of its own, so that an interrupt ends all of it.
	set -m
	"$@" >"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	trap 'kill -- "-$pid" 2>/dev/null; wait "$pid"; exit 130' INT TERM HUP
	while kill -0 "$pid" 2>/dev/null; do
		if [ -t 2 ]; then
			printf '\r\033[K[%s] %ds  %s' "$name" $((SECONDS - start)) \
				"$(tail -n 1 "$log" | tr -d '\r' | cut -c1-60)" >&2
		elif [ $(((SECONDS - start) % 60)) -eq 59 ]; then
			say "[$name] $((SECONDS - start))s"
		fi
		sleep 1
	done
	[ ! -t 2 ] || printf '\r\033[K' >&2
	wait "$pid" || rc=$?
	trap - INT TERM HUP
	if [ $rc -ne 0 ]; then
		tail -n 15 "$log" >&2
		if [ "$(df --output=avail -k "$CACHE" | tail -n 1)" -lt 102400 ]; then
			advice="the disk of $CACHE is full: free some space, or set RPCRDMA_CACHE to another place"
		fi
		die "$name failed (status $rc): $advice (log: $log)"
	fi
	say "[$name] done in $((SECONDS - start))s"
}

# The mirror is the one that this machine's own apt uses for Debian itself.
mirror() {
	local site
	site=$(env -u APT_CONFIG apt-get indextargets --format '$(REPO_URI) $(CREATED_BY) $(ORIGIN) $(LABEL)' 2>/dev/null |
		awk '$2 == "Packages" && $3 == "Debian" && $4 == "Debian" { print $1; exit }')
	[ -n "$site" ] || site=$(grep -rhoE '^(URIs:|deb)[^#]*' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
		grep -oE '(https?|file|mirror[^:]*):[^ ]*/debian/?( |$)' | head -n 1)
	site=${site// /}
	[ -n "$site" ] || die "no Debian mirror found in this machine's apt sources: add one to /etc/apt/sources.list.d"
	printf '%s\n' "${site%/}"
}

# How mmdebstrap works: root does without the namespaces that a user needs.
mmdebstrap_mode() { [ "$(id -u)" -eq 0 ] && echo root || echo unshare; }

keyring() {
	local ring=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -f $ring ] || die "$ring is missing: install debian-archive-keyring"
	printf '%s\n' "$ring"
}

# A private apt configuration for one suite: the machine's own is only read, for the mirror.
private_apt() {
	local apt=$CACHE/apt/$1 ring site
	ring=$(keyring)
	site=$(mirror)
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
	printf 'deb [signed-by=%s] %s %s main\n' "$ring" "$site" "$1" >"$apt/sources.list"
	cat >"$apt/apt.conf" <<-EOF
		Dir::Etc::SourceList "$apt/sources.list";
		Dir::Etc::SourceParts "/dev/null";
		Dir::State::Lists "$apt/lists";
		Dir::State::status "/dev/null";
		Dir::Cache "$apt/cache";
		Acquire::Languages "none";
		APT::Get::List-Cleanup "0";
		APT::Architecture "amd64";
		APT::Sandbox::User "root";
	EOF
	# A mirror may be older than testing's lists are good for.
	[ "$1" != $TESTING ] || printf 'Acquire::Check-Valid-Until "false";\n' >>"$apt/apt.conf"
	export APT_CONFIG=$apt/apt.conf
	logged "apt-$1" "check the network and the mirror in this machine's apt sources" \
		apt-get -o APT::Update::Error-Mode=any update
}

# Packs a folder as an archive that the kernel unpacks at boot; several may follow each other.
pack() {
	(cd "$1" && find . -print0 | sort -z | cpio --null --create --format=newc --owner=+0:+0 --quiet) >"$2.tmp"
	mv "$2.tmp" "$2"
}

# Cargo in the build root, with its output in build/NAME: cargo_in NAME ARGUMENT...
cargo_in() {
	local name=$1
	shift
	mkdir -p "$CACHE/cargo" "$CACHE/build"
	# Cargo would take for up to date what it has built of another clone.
	if ! stamped "$CACHE/build/$name.stamp" "$PROJECT"; then
		find "$CACHE/build" -path "*/$name/*/.fingerprint/rpcrdma-*" -prune -exec rm -rf {} +
		stamp "$CACHE/build/$name.stamp" "$PROJECT"
	fi
	CARGO_HOME=$CACHE/cargo CARGO_TARGET_DIR=$CACHE/build/$name "$here/in-buildroot.sh" cargo "$@"
}
