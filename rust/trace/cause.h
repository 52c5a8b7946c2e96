/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Why a connection ended, or was never established. The causes are explained
 * at enum Cause in error.rs; trace events show the names given here.
 */
#ifndef RPCRDMA_CAUSE_H
#define RPCRDMA_CAUSE_H

#define RPCRDMA_CAUSES						\
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
	rpcrdma_cause(NO_COMMON_VERSION, "no_common_version")	\
	rpcrdma_cause(HIGHER_VERSION, "higher_version")		\
	rpcrdma_cause(INJECTED, "injected")			\
	rpcrdma_cause(NOT_A_SEND, "not_a_send")

#define rpcrdma_cause(symbol, name) RPCRDMA_CAUSE_##symbol,

enum rpcrdma_cause { RPCRDMA_CAUSES };

#endif
