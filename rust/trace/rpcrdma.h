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
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/xprt.h>
#include <linux/tracepoint.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <trace/misc/rdma.h>
#include <trace/misc/sunrpc.h>

/*
 * Work requests of both roles
 */

DECLARE_EVENT_CLASS(rpcrdma_cid_class,
		    TP_PROTO(u32 cq_id, u32 completion_id),
		    TP_ARGS(cq_id, completion_id),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, completion_id)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->completion_id = completion_id;),
		    TP_printk("cq.id=%u cid=%u", __entry->cq_id, __entry->completion_id));

#define DEFINE_CID_EVENT(name)									\
	DEFINE_EVENT(rpcrdma_cid_class, name,							\
		     TP_PROTO(u32 cq_id, u32 completion_id),					\
		     TP_ARGS(cq_id, completion_id))

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
	DEFINE_EVENT(rpcrdma_completion_class, name,						\
		     TP_PROTO(u32 cq_id, u32 cid, const struct ib_wc *wc),			\
		     TP_ARGS(cq_id, cid, wc))

DECLARE_EVENT_CLASS(rpcrdma_receive_class,
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

#define DEFINE_RECEIVE_EVENT(name)								\
	DEFINE_EVENT(rpcrdma_receive_class, name,						\
		     TP_PROTO(u32 cq_id, u32 cid, const struct ib_wc *wc),			\
		     TP_ARGS(cq_id, cid, wc))

DECLARE_EVENT_CLASS(rpcrdma_post_err_class,
		    TP_PROTO(u32 cq_id, int status),
		    TP_ARGS(cq_id, status),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(int, status)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->status = status;),
		    TP_printk("cq.id=%u status=%d", __entry->cq_id, __entry->status));

#define DEFINE_POST_ERR_EVENT(name)								\
	DEFINE_EVENT(rpcrdma_post_err_class, name,						\
		     TP_PROTO(u32 cq_id, int status),						\
		     TP_ARGS(cq_id, status))

/*
 * The client's connections
 */

DECLARE_EVENT_CLASS(xprtrdma_xprt_class,
		    TP_PROTO(u32 xprt),
		    TP_ARGS(xprt),
		    TP_STRUCT__entry(__field(u32, xprt)),
		    TP_fast_assign(__entry->xprt = xprt;),
		    TP_printk("xprt=%u", __entry->xprt));

#define DEFINE_XPRT_EVENT(name)									\
	DEFINE_EVENT(xprtrdma_xprt_class, name,							\
		     TP_PROTO(u32 xprt),							\
		     TP_ARGS(xprt))

DEFINE_XPRT_EVENT(xprtrdma_op_inject_dsc);
DEFINE_XPRT_EVENT(xprtrdma_device_removal);

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
	    TP_printk("xprt=%u connect=%lu reconnect=%lu", __entry->xprt, __entry->connect / HZ,
		      __entry->reconnect / HZ));

TRACE_EVENT(xprtrdma_version,
	    TP_PROTO(u32 xprt, u32 version),
	    TP_ARGS(xprt, version),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, version)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->version = version;),
	    TP_printk("xprt=%u version=%u", __entry->xprt, __entry->version));

TRACE_EVENT(xprtrdma_inline_thresh,
	    TP_PROTO(u32 xprt, u32 inline_send, u32 inline_recv, u32 max_send, u32 max_recv),
	    TP_ARGS(xprt, inline_send, inline_recv, max_send, max_recv),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(u32, inline_send)
			     __field(u32, inline_recv)
			     __field(u32, max_send)
			     __field(u32, max_recv)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->inline_send = inline_send;
			   __entry->inline_recv = inline_recv;
			   __entry->max_send = max_send;
			   __entry->max_recv = max_recv;),
	    TP_printk("xprt=%u neg send/recv=%u/%u, own send/recv=%u/%u", __entry->xprt,
		      __entry->inline_send, __entry->inline_recv, __entry->max_send,
		      __entry->max_recv));

TRACE_EVENT(xprtrdma_connect,
	    TP_PROTO(u32 xprt, int rc, const char *cause),
	    TP_ARGS(xprt, rc, cause),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __field(int, rc)
			     __string(cause, cause)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __entry->rc = rc;
			   __assign_str(cause);),
	    TP_printk("xprt=%u rc=%d%s%s", __entry->xprt, __entry->rc, __entry->rc ? " cause=" : "",
		      __get_str(cause)));

