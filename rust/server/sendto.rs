// SPDX-License-Identifier: GPL-2.0

//! From nfsd's Reply to what the requester gets, and what it gets in place of one.

use super::{
    recvfrom::release_ctxt,
    rw::{add_writes, SendBox},
    sizes::MAX_RDMA_WRITES,
    transport::{Owner, RecvBox},
};
use crate::{
    error::Cause,
    proto::{
        responder::{encode::encode_garbage_args, placement::ReplyPlan, refusal::ResponderRefusal},
        wire::{
            error::{ErrorBody, ErrorMessage},
            header::Xid,
        },
    },
    stats::Form,
    sunrpc::server::{KeptCall, Replying},
    trace,
};
use kernel::{
    prelude::*,
    time::{Instant, Monotonic},
};

/// What a chain of work requests is for.
#[derive(Default)]
pub(crate) enum SendInfo {
    /// Nothing yet.
    #[default]
    Idle,
    /// RDMA Reads for the Call in this message.
    Reads(RecvBox),
    /// A Reply of nfsd.
    Reply(ReplyInfo),
    /// An RDMA_ERROR.
    Error(ErrorBody),
    /// A Reply that says GARBAGE_ARGS.
    GarbageArgs,
    /// A Call of nfsd to its client.
    BackwardCall,
}

/// What is counted of a Reply when its Send has completed.
pub(crate) struct ReplyInfo {
    pub(super) xid: Xid,
    pub(super) form: Form,
    /// Segments that were written to.
    pub(super) segments: u32,
    /// Bytes in them.
    pub(super) bytes: u64,
    /// Bytes after the transport header.
    pub(super) inline: u32,
    pub(super) has_invalidated: bool,
    /// When the last completion came that the Call waited for.
    pub(super) complete: Instant<Monotonic>,
    /// When a thread of the service took the Call, and when it came back with the Reply.
    pub(super) taken: Instant<Monotonic>,
    pub(super) replied: Instant<Monotonic>,
}

/// `xpo_result_payload`: records a result that may be placed directly.
pub(super) fn result_payload(mut ctxt: KeptCall<'_, RecvBox>, at: u32, length: u32) {
    let (bytes, info) = ctxt.with_data();
    let index = info.index().filter(|index| index.offers_memory);
    if let Some(call) = index.and_then(|index| index.call(bytes)) {
        info.placement.place(&call, at, length);
    }
}

/// `xpo_sendto`: sends a Reply.
///
/// # Errors
///
/// Any error means that the connection has to be closed.
pub(super) fn sendto(qp: &Owner, rqst: Replying<'_>, mut ctxt: KeptCall<'_, RecvBox>) -> Result {
    let conn = qp.user();
    send_reply(qp, rqst, &mut ctxt).inspect_err(|&error| {
        let xid = ctxt.message().data().xid();
        trace::svcrdma_send_err(qp.cq_number, xid.map_or(0, |xid| xid.0), error);
        conn.fail(Cause::ReplyFailed);
    })
}

fn send_reply(qp: &Owner, rqst: Replying<'_>, ctxt: &mut KeptCall<'_, RecvBox>) -> Result {
    let conn = qp.user();
    let replied = Instant::now();
    if conn.svc.is_closing() {
        return Err(EPIPE);
    }
    let cid = ctxt.message().cid();
    let (message, info) = ctxt.with_data();
    info.is_answered = true;
    let call = info.index().and_then(|index| index.call(message));
    let call = call.ok_or(EINVAL)?;
    let index = &call.index;
    let length = u32::try_from(rqst.message().len())?;
    let threshold = conn.threshold(index.version);
    let Ok(plan) = info.placement.finish(&call, length, threshold) else {
        fail_call(qp, &index.error(ErrorBody::Chunk));
        return Ok(());
    };
    let form = Form::new(index, &plan);
    let (mut segments, mut bytes) = (0u32, 0u64);
    if form.reply != 0 {
        for (_, target) in plan.rdma_writes(&call) {
            segments = segments.saturating_add(1);
            bytes = bytes.saturating_add(target.length.into());
        }
    }
    if segments > MAX_RDMA_WRITES {
        fail_call(qp, &index.error(ErrorBody::Chunk));
        return Ok(());
    }
    let mut send_ctxt = get_send_ctxt(qp)?;
    let end = copy_inline(send_ctxt.bytes(), &rqst, &plan)?;
    let taken = rqst.began();
    let inv_handle = call.handle_to_invalidate(&conn.thresholds);
    *send_ctxt.data() = SendInfo::Reply(ReplyInfo {
        xid: index.xid,
        form,
        segments,
        bytes,
        inline: plan.inline_len,
        has_invalidated: inv_handle.is_some(),
        complete: info.complete.unwrap_or(taken),
        taken,
        replied,
    });
    if segments != 0 {
        add_writes(qp, cid, &mut send_ctxt, rqst, &plan, &call)?;
    }
    conn.replies_in(index.version);
    let credits = conn.grant(qp)?;
    let encoded = plan.encode(send_ctxt.bytes(), &call, credits);
    encoded.map_err(|_| EMSGSIZE)?;
    let unused = info.mrs.saturating_sub(send_ctxt.mrs());
    info.mrs = 0;
    send_ctxt.post_send(end, inv_handle)?;
    qp.unreserve(unused);
    Ok(())
}

