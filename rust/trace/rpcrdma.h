/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of both roles. Events and fields that the kernel's C transport
 * also has go by the same names. Arguments are numbers only:
 *
 * xprt		the number of the client's transport in sysfs and debugfs
 * listener,	the numbers in the server's debugfs
 * connection
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
 * Defines an event, or a class of events, whose "n" arguments are its fields: each is a type and a
 * name. "kind" is TRACE_EVENT or DECLARE_EVENT_CLASS. The format prints the fields in order, or
 * RPCRDMA_EVENT_AS takes all arguments of TP_printk().
 */
#define RPCRDMA_EVENT_AS(kind, name, n, print, ...)						\
	kind(name, TP_PROTO(RPCRDMA_LIST_##n(RPCRDMA_PROTO, __VA_ARGS__)),			\
	     TP_ARGS(RPCRDMA_LIST_##n(RPCRDMA_ARG, __VA_ARGS__)),				\
	     TP_STRUCT__entry(RPCRDMA_EACH_##n(RPCRDMA_FIELD, __VA_ARGS__)),			\
	     TP_fast_assign(RPCRDMA_EACH_##n(RPCRDMA_ASSIGN, __VA_ARGS__)),			\
	     TP_printk print)
#define RPCRDMA_EVENT(kind, name, n, format, ...)						\
	RPCRDMA_EVENT_AS(kind, name, n,								\
			 (format, RPCRDMA_LIST_##n(RPCRDMA_PRINT, __VA_ARGS__)), __VA_ARGS__)

/* Defines an event of a class, with the fields of the class. */
#define RPCRDMA_DEFINE(class, name, n, ...)							\
	DEFINE_EVENT(class, name, TP_PROTO(RPCRDMA_LIST_##n(RPCRDMA_PROTO, __VA_ARGS__)),	\
		     TP_ARGS(RPCRDMA_LIST_##n(RPCRDMA_ARG, __VA_ARGS__)))

#define RPCRDMA_PROTO(type, field) type field
#define RPCRDMA_ARG(type, field) field
#define RPCRDMA_FIELD(type, field) __field(type, field)
#define RPCRDMA_ASSIGN(type, field) __entry->field = field;
#define RPCRDMA_PRINT(type, field) __entry->field

#define RPCRDMA_LIST_1(as, t, f) as(t, f)
#define RPCRDMA_LIST_2(as, t, f, ...) as(t, f), RPCRDMA_LIST_1(as, __VA_ARGS__)
#define RPCRDMA_LIST_3(as, t, f, ...) as(t, f), RPCRDMA_LIST_2(as, __VA_ARGS__)
#define RPCRDMA_LIST_4(as, t, f, ...) as(t, f), RPCRDMA_LIST_3(as, __VA_ARGS__)
#define RPCRDMA_LIST_5(as, t, f, ...) as(t, f), RPCRDMA_LIST_4(as, __VA_ARGS__)
#define RPCRDMA_LIST_6(as, t, f, ...) as(t, f), RPCRDMA_LIST_5(as, __VA_ARGS__)
#define RPCRDMA_LIST_7(as, t, f, ...) as(t, f), RPCRDMA_LIST_6(as, __VA_ARGS__)
#define RPCRDMA_LIST_8(as, t, f, ...) as(t, f), RPCRDMA_LIST_7(as, __VA_ARGS__)
#define RPCRDMA_LIST_9(as, t, f, ...) as(t, f), RPCRDMA_LIST_8(as, __VA_ARGS__)
#define RPCRDMA_EACH_1(as, t, f) as(t, f)
#define RPCRDMA_EACH_2(as, t, f, ...) as(t, f) RPCRDMA_EACH_1(as, __VA_ARGS__)
#define RPCRDMA_EACH_3(as, t, f, ...) as(t, f) RPCRDMA_EACH_2(as, __VA_ARGS__)
#define RPCRDMA_EACH_4(as, t, f, ...) as(t, f) RPCRDMA_EACH_3(as, __VA_ARGS__)
#define RPCRDMA_EACH_5(as, t, f, ...) as(t, f) RPCRDMA_EACH_4(as, __VA_ARGS__)
#define RPCRDMA_EACH_6(as, t, f, ...) as(t, f) RPCRDMA_EACH_5(as, __VA_ARGS__)
#define RPCRDMA_EACH_7(as, t, f, ...) as(t, f) RPCRDMA_EACH_6(as, __VA_ARGS__)
#define RPCRDMA_EACH_8(as, t, f, ...) as(t, f) RPCRDMA_EACH_7(as, __VA_ARGS__)
#define RPCRDMA_EACH_9(as, t, f, ...) as(t, f) RPCRDMA_EACH_8(as, __VA_ARGS__)

/*
 * Work requests of both roles
 */

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, rpcrdma_cid_class, 2, "cq.id=%u cid=%u",
	u32, cq_id, u32, completion_id);

#define DEFINE_CID_EVENT(name)									\
	RPCRDMA_DEFINE(rpcrdma_cid_class, name, 2, u32, cq_id, u32, completion_id)

DECLARE_EVENT_CLASS(rpcrdma_completion_class,
		    TP_PROTO(u32 cq_id, u32 cid, const struct ib_wc *wc),
		    TP_ARGS(cq_id, cid, wc),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, completion_id)
				     __field(u32, status)
				     __field(u32, vendor_err)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->completion_id = cid;
				   __entry->status = wc->status;
				   /* Only valid if the completion failed. */
				   __entry->vendor_err =
					wc->status ? wc->vendor_err : 0;),
		    TP_printk("cq.id=%u cid=%u status=%s (%u/0x%x)",
			      __entry->cq_id, __entry->completion_id,
			      rdma_show_wc_status(__entry->status),
			      __entry->status, __entry->vendor_err));

#define DEFINE_COMPLETION_EVENT(name)								\
	RPCRDMA_DEFINE(rpcrdma_completion_class, name, 3, u32, cq_id, u32, cid,			\
		       const struct ib_wc *, wc)

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, rpcrdma_post_err_class, 2, "cq.id=%u status=%d",
	u32, cq_id, int, status);

#define DEFINE_POST_ERR_EVENT(name)								\
	RPCRDMA_DEFINE(rpcrdma_post_err_class, name, 2, u32, cq_id, int, status)

/*
 * The client's connections
 */

/* No cause has the number -1. */
#define rpcrdma_show_cause(cause)					\
	__print_symbolic(cause, RPCRDMA_CAUSES { -1, "none" })

#undef rpcrdma_cause
#define rpcrdma_cause(symbol, name) TRACE_DEFINE_ENUM(RPCRDMA_CAUSE_##symbol);

RPCRDMA_CAUSES

#undef rpcrdma_cause
#define rpcrdma_cause(symbol, name) { RPCRDMA_CAUSE_##symbol, name },

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, xprtrdma_xprt_class, 1, "xprt=%u",
	u32, xprt);

#define DEFINE_XPRT_EVENT(name) RPCRDMA_DEFINE(xprtrdma_xprt_class, name, 1, u32, xprt)

DEFINE_XPRT_EVENT(xprtrdma_op_inject_dsc);
DEFINE_XPRT_EVENT(xprtrdma_device_removal);

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_op_connect, 2, "xprt=%u delay=%lu",
	u32, xprt, unsigned long, delay);

RPCRDMA_EVENT_AS(TRACE_EVENT, xprtrdma_op_set_cto, 3,
	("xprt=%u connect=%lu reconnect=%lu", __entry->xprt, __entry->connect / HZ,
	 __entry->reconnect / HZ),
	u32, xprt, unsigned long, connect, unsigned long, reconnect);

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_version, 2, "xprt=%u version=%u",
	u32, xprt, u32, version);

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_inline_thresh, 5,
	"xprt=%u neg send/recv=%u/%u, own send/recv=%u/%u",
	u32, xprt, u32, inline_send, u32, inline_recv, u32, max_send, u32, max_recv);

RPCRDMA_EVENT_AS(TRACE_EVENT, xprtrdma_connect, 3,
	("xprt=%u rc=%d%s%s", __entry->xprt, __entry->rc, __entry->rc ? " cause=" : "",
	 __entry->rc ? rpcrdma_show_cause(__entry->cause) : ""),
	u32, xprt, int, rc, int, cause);

RPCRDMA_EVENT_AS(TRACE_EVENT, xprtrdma_disconnect, 2,
	("xprt=%u cause=%s", __entry->xprt, rpcrdma_show_cause(__entry->cause)),
	u32, xprt, int, cause);

/*
 * The client's Calls
 */

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, xprtrdma_task_class, 4,
	SUNRPC_TRACE_TASK_SPECIFIER " xprt=%u xid=0x%08x",
	u32, task_id, u32, client_id, u32, xprt, u32, xid);

