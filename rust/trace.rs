// SPDX-License-Identifier: GPL-2.0

//! Trace events of the group `rpcrdma`: one function for each event, of the same name.
//!
//! A disabled event costs the branch of its static key: its values are read from the arguments
//! behind that branch. Without `CONFIG_TRACEPOINTS` nothing of it remains.
//!
//! The client's events are here, and defined in `trace/rpcrdma.h`.

use crate::bindings::ib_wc;
use kernel::prelude::*;

/// What events show of a transport.
pub(crate) trait TraceXprt {
    /// The number by which sysfs and debugfs identify it.
    fn id(&self) -> u32;
}

/// What events show of an RPC.
pub(crate) trait TraceRqst {
    /// The numbers by which sunrpc's events identify its task, and the RPC client of that task.
    fn task(&self) -> (u32, u32);

    /// The XID.
    fn xid(&self) -> u32;

    /// Bytes of the Call: head, pages and tail.
    fn call_lens(&self) -> [usize; 3];

    /// Bytes of the buffer for the Reply: head, pages and tail.
    fn reply_lens(&self) -> [usize; 3];
}

/// What events show of a completion queue.
pub(crate) trait TraceCq {
    /// The number by which `rdma resource show cq` lists it.
    fn number(&self) -> u32;
}

/// What events show of a queue pair.
pub(crate) trait TraceQp {
    /// The number by which `rdma resource show cq` lists the completion queue of its Receives.
    fn queue(&self) -> u32;
}

/// What events show of a memory region.
pub(crate) trait TraceMr {
    /// The number by which `rdma resource show mr` lists it.
    fn number(&self) -> u32;

    /// The number of mapped pages.
    fn elements(&self) -> i32;

    /// The segment that the peer is given: handle, length in bytes, and offset.
    fn segment(&self) -> (u32, u64, u64);

    /// The direction in which its pages are mapped (`enum dma_data_direction`).
    fn direction(&self) -> u32;
}

/// A segment as events show it: handle, length and offset.
pub(crate) type Segment = (u32, u32, u64);

/// Whether an event is enabled.
#[cfg(CONFIG_TRACEPOINTS)]
macro_rules! enabled {
    ($name:ident) => {
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
    };
}

#[cfg(not(CONFIG_TRACEPOINTS))]
macro_rules! enabled {
    ($name:ident) => {
        false
    };
}

/// Emits an event, if it is enabled.
#[cfg(CONFIG_TRACEPOINTS)]
macro_rules! emit {
    ($name:ident($($value:expr),* $(,)?)) => {
        if enabled!($name) {
            kernel::macros::paste! {
                // SAFETY: The event takes numbers only, and may be written in any context.
                unsafe { crate::bindings::[<rust_do_trace_ $name>]($($value),*) }
            }
        }
    };
}

/// Uses the arguments.
#[cfg(not(CONFIG_TRACEPOINTS))]
macro_rules! emit {
    ($name:ident($($value:expr),* $(,)?)) => {
        if enabled!($name) {
            $(let _ = $value;)*
        }
    };
}

/// Defines the function of each event.
macro_rules! events {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) => ($($value:expr),* $(,)?);
    )*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name($($argument: $type),*) {
            emit!($name($($value),*));
        }
    )*};
}

pub(crate) mod server;

