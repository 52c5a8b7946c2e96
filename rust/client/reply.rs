// SPDX-License-Identifier: GPL-2.0

//! From a received message to a completed RPC.
//!
//! An RPC completes only when every region of its Call is invalidated and unmapped: by the peer,
//! or by work requests whose completion then completes the RPC.

use super::{
    chunks::Offer,
    connection::{index_of, Connection},
};
use crate::{
    proto::{
        header::{ErrorMessage, Versions, Xid},
        message::{Refusal, Refused},
        reply::{decode_received, BackwardCall, Delivery, Received, Reply},
    },
    rdma::{MrList, QueuePair, ReceivedMessage, RemoteInvalidation},
    sunrpc::PinnedRqst,
};
use kernel::{prelude::*, sync::atomic::Relaxed};

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
    message: ReceivedMessage,
    outcome: Outcome,
}

/// Takes a message from the peer.
pub(super) fn received(
    connection: &Connection,
    qp: &QueuePair<Connection>,
    message: ReceivedMessage,
    invalidated: Option<RemoteInvalidation>,
) {
    let bytes = qp.bytes(&message);
    match decode_received(bytes, Versions::ONE) {
        Ok(Received::Reply(reply)) => {
            connection.grant(reply.credits);
            let xid = reply.xid;
            match connection.client.xprt.pin(xid.0) {
                Some(rqst) => {
                    let index = index_of(rqst.mark().load(Relaxed));
                    let offer = index.and_then(|index| connection.chunks.take(index, xid.0));
                    if index.is_some() && offer.is_none() {
                        // Its Reply is here already.
                        drop_message(connection, qp, message);
                        return;
                    }
                    let outcome = reconcile(&reply, offer.as_ref());
                    let settlement = Settlement {
                        rqst,
                        message,
                        outcome,
                    };
                    fence(connection, qp, xid, index, offer, invalidated, settlement);
                }
                None => drop_message(connection, qp, message),
            }
        }
        Ok(Received::Error(error)) => fail(connection, qp, error.xid, message, invalidated),
        Ok(Received::BackwardCall(call)) => {
            backward(connection, &call);
            qp.recycle(message);
        }
        Err(refused) => refuse(connection, qp, &refused, message, invalidated),
    }
}

/// Ends the Call that an error or a malformed Reply is for, if one waits for it.
fn fail(
    connection: &Connection,
    qp: &QueuePair<Connection>,
    xid: Xid,
    message: ReceivedMessage,
    invalidated: Option<RemoteInvalidation>,
) {
    let Some(rqst) = connection.client.xprt.pin(xid.0) else {
        return drop_message(connection, qp, message);
    };
    let index = index_of(rqst.mark().load(Relaxed));
    let offer = index.and_then(|index| connection.chunks.take(index, xid.0));
    if index.is_some() && offer.is_none() {
        return drop_message(connection, qp, message);
    }
    let settlement = Settlement {
        rqst,
        message,
        outcome: Outcome::Failed,
    };
    fence(connection, qp, xid, index, offer, invalidated, settlement);
}

/// Does what is due for a message that cannot be used: answers it, ends the Call that it is the
/// Reply to, or forgets it.
fn refuse(
    connection: &Connection,
    qp: &QueuePair<Connection>,
    refused: &Refused,
    message: ReceivedMessage,
    invalidated: Option<RemoteInvalidation>,
) {
    let client = &connection.client;
    let xid = refused.fixed.map(|fixed| fixed.xid);
    let awaited = xid.is_some_and(|xid| client.xprt.pin(xid.0).is_some());
    match (
        refused.at_requester(awaited, client.backward.is_served()),
        xid,
    ) {
        (Refusal::Answer(error), _) => {
            answer(connection, qp, &error);
            drop_message(connection, qp, message);
        }
        (Refusal::Discard, Some(xid)) if awaited => {
            fail(connection, qp, xid, message, invalidated);
        }
        (Refusal::Discard, _) => drop_message(connection, qp, message),
    }
}

/// Sends an RDMA_ERROR, unless all send buffers are in use: the peer then learns nothing, as from
/// a lost message.
fn answer(connection: &Connection, qp: &QueuePair<Connection>, error: &ErrorMessage) {
    let Some(mut buffer) = qp.send_buffer() else {
        return;
    };
    let Ok(length) = error.encode(buffer.bytes(), connection.requested_credits()) else {
        return;
    };
    match buffer.send(length, MrList::new(), |_| {}) {
        Ok(()) => connection.client.stats.errors_sent.increment(),
        Err(_) => connection.end(),
    }
}

