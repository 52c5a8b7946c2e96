/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of the client. Events that the kernel's C transport also has
 * go by the same names. Arguments are numbers only:
 *
 * xprt		the number of the transport in sysfs and debugfs
 * cq.id, mr.id	the number that "rdma resource show" lists
 * cid		the number of a Receive or of a Send
 * task		the RPC task, as in the sunrpc events
 *
 * The upper half of a memory region's offset is the XID of its Call.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rpcrdma

#if !defined(_RPCRDMA_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _RPCRDMA_TRACE_H

#include <linux/dma-direction.h>
#include <linux/jiffies.h>
#include <linux/tracepoint.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <trace/misc/rdma.h>
#include <trace/misc/sunrpc.h>

#include "trace/cause.h"

/*
 * Connections
 */

TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_ADDRESS_ERROR);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_ROUTE_ERROR);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_REJECTED);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_STALE_CONNECTION);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_UNREACHABLE);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_CONNECT_ERROR);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_DISCONNECTED);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_DEVICE_REMOVED);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_ADDRESS_CHANGED);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_TIMED_OUT);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_INCAPABLE);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_LOCAL_RESOURCES);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_CLOSED);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_RPC_TIMEOUT);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_WORK_REQUEST);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_POST_FAILED);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_RETRANSMISSION);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_ONE_WAY_CALL);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_REPLY_FAILED);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_NO_COMMON_VERSION);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_HIGHER_VERSION);
TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_INJECTED);

#define rpcrdma_show_cause(cause)					\
	__print_symbolic(cause,						\
		{ RPCRDMA_CAUSE_ADDRESS_ERROR, "address_error" },	\
		{ RPCRDMA_CAUSE_ROUTE_ERROR, "route_error" },		\
		{ RPCRDMA_CAUSE_REJECTED, "rejected" },			\
		{ RPCRDMA_CAUSE_STALE_CONNECTION, "stale_connection" },	\
		{ RPCRDMA_CAUSE_UNREACHABLE, "unreachable" },		\
		{ RPCRDMA_CAUSE_CONNECT_ERROR, "connect_error" },	\
		{ RPCRDMA_CAUSE_DISCONNECTED, "disconnected" },		\
		{ RPCRDMA_CAUSE_DEVICE_REMOVED, "device_removed" },	\
		{ RPCRDMA_CAUSE_ADDRESS_CHANGED, "address_changed" },	\
		{ RPCRDMA_CAUSE_TIMED_OUT, "timed_out" },		\
		{ RPCRDMA_CAUSE_INCAPABLE, "incapable" },		\
		{ RPCRDMA_CAUSE_LOCAL_RESOURCES, "local_resources" },	\
		{ RPCRDMA_CAUSE_CLOSED, "closed" },			\
		{ RPCRDMA_CAUSE_RPC_TIMEOUT, "rpc_timeout" },		\
		{ RPCRDMA_CAUSE_WORK_REQUEST, "work_request" },		\
		{ RPCRDMA_CAUSE_POST_FAILED, "post_failed" },		\
		{ RPCRDMA_CAUSE_RETRANSMISSION, "retransmission" },	\
		{ RPCRDMA_CAUSE_ONE_WAY_CALL, "one_way_call" },		\
		{ RPCRDMA_CAUSE_REPLY_FAILED, "reply_failed" },		\
		{ RPCRDMA_CAUSE_NO_COMMON_VERSION, "no_common_version" }, \
		{ RPCRDMA_CAUSE_HIGHER_VERSION, "higher_version" }, \
		{ RPCRDMA_CAUSE_INJECTED, "injected" })

DECLARE_EVENT_CLASS(xprtrdma_xprt_class,
		    TP_PROTO(u32 xprt),
		    TP_ARGS(xprt),
		    TP_STRUCT__entry(__field(u32, xprt)),
		    TP_fast_assign(__entry->xprt = xprt;),
		    TP_printk("xprt=%u", __entry->xprt));

DEFINE_EVENT(xprtrdma_xprt_class, xprtrdma_op_inject_dsc,
	     TP_PROTO(u32 xprt),
	     TP_ARGS(xprt));
DEFINE_EVENT(xprtrdma_xprt_class, xprtrdma_device_removal,
	     TP_PROTO(u32 xprt),
	     TP_ARGS(xprt));

