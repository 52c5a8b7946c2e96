// SPDX-License-Identifier: GPL-2.0

//! From a received message to a completed RPC, in completion handlers.
//!
//! An RPC completes only when every MR of its Call is invalidated and unmapped: by the peer, or by
//! LOCAL_INVs whose completion then completes the RPC.

use super::{
    bad_reply::{bad_header, drop_late, drop_unexpected, rdma_error},
    ep::Ep,
    frwr,
};
use crate::{
    error::Cause,
    proto::requester::{
        decode::{decode_received, BackwardCall, Received, ReceivedReply},
        plan::{Plan, ReplyForm},
        reconcile::{Delivered, Delivery},
    },
    rdma::{
        CqContext, Idle, MrList, QpFailure, QpUser, QueuePair, RecvBox, Registered,
        RemoteInvalidation,
    },
    stats::Form,
    sunrpc::client::{ForwardRqst, NotPinned, PinnedRqst},
    trace,
};
use kernel::{prelude::*, sync::atomic::Relaxed};

impl QpUser for Ep {
    const IS_CLIENT: bool = true;

    type Recv = ();
    type Send = ();
    type Slot = frwr::SlotState;

    fn received(
        cx: &mut CqContext<'_, Self>,
        rep: RecvBox<Self>,
        proof: Option<RemoteInvalidation<'_, Ep>>,
    ) {
        // Any message shows that the next attempt to connect need not be delayed.
        cx.user().transport.xprt.reset_reconnect_delay();
        reply_handler(cx, rep, proof);
    }

