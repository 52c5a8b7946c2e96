// SPDX-License-Identifier: GPL-2.0

//! From a received message to a completed RPC.
//!
//! An RPC completes only when every region of its Call is invalidated and unmapped: by the peer,
//! or by work requests whose completion then completes the RPC.

use super::{
    chunks::Offer,
    connection::{Connection, Sent},
};
use crate::{
    error::Cause,
    proto::{
        backward::BackwardCall,
        message::{Refusal, Refused},
        requester::{
            decode::{decode_received, Received, ReceivedReply, ReplyError},
            reconcile::{Delivered, Delivery, Mismatch},
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
    sunrpc::client::PinnedRqst,
    trace,
};
use core::iter::empty;
use kernel::prelude::*;

/// What a Reply says, beyond its bytes.
#[derive(Clone, Copy)]
enum Outcome {
    /// The RPC message follows `header` bytes of the Reply; `placed` bytes of it went by a Write
    /// chunk.
    Inline { header: usize, placed: u64 },
    /// The RPC message is the first so many bytes of the Reply chunk.
    Chunk(u64),
    /// The RPC failed.
    Failed,
}

/// A Call with its Reply, ready to complete once the fence is through.
pub(super) struct Settlement {
    rqst: PinnedRqst,
    message: ReceivedMessage<Connection>,
    outcome: Outcome,
    form: Form,
}

/// Takes a message from the peer.
pub(super) fn received(
    completion: &mut Completion<'_, Connection>,
    message: ReceivedMessage<Connection>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let qp = completion.qp();
    let connection = qp.context();
    match decode_received(message.bytes(), Versions::ONE) {
        Ok(Received::Reply(reply)) => {
            let xid = reply.fixed.xid;
            match connection.client.xprt.pin(xid.0) {
                Some(rqst) => {
                    trace::xprtrdma_reply(&rqst, reply.fixed.credits.get());
                    let Some(claim) = reconcile(qp, &rqst, &reply, invalidated) else {
                        return drop_unexpected(completion, message);
                    };
                    // Only the Reply to a Call grants credits, and only once.
                    connection.grant(reply.fixed.credits);
                    let settlement = Settlement {
                        rqst,
                        message,
                        outcome: claim.seen,
                        form: claim.form,
                    };
                    fence(completion, xid, claim.rest, settlement);
                }
                None => drop_late(completion, message),
            }
        }
        Ok(Received::Error(error)) => match connection.client.xprt.pin(error.xid.0) {
            Some(rqst) => {
                let (client, stats) = (&connection.client, &connection.client.stats);
                if let ErrorBody::Version(versions) = error.body {
                    stats.vers_errors_received.increment();
                    trace::xprtrdma_err_vers(&rqst, versions.low, versions.high);
                } else {
                    stats.chunk_errors_received.increment();
                    trace::xprtrdma_err_chunk(&client.xprt, &rqst);
                }
                fail(completion, rqst, error.xid, message, invalidated);
            }
            None => drop_late(completion, message),
        },
        Ok(Received::BackwardCall(call)) => {
            backward(connection, &call);
            completion.recycle(message);
        }
        Err(refused) => refuse(completion, &refused, message, invalidated),
    }
}

/// What a Call with a Reply has left.
#[derive(Clone, Copy)]
enum Rest {
    /// It had no chunks.
    Nothing,
    /// All of its regions were invalidated, and its chunk entry is free.
    Freed,
    /// The chunk entry has regions that the Reply has not invalidated.
    Regions(usize),
}

/// A Call, claimed for its Reply.
struct Claim<R> {
    /// How the Call went.
    form: Form,
    /// What the comparison of its regions with the Reply has shown.
    seen: R,
    rest: Rest,
}

/// Claims a Call for its Reply: has `look` compare what was offered, if anything, with the Reply,
/// and takes back what the Reply has invalidated. Nothing if another Reply has done so before, or if
/// the Call was not sent on this connection: the peer can guess what number it will have.
fn claim<R>(
    qp: &QueuePair<Connection>,
    rqst: &PinnedRqst,
    xid: Xid,
    proof: Option<RemoteInvalidation<'_>>,
    look: impl FnOnce(Option<(&Offer, &MrList<Registered>)>) -> R,
) -> Option<Claim<R>> {
    let connection = qp.context();
    let index = match connection.sent(rqst.mark().get())? {
        Sent::WithChunks(index) => index,
        Sent::Inline => {
            return Some(Claim {
                form: Form::INLINE,
                seen: look(None),
                rest: Rest::Nothing,
            });
        }
    };
    let look = |offer: &Offer, regions: &MrList<Registered>| look(Some((offer, regions)));
    let taken = connection.chunks.take(qp, index, xid.0, proof, look)?;
    if taken.region.is_some() {
        connection.client.stats.remote_invalidations.increment();
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

/// Ends the Call that an error or a malformed Reply is for.
fn fail(
    completion: &mut Completion<'_, Connection>,
    rqst: PinnedRqst,
    xid: Xid,
    message: ReceivedMessage<Connection>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let Some(claim) = claim(completion.qp(), &rqst, xid, invalidated, |_| ()) else {
        return drop_unexpected(completion, message);
    };
    let settlement = Settlement {
        rqst,
        message,
        outcome: Outcome::Failed,
        form: claim.form,
    };
    fence(completion, xid, claim.rest, settlement);
}

/// Does what is due for a message that cannot be used: answers it, ends the Call that it is the
/// Reply to, or forgets it.
fn refuse(
    completion: &mut Completion<'_, Connection>,
    refused: &Refused<ReplyError>,
    message: ReceivedMessage<Connection>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let qp = completion.qp();
    let client = &qp.context().client;
    match refused.why.error {
        ReplyError::Header(HeaderError::Short) => {
            trace::xprtrdma_reply_short_err(&client.xprt, message.bytes())
        }
        ReplyError::Header(HeaderError::Version) => {
            trace::xprtrdma_reply_vers_err(&client.xprt, message.bytes())
        }
        _ => trace::xprtrdma_reply_hdr_err(&client.xprt, message.bytes()),
    }
    let xid = refused.fixed.map(|fixed| fixed.xid);
    // Its XID is the peer's: a forward Call with the same one has nothing to do with it.
    let backward = refused.why.error == ReplyError::ChunksInBackwardCall;
    let awaited = xid
        .filter(|_| !backward)
        .and_then(|xid| Some((xid, client.xprt.pin(xid.0)?)));
    match (
        refused.at_requester(awaited.is_some(), client.backward.is_served()),
        awaited,
    ) {
        (Refusal::Answer(error), _) => {
            answer(completion, &error);
            drop_message(completion, message);
        }
        (Refusal::Discard, Some((xid, rqst))) => {
            if refused.why.error == ReplyError::Header(HeaderError::ErrorCode) {
                client.stats.unknown_errors_received.increment();
                trace::xprtrdma_err_unrecognized(&client.xprt, &rqst);
            }
            fail(completion, rqst, xid, message, invalidated);
        }
        (Refusal::Discard, None) => drop_message(completion, message),
    }
}

/// Sends an RDMA_ERROR from a buffer that Calls leave free. While all of these are on their way, the
/// peer learns nothing, as it may.
fn answer(completion: &mut Completion<'_, Connection>, error: &ErrorMessage) {
    let connection = completion.qp().context();
    let Some(mut buffer) = completion.reserved_send() else {
        return;
    };
    let Ok(length) = error.encode(buffer.bytes(), connection.requested_credits()) else {
        return;
    };
    match buffer.send(length) {
        Ok(()) if matches!(error.body, ErrorBody::Version(_)) => {
            connection.client.stats.vers_errors_sent.increment();
        }
        Ok(()) => connection.client.stats.chunk_errors_sent.increment(),
        Err(_) => connection.end(Cause::PostFailed),
    }
}

/// Forgets a Reply or error to a Call that is gone, if there was one.
fn drop_late(completion: &mut Completion<'_, Connection>, message: ReceivedMessage<Connection>) {
    completion.qp().context().client.xprt.late_reply();
    drop_unexpected(completion, message);
}

/// Forgets a Reply or error that no Call waits for.
fn drop_unexpected(
    completion: &mut Completion<'_, Connection>,
    message: ReceivedMessage<Connection>,
) {
    let qp = completion.qp();
    let connection = qp.context();
    trace::xprtrdma_reply_rqst_err(&connection.client.xprt, message.bytes());
    drop_message(completion, message);
}

/// Forgets a message.
fn drop_message(completion: &mut Completion<'_, Connection>, message: ReceivedMessage<Connection>) {
    let connection = completion.qp().context();
    connection.client.stats.dropped_messages.increment();
    completion.recycle(message);
}

/// Hands a backward Call to the callback service. One that finds no room has broken its credits.
fn backward(connection: &Connection, call: &BackwardCall<'_>) {
    let client = &connection.client;
    if client.backward.receive(
        &client.xprt,
        connection.number(),
        call.fixed.xid.0,
        call.payload,
    ) {
        client.stats.backward_calls.increment();
    } else {
        client.stats.backward_overflows.increment();
    }
}

/// Claims the Call, and compares the Reply's chunks with what it offered.
fn reconcile(
    qp: &QueuePair<Connection>,
    rqst: &PinnedRqst,
    reply: &ReceivedReply<'_>,
    proof: Option<RemoteInvalidation<'_>>,
) -> Option<Claim<Outcome>> {
    claim(qp, rqst, reply.fixed.xid, proof, |offered| {
        let Some((offer, regions)) = offered else {
            return outcome(reply, reply.reconcile([empty()], empty()));
        };
        let lengths = regions
            .extents()
            .skip(offer.reads)
            .map(|extent| extent.length);
        let only = |wanted| if wanted { usize::MAX } else { 0 };
        let writes = [lengths.clone().take(only(!offer.is_reply_chunk))];
        let chunk = lengths.take(only(offer.is_reply_chunk));
        outcome(reply, reply.reconcile(writes, chunk))
    })
}

/// What a Reply says, with what it has delivered by RDMA Write, if that is what was offered.
fn outcome(reply: &ReceivedReply<'_>, delivered: Result<Delivered<1>, Mismatch>) -> Outcome {
    let Ok(delivered) = delivered else {
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

/// Settles the Call, once every region of it is invalidated.
#[inline]
fn fence(
    completion: &mut Completion<'_, Connection>,
    xid: Xid,
    rest: Rest,
    settlement: Settlement,
) {
    if let Rest::Regions(index) = rest {
        return invalidate(completion.qp(), index, xid, settlement);
    }
    settle(completion, settlement);
    if let Rest::Freed = rest {
        completion.qp().context().client.xprt.write_space();
    }
}

/// Has the regions invalidated that the Reply has not; the completion settles the Call.
#[inline(never)]
fn invalidate(qp: &QueuePair<Connection>, index: usize, xid: Xid, settlement: Settlement) {
    let connection = qp.context();
    connection.chunks.replied(qp, index, xid.0, settlement);
    if connection.invalidate(qp, index) != Invalidation::Posted {
        connection.chunks.stick(qp, index);
        connection.end(Cause::PostFailed);
    }
}

/// Completes an RPC behind its fence, and gives the Reply's buffer back.
pub(super) fn settle(completion: &mut Completion<'_, Connection>, settlement: Settlement) {
    let qp = completion.qp();
    let connection = qp.context();
    let Settlement {
        mut rqst,
        message,
        outcome,
        form,
    } = settlement;
    let stats = &connection.client.stats;
    // Nothing is left for the fence to do when the RPC's memory is freed.
    if form != Form::INLINE {
        rqst.mark().set(0);
    }
    if !matches!(outcome, Outcome::Failed) {
        connection.client.latency.record(form, rqst.round_trip());
    }
    match outcome {
        Outcome::Inline { header, placed } => {
            let payload = message.bytes().get(header..).unwrap_or(&[]);
            match deliver(connection, &mut rqst, payload, placed) {
                Some(length) => rqst.complete(length),
                None => {
                    stats.bad_replies.increment();
                    rqst.fail(EIO);
                }
            }
        }
        Outcome::Chunk(length) => {
            stats.delivered_bytes.add(length);
            stats.reply_chunk_replies.increment();
            rqst.complete(usize::try_from(length).unwrap_or(0));
        }
        Outcome::Failed => {
            stats.bad_replies.increment();
            rqst.fail(EIO);
        }
    }
    completion.recycle(message);
}

/// Puts the inline bytes where the RPC layer expects them; the length of the whole message. Nothing if the
/// room for it lacks pages, which it does not once its Call was sent.
///
/// The stream is the first part, then what was placed directly with its round-up, then the rest.
fn deliver(
    connection: &Connection,
    rqst: &mut PinnedRqst,
    payload: &[u8],
    placed: u64,
) -> Option<usize> {
    let stats = &connection.client.stats;
    let reply = rqst.reply().filled()?;
    let head_len = reply.head_len();
    if placed == 0 {
        let copied = reply.copy_in(0, payload);
        let fixup = copied.saturating_sub(head_len);
        stats.fixup_bytes.add_len(fixup);
        if fixup != 0 {
            trace::xprtrdma_fixup(rqst, fixup);
        }
        return Some(copied);
    }
    stats.delivered_bytes.add(placed);
    // No more than was offered, so that it has a round-up.
    let placed = usize::try_from(placed).unwrap_or(0);
    let rounded = placed.checked_next_multiple_of(4).unwrap_or(placed);
    let (head, rest) = payload.split_at(payload.len().min(head_len));
    rqst.trim_reply_head(head.len());
    let reply = rqst.reply().filled()?;
    let first = reply.copy_in(0, head);
    // The peer writes no round-up (RFC 8166 section 3.4.6). Should the RPC message count it as
    // data, then nobody sees what the memory held before.
    if let Some(round_up) = [0; 3].get(..rounded.saturating_sub(placed)) {
        reply.copy_in(first.saturating_add(placed), round_up);
    }
    let end = first.saturating_add(rounded);
    let second = reply.copy_in(end, rest);
    stats.fixup_bytes.add_len(second);
    if second != 0 {
        trace::xprtrdma_fixup(rqst, second);
    }
    Some(end.saturating_add(second))
}
