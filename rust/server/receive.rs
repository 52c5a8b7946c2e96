// SPDX-License-Identifier: GPL-2.0

//! From a message to a Call that nfsd executes.

use super::{incoming::IncomingCalls, note::CallNote, reply, room::Room};
use crate::{
    error::Cause,
    proto::{
        message::Refused,
        responder::{
            call::{CallIndex, ReceivedCall},
            decode::{decode_call, ReceivedByResponder},
            refusal::{CallError, ResponderRefusal},
            stream::Source,
        },
        wire::{
            error::ErrorBody,
            header::{Credits, VERSION_ONE},
            malformed::HeaderError,
        },
    },
    rdma::{AcceptedMessage, AcceptedQp, NoRoom},
    sunrpc::{
        server::{Moment, Receiving, SvcCall},
        NoIoScope, PageVec,
    },
    trace,
};
use kernel::{alloc::flags::__GFP_NOWARN, prelude::*};

type Message = AcceptedMessage<IncomingCalls>;

/// A Receive has completed. Called on the completion workqueue.
pub(super) fn received(qp: &AcceptedQp<IncomingCalls>, mut message: Message) {
    let incoming = qp.context();
    incoming.stats().received();
    message.with_note().1.complete = Some(Moment::now());
    let complete = if incoming.events.is_established() {
        start(qp, message, false)
    } else {
        qp.notify_established();
        Some(message)
    };
    if let Some(message) = complete {
        incoming.enqueue(qp, message);
    }
}

/// The RDMA Reads for a message are done. Called on the completion workqueue.
pub(super) fn read(qp: &AcceptedQp<IncomingCalls>, mut message: Message, mut pages: PageVec) {
    let number = message.number();
    let (bytes, note) = message.with_note();
    let now = Moment::now();
    let before = note.complete.replace(now);
    if let (Some(index), Some(before)) = (&note.index, before) {
        let took = now.since(before);
        qp.context().stats().read(index, took);
        trace::svcrdma_wc_read(qp, number, index.reads().1, took);
    }
    let complete = match &note.index {
        Some(index) => complete(index, bytes, &mut pages),
        None => Err(ResponderRefusal::Discard),
    };
    note.pages = pages;
    match complete {
        Ok(()) => {
            note.is_complete = true;
            qp.context().enqueue(qp, message);
        }
        // The Call was counted when it came.
        Err(refusal) => refuse(qp, message, None, refusal),
    }
}

/// Completes the Call of `index`, which is in `bytes` and in the pages that were read.
///
/// # Errors
///
/// What to do with it instead.
fn complete(index: &CallIndex, bytes: &[u8], pages: &mut PageVec) -> Result<(), ResponderRefusal> {
    if index.layout.is_mixed {
        let call = index.call(bytes).ok_or(ResponderRefusal::Discard)?;
        if !complete_stream(&call, pages) {
            return Err(ResponderRefusal::Discard);
        }
    }
    if index.is_inline() {
        return Ok(());
    }
    let mut start = [0; 8];
    let most = start.len();
    let start = usize::try_from(index.layout.total())
        .ok()
        .and_then(|length| start.get_mut(..length.min(most)))
        .ok_or(ResponderRefusal::Discard)?;
    if !pages.copy_out(0, start) {
        return Err(ResponderRefusal::Discard);
    }
    index.check_rpc_header(start)
}

/// The next Call for a thread of the service, if there is one that is complete.
pub(super) fn next(
    qp: &AcceptedQp<IncomingCalls>,
    rqst: &mut Receiving<'_>,
) -> Option<SvcCall<Message>> {
    let incoming = qp.context();
    let message = incoming.admitted().or_else(|| {
        let mut ready = incoming.ready.lock();
        let message = ready.pop();
        if !ready.is_empty() {
            return message;
        }
        // No thread need look for more.
        incoming.xprt().no_call_waits();
        drop(ready);
        // There may be room since the first look, and nobody else is told of that.
        if message.is_some() && incoming.has_waiting() {
            incoming.xprt().call_waits();
        }
        message.or_else(|| incoming.admitted())
    });
    rqst.let_others_in();
    let message = message?;
    let note = message.note();
    deliver(match (note.is_complete, &note.index) {
        (true, _) => message,
        (false, Some(_)) => fetch(qp, message, true)?,
        // It came before the handshake was over.
        (false, None) => start(qp, message, true)?,
    })
}

/// Returns a complete Call in the form that sunrpc takes.
fn deliver(mut message: Message) -> Option<SvcCall<Message>> {
    let note = message.with_note().1;
    let index = note.index.as_ref()?;
    let size = |length: u32| usize::try_from(length).ok();
    note.reserved = None;
    let (layout, start) = (index.layout, index.header_len);
    let split = start.checked_add(size(layout.head)?)?;
    let end = split.checked_add(size(layout.tail)?)?;
    let pages = match layout.pages {
        0 => None,
        length => Some((core::mem::take(&mut note.pages), size(length)?)),
    };
    Some(SvcCall {
        message,
        head: start..split,
        pages,
        tail: split..end,
    })
}