#define DEFINE_TASK_EVENT(name)									\
	RPCRDMA_DEFINE(xprtrdma_task_class, name, 4, u32, task_id, u32, client_id, u32, xprt,	\
		       u32, xid)

DEFINE_TASK_EVENT(xprtrdma_nomrs_err);
DEFINE_TASK_EVENT(xprtrdma_mrs_zap);
DEFINE_TASK_EVENT(xprtrdma_err_chunk);
DEFINE_TASK_EVENT(xprtrdma_err_unrecognized);

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_createmrs, 2, "xprt=%u created %u MRs",
	u32, xprt, u32, count);

RPCRDMA_EVENT_AS(DECLARE_EVENT_CLASS, xprtrdma_chunk_class, 7,
	(SUNRPC_TRACE_TASK_SPECIFIER " pos=%u %u@0x%016llx:0x%08x (%s)", __entry->task_id,
	 __entry->client_id, __entry->pos, __entry->length, __entry->offset, __entry->handle,
	 __entry->is_last ? "last" : "more"),
	u32, task_id, u32, client_id, u32, pos, u32, handle, u32, length, u64, offset,
	bool, is_last);

#define DEFINE_CHUNK_EVENT(name)								\
	RPCRDMA_DEFINE(xprtrdma_chunk_class, name, 7, u32, task_id, u32, client_id, u32, pos,	\
		       u32, handle, u32, length, u64, offset, bool, is_last)

