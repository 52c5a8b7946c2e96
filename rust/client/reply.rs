// SPDX-License-Identifier: GPL-2.0

//! From a received message to a completed RPC, in completion handlers.
//!
//! An RPC completes only when every MR of its Call is invalidated and unmapped: by the peer, or by
//! LOCAL_INVs whose completion then completes the RPC.

use super::{
    ep::{Ep, SentCall},
    frwr,
    v2::Refusal,
};
use crate::{
    error::Cause,
    proto::{
        message::Refused,
        requester::{
            decode::{
                decode_received, BackwardCall, Received, ReceivedReply, ReplyError,
                RequesterRefusal,
            },
            plan::{Plan, ReplyForm},
            reconcile::{Delivered, Delivery},
        },
        wire::{
            error::{ErrorBody, ErrorMessage},
            header::Xid,
            malformed::HeaderError,
        },
    },
    rdma::{
        Completion, Completions, Idle, MrList, OldQueuePair as QueuePair, ReceivedMessage, Registered,
        RemoteInvalidation, WcStatus,
    },
    stats::Form,
    sunrpc::client::{NotPinned, PinnedRqst, StoredRqst},
    trace,
};
use core::iter::empty;
use kernel::prelude::*;

impl Completions for Ep {
    type Slot = frwr::Req;

    fn received(
        cx: &mut Completion<'_, Self>,
        message: ReceivedMessage<Self>,
        invalidated: Option<RemoteInvalidation<'_>>,
    ) {
        // Any message shows that the next attempt to connect need not be delayed.
        cx.qp().context().transport.xprt.peer_is_alive();
        reply_handler(cx, message, invalidated);
    }

    fn send_space(&self) {
        self.transport.xprt.write_space();
    }

    fn invalidated(cx: &mut Completion<'_, Self>, index: usize, mrs: MrList<Idle>) {
        if let Some(PendingReply { rqst, rep }) = frwr::unmapped(cx.qp(), index, mrs) {
            rqst.resume(|rqst| complete_rqst(cx, rqst, rep));
        }
        cx.qp().context().transport.xprt.write_space();
    }

    fn not_invalidated(&self, qp: &QueuePair<Self>, index: usize) {
        frwr::keep_until_end(qp, index);
    }

    fn not_a_send(&self) {
        self.wait.close(Cause::NotASend);
    }

    fn refused(&self) {
        self.wait.close(Cause::PostFailed);
    }

    fn failed(&self, status: WcStatus) {
        if !status.is_flush() {
            self.transport.stats.failed_requests.increment();
        }
        self.wait.close(Cause::WorkRequest);
    }
}

/// The result of a Reply.
#[derive(Clone, Copy)]
enum Outcome {
    /// The RPC message follows `header` bytes of the Reply; `placed` bytes of it arrived in a Write
    /// chunk.
    Inline { header: usize, placed: u64 },
    /// The RPC message is this many bytes at the start of the Reply chunk.
    Chunk(u64),
    /// The RPC failed.
    Failed,
}

/// A Reply that was compared with what its Call had offered.
struct Rep {
    message: ReceivedMessage<Ep>,
    outcome: Outcome,
    form: Form,
}

/// A Call with its Reply, to be completed after LOCAL_INVs.
pub(super) struct PendingReply {
    rqst: StoredRqst,
    rep: Rep,
}

