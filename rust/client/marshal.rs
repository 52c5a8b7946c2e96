// SPDX-License-Identifier: GPL-2.0

//! From an RPC to one chain of work requests: the plan, the MRs, the header, the Send.

use super::{
    ep::{Ep, SentCall},
    frwr::{CallMrs, Payload},
    limits::{BACKWARD_SLOTS, MAX_SEGMENTS},
    mr_pool::MrPool,
    transport::RpcrdmaXprt,
    v2::Terms,
};
use crate::{
    error::Cause,
    proto::{
        requester::{
            encode::encode_call,
            plan::{plan, CallForm, Parts, Plan, PlanLimits, ReplyForm, RpcShape, Side},
        },
        wire::{
            chunk::{ReadSegment, Segment},
            encode::encode_inline,
            header::{Credits, FixedHeader, Xid},
        },
    },
    rdma::{MrList, QpOwner, SendBox, SqError},
    stats::Form,
    sunrpc::client::{BackwardReply, Rqst, RqstBuf, SendError},
    trace,
};
use kernel::prelude::*;

/// The sending side of a connection, which the holder of the send lock has.
pub(super) struct SendSide {
    pub(super) qp: QpOwner<Ep>,
    /// What the next message is sent with.
    pub(super) terms: Terms,
}

impl SendSide {
    /// Adopts what both ends have agreed on meanwhile.
    ///
    /// # Errors
    ///
    /// [`SendError::NotConnected`] if no version is common to both ends.
    fn follow(&mut self, transport: &RpcrdmaXprt) -> Result<(), SendError> {
        if !self.terms.is_final {
            let terms = self.qp.user().terms();
            self.terms = terms.ok_or_else(|| disconnect(transport, Cause::NoCommonVersion))?;
        }
        Ok(())
    }
}

/// Sends the Call of `rqst`, which has a credit.
///
/// # Errors
///
/// [`SendError`]. For [`SendError::Busy`] the sender was told to wait for space.
pub(super) fn marshal_req(
    transport: &RpcrdmaXprt,
    sending: &mut SendSide,
    rqst: &Rqst,
) -> Result<(), SendError> {
    // Sending twice on one connection would spend two credits on one Reply.
    if rqst.is_of_connection(&transport.xprt) {
        return Err(disconnect(transport, Cause::Retransmission));
    }
    sending.follow(transport)?;
    // The peer of an earlier connection can reach its memory: the RPC can never be completed.
    if rqst.is_lost() {
        return Err(SendError::Failed);
    }
    let SendSide { qp, terms } = sending;
    let mut ctxt = send_ctxt(transport, qp)?;
    let ep = qp.user();
    let room = rqst.reply().fill().map_err(|_| SendError::NoMemory)?;
    let shape = shape(rqst, room, &ep.mrs);
    let limits = PlanLimits {
        inline_send: terms.thresholds.send,
        inline_receive: terms.thresholds.receive,
        max_segments: MAX_SEGMENTS,
    };
    let plan = plan(&shape, &limits).map_err(|_| SendError::TooLarge)?;
    let reply = shape.reply.len;
    let mut mrs = None;
    if !plan.is_inline() {
        let count = narrow(plan.reads)?.saturating_add(narrow(plan.results)?);
        let mut taken = ep.mrs.take(rqst, count).ok_or(SendError::Busy)?;
        taken.map(rqst.call(), room, &plan)?;
        mrs = Some(taken);
    }
    let none = MrList::new();
    let mapped = mrs.as_ref().map_or(&none, |mrs| &mrs.mapped);
    let segments = mapped.extents().map(|extent| Segment {
        handle: extent.handle,
        length: extent.length,
        offset: extent.offset,
    });
    let length = build(ep, rqst, &plan, segments, *terms, ctxt.bytes())?;
    rqst.start();
    let sent = match mrs.and_then(CallMrs::into_parts) {
        Some((slot, mapped)) => {
            let (xid, cookie) = (rqst.xid(), ep.cookie(SentCall::WithChunks(slot)));
            ctxt.post_with_mrs(length, slot, mapped, |req| {
                req.offer(xid, plan);
                rqst.cookie().set(cookie);
            })
        }
        None => {
            rqst.cookie().set(ep.cookie(SentCall::Inline));
            ctxt.post_send(length, None)
        }
    };
    sent.map_err(|error| not_sent(transport, error))?;
    count_segments(transport, &plan, &reply);
    transport.calls.record(Form::from(&plan));
    transport.stats.call_bytes.add(shape.call.len.total());
    // Without a Reply the credit would never come back.
    if !rqst.reply_expected() {
        return Err(disconnect(transport, Cause::OneWayCall));
    }
    Ok(())
}

