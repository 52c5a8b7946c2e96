// SPDX-License-Identifier: GPL-2.0

//! From an RPC to one chain of work requests: the plan, the regions, the header, the Send.

use super::{
    chunks::Offer,
    connection::{mark_of, Connection},
    Client, BACKWARD_SLOTS,
};
use crate::{
    error::Cause,
    proto::{
        call::encode_call,
        chunk::{ReadSegment, Segment},
        header::{Credits, FixedHeader, Xid, VERSION_ONE},
        plan::{plan, CallForm, Parts, Plan, ReplyForm, RpcShape, Side},
        reply::encode_backward,
    },
    rdma::{Access, Idle, Mapped, MrList, QueuePair, SendBuffer},
    sunrpc::{BackwardReply, MessagePart, Rqst, SendError, XdrBuf},
    trace,
};
use core::num::NonZeroUsize;
use kernel::{prelude::*, sync::atomic::Relaxed, sync::Arc};

/// Sends the Call of `rqst`, under the send lock.
///
/// # Errors
///
/// [`SendError`]. For [`SendError::Busy`] the sender was told to wait for space.
pub(super) fn send(
    client: &Client,
    qp: &Arc<QueuePair<Connection>>,
    rqst: &Rqst,
) -> Result<(), SendError> {
    let connection = qp.context();
    if !client.xprt.take_credit(rqst) {
        return Err(SendError::NoCredit);
    }
    // Sending twice on one connection would spend two credits on one Reply.
    if rqst.is_retransmission(&client.xprt) {
        return Err(disconnect(client, Cause::Retransmission));
    }
    rqst.reply()
        .fill_sparse_pages()
        .map_err(|_| SendError::NoMemory)?;
    let shape = shape(rqst, connection.regions.pages());
    let plan = plan(&shape, &connection.plan_limits()).map_err(|_| SendError::TooLarge)?;

    let parts = parts_of(rqst, &plan);
    let pages = connection.regions.pages();
    let needed =
        count_regions(&parts.reads, pages).saturating_add(count_regions(&parts.results, pages));
    let resources = wait_for(client, || Resources::acquire(client, qp, rqst, needed))?;
    let sent = transmit(client, connection, rqst, &plan, &parts, resources);
    if sent == Err(SendError::NotConnected) {
        return Err(disconnect(client, Cause::PostFailed));
    }
    sent?;
    count(client, &plan);
    // Without a Reply the credit would never come back.
    if !rqst.reply_expected() {
        return Err(disconnect(client, Cause::OneWayCall));
    }
    Ok(())
}

/// Gets what comes back with a completion, or has the sender wait for one.
fn wait_for<T>(client: &Client, mut acquire: impl FnMut() -> Option<T>) -> Result<T, SendError> {
    if let Some(found) = acquire() {
        return Ok(found);
    }
    // Look again after asking to be woken, or a completion in between would be missed.
    client.xprt.wait_for_space();
    let found = acquire().ok_or(SendError::Busy)?;
    // Nobody may be left waiting for a wake-up that is not needed.
    client.xprt.write_space();
    Ok(found)
}

/// Closes the connection from within a send.
fn disconnect(client: &Client, cause: Cause) -> SendError {
    client.end(cause);
    SendError::NotConnected
}

/// The parts of an RPC's messages that have to be registered.
struct Registrations<'a> {
    reads: [Option<MessagePart<'a>>; 3],
    results: [Option<MessagePart<'a>>; 3],
}

/// Regions that these parts need.
fn count_regions(parts: &[Option<MessagePart<'_>>], pages: NonZeroUsize) -> usize {
    parts
        .iter()
        .flatten()
        .map(|part| part.region_count(pages))
        .sum()
}

/// What `plan` wants registered.
fn parts_of<'a>(rqst: &'a Rqst, plan: &Plan) -> Registrations<'a> {
    let (call, reply) = (rqst.call(), rqst.reply());
    Registrations {
        reads: match plan.call {
            CallForm::Inline => [None; 3],
            CallForm::ReadChunk { .. } => [call.pages(), None, None],
            CallForm::PositionZero => [call.head(), call.pages(), call.tail()],
        },
        results: match plan.reply {
            ReplyForm::Inline => [None; 3],
            ReplyForm::WriteChunk => [reply.pages(), None, None],
            ReplyForm::ReplyChunk => [reply.head(), reply.pages(), reply.tail()],
        },
    }
}