DEFINE_CHUNK_EVENT(xprtrdma_chunk_read);
DEFINE_CHUNK_EVENT(xprtrdma_chunk_write);
DEFINE_CHUNK_EVENT(xprtrdma_chunk_reply);

#define xprtrdma_show_call_form(form)					\
	__print_symbolic(form, { 0, "inline" }, { 1, "read list" },	\
			 { 3, "*read list" })

#define xprtrdma_show_reply_form(form)					\
	__print_symbolic(form, { 0, "inline" }, { 1, "write list" },	\
			 { 2, "reply chunk" })

RPCRDMA_EVENT_AS(TRACE_EVENT, xprtrdma_marshal, 9,
	(SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x hdr=%u xdr=%u/%u/%u %s/%s", __entry->task_id,
	 __entry->client_id, __entry->xid, __entry->hdrlen, __entry->headlen, __entry->pagelen,
	 __entry->taillen, xprtrdma_show_call_form(__entry->rtype),
	 xprtrdma_show_reply_form(__entry->wtype)),
	u32, task_id, u32, client_id, u32, xid, u32, hdrlen, u32, headlen, u32, pagelen,
	u32, taillen, u32, rtype, u32, wtype);

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_marshal_failed, 4,
	SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x ret=%d",
	u32, task_id, u32, client_id, u32, xid, int, ret);

/*
 * The client's work requests
 */

RPCRDMA_EVENT_AS(TRACE_EVENT, xprtrdma_post_send, 5,
	("cq.id=%u cid=%u xid=0x%08x length=%u%s", __entry->cq_id, __entry->completion_id,
	 __entry->xid, __entry->length, __entry->signaled ? " signaled" : ""),
	u32, cq_id, u32, completion_id, u32, xid, u32, length, bool, signaled);

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_post_send_err, 2, "cq.id=%u rc=%d",
	u32, cq_id, int, rc);

DEFINE_POST_ERR_EVENT(xprtrdma_post_recvs_err);
DEFINE_POST_ERR_EVENT(xprtrdma_post_linv_err);

DEFINE_CID_EVENT(xprtrdma_post_recv);

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_post_recvs, 2, "cq.id=%u %u new recvs",
	u32, cq_id, u32, count);

