// SPDX-License-Identifier: GPL-2.0

//! Trace events of the group `rpcrdma`: one function for each event, of the same name.
//!
//! A disabled event costs the branch of its static key: its values are read from the arguments
//! after that branch. Without `CONFIG_TRACEPOINTS` nothing of it remains.
//!
//! They are defined in `trace/rpcrdma.h`. Queue pairs and memory regions are named by numbers:
//! those by which `rdma resource show` lists the completion queue of the queue pair, and the
//! region.

use crate::{
    bindings::{self, ib_mr, ib_wc, rpc_rqst},
    proto::wire::chunk::{ReadSegment, Segment},
};
use kernel::{prelude::*, time::Delta};

/// An RPC, of which events show the task, the XID, and the lengths of its messages.
///
/// # Safety
///
/// [`Self::raw`] returns a valid request, whose task has an RPC client.
pub(crate) unsafe trait TraceRqst {
    /// The C pointer.
    fn raw(&self) -> *const rpc_rqst;
}

/// Whether an event is enabled.
macro_rules! enabled {
    ($name:ident) => {{
        #[cfg(CONFIG_TRACEPOINTS)]
        kernel::macros::paste! {
            // SAFETY: The static key is that of a tracepoint, defined in C.
            unsafe {
                kernel::jump_label::static_branch_unlikely!(
                    crate::bindings::[<__tracepoint_ $name>],
                    crate::bindings::tracepoint,
                    key
                )
            }
        }
        #[cfg(not(CONFIG_TRACEPOINTS))]
        false
    }};
}

/// Emits an event, if it is enabled.
macro_rules! emit {
    ($name:ident $values:tt) => {
        if enabled!($name) {
            #[cfg(CONFIG_TRACEPOINTS)]
            kernel::macros::paste! {
                // SAFETY: The event takes numbers, references, valid requests and static C strings
                // only, and may be written in any context.
                unsafe { crate::bindings::[<rust_do_trace_ $name>] $values }
            }
            #[cfg(not(CONFIG_TRACEPOINTS))]
            let _ = $values;
        }
    };
}

