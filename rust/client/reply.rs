// SPDX-License-Identifier: GPL-2.0

//! From a received message to a completed RPC.
//!
//! An RPC completes only when every region of its Call is invalidated and unmapped: by the peer,
//! or by work requests whose completion then completes the RPC.

use super::{
    answered::{complete, end_if_hopeless, Answer, AnsweredCall, Outcome},
    chunks::{Chunks, Offer},
    connection::{Connection, SentCall},
    version::Refusal,
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
            plan::ReplyForm,
            reconcile::{Delivered, Delivery},
        },
        wire::{
            error::{ErrorBody, ErrorMessage},
            header::{Versions, Xid},
            malformed::HeaderError,
        },
    },
    rdma::{
        Completion, Invalidation, MrList, QueuePair, ReceivedMessage, Registered,
        RemoteInvalidation,
    },
    stats::Form,
    sunrpc::client::{NotPinned, PinnedRqst},
    trace,
};
use core::iter::empty;
use kernel::{prelude::*, sync::atomic::Relaxed};

/// Handles a message from the peer.
pub(super) fn received(
    completion: &mut Completion<'_, Connection>,
    message: ReceivedMessage<Connection>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let qp = completion.qp();
    let connection = qp.context();
    let reply = match decode_received(message.bytes(), connection.version.accepted()) {
        Ok(Received::Reply(reply)) => reply,
        Ok(Received::Error(error)) => return refused(completion, &error, message, invalidated),
        Ok(Received::BackwardCall(call)) => {
            backward(connection, &call);
            return completion.recycle(message);
        }
        Err(refused) => return refuse(completion, &refused, message, invalidated),
    };
    let fixed = reply.fixed;
    let rqst = match connection.transport.xprt.pin(fixed.xid.0) {
        Ok(rqst) => rqst,
        Err(NotPinned::Taken) => return drop_unexpected(completion, message),
        Err(NotPinned::Unknown) => {
            connection.replied(fixed.xid, fixed.version);
            return drop_late(completion, message);
        }
    };
    trace::xprtrdma_reply(&rqst, fixed.credits.get());
    let Some(claim) = reconcile(qp, &rqst, &reply, invalidated) else {
        return drop_unexpected(completion, message);
    };
    // Only the Reply to a Call grants credits, and only once.
    let is_of_good_version = connection.grant(&fixed);
    let answer = Answer {
        message,
        outcome: match is_of_good_version {
            true => claim.seen,
            false => Outcome::Failed,
        },
        form: claim.form,
    };
    fence(completion, fixed.xid, claim.rest, rqst, answer);
}