TRACE_EVENT(xprtrdma_disconnect,
	    TP_PROTO(u32 xprt, const char *cause),
	    TP_ARGS(xprt, cause),
	    TP_STRUCT__entry(__field(u32, xprt)
			     __string(cause, cause)),
	    TP_fast_assign(__entry->xprt = xprt;
			   __assign_str(cause);),
	    TP_printk("xprt=%u cause=%s", __entry->xprt, __get_str(cause)));

/*
 * The client's Calls
 */

DECLARE_EVENT_CLASS(xprtrdma_task_class,
		    TP_PROTO(u32 xprt, const struct rpc_rqst *rqst),
		    TP_ARGS(xprt, rqst),
		    TP_STRUCT__entry(__field(u32, task_id)
				     __field(u32, client_id)
				     __field(u32, xprt)
				     __field(u32, xid)),
		    TP_fast_assign(__entry->task_id = rqst->rq_task->tk_pid;
				   __entry->client_id = rqst->rq_task->tk_client->cl_clid;
				   __entry->xprt = xprt;
				   __entry->xid = be32_to_cpu(rqst->rq_xid);),
		    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " xprt=%u xid=0x%08x", __entry->task_id,
			      __entry->client_id, __entry->xprt, __entry->xid));

#define DEFINE_TASK_EVENT(name)									\
	DEFINE_EVENT(xprtrdma_task_class, name,							\
		     TP_PROTO(u32 xprt, const struct rpc_rqst *rqst),				\
		     TP_ARGS(xprt, rqst))

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
		    TP_PROTO(const struct rpc_rqst *rqst, u32 pos, u32 handle, u32 length,
			     u64 offset, bool is_last),
		    TP_ARGS(rqst, pos, handle, length, offset, is_last),
		    TP_STRUCT__entry(__field(u32, task_id)
				     __field(u32, client_id)
				     __field(u32, pos)
				     __field(u32, handle)
				     __field(u32, length)
				     __field(u64, offset)
				     __field(bool, is_last)),
		    TP_fast_assign(__entry->task_id = rqst->rq_task->tk_pid;
				   __entry->client_id = rqst->rq_task->tk_client->cl_clid;
				   __entry->pos = pos;
				   __entry->handle = handle;
				   __entry->length = length;
				   __entry->offset = offset;
				   __entry->is_last = is_last;),
		    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " pos=%u %u@0x%016llx:0x%08x (%s)",
			      __entry->task_id, __entry->client_id, __entry->pos, __entry->length,
			      __entry->offset, __entry->handle,
			      __entry->is_last ? "last" : "more"));

#define DEFINE_CHUNK_EVENT(name)								\
	DEFINE_EVENT(xprtrdma_chunk_class, name,						\
		     TP_PROTO(const struct rpc_rqst *rqst, u32 pos, u32 handle, u32 length,	\
			      u64 offset, bool is_last),					\
		     TP_ARGS(rqst, pos, handle, length, offset, is_last))

DEFINE_CHUNK_EVENT(xprtrdma_chunk_read);
DEFINE_CHUNK_EVENT(xprtrdma_chunk_write);
DEFINE_CHUNK_EVENT(xprtrdma_chunk_reply);

#define xprtrdma_show_chunktype(type)						\
	__print_symbolic(type, { 0, "inline" }, { 1, "pullup" },		\
			 { 3, "read list" }, { 4, "*read list" },		\
			 { 5, "write list" }, { 6, "reply chunk" })

