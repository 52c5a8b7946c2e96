#!/usr/bin/awk -f
# SPDX-License-Identifier: GPL-2.0
#
# Makes a table of what an RDMA mount carried out of /proc/self/mountstats, whose xprt line has one
# number per counter, and of our module's debugfs lines ("path:name value"), where there are any.

/^\txprt:\trdma / {
	for (i = 3; i <= NF; i++)
		sum[i - 2] += $i
	mounts++
}

/^\/sys\/kernel\/debug\/rpcrdma\/[0-9]*\/stats:remote_invalidations / {
	sub(/^[^:]*:/, "")
	for (i = 1; i <= NF; i++)
		if ($i ~ /^[0-9]+$/)
			remote += $i
	seen = 1
}

function row(name, value) {
	printf "%-44s %10d\n", name, value
}

END {
	if (!mounts) {
		print "mountstats has no RDMA transport" > "/dev/stderr"
		exit 1
	}
	row("connects", sum[3])
	row("calls sent", sum[6])
	row("replies received", sum[7])
	row("Read segments offered", sum[11])
	row("calls sent as a position-zero Read chunk", sum[21])
	row("Write segments offered", sum[12])
	row("Reply chunk segments offered", sum[13])
	row("bytes offered in Write and Reply chunks", sum[14])
	row("bytes the server wrote into them", sum[15])
	row("bytes pulled up into calls", sum[16])
	row("bytes copied out of replies", sum[17])
	row("memory regions allocated", sum[24])
	row("local invalidations", sum[25])
	if (seen)
		row("remote invalidations", remote)
	row("calls that could not be marshalled", sum[19])
	row("bad replies", sum[20])
	row("replies to unknown calls", sum[8])
}