/// Handles a message from the peer.
fn reply_handler(
    cx: &mut Completion<'_, Ep>,
    message: ReceivedMessage<Ep>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let qp = cx.qp();
    let ep = qp.context();
    let reply = match decode_received(message.bytes(), ep.accepted()) {
        Ok(Received::Reply(reply)) => reply,
        Ok(Received::Error(error)) => return rdma_error(cx, &error, message, invalidated),
        Ok(Received::BackwardCall(call)) => {
            backward(ep, &call);
            return cx.recycle(message);
        }
        Err(refused) => return bad_header(cx, &refused, message, invalidated),
    };
    let fixed = reply.fixed;
    let rqst = match ep.transport.xprt.pin(fixed.xid.0) {
        Ok(rqst) => rqst,
        Err(NotPinned::Taken) => return drop_unexpected(cx, message),
        Err(NotPinned::Unknown) => {
            ep.replied(fixed.xid, fixed.version);
            return drop_late(cx, message);
        }
    };
    trace::xprtrdma_reply(&rqst, fixed.credits.get());
    let compare = |offered: Option<(&Plan, &MrList<Registered>)>| reconcile(&rqst, &reply, offered);
    let Some(mut claim) = claim(qp, &rqst, fixed.xid, invalidated, compare) else {
        return drop_unexpected(cx, message);
    };
    // Only the Reply to a Call grants credits, and only once.
    if !ep.grant(&fixed) {
        claim.outcome = Outcome::Failed;
    }
    finish(cx, rqst, claim, message);
}

/// Takes an RDMA_ERROR: it ends its Call, or has it sent again in another version.
fn rdma_error(
    cx: &mut Completion<'_, Ep>,
    error: &ErrorMessage,
    message: ReceivedMessage<Ep>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let ep = cx.qp().context();
    let (transport, stats) = (&ep.transport, &ep.transport.stats);
    let rqst = match transport.xprt.pin(error.xid.0) {
        Ok(rqst) => rqst,
        Err(NotPinned::Taken) => {
            ep.close_if_hopeless();
            return drop_unexpected(cx, message);
        }
        Err(NotPinned::Unknown) => {
            match (error.body, &ep.v2) {
                (ErrorBody::Version(versions), Some(v2)) => {
                    match v2.refused(ep, error.xid, versions) {
                        // There is nothing to send again: the version that is tried now is that
                        // of the connection.
                        Refusal::Resend => {
                            if let Some(terms) = v2.terms() {
                                ep.replied(error.xid, terms.version);
                            }
                        }
                        Refusal::Reconnect => ep.wait.close(Cause::HigherVersion),
                        Refusal::Final => {}
                    }
                }
                (ErrorBody::Version(_), None) => {}
                (ErrorBody::Chunk | ErrorBody::InvalidOption, _) => ep.failed(error.xid),
            }
            ep.close_if_hopeless();
            return drop_late(cx, message);
        }
    };
    match error.body {
        ErrorBody::Version(versions) => {
            stats.vers_errors_received.increment();
            trace::xprtrdma_err_vers(&rqst, versions.low, versions.high);
            let v2 = ep.v2.as_ref();
            match v2.map_or(Refusal::Final, |v2| v2.refused(ep, error.xid, versions)) {
                Refusal::Resend if invalidated.is_none() => {
                    return resend(cx, rqst, message);
                }
                // sunrpc sends the Call again.
                Refusal::Reconnect if invalidated.is_none() => {
                    ep.wait.close(Cause::HigherVersion);
                    drop(rqst);
                    return cx.recycle(message);
                }
                _ => {}
            }
        }
        ErrorBody::Chunk => {
            stats.chunk_errors_received.increment();
            trace::xprtrdma_err_chunk(&transport.xprt, &rqst);
        }
        ErrorBody::InvalidOption => stats.option_errors_received.increment(),
    }
    fail(cx, rqst, error.xid, message, invalidated);
}

/// Sends the first Call again, in the version that is tried now. Its task keeps waiting for a
/// Reply.
fn resend(cx: &mut Completion<'_, Ep>, rqst: PinnedRqst<'_>, message: ReceivedMessage<Ep>) {
    let ep = cx.qp().context();
    let sent = cx.reserved_send().and_then(|mut buffer| {
        let length = ep.v2.as_ref()?.copy_first(buffer.bytes())?;
        buffer.send(length).ok()
    });
    if sent.is_some() {
        (ep.transport.stats.version_fallbacks).increment();
    } else {
        ep.wait.close(Cause::PostFailed);
    }
    // Its memory could not be freed until here.
    drop(rqst);
    cx.recycle(message);
}