TRACE_EVENT(xprtrdma_marshal,
	    TP_PROTO(const struct rpc_rqst *rqst, u32 hdrlen, u32 rtype, u32 wtype),
	    TP_ARGS(rqst, hdrlen, rtype, wtype),
	    TP_STRUCT__entry(__field(u32, task_id)
			     __field(u32, client_id)
			     __field(u32, xid)
			     __field(u32, hdrlen)
			     __field(u32, headlen)
			     __field(u32, pagelen)
			     __field(u32, taillen)
			     __field(u32, rtype)
			     __field(u32, wtype)),
	    TP_fast_assign(__entry->task_id = rqst->rq_task->tk_pid;
			   __entry->client_id = rqst->rq_task->tk_client->cl_clid;
			   __entry->xid = be32_to_cpu(rqst->rq_xid);
			   __entry->hdrlen = hdrlen;
			   __entry->headlen = rqst->rq_snd_buf.head[0].iov_len;
			   __entry->pagelen = rqst->rq_snd_buf.page_len;
			   __entry->taillen = rqst->rq_snd_buf.tail[0].iov_len;
			   __entry->rtype = rtype;
			   __entry->wtype = wtype;),
	    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x hdr=%u xdr=%u/%u/%u %s/%s",
		      __entry->task_id, __entry->client_id, __entry->xid, __entry->hdrlen,
		      __entry->headlen, __entry->pagelen, __entry->taillen,
		      xprtrdma_show_chunktype(__entry->rtype),
		      xprtrdma_show_chunktype(__entry->wtype)));

TRACE_EVENT(xprtrdma_marshal_failed,
	    TP_PROTO(const struct rpc_rqst *rqst, int ret),
	    TP_ARGS(rqst, ret),
	    TP_STRUCT__entry(__field(u32, task_id)
			     __field(u32, client_id)
			     __field(u32, xid)
			     __field(int, ret)),
	    TP_fast_assign(__entry->task_id = rqst->rq_task->tk_pid;
			   __entry->client_id = rqst->rq_task->tk_client->cl_clid;
			   __entry->xid = be32_to_cpu(rqst->rq_xid);
			   __entry->ret = ret;),
	    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x ret=%d", __entry->task_id,
		      __entry->client_id, __entry->xid, __entry->ret));

/*
 * The client's work requests
 */

TRACE_EVENT(xprtrdma_post_send,
	    TP_PROTO(u32 cq_id, u32 completion_id, u32 xid, u32 length, bool signaled),
	    TP_ARGS(cq_id, completion_id, xid, length, signaled),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, completion_id)
			     __field(u32, xid)
			     __field(u32, length)
			     __field(bool, signaled)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->completion_id = completion_id;
			   __entry->xid = xid;
			   __entry->length = length;
			   __entry->signaled = signaled;),
	    TP_printk("cq.id=%u cid=%u xid=0x%08x length=%u%s", __entry->cq_id,
		      __entry->completion_id, __entry->xid, __entry->length,
		      __entry->signaled ? " signaled" : ""));

TRACE_EVENT(xprtrdma_post_send_err,
	    TP_PROTO(u32 cq_id, int rc),
	    TP_ARGS(cq_id, rc),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(int, rc)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->rc = rc;),
	    TP_printk("cq.id=%u rc=%d", __entry->cq_id, __entry->rc));

DEFINE_POST_ERR_EVENT(xprtrdma_post_recvs_err);
DEFINE_POST_ERR_EVENT(xprtrdma_post_linv_err);

DEFINE_CID_EVENT(xprtrdma_post_recv);

TRACE_EVENT(xprtrdma_post_recvs,
	    TP_PROTO(u32 cq_id, u32 count),
	    TP_ARGS(cq_id, count),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, count)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->count = count;),
	    TP_printk("cq.id=%u %u new recvs", __entry->cq_id, __entry->count));

DEFINE_RECEIVE_EVENT(xprtrdma_wc_receive);
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

DECLARE_EVENT_CLASS(xprtrdma_mr_class,
		    TP_PROTO(const struct ib_mr *mr, int nents, u32 dir),
		    TP_ARGS(mr, nents, dir),
		    TP_STRUCT__entry(__field(u32, mr_id)
				     __field(int, nents)
				     __field(u32, handle)
				     __field(u64, length)
				     __field(u64, offset)
				     __field(u32, dir)),
		    TP_fast_assign(__entry->mr_id = mr->res.id;
				   __entry->nents = nents;
				   __entry->handle = mr->rkey;
				   __entry->length = mr->length;
				   __entry->offset = mr->iova;
				   __entry->dir = dir;),
		    TP_printk("mr.id=%u nents=%d %llu@0x%016llx:0x%08x (%s)", __entry->mr_id,
			      __entry->nents, __entry->length, __entry->offset, __entry->handle,
			      xprtrdma_show_direction(__entry->dir)));

