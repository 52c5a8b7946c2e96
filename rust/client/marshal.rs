// SPDX-License-Identifier: GPL-2.0

//! From an RPC to one chain of work requests: the plan, the regions, the header, the Send.

use super::{
    chunks::Offer,
    connection::{Connection, SentCall},
    limits::{BACKWARD_SLOTS, MAX_SEGMENTS},
    mapping::{self, MessageRegions},
    regions::{Capacity, Regions, WithGaps},
    transport::Transport,
    version::Terms,
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
            header::{Credits, FixedHeader, Xid, VERSION_ONE},
        },
    },
    rdma::{Idle, MrList, SendBuffer, Sender},
    stats::Form,
    sunrpc::client::{BackwardReply, Rqst, RqstBuf, SendError},
    trace,
};
use core::iter::empty;
use kernel::{prelude::*, sync::Arc};

/// The sender of a connection, and the limits of its messages.
pub(super) struct LimitedSender {
    pub(super) sender: Sender<Connection>,
    limits: PlanLimits,
    /// Whether the limits, and the version, may change.
    is_open: bool,
}

impl LimitedSender {
    /// The sender of a connection that begins with these terms.
    pub(super) fn new(sender: Sender<Connection>, terms: &Terms) -> Self {
        Self {
            sender,
            limits: limits(terms),
            is_open: !terms.is_final,
        }
    }

    /// Adopts what both ends have agreed on meanwhile.
    ///
    /// # Errors
    ///
    /// [`SendError::NotConnected`] if no version is common to both ends.
    fn follow(&mut self, transport: &Transport) -> Result<(), SendError> {
        let Some(terms) = self.sender.qp().context().version.follow() else {
            return Err(disconnect(transport, Cause::NoCommonVersion));
        };
        self.limits = limits(&terms);
        self.is_open = !terms.is_final;
        Ok(())
    }
}

/// The limits of messages that are sent on these terms.
fn limits(terms: &Terms) -> PlanLimits {
    PlanLimits {
        inline_send: terms.thresholds.send,
        inline_receive: terms.thresholds.receive,
        max_segments: MAX_SEGMENTS,
    }
}

/// Sends the Call of `rqst`, which has a credit.
///
/// # Errors
///
/// [`SendError`]. For [`SendError::Busy`] the sender was told to wait for space.
pub(super) fn send(
    transport: &Transport,
    sending: &mut LimitedSender,
    rqst: &Rqst,
) -> Result<(), SendError> {
    // Sending twice on one connection would spend two credits on one Reply.
    if rqst.is_of_connection(&transport.xprt) {
        return Err(disconnect(transport, Cause::Retransmission));
    }
    if sending.is_open {
        sending.follow(transport)?;
    }
    // The peer of an earlier connection can reach its memory: the RPC can never be completed.
    if rqst.is_lost() {
        return Err(SendError::Failed);
    }
    let LimitedSender { sender, limits, .. } = sending;
    let connection = sender.qp().context();
    let room = rqst.reply().fill().map_err(|_| SendError::NoMemory)?;
    let shape = shape(rqst, room, connection.regions.capacity());
    let Ok(plan) = plan(&shape, limits) else {
        return Err(SendError::TooLarge);
    };
    let reply = shape.reply.len;

    let sent = if plan.is_inline() {
        send_inline(transport, sender, rqst, &plan)
    } else {
        send_with_chunks(transport, sender, rqst, room, &plan, &reply)
    };
    if sent == Err(SendError::NotConnected) {
        return Err(disconnect(transport, Cause::PostFailed));
    }
    sent?;
    transport.calls.record(Form::from(&plan));
    // Without a Reply the credit would never come back.
    if !rqst.reply_expected() {
        return Err(disconnect(transport, Cause::OneWayCall));
    }
    Ok(())
}

/// Sends a Call that offers no memory.
fn send_inline(
    transport: &Transport,
    sender: &mut Sender<Connection>,
    rqst: &Rqst,
    plan: &Plan,
) -> Result<(), SendError> {
    let mut buffer = send_buffer(transport, sender).ok_or(SendError::Busy)?;
    let connection = buffer.qp().context();
    let length = build(
        transport,
        connection,
        rqst,
        plan,
        empty(),
        0,
        buffer.bytes(),
    )?;
    rqst.start();
    let cookie = connection.cookie(SentCall::Inline);
    rqst.cookie().set(cookie.ok_or(SendError::Failed)?);
    buffer.send(length).map_err(|_| SendError::NotConnected)
}