TRACE_EVENT(xprtrdma_op_connect,
	    TP_PROTO(u32 xprt, unsigned long delay),
	    TP_ARGS(xprt, delay),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(unsigned long, delay)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->delay = delay;),
	    TP_printk("xprt=%u delay=%lu", __entry->xprt, __entry->delay));

TRACE_EVENT(xprtrdma_op_set_cto,
	    TP_PROTO(u32 xprt, unsigned long connect, unsigned long reconnect),
	    TP_ARGS(xprt, connect, reconnect),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(unsigned long, connect)
			     __field(unsigned long, reconnect)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->connect = connect;
			   __entry->reconnect = reconnect;),
	    TP_printk("xprt=%u connect=%lu reconnect=%lu", __entry->xprt,
		      __entry->connect / HZ, __entry->reconnect / HZ));

TRACE_EVENT(xprtrdma_version,
	    TP_PROTO(u32 xprt, u32 version),
	    TP_ARGS(xprt, version),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, version)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->version = version;),
	    TP_printk("xprt=%u version=%u", __entry->xprt,
		      __entry->version));

TRACE_EVENT(xprtrdma_inline_thresh,
	    TP_PROTO(u32 xprt, u32 inline_send, u32 inline_recv, u32 own_send,
		     u32 own_recv),
	    TP_ARGS(xprt, inline_send, inline_recv, own_send, own_recv),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, inline_send)
			     __field(u32, inline_recv)
			     __field(u32, own_send)
			     __field(u32, own_recv)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->inline_send = inline_send;
			   __entry->inline_recv = inline_recv;
			   __entry->own_send = own_send;
			   __entry->own_recv = own_recv;),
	    TP_printk("xprt=%u neg send/recv=%u/%u, own send/recv=%u/%u",
		      __entry->xprt, __entry->inline_send, __entry->inline_recv,
		      __entry->own_send, __entry->own_recv));

TRACE_EVENT(xprtrdma_connect,
	    TP_PROTO(u32 xprt, int rc, int cause),
	    TP_ARGS(xprt, rc, cause),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(int, rc)
			     __field(int, cause)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->rc = rc;
			   __entry->cause = cause;),
	    TP_printk("xprt=%u rc=%d%s%s", __entry->xprt, __entry->rc,
		      __entry->rc ? " cause=" : "",
		      __entry->rc ? rpcrdma_show_cause(__entry->cause) : ""));

TRACE_EVENT(xprtrdma_disconnect,
	    TP_PROTO(u32 xprt, int cause),
	    TP_ARGS(xprt, cause),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(int, cause)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->cause = cause;),
	    TP_printk("xprt=%u cause=%s", __entry->xprt,
		      rpcrdma_show_cause(__entry->cause)));

/*
 * Calls
 */

DECLARE_EVENT_CLASS(xprtrdma_task_class,
		    TP_PROTO(u32 xprt, u32 task_id, u32 client_id, u32 xid),
		    TP_ARGS(xprt, task_id, client_id, xid),
		    TP_STRUCT__entry(__field(u32, xprt)
				     __field(u32, task_id)
				     __field(u32, client_id)
				     __field(u32, xid)),
		    TP_fast_assign(__entry->xprt = xprt;
				   __entry->task_id = task_id;
				   __entry->client_id = client_id;
				   __entry->xid = xid;),
		    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " xprt=%u xid=0x%08x",
			      __entry->task_id, __entry->client_id,
			      __entry->xprt, __entry->xid));

#define DEFINE_TASK_EVENT(name)						\
	DEFINE_EVENT(xprtrdma_task_class, name,				\
		TP_PROTO(u32 xprt, u32 task_id, u32 client_id, u32 xid),\
		TP_ARGS(xprt, task_id, client_id, xid))

DEFINE_TASK_EVENT(xprtrdma_nomrs_err);
DEFINE_TASK_EVENT(xprtrdma_mrs_zap);
DEFINE_TASK_EVENT(xprtrdma_err_chunk);
DEFINE_TASK_EVENT(xprtrdma_err_unrecognized);

TRACE_EVENT(xprtrdma_createmrs,
	    TP_PROTO(u32 xprt, u32 count),
	    TP_ARGS(xprt, count),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, count)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->count = count;),
	    TP_printk("xprt=%u created %u MRs", __entry->xprt, __entry->count));