/// A Call that is claimed for its Reply.
struct Claim {
    outcome: Outcome,
    form: Form,
    /// The slot, if it has MRs that the Reply has not invalidated.
    slot: Option<usize>,
}

/// Claims a Call for its Reply: `look` compares what was offered, if anything, with the Reply, and
/// an MR that the Reply has invalidated is taken back. Returns `None` if another Reply has done so
/// before, or if the Call was not sent on this connection: the peer can guess the XID of a Call
/// that is yet to be sent.
fn claim(
    qp: &QueuePair<Ep>,
    rqst: &PinnedRqst<'_>,
    xid: Xid,
    proof: Option<RemoteInvalidation<'_>>,
    look: impl FnOnce(Option<(&Plan, &MrList<Registered>)>) -> Outcome,
) -> Option<Claim> {
    let SentCall::WithChunks(index) = qp.context().sent(rqst.cookie().get())? else {
        return Some(Claim {
            outcome: look(None),
            form: Form::INLINE,
            slot: None,
        });
    };
    let taken = frwr::reminv(qp, (index, xid.0), proof, |plan, mrs| {
        look(Some((plan, mrs)))
    })?;
    Some(Claim {
        outcome: taken.seen,
        form: Form::from(&taken.plan),
        slot: (!taken.is_free).then_some(index),
    })
}

/// Completes the RPC once all its MRs are invalidated.
fn finish(
    cx: &mut Completion<'_, Ep>,
    rqst: PinnedRqst<'_>,
    claim: Claim,
    message: ReceivedMessage<Ep>,
) {
    let Claim {
        outcome,
        form,
        slot,
    } = claim;
    let rep = Rep {
        message,
        outcome,
        form,
    };
    if let Some(index) = slot {
        // A transport that is being destroyed has no requests.
        let reply = rqst.store().map(|rqst| PendingReply { rqst, rep });
        return frwr::unmap(cx.qp(), index, reply);
    }
    complete_rqst(cx, rqst, rep);
    if form != Form::INLINE {
        cx.qp().context().transport.xprt.write_space();
    }
}

/// Fails the Call to which an error or a malformed Reply belongs.
fn fail(
    cx: &mut Completion<'_, Ep>,
    rqst: PinnedRqst<'_>,
    xid: Xid,
    message: ReceivedMessage<Ep>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let qp = cx.qp();
    let Some(claim) = claim(qp, &rqst, xid, invalidated, |_| Outcome::Failed) else {
        qp.context().close_if_hopeless();
        return drop_unexpected(cx, message);
    };
    // Before the Call gives its credit back.
    qp.context().failed(xid);
    finish(cx, rqst, claim, message);
}

/// Handles a message that cannot be used: answers it, fails the Call that it is the Reply to, or
/// discards it.
fn bad_header(
    cx: &mut Completion<'_, Ep>,
    refused: &Refused<ReplyError>,
    message: ReceivedMessage<Ep>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let qp = cx.qp();
    let transport = &qp.context().transport;
    match refused.why.error {
        ReplyError::Header(HeaderError::Short) => {
            trace::xprtrdma_reply_short_err(&transport.xprt, message.bytes())
        }
        ReplyError::Header(HeaderError::Version) => {
            trace::xprtrdma_reply_vers_err(&transport.xprt, message.bytes())
        }
        _ => trace::xprtrdma_reply_hdr_err(&transport.xprt, message.bytes()),
    }
    let xid = refused.fixed.map(|fixed| fixed.xid);
    let pinned = xid.map_or(Err(NotPinned::Unknown), |xid| {
        Ok((xid, transport.xprt.pin(xid.0)?))
    });
    let is_awaited = !matches!(pinned, Err(NotPinned::Unknown));
    let awaited = pinned.ok();
    let refusal = refused.at_requester(is_awaited, transport.backchannel.is_served());
    match (refusal, awaited) {
        (RequesterRefusal::EndCall, Some((xid, rqst))) => {
            return fail(cx, rqst, xid, message, invalidated);
        }
        (RequesterRefusal::Answer(error), _) => answer(cx, &error),
        (_, awaited) => {
            if let (ReplyError::Header(HeaderError::ErrorCode), Some((_, rqst))) =
                (refused.why.error, awaited)
            {
                transport.stats.unknown_errors_received.increment();
                trace::xprtrdma_err_unrecognized(&transport.xprt, &rqst);
            }
        }
    }
    drop_message(cx, message);
}