#define DEFINE_MR_EVENT(name)									\
	DEFINE_EVENT(xprtrdma_mr_class, name,							\
		     TP_PROTO(const struct ib_mr *mr, int nents, u32 dir),			\
		     TP_ARGS(mr, nents, dir))

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

#define DEFINE_FRWR_EVENT(name)									\
	DEFINE_EVENT(xprtrdma_frwr_class, name,							\
		     TP_PROTO(u32 mr_id, int rc),						\
		     TP_ARGS(mr_id, rc))

/* If no region was allocated, mr.id is meaningless. */
DEFINE_FRWR_EVENT(xprtrdma_frwr_alloc);
DEFINE_FRWR_EVENT(xprtrdma_frwr_dereg);

DECLARE_EVENT_CLASS(xprtrdma_maperr_class,
		    TP_PROTO(u32 mr_id, int num_mapped, int nents),
		    TP_ARGS(mr_id, num_mapped, nents),
		    TP_STRUCT__entry(__field(u32, mr_id)
				     __field(int, num_mapped)
				     __field(int, nents)),
		    TP_fast_assign(__entry->mr_id = mr_id;
				   __entry->num_mapped = num_mapped;
				   __entry->nents = nents;),
		    TP_printk("mr.id=%u nents=%d of %d", __entry->mr_id, __entry->num_mapped,
			      __entry->nents));

#define DEFINE_MAPERR_EVENT(name)								\
	DEFINE_EVENT(xprtrdma_maperr_class, name,						\
		     TP_PROTO(u32 mr_id, int num_mapped, int nents),				\
		     TP_ARGS(mr_id, num_mapped, nents))

DEFINE_MAPERR_EVENT(xprtrdma_frwr_sgerr);
DEFINE_MAPERR_EVENT(xprtrdma_frwr_maperr);

/*
 * The client's Replies
 */

TRACE_EVENT(xprtrdma_reply,
	    TP_PROTO(const struct rpc_rqst *rqst, u32 credits),
	    TP_ARGS(rqst, credits),
	    TP_STRUCT__entry(__field(u32, task_id)
			     __field(u32, client_id)
			     __field(u32, xid)
			     __field(u32, credits)),
	    TP_fast_assign(__entry->task_id = rqst->rq_task->tk_pid;
			   __entry->client_id = rqst->rq_task->tk_client->cl_clid;
			   __entry->xid = be32_to_cpu(rqst->rq_xid);
			   __entry->credits = credits;),
	    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x credits=%u", __entry->task_id,
		      __entry->client_id, __entry->xid, __entry->credits));

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
		    TP_printk("xprt=%u xid=0x%08x version=%u proc=%u", __entry->xprt, __entry->xid,
			      __entry->version, __entry->proc));

#define DEFINE_REPLY_EVENT(name)								\
	DEFINE_EVENT(xprtrdma_reply_class, name,						\
		     TP_PROTO(u32 xprt, u32 xid, u32 version, u32 proc),			\
		     TP_ARGS(xprt, xid, version, proc))

DEFINE_REPLY_EVENT(xprtrdma_reply_rqst_err);
DEFINE_REPLY_EVENT(xprtrdma_reply_short_err);
DEFINE_REPLY_EVENT(xprtrdma_reply_vers_err);
DEFINE_REPLY_EVENT(xprtrdma_reply_hdr_err);

TRACE_EVENT(xprtrdma_err_vers,
	    TP_PROTO(const struct rpc_rqst *rqst, u32 min, u32 max),
	    TP_ARGS(rqst, min, max),
	    TP_STRUCT__entry(__field(u32, task_id)
			     __field(u32, client_id)
			     __field(u32, xid)
			     __field(u32, min)
			     __field(u32, max)),
	    TP_fast_assign(__entry->task_id = rqst->rq_task->tk_pid;
			   __entry->client_id = rqst->rq_task->tk_client->cl_clid;
			   __entry->xid = be32_to_cpu(rqst->rq_xid);
			   __entry->min = min;
			   __entry->max = max;),
	    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " xid=0x%08x versions=[%u, %u]", __entry->task_id,
		      __entry->client_id, __entry->xid, __entry->min, __entry->max));