/// A length as the events show it.
fn clip(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

// Connections.
events! {
    /// An attempt to connect was queued, to start after `delay` jiffies.
    fn xprtrdma_op_connect(xprt: &impl TraceXprt, delay: usize) => (xprt.id(), delay);

    /// The mount requested different timeouts, in jiffies.
    fn xprtrdma_op_set_cto(xprt: &impl TraceXprt, connect: usize, reconnect: usize) =>
        (xprt.id(), connect, reconnect);

    /// Fault injection breaks the connection.
    fn xprtrdma_op_inject_dsc(xprt: &impl TraceXprt) => (xprt.id());

    /// The connection manager reports that the device is being removed.
    fn xprtrdma_device_removal(xprt: &impl TraceXprt) => (xprt.id());

    /// Version Two was tried, and this version is spoken.
    fn xprtrdma_version(xprt: &impl TraceXprt, version: u32) => (xprt.id(), version);

    /// Both ends have agreed on the inline thresholds.
    fn xprtrdma_inline_thresh(
        xprt: &impl TraceXprt,
        send: u32,
        receive: u32,
        own_send: u32,
        own_receive: u32,
    ) => (xprt.id(), send, receive, own_send, own_receive);

    /// An attempt to connect is over; `errno` is what sunrpc is told, `cause` one of `enum
    /// rpcrdma_cause`. Both are 0 if there is a connection.
    fn xprtrdma_connect(xprt: &impl TraceXprt, errno: i32, cause: i32) => (xprt.id(), errno, cause);

    /// A connection is torn down, for a cause of `enum rpcrdma_cause`.
    fn xprtrdma_disconnect(xprt: &impl TraceXprt, cause: i32) => (xprt.id(), cause);
}

// Calls, until they are posted.
events! {
    /// Memory regions were allocated.
    fn xprtrdma_createmrs(xprt: &impl TraceXprt, count: u32) => (xprt.id(), count);

    /// No memory region was free for a Call, which waits for one.
    fn xprtrdma_nomrs_err(xprt: &impl TraceXprt, rqst: &impl TraceRqst) =>
        (xprt.id(), rqst.task().0, rqst.task().1, rqst.xid());

    /// The memory regions of a Call whose task is gone are being invalidated.
    fn xprtrdma_mrs_zap(xprt: &impl TraceXprt, rqst: &impl TraceRqst) =>
        (xprt.id(), rqst.task().0, rqst.task().1, rqst.xid());

    /// A Call was encoded, with `header` bytes of transport header. `call` and `reply` are the
    /// forms of the Call and of its Reply.
    fn xprtrdma_marshal(rqst: &impl TraceRqst, header: usize, call: u8, reply: u8) => (
        rqst.task().0,
        rqst.task().1,
        rqst.xid(),
        clip(header),
        part(rqst.call_lens(), 0),
        part(rqst.call_lens(), 1),
        part(rqst.call_lens(), 2),
        u32::from(call),
        u32::from(reply),
    );

    /// A Call was not sent.
    fn xprtrdma_marshal_failed(rqst: &impl TraceRqst, errno: i32) =>
        (rqst.task().0, rqst.task().1, rqst.xid(), errno);
}

/// The length of one part of a message.
fn part(lens: [usize; 3], index: usize) -> u32 {
    lens.get(index).map_or(0, |&length| clip(length))
}

/// The segments of a Call's chunks: `xprtrdma_chunk_read`, `xprtrdma_chunk_write` and
/// `xprtrdma_chunk_reply`. The first `reads` of `segments` belong to the Read list, for data at
/// `position`; the others to the Reply chunk or the Write chunk.
#[inline(always)]
pub(crate) fn xprtrdma_chunks(
    rqst: &impl TraceRqst,
    position: u32,
    is_reply_chunk: bool,
    segments: impl Iterator<Item = Segment> + Clone,
    reads: usize,
) {
    if enabled!(xprtrdma_chunk_read)
        || enabled!(xprtrdma_chunk_write)
        || enabled!(xprtrdma_chunk_reply)
    {
        write_chunks(rqst, position, is_reply_chunk, segments, reads);
    }
}

#[cold]
fn write_chunks(
    rqst: &impl TraceRqst,
    position: u32,
    is_reply_chunk: bool,
    segments: impl Iterator<Item = Segment> + Clone,
    reads: usize,
) {
    let (task, client) = rqst.task();
    let mut read_list = segments.clone().take(reads).peekable();
    while let Some((handle, length, offset)) = read_list.next() {
        let is_last = read_list.peek().is_none();
        emit!(xprtrdma_chunk_read(
            task, client, position, handle, length, offset, is_last
        ));
    }
    let mut results = segments.skip(reads).peekable();
    while let Some((handle, length, offset)) = results.next() {
        let is_last = results.peek().is_none();
        if is_reply_chunk {
            emit!(xprtrdma_chunk_reply(
                task, client, 0, handle, length, offset, is_last
            ));
        } else {
            emit!(xprtrdma_chunk_write(
                task, client, 0, handle, length, offset, is_last
            ));
        }
    }
}

// Work requests.
events! {
    /// `message` is posted in the Send with this number.
    fn xprtrdma_post_send(qp: &impl TraceQp, number: u32, message: &[u8], signaled: bool) =>
        (qp.queue(), number, word(message, 0), clip(message.len()), signaled);

    /// The device has rejected a chain that ends with a Send.
    fn xprtrdma_post_send_err(qp: &impl TraceQp, error: Error) => (qp.queue(), error.to_errno());

    /// The Receive with this number was posted, or will be with its batch.
    fn xprtrdma_post_recv(qp: &impl TraceQp, index: u32) => (qp.queue(), index);

    /// `count` Receives are posted together.
    fn xprtrdma_post_recvs(qp: &impl TraceQp, count: usize) => (qp.queue(), clip(count));

    /// The device has rejected a Receive.
    fn xprtrdma_post_recvs_err(qp: &impl TraceQp, error: Error) =>
        (qp.queue(), error.to_errno());

    /// The device has rejected a chain of invalidations.
    fn xprtrdma_post_linv_err(qp: &impl TraceQp, error: Error) => (qp.queue(), error.to_errno());

    /// The Receive with this number has completed.
    fn xprtrdma_wc_receive(cq: &impl TraceCq, index: u32, wc: &ib_wc) =>
        (cq.number(), index, wc.status, wc.vendor_err, wc.byte_len);

    /// The signalled Send with this number has completed.
    fn xprtrdma_wc_send(cq: &impl TraceCq, number: u32, wc: &ib_wc) =>
        (cq.number(), number, wc.status, wc.vendor_err);

    /// The last invalidation of the slot at `index` has completed.
    fn xprtrdma_wc_li_done(cq: &impl TraceCq, index: usize, wc: &ib_wc) =>
        (cq.number(), clip(index), wc.status, wc.vendor_err);

    /// An unsignalled work request has failed.
    fn xprtrdma_wc_unsignaled(cq: &impl TraceCq, wc: &ib_wc) =>
        (cq.number(), wc.status, wc.vendor_err);
}

/// Defines the functions of events that show a region with `elements` mapped pages.
macro_rules! region_events {
    ($($(#[$doc:meta])* fn $name:ident;)*) => {
        events! {
            $(
                $(#[$doc])*
                fn $name(region: &impl TraceMr) => (
                    region.number(),
                    region.elements(),
                    region.segment().0,
                    region.segment().1,
                    region.segment().2,
                    region.direction(),
                );
            )*
        }
    };
}

// Memory regions.
region_events! {
    /// A region's pages are mapped for DMA.
    fn xprtrdma_mr_map;
    /// A region's registration is added to a chain.
    fn xprtrdma_mr_fastreg;
    /// A region's invalidation is added to a chain.
    fn xprtrdma_mr_localinv;
    /// The peer has invalidated a region.
    fn xprtrdma_mr_reminv;
    /// A region's pages are unmapped.
    fn xprtrdma_mr_unmap;
}

events! {
    /// The region with the number `mr` was allocated, or `errno` says why none was.
    fn xprtrdma_frwr_alloc(mr: u32, errno: i32) => (mr, errno);

    /// The region with the number `mr` was freed, with this result.
    fn xprtrdma_frwr_dereg(mr: u32, rc: i32) => (mr, rc);

    /// None of `elements` pages could be mapped for DMA.
    fn xprtrdma_frwr_sgerr(region: &impl TraceMr, elements: i32, mapped: i32) =>
        (region.number(), elements, mapped);

    /// Of `elements` mapped pages only `mapped` fit the region.
    fn xprtrdma_frwr_maperr(region: &impl TraceMr, elements: i32, mapped: i32) =>
        (region.number(), elements, mapped);
}

/// Defines the functions of events that show the fixed header fields of a `message`.
macro_rules! message_events {
    ($($(#[$doc:meta])* fn $name:ident;)*) => {
        events! {
            $(
                $(#[$doc])*
                fn $name(xprt: &impl TraceXprt, message: &[u8]) =>
                    (xprt.id(), word(message, 0), word(message, 1), word(message, 3));
            )*
        }
    };
}

/// A word of a message, zero if the message is shorter.
fn word(message: &[u8], index: usize) -> u32 {
    let word = message.chunks_exact(4).nth(index);
    word.and_then(|word| word.first_chunk())
        .map_or(0, |word| u32::from_be_bytes(*word))
}

// Messages from the peer.
message_events! {
    /// No Call waits for a message.
    fn xprtrdma_reply_rqst_err;
    /// A message is shorter than the fixed header fields.
    fn xprtrdma_reply_short_err;
    /// A message has another version.
    fn xprtrdma_reply_vers_err;
    /// A message's header is malformed.
    fn xprtrdma_reply_hdr_err;
}

events! {
    /// A Reply was matched with its Call.
    fn xprtrdma_reply(rqst: &impl TraceRqst, credits: u32) =>
        (rqst.task().0, rqst.task().1, rqst.xid(), credits);

    /// The peer has rejected the version of a Call.
    fn xprtrdma_err_vers(rqst: &impl TraceRqst, low: u32, high: u32) =>
        (rqst.task().0, rqst.task().1, rqst.xid(), low, high);

    /// The peer has rejected the chunks of a Call.
    fn xprtrdma_err_chunk(xprt: &impl TraceXprt, rqst: &impl TraceRqst) =>
        (xprt.id(), rqst.task().0, rqst.task().1, rqst.xid());

    /// The peer has rejected a Call for an unknown reason.
    fn xprtrdma_err_unrecognized(xprt: &impl TraceXprt, rqst: &impl TraceRqst) =>
        (xprt.id(), rqst.task().0, rqst.task().1, rqst.xid());

    /// `bytes` of a Reply were copied to the pages for its data.
    fn xprtrdma_fixup(rqst: &impl TraceRqst, bytes: usize) => (
        rqst.task().0,
        rqst.task().1,
        u64::from(clip(bytes)),
        part(rqst.reply_lens(), 0),
        part(rqst.reply_lens(), 1),
        part(rqst.reply_lens(), 2),
    );

    /// A back channel for `requests` Calls is set up.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn xprtrdma_cb_setup(xprt: &impl TraceXprt, requests: u32) => (xprt.id(), requests);

    /// A backward Call is passed to the callback service.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn xprtrdma_cb_call(xprt: &impl TraceXprt, xid: u32) => (xprt.id(), xid);

    /// A backward Reply is sent.
    fn xprtrdma_cb_reply(xprt: &impl TraceXprt, xid: u32) => (xprt.id(), xid);
}
