# SPDX-License-Identifier: GPL-2.0
#
# Makes of what rpcrdma-decode --json prints the columns that wire.sh has tshark print.

def list(f): [f] | map(tostring) | join(",");
def segments: .reads[]?, .writes[]?[], .reply[]?;

select(has("xid")) | [
	.frame, .xid, .version, .credits,
	{RDMA_MSG: 0, RDMA_NOMSG: 1, RDMA_ERROR: 4}[.procedure],
	{ERR_VERS: 1, ERR_CHUNK: 2}[.error // ""],
	if has("reads") then (.reads | length), (.writes | length), ([.reply | values] | length) else null, null, null end,
	list((.writes[]?, (.reply | values)) | length),
	list(.reads[]?.position),
	list(segments.handle), list(segments.length), list(segments.offset)
] | @tsv
