// SPDX-License-Identifier: GPL-2.0

//! Trace events of the group `rpcrdma`, one function each, named as the event.
//!
//! A disabled event costs the branch of its static key: what the event takes is read from the
//! arguments behind that branch. Without `CONFIG_TRACEPOINTS` nothing is left of it.
//!
//! The events are defined in `trace/rpcrdma.h`.

use crate::{
    bindings::{ib_cq, ib_qp, ib_wc},
    error::Cause,
    proto::{
        chunk::Segment,
        header::{Versions, Xid},
        plan::{CallForm, Plan, ReplyForm},
        private_data::{PrivateData, Thresholds},
    },
    rdma::mr::Core as Region,
    stats::Form,
    sunrpc::{PinnedRqst, Rqst, SendError, Xprt},
};
use kernel::{prelude::*, types::Opaque};

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

/// Writes an event, if it is enabled.
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

/// Takes note that the arguments are used.
#[cfg(not(CONFIG_TRACEPOINTS))]
macro_rules! emit {
    ($name:ident($($value:expr),* $(,)?)) => {
        if enabled!($name) {
            $(let _ = $value;)*
        }
    };
}

/// Makes the function of each event.
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

/// A length as the events show it.
fn clip(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

// What happens to a connection.
events! {
    /// An attempt to connect was queued, to start after `delay` jiffies.
    fn xprtrdma_op_connect(xprt: &Xprt, delay: usize) => (xprt.id(), delay);

    /// The mount has asked for other timeouts, in jiffies.
    fn xprtrdma_op_set_cto(xprt: &Xprt, connect: usize, reconnect: usize) =>
        (xprt.id(), connect, reconnect);

    /// Fault injection breaks the connection.
    fn xprtrdma_op_inject_dsc(xprt: &Xprt) => (xprt.id());

    /// The connection manager has told that the device goes away.
    fn xprtrdma_device_removal(xprt: &Xprt) => (xprt.id());

    /// Both ends have agreed on the inline thresholds.
    fn xprtrdma_inline_thresh(xprt: &Xprt, agreed: &Thresholds, own: &PrivateData) =>
        (xprt.id(), agreed.send, agreed.receive, own.send.bytes(), own.receive.bytes());

    /// An attempt to connect is over; `failure` has what sunrpc is told, and the cause.
    fn xprtrdma_connect(xprt: &Xprt, failure: Option<(Error, Cause)>) => (
        xprt.id(),
        failure.map_or(0, |(error, _)| error.to_errno()),
        failure.map_or(0, |(_, cause)| cause.number()),
    );

    /// A connection is torn down.
    fn xprtrdma_disconnect(xprt: &Xprt, cause: Cause) => (xprt.id(), cause.number());
}

// What becomes of a Call until it is posted.
events! {
    /// Memory regions were made.
    fn xprtrdma_createmrs(xprt: &Xprt, count: u32) => (xprt.id(), count);

    /// A Call found no memory region, and waits for one.
    fn xprtrdma_nomrs_err(xprt: &Xprt, rqst: &Rqst) =>
        (xprt.id(), rqst.task().id, rqst.task().client, rqst.xid());

    /// A Call whose task is gone has its memory regions invalidated.
    fn xprtrdma_mrs_zap(xprt: &Xprt, rqst: &Rqst) =>
        (xprt.id(), rqst.task().id, rqst.task().client, rqst.xid());

    /// A Call is encoded, with `header` bytes of transport header.
    fn xprtrdma_marshal(rqst: &Rqst, plan: &Plan, header: usize) => (
        rqst.task().id,
        rqst.task().client,
        rqst.xid(),
        clip(header),
        clip(rqst.call().head_len()),
        clip(rqst.call().page_len()),
        clip(rqst.call().tail_len()),
        u32::from(Form::from(plan).call),
        u32::from(Form::from(plan).reply),
    );

    /// A Call was not sent.
    fn xprtrdma_marshal_failed(rqst: &Rqst, error: SendError) =>
        (rqst.task().id, rqst.task().client, rqst.xid(), error.to_errno());
}

/// The segments of a Call's chunks: `xprtrdma_chunk_read`, `xprtrdma_chunk_write` and
/// `xprtrdma_chunk_reply`. The first `reads` of `segments` are the Read list's.
#[inline(always)]
pub(crate) fn xprtrdma_chunks(
    rqst: &Rqst,
    plan: &Plan,
    segments: impl Iterator<Item = Segment> + Clone,
    reads: usize,
) {
    if enabled!(xprtrdma_chunk_read)
        || enabled!(xprtrdma_chunk_write)
        || enabled!(xprtrdma_chunk_reply)
    {
        write_chunks(rqst, plan, segments, reads);
    }
}

#[cold]
fn write_chunks(
    rqst: &Rqst,
    plan: &Plan,
    segments: impl Iterator<Item = Segment> + Clone,
    reads: usize,
) {
    let (task, client) = (rqst.task().id, rqst.task().client);
    let position = match plan.call {
        CallForm::ReadChunk { position, .. } => position,
        CallForm::Inline | CallForm::PositionZero => 0,
    };
    let mut read_list = segments.clone().take(reads).peekable();
    while let Some(Segment {
        handle,
        length,
        offset,
    }) = read_list.next()
    {
        let is_last = read_list.peek().is_none();
        emit!(xprtrdma_chunk_read(
            task, client, position, handle, length, offset, is_last
        ));
    }
    let mut results = segments.skip(reads).peekable();
    while let Some(Segment {
        handle,
        length,
        offset,
    }) = results.next()
    {
        let is_last = results.peek().is_none();
        if plan.reply == ReplyForm::ReplyChunk {
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
    /// `message` goes to the device, in the Send of this number.
    fn xprtrdma_post_send(qp: &Opaque<ib_qp>, number: u32, message: &[u8], signaled: bool) =>
        (queue_of(qp), number, word(message, 0), clip(message.len()), signaled);

    /// The device has refused a chain that ends with a Send.
    fn xprtrdma_post_send_err(qp: &Opaque<ib_qp>, error: Error) => (queue_of(qp), error.to_errno());

    /// The Receive of this number is posted, or about to be with others.
    fn xprtrdma_post_recv(qp: &Opaque<ib_qp>, index: u32) => (queue_of(qp), index);

    /// So many Receives are posted together.
    fn xprtrdma_post_recvs(qp: &Opaque<ib_qp>, count: usize) => (queue_of(qp), clip(count));

    /// The device has refused a Receive.
    fn xprtrdma_post_recvs_err(qp: &Opaque<ib_qp>, error: Error) => (queue_of(qp), error.to_errno());

    /// The device has refused a chain of invalidations.
    fn xprtrdma_post_linv_err(qp: &Opaque<ib_qp>, error: Error) => (queue_of(qp), error.to_errno());

    /// The Receive of this number is complete.
    fn xprtrdma_wc_receive(cq: &Opaque<ib_cq>, index: u32, wc: &ib_wc) =>
        (number_of(cq), index, wc.status, wc.vendor_err, wc.byte_len);

    /// The Send of this number, which asked for it, is complete.
    fn xprtrdma_wc_send(cq: &Opaque<ib_cq>, number: u32, wc: &ib_wc) =>
        (number_of(cq), number, wc.status, wc.vendor_err);

    /// The last invalidation of the slot at `index` is complete.
    fn xprtrdma_wc_li_done(cq: &Opaque<ib_cq>, index: usize, wc: &ib_wc) =>
        (number_of(cq), clip(index), wc.status, wc.vendor_err);

    /// A work request that asked for no completion has failed.
    fn xprtrdma_wc_unsignaled(cq: &Opaque<ib_cq>, wc: &ib_wc) => (number_of(cq), wc.status, wc.vendor_err);
}

/// The number of a completion queue.
fn number_of(cq: &Opaque<ib_cq>) -> u32 {
    // SAFETY: The queue is valid, and its number does not change.
    unsafe { (*cq.get()).res.id }
}

/// The number of the completion queue that both queues of a queue pair have.
fn queue_of(qp: &Opaque<ib_qp>) -> u32 {
    // SAFETY: The queue pair is valid, and its completion queue outlives it.
    unsafe { (*(*qp.get()).recv_cq).res.id }
}

/// Makes the functions of events that show a region with `elements` mapped pages.
macro_rules! region_events {
    ($($(#[$doc:meta])* fn $name:ident;)*) => {
        events! {
            $(
                $(#[$doc])*
                fn $name(region: &Region) => (
                    region.mr().res.id,
                    region.elements(),
                    region.mr().rkey,
                    region.mr().length,
                    region.mr().iova,
                    // CAST: The number of a small enumeration.
                    region.direction() as u32,
                );
            )*
        }
    };
}

// Memory regions.
region_events! {
    /// A region's pages are mapped for DMA.
    fn xprtrdma_mr_map;
    /// A region's registration is put into a chain.
    fn xprtrdma_mr_fastreg;
    /// A region's invalidation is put into a chain.
    fn xprtrdma_mr_localinv;
    /// The peer has invalidated a region.
    fn xprtrdma_mr_reminv;
    /// A region's pages are unmapped.
    fn xprtrdma_mr_unmap;
}

events! {
    /// A region was made, or could not be.
    fn xprtrdma_frwr_alloc(region: Result<&Region>) => (
        region.map_or(0, |region| region.mr().res.id),
        region.err().map_or(0, Error::to_errno),
    );

    /// The region with the number `mr` was given back, with this result.
    fn xprtrdma_frwr_dereg(mr: u32, rc: i32) => (mr, rc);

    /// Of `elements` pages none could be mapped for DMA.
    fn xprtrdma_frwr_sgerr(region: &Region, elements: i32, mapped: i32) =>
        (region.mr().res.id, elements, mapped);

    /// Of `elements` mapped pages only `mapped` fit the region.
    fn xprtrdma_frwr_maperr(region: &Region, elements: i32, mapped: i32) =>
        (region.mr().res.id, elements, mapped);
}

/// Makes the functions of events that show the fixed words of a `message`.
macro_rules! message_events {
    ($($(#[$doc:meta])* fn $name:ident;)*) => {
        events! {
            $(
                $(#[$doc])*
                fn $name(xprt: &Xprt, message: &[u8]) =>
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

// What the peer sends.
message_events! {
    /// No Call waits for a message.
    fn xprtrdma_reply_rqst_err;
    /// A message has less than the fixed words.
    fn xprtrdma_reply_short_err;
    /// A message is of another version.
    fn xprtrdma_reply_vers_err;
    /// A message's header is malformed.
    fn xprtrdma_reply_hdr_err;
}

events! {
    /// A Reply was matched with its Call.
    fn xprtrdma_reply(rqst: &PinnedRqst, xid: Xid, credits: u32) =>
        (rqst.task().id, rqst.task().client, xid.0, credits);

    /// The peer has refused the version of a Call.
    fn xprtrdma_err_vers(rqst: &PinnedRqst, xid: Xid, versions: Versions) =>
        (rqst.task().id, rqst.task().client, xid.0, versions.low, versions.high);

    /// The peer has refused the header of a Call.
    fn xprtrdma_err_chunk(xprt: &Xprt, rqst: &PinnedRqst, xid: Xid) =>
        (xprt.id(), rqst.task().id, rqst.task().client, xid.0);

    /// The peer has refused a Call for a reason that is not known.
    fn xprtrdma_err_unrecognized(xprt: &Xprt, rqst: &PinnedRqst, xid: Xid) =>
        (xprt.id(), rqst.task().id, rqst.task().client, xid.0);

    /// `bytes` of a Reply were copied to where the pages' data belongs.
    fn xprtrdma_fixup(rqst: &PinnedRqst, bytes: usize) => (
        rqst.task().id,
        rqst.task().client,
        u64::from(clip(bytes)),
        clip(rqst.reply().head_len()),
        clip(rqst.reply().page_len()),
        clip(rqst.reply().tail_len()),
    );

    /// A back channel for `requests` Calls is set up.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn xprtrdma_cb_setup(xprt: &Xprt, requests: u32) => (xprt.id(), requests);

    /// A backward Call goes to the callback service.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn xprtrdma_cb_call(xprt: &Xprt, xid: u32) => (xprt.id(), xid);

    /// A backward Reply is sent.
    fn xprtrdma_cb_reply(xprt: &Xprt, xid: u32) => (xprt.id(), xid);
}