/// The sizes that the plan is made from.
fn shape(rqst: &Rqst, pages: NonZeroUsize) -> RpcShape {
    let allowed = rqst.placement_allowed();
    let (call, reply) = (rqst.call(), rqst.reply());
    RpcShape {
        call: side(&call, pages, allowed && call.is_write()),
        reply: side(&reply, pages, allowed && reply.is_read()),
    }
}

fn side(message: &XdrBuf<'_>, pages: NonZeroUsize, pages_eligible: bool) -> Side {
    // A length that does not fit makes the plan fail.
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    let segments =
        |part: Option<MessagePart<'_>>| part.map_or(0, |part| length(part.region_count(pages)));
    Side {
        len: Parts {
            head: length(message.head_len()),
            pages: length(message.page_len()),
            tail: length(message.tail_len()),
        },
        segments: Parts {
            head: segments(message.head()),
            pages: segments(message.pages()),
            tail: segments(message.tail()),
        },
        pages_eligible,
    }
}

/// All that a Call takes from the connection.
struct Resources<'a> {
    buffer: SendBuffer<'a>,
    idle: MrList<Idle>,
    /// The chunk entry, if there are regions.
    entry: Option<usize>,
}

impl<'a> Resources<'a> {
    /// Takes all of it, or nothing.
    fn acquire(
        client: &Client,
        qp: &'a QueuePair<Connection>,
        rqst: &Rqst,
        regions: usize,
    ) -> Option<Self> {
        let connection = qp.context();
        let Some(buffer) = qp.send_buffer() else {
            client.stats.send_queue_full.increment();
            return None;
        };
        if regions == 0 {
            return Some(Self {
                buffer,
                idle: MrList::new(),
                entry: None,
            });
        }
        let entry = connection.chunks.reserve()?;
        let Some(idle) = connection.regions.take(regions) else {
            client.stats.regions_exhausted.increment();
            trace::xprtrdma_nomrs_err(&client.xprt, rqst);
            connection.chunks.unreserve(entry);
            return None;
        };
        Some(Self {
            buffer,
            idle,
            entry: Some(entry),
        })
    }
}

/// Registers, encodes and posts.
fn transmit(
    client: &Client,
    connection: &Connection,
    rqst: &Rqst,
    plan: &Plan,
    parts: &Registrations<'_>,
    resources: Resources<'_>,
) -> Result<(), SendError> {
    let Resources {
        mut buffer,
        idle,
        entry,
    } = resources;
    let xid = rqst.xid();
    let mapped = map(connection, parts, idle, xid);
    let built = mapped.and_then(|(regions, reads)| {
        match build(
            client,
            connection,
            rqst,
            plan,
            &regions,
            reads,
            buffer.bytes(),
        ) {
            Ok(length) => Ok((regions, reads, length)),
            Err(error) => {
                connection.regions.put(regions.unmap());
                Err(error)
            }
        }
    });
    let (regions, reads, length) = match built {
        Ok(built) => built,
        Err(error) => {
            if let Some(index) = entry {
                connection.chunks.unreserve(index);
            }
            return Err(error);
        }
    };
    rqst.start_clock();
    rqst.count_sent();
    let posted = match entry {
        None => {
            rqst.mark().store(0, Relaxed);
            buffer.send(length)
        }
        Some(index) => buffer.register_and_send(length, regions, index, || {
            let offer = Offer {
                reads,
                is_reply_chunk: plan.reply == ReplyForm::ReplyChunk,
                form: plan.into(),
            };
            connection.chunks.offer(index, xid, offer);
            rqst.mark().store(mark_of(index), Relaxed);
        }),
    };
    posted.map_err(|_| SendError::NotConnected)
}

/// Maps what the plan wants: the regions in the order of the lists, and how many are the Read
/// list's.
fn map(
    connection: &Connection,
    parts: &Registrations<'_>,
    mut idle: MrList<Idle>,
    xid: u32,
) -> Result<(MrList<Mapped>, usize), SendError> {
    let mut regions = MrList::new();
    let mut add = |part: MessagePart<'_>, access| -> Result<(), SendError> {
        let mut rest = Some(part);
        while let Some(part) = rest {
            let (piece, next) = part.split(connection.regions.pages().get());
            rest = next;
            // The count was made from the same parts.
            let region = idle.pop().ok_or(SendError::Failed)?;
            match region.map(&piece, access, xid) {
                Ok(region) => regions.push_back(region),
                Err((region, error)) => {
                    idle.push_front(region);
                    return Err(if error == ENOMEM {
                        SendError::NoMemory
                    } else {
                        SendError::Failed
                    });
                }
            }
        }
        Ok(())
    };
    let mut mapped = Ok(());
    for (list, access) in [
        (&parts.reads, Access::RemoteRead),
        (&parts.results, Access::RemoteWrite),
    ] {
        for part in list.iter().flatten() {
            mapped = mapped.and_then(|()| add(*part, access));
        }
    }
    // Empty unless the mapping failed.
    if !idle.is_empty() {
        connection.regions.put(idle);
    }
    match mapped {
        Ok(()) => Ok((
            regions,
            count_regions(&parts.reads, connection.regions.pages()),
        )),
        Err(error) => {
            connection.regions.put(regions.unmap());
            Err(error)
        }
    }
}