TRACE_EVENT(xprtrdma_wc_receive,
	    TP_PROTO(u32 cq_id, u32 cid, const struct ib_wc *wc),
	    TP_ARGS(cq_id, cid, wc),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, completion_id)
			     __field(u32, status)
			     __field(u32, vendor_err)
			     __field(u32, received)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->completion_id = cid;
			   __entry->status = wc->status;
			   __entry->vendor_err = wc->status ? wc->vendor_err : 0;
			   __entry->received = wc->status ? 0 : wc->byte_len;),
	    TP_printk("cq.id=%u cid=%u status=%s (%u/0x%x) received=%u",
		      __entry->cq_id, __entry->completion_id,
		      rdma_show_wc_status(__entry->status), __entry->status,
		      __entry->vendor_err, __entry->received));

DEFINE_COMPLETION_EVENT(xprtrdma_wc_send);
DEFINE_COMPLETION_EVENT(xprtrdma_wc_li_done);

/* Unsignalled work requests only complete if they fail. */
DEFINE_COMPLETION_EVENT(xprtrdma_wc_unsignaled);

/*
 * Memory regions
 */

TRACE_DEFINE_ENUM(DMA_TO_DEVICE);
TRACE_DEFINE_ENUM(DMA_FROM_DEVICE);

#define xprtrdma_show_direction(direction)				\
	__print_symbolic(direction, { DMA_TO_DEVICE, "TO_DEVICE" },	\
			 { DMA_FROM_DEVICE, "FROM_DEVICE" })

RPCRDMA_EVENT_AS(DECLARE_EVENT_CLASS, xprtrdma_mr_class, 6,
	("mr.id=%u nents=%d %llu@0x%016llx:0x%08x (%s)", __entry->mr_id, __entry->nents,
	 __entry->length, __entry->offset, __entry->handle, xprtrdma_show_direction(__entry->dir)),
	u32, mr_id, int, nents, u32, handle, u64, length, u64, offset, u32, dir);

#define DEFINE_MR_EVENT(name)									\
	RPCRDMA_DEFINE(xprtrdma_mr_class, name, 6, u32, mr_id, int, nents, u32, handle,		\
		       u64, length, u64, offset, u32, dir)

DEFINE_MR_EVENT(xprtrdma_mr_map);
DEFINE_MR_EVENT(xprtrdma_mr_fastreg);
DEFINE_MR_EVENT(xprtrdma_mr_localinv);
DEFINE_MR_EVENT(xprtrdma_mr_reminv);
DEFINE_MR_EVENT(xprtrdma_mr_unmap);

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, xprtrdma_frwr_class, 2, "mr.id=%u rc=%d",
	u32, mr_id, int, rc);

#define DEFINE_FRWR_EVENT(name) RPCRDMA_DEFINE(xprtrdma_frwr_class, name, 2, u32, mr_id, int, rc)

/* If no region was allocated, mr.id is meaningless. */
DEFINE_FRWR_EVENT(xprtrdma_frwr_alloc);
DEFINE_FRWR_EVENT(xprtrdma_frwr_dereg);

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, xprtrdma_maperr_class, 3, "mr.id=%u nents=%d of %d",
	u32, mr_id, int, num_mapped, int, nents);

#define DEFINE_MAPERR_EVENT(name)								\
	RPCRDMA_DEFINE(xprtrdma_maperr_class, name, 3, u32, mr_id, int, num_mapped, int, nents)

DEFINE_MAPERR_EVENT(xprtrdma_frwr_sgerr);
DEFINE_MAPERR_EVENT(xprtrdma_frwr_maperr);

/*
 * The client's Replies
 */

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_reply, 4,
	SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x credits=%u",
	u32, task_id, u32, client_id, u32, xid, u32, credits);

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, xprtrdma_reply_class, 4,
	"xprt=%u xid=0x%08x version=%u proc=%u",
	u32, xprt, u32, xid, u32, version, u32, proc);

#define DEFINE_REPLY_EVENT(name)								\
	RPCRDMA_DEFINE(xprtrdma_reply_class, name, 4, u32, xprt, u32, xid, u32, version, u32, proc)