/// Decodes a message, and posts RDMA Reads for what is not in it. Returns the message if it is a
/// complete Call.
///
/// A completion handler does not wait: unless `may_wait`, a message for which memory or room is
/// lacking is also returned, and a thread goes on with it.
fn start(qp: &AcceptedQp<IncomingCalls>, mut message: Message, may_wait: bool) -> Option<Message> {
    let (incoming, number) = (qp.context(), message.number());
    let (bytes, note) = message.with_note();
    match decode_call(bytes, incoming.versions(), &incoming.budget) {
        Ok(ReceivedByResponder::Call(call)) => {
            let credits = call.credits;
            match accept(qp, number, (bytes, &mut *note), &call) {
                Ok(()) if note.is_complete => return Some(message),
                Ok(()) => return fetch(qp, message, may_wait),
                Err(refusal) => refuse(qp, message, Some(credits), refusal),
            }
        }
        Ok(ReceivedByResponder::BackwardReply {
            xid,
            version,
            credits,
            payload,
        }) => {
            // Its Call was in the version that is agreed on.
            if incoming.agreed().0 == Some(version) {
                incoming.bc().handle_reply(xid.0, credits.get(), payload);
            }
            let _scope = NoIoScope::enter();
            discard(qp, message);
        }
        Ok(ReceivedByResponder::Error(error)) => {
            incoming.bc().handle_error(error.xid.0);
            let _scope = NoIoScope::enter();
            discard(qp, message);
        }
        Err(refused) => {
            trace_refused(qp, number, bytes, &refused);
            let credits = refused.fixed.map(|fixed| fixed.credits);
            refuse(qp, message, credits, refused.at_responder());
        }
    }
    None
}

/// Records a Call.
///
/// # Errors
///
/// What to do with it instead.
fn accept(
    qp: &AcceptedQp<IncomingCalls>,
    number: u32,
    (bytes, note): (&[u8], &mut CallNote),
    call: &ReceivedCall<'_>,
) -> Result<(), ResponderRefusal> {
    let incoming = qp.context();
    trace_call(qp, number, bytes, call);
    if call.layout.pages > 0 && !call.has_counts() {
        trace::svcrdma_decode_parse_err(qp, number, bytes);
        return Err(ResponderRefusal::GarbageArgs(call.error(ErrorBody::Chunk)));
    }
    if incoming.events.is_unanswerable(call.xid) {
        return Err(ResponderRefusal::Answer(call.error(ErrorBody::Chunk)));
    }
    if call.version != VERSION_ONE {
        incoming.called_in_version_two();
    }
    note.is_complete = call.layout.pages == 0;
    incoming.called(call.credits);
    note.is_outstanding = true;
    note.index = Some(call.index(bytes.len()));
    Ok(())
}

/// Posts RDMA Reads for a Call, once there is room for their data. As with [`start`], the message
/// is returned if that has to wait for a thread.
fn fetch(qp: &AcceptedQp<IncomingCalls>, message: Message, may_wait: bool) -> Option<Message> {
    let incoming = qp.context();
    let message = incoming.admit(qp, message)?;
    let _scope = NoIoScope::enter();
    match post_reads(qp, message, may_wait) {
        Ok(()) => {
            // The requester may not let them complete, nor call again.
            Room::look_later(&incoming.events.room);
            None
        }
        Err(Some(message)) if !may_wait => {
            incoming.stats().counters.deferred_reads.increment();
            Some(message)
        }
        Err(left) => {
            incoming.events.close(Cause::LocalResources);
            if let Some(message) = left {
                qp.recycle(message);
            }
            None
        }
    }
}

/// Emits the trace events of a Call that is good.
fn trace_call(qp: &AcceptedQp<IncomingCalls>, number: u32, bytes: &[u8], call: &ReceivedCall<'_>) {
    trace::svcrdma_decode_rqst(qp, number, bytes, call.header_len);
    let lists = &call.lists;
    if lists.is_empty() {
        return;
    }
    let reads = lists.reads.segments().map(|entry| {
        let segment = entry.segment;
        (
            entry.position,
            (segment.handle, segment.length, segment.offset),
        )
    });
    let writes = lists.segments();
    let writes = writes.map(|segment| (segment.handle, segment.length, segment.offset));
    trace::svcrdma_segments(qp, number, reads, writes);
}

/// Emits the trace event of a message that is refused.
fn trace_refused(
    qp: &AcceptedQp<IncomingCalls>,
    number: u32,
    bytes: &[u8],
    refused: &Refused<CallError>,
) {
    match refused.why.error {
        CallError::Header(HeaderError::Short) => {
            trace::svcrdma_decode_short_err(qp, number, bytes);
        }
        CallError::Header(HeaderError::Version) => {
            trace::svcrdma_decode_badvers_err(qp, number, bytes);
        }
        CallError::Header(HeaderError::Procedure) => {
            trace::svcrdma_decode_badproc_err(qp, number, bytes);
        }
        CallError::Header(HeaderError::MessageType) | CallError::ChunksInBackwardReply => {
            trace::svcrdma_decode_drop_err(qp, number, bytes);
        }
        _ => trace::svcrdma_decode_parse_err(qp, number, bytes),
    }
}