/// Writes the message into `buffer`; its length.
fn build(
    client: &Client,
    connection: &Connection,
    rqst: &Rqst,
    plan: &Plan,
    regions: &MrList<Mapped>,
    reads: usize,
    buffer: &mut [u8],
) -> Result<usize, SendError> {
    let fixed = FixedHeader {
        xid: Xid(rqst.xid()),
        version: VERSION_ONE,
        credits: connection.requested_credits(),
        procedure: plan.procedure(),
    };
    let segments = regions.extents().map(|extent| Segment {
        handle: extent.handle,
        length: extent.length,
        offset: extent.offset,
    });
    trace::xprtrdma_chunks(rqst, plan, segments.clone(), reads);
    let position = match plan.call {
        CallForm::ReadChunk { position, .. } => position,
        CallForm::Inline | CallForm::PositionZero => 0,
    };
    let read_list = segments
        .clone()
        .take(reads)
        .map(|segment| ReadSegment { position, segment });
    let only = |form| if plan.reply == form { usize::MAX } else { 0 };
    let results = segments.skip(reads);
    let write_chunk = results.clone().take(only(ReplyForm::WriteChunk));
    let reply_chunk = results.clone().take(only(ReplyForm::ReplyChunk));
    let stats = &client.stats;
    stats.read_segments.add_len(read_list.clone().count());
    stats.write_segments.add_len(write_chunk.clone().count());
    stats.reply_segments.add_len(reply_chunk.clone().count());
    stats.offered_bytes.add(
        results
            .clone()
            .map(|segment| u64::from(segment.length))
            .sum(),
    );

    let header = encode_call(buffer, &fixed, read_list, [write_chunk], reply_chunk)
        .map_err(|_| SendError::TooLarge)?;
    trace::xprtrdma_marshal(rqst, plan, header);
    let rest = buffer.get_mut(header..).ok_or(SendError::TooLarge)?;
    let copied = copy_inline(&rqst.call(), plan, rest)?;
    stats.pullup_bytes.add_len(copied);
    header.checked_add(copied).ok_or(SendError::TooLarge)
}

/// Copies what of the Call goes inline; how many bytes.
fn copy_inline(call: &XdrBuf<'_>, plan: &Plan, to: &mut [u8]) -> Result<usize, SendError> {
    let too_large = |_| SendError::TooLarge;
    let length = usize::try_from(plan.inline_len).map_err(|_| SendError::TooLarge)?;
    let to = to.get_mut(..length).ok_or(SendError::TooLarge)?;
    match plan.call {
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
    Ok(length)
}

/// Counts a Call by its form.
fn count(client: &Client, plan: &Plan) {
    let stats = &client.stats;
    match plan.call {
        CallForm::Inline => stats.inline_calls.increment(),
        CallForm::ReadChunk { .. } => stats.read_chunk_calls.increment(),
        CallForm::PositionZero => stats.position_zero_calls.increment(),
    }
    match plan.reply {
        ReplyForm::Inline => stats.inline_replies_expected.increment(),
        ReplyForm::WriteChunk => stats.write_chunk_calls.increment(),
        ReplyForm::ReplyChunk => stats.reply_chunk_calls.increment(),
    }
}

/// Sends a backward Reply, which is inline always, under the send lock.
///
/// # Errors
///
/// As [`send`]; [`SendError::TooLarge`] if the Reply does not fit the inline threshold.
pub(super) fn send_backward(
    client: &Client,
    qp: &QueuePair<Connection>,
    reply: &BackwardReply<'_>,
) -> Result<(), SendError> {
    let mut buffer = wait_for(client, || qp.send_buffer())?;
    let limit = usize::try_from(qp.context().plan_limits().inline_send).unwrap_or(0);
    let bytes = buffer.bytes();
    let header = encode_backward(
        bytes,
        VERSION_ONE,
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
    trace::xprtrdma_cb_reply(&client.xprt, reply.xid());
    buffer
        .send(end)
        .map_err(|_| disconnect(client, Cause::PostFailed))
}