DECLARE_EVENT_CLASS(xprtrdma_chunk_class,
		    TP_PROTO(u32 task_id, u32 client_id, u32 pos, u32 handle,
			     u32 length, u64 offset, bool is_last),
		    TP_ARGS(task_id, client_id, pos, handle, length, offset,
			    is_last),
		    TP_STRUCT__entry(__field(u32, task_id)
				     __field(u32, client_id)
				     __field(u32, pos)
				     __field(u32, handle)
				     __field(u32, length)
				     __field(u64, offset)
				     __field(bool, is_last)),
		    TP_fast_assign(__entry->task_id = task_id;
				   __entry->client_id = client_id;
				   __entry->pos = pos;
				   __entry->handle = handle;
				   __entry->length = length;
				   __entry->offset = offset;
				   __entry->is_last = is_last;),
		    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " pos=%u %u@0x%016llx:0x%08x (%s)",
			      __entry->task_id, __entry->client_id,
			      __entry->pos, __entry->length,
			      (unsigned long long)__entry->offset,
			      __entry->handle,
			      __entry->is_last ? "last" : "more"));

#define DEFINE_CHUNK_EVENT(name)					\
	DEFINE_EVENT(xprtrdma_chunk_class, name,			\
		TP_PROTO(u32 task_id, u32 client_id, u32 pos,		\
			 u32 handle, u32 length, u64 offset,		\
			 bool is_last),					\
		TP_ARGS(task_id, client_id, pos, handle, length,	\
			offset, is_last))

DEFINE_CHUNK_EVENT(xprtrdma_chunk_read);
DEFINE_CHUNK_EVENT(xprtrdma_chunk_write);
DEFINE_CHUNK_EVENT(xprtrdma_chunk_reply);

#define xprtrdma_show_call_form(form)					\
	__print_symbolic(form, { 0, "inline" }, { 1, "read list" },	\
			 { 2, "*read list" })

#define xprtrdma_show_reply_form(form)					\
	__print_symbolic(form, { 0, "inline" }, { 1, "write list" },	\
			 { 2, "reply chunk" })

TRACE_EVENT(xprtrdma_marshal,
	    TP_PROTO(u32 task_id, u32 client_id, u32 xid, u32 hdrlen,
		     u32 headlen, u32 pagelen, u32 taillen, u32 rtype,
		     u32 wtype),
	    TP_ARGS(task_id, client_id, xid, hdrlen, headlen, pagelen, taillen,
		    rtype, wtype),
	    TP_STRUCT__entry(__field(u32, task_id)
			     __field(u32, client_id)
			     __field(u32, xid)
			     __field(u32, hdrlen)
			     __field(u32, headlen)
			     __field(u32, pagelen)
			     __field(u32, taillen)
			     __field(u32, rtype)
			     __field(u32, wtype)),
	    TP_fast_assign(__entry->task_id = task_id;
			   __entry->client_id = client_id;
			   __entry->xid = xid;
			   __entry->hdrlen = hdrlen;
			   __entry->headlen = headlen;
			   __entry->pagelen = pagelen;
			   __entry->taillen = taillen;
			   __entry->rtype = rtype;
			   __entry->wtype = wtype;),
	    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x hdr=%u xdr=%u/%u/%u %s/%s",
		      __entry->task_id, __entry->client_id, __entry->xid,
		      __entry->hdrlen, __entry->headlen, __entry->pagelen,
		      __entry->taillen, xprtrdma_show_call_form(__entry->rtype),
		      xprtrdma_show_reply_form(__entry->wtype)));

TRACE_EVENT(xprtrdma_marshal_failed,
	    TP_PROTO(u32 task_id, u32 client_id, u32 xid, int ret),
	    TP_ARGS(task_id, client_id, xid, ret),
	    TP_STRUCT__entry(__field(u32, task_id)
			     __field(u32, client_id)
			     __field(u32, xid)
			     __field(int, ret)),
	    TP_fast_assign(__entry->task_id = task_id;
			   __entry->client_id = client_id;
			   __entry->xid = xid;
			   __entry->ret = ret;),
	    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x ret=%d",
		      __entry->task_id, __entry->client_id, __entry->xid,
		      __entry->ret));

/*
 * Work requests
 */

TRACE_EVENT(xprtrdma_post_send,
	    TP_PROTO(u32 cq_id, u32 cid, u32 xid, u32 length, bool signaled),
	    TP_ARGS(cq_id, cid, xid, length, signaled),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, cid)
			     __field(u32, xid)
			     __field(u32, length)
			     __field(bool, signaled)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->cid = cid;
			   __entry->xid = xid;
			   __entry->length = length;
			   __entry->signaled = signaled;),
	    TP_printk("cq.id=%u cid=%u xid=0x%08x length=%u%s", __entry->cq_id,
		      __entry->cid, __entry->xid, __entry->length,
		      __entry->signaled ? " signaled" : ""));

