/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of the server. Events that the kernel's C transport also has
 * go by the same names. Arguments are numbers only:
 *
 * cq.id	the number that "rdma resource show" lists
 * cid		the number of a Receive, or of a Send's context
 * connection,	the number in debugfs
 * listener
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rpcrdma

#if !defined(_SVCRDMA_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _SVCRDMA_TRACE_H

#include <linux/tracepoint.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <trace/misc/rdma.h>

/*
 * Connections
 */

TRACE_EVENT(svcrdma_accept_err,
	    TP_PROTO(u32 listener, int status),
	    TP_ARGS(listener, status),
	    TP_STRUCT__entry(__field(u32, listener)
			     __field(int, status)),
	    TP_fast_assign(__entry->listener = listener;
			   __entry->status = status;),
	    TP_printk("listener=%u status=%d", __entry->listener,
		      __entry->status));

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
	    TP_printk("connection=%u version=%u", __entry->connection,
		      __entry->version));

/*
 * Completions and posts
 */

DECLARE_EVENT_CLASS(svcrdma_cid_class,
		    TP_PROTO(u32 cq_id, u32 cid),
		    TP_ARGS(cq_id, cid),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, cid)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->cid = cid;),
		    TP_printk("cq.id=%u cid=%u", __entry->cq_id, __entry->cid));

DEFINE_EVENT(svcrdma_cid_class, svcrdma_post_recv,
	     TP_PROTO(u32 cq_id, u32 cid),
	     TP_ARGS(cq_id, cid));
DEFINE_EVENT(svcrdma_cid_class, svcrdma_wc_send,
	     TP_PROTO(u32 cq_id, u32 cid),
	     TP_ARGS(cq_id, cid));

DECLARE_EVENT_CLASS(svcrdma_flush_class,
		    TP_PROTO(u32 cq_id, u32 cid, u32 status, u32 vendor_err),
		    TP_ARGS(cq_id, cid, status, vendor_err),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, cid)
				     __field(u32, status)
				     __field(u32, vendor_err)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->cid = cid;
				   __entry->status = status;
				   __entry->vendor_err = vendor_err;),
		    TP_printk("cq.id=%u cid=%u status=%s (%u/0x%x)",
			      __entry->cq_id, __entry->cid,
			      rdma_show_wc_status(__entry->status),
			      __entry->status, __entry->vendor_err));

#define DEFINE_SVC_FLUSH_EVENT(name)					\
	DEFINE_EVENT(svcrdma_flush_class, name,				\
		TP_PROTO(u32 cq_id, u32 cid, u32 status,		\
			 u32 vendor_err),				\
		TP_ARGS(cq_id, cid, status, vendor_err))

DEFINE_SVC_FLUSH_EVENT(svcrdma_wc_recv_flush);
DEFINE_SVC_FLUSH_EVENT(svcrdma_wc_recv_err);
DEFINE_SVC_FLUSH_EVENT(svcrdma_wc_send_flush);
DEFINE_SVC_FLUSH_EVENT(svcrdma_wc_send_err);
DEFINE_SVC_FLUSH_EVENT(svcrdma_wc_read_flush);
DEFINE_SVC_FLUSH_EVENT(svcrdma_wc_read_err);
DEFINE_SVC_FLUSH_EVENT(svcrdma_wc_write_flush);
DEFINE_SVC_FLUSH_EVENT(svcrdma_wc_write_err);

TRACE_EVENT(svcrdma_wc_recv,
	    TP_PROTO(u32 cq_id, u32 cid, u32 received),
	    TP_ARGS(cq_id, cid, received),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, cid)
			     __field(u32, received)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->cid = cid;
			   __entry->received = received;),
	    TP_printk("cq.id=%u cid=%u received=%u", __entry->cq_id,
		      __entry->cid, __entry->received));

/* The cid is that of the Receive in which the Call arrived. */
TRACE_EVENT(svcrdma_wc_read,
	    TP_PROTO(u32 cq_id, u32 cid, u32 totalbytes, u64 nanoseconds),
	    TP_ARGS(cq_id, cid, totalbytes, nanoseconds),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, cid)
			     __field(u32, totalbytes)
			     __field(u64, nanoseconds)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->cid = cid;
			   __entry->totalbytes = totalbytes;
			   __entry->nanoseconds = nanoseconds;),
	    TP_printk("cq.id=%u cid=%u totalbytes=%u latency-us=%llu",
		      __entry->cq_id, __entry->cid, __entry->totalbytes,
		      (unsigned long long)__entry->nanoseconds / 1000));

DECLARE_EVENT_CLASS(svcrdma_post_err_class,
		    TP_PROTO(u32 cq_id, int status),
		    TP_ARGS(cq_id, status),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(int, status)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->status = status;),
		    TP_printk("cq.id=%u status=%d", __entry->cq_id,
			      __entry->status));

DEFINE_EVENT(svcrdma_post_err_class, svcrdma_rq_post_err,
	     TP_PROTO(u32 cq_id, int status),
	     TP_ARGS(cq_id, status));