/// Sends a Call with a Read chunk, Write chunk or Reply chunk. `reply` has the lengths of the
/// buffer for the Reply.
fn send_with_chunks(
    transport: &Transport,
    sender: &mut Sender<Connection>,
    rqst: &Rqst,
    room: RqstBuf<'_>,
    plan: &Plan,
    reply: &Parts,
) -> Result<(), SendError> {
    let needed = narrow(plan.reads)?.saturating_add(narrow(plan.results)?);
    let buffer = send_buffer(transport, sender).ok_or(SendError::Busy)?;
    let regions = &buffer.qp().context().regions;
    let which = if regions.capacity().has_gaps() {
        mapping::with_gaps(
            (plan.call == CallForm::PositionZero).then_some(rqst.call()),
            (plan.reply == ReplyForm::ReplyChunk).then_some(room),
            regions.capacity(),
        )
    } else {
        WithGaps::Neither
    };
    let mut idle = MrList::new();
    let entry = take(transport, regions, rqst, (needed, which), &mut idle);
    let entry = entry.ok_or(SendError::Busy)?;
    transmit(transport, buffer, rqst, room, plan, entry, idle)?;
    count_segments(transport, plan, reply);
    Ok(())
}

/// A number of regions, or of bytes.
fn narrow(count: u32) -> Result<usize, SendError> {
    usize::try_from(count).map_err(|_| SendError::TooLarge)
}

/// A buffer for the next Send. If there is none, the sender was told to wait for space.
fn send_buffer<'a>(
    transport: &Transport,
    sender: &'a mut Sender<Connection>,
) -> Option<SendBuffer<'a, Connection>> {
    sender.buffer(|sender| {
        transport.stats.send_queue_full.increment();
        look_again(transport, &mut || sender.has_room().then_some(()));
    })
}

/// Takes a chunk entry, and the regions that are `needed`, which are added to `taken`. If there are
/// not enough, the sender was told to wait for space.
fn take(
    transport: &Transport,
    regions: &Arc<Regions>,
    rqst: &Rqst,
    needed: (usize, WithGaps),
    taken: &mut MrList<Idle>,
) -> Option<usize> {
    regions
        .take(rqst, needed, taken)
        .or_else(|| look_again(transport, &mut || regions.take(rqst, needed, taken)))
}

/// Makes the sender wait for a resource that a completion returns, unless it has become available
/// in the meantime.
fn look_again<T>(transport: &Transport, acquire: &mut dyn FnMut() -> Option<T>) -> Option<T> {
    // Try again after asking to be woken, or a completion in between would be missed.
    transport.xprt.wait_for_space();
    let found = acquire()?;
    // Cancels the request to be woken, which is no longer needed.
    transport.xprt.write_space();
    Some(found)
}

/// Closes the connection from within a send.
fn disconnect(transport: &Transport, cause: Cause) -> SendError {
    transport.end(cause);
    SendError::NotConnected
}

/// The sizes that the plan is made from.
fn shape<'a>(
    rqst: &'a Rqst,
    reply: RqstBuf<'a>,
    capacity: &'a Capacity,
) -> RpcShape<MessageRegions<'a>> {
    let call = rqst.call();
    let (write, read) = (call.is_write(), reply.is_read());
    let allowed = (write || read) && rqst.placement_allowed();
    RpcShape {
        call: side(call, capacity, allowed && write),
        reply: side(reply, capacity, allowed && read),
    }
}

fn side<'a>(
    message: RqstBuf<'a>,
    capacity: &'a Capacity,
    pages_eligible: bool,
) -> Side<MessageRegions<'a>> {
    // A length that does not fit makes the plan fail: nothing that long fits inline or into the
    // segments of a list.
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    Side {
        len: Parts {
            head: length(message.head_len()),
            pages: length(message.page_len()),
            tail: length(message.tail_len()),
        },
        segments: MessageRegions { message, capacity },
        pages_eligible,
    }
}

/// Registers, encodes and posts.
fn transmit(
    transport: &Transport,
    mut buffer: SendBuffer<'_, Connection>,
    rqst: &Rqst,
    room: RqstBuf<'_>,
    plan: &Plan,
    entry: usize,
    mut idle: MrList<Idle>,
) -> Result<(), SendError> {
    let connection = buffer.qp().context();
    let mut regions = MrList::new();
    let mapped = mapping::map(connection, rqst, room, plan, &mut idle, &mut regions);
    let built = mapped.and_then(|()| {
        let reads = narrow(plan.reads)?;
        let segments = regions.extents().map(|extent| Segment {
            handle: extent.handle,
            length: extent.length,
            offset: extent.offset,
        });
        let bytes = buffer.bytes();
        let length = build(transport, connection, rqst, plan, segments, reads, bytes)?;
        let cookie = connection.cookie(SentCall::WithChunks(entry));
        Ok((length, reads, cookie.ok_or(SendError::Failed)?))
    });
    let (length, reads, cookie) = match built {
        Ok(built) => built,
        Err(error) => {
            connection.regions.put_all(idle, None);
            connection.regions.put_all(regions.unmap(), Some(entry));
            return Err(error);
        }
    };
    rqst.start();
    let xid = rqst.xid();
    buffer
        .register_and_send(length, regions, entry, |slot| {
            let offer = Offer {
                reads,
                reply: plan.reply,
                form: plan.into(),
            };
            slot.offer(xid, offer);
            rqst.cookie().set(cookie);
        })
        .map_err(|_| SendError::NotConnected)
}