DECLARE_EVENT_CLASS(xprtrdma_rc_class,
		    TP_PROTO(u32 cq_id, int rc),
		    TP_ARGS(cq_id, rc),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(int, rc)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->rc = rc;),
		    TP_printk("cq.id=%u rc=%d", __entry->cq_id, __entry->rc));

#define DEFINE_RC_EVENT(name)						\
	DEFINE_EVENT(xprtrdma_rc_class, name,				\
		TP_PROTO(u32 cq_id, int rc), TP_ARGS(cq_id, rc))

DEFINE_RC_EVENT(xprtrdma_post_send_err);
DEFINE_RC_EVENT(xprtrdma_post_recvs_err);
DEFINE_RC_EVENT(xprtrdma_post_linv_err);

TRACE_EVENT(xprtrdma_post_recv,
	    TP_PROTO(u32 cq_id, u32 cid),
	    TP_ARGS(cq_id, cid),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, cid)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->cid = cid;),
	    TP_printk("cq.id=%u cid=%u", __entry->cq_id, __entry->cid));

TRACE_EVENT(xprtrdma_post_recvs,
	    TP_PROTO(u32 cq_id, u32 count),
	    TP_ARGS(cq_id, count),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, count)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->count = count;),
	    TP_printk("cq.id=%u %u new recvs", __entry->cq_id, __entry->count));

TRACE_EVENT(xprtrdma_wc_receive,
	    TP_PROTO(u32 cq_id, u32 cid, u32 status, u32 vendor_err,
		     u32 received),
	    TP_ARGS(cq_id, cid, status, vendor_err, received),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, cid)
			     __field(u32, status)
			     __field(u32, vendor_err)
			     __field(u32, received)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->cid = cid;
			   __entry->status = status;
			   /* Only valid if the completion failed. */
			   __entry->vendor_err = status ? vendor_err : 0;
			   __entry->received = status ? 0 : received;),
	    TP_printk("cq.id=%u cid=%u status=%s (%u/0x%x) received=%u",
		      __entry->cq_id, __entry->cid,
		      rdma_show_wc_status(__entry->status), __entry->status,
		      __entry->vendor_err, __entry->received));

DECLARE_EVENT_CLASS(xprtrdma_completion_class,
		    TP_PROTO(u32 cq_id, u32 cid, u32 status, u32 vendor_err),
		    TP_ARGS(cq_id, cid, status, vendor_err),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, cid)
				     __field(u32, status)
				     __field(u32, vendor_err)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->cid = cid;
				   __entry->status = status;
				   __entry->vendor_err = status ? vendor_err : 0;),
		    TP_printk("cq.id=%u cid=%u status=%s (%u/0x%x)",
			      __entry->cq_id, __entry->cid,
			      rdma_show_wc_status(__entry->status),
			      __entry->status, __entry->vendor_err));

#define DEFINE_COMPLETION_EVENT(name)					\
	DEFINE_EVENT(xprtrdma_completion_class, name,			\
		TP_PROTO(u32 cq_id, u32 cid, u32 status,		\
			 u32 vendor_err),				\
		TP_ARGS(cq_id, cid, status, vendor_err))

DEFINE_COMPLETION_EVENT(xprtrdma_wc_send);
DEFINE_COMPLETION_EVENT(xprtrdma_wc_li_done);

/* Unsignalled work requests only complete if they fail. */
TRACE_EVENT(xprtrdma_wc_unsignaled,
	    TP_PROTO(u32 cq_id, u32 status, u32 vendor_err),
	    TP_ARGS(cq_id, status, vendor_err),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, status)
			     __field(u32, vendor_err)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->status = status;
			   __entry->vendor_err = vendor_err;),
	    TP_printk("cq.id=%u status=%s (%u/0x%x)", __entry->cq_id,
		      rdma_show_wc_status(__entry->status), __entry->status,
		      __entry->vendor_err));

/*
 * Memory regions
 */

TRACE_DEFINE_ENUM(DMA_TO_DEVICE);
TRACE_DEFINE_ENUM(DMA_FROM_DEVICE);

#define xprtrdma_show_direction(direction)				\
	__print_symbolic(direction, { DMA_TO_DEVICE, "TO_DEVICE" },	\
			 { DMA_FROM_DEVICE, "FROM_DEVICE" })