DEFINE_EVENT(svcrdma_post_err_class, svcrdma_sq_post_err,
	     TP_PROTO(u32 cq_id, int status),
	     TP_ARGS(cq_id, status));

TRACE_EVENT(svcrdma_post_send,
	    TP_PROTO(u32 cq_id, u32 cid, u32 num_sge, u32 inv_rkey),
	    TP_ARGS(cq_id, cid, num_sge, inv_rkey),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, cid)
			     __field(u32, num_sge)
			     __field(u32, inv_rkey)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->cid = cid;
			   __entry->num_sge = num_sge;
			   __entry->inv_rkey = inv_rkey;),
	    TP_printk("cq.id=%u cid=%u num_sge=%u inv_rkey=0x%08x",
		      __entry->cq_id, __entry->cid, __entry->num_sge,
		      __entry->inv_rkey));

DECLARE_EVENT_CLASS(svcrdma_post_chunk_class,
		    TP_PROTO(u32 cq_id, u32 cid, u32 sqecount),
		    TP_ARGS(cq_id, cid, sqecount),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, cid)
				     __field(u32, sqecount)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->cid = cid;
				   __entry->sqecount = sqecount;),
		    TP_printk("cq.id=%u cid=%u sqecount=%u", __entry->cq_id,
			      __entry->cid, __entry->sqecount));

/* Counts RDMA Writes to Write chunks and to the Reply chunk. */
DEFINE_EVENT(svcrdma_post_chunk_class, svcrdma_post_write_chunk,
	     TP_PROTO(u32 cq_id, u32 cid, u32 sqecount),
	     TP_ARGS(cq_id, cid, sqecount));
DEFINE_EVENT(svcrdma_post_chunk_class, svcrdma_post_read_chunk,
	     TP_PROTO(u32 cq_id, u32 cid, u32 sqecount),
	     TP_ARGS(cq_id, cid, sqecount));

DECLARE_EVENT_CLASS(svcrdma_sendqueue_class,
		    TP_PROTO(u32 cq_id, u32 needed, u32 used, u32 depth),
		    TP_ARGS(cq_id, needed, used, depth),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, needed)
				     __field(u32, used)
				     __field(u32, depth)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->needed = needed;
				   __entry->used = used;
				   __entry->depth = depth;),
		    TP_printk("cq.id=%u needed=%u sc_sq_avail=%d/%u",
			      __entry->cq_id, __entry->needed,
			      (int)(__entry->depth - __entry->used),
			      __entry->depth));

DEFINE_EVENT(svcrdma_sendqueue_class, svcrdma_sq_full,
	     TP_PROTO(u32 cq_id, u32 needed, u32 used, u32 depth),
	     TP_ARGS(cq_id, needed, used, depth));

/*
 * Messages
 */

TRACE_EVENT(svcrdma_decode_rqst,
	    TP_PROTO(u32 cq_id, u32 cid, u32 xid, u32 vers, u32 credits,
		     u32 proc, u32 hdrlen),
	    TP_ARGS(cq_id, cid, xid, vers, credits, proc, hdrlen),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, cid)
			     __field(u32, xid)
			     __field(u32, vers)
			     __field(u32, credits)
			     __field(u32, proc)
			     __field(u32, hdrlen)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->cid = cid;
			   __entry->xid = xid;
			   __entry->vers = vers;
			   __entry->credits = credits;
			   __entry->proc = proc;
			   __entry->hdrlen = hdrlen;),
	    TP_printk("cq.id=%u cid=%u xid=0x%08x vers=%u credits=%u proc=%s hdrlen=%u",
		      __entry->cq_id, __entry->cid, __entry->xid, __entry->vers,
		      __entry->credits,
		      __print_symbolic(__entry->proc, { 0, "RDMA_MSG" },
				       { 1, "RDMA_NOMSG" }, { 2, "RDMA_MSGP" },
				       { 3, "RDMA_DONE" }, { 4, "RDMA_ERROR" }),
		      __entry->hdrlen));

TRACE_EVENT(svcrdma_decode_short_err,
	    TP_PROTO(u32 cq_id, u32 cid, u32 hdrlen),
	    TP_ARGS(cq_id, cid, hdrlen),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, cid)
			     __field(u32, hdrlen)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->cid = cid;
			   __entry->hdrlen = hdrlen;),
	    TP_printk("cq.id=%u cid=%u hdrlen=%u", __entry->cq_id, __entry->cid,
		      __entry->hdrlen));

DECLARE_EVENT_CLASS(svcrdma_badreq_event,
		    TP_PROTO(u32 cq_id, u32 cid, u32 xid, u32 vers, u32 credits,
			     u32 proc),
		    TP_ARGS(cq_id, cid, xid, vers, credits, proc),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, cid)
				     __field(u32, xid)
				     __field(u32, vers)
				     __field(u32, credits)
				     __field(u32, proc)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->cid = cid;
				   __entry->xid = xid;
				   __entry->vers = vers;
				   __entry->credits = credits;
				   __entry->proc = proc;),
		    TP_printk("cq.id=%u cid=%u xid=0x%08x vers=%u credits=%u proc=%u",
			      __entry->cq_id, __entry->cid, __entry->xid,
			      __entry->vers, __entry->credits, __entry->proc));

