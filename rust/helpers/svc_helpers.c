// SPDX-License-Identifier: GPL-2.0
/*
 * The same as helpers.c, for what only the server needs.
 */
#include <linux/mm.h>
#include <linux/sunrpc/svc_xprt.h>

/* A reference, unless the last one was dropped; the memory is valid in either case. */
bool rpcrdma_svc_xprt_get_unless_zero(struct svc_xprt *xprt)
{
	return kref_get_unless_zero(&xprt->xpt_ref);
}

struct page *rpcrdma_virt_to_page(const void *address)
{
	return virt_to_page(address);
}