/// Forgets a message that no Call waits for.
fn drop_message(connection: &Connection, qp: &QueuePair<Connection>, message: ReceivedMessage) {
    connection.client.stats.dropped_messages.increment();
    qp.recycle(message);
}

/// Hands a backward Call to the callback service. One that finds no room has broken its credits.
fn backward(connection: &Connection, call: &BackwardCall<'_>) {
    let client = &connection.client;
    if client
        .backward
        .receive(&client.xprt, call.xid.0, call.payload)
    {
        client.stats.backward_calls.increment();
    } else {
        client.stats.backward_overflows.increment();
    }
}

/// Compares the Reply's chunks with what the Call offered.
fn reconcile(reply: &Reply<'_>, offer: Option<&Offer>) -> Outcome {
    let none = MrList::new();
    let (regions, reads, is_reply_chunk) = match offer {
        Some(offer) => (&offer.regions, offer.reads, offer.is_reply_chunk),
        None => (&none, 0, false),
    };
    let offered = regions.extents().skip(reads).map(|extent| extent.length);
    let only = |wanted| if wanted { usize::MAX } else { 0 };
    let writes = [offered.clone().take(only(!is_reply_chunk))];
    let chunk = offered.take(only(is_reply_chunk));
    let Ok(delivered) = reply.reconcile(writes, chunk) else {
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

/// Has every region of the Call invalidated, then settles it.
fn fence(
    connection: &Connection,
    qp: &QueuePair<Connection>,
    xid: Xid,
    index: Option<usize>,
    offer: Option<Offer>,
    invalidated: Option<RemoteInvalidation>,
    settlement: Settlement,
) {
    let (Some(index), Some(mut offer)) = (index, offer) else {
        return settle(connection, qp, settlement);
    };
    let stats = &connection.client.stats;
    if let Some(region) = invalidated.and_then(|proof| offer.regions.take_invalidated(&proof)) {
        stats.remote_invalidations.increment();
        let mut idle = MrList::new();
        idle.push_front(region);
        connection.regions.put(idle);
    }
    if offer.regions.is_empty() {
        connection.chunks.release(index);
        return settle(connection, qp, settlement);
    }
    stats.local_invalidations.add_len(offer.regions.len());
    connection.chunks.reply(index, xid.0, settlement);
    if let Err(regions) = qp.invalidate(index, offer.regions) {
        connection.chunks.stick(index, regions);
        connection.end();
    }
}

/// Completes an RPC behind its fence, and gives the Reply's buffer back.
pub(super) fn settle(connection: &Connection, qp: &QueuePair<Connection>, settlement: Settlement) {
    let Settlement {
        mut rqst,
        message,
        outcome,
    } = settlement;
    let stats = &connection.client.stats;
    rqst.mark().store(0, Relaxed);
    match outcome {
        Outcome::Inline { header, placed } => {
            let payload = qp.bytes(&message).get(header..).unwrap_or(&[]);
            let length = deliver(connection, &mut rqst, payload, placed);
            rqst.complete(length);
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
    qp.recycle(message);
}

/// Puts the inline bytes where the RPC layer expects them; the length of the whole message.
///
/// The stream is the first part, then what was placed directly with its round-up, then the rest.
fn deliver(connection: &Connection, rqst: &mut PinnedRqst, payload: &[u8], placed: u64) -> usize {
    let stats = &connection.client.stats;
    let head_len = rqst.reply().head_len();
    if placed == 0 {
        let copied = rqst.reply().copy_in(0, payload);
        stats.fixup_bytes.add_len(copied.saturating_sub(head_len));
        return copied;
    }
    stats.delivered_bytes.add(placed);
    let placed = usize::try_from(placed).unwrap_or(0).next_multiple_of(4);
    let (head, rest) = payload.split_at(payload.len().min(head_len));
    rqst.trim_reply_head(head.len());
    let reply = rqst.reply();
    let first = reply.copy_in(0, head);
    let second = reply.copy_in(first.saturating_add(placed), rest);
    stats.fixup_bytes.add_len(second);
    first.saturating_add(placed).saturating_add(second)
}