/// Posts the RDMA Reads of a message, which is a Call with Read chunks.
///
/// # Errors
///
/// The message, if there is no memory or no room; `None` if the connection is ending.
fn post_reads(
    qp: &AcceptedQp<IncomingCalls>,
    mut message: Message,
    may_wait: bool,
) -> Result<(), Option<Message>> {
    let incoming = qp.context();
    let flags = if may_wait {
        GFP_KERNEL
    } else {
        GFP_NOWAIT | __GFP_NOWARN
    };
    let built = || -> Result<_> {
        let (bytes, note) = message.with_note();
        let index = note.index.as_ref().ok_or(EINVAL)?;
        let layout = &index.layout;
        let sinks = incoming.events.record.sinks();
        let pages = sinks.take(usize::try_from(layout.pages)?, flags)?;
        let mut reads = qp.reading(may_wait)?;
        // A Position Zero chunk is read in pieces, which the other chunks separate.
        let (segments, _) = index.reads();
        let most = segments.saturating_add(layout.read_chunks);
        reads.fill(pages, usize::try_from(most)?)?;
        let mut first = None;
        for (at, segment) in index.call(bytes).ok_or(EINVAL)?.reads() {
            first = first.or(Some(segment.handle));
            let place = (usize::try_from(at)?, segment.length);
            reads.read(place, (segment.handle, segment.offset), may_wait)?;
        }
        note.invalidate = first.filter(|_| incoming.thresholds.remote_invalidation);
        Ok(reads)
    };
    let reads = match { built }() {
        Ok(reads) => reads,
        Err(_) => return Err(Some(message)),
    };
    match reads.post(message, may_wait) {
        Ok(()) => Ok(()),
        Err((NoRoom::Full, Some((message, pages)))) => {
            incoming.events.record.sinks().give_back(pages);
            Err(Some(message))
        }
        Err((_, left)) => {
            if let Some((message, _)) = left {
                qp.recycle(message);
            }
            Err(None)
        }
    }
}

/// Copies what was inline to its place between what was read; returns whether all of it has a
/// place.
fn complete_stream(call: &ReceivedCall<'_>, pages: &mut PageVec) -> bool {
    let head = call.layout.head;
    let is_whole = head == 0 && call.layout.tail == 0;
    call.stream().all(|piece| {
        let bytes = match piece.source {
            Source::Inline(from) if is_whole => call.payload.and_then(|payload| {
                let from = usize::try_from(from).ok()?;
                payload
                    .get(from..)?
                    .get(..usize::try_from(piece.length).ok()?)
            }),
            Source::RoundUp => usize::try_from(piece.length)
                .ok()
                .and_then(|length| [0; 3].as_slice().get(..length)),
            Source::Inline(_) | Source::Read { .. } => return true,
        };
        let at = usize::try_from(piece.at.saturating_sub(head));
        match (at, bytes) {
            (Ok(at), Some(bytes)) => pages.copy_in(at, bytes),
            _ => false,
        }
    })
}

/// Handles a message that is refused, as the protocol requires. If it is answered, it counts as one
/// that asks for `credits`, unless it was counted when it came.
fn refuse(
    qp: &AcceptedQp<IncomingCalls>,
    mut message: Message,
    credits: Option<Credits>,
    refusal: ResponderRefusal,
) {
    let _scope = NoIoScope::enter();
    let incoming = qp.context();
    let is_counted = message.note().is_outstanding;
    let credits = credits.filter(|_| !is_counted);
    message.with_note().1.is_outstanding = is_counted && refusal == ResponderRefusal::Discard;
    incoming.stats().counters.refused_messages.increment();
    match refusal {
        ResponderRefusal::Discard => {}
        ResponderRefusal::Answer(error) => match credits {
            Some(credits) => {
                incoming.refused(credits);
                reply::send_error(qp, &error, false);
            }
            None => reply::fail_call(qp, &error, false),
        },
        ResponderRefusal::GarbageArgs(error) => {
            if let Some(credits) = credits {
                if error.version != VERSION_ONE {
                    incoming.called_in_version_two();
                }
                incoming.called(credits);
            }
            reply::send_garbage_args(qp, message.bytes(), &error);
        }
    }
    discard(qp, message);
}

/// Releases a message that the service is not given.
fn discard(qp: &AcceptedQp<IncomingCalls>, message: Message) {
    forget(qp, message);
    qp.context().replace_receive(qp);
}

/// Releases a message that the service was given, and may have answered.
pub(super) fn release(qp: &AcceptedQp<IncomingCalls>, message: Message) {
    if forget(qp, message) {
        qp.context().replace_receive(qp);
    }
}

/// Releases a message; returns whether it was a Call that has no answer.
fn forget(qp: &AcceptedQp<IncomingCalls>, message: Message) -> bool {
    let was_outstanding = message.note().is_outstanding;
    qp.recycle(message);
    if was_outstanding {
        qp.context().dropped();
    }
    was_outstanding
}