/// Copies what is sent inline to the bytes after the header; returns where it ends.
fn copy_inline(buffer: &mut [u8], rqst: &Replying<'_>, plan: &ReplyPlan<'_>) -> Result<usize> {
    let mut end = usize::try_from(plan.header_len)?;
    if plan.reply_chunk_len == 0 {
        for range in plan.rest() {
            let start = end;
            end = start.saturating_add(usize::try_from(range.length)?);
            let to = buffer.get_mut(start..end).ok_or(EMSGSIZE)?;
            rqst.message().copy_out(usize::try_from(range.at)?, to)?;
        }
    }
    Ok(end)
}

/// A context for a chain. Waits for memory.
///
/// # Errors
///
/// `ENOMEM` or `EPIPE`: the connection ends.
pub(super) fn get_send_ctxt(qp: &Owner) -> Result<SendBox<'_>> {
    qp.user()
        .wait_for_memory(|| Ok(qp.get_send_ctxt(GFP_KERNEL)?))
}

/// Answers a message in place of nfsd, as the protocol requires, and puts its Receive.
pub(super) fn reject_call(qp: &Owner, mut ctxt: RecvBox, refusal: ResponderRefusal) {
    let (message, info) = ctxt.with_data();
    info.is_answered = refusal != ResponderRefusal::Discard;
    match refusal {
        ResponderRefusal::Discard => {}
        ResponderRefusal::Answer(error) if info.index().is_some() => fail_call(qp, &error),
        ResponderRefusal::Answer(error) => send_error(qp, &error, None),
        ResponderRefusal::GarbageArgs(error) => send_error(qp, &error, Some(message)),
    }
    release_ctxt(qp, ctxt);
}

/// Ends a Call with an RDMA_ERROR.
fn fail_call(qp: &Owner, error: &ErrorMessage) {
    qp.user().fails_in(error.version);
    send_error(qp, error, None);
}

/// Answers a message with an RDMA_ERROR. A Call that is `garbage`, as its Read chunks do not fit
/// it, gets a GARBAGE_ARGS Reply if its header leaves enough bytes for one. If the Send fails, the
/// connection ends.
fn send_error(qp: &Owner, error: &ErrorMessage, garbage: Option<&[u8]>) {
    let conn = qp.user();
    let send = || -> Result {
        let mut ctxt = get_send_ctxt(qp)?;
        let most = usize::try_from(conn.threshold(error.version))?.min(ctxt.bytes().len());
        let buffer = ctxt.bytes().get_mut(..most).ok_or(EMSGSIZE)?;
        let credits = conn.grant(qp)?;
        let reply = garbage.and_then(|call| encode_garbage_args(buffer, call, credits).ok());
        let (length, sending) = if let Some(length) = reply {
            conn.replies_in(error.version);
            (length, SendInfo::GarbageArgs)
        } else {
            if garbage.is_some() {
                conn.fails_in(error.version);
            }
            trace_error(error);
            let length = error.encode(buffer, credits).map_err(|_| EMSGSIZE)?;
            (length, SendInfo::Error(error.body))
        };
        *ctxt.data() = sending;
        Ok(ctxt.post_send(length, None)?)
    };
    match send() {
        Ok(()) if conn.has_unanswerable => conn.listener.error_sent(&conn.peer, error.xid),
        Ok(()) => {}
        Err(_) => conn.fail(Cause::ReplyFailed),
    }
}

/// Emits the trace event of an RDMA_ERROR.
fn trace_error(error: &ErrorMessage) {
    match error.body {
        ErrorBody::Version(_) => trace::svcrdma_err_vers(error.xid.0),
        ErrorBody::Chunk => trace::svcrdma_err_chunk(error.xid.0),
        ErrorBody::InvalidOption => trace::svcrdma_err_option(error.xid.0),
    }
}
