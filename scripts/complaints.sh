#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: complaints.sh [MACHINE...]
#
# Runs under vm.sh: looks through what both kernels, or those of the named machines, logged since the last
# look, and fails with the lines that tell of a bug. EXPECT=REGEX names lines that are part of the test.

. "$(dirname "$0")/lib.sh"
. "$here/vm-lib.sh"

# What a kernel says when it, or a checker in it, found something wrong.
words='WARNING:|BUG|Oops|[Kk]ernel panic|general protection|UBSAN|KASAN|KFENCE'
words+='|possible (recursive|circular|irq)|inconsistent lock|suspicious RCU|held lock freed|still held'
words+='|non-static key|turning off the locking correctness'
words+='|task .* blocked|detected (expedited )?stalls?|self-detected|lockup|while atomic|sleeping function'
words+='|already exists in|duplicate filename'
words+='|unreferenced object|[Mm]emory leak|leaked|DMA-API|ODEBUG|refcount_t|list_(add|del) corruption'

# Each look leaves a mark in the log, whose beginning gets lost in time. Without the last mark
# everything is new.
new() {
	awk -v from="complaints.sh: look $1 " -v to="complaints.sh: look $2 " '
		index($0, from) { count = 0; next }
		index($0, to) { exit }
		{ line[count++] = $0 }
		END { for (i = 0; i < count; i++) print line[i] }'
}

[ $# -gt 0 ] || set -- server client
rc=0
for name; do
	seen=$(cat "$RUN/$name.seen" 2>/dev/null || echo 0)
	# kmemleak looks at its own pace; asked twice, it is sure of what it says. What a thread of nfsd has lost
	# that copies a file is nfsd's (Documentation/todo.rst).
	if ! vm_alive "$name" || ! vm_run "$name" 120 'leaks=/sys/kernel/debug/kmemleak
		if [ -f $leaks ]; then
			echo scan >$leaks; echo scan >$leaks
			awk "/^unreferenced object/ { first = \$0; getline; own = !/comm \"copy thread\"/; if (own) print first } own" $leaks |
				while IFS= read -r line; do printf "%s\n" "$line" >/dev/kmsg; done
			echo clear >$leaks
		fi
		echo "complaints.sh: look '$((seen + 1))' is over" >/dev/kmsg
		dmesg' >"$RUN/$name.dmesg" 2>/dev/null; then
		# A machine that cannot answer has told its console.
		tr -d '\r' <"$RUN/$name.log" >"$RUN/$name.dmesg"
	fi
	if new "$seen" $((seen + 1)) <"$RUN/$name.dmesg" | grep -E "$words" |
		grep -vE "memory leak detector (initialized|disabled)|kmemleak: [0-9]+ new suspected memory leaks|DMA-API: preallocated|DMA-API: debugging enabled${EXPECT:+|$EXPECT}" >"$RUN/$name.bad"; then
		printf '# the %s kernel complained:\n' "$name"
		sed 's/^/#   /' "$RUN/$name.bad"
		rc=1
	fi
	printf '%d\n' $((seen + 1)) >"$RUN/$name.seen"
done
exit $rc