TRACE_EVENT(xprtrdma_fixup,
	    TP_PROTO(const struct rpc_rqst *rqst, u64 fixup),
	    TP_ARGS(rqst, fixup),
	    TP_STRUCT__entry(__field(u32, task_id)
			     __field(u32, client_id)
			     __field(u64, fixup)
			     __field(u32, headlen)
			     __field(u32, pagelen)
			     __field(u32, taillen)),
	    TP_fast_assign(__entry->task_id = rqst->rq_task->tk_pid;
			   __entry->client_id = rqst->rq_task->tk_client->cl_clid;
			   __entry->fixup = fixup;
			   __entry->headlen = rqst->rq_rcv_buf.head[0].iov_len;
			   __entry->pagelen = rqst->rq_rcv_buf.page_len;
			   __entry->taillen = rqst->rq_rcv_buf.tail[0].iov_len;),
	    TP_printk(SUNRPC_TRACE_TASK_SPECIFIER " fixup=%llu xdr=%u/%u/%u", __entry->task_id,
		      __entry->client_id, __entry->fixup, __entry->headlen, __entry->pagelen,
		      __entry->taillen));

/*
 * Backward Calls at the client
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
		    TP_printk("xprt=%u xid=0x%08x", __entry->xprt, __entry->xid));

#define DEFINE_CALLBACK_EVENT(name)								\
	DEFINE_EVENT(xprtrdma_callback_class, name,						\
		     TP_PROTO(u32 xprt, u32 xid),						\
		     TP_ARGS(xprt, xid))

DEFINE_CALLBACK_EVENT(xprtrdma_cb_call);
DEFINE_CALLBACK_EVENT(xprtrdma_cb_reply);

/*
 * The server's connections
 */

TRACE_EVENT(svcrdma_accept_err,
	    TP_PROTO(u32 listener, int status),
	    TP_ARGS(listener, status),
	    TP_STRUCT__entry(__field(u32, listener)
			     __field(int, status)),
	    TP_fast_assign(__entry->listener = listener;
			   __entry->status = status;),
	    TP_printk("listener=%u status=%d", __entry->listener, __entry->status));

TRACE_EVENT(svcrdma_device_removal,
	    TP_PROTO(u32 connection),
	    TP_ARGS(connection),
	    TP_STRUCT__entry(__field(u32, connection)),
	    TP_fast_assign(__entry->connection = connection;),
	    TP_printk("connection=%u", __entry->connection));

TRACE_EVENT(svcrdma_qp_error,
	    TP_PROTO(u32 connection, u32 event),
	    TP_ARGS(connection, event),
	    TP_STRUCT__entry(__field(u32, connection)
			     __field(u32, event)),
	    TP_fast_assign(__entry->connection = connection;
			   __entry->event = event;),
	    TP_printk("connection=%u event=%s", __entry->connection,
		      rdma_show_ib_event(__entry->event)));

TRACE_EVENT(svcrdma_version,
	    TP_PROTO(u32 connection, u32 version),
	    TP_ARGS(connection, version),
	    TP_STRUCT__entry(__field(u32, connection)
			     __field(u32, version)),
	    TP_fast_assign(__entry->connection = connection;
			   __entry->version = version;),
	    TP_printk("connection=%u version=%u", __entry->connection, __entry->version));

/*
 * The server's work requests
 */

DEFINE_CID_EVENT(svcrdma_post_recv);

DEFINE_RECEIVE_EVENT(svcrdma_wc_recv);
DEFINE_COMPLETION_EVENT(svcrdma_wc_recv_flush);
DEFINE_COMPLETION_EVENT(svcrdma_wc_recv_err);
DEFINE_COMPLETION_EVENT(svcrdma_wc_send);
DEFINE_COMPLETION_EVENT(svcrdma_wc_send_flush);
DEFINE_COMPLETION_EVENT(svcrdma_wc_send_err);
DEFINE_COMPLETION_EVENT(svcrdma_wc_read_flush);
DEFINE_COMPLETION_EVENT(svcrdma_wc_read_err);
DEFINE_COMPLETION_EVENT(svcrdma_wc_write_flush);
DEFINE_COMPLETION_EVENT(svcrdma_wc_write_err);