/// Takes an RDMA_ERROR: it ends its Call, or has it sent again in another version.
fn refused(
    completion: &mut Completion<'_, Connection>,
    error: &ErrorMessage,
    message: ReceivedMessage<Connection>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let connection = completion.qp().context();
    let (transport, stats) = (&connection.transport, &connection.transport.stats);
    let rqst = match transport.xprt.pin(error.xid.0) {
        Ok(rqst) => rqst,
        Err(NotPinned::Taken) => {
            end_if_hopeless(connection);
            return drop_unexpected(completion, message);
        }
        Err(NotPinned::Unknown) => {
            match error.body {
                ErrorBody::Version(versions) => {
                    match fall_back(connection, error.xid, versions) {
                        // There is nothing to send again.
                        Refusal::Resend => connection.settle(error.xid),
                        Refusal::Reconnect => connection.end(Cause::HigherVersion),
                        Refusal::Final | Refusal::NoCommonVersion => {}
                    }
                }
                ErrorBody::Chunk | ErrorBody::InvalidOption => {
                    connection.version.failed(error.xid);
                }
            }
            end_if_hopeless(connection);
            return drop_late(completion, message);
        }
    };
    match error.body {
        ErrorBody::Version(versions) => {
            stats.vers_errors_received.increment();
            trace::xprtrdma_err_vers(&rqst, versions.low, versions.high);
            match fall_back(connection, error.xid, versions) {
                Refusal::Resend if invalidated.is_none() => {
                    return resend(completion, rqst, message);
                }
                // sunrpc sends the Call again.
                Refusal::Reconnect if invalidated.is_none() => {
                    connection.end(Cause::HigherVersion);
                    drop(rqst);
                    return completion.recycle(message);
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
    fail(completion, rqst, error.xid, message, invalidated);
}

/// Handles a refusal of a Call's version; returns what is to become of the Call.
fn fall_back(connection: &Connection, xid: Xid, range: Versions) -> Refusal {
    let transport = &connection.transport;
    let refusal = connection.version.refused(xid, range);
    match refusal {
        Refusal::Final => {}
        Refusal::Resend | Refusal::Reconnect => connection.learn(),
        Refusal::NoCommonVersion => {
            if !transport.refusal_logged.xchg(true, Relaxed) {
                transport.xprt.log_warning(fmt!(
                    "it speaks Versions {} to {} of RPC-over-RDMA, and this end is set to others",
                    range.low,
                    range.high
                ));
            }
        }
    }
    refusal
}

/// Sends the first Call again, in the version that is tried now. Its task keeps waiting for a
/// Reply.
fn resend(
    completion: &mut Completion<'_, Connection>,
    rqst: PinnedRqst<'_>,
    message: ReceivedMessage<Connection>,
) {
    let connection = completion.qp().context();
    let sent = completion.reserved_send().is_some_and(|mut buffer| {
        let length = connection.version.copy_first(buffer.bytes());
        length.is_some_and(|length| buffer.send(length).is_ok())
    });
    if sent {
        (connection.transport.stats.version_fallbacks).increment();
    } else {
        connection.end(Cause::PostFailed);
    }
    // Its memory could not be freed until here.
    drop(rqst);
    completion.recycle(message);
}

/// What is left of a Call that has a Reply.
#[derive(Clone, Copy)]
enum Rest {
    /// It had no chunks.
    Nothing,
    /// All of its regions were invalidated, and its chunk entry is free.
    Freed,
    /// The chunk entry has regions that the Reply has not invalidated.
    Regions(usize),
}

/// A Call that is claimed for its Reply.
struct Claim<R> {
    /// The form of the RPC.
    form: Form,
    /// The result of comparing its regions with the Reply.
    seen: R,
    rest: Rest,
}

/// Claims a Call for its Reply: `look` compares what was offered, if anything, with the Reply, and
/// a region that the Reply has invalidated is taken back. Returns `None` if another Reply has done
/// so before, or if the Call was not sent on this connection: the peer can guess the XID of a Call
/// that is yet to be sent.
fn claim<R>(
    qp: &QueuePair<Connection>,
    rqst: &PinnedRqst<'_>,
    xid: Xid,
    proof: Option<RemoteInvalidation<'_>>,
    look: impl FnOnce(Option<(&Offer, &MrList<Registered>)>) -> R,
) -> Option<Claim<R>> {
    let connection = qp.context();
    let index = match connection.sent(rqst.cookie().get())? {
        SentCall::WithChunks(index) => index,
        SentCall::Inline => {
            return Some(Claim {
                form: Form::INLINE,
                seen: look(None),
                rest: Rest::Nothing,
            });
        }
    };
    let look = |offer: &Offer, regions: &MrList<Registered>| look(Some((offer, regions)));
    let taken = Chunks::of(qp).take(index, xid.0, proof, look)?;
    if taken.region.is_some() {
        connection.transport.stats.remote_invalidations.increment();
    }
    let freed = taken.is_free.then_some(index);
    if taken.region.is_some() || taken.is_free {
        connection.regions.put(taken.region, freed);
    }
    Some(Claim {
        form: taken.offer.form,
        seen: taken.seen,
        rest: freed.map_or(Rest::Regions(index), |_| Rest::Freed),
    })
}

/// Fails the Call to which an error or a malformed Reply belongs.
fn fail(
    completion: &mut Completion<'_, Connection>,
    rqst: PinnedRqst<'_>,
    xid: Xid,
    message: ReceivedMessage<Connection>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let connection = completion.qp().context();
    let Some(claim) = claim(completion.qp(), &rqst, xid, invalidated, |_| ()) else {
        end_if_hopeless(connection);
        return drop_unexpected(completion, message);
    };
    // Before the Call gives its credit back.
    connection.version.failed(xid);
    let answer = Answer {
        message,
        outcome: Outcome::Failed,
        form: claim.form,
    };
    fence(completion, xid, claim.rest, rqst, answer);
}

/// Handles a message that cannot be used: answers it, fails the Call that it is the Reply to, or
/// discards it.
fn refuse(
    completion: &mut Completion<'_, Connection>,
    refused: &Refused<ReplyError>,
    message: ReceivedMessage<Connection>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let qp = completion.qp();
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
            return fail(completion, rqst, xid, message, invalidated);
        }
        (RequesterRefusal::Answer(error), _) => answer(completion, &error),
        (_, awaited) => {
            if let (ReplyError::Header(HeaderError::ErrorCode), Some((_, rqst))) =
                (refused.why.error, awaited)
            {
                transport.stats.unknown_errors_received.increment();
                trace::xprtrdma_err_unrecognized(&transport.xprt, &rqst);
            }
        }
    }
    drop_message(completion, message);
}

/// Sends an RDMA_ERROR from a buffer that is reserved for these. While all of them are in use, the
/// peer is not told, which is allowed.
fn answer(completion: &mut Completion<'_, Connection>, error: &ErrorMessage) {
    let connection = completion.qp().context();
    let Some(mut buffer) = completion.reserved_send() else {
        return;
    };
    let Ok(length) = error.encode(buffer.bytes(), connection.requested_credits()) else {
        return;
    };
    match buffer.send(length) {
        Ok(()) => {
            let stats = &connection.transport.stats;
            match error.body {
                ErrorBody::Version(_) => stats.vers_errors_sent.increment(),
                ErrorBody::Chunk => stats.chunk_errors_sent.increment(),
                ErrorBody::InvalidOption => stats.option_errors_sent.increment(),
            }
        }
        Err(_) => connection.end(Cause::PostFailed),
    }
}

/// Discards a Reply or error for a Call that is gone, if there was one.
fn drop_late(completion: &mut Completion<'_, Connection>, message: ReceivedMessage<Connection>) {
    completion.qp().context().transport.xprt.late_reply();
    drop_unexpected(completion, message);
}

/// Discards a Reply or error that no Call waits for.
fn drop_unexpected(
    completion: &mut Completion<'_, Connection>,
    message: ReceivedMessage<Connection>,
) {
    let qp = completion.qp();
    let connection = qp.context();
    trace::xprtrdma_reply_rqst_err(&connection.transport.xprt, message.bytes());
    drop_message(completion, message);
}

/// Discards a message.
fn drop_message(completion: &mut Completion<'_, Connection>, message: ReceivedMessage<Connection>) {
    let connection = completion.qp().context();
    connection.transport.stats.dropped_messages.increment();
    completion.recycle(message);
}

/// Passes a backward Call to the callback service. If there is no room for it, the peer has
/// exceeded its credits.
fn backward(connection: &Connection, call: &BackwardCall<'_>) {
    let transport = &connection.transport;
    if transport.backchannel.receive(
        &transport.xprt,
        connection.backward_mark(call.fixed.version),
        call.fixed.xid.0,
        call.payload,
    ) {
        transport.stats.backward_calls.increment();
    } else {
        transport.stats.backward_overflows.increment();
    }
}

/// Claims the Call, and compares the Reply's chunks with those that it offered.
fn reconcile(
    qp: &QueuePair<Connection>,
    rqst: &PinnedRqst<'_>,
    reply: &ReceivedReply<'_>,
    proof: Option<RemoteInvalidation<'_>>,
) -> Option<Claim<Outcome>> {
    claim(qp, rqst, reply.fixed.xid, proof, |offered| {
        let delivered = match offered {
            Some((offer, regions)) if offer.reply == ReplyForm::WriteChunk => reply
                .reconcile([result_lengths(offer, regions)], empty())
                .ok()
                .filter(|delivered| !is_misplaced(rqst, reply, &delivered.writes)),
            Some((offer, regions)) if offer.reply == ReplyForm::ReplyChunk => reply
                .reconcile([empty()], result_lengths(offer, regions))
                .ok(),
            _ => reply.reconcile([empty()], empty()).ok(),
        };
        outcome(reply, delivered)
    })
}

/// The lengths of the regions in the Write chunk or Reply chunk.
fn result_lengths<'a>(
    offer: &Offer,
    regions: &'a MrList<Registered>,
) -> impl Iterator<Item = u32> + Clone + 'a {
    let results = regions.extents().skip(offer.reads);
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

/// The result of a Reply, with what it has delivered by RDMA Write, if that matches what was
/// offered.
fn outcome(reply: &ReceivedReply<'_>, delivered: Option<Delivered<1>>) -> Outcome {
    let Some(delivered) = delivered else {
        return Outcome::Failed;
    };
    let [Delivery {
        contiguous: placed, ..
    }] = delivered.writes;
    match reply.payload {
        Some(_) => Outcome::Inline {
            header: reply.header_len,
            placed,
        },
        None => Outcome::Chunk(delivered.reply.contiguous),
    }
}

/// Completes the RPC once all its regions are invalidated.
fn fence(
    completion: &mut Completion<'_, Connection>,
    xid: Xid,
    rest: Rest,
    rqst: PinnedRqst<'_>,
    answer: Answer,
) {
    if let Rest::Regions(index) = rest {
        return invalidate(completion.qp(), index, xid, rqst, answer);
    }
    complete(completion, rqst, answer);
    if let Rest::Freed = rest {
        completion.qp().context().transport.xprt.write_space();
    }
}

/// Invalidates the regions that the Reply has not invalidated; then the completion of that
/// completes the RPC.
fn invalidate(
    qp: &QueuePair<Connection>,
    index: usize,
    xid: Xid,
    rqst: PinnedRqst<'_>,
    answer: Answer,
) {
    let connection = qp.context();
    // A transport that is being destroyed has no requests.
    if let Some(rqst) = rqst.store() {
        let answered = AnsweredCall { rqst, answer };
        Chunks::of(qp).replied(index, xid.0, answered);
    }
    if connection.invalidate(qp, index) != Invalidation::Posted {
        Chunks::of(qp).keep_until_end(index);
        connection.end(Cause::PostFailed);
    }
}
