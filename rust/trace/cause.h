/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Why a connection ended, or was never made: what enum Cause of error.rs
 * explains. The list is expanded once more for the trace events, which read
 * their header several times.
 */
#ifndef RPCRDMA_CAUSE_H
#define RPCRDMA_CAUSE_H

#define RPCRDMA_CAUSE_LIST					\
	rpcrdma_cause(ADDRESS_ERROR, "address_error")		\
	rpcrdma_cause(ROUTE_ERROR, "route_error")		\
	rpcrdma_cause(REJECTED, "rejected")			\
	rpcrdma_cause(STALE_CONNECTION, "stale_connection")	\
	rpcrdma_cause(UNREACHABLE, "unreachable")		\
	rpcrdma_cause(CONNECT_ERROR, "connect_error")		\
	rpcrdma_cause(DISCONNECTED, "disconnected")		\
	rpcrdma_cause(DEVICE_REMOVED, "device_removed")		\
	rpcrdma_cause(ADDRESS_CHANGED, "address_changed")	\
	rpcrdma_cause(TIMED_OUT, "timed_out")			\
	rpcrdma_cause(INCAPABLE, "incapable")			\
	rpcrdma_cause(LOCAL_RESOURCES, "local_resources")	\
	rpcrdma_cause(CLOSED, "closed")				\
	rpcrdma_cause(RPC_TIMEOUT, "rpc_timeout")		\
	rpcrdma_cause(WORK_REQUEST, "work_request")		\
	rpcrdma_cause(POST_FAILED, "post_failed")		\
	rpcrdma_cause(RETRANSMISSION, "retransmission")		\
	rpcrdma_cause(ONE_WAY_CALL, "one_way_call")		\
	rpcrdma_cause(REPLY_FAILED, "reply_failed")		\
	rpcrdma_cause_end(INJECTED, "injected")

#define rpcrdma_cause(name, text)	RPCRDMA_CAUSE_##name,
#define rpcrdma_cause_end(name, text)	RPCRDMA_CAUSE_##name

enum rpcrdma_cause {
	RPCRDMA_CAUSE_LIST
};

#undef rpcrdma_cause
#undef rpcrdma_cause_end

#endif