/// Writes the message into `buffer`; returns its length. The first `reads` of `segments` belong to
/// the Read list.
fn build(
    transport: &Transport,
    connection: &Connection,
    rqst: &Rqst,
    plan: &Plan,
    segments: impl Iterator<Item = Segment> + Clone,
    reads: usize,
    buffer: &mut [u8],
) -> Result<usize, SendError> {
    let position = match plan.call {
        CallForm::ReadChunk { position, .. } => position,
        CallForm::Inline | CallForm::PositionZero => 0,
    };
    let traced = segments.clone();
    let traced = traced.map(|segment| (segment.handle, segment.length, segment.offset));
    let is_reply_chunk = plan.reply == ReplyForm::ReplyChunk;
    trace::xprtrdma_chunks(rqst, position, is_reply_chunk, traced, reads);
    let read_list = segments
        .clone()
        .take(reads)
        .map(|segment| ReadSegment { position, segment });
    let only = |form| if plan.reply == form { usize::MAX } else { 0 };
    let results = segments.skip(reads);
    let write_chunk = results.clone().take(only(ReplyForm::WriteChunk));
    let reply_chunk = results.clone().take(only(ReplyForm::ReplyChunk));
    // Made after the trace event, so that its words need not be kept meanwhile.
    let fixed = FixedHeader {
        xid: Xid(rqst.xid()),
        version: connection.version.of_next_call(),
        credits: connection.requested_credits(),
        procedure: plan.procedure(),
    };
    let header = encode_call(buffer, &fixed, read_list, [write_chunk], reply_chunk)
        .map_err(|_| SendError::TooLarge)?;
    let form = Form::from(plan);
    trace::xprtrdma_marshal(rqst, header, form.call, form.reply);
    let copied = narrow(plan.inline_len)?;
    let rest = buffer.get_mut(header..).ok_or(SendError::TooLarge)?;
    let rest = rest.get_mut(..copied).ok_or(SendError::TooLarge)?;
    copy_inline(&rqst.call(), plan.call, rest)?;
    transport.stats.pullup_bytes.add_len(copied);
    let length = header.checked_add(copied).ok_or(SendError::TooLarge)?;
    if connection.version.of_next_call() != VERSION_ONE {
        let message = buffer.get(..length).ok_or(SendError::TooLarge)?;
        let noted = connection.version.sends(Xid(rqst.xid()), message);
        noted.map_err(|_| SendError::TooLarge)?;
    }
    Ok(length)
}

/// Copies the inline part of the Call, all of `to`.
fn copy_inline(call: &RqstBuf<'_>, form: CallForm, to: &mut [u8]) -> Result<(), SendError> {
    let too_large = |_| SendError::TooLarge;
    match form {
        CallForm::Inline => call.copy_out(0, to).map_err(too_large)?,
        CallForm::ReadChunk { tail_skip, .. } => {
            let (head, tail) = to
                .split_at_mut_checked(call.head_len())
                .ok_or(SendError::TooLarge)?;
            call.copy_out(0, head).map_err(too_large)?;
            let skip = usize::try_from(tail_skip).map_err(|_| SendError::TooLarge)?;
            let base = call
                .head_len()
                .saturating_add(call.page_len())
                .saturating_add(skip);
            if !tail.is_empty() {
                call.copy_out(base, tail).map_err(too_large)?;
            }
        }
        CallForm::PositionZero => {}
    }
    Ok(())
}

/// Counts what a Call offers.
fn count_segments(transport: &Transport, plan: &Plan, reply: &Parts) {
    let stats = &transport.stats;
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
/// As [`send`]; [`SendError::TooLarge`] if the Reply does not fit the inline threshold.
pub(super) fn send_backward(
    transport: &Transport,
    sending: &mut LimitedSender,
    reply: &BackwardReply<'_>,
) -> Result<(), SendError> {
    if sending.is_open {
        sending.follow(transport)?;
    }
    let LimitedSender { sender, limits, .. } = sending;
    let connection = sender.qp().context();
    let Some(version) = connection.backward_version(reply.connection()) else {
        transport.stats.backward_replies_dropped.increment();
        return Ok(());
    };
    let mut buffer = send_buffer(transport, sender).ok_or(SendError::Busy)?;
    // CAST: A u32 always fits the kernel's usize.
    let limit = limits.inline_send as usize;
    let bytes = buffer.bytes();
    let header = encode_inline(
        bytes,
        version,
        Xid(reply.xid()),
        Credits::new(BACKWARD_SLOTS),
    )
    .map_err(|_| SendError::TooLarge)?;
    let end = header.saturating_add(reply.len());
    if end > limit {
        return Err(SendError::TooLarge);
    }
    let room = bytes.get_mut(header..end).ok_or(SendError::TooLarge)?;
    reply.copy_out(room).map_err(|_| SendError::TooLarge)?;
    trace::xprtrdma_cb_reply(&transport.xprt, reply.xid());
    buffer
        .send(end)
        .map_err(|_| disconnect(transport, Cause::PostFailed))
}
