// SPDX-License-Identifier: GPL-2.0

//! From nfsd's Reply to what the requester gets.

use super::{
    incoming::IncomingCalls,
    room::Room,
    sizes::MAX_RDMA_WRITES,
    stats::{Answered, SentMessage, Times},
};
use crate::{
    error::Cause,
    proto::{
        responder::{
            call::{CallIndex, ReceivedCall},
            encode::encode_garbage_args,
            placement::{Placement, ReplyPlan},
        },
        wire::{
            chunk::Segment,
            encode::encode_inline,
            error::{ErrorBody, ErrorMessage},
            header::{Credits, MIN_HEADER_LEN, VERSION_ONE},
        },
    },
    rdma::{AcceptedMessage, AcceptedQp, NoRoom, Outgoing, Patience},
    stats::Form,
    sunrpc::{
        server::{KeptCall, Moment, Replying, ResultLayout},
        NoIoScope,
    },
    trace,
};
use kernel::prelude::*;

type Message = AcceptedMessage<IncomingCalls>;

/// Records a result that may be placed directly.
pub(super) fn place(mut message: KeptCall<'_, Message>, at: u32, length: u32) {
    let (bytes, note) = message.with_note();
    let index = note.index.as_ref().filter(|index| index.offers_memory());
    let Some(call) = index.and_then(|index| index.call(bytes)) else {
        return;
    };
    note.placement.place(&call, at, length);
}

/// Sends a Reply.
///
/// # Errors
///
/// Any error means that the connection has to be closed.
pub(super) fn reply(
    qp: &AcceptedQp<IncomingCalls>,
    rqst: Replying<'_>,
    mut message: KeptCall<'_, Message>,
) -> Result {
    let sent = make_and_send(qp, rqst, &mut message);
    // The requester may not let the Reply complete, nor call again.
    Room::look_later(&qp.context().events.room);
    message.with_note().1.is_outstanding = false;
    sent.inspect_err(|&error| {
        let xid = message
            .message()
            .note()
            .index
            .map_or(0, |index| index.xid.0);
        trace::svcrdma_send_err(qp, xid, error);
    })
}

fn make_and_send(
    qp: &AcceptedQp<IncomingCalls>,
    rqst: Replying<'_>,
    message: &mut KeptCall<'_, Message>,
) -> Result {
    let incoming = qp.context();
    let replied = Moment::now();
    if incoming.xprt().is_closing() {
        return Err(EPIPE);
    }
    let number = message.message().number();
    let (bytes, note) = message.with_note();
    let index = note.index.as_ref().ok_or(EINVAL)?;
    let inline_len = rqst.len();
    let length = u32::try_from(inline_len)?;
    let threshold = threshold(incoming, index.version);
    let taken = rqst.began();
    let times = Times {
        complete: note.complete.unwrap_or(taken),
        taken,
        replied,
    };
    if index.offers_memory() {
        let call = (index, bytes, &note.placement);
        return place_and_send(qp, rqst, number, call, (length, threshold), times);
    }
    if length > threshold.saturating_sub(MIN_HEADER_LEN) {
        fail_call(qp, &index.error(ErrorBody::Chunk), true);
        return Ok(());
    }
    let mut outgoing = qp.outgoing()?;
    let credits = grant(qp, index.version)?;
    let header =
        encode_inline(outgoing.bytes(), index.version, index.xid, credits).map_err(|_| EMSGSIZE)?;
    let end = header.saturating_add(inline_len);
    let to = outgoing.bytes().get_mut(header..end).ok_or(EMSGSIZE)?;
    rqst.copy_out(0, to)?;
    let answered = Answered {
        xid: index.xid,
        form: Form::inline(index),
        segments: 0,
        bytes: 0,
        inline: length,
        has_invalidated: note.invalidate.is_some(),
        times,
    };
    let sent = SentMessage::Reply(answered);
    outgoing
        .send(end, note.invalidate, Patience::Wait, sent)
        .map_err(to_error)
}

/// The credits that the Reply to a Call of this version grants.
fn grant(qp: &AcceptedQp<IncomingCalls>, version: u32) -> Result<Credits> {
    let incoming = qp.context();
    if version != VERSION_ONE {
        incoming.replies_in_version_two();
    }
    incoming.grant(qp)
}