/// Sends an RDMA_ERROR from a buffer that is reserved for these. While all of them are in use, the
/// peer is not told, which is allowed.
fn answer(cx: &mut Completion<'_, Ep>, error: &ErrorMessage) {
    let ep = cx.qp().context();
    let Some(mut buffer) = cx.reserved_send() else {
        return;
    };
    let Ok(length) = error.encode(buffer.bytes(), ep.requested_credits()) else {
        return;
    };
    match buffer.send(length) {
        Ok(()) => {
            let stats = &ep.transport.stats;
            match error.body {
                ErrorBody::Version(_) => stats.vers_errors_sent.increment(),
                ErrorBody::Chunk => stats.chunk_errors_sent.increment(),
                ErrorBody::InvalidOption => stats.option_errors_sent.increment(),
            }
        }
        Err(_) => ep.wait.close(Cause::PostFailed),
    }
}

/// Discards a Reply or error for a Call that is gone, if there was one.
fn drop_late(cx: &mut Completion<'_, Ep>, message: ReceivedMessage<Ep>) {
    cx.qp().context().transport.xprt.late_reply();
    drop_unexpected(cx, message);
}

/// Discards a Reply or error that no Call waits for.
fn drop_unexpected(cx: &mut Completion<'_, Ep>, message: ReceivedMessage<Ep>) {
    let qp = cx.qp();
    let ep = qp.context();
    trace::xprtrdma_reply_rqst_err(&ep.transport.xprt, message.bytes());
    drop_message(cx, message);
}

/// Discards a message.
fn drop_message(cx: &mut Completion<'_, Ep>, message: ReceivedMessage<Ep>) {
    let ep = cx.qp().context();
    ep.transport.stats.dropped_messages.increment();
    cx.recycle(message);
}

/// Passes a backward Call to the callback service. If there is no room for it, the peer has
/// exceeded its credits.
fn backward(ep: &Ep, call: &BackwardCall<'_>) {
    let transport = &ep.transport;
    if transport.backchannel.receive(
        &transport.xprt,
        ep.backward_mark(call.fixed.version),
        call.fixed.xid.0,
        call.payload,
    ) {
        transport.stats.backward_calls.increment();
    } else {
        transport.stats.backward_overflows.increment();
    }
}

/// Compares the Reply's chunks with those that its Call has offered, and with what arrived inline.
fn reconcile(
    rqst: &PinnedRqst<'_>,
    reply: &ReceivedReply<'_>,
    offered: Option<(&Plan, &MrList<Registered>)>,
) -> Outcome {
    let delivered = match offered {
        Some((plan, mrs)) if plan.reply == ReplyForm::WriteChunk => reply
            .reconcile([result_lengths(plan, mrs)], empty())
            .ok()
            .filter(|delivered| !is_misplaced(rqst, reply, &delivered.writes)),
        Some((plan, mrs)) if plan.reply == ReplyForm::ReplyChunk => {
            reply.reconcile([empty()], result_lengths(plan, mrs)).ok()
        }
        _ => reply.reconcile([empty()], empty()).ok(),
    };
    let Some(Delivered {
        writes: [Delivery {
            contiguous: placed, ..
        }],
        reply: chunk,
    }) = delivered
    else {
        return Outcome::Failed;
    };
    match reply.payload {
        Some(_) => Outcome::Inline {
            header: reply.header_len,
            placed,
        },
        None => Outcome::Chunk(chunk.contiguous),
    }
}

