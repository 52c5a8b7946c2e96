// SPDX-License-Identifier: GPL-2.0

//! From an RPC to one chain of work requests: the plan, the MRs, the header, the Send.

use super::{
    ep::{Ep, EpVersion},
    frwr::{CallMrs, Payload, SlotState},
    limits::{BACKWARD_SLOTS, MAX_SEGMENTS},
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
    rdma::{MrList, QpOwner, SqError},
    stats::{Form, Stats},
    sunrpc::{
        client::{ForwardRqst, Rqst, RqstBuf, SendError},
        XdrBuf,
    },
    trace,
};
use kernel::prelude::*;

/// Sends the Call of `rqst`, which has a credit.
///
/// # Errors
///
/// [`SendError`]. Before [`SendError::Busy`], `xprt_wait_for_buffer_space` was called.
pub(super) fn marshal_req(qp: &QpOwner<Ep>, rqst: &Rqst) -> Result<(), SendError> {
    let ep = qp.user();
    // Sending twice on one connection would spend two credits on one Reply.
    if rqst.is_of_connection() {
        return Err(disconnect(ep, Cause::Retransmission));
    }
    let version = (ep.version()).ok_or_else(|| disconnect(ep, Cause::NoCommonVersion))?;
    // The peer of an earlier connection can reach its memory: the RPC can never be completed.
    if rqst.exposure().is_lost() {
        return Err(SendError::Failed);
    }
    let ctxt = qp.get_send_ctxt(GFP_NOWAIT);
    let mut ctxt = ctxt.map_err(|error| not_sent(ep, error))?;
    let (call, reply) = (rqst.call(), rqst.reply());
    let reply = reply.map_err(|_| SendError::NoMemory)?;
    let (write, read) = (call.is_write(), reply.is_read());
    let allowed = (write || read) && rqst.placement_allowed();
    let shape = RpcShape {
        call: side(call, ep, allowed && write),
        reply: side(reply, ep, allowed && read),
    };
    let limits = PlanLimits {
        inline_send: version.thresholds.send,
        inline_receive: version.thresholds.receive,
        max_segments: MAX_SEGMENTS,
    };
    let plan = plan(&shape, &limits).map_err(|_| SendError::TooLarge)?;
    let mut mrs = if plan.is_inline() {
        CallMrs::new(&ep.mrs, rqst.xid(), None, MrList::new())
    } else {
        let count = plan.reads.saturating_add(plan.results);
        ep.mrs.acquire(rqst, count).ok_or(SendError::Busy)?
    };
    mrs.map(call, reply, &plan)?;
    let segments = mrs.mapped.extents().map(|extent| Segment {
        handle: extent.handle,
        length: extent.length,
        offset: extent.offset,
    });
    let length = build(ep, rqst, &plan, segments, version, ctxt.bytes());
    let length = length.ok_or(SendError::TooLarge)?;
    rqst.start();
    let (slot, mapped) = (mrs.slot.take(), mrs.mapped.take());
    let ep_cookie = ep.cookie(slot.map_or(0, |slot| slot.saturating_add(1)));
    let sent = if let Some(slot) = slot {
        ctxt.post_with_mrs(length, slot, mapped, |state| {
            *state = SlotState::Offered(plan);
            rqst.set_ep_cookie(ep_cookie);
        })
    } else {
        rqst.set_ep_cookie(ep_cookie);
        ctxt.post_send(length, None)
    };
    sent.map_err(|error| not_sent(ep, error))?;
    count_segments(&ep.transport.stats, &plan, &shape.reply.len);
    ep.transport.calls.record(Form::from(&plan));
    (ep.transport.stats.call_bytes).add(shape.call.len.total());
    Ok(())
}

/// The error of a message that was not sent.
fn not_sent(ep: &Ep, error: SqError) -> SendError {
    match error {
        SqError::Full => SendError::Busy,
        SqError::NoMem => SendError::NoMemory,
        SqError::Closed => disconnect(ep, Cause::PostFailed),
    }
}

/// Closes the connection from within a send.
fn disconnect(ep: &Ep, cause: Cause) -> SendError {
    ep.state.force_disconnect(cause);
    SendError::NotConnected
}