/// A number of MRs, or of bytes.
fn narrow(count: u32) -> Result<usize, SendError> {
    usize::try_from(count).map_err(|_| SendError::TooLarge)
}

/// A context for the next Send. If there is none, the sender was told to wait for space.
fn send_ctxt<'a>(
    transport: &RpcrdmaXprt,
    qp: &'a QpOwner<Ep>,
) -> Result<SendBox<'a, Ep>, SendError> {
    qp.get_send_ctxt(GFP_NOWAIT)
        .map_err(|error| not_sent(transport, error))
}

/// The error of a message that was not sent.
fn not_sent(transport: &RpcrdmaXprt, error: SqError) -> SendError {
    match error {
        SqError::Full => SendError::Busy,
        SqError::NoMem => SendError::NoMemory,
        // The first cause that was noted counts.
        SqError::Closed => disconnect(transport, Cause::PostFailed),
    }
}

/// Closes the connection from within a send.
fn disconnect(transport: &RpcrdmaXprt, cause: Cause) -> SendError {
    transport.force_disconnect(cause);
    SendError::NotConnected
}

/// The sizes that the plan is made from.
fn shape<'a>(rqst: &'a Rqst, reply: RqstBuf<'a>, pool: &'a MrPool) -> RpcShape<Payload<'a>> {
    let call = rqst.call();
    let (write, read) = (call.is_write(), reply.is_read());
    let allowed = (write || read) && rqst.placement_allowed();
    RpcShape {
        call: side(call, pool, allowed && write),
        reply: side(reply, pool, allowed && read),
    }
}

fn side<'a>(message: RqstBuf<'a>, pool: &'a MrPool, pages_eligible: bool) -> Side<Payload<'a>> {
    // A length that does not fit makes the plan fail: nothing that long fits inline or into the
    // segments of a list.
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    Side {
        len: Parts {
            head: length(message.head_len()),
            pages: length(message.page_len()),
            tail: length(message.tail_len()),
        },
        segments: Payload { message, pool },
        pages_eligible,
    }
}

/// Writes the message into `buffer`; returns its length. The segments of the Read list come first.
fn build(
    ep: &Ep,
    rqst: &Rqst,
    plan: &Plan,
    segments: impl Iterator<Item = Segment> + Clone,
    terms: Terms,
    buffer: &mut [u8],
) -> Result<usize, SendError> {
    let position = match plan.call {
        CallForm::ReadChunk { position, .. } => position,
        CallForm::Inline | CallForm::PositionZero => 0,
    };
    let reads = narrow(plan.reads)?;
    let traced = segments.clone();
    let traced = traced.map(|segment| (segment.handle, segment.length, segment.offset));
    let is_reply_chunk = plan.reply == ReplyForm::ReplyChunk;
    trace::xprtrdma_chunks(rqst, position, is_reply_chunk, traced, reads);
    let read_list = segments
        .clone()
        .take(reads)
        .map(|segment| ReadSegment { position, segment });
    let only = |form| if plan.reply == form { usize::MAX } else { 0 };
    let results = segments.skip(reads);
    let write_chunk = results.clone().take(only(ReplyForm::WriteChunk));
    let reply_chunk = results.clone().take(only(ReplyForm::ReplyChunk));
    // Made after the trace event, so that its words need not be kept meanwhile.
    let fixed = FixedHeader {
        xid: Xid(rqst.xid()),
        version: terms.version,
        credits: ep.requested_credits(),
        procedure: plan.procedure(),
    };
    let header = encode_call(buffer, &fixed, read_list, [write_chunk], reply_chunk)
        .map_err(|_| SendError::TooLarge)?;
    let form = Form::from(plan);
    trace::xprtrdma_marshal(rqst, header, form.call, form.reply);
    let copied = narrow(plan.inline_len)?;
    let rest = buffer.get_mut(header..).ok_or(SendError::TooLarge)?;
    let rest = rest.get_mut(..copied).ok_or(SendError::TooLarge)?;
    copy_inline(&rqst.call(), plan.call, rest)?;
    ep.transport.stats.pullup_bytes.add_len(copied);
    let length = header.checked_add(copied).ok_or(SendError::TooLarge)?;
    if let (Some(v2), false) = (&ep.v2, terms.is_final) {
        let message = buffer.get(..length).ok_or(SendError::TooLarge)?;
        let noted = v2.sends(Xid(rqst.xid()), message);
        noted.map_err(|_| SendError::TooLarge)?;
    }
    Ok(length)
}