DECLARE_EVENT_CLASS(xprtrdma_mr_class,
		    TP_PROTO(u32 mr_id, int nents, u32 handle, u64 length,
			     u64 offset, u32 direction),
		    TP_ARGS(mr_id, nents, handle, length, offset, direction),
		    TP_STRUCT__entry(__field(u32, mr_id)
				     __field(int, nents)
				     __field(u32, handle)
				     __field(u64, length)
				     __field(u64, offset)
				     __field(u32, direction)),
		    TP_fast_assign(__entry->mr_id = mr_id;
				   __entry->nents = nents;
				   __entry->handle = handle;
				   __entry->length = length;
				   __entry->offset = offset;
				   __entry->direction = direction;),
		    TP_printk("mr.id=%u nents=%d %llu@0x%016llx:0x%08x (%s)",
			      __entry->mr_id, __entry->nents,
			      (unsigned long long)__entry->length,
			      (unsigned long long)__entry->offset,
			      __entry->handle,
			      xprtrdma_show_direction(__entry->direction)));

#define DEFINE_MR_EVENT(name)						\
	DEFINE_EVENT(xprtrdma_mr_class, name,				\
		TP_PROTO(u32 mr_id, int nents, u32 handle, u64 length,	\
			 u64 offset, u32 direction),			\
		TP_ARGS(mr_id, nents, handle, length, offset, direction))

DEFINE_MR_EVENT(xprtrdma_mr_map);
DEFINE_MR_EVENT(xprtrdma_mr_fastreg);
DEFINE_MR_EVENT(xprtrdma_mr_localinv);
DEFINE_MR_EVENT(xprtrdma_mr_reminv);
DEFINE_MR_EVENT(xprtrdma_mr_unmap);

DECLARE_EVENT_CLASS(xprtrdma_frwr_class,
		    TP_PROTO(u32 mr_id, int rc),
		    TP_ARGS(mr_id, rc),
		    TP_STRUCT__entry(__field(u32, mr_id)
				     __field(int, rc)),
		    TP_fast_assign(__entry->mr_id = mr_id;
				   __entry->rc = rc;),
		    TP_printk("mr.id=%u rc=%d", __entry->mr_id, __entry->rc));

/* If no region was allocated, mr.id is meaningless. */
DEFINE_EVENT(xprtrdma_frwr_class, xprtrdma_frwr_alloc,
	     TP_PROTO(u32 mr_id, int rc),
	     TP_ARGS(mr_id, rc));
DEFINE_EVENT(xprtrdma_frwr_class, xprtrdma_frwr_dereg,
	     TP_PROTO(u32 mr_id, int rc),
	     TP_ARGS(mr_id, rc));

DECLARE_EVENT_CLASS(xprtrdma_maperr_class,
		    TP_PROTO(u32 mr_id, int nents, int mapped),
		    TP_ARGS(mr_id, nents, mapped),
		    TP_STRUCT__entry(__field(u32, mr_id)
				     __field(int, nents)
				     __field(int, mapped)),
		    TP_fast_assign(__entry->mr_id = mr_id;
				   __entry->nents = nents;
				   __entry->mapped = mapped;),
		    TP_printk("mr.id=%u nents=%d of %d", __entry->mr_id,
			      __entry->mapped, __entry->nents));

DEFINE_EVENT(xprtrdma_maperr_class, xprtrdma_frwr_sgerr,
	     TP_PROTO(u32 mr_id, int nents, int mapped),
	     TP_ARGS(mr_id, nents, mapped));
DEFINE_EVENT(xprtrdma_maperr_class, xprtrdma_frwr_maperr,
	     TP_PROTO(u32 mr_id, int nents, int mapped),
	     TP_ARGS(mr_id, nents, mapped));

/*
 * Replies
 */

TRACE_EVENT(xprtrdma_reply,
	    TP_PROTO(u32 task_id, u32 client_id, u32 xid, u32 credits),
	    TP_ARGS(task_id, client_id, xid, credits),
	    TP_STRUCT__entry(__field(u32, task_id)
			     __field(u32, client_id)
			     __field(u32, xid)
			     __field(u32, credits)),
	    TP_fast_assign(__entry->task_id = task_id;
			   __entry->client_id = client_id;
			   __entry->xid = xid;
			   __entry->credits = credits;),
	    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x credits=%u",
		      __entry->task_id, __entry->client_id, __entry->xid,
		      __entry->credits));

