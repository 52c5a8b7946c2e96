// SPDX-License-Identifier: GPL-2.0

//! From the moment a Reply was accepted to the completion of its RPC.

use super::connection::Connection;
use crate::{
    error::Cause,
    rdma::{Completion, ReceivedMessage},
    stats::Form,
    sunrpc::client::{PinnedRqst, StoredRqst},
    trace,
};
use kernel::prelude::*;

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
pub(super) struct Answer {
    pub(super) message: ReceivedMessage<Connection>,
    pub(super) outcome: Outcome,
    pub(super) form: Form,
}

/// A Call with its Reply, to be completed after local invalidations.
pub(super) struct AnsweredCall {
    pub(super) rqst: StoredRqst,
    pub(super) answer: Answer,
}

/// Completes an RPC behind its fence, and recycles the Reply's buffer.
pub(super) fn complete(
    completion: &mut Completion<'_, Connection>,
    mut rqst: PinnedRqst<'_>,
    answer: Answer,
) {
    let qp = completion.qp();
    let connection = qp.context();
    let Answer {
        message,
        outcome,
        form,
    } = answer;
    let stats = &connection.transport.stats;
    // No fence is needed when the RPC's memory is freed.
    if form != Form::INLINE {
        rqst.cookie().set(0);
    }
    if !matches!(outcome, Outcome::Failed) {
        connection.transport.latency.record(form, rqst.round_trip());
    }
    let length = match outcome {
        Outcome::Inline { header, placed } => {
            let payload = message.bytes().get(header..);
            payload.and_then(|payload| deliver(connection, &mut rqst, payload, placed))
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
            end_if_hopeless(connection);
        }
    }
    completion.recycle(message);
}

/// Ends a connection without a common version. Called once its Call has ended: the Call's regions
/// could not be invalidated afterwards.
pub(super) fn end_if_hopeless(connection: &Connection) {
    if connection.version.is_hopeless() {
        connection.end(Cause::NoCommonVersion);
    }
}

/// Copies the inline bytes to where the RPC layer expects them; returns the length of the whole
/// message, or `None` if pages of the buffer are missing, which is not the case after its Call was
/// sent, or if a length does not fit memory.
///
/// The stream consists of the head, the data that was placed directly with its round-up, and the
/// rest.
fn deliver(
    connection: &Connection,
    rqst: &mut PinnedRqst<'_>,
    payload: &[u8],
    placed: u64,
) -> Option<usize> {
    let stats = &connection.transport.stats;
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