/* The cid is that of the Receive in which the Call arrived. */
TRACE_EVENT(svcrdma_wc_read,
	    TP_PROTO(u32 cq_id, u32 completion_id, u32 totalbytes, u64 read_latency),
	    TP_ARGS(cq_id, completion_id, totalbytes, read_latency),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, completion_id)
			     __field(u32, totalbytes)
			     __field(u64, read_latency)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->completion_id = completion_id;
			   __entry->totalbytes = totalbytes;
			   __entry->read_latency = read_latency;),
	    TP_printk("cq.id=%u cid=%u totalbytes=%u latency-us=%llu", __entry->cq_id,
		      __entry->completion_id, __entry->totalbytes, __entry->read_latency));

DEFINE_POST_ERR_EVENT(svcrdma_rq_post_err);
DEFINE_POST_ERR_EVENT(svcrdma_sq_post_err);

TRACE_EVENT(svcrdma_post_send,
	    TP_PROTO(u32 cq_id, u32 completion_id, u32 num_sge, u32 inv_rkey),
	    TP_ARGS(cq_id, completion_id, num_sge, inv_rkey),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, completion_id)
			     __field(u32, num_sge)
			     __field(u32, inv_rkey)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->completion_id = completion_id;
			   __entry->num_sge = num_sge;
			   __entry->inv_rkey = inv_rkey;),
	    TP_printk("cq.id=%u cid=%u num_sge=%u inv_rkey=0x%08x", __entry->cq_id,
		      __entry->completion_id, __entry->num_sge, __entry->inv_rkey));

DECLARE_EVENT_CLASS(svcrdma_post_chunk_class,
		    TP_PROTO(u32 cq_id, u32 completion_id, u32 sqecount),
		    TP_ARGS(cq_id, completion_id, sqecount),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, completion_id)
				     __field(u32, sqecount)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->completion_id = completion_id;
				   __entry->sqecount = sqecount;),
		    TP_printk("cq.id=%u cid=%u sqecount=%u", __entry->cq_id, __entry->completion_id,
			      __entry->sqecount));

#define DEFINE_POST_CHUNK_EVENT(name)								\
	DEFINE_EVENT(svcrdma_post_chunk_class, name,						\
		     TP_PROTO(u32 cq_id, u32 completion_id, u32 sqecount),			\
		     TP_ARGS(cq_id, completion_id, sqecount))

/* Counts RDMA Writes to Write chunks and to the Reply chunk. */
DEFINE_POST_CHUNK_EVENT(svcrdma_post_write_chunk);
DEFINE_POST_CHUNK_EVENT(svcrdma_post_read_chunk);

TRACE_EVENT(svcrdma_sq_full,
	    TP_PROTO(u32 cq_id, u32 needed, u32 avail, u32 depth),
	    TP_ARGS(cq_id, needed, avail, depth),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, needed)
			     __field(u32, avail)
			     __field(u32, depth)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->needed = needed;
			   __entry->avail = avail;
			   __entry->depth = depth;),
	    TP_printk("cq.id=%u needed=%u sc_sq_avail=%u/%u", __entry->cq_id, __entry->needed,
		      __entry->avail, __entry->depth));

/*
 * The server's messages
 */

#define svcrdma_show_proc(proc)						\
	__print_symbolic(proc, { 0, "RDMA_MSG" }, { 1, "RDMA_NOMSG" },	\
			 { 2, "RDMA_MSGP" }, { 3, "RDMA_DONE" }, { 4, "RDMA_ERROR" },	\
			 { 5, "RDMA_OPTIONAL" })

/* A message that is too short for a word has a zero there. */
DECLARE_EVENT_CLASS(svcrdma_decode_class,
		    TP_PROTO(u32 cq_id, u32 completion_id, u32 xid, u32 vers, u32 credits,
			     u32 proc, u32 hdrlen),
		    TP_ARGS(cq_id, completion_id, xid, vers, credits, proc, hdrlen),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, completion_id)
				     __field(u32, xid)
				     __field(u32, vers)
				     __field(u32, credits)
				     __field(u32, proc)
				     __field(u32, hdrlen)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->completion_id = completion_id;
				   __entry->xid = xid;
				   __entry->vers = vers;
				   __entry->credits = credits;
				   __entry->proc = proc;
				   __entry->hdrlen = hdrlen;),
		    TP_printk("cq.id=%u cid=%u xid=0x%08x vers=%u credits=%u proc=%s hdrlen=%u",
			      __entry->cq_id, __entry->completion_id, __entry->xid,
			      __entry->vers, __entry->credits, svcrdma_show_proc(__entry->proc),
			      __entry->hdrlen));