/// A message and its size. A length that does not fit makes the plan fail: nothing that long fits
/// inline or into the segments of a list.
fn side<'a>(message: RqstBuf<'a>, ep: &'a Ep, pages_eligible: bool) -> Side<Payload<'a>> {
    let pool = &ep.mrs;
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

/// Writes the message into `buffer`; returns its length, or `None` if it does not fit. The segments
/// of the Read list come first.
fn build(
    ep: &Ep,
    rqst: &Rqst,
    plan: &Plan,
    segments: impl Iterator<Item = Segment> + Clone,
    version: EpVersion,
    buffer: &mut [u8],
) -> Option<usize> {
    let position = match plan.call {
        CallForm::ReadChunk { position, .. } => position,
        CallForm::Inline | CallForm::PositionZero => 0,
    };
    let reads = usize::try_from(plan.reads).ok()?;
    let is_reply_chunk = plan.reply == ReplyForm::ReplyChunk;
    trace::xprtrdma_chunks(rqst, position, is_reply_chunk, segments.clone(), reads);
    let read_list = segments
        .clone()
        .take(reads)
        .map(|segment| ReadSegment { position, segment });
    let only = |form| if plan.reply == form { usize::MAX } else { 0 };
    let results = segments.skip(reads);
    let write_chunk = results.clone().take(only(ReplyForm::WriteChunk));
    let reply_chunk = results.clone().take(only(ReplyForm::ReplyChunk));
    let xid = Xid(rqst.xid());
    let fixed = FixedHeader {
        xid,
        version: version.number,
        credits: ep.requested,
        procedure: plan.procedure(),
    };
    let header = encode_call(buffer, &fixed, read_list, [write_chunk], reply_chunk).ok()?;
    let rtype = match plan.call {
        CallForm::Inline => 1,           // rpcrdma_noch_pullup
        CallForm::ReadChunk { .. } => 3, // rpcrdma_readch
        CallForm::PositionZero => 4,     // rpcrdma_areadch
    };
    let wtype = match plan.reply {
        ReplyForm::Inline => 0,     // rpcrdma_noch
        ReplyForm::WriteChunk => 5, // rpcrdma_writech
        ReplyForm::ReplyChunk => 6, // rpcrdma_replych
    };
    trace::xprtrdma_marshal(rqst, header, rtype, wtype);
    let copied = usize::try_from(plan.inline_len).ok()?;
    let length = header.checked_add(copied)?;
    copy_inline(&rqst.call(), plan.call, buffer.get_mut(header..length)?)?;
    ep.transport.stats.pullup_bytes.add_len(copied);
    if let (Some(v2), false) = (&ep.v2, version.is_final) {
        v2.sends(xid, buffer.get(..length)?).ok()?;
    }
    Some(length)
}

/// Copies the inline part of the Call, all of `to`.
fn copy_inline(call: &RqstBuf<'_>, form: CallForm, to: &mut [u8]) -> Option<()> {
    match form {
        CallForm::Inline => call.copy_out(0, to).ok(),
        CallForm::ReadChunk { tail_skip, .. } => {
            let (head, tail) = to.split_at_mut_checked(call.head_len())?;
            call.copy_out(0, head).ok()?;
            let skipped = call
                .page_len()
                .checked_add(usize::try_from(tail_skip).ok()?)?;
            call.copy_out(head.len().checked_add(skipped)?, tail).ok()
        }
        CallForm::PositionZero => Some(()),
    }
}

/// Counts what a Call offers.
fn count_segments(stats: &Stats, plan: &Plan, reply: &Parts) {
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
    qp: &QpOwner<Ep>,
    xid: Xid,
    reply: &XdrBuf<'_>,
    bc_cookie: u64,
) -> Result<(), SendError> {
    let ep = qp.user();
    let agreed = (ep.version()).ok_or_else(|| disconnect(ep, Cause::NoCommonVersion))?;
    let limit = agreed.thresholds.send;
    // The version of the Call, with which `reply.rs` made the cookie.
    let Some(version) = ep.cookie_value(bc_cookie) else {
        ep.transport.stats.backward_replies_dropped.increment();
        return Ok(());
    };
    let ctxt = qp.get_send_ctxt(GFP_NOWAIT);
    let mut ctxt = ctxt.map_err(|error| not_sent(ep, error))?;
    let message = ctxt.bytes();
    // CAST: A u32 always fits the kernel's usize.
    let length = message.len().min(limit as usize);
    let mut build = || {
        let message = message.get_mut(..length)?;
        let version = u32::try_from(version).ok()?;
        let header = encode_inline(message, version, xid, Credits::new(BACKWARD_SLOTS)).ok()?;
        let end = header.checked_add(reply.len())?;
        reply.copy_out(0, message.get_mut(header..end)?).ok()?;
        Some(end)
    };
    let length = build().ok_or(SendError::TooLarge)?;
    trace::xprtrdma_cb_reply(ep.transport.xprt.id(), xid.0);
    ctxt.post_send(length, None)
        .map_err(|error| not_sent(ep, error))
}
