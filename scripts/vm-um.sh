# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The machines of vm.sh as two processes of User-Mode Linux, without QEMU.

kernels=(um um-debug um-leaks)

# They are joined by a pair of connected sockets, which no shell can make: perl makes it and starts
# vm.sh once more, with the numbers of both.
[ -n "${UM_NET:-}" ] || exec perl -MSocket -e '
	$^F = 1 << 20;
	socketpair(my $one, my $other, AF_UNIX, SOCK_SEQPACKET, 0) or die "socketpair: $!\n";
	$ENV{UM_NET} = fileno($one) . " " . fileno($other);
	exec @ARGV or die "$ARGV[0]: $!\n"' "$0" "$@"

# um_start NAME TREE MAC SOCKET
um_start() {
	local name=$1 shell=null words
	words=$(words "$name")
	# Together with the other checkers it makes an RPC of a mebibyte take eight seconds.
	[[ $2 != */um-debug ]] || words+=" kmemleak=off"
	[ "$name" != client ] || [ -z "${VM_SHELL:-}" ] || shell=fd:0,fd:1
	# Programs run a third faster under seccomp filters than traced, and several CPUs need them.
	# The disk is only read, below a copy on write of the machine's own: no lock keeps others off (c).
	# shellcheck disable=SC2086 # A command line is made of words.
	BIND="$RUN${BIND:+:$BIND}" launch "$name" "${here:?}/in-buildroot.sh" "$2/vmlinuz" seccomp=auto ncpus="${SMP:-1}" mem="${MEM:-1024}M" noreboot umid="$name" uml_dir="$RUN/um/" \
		initrd="$RUN/$name.initrd" disk=/dev/ubda ubd0c="$RUN/$name.cow,$CACHE/guest/root.img" \
		agent=/dev/ttyS0 ssl0=fd:3,fd:4 ssl1="$shell" ssl=null con0=null,fd:5 con=null \
		vec0:transport=fd,fd=6,mac="$3",mtu="${MTU:-1500}" $words \
		6<&"$4" 3<>"$RUN/$name.agent.in" 4<>"$RUN/$name.agent.out" 5>"$RUN/$name.log"
}

machines_start() {
	local net
	read -ra net <<<"$UM_NET"
	um_start server "$1" 52:54:00:00:00:01 "${net[0]}"
	um_start client "$2" 52:54:00:00:00:02 "${net[1]}"
}