/// Defines a function of the same name for each event. Several events may have the same arguments
/// and values.
macro_rules! events {
    ($(
        $($(#[$doc:meta])* fn $name:ident)+: $arguments:tt => $values:tt;
    )*) => {$($(
        $(#[$doc])*
        pub(crate) fn $name $arguments {
            emit!($name $values);
        }
    )+)*};
}

/// A length or a number as events show it.
pub(crate) fn clip(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A word of a message, zero if the message is shorter.
fn word(message: &[u8], index: usize) -> u32 {
    let word = message.chunks_exact(4).nth(index);
    word.and_then(|word| word.first_chunk())
        .map_or(0, |word| u32::from_be_bytes(*word))
}

events! {
    // The client's connections and its memory regions, by transport.

    /// An attempt to connect was queued, to start after `delay` jiffies.
    fn xprtrdma_op_connect: (xprt: u32, delay: usize) => (xprt, delay);
    /// The mount requested different timeouts, in jiffies.
    fn xprtrdma_op_set_cto: (xprt: u32, connect: usize, reconnect: usize) =>
        (xprt, connect, reconnect);
    /// The device is being removed.
    fn xprtrdma_device_removal
    /// Fault injection breaks the connection.
    fn xprtrdma_op_inject_dsc: (xprt: u32) => (xprt);
    /// Version Two was tried, and this version is spoken.
    fn xprtrdma_version: (xprt: u32, version: u32) => (xprt, version);
    /// Both ends have agreed on the inline thresholds.
    fn xprtrdma_inline_thresh: (
        xprt: u32,
        send: u32,
        recv: u32,
        max_send: u32,
        max_recv: u32,
    ) => (xprt, send, recv, max_send, max_recv);
    /// An attempt to connect is over; `errno` is what sunrpc gets. It is 0, and `cause` is
    /// empty, if there is a connection.
    fn xprtrdma_connect: (xprt: u32, errno: i32, cause: &CStr) =>
        (xprt, errno, cause.as_char_ptr());
    /// A connection is torn down.
    fn xprtrdma_disconnect: (xprt: u32, cause: &CStr) =>
        (xprt, cause.as_char_ptr());
    /// Memory regions were allocated.
    fn xprtrdma_createmrs: (xprt: u32, count: u32) => (xprt, count);
    /// A back channel for `requests` Calls is set up.
    fn xprtrdma_cb_setup: (xprt: u32, requests: u32) => (xprt, requests);
    /// A backward Call is passed to the callback service.
    fn xprtrdma_cb_call
    /// A backward Reply is sent.
    fn xprtrdma_cb_reply: (xprt: u32, xid: u32) => (xprt, xid);
    /// No memory region was free for a Call, which waits for one.
    fn xprtrdma_nomrs_err
    /// The memory regions of a Call whose task is gone are being invalidated.
    fn xprtrdma_mrs_zap
    /// The peer has rejected the chunks of a Call.
    fn xprtrdma_err_chunk
    /// The peer has rejected a Call for an unknown reason.
    fn xprtrdma_err_unrecognized: (xprt: u32, rqst: &impl TraceRqst) =>
        (xprt, rqst.raw());

    // The client's Calls and Replies.

    /// A Call was encoded, with `header` bytes of transport header. `rtype` and `wtype` are the
    /// forms of the Call and of its Reply, as `enum rpcrdma_chunktype` of the C transport has them.
    fn xprtrdma_marshal: (rqst: &impl TraceRqst, header: usize, rtype: u32, wtype: u32) =>
        (rqst.raw(), clip(header), rtype, wtype);
    /// A Call was not sent.
    fn xprtrdma_marshal_failed: (rqst: &impl TraceRqst, errno: i32) =>
        (rqst.raw(), errno);
    /// A Reply was matched with its Call.
    fn xprtrdma_reply: (rqst: &impl TraceRqst, credits: u32) =>
        (rqst.raw(), credits);
    /// The peer has rejected the version of a Call.
    fn xprtrdma_err_vers: (rqst: &impl TraceRqst, low: u32, high: u32) =>
        (rqst.raw(), low, high);
    /// `bytes` of a Reply were copied to the pages for its data.
    fn xprtrdma_fixup: (rqst: &impl TraceRqst, bytes: usize) =>
        (rqst.raw(), u64::from(clip(bytes)));
}

/// The segments of a Call's chunks: `xprtrdma_chunk_read`, `xprtrdma_chunk_write` and
/// `xprtrdma_chunk_reply`. The first `reads` of `segments` belong to the Read list, for data at
/// `position`; the others to the Reply chunk or the Write chunk.
pub(crate) fn xprtrdma_chunks(
    rqst: &impl TraceRqst,
    position: u32,
    is_reply_chunk: bool,
    segments: impl Iterator<Item = Segment>,
    reads: usize,
) {
    if !enabled!(xprtrdma_chunk_read)
        && !enabled!(xprtrdma_chunk_write)
        && !enabled!(xprtrdma_chunk_reply)
    {
        return;
    }
    let rqst = rqst.raw();
    let mut segments = (1..usize::MAX).zip(segments).peekable();
    while let Some((count, segment)) = segments.next() {
        let Segment {
            handle,
            length,
            offset,
        } = segment;
        let last = count == reads || segments.peek().is_none();
        if count <= reads {
            emit!(xprtrdma_chunk_read(
                rqst, position, handle, length, offset, last
            ));
        } else if is_reply_chunk {
            emit!(xprtrdma_chunk_reply(rqst, 0, handle, length, offset, last));
        } else {
            emit!(xprtrdma_chunk_write(rqst, 0, handle, length, offset, last));
        }
    }
}

events! {
    // The client's work requests.

    /// `message` is posted in the Send with this number.
    fn xprtrdma_post_send: (cq: u32, number: u32, message: &[u8], signaled: bool) =>
        (cq, number, word(message, 0), clip(message.len()), signaled);
    /// The Receive with this number is about to be posted.
    fn xprtrdma_post_recv: (cq: u32, index: u32) => (cq, index);
    /// `count` Receives are posted together.
    fn xprtrdma_post_recvs: (cq: u32, count: usize) => (cq, clip(count));
    /// The device has rejected a chain that ends with a Send.
    fn xprtrdma_post_send_err
    /// The device has rejected a Receive.
    fn xprtrdma_post_recvs_err
    /// The device has rejected a chain of invalidations.
    fn xprtrdma_post_linv_err
    /// The device has rejected Receives.
    fn svcrdma_rq_post_err
    /// The device has rejected a chain of Writes and a Send, or of Reads.
    fn svcrdma_sq_post_err: (cq: u32, error: Error) => (cq, error.to_errno());
    /// The Receive with this number has completed.
    fn xprtrdma_wc_receive
    /// The signalled Send with this number has completed.
    fn xprtrdma_wc_send
    /// An unsignalled request has failed, of the Send or the slot with this number.
    fn xprtrdma_wc_unsignaled
    /// The last invalidation of the slot with this number has completed.
    fn xprtrdma_wc_li_done: (cq: u32, number: u32, wc: &ib_wc) =>
        (cq, number, wc);
    /// The region with the number `mr` was allocated, or `errno` says why none was.
    fn xprtrdma_frwr_alloc: (mr: u32, errno: i32) => (mr, errno);
    /// The region with the number `mr` was freed, with this result.
    fn xprtrdma_frwr_dereg: (mr: u32, rc: i32) => (mr, rc);
    /// None of `elements` pages could be mapped for DMA.
    fn xprtrdma_frwr_sgerr
    /// Of `elements` mapped pages only `mapped` fit the region.
    fn xprtrdma_frwr_maperr: (mr: u32, elements: i32, mapped: i32) => (mr, mapped, elements);
    /// A region's pages are mapped for DMA.
    fn xprtrdma_mr_map
    /// A region's registration is added to a chain.
    fn xprtrdma_mr_fastreg
    /// A region's invalidation is added to a chain.
    fn xprtrdma_mr_localinv
    /// The peer has invalidated a region.
    fn xprtrdma_mr_reminv
    /// A region's pages are unmapped.
    fn xprtrdma_mr_unmap: (mr: &ib_mr, elements: i32, direction: u32) =>
        (mr, elements, direction);

    // The server's connections and work requests.

    /// A connection that a peer requested could not be accepted.
    fn svcrdma_accept_err: (listener: u32, errno: i32) => (listener, errno);
    /// Both ends have agreed on another version than One.
    fn svcrdma_version: (connection: u32, version: u32) => (connection, version);
    /// The device is being removed, and the connection closed.
    fn svcrdma_device_removal: (connection: u32) => (connection);
    /// An event with this number (`enum ib_event_type`) has made the queue pair unusable.
    fn svcrdma_qp_error: (connection: u32, event: u32) => (connection, event);
    /// The Receive with this number is about to be posted.
    fn svcrdma_post_recv: (cq: u32, cid: u32) => (cq, cid);
    /// A Send is posted.
    fn svcrdma_post_send: (cq: u32, cid: u32, invalidate: Option<u32>) =>
        (cq, cid, 1, invalidate.unwrap_or(0));
    /// RDMA Writes are posted before the Send with this number.
    fn svcrdma_post_write_chunk
    /// RDMA Reads are posted for the message in the Receive with this number.
    fn svcrdma_post_read_chunk: (cq: u32, cid: u32, count: u32) =>
        (cq, cid, count);
    /// The send queue has fewer free entries than the `needed` ones.
    fn svcrdma_sq_full: (cq: u32, needed: u32, avail: u32, depth: u32) =>
        (cq, needed, avail, depth);
    /// The RDMA Reads for the message in the Receive with this number have completed.
    fn svcrdma_wc_read: (cq: u32, cid: u32, bytes: u64, took: Delta) => (
        cq, cid, u32::try_from(bytes).unwrap_or(u32::MAX),
        took.as_micros_ceil().unsigned_abs(),
    );
}

/// Defines the functions for work requests that have completed: an event for success, if there is
/// one, another one for a flush, and one for an error.
macro_rules! completions {
    ($($(#[$doc:meta])* $name:ident: $($success:ident)?, $flush:ident, $error:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(cq: u32, cid: u32, wc: &ib_wc) {
            match wc.status {
                $(bindings::ib_wc_status_IB_WC_SUCCESS => emit!($success(cq, cid, wc)),)?
                bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR => emit!($flush(cq, cid, wc)),
                _ => emit!($error(cq, cid, wc)),
            }
        }
    )*};
}

completions! {
    /// A Receive has completed.
    svcrdma_wc_recv: svcrdma_wc_recv, svcrdma_wc_recv_flush, svcrdma_wc_recv_err;
    /// A Send has completed.
    svcrdma_wc_send: svcrdma_wc_send, svcrdma_wc_send_flush, svcrdma_wc_send_err;
    /// RDMA Reads have failed.
    svcrdma_wc_read_failed: , svcrdma_wc_read_flush, svcrdma_wc_read_err;
    /// RDMA Writes before the Send with this number have failed.
    svcrdma_wc_write_failed: , svcrdma_wc_write_flush, svcrdma_wc_write_err;
}

events! {
    // Messages that do not decode.

    /// No Call waits for a message.
    fn xprtrdma_reply_rqst_err
    /// A message is shorter than the fixed header fields.
    fn xprtrdma_reply_short_err
    /// A message has another version.
    fn xprtrdma_reply_vers_err
    /// A message's header is malformed.
    fn xprtrdma_reply_hdr_err: (xprt: u32, message: &[u8]) =>
        (xprt, word(message, 0), word(message, 1), word(message, 3));
    /// A message has another version.
    fn svcrdma_decode_badvers_err
    /// A message gets no answer.
    fn svcrdma_decode_drop_err
    /// A message's procedure is unknown.
    fn svcrdma_decode_badproc_err
    /// A message's header is malformed, or requests too much.
    fn svcrdma_decode_parse_err
    /// A message is shorter than the fixed header fields.
    fn svcrdma_decode_short_err
    /// The message is a Call. `header` is what it begins with: the transport header if that was
    /// decoded, or all that was received.
    fn svcrdma_decode_rqst: (cq: u32, cid: u32, header: &[u8]) => (
        cq, cid,
        word(header, 0), word(header, 1), word(header, 2), word(header, 3),
        clip(header.len()),
    );

    // Messages from requesters.

    /// An RDMA_ERROR with ERR_VERS ends the transaction.
    fn svcrdma_err_vers
    /// An RDMA_ERROR with ERR_CHUNK ends the transaction.
    fn svcrdma_err_chunk
    /// An RDMA_ERROR with RDMA_ERR_INVAL_OPTION answers an option.
    fn svcrdma_err_option: (xid: u32) => (xid);
    /// A Reply could not be sent.
    fn svcrdma_send_err: (cq: u32, xid: u32, error: Error) =>
        (cq, xid, error.to_errno());
    /// A segment of the Read list of the Call in the Receive `cid`.
    fn svcrdma_decode_rseg
    /// A segment of its Write list or Reply chunk, which has no position.
    fn svcrdma_decode_wseg
    /// The part of one that an RDMA Write fills.
    fn svcrdma_encode_wseg: (
        cq: u32, cid: u32, number: u32, position: u32, segment: Segment,
    ) => (cq, cid, number, position, segment.length, segment.offset, segment.handle);
}

/// The segments of a Call's chunks: `svcrdma_decode_rseg` and `svcrdma_decode_wseg`.
pub(crate) fn svcrdma_segments(
    cq: u32,
    cid: u32,
    reads: impl Iterator<Item = ReadSegment>,
    writes: impl Iterator<Item = Segment>,
) {
    if !enabled!(svcrdma_decode_rseg) && !enabled!(svcrdma_decode_wseg) {
        return;
    }
    for (number, entry) in (0..).zip(reads) {
        svcrdma_decode_rseg(cq, cid, number, entry.position, entry.segment);
    }
    for (number, segment) in (0..).zip(writes) {
        svcrdma_decode_wseg(cq, cid, number, 0, segment);
    }
}
