/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The same as helpers.h, for what only the server needs.
 */
#ifndef RPCRDMA_SVC_HELPERS_H
#define RPCRDMA_SVC_HELPERS_H

#include <linux/sunrpc/svc_xprt.h>

#include "helpers.h"

bool rpcrdma_rpc_cmp_addr(const struct sockaddr *one, const struct sockaddr *other);
bool rpcrdma_svc_xprt_get_unless_zero(struct svc_xprt *xprt);
struct page *rpcrdma_virt_to_page(const void *address);

#endif
