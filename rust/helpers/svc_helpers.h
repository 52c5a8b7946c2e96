/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The same as helpers.h, for what only the server needs.
 */
#ifndef RPCRDMA_SVC_HELPERS_H
#define RPCRDMA_SVC_HELPERS_H

#include <linux/sunrpc/svc_xprt.h>

#include "helpers.h"

bool rpcrdma_rpc_cmp_addr(const struct sockaddr *one, const struct sockaddr *other);
void rpcrdma_set_bit(unsigned int bit, unsigned long *word);
void rpcrdma_clear_bit(unsigned int bit, unsigned long *word);
void rpcrdma_set_bit_mb(unsigned int bit, unsigned long *word);
void rpcrdma_clear_bit_mb(unsigned int bit, unsigned long *word);
struct page *rpcrdma_virt_to_page(const void *address);

/* The server's counters for all connections. */
enum rpcrdma_svc_counter {
	RPCRDMA_SVC_READ,
	RPCRDMA_SVC_RECV,
	RPCRDMA_SVC_WRITE,
	RPCRDMA_SVC_SQ_STARVE,
	RPCRDMA_SVC_COUNTERS
};

struct ctl_table_header *rpcrdma_svc_sysctl_register(void);
unsigned int rpcrdma_svc_max_requests(void);
unsigned int rpcrdma_svc_max_req_size(void);
unsigned int rpcrdma_svc_read_requests(void);
enum rpcrdma_version_two rpcrdma_svc_version_two(void);
void rpcrdma_svc_count(enum rpcrdma_svc_counter counter, unsigned long count);

#endif