#define DEFINE_BADREQ_EVENT(name)					\
	DEFINE_EVENT(svcrdma_badreq_event, svcrdma_decode_##name##_err,	\
		TP_PROTO(u32 cq_id, u32 cid, u32 xid, u32 vers,		\
			 u32 credits, u32 proc),			\
		TP_ARGS(cq_id, cid, xid, vers, credits, proc))

DEFINE_BADREQ_EVENT(badvers);
DEFINE_BADREQ_EVENT(drop);
DEFINE_BADREQ_EVENT(badproc);
DEFINE_BADREQ_EVENT(parse);

TRACE_EVENT(svcrdma_decode_rseg,
	    TP_PROTO(u32 cq_id, u32 cid, u32 segno, u32 position, u32 handle,
		     u32 length, u64 offset),
	    TP_ARGS(cq_id, cid, segno, position, handle, length, offset),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, cid)
			     __field(u32, segno)
			     __field(u32, position)
			     __field(u32, handle)
			     __field(u32, length)
			     __field(u64, offset)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->cid = cid;
			   __entry->segno = segno;
			   __entry->position = position;
			   __entry->handle = handle;
			   __entry->length = length;
			   __entry->offset = offset;),
	    TP_printk("cq.id=%u cid=%u segno=%u position=%u %u@0x%016llx:0x%08x",
		      __entry->cq_id, __entry->cid, __entry->segno,
		      __entry->position, __entry->length,
		      (unsigned long long)__entry->offset, __entry->handle));

DECLARE_EVENT_CLASS(svcrdma_wseg_class,
		    TP_PROTO(u32 cq_id, u32 cid, u32 segno, u32 handle,
			     u32 length, u64 offset),
		    TP_ARGS(cq_id, cid, segno, handle, length, offset),
		    TP_STRUCT__entry(__field(u32, cq_id)
				     __field(u32, cid)
				     __field(u32, segno)
				     __field(u32, handle)
				     __field(u32, length)
				     __field(u64, offset)),
		    TP_fast_assign(__entry->cq_id = cq_id;
				   __entry->cid = cid;
				   __entry->segno = segno;
				   __entry->handle = handle;
				   __entry->length = length;
				   __entry->offset = offset;),
		    TP_printk("cq.id=%u cid=%u segno=%u %u@0x%016llx:0x%08x",
			      __entry->cq_id, __entry->cid, __entry->segno,
			      __entry->length,
			      (unsigned long long)__entry->offset,
			      __entry->handle));

/* A segment that was offered, and the part of one that was written. */
DEFINE_EVENT(svcrdma_wseg_class, svcrdma_decode_wseg,
	     TP_PROTO(u32 cq_id, u32 cid, u32 segno, u32 handle, u32 length,
		      u64 offset),
	     TP_ARGS(cq_id, cid, segno, handle, length, offset));
DEFINE_EVENT(svcrdma_wseg_class, svcrdma_encode_wseg,
	     TP_PROTO(u32 cq_id, u32 cid, u32 segno, u32 handle, u32 length,
		      u64 offset),
	     TP_ARGS(cq_id, cid, segno, handle, length, offset));

DECLARE_EVENT_CLASS(svcrdma_error_event,
		    TP_PROTO(u32 xid),
		    TP_ARGS(xid),
		    TP_STRUCT__entry(__field(u32, xid)),
		    TP_fast_assign(__entry->xid = xid;),
		    TP_printk("xid=0x%08x", __entry->xid));

DEFINE_EVENT(svcrdma_error_event, svcrdma_err_vers,
	     TP_PROTO(u32 xid),
	     TP_ARGS(xid));
DEFINE_EVENT(svcrdma_error_event, svcrdma_err_chunk,
	     TP_PROTO(u32 xid),
	     TP_ARGS(xid));
DEFINE_EVENT(svcrdma_error_event, svcrdma_err_option,
	     TP_PROTO(u32 xid),
	     TP_ARGS(xid));

TRACE_EVENT(svcrdma_send_err,
	    TP_PROTO(u32 cq_id, u32 xid, int status),
	    TP_ARGS(cq_id, xid, status),
	    TP_STRUCT__entry(__field(u32, cq_id)
			     __field(u32, xid)
			     __field(int, status)),
	    TP_fast_assign(__entry->cq_id = cq_id;
			   __entry->xid = xid;
			   __entry->status = status;),
	    TP_printk("cq.id=%u xid=0x%08x status=%d", __entry->cq_id,
		      __entry->xid, __entry->status));

#endif /* _SVCRDMA_TRACE_H */

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH trace
#define TRACE_INCLUDE_FILE svcrdma
#include <trace/define_trace.h>
