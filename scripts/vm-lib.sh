# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Commands for the pair of virtual machines that scripts/vm.sh started: for everything that runs
# under it, selftests above all. vm.sh exports RUN, the folder of the run.
#
#   server_run 'COMMAND'      runs it in the server, prints its output, returns its status
#   client_run 'COMMAND'      the same in the client; LIMIT=SECONDS before either, default 120
#   vm_alive NAME             says whether that machine still runs
#   vm_end NAME               ends it at once
#
# In a machine SERVER, CLIENT, SERVER6, CLIENT6, NETDEV and RDMA_LINK are set, /export is the
# server's export (tmpfs) and /export/disk another (ext4), and /lab/payload has the run's files.

vm_alive() { kill -0 "$(cat "$RUN/$1.pid")" 2>/dev/null; }

# A User-Mode Linux is a group of processes, and does no good when it is asked to end.
vm_end() {
	local pid
	pid=$(cat "$RUN/$1.pid" 2>/dev/null) || return 0
	kill -KILL -- "-$pid" 2>/dev/null || kill "$pid" 2>/dev/null || true
}

# Has a machine that does not answer say where it is. The interrupt gets through to a kernel that has
# switched off all others, which then ends.
vm_where() {
	local lines
	[ -S "$RUN/$1.monitor" ] || return 0
	lines=$(wc -l <"$RUN/$1.log")
	perl -MIO::Socket::UNIX -e '
		my $monitor = IO::Socket::UNIX->new($ARGV[0]) or exit 1;
		print $monitor "nmi\n";
		$monitor->flush;
		sleep 5' "$RUN/$1.monitor" || true
	tail -n "+$((lines + 1))" "$RUN/$1.log"
}

# Reads one line of a machine's answers, for as long as the machine lives and the limit allows.
vm_read() {
	local name=$1 end=$((SECONDS + $2)) part
	vm_line=
	until IFS= read -r -t 1 -u "$vm_out" part; do
		vm_line+=$part
		vm_alive "$name" || {
			printf 'the %s machine died; its console is in %s\n' "$name" "$RUN/$name.log" >&2
			return 125
		}
		[ "$SECONDS" -lt "$end" ] || {
			# What it answered later would be taken for the answer to something else.
			printf 'the %s machine does not answer and is ended; its console is in %s\n' "$name" "$RUN/$name.log" >&2
			vm_where "$name" >&2
			vm_end "$name"
			return 125
		}
	done
	vm_line+=$part
}

# Skips what is not the answer to the request with that tag: vm_answer NAME SECONDS TAG.
vm_answer() {
	vm_line=
	until [[ $vm_line == "$3 "* ]]; do
		vm_read "$1" "$2" || exit
	done
}

vm_run() {
	local name=$1 limit=$(($2 * ${SLOW:-1})) tag=$BASHPID.$EPOCHREALTIME code status size
	# Nobody reads the pipe then, and who opens it waits for ever.
	vm_alive "$name" || {
		printf 'the %s machine is dead; its console is in %s\n' "$name" "$RUN/$name.log" >&2
		return 125
	}
	code=$(base64 -w 0 <<<"$3")
	(
		exec {vm_out}<>"$RUN/$name.agent.out" {lock}>"$RUN/$name.lock"
		flock "$lock"
		while [ ${#code} -gt 3000 ]; do
			printf '%s more %s\n' "$tag" "${code:0:3000}" >"$RUN/$name.agent.in"
			vm_answer "$name" 30 "$tag"
			code=${code:3000}
		done
		printf '%s %d %s\n' "$tag" "$limit" "$code" >"$RUN/$name.agent.in"
		vm_answer "$name" $((limit + 30)) "$tag"
		read -r _ status size <<<"$vm_line"
		head -c "$size" <&"$vm_out"
		exit "$status"
	)
}

server_run() { vm_run server "${LIMIT:-120}" "$1"; }
client_run() { vm_run client "${LIMIT:-120}" "$1"; }