#define DEFINE_DECODE_EVENT(name)								\
	DEFINE_EVENT(svcrdma_decode_class, name,						\
		     TP_PROTO(u32 cq_id, u32 completion_id, u32 xid, u32 vers, u32 credits,	\
			      u32 proc, u32 hdrlen),						\
		     TP_ARGS(cq_id, completion_id, xid, vers, credits, proc, hdrlen))

DEFINE_DECODE_EVENT(svcrdma_decode_rqst);
DEFINE_DECODE_EVENT(svcrdma_decode_short_err);
DEFINE_DECODE_EVENT(svcrdma_decode_badvers_err);
DEFINE_DECODE_EVENT(svcrdma_decode_drop_err);
DEFINE_DECODE_EVENT(svcrdma_decode_badproc_err);
DEFINE_DECODE_EVENT(svcrdma_decode_parse_err);

DECLARE_EVENT_CLASS(svcrdma_segment_class,
		    TP_PROTO(u32 cq_id, u32 completion_id, u32 segno, u32 position, u32 length,
			     u64 offset, u32 handle),
		    TP_ARGS(cq_id, completion_id, segno, position, length, offset, handle),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, completion_id)
				     __field(u32, segno)
				     __field(u32, position)
				     __field(u32, length)
				     __field(u64, offset)
				     __field(u32, handle)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->completion_id = completion_id;
				   __entry->segno = segno;
				   __entry->position = position;
				   __entry->length = length;
				   __entry->offset = offset;
				   __entry->handle = handle;),
		    TP_printk("cq.id=%u cid=%u segno=%u position=%u %u@0x%016llx:0x%08x",
			      __entry->cq_id, __entry->completion_id, __entry->segno,
			      __entry->position, __entry->length, __entry->offset,
			      __entry->handle));

#define DEFINE_SEGMENT_EVENT(name)								\
	DEFINE_EVENT(svcrdma_segment_class, name,						\
		     TP_PROTO(u32 cq_id, u32 completion_id, u32 segno, u32 position,		\
			      u32 length, u64 offset, u32 handle),				\
		     TP_ARGS(cq_id, completion_id, segno, position, length, offset, handle))

DEFINE_SEGMENT_EVENT(svcrdma_decode_rseg);

/* A segment that was offered, and the part of one that was written: these have no Position. */
DEFINE_SEGMENT_EVENT(svcrdma_decode_wseg);
DEFINE_SEGMENT_EVENT(svcrdma_encode_wseg);

DECLARE_EVENT_CLASS(svcrdma_error_event,
		    TP_PROTO(u32 xid),
		    TP_ARGS(xid),
		    TP_STRUCT__entry(__field(u32, xid)),
		    TP_fast_assign(__entry->xid = xid;),
		    TP_printk("xid=0x%08x", __entry->xid));

#define DEFINE_ERROR_EVENT(name)								\
	DEFINE_EVENT(svcrdma_error_event, name,							\
		     TP_PROTO(u32 xid),								\
		     TP_ARGS(xid))

DEFINE_ERROR_EVENT(svcrdma_err_vers);
DEFINE_ERROR_EVENT(svcrdma_err_chunk);
DEFINE_ERROR_EVENT(svcrdma_err_option);

TRACE_EVENT(svcrdma_send_err,
	    TP_PROTO(u32 cq_id, u32 xid, int status),
	    TP_ARGS(cq_id, xid, status),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, xid)
			     __field(int, status)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->xid = xid;
			   __entry->status = status;),
	    TP_printk("cq.id=%u xid=0x%08x status=%d", __entry->cq_id, __entry->xid,
		      __entry->status));

#endif /* _RPCRDMA_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH trace
#include <trace/define_trace.h>