/// Sends the Reply, of `length` bytes, to a Call that offers memory for it, with no more than
/// `threshold` bytes in the Send.
fn place_and_send(
    qp: &AcceptedQp<IncomingCalls>,
    rqst: Replying<'_>,
    number: u32,
    (index, bytes, placement): (&CallIndex, &[u8], &Placement),
    (length, threshold): (u32, u32),
    times: Times,
) -> Result {
    let call = index.call(bytes).ok_or(EINVAL)?;
    let Ok(plan) = placement.finish(&call, length, threshold) else {
        fail_call(qp, &index.error(ErrorBody::Chunk), true);
        return Ok(());
    };
    let writes = plan.most_rdma_writes(&call);
    // CAST: A u32 always fits the kernel's usize.
    if writes > MAX_RDMA_WRITES as usize
        && !fits_send_queue((index, bytes, placement), (length, threshold))
    {
        fail_call(qp, &index.error(ErrorBody::Chunk), true);
        return Ok(());
    }
    let mut outgoing = qp.outgoing()?;
    let credits = grant(qp, call.version)?;
    let mut end = plan
        .encode(outgoing.bytes(), &call, credits)
        .map_err(|_| EMSGSIZE)?;
    if plan.reply_chunk_len == 0 {
        for range in plan.rest() {
            let start = end;
            end = start.saturating_add(usize::try_from(range.length)?);
            let to = outgoing.bytes().get_mut(start..end).ok_or(EMSGSIZE)?;
            rqst.copy_out(usize::try_from(range.at)?, to)?;
        }
    }
    let (segments, bytes) = match writes {
        0 => (0, 0),
        _ => write(qp, number, &mut outgoing, rqst, (&plan, writes), &call)?,
    };
    let invalidate = call.handle_to_invalidate(&qp.context().thresholds);
    let sent = SentMessage::Reply(Answered {
        xid: call.xid,
        form: Form::new(index, &plan),
        segments,
        bytes,
        inline: plan.inline_len,
        has_invalidated: invalidate.is_some(),
        times,
    });
    outgoing
        .send(end, invalidate, Patience::Wait, sent)
        .map_err(to_error)
}

/// Whether a Reply, as in [`place_and_send`], has no more RDMA Writes than the send queue has room
/// for.
// A function of its own, so that its caller need not have the decoded Call in memory.
fn fits_send_queue(
    (index, bytes, placement): (&CallIndex, &[u8], &Placement),
    (length, threshold): (u32, u32),
) -> bool {
    index.call(bytes).is_some_and(|call| {
        let plan = placement.finish(&call, length, threshold);
        plan.is_ok_and(|plan| plan.has_at_most(MAX_RDMA_WRITES, &call))
    })
}

/// The largest message to send in answer to one of `version`, in bytes.
fn threshold(incoming: &IncomingCalls, version: u32) -> u32 {
    if version == VERSION_ONE {
        incoming.thresholds.send
    } else {
        incoming.version_two_threshold()
    }
}

/// Adds the RDMA Writes of a Reply, `writes` at most; returns how many there are, and of how many
/// bytes.
fn write(
    qp: &AcceptedQp<IncomingCalls>,
    number: u32,
    outgoing: &mut Outgoing<'_, AcceptedQp<IncomingCalls>>,
    rqst: Replying<'_>,
    (plan, writes): (&ReplyPlan<'_>, usize),
    call: &ReceivedCall<'_>,
) -> Result<(u32, u64)> {
    let _scope = qp.maps_in_turn().then(NoIoScope::enter);
    let is_whole = plan.reply_chunk_len != 0
        || !plan
            .results()
            .all(|result| rqst.is_in_pages(result.at, result.length));
    // The head, the pages and the tail are written one by one.
    let ranges = writes.saturating_add(2);
    let layout = rqst.move_pages(outgoing.kept_pages()?, is_whole)?;
    // Each Write can begin and end within a page.
    let elements = layout.part_count().saturating_add(writes.saturating_mul(2));
    outgoing.reserve_writes(ranges, elements)?;
    let mut writing = Writing {
        qp,
        number,
        outgoing,
        layout,
        count: 0,
        bytes: 0,
    };
    plan.for_each_rdma_write(call, |at, target| writing.add(at, target))?;
    Ok((writing.count, writing.bytes))
}

/// A Reply whose RDMA Writes are being added.
struct Writing<'a, 'b> {
    qp: &'a AcceptedQp<IncomingCalls>,
    /// The number of the Call's message, for trace events.
    number: u32,
    outgoing: &'a mut Outgoing<'b, AcceptedQp<IncomingCalls>>,
    /// Where the bytes of the Reply are.
    layout: ResultLayout,
    /// How many Writes were added, and of how many bytes.
    count: u32,
    bytes: u64,
}

impl Writing<'_, '_> {
    /// Adds the RDMA Write of the bytes from `at` on to `target`.
    fn add(&mut self, at: u32, target: Segment) -> Result {
        let segment = (target.handle, target.length, target.offset);
        trace::svcrdma_encode_wseg(self.qp, self.number, self.count, segment);
        let (start, length) = (usize::try_from(at)?, usize::try_from(target.length)?);
        let (outgoing, mut offset) = (&mut *self.outgoing, target.offset);
        self.layout.for_each_range(start, length, |range| {
            outgoing.write(range, target.handle, offset)?;
            offset = offset.wrapping_add(u64::try_from(range.length)?);
            Ok(())
        })?;
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u64::from(target.length));
        Ok(())
    }
}