/// The lengths of the MRs in the Write chunk or Reply chunk.
fn result_lengths<'a>(
    plan: &Plan,
    mrs: &'a MrList<Registered>,
) -> impl Iterator<Item = u32> + Clone + 'a {
    // CAST: A u32 always fits the kernel's usize.
    let results = mrs.extents().skip(plan.reads as usize);
    results.map(|extent| extent.length)
}

/// Whether data arrived inline for which the Call has offered a Write chunk, or a longer header
/// before such data than there is room for.
fn is_misplaced(rqst: &PinnedRqst<'_>, reply: &ReceivedReply<'_>, [write]: &[Delivery; 1]) -> bool {
    let (Some(inline), Some(room)) = (reply.payload, rqst.reply().filled()) else {
        return false;
    };
    let head = room.head_len();
    if write.is_behind_longer_verifier(inline, head) {
        rqst.relearn_verifier();
        return true;
    }
    write.is_eligibility_violation(inline, head)
}

/// Completes an RPC behind its fence, and recycles the Reply's buffer.
fn complete_rqst(cx: &mut Completion<'_, Ep>, mut rqst: PinnedRqst<'_>, rep: Rep) {
    let qp = cx.qp();
    let ep = qp.context();
    let Rep {
        message,
        outcome,
        form,
    } = rep;
    let stats = &ep.transport.stats;
    // No fence is needed when the RPC's memory is freed.
    if form != Form::INLINE {
        rqst.cookie().set(0);
    }
    if !matches!(outcome, Outcome::Failed) {
        ep.transport.latency.record(form, rqst.round_trip());
    }
    let length = match outcome {
        Outcome::Inline { header, placed } => {
            let payload = message.bytes().get(header..);
            payload.and_then(|payload| deliver(ep, &mut rqst, payload, placed))
        }
        Outcome::Chunk(length) => {
            stats.delivered_bytes.add(length);
            stats.reply_chunk_replies.increment();
            usize::try_from(length).ok()
        }
        Outcome::Failed => None,
    };
    match length {
        Some(length) => rqst.complete(length),
        None => {
            stats.bad_replies.increment();
            rqst.fail(EIO);
            ep.close_if_hopeless();
        }
    }
    cx.recycle(message);
}

/// Copies the inline bytes to where the RPC layer expects them; returns the length of the whole
/// message, or `None` if pages of the buffer are missing, which is not the case after its Call was
/// sent, or if a length does not fit memory.
///
/// The stream consists of the head, the data that was placed directly with its round-up, and the
/// rest.
fn deliver(ep: &Ep, rqst: &mut PinnedRqst<'_>, payload: &[u8], placed: u64) -> Option<usize> {
    let stats = &ep.transport.stats;
    let reply = rqst.reply().filled()?;
    let head_len = reply.head_len();
    if placed == 0 {
        let copied = reply.copy_in(0, payload).ok()?;
        let fixup = copied.saturating_sub(head_len);
        stats.fixup_bytes.add_len(fixup);
        if fixup != 0 {
            trace::xprtrdma_fixup(rqst, fixup);
        }
        return Some(copied);
    }
    stats.delivered_bytes.add(placed);
    // At most what was offered, so the round-up does not overflow.
    let placed = usize::try_from(placed).ok()?;
    let rounded = placed.checked_next_multiple_of(4)?;
    let (head, rest) = payload.split_at(payload.len().min(head_len));
    rqst.trim_reply_head(head.len());
    let reply = rqst.reply().filled()?;
    let first = reply.copy_in(0, head).ok()?;
    // The peer does not write the round-up (RFC 8166 section 3.4.6). If the RPC message counts it
    // as data, nobody must see what the memory held before.
    if let Some(round_up) = [0; 3].get(..rounded.saturating_sub(placed)) {
        reply.copy_in(first.saturating_add(placed), round_up).ok()?;
    }
    let end = first.saturating_add(rounded);
    let second = reply.copy_in(end, rest).ok()?;
    stats.fixup_bytes.add_len(second);
    if second != 0 {
        trace::xprtrdma_fixup(rqst, second);
    }
    Some(end.saturating_add(second))
}
