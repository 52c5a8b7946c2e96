// SPDX-License-Identifier: GPL-2.0

//! From a received message to a completed RPC, in completion handlers.
//!
//! An RPC completes only when every MR of its Call is invalidated and unmapped: by the peer, or by
//! LOCAL_INVs whose completion then completes the RPC.

use super::{
    ep::{Ep, SentCall},
    frwr,
    refused::{bad_header, drop_late, drop_unexpected, rdma_error},
};
use crate::{
    proto::{
        requester::{
            decode::{decode_received, BackwardCall, Received, ReceivedReply},
            plan::{Plan, ReplyForm},
            reconcile::{Delivered, Delivery},
        },
        wire::header::Xid,
    },
    rdma::{
        CqContext, Idle, MrList, QpFailure, QpUser, QueuePair, RecvBox, Registered,
        RemoteInvalidation,
    },
    stats::Form,
    sunrpc::client::{NotPinned, PinnedRqst, StoredRqst},
    trace,
};
use core::iter::empty;
use kernel::prelude::*;

impl QpUser for Ep {
    const IS_CLIENT: bool = true;

    type Recv = ();
    type Send = ();
    type Slot = frwr::Req;

    fn received(
        cx: &mut CqContext<'_, Self>,
        message: RecvBox<Self>,
        invalidated: Option<RemoteInvalidation<'_>>,
    ) {
        // Any message shows that the next attempt to connect need not be delayed.
        cx.user().transport.xprt.peer_is_alive();
        reply_handler(cx, message, invalidated);
    }

    fn invalidated(cx: &mut CqContext<'_, Self>, index: usize, mrs: MrList<Idle>) {
        if let Some(reply) = frwr::invalidated(cx.qp(), index, mrs) {
            let PendingReply { rqst, message, rep } = reply;
            rqst.resume(|rqst| complete_rqst(cx, rqst, message, rep));
        }
        cx.user().transport.xprt.write_space();
    }

    fn sq_full(&self) {
        self.transport.stats.send_queue_full.increment();
        self.transport.xprt.wait_for_space();
    }

    fn sq_available(&self) {
        self.transport.xprt.write_space();
    }

    fn failed(&self, why: QpFailure) {
        if why == QpFailure::WorkRequest {
            self.transport.stats.failed_requests.increment();
        }
        self.wait.close(why.into());
    }
}

/// The result of a Reply.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    /// The RPC message follows `header` bytes of the Reply; `placed` bytes of it arrived in a Write
    /// chunk.
    Inline { header: usize, placed: u64 },
    /// The RPC message is this many bytes at the start of the Reply chunk.
    Chunk(u64),
    /// The RPC failed.
    Failed,
}

/// What is left of a Reply that was compared with what its Call had offered.
#[derive(Clone, Copy)]
pub(super) struct Rep {
    outcome: Outcome,
    form: Form,
}

/// A Call with its Reply, to be completed after LOCAL_INVs.
pub(super) struct PendingReply {
    rqst: StoredRqst,
    message: RecvBox<Ep>,
    rep: Rep,
}

/// Handles a message from the peer.
fn reply_handler(
    cx: &mut CqContext<'_, Ep>,
    message: RecvBox<Ep>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let qp = cx.qp();
    let ep = qp.user();
    let reply = match decode_received(message.bytes(), ep.accepted()) {
        Ok(Received::Reply(reply)) => reply,
        Ok(Received::Error(error)) => return rdma_error(cx, &error, message, invalidated),
        Ok(Received::BackwardCall(call)) => {
            backward(ep, &call);
            return cx.repost(message);
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
    let Some((mut rep, slot)) = claim(qp, &rqst, fixed.xid, invalidated, compare) else {
        return drop_unexpected(cx, message);
    };
    // Only the Reply to a Call grants credits, and only once.
    if !ep.grant(&fixed) {
        rep.outcome = Outcome::Failed;
    }
    finish(cx, rqst, message, (rep, slot));
}

/// Claims a Call for its Reply: `look` compares what was offered, if anything, with the Reply, and
/// an MR that the Reply has invalidated is taken back. Returns `None` if another Reply has done so
/// before, or if the Call was not sent on this connection: the peer can guess the XID of a Call
/// that is yet to be sent. Otherwise also returns the slot, if it has MRs that the Reply has not
/// invalidated.
pub(super) fn claim(
    qp: &QueuePair<Ep>,
    rqst: &PinnedRqst<'_>,
    xid: Xid,
    proof: Option<RemoteInvalidation<'_>>,
    look: impl FnOnce(Option<(&Plan, &MrList<Registered>)>) -> Outcome,
) -> Option<(Rep, Option<usize>)> {
    let mut rep = Rep {
        outcome: Outcome::Failed,
        form: Form::INLINE,
    };
    let SentCall::WithChunks(index) = qp.user().sent(rqst.cookie().get())? else {
        rep.outcome = look(None);
        return Some((rep, None));
    };
    let is_free = frwr::reminv(qp, (index, xid.0), proof, |plan, mrs| {
        rep.outcome = look(Some((plan, mrs)));
        rep.form = Form::from(plan);
    })?;
    Some((rep, (!is_free).then_some(index)))
}

/// Completes the RPC once all its MRs are invalidated.
pub(super) fn finish(
    cx: &mut CqContext<'_, Ep>,
    rqst: PinnedRqst<'_>,
    message: RecvBox<Ep>,
    (rep, slot): (Rep, Option<usize>),
) {
    if let Some(index) = slot {
        // A transport that is being destroyed has no requests.
        let reply = rqst.store().map(|rqst| PendingReply { rqst, message, rep });
        return frwr::invalidate(cx.qp(), index, reply);
    }
    complete_rqst(cx, rqst, message, rep);
    if rep.form != Form::INLINE {
        cx.user().transport.xprt.write_space();
    }
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
fn complete_rqst(
    cx: &mut CqContext<'_, Ep>,
    mut rqst: PinnedRqst<'_>,
    message: RecvBox<Ep>,
    Rep { outcome, form }: Rep,
) {
    let ep = cx.user();
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
    cx.repost(message);
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