/// Ends a Call that was counted with an RDMA_ERROR, as [`send_error`] does.
pub(super) fn fail_call(qp: &AcceptedQp<IncomingCalls>, error: &ErrorMessage, may_wait: bool) {
    if error.version != VERSION_ONE {
        qp.context().fails_in_version_two();
    }
    send_error(qp, error, may_wait);
}

/// Answers a message with an RDMA_ERROR, waiting for room on the send queue if `may_wait`. Without
/// memory or room the connection ends instead.
pub(super) fn send_error(qp: &AcceptedQp<IncomingCalls>, error: &ErrorMessage, may_wait: bool) {
    send_short(qp, error, may_wait, |_, _| None);
}

/// Ends a Call, `message`, whose Read chunks do not fit it, with a GARBAGE_ARGS Reply, or with
/// `error` if it leaves no room for a Reply. Does not wait.
pub(super) fn send_garbage_args(
    qp: &AcceptedQp<IncomingCalls>,
    message: &[u8],
    error: &ErrorMessage,
) {
    let incoming = qp.context();
    send_short(qp, error, false, |buffer, credits| {
        let encoded = encode_garbage_args(buffer, message, credits);
        match encoded {
            _ if error.version == VERSION_ONE => {}
            Ok(_) => incoming.replies_in_version_two(),
            Err(_) => incoming.fails_in_version_two(),
        }
        Some((encoded.ok()?, SentMessage::GarbageArgs))
    });
}

/// Sends what `encode` writes, or `error` if it returns `None`.
fn send_short(
    qp: &AcceptedQp<IncomingCalls>,
    error: &ErrorMessage,
    may_wait: bool,
    encode: impl FnOnce(&mut [u8], Credits) -> Option<(usize, SentMessage)>,
) {
    let incoming = qp.context();
    let send = || -> Result {
        let mut outgoing = qp.outgoing()?;
        let room = usize::try_from(threshold(incoming, error.version))?.min(outgoing.bytes().len());
        let buffer = outgoing.bytes().get_mut(..room).ok_or(EMSGSIZE)?;
        let credits = incoming.grant(qp)?;
        let (length, sent) = match encode(buffer, credits) {
            Some(encoded) => encoded,
            None => {
                trace_error(error);
                let length = error.encode(buffer, credits).map_err(|_| EMSGSIZE)?;
                (length, SentMessage::Error(error.body))
            }
        };
        outgoing
            .send(length, None, Patience::of(may_wait), sent)
            .map_err(to_error)
    };
    let sent = send();
    Room::look_later(&incoming.events.room);
    match sent {
        Ok(()) => incoming.events.refused(error.xid),
        Err(_) => incoming.events.close(Cause::ReplyFailed),
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

/// The error of a Reply that found no room.
fn to_error(reason: NoRoom) -> Error {
    match reason {
        NoRoom::TooMany => EMSGSIZE,
        NoRoom::Full => EAGAIN,
        NoRoom::TimedOut => ETIMEDOUT,
        NoRoom::Closed => EPIPE,
    }
}