DEFINE_REPLY_EVENT(xprtrdma_reply_rqst_err);
DEFINE_REPLY_EVENT(xprtrdma_reply_short_err);
DEFINE_REPLY_EVENT(xprtrdma_reply_vers_err);
DEFINE_REPLY_EVENT(xprtrdma_reply_hdr_err);

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_err_vers, 5,
	SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x versions=[%u, %u]",
	u32, task_id, u32, client_id, u32, xid, u32, min, u32, max);

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_fixup, 6,
	SUNRPC_TRACE_TASK_SPECIFIER " fixup=%llu xdr=%u/%u/%u",
	u32, task_id, u32, client_id, u64, fixup, u32, headlen, u32, pagelen, u32, taillen);

/*
 * Backward Calls at the client
 */

RPCRDMA_EVENT(TRACE_EVENT, xprtrdma_cb_setup, 2, "xprt=%u %u reqs",
	u32, xprt, u32, reqs);

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, xprtrdma_callback_class, 2, "xprt=%u xid=0x%08x",
	u32, xprt, u32, xid);

#define DEFINE_CALLBACK_EVENT(name)								\
	RPCRDMA_DEFINE(xprtrdma_callback_class, name, 2, u32, xprt, u32, xid)

DEFINE_CALLBACK_EVENT(xprtrdma_cb_call);
DEFINE_CALLBACK_EVENT(xprtrdma_cb_reply);

/*
 * The server's connections
 */

RPCRDMA_EVENT(TRACE_EVENT, svcrdma_accept_err, 2, "listener=%u status=%d",
	u32, listener, int, status);

RPCRDMA_EVENT(TRACE_EVENT, svcrdma_device_removal, 1, "connection=%u",
	u32, connection);

RPCRDMA_EVENT_AS(TRACE_EVENT, svcrdma_qp_error, 2,
	("connection=%u event=%s", __entry->connection, rdma_show_ib_event(__entry->event)),
	u32, connection, u32, event);

RPCRDMA_EVENT(TRACE_EVENT, svcrdma_version, 2, "connection=%u version=%u",
	u32, connection, u32, version);

/*
 * The server's work requests
 */

DEFINE_CID_EVENT(svcrdma_post_recv);
DEFINE_CID_EVENT(svcrdma_wc_send);

DEFINE_COMPLETION_EVENT(svcrdma_wc_recv_flush);
DEFINE_COMPLETION_EVENT(svcrdma_wc_recv_err);
DEFINE_COMPLETION_EVENT(svcrdma_wc_send_flush);
DEFINE_COMPLETION_EVENT(svcrdma_wc_send_err);
DEFINE_COMPLETION_EVENT(svcrdma_wc_read_flush);
DEFINE_COMPLETION_EVENT(svcrdma_wc_read_err);
DEFINE_COMPLETION_EVENT(svcrdma_wc_write_flush);
DEFINE_COMPLETION_EVENT(svcrdma_wc_write_err);

RPCRDMA_EVENT(TRACE_EVENT, svcrdma_wc_recv, 3, "cq.id=%u cid=%u received=%u",
	u32, cq_id, u32, completion_id, u32, received);

/* The cid is that of the Receive in which the Call arrived. */
RPCRDMA_EVENT_AS(TRACE_EVENT, svcrdma_wc_read, 4,
	("cq.id=%u cid=%u totalbytes=%u latency-us=%llu", __entry->cq_id, __entry->completion_id,
	 __entry->totalbytes, __entry->read_latency / 1000),
	u32, cq_id, u32, completion_id, u32, totalbytes, u64, read_latency);

DEFINE_POST_ERR_EVENT(svcrdma_rq_post_err);
DEFINE_POST_ERR_EVENT(svcrdma_sq_post_err);

RPCRDMA_EVENT(TRACE_EVENT, svcrdma_post_send, 4, "cq.id=%u cid=%u num_sge=%u inv_rkey=0x%08x",
	u32, cq_id, u32, completion_id, u32, num_sge, u32, inv_rkey);

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, svcrdma_post_chunk_class, 3, "cq.id=%u cid=%u sqecount=%u",
	u32, cq_id, u32, completion_id, u32, sqecount);

#define DEFINE_POST_CHUNK_EVENT(name)								\
	RPCRDMA_DEFINE(svcrdma_post_chunk_class, name, 3, u32, cq_id, u32, completion_id,	\
		       u32, sqecount)