DECLARE_EVENT_CLASS(xprtrdma_reply_class,
		    TP_PROTO(u32 xprt, u32 xid, u32 version, u32 proc),
		    TP_ARGS(xprt, xid, version, proc),
		    TP_STRUCT__entry(__field(u32, xprt)
				     __field(u32, xid)
				     __field(u32, version)
				     __field(u32, proc)),
		    TP_fast_assign(__entry->xprt = xprt;
				   __entry->xid = xid;
				   __entry->version = version;
				   __entry->proc = proc;),
		    TP_printk("xprt=%u xid=0x%08x version=%u proc=%u",
			      __entry->xprt, __entry->xid, __entry->version,
			      __entry->proc));

#define DEFINE_REPLY_EVENT(name)					\
	DEFINE_EVENT(xprtrdma_reply_class, name,			\
		TP_PROTO(u32 xprt, u32 xid, u32 version, u32 proc),	\
		TP_ARGS(xprt, xid, version, proc))

DEFINE_REPLY_EVENT(xprtrdma_reply_rqst_err);
DEFINE_REPLY_EVENT(xprtrdma_reply_short_err);
DEFINE_REPLY_EVENT(xprtrdma_reply_vers_err);
DEFINE_REPLY_EVENT(xprtrdma_reply_hdr_err);

TRACE_EVENT(xprtrdma_err_vers,
	    TP_PROTO(u32 task_id, u32 client_id, u32 xid, u32 min, u32 max),
	    TP_ARGS(task_id, client_id, xid, min, max),
	    TP_STRUCT__entry(__field(u32, task_id)
			     __field(u32, client_id)
			     __field(u32, xid)
			     __field(u32, min)
			     __field(u32, max)),
	    TP_fast_assign(__entry->task_id = task_id;
			   __entry->client_id = client_id;
			   __entry->xid = xid;
			   __entry->min = min;
			   __entry->max = max;),
	    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x versions=[%u, %u]",
		      __entry->task_id, __entry->client_id, __entry->xid,
		      __entry->min, __entry->max));

TRACE_EVENT(xprtrdma_fixup,
	    TP_PROTO(u32 task_id, u32 client_id, u64 fixup, u32 headlen,
		     u32 pagelen, u32 taillen),
	    TP_ARGS(task_id, client_id, fixup, headlen, pagelen, taillen),
	    TP_STRUCT__entry(__field(u32, task_id)
			     __field(u32, client_id)
			     __field(u64, fixup)
			     __field(u32, headlen)
			     __field(u32, pagelen)
			     __field(u32, taillen)),
	    TP_fast_assign(__entry->task_id = task_id;
			   __entry->client_id = client_id;
			   __entry->fixup = fixup;
			   __entry->headlen = headlen;
			   __entry->pagelen = pagelen;
			   __entry->taillen = taillen;),
	    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " fixup=%llu xdr=%u/%u/%u",
		      __entry->task_id, __entry->client_id,
		      (unsigned long long)__entry->fixup, __entry->headlen,
		      __entry->pagelen, __entry->taillen));

/*
 * Backward Calls
 */

TRACE_EVENT(xprtrdma_cb_setup,
	    TP_PROTO(u32 xprt, u32 reqs),
	    TP_ARGS(xprt, reqs),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, reqs)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->reqs = reqs;),
	    TP_printk("xprt=%u %u reqs", __entry->xprt, __entry->reqs));

DECLARE_EVENT_CLASS(xprtrdma_callback_class,
		    TP_PROTO(u32 xprt, u32 xid),
		    TP_ARGS(xprt, xid),
		    TP_STRUCT__entry(__field(u32, xprt)
				     __field(u32, xid)),
		    TP_fast_assign(__entry->xprt = xprt;
				   __entry->xid = xid;),
		    TP_printk("xprt=%u xid=0x%08x", __entry->xprt,
			      __entry->xid));

DEFINE_EVENT(xprtrdma_callback_class, xprtrdma_cb_call,
	     TP_PROTO(u32 xprt, u32 xid),
	     TP_ARGS(xprt, xid));
DEFINE_EVENT(xprtrdma_callback_class, xprtrdma_cb_reply,
	     TP_PROTO(u32 xprt, u32 xid),
	     TP_ARGS(xprt, xid));

#endif /* _RPCRDMA_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH trace
#include <trace/define_trace.h>