/// Copies the inline part of the Call, all of `to`.
fn copy_inline(call: &RqstBuf<'_>, form: CallForm, to: &mut [u8]) -> Result<(), SendError> {
    let too_large = |_| SendError::TooLarge;
    match form {
        CallForm::Inline => call.copy_out(0, to).map_err(too_large)?,
        CallForm::ReadChunk { tail_skip, .. } => {
            let (head, tail) = to
                .split_at_mut_checked(call.head_len())
                .ok_or(SendError::TooLarge)?;
            call.copy_out(0, head).map_err(too_large)?;
            let skip = usize::try_from(tail_skip).map_err(|_| SendError::TooLarge)?;
            let base = call
                .head_len()
                .saturating_add(call.page_len())
                .saturating_add(skip);
            if !tail.is_empty() {
                call.copy_out(base, tail).map_err(too_large)?;
            }
        }
        CallForm::PositionZero => {}
    }
    Ok(())
}

/// Counts what a Call offers.
fn count_segments(transport: &RpcrdmaXprt, plan: &Plan, reply: &Parts) {
    let stats = &transport.stats;
    stats.read_segments.add(plan.reads.into());
    match plan.reply {
        ReplyForm::Inline => {}
        ReplyForm::WriteChunk => {
            stats.write_segments.add(plan.results.into());
            stats.offered_bytes.add(reply.pages.into());
        }
        ReplyForm::ReplyChunk => {
            stats.reply_segments.add(plan.results.into());
            stats.offered_bytes.add(reply.total());
        }
    }
}

/// Sends a backward Reply, which is always inline, under the send lock.
///
/// The Receive for it belongs to the connection that the Call came on (RFC 8167 section 4). On
/// another one the Reply is dropped, and counts as sent.
///
/// # Errors
///
/// As [`marshal_req`]; [`SendError::TooLarge`] if the Reply does not fit the inline threshold.
pub(super) fn send_backward(
    transport: &RpcrdmaXprt,
    sending: &mut SendSide,
    reply: &BackwardReply<'_>,
) -> Result<(), SendError> {
    sending.follow(transport)?;
    let SendSide { qp, terms } = sending;
    let Some(version) = qp.user().backward_version(reply.connection()) else {
        transport.stats.backward_replies_dropped.increment();
        return Ok(());
    };
    let mut ctxt = send_ctxt(transport, qp)?;
    // CAST: A u32 always fits the kernel's usize.
    let limit = terms.thresholds.send as usize;
    let bytes = ctxt.bytes();
    let header = encode_inline(
        bytes,
        version,
        Xid(reply.xid()),
        Credits::new(BACKWARD_SLOTS),
    )
    .map_err(|_| SendError::TooLarge)?;
    let end = header.saturating_add(reply.len());
    if end > limit {
        return Err(SendError::TooLarge);
    }
    let room = bytes.get_mut(header..end).ok_or(SendError::TooLarge)?;
    reply.copy_out(room).map_err(|_| SendError::TooLarge)?;
    trace::xprtrdma_cb_reply(&transport.xprt, reply.xid());
    ctxt.post_send(end, None)
        .map_err(|error| not_sent(transport, error))
}