/* Counts RDMA Writes to Write chunks and to the Reply chunk. */
DEFINE_POST_CHUNK_EVENT(svcrdma_post_write_chunk);
DEFINE_POST_CHUNK_EVENT(svcrdma_post_read_chunk);

RPCRDMA_EVENT(TRACE_EVENT, svcrdma_sq_full, 4, "cq.id=%u needed=%u sc_sq_avail=%u/%u",
	u32, cq_id, u32, needed, u32, avail, u32, depth);

/*
 * The server's messages
 */

RPCRDMA_EVENT_AS(TRACE_EVENT, svcrdma_decode_rqst, 7,
	("cq.id=%u cid=%u xid=0x%08x vers=%u credits=%u proc=%s hdrlen=%u", __entry->cq_id,
	 __entry->completion_id, __entry->xid, __entry->vers, __entry->credits,
	 __print_symbolic(__entry->proc, { 0, "RDMA_MSG" }, { 1, "RDMA_NOMSG" },
			  { 2, "RDMA_MSGP" }, { 3, "RDMA_DONE" }, { 4, "RDMA_ERROR" }),
	 __entry->hdrlen),
	u32, cq_id, u32, completion_id, u32, xid, u32, vers, u32, credits, u32, proc,
	u32, hdrlen);

RPCRDMA_EVENT(TRACE_EVENT, svcrdma_decode_short_err, 3, "cq.id=%u cid=%u hdrlen=%u",
	u32, cq_id, u32, completion_id, u32, hdrlen);

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, svcrdma_badreq_event, 6,
	"cq.id=%u cid=%u xid=0x%08x vers=%u credits=%u proc=%u",
	u32, cq_id, u32, completion_id, u32, xid, u32, vers, u32, credits, u32, proc);

#define DEFINE_BADREQ_EVENT(name)								\
	RPCRDMA_DEFINE(svcrdma_badreq_event, name, 6, u32, cq_id, u32, completion_id, u32, xid,	\
		       u32, vers, u32, credits, u32, proc)

DEFINE_BADREQ_EVENT(svcrdma_decode_badvers_err);
DEFINE_BADREQ_EVENT(svcrdma_decode_drop_err);
DEFINE_BADREQ_EVENT(svcrdma_decode_badproc_err);
DEFINE_BADREQ_EVENT(svcrdma_decode_parse_err);

RPCRDMA_EVENT(TRACE_EVENT, svcrdma_decode_rseg, 7,
	"cq.id=%u cid=%u segno=%u position=%u %u@0x%016llx:0x%08x",
	u32, cq_id, u32, completion_id, u32, segno, u32, position, u32, length, u64, offset,
	u32, handle);

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, svcrdma_wseg_class, 6,
	"cq.id=%u cid=%u segno=%u %u@0x%016llx:0x%08x",
	u32, cq_id, u32, completion_id, u32, segno, u32, length, u64, offset, u32, handle);

#define DEFINE_WSEG_EVENT(name)									\
	RPCRDMA_DEFINE(svcrdma_wseg_class, name, 6, u32, cq_id, u32, completion_id, u32, segno,	\
		       u32, length, u64, offset, u32, handle)

/* A segment that was offered, and the part of one that was written. */
DEFINE_WSEG_EVENT(svcrdma_decode_wseg);
DEFINE_WSEG_EVENT(svcrdma_encode_wseg);

RPCRDMA_EVENT(DECLARE_EVENT_CLASS, svcrdma_error_event, 1, "xid=0x%08x",
	u32, xid);

#define DEFINE_ERROR_EVENT(name) RPCRDMA_DEFINE(svcrdma_error_event, name, 1, u32, xid)

DEFINE_ERROR_EVENT(svcrdma_err_vers);
DEFINE_ERROR_EVENT(svcrdma_err_chunk);
DEFINE_ERROR_EVENT(svcrdma_err_option);

RPCRDMA_EVENT(TRACE_EVENT, svcrdma_send_err, 3, "cq.id=%u xid=0x%08x status=%d",
	u32, cq_id, u32, xid, int, status);

#endif /* _RPCRDMA_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH trace
#include <trace/define_trace.h>