    fn localinv_done(cx: &mut CqContext<'_, Self>, index: usize, mrs: MrList<Idle>) {
        if let Some(reply) = frwr::localinv_done(cx.qp(), index, mrs) {
            complete_rqst(cx, reply);
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

    fn qp_failed(&self, why: QpFailure) {
        match why {
            QpFailure::WorkRequest(_) => self.transport.stats.failed_requests.increment(),
            // Each check would end a connection.
            QpFailure::CheckRefused => self.transport.checks_fail.store(true, Relaxed),
            _ => {}
        }
        self.state.force_disconnect(why.into());
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

/// A Reply that was compared with what its Call had offered.
pub(super) struct ReplyResult {
    outcome: Outcome,
    form: Form,
    /// The slot of MRs that the Reply has not invalidated, if there are any.
    slot: Option<usize>,
}

/// A Call with its Reply.
pub(crate) struct PendingReply {
    pub(super) rqst: PinnedRqst,
    pub(super) rep: RecvBox<Ep>,
    pub(super) result: ReplyResult,
}

/// Handles a message from the peer.
fn reply_handler(
    cx: &mut CqContext<'_, Ep>,
    rep: RecvBox<Ep>,
    proof: Option<RemoteInvalidation<'_, Ep>>,
) {
    let qp = cx.qp();
    let ep = qp.user();
    let reply = match decode_received(rep.bytes(), ep.accepted()) {
        Ok(Received::Reply(reply)) => reply,
        Ok(Received::Error(error)) => return rdma_error(cx, &error, rep, proof),
        Ok(Received::BackwardCall(call)) => {
            backward(ep, &call);
            return cx.repost(rep);
        }
        Err(refused) => return bad_header(cx, &refused, rep, proof),
    };
    let fixed = reply.fixed;
    let rqst = match ep.transport.xprt.pin(fixed.xid.0) {
        Ok(rqst) => rqst,
        Err(NotPinned::Taken) => return drop_unexpected(cx, rep),
        Err(NotPinned::Unknown) => {
            ep.replied(fixed.xid, fixed.version);
            return drop_late(cx, rep);
        }
    };
    trace::xprtrdma_reply(&rqst, fixed.credits.get());
    let compare = |offered: Option<(&Plan, &MrList<Registered>)>| reconcile(&rqst, &reply, offered);
    let Some(mut result) = claim(qp, &rqst, proof, compare) else {
        return drop_unexpected(cx, rep);
    };
    // Only the Reply to a Call grants credits, and only once.
    if !ep.grant(&fixed) {
        result.outcome = Outcome::Failed;
    }
    finish(cx, PendingReply { rqst, rep, result });
}

/// Claims a Call for its Reply: `compare` compares what was offered, if anything, with the Reply,
/// and an MR that the Reply has invalidated is taken back. Returns `None` if another Reply has done
/// so before, or if the Call was not sent on this connection: the peer can guess the XID of a Call
/// that is yet to be sent.
pub(super) fn claim(
    qp: &QueuePair<Ep>,
    rqst: &PinnedRqst,
    proof: Option<RemoteInvalidation<'_, Ep>>,
    compare: impl FnOnce(Option<(&Plan, &MrList<Registered>)>) -> Outcome,
) -> Option<ReplyResult> {
    let mut result = ReplyResult {
        outcome: Outcome::Failed,
        form: Form::INLINE,
        slot: qp.user().cookie_value(rqst.ep_cookie())?.checked_sub(1),
    };
    if let Some(slot) = result.slot {
        let is_free = frwr::reminv(qp, slot, proof, |plan, mrs| {
            result.outcome = compare(Some((plan, mrs)));
            result.form = Form::from(plan);
        })?;
        result.slot = result.slot.filter(|_| !is_free);
    } else {
        result.outcome = compare(None);
    }
    Some(result)
}

/// Completes the RPC once all its MRs are invalidated.
pub(super) fn finish(cx: &mut CqContext<'_, Ep>, reply: PendingReply) {
    let PendingReply { result, .. } = &reply;
    if let Some(slot) = result.slot {
        return frwr::localinv(cx.qp(), slot, Some(reply));
    }
    let has_chunks = result.form != Form::INLINE;
    complete_rqst(cx, reply);
    if has_chunks {
        cx.user().transport.xprt.write_space();
    }
}

/// Passes a backward Call to the callback service. If that has no request left, the peer
/// has exceeded its credits.
fn backward(ep: &Ep, call: &BackwardCall<'_>) {
    let transport = &ep.transport;
    if transport.backchannel.receive(
        &transport.xprt,
        // CAST: A u32 always fits the kernel's usize.
        ep.cookie(call.fixed.version as usize),
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
    rqst: &PinnedRqst,
    reply: &ReceivedReply<'_>,
    offered: Option<(&Plan, &MrList<Registered>)>,
) -> Outcome {
    let none = MrList::new();
    let (form, reads, mrs) = offered.map_or((ReplyForm::Inline, 0, &none), |(plan, mrs)| {
        (plan.reply, plan.reads, mrs)
    });
    // CAST: A u32 always fits the kernel's usize.
    let results = mrs.extents().skip(reads as usize);
    let results = results.map(|extent| extent.length);
    let only = |wanted| if form == wanted { usize::MAX } else { 0 };
    let write_chunk = results.clone().take(only(ReplyForm::WriteChunk));
    let reply_chunk = results.take(only(ReplyForm::ReplyChunk));
    let Ok(Delivered {
        writes: [write],
        reply: chunk,
    }) = reply.reconcile([write_chunk], reply_chunk)
    else {
        return Outcome::Failed;
    };
    match reply.payload {
        Some(inline) if form == ReplyForm::WriteChunk && is_misplaced(rqst, inline, &write) => {
            Outcome::Failed
        }
        Some(_) => Outcome::Inline {
            header: reply.header_len,
            placed: write.contiguous,
        },
        None => Outcome::Chunk(chunk.contiguous),
    }
}

/// Whether data arrived inline for which the Call has offered a Write chunk, or a longer header
/// before such data than the buffer has space for.
fn is_misplaced(rqst: &PinnedRqst, inline: &[u8], write: &Delivery) -> bool {
    let Ok(buffer) = rqst.reply() else {
        return false;
    };
    let head = buffer.head_len();
    if write.is_after_longer_verifier(inline, head) {
        rqst.relearn_verifier();
        return true;
    }
    write.is_eligibility_violation(inline, head)
}

/// Completes an RPC whose MRs are invalidated, and recycles the Reply's buffer.
fn complete_rqst(cx: &mut CqContext<'_, Ep>, reply: PendingReply) {
    let PendingReply {
        mut rqst,
        rep,
        result: ReplyResult { outcome, form, .. },
    } = reply;
    let ep = cx.user();
    let stats = &ep.transport.stats;
    // The slot may belong to another Call already.
    rqst.set_ep_cookie(0);
    if !matches!(outcome, Outcome::Failed) {
        ep.transport.latency.record(form, rqst.round_trip());
    }
    let length = match outcome {
        Outcome::Inline { header, placed } => {
            let payload = rep.bytes().get(header..);
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
            // Not before the Call's MRs are invalidated.
            if ep.version().is_none() {
                ep.state.force_disconnect(Cause::NoCommonVersion);
            }
        }
    }
    cx.repost(rep);
}

/// Copies the inline bytes to where the RPC layer expects them; returns the length of the whole
/// message, or `None` if a length does not fit memory.
///
/// The stream consists of the head, the data that was placed directly with its round-up, and the
/// rest.
fn deliver(ep: &Ep, rqst: &mut PinnedRqst, payload: &[u8], placed: u64) -> Option<usize> {
    let stats = &ep.transport.stats;
    let head_len = rqst.reply().ok()?.head_len();
    stats.delivered_bytes.add(placed);
    // At most what was offered, so the round-up does not overflow.
    let placed = usize::try_from(placed).ok()?;
    let rounded = placed.checked_next_multiple_of(4)?;
    let (head, rest) = payload.split_at(payload.len().min(head_len));
    if placed != 0 {
        rqst.trim_reply_head(head.len());
    }
    let reply = rqst.reply().ok()?;
    let first = reply.copy_in(0, head).ok()?;
    // The peer does not write the round-up (RFC 8166 section 3.4.6). If the RPC message counts it
    // as data, zeroes replace what the memory held before.
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
