// SPDX-License-Identifier: GPL-2.0

//! The Reply to a forward Call: what goes by RDMA Write, what in the Send.

use super::fabric::Fabric;
use super::faults;
use super::message::{Kind, Message};
use super::payload::{index, short, Payload, PARTS};
use super::queue::Access;
use super::responder::Responder;
use super::rpc::{Fate, Rpc};
use super::service::decode;
use super::world::World;
use super::{Direction, End, Failure};
use crate::proto::testing::responder::decode::ReceivedCall;
use crate::proto::testing::responder::encode::encode_reply;
use crate::proto::testing::responder::negotiation::ResponderEvent;
use crate::proto::testing::responder::placement::{Place, Placement, ReplyPart};
use crate::proto::wire::chunk::{Chunk, Segment};
use crate::proto::wire::error::ErrorBody;
use crate::proto::wire::header::{Credits, FixedHeader};

/// A Reply in its buffer.
struct Prepared {
    version: u32,
    /// Bytes of the header.
    header: usize,
    /// Bytes of the message.
    length: usize,
    /// The handle that its arrival is to invalidate.
    invalidate: Option<u32>,
    /// The length of the first segment that the Call offered.
    offered: u32,
    /// Whether all that was asked for is granted.
    may_grant_more: bool,
}

impl Responder<'_> {
    /// Answers a Call that is served, if its connection still is there.
    ///
    /// # Errors
    ///
    /// What is wrong with the Reply.
    pub(super) fn reply(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        let Some(slot) = self.job(number)?.slot.take() else {
            return Ok(());
        };
        let limit = world.fabric.grant(End::Responder);
        self.grants.set_limit(Credits::new(limit));
        self.post_receives(&mut world.fabric);
        let rpc = world.rpc(number)?;
        let buffer = world.messages.take()?;
        let prepared = self.prepare(world, (number, &rpc), (slot, buffer))?;
        let version = decode(world.messages.bytes(slot))?.version;
        world.messages.free(slot);
        let Some(prepared) = prepared else {
            world.messages.free(buffer);
            return self.refuse(world, number, version, ErrorBody::Chunk);
        };
        self.send_reply(world, &rpc, buffer, &prepared)?;
        match self.negotiation.handle(ResponderEvent::Replied(version)) {
            None => Ok(()),
            Some(agreed) if agreed == version => Ok(()),
            Some(_) => Err(Failure::Negotiation),
        }
    }

    /// Writes a Reply into its buffer, and posts its RDMA Writes; `None` if it fits nowhere.
    fn prepare(
        &mut self,
        world: &mut World<'_>,
        (number, rpc): (usize, &Rpc),
        (slot, buffer): (usize, usize),
    ) -> Result<Option<Prepared>, Failure> {
        let World {
            fabric, messages, ..
        } = world;
        let (request, buffer) = messages.pair(slot, buffer);
        let call = decode(request)?;
        let payload = rpc.reply_payload();
        let thresholds = self.negotiation.thresholds(call.version);
        let Some(placement) = place(&payload, &call, thresholds.send, fabric) else {
            return Ok(None);
        };
        let mut writer = RdmaWriter {
            fabric,
            rpc: number,
            generation: self.generation,
        };
        writer.write(&payload, &call, &placement)?;

        let replies = self.credits.outstanding();
        let credits = self.grants.reply(self.receives.for_calls(replies));
        if credits.get() > call.credits.get() {
            return Err(Failure::Grant(credits.get()));
        }
        let fixed = FixedHeader {
            xid: call.xid,
            version: call.version,
            credits,
            procedure: placement.procedure(),
        };
        let chunks = (0..).zip(call.lists.writes.chunks());
        let writes = chunks.map(|(number, chunk)| chunk.filled(placement.write_len(number)));
        let used = placement.reply_chunk_len;
        let reply = call.lists.reply.map(|chunk| chunk.filled(used));
        let header = encode_reply(buffer, &fixed, writes, reply).map_err(|_| Failure::NoSpace)?;
        if short(header) != placement.header_len {
            return Err(Failure::HeaderLength);
        }
        let length = put_inline(&payload, &placement, buffer, header).ok_or(Failure::NoSpace)?;
        if length != header + index(placement.inline_len) {
            return Err(Failure::HeaderLength);
        }
        Ok(Some(Prepared {
            version: call.version,
            header,
            length,
            invalidate: invalidate(&call, thresholds.remote_invalidation, fabric),
            offered: first_offered(&call),
            // With less granted there are fewer Receives than the requester could use.
            may_grant_more: credits == call.credits,
        }))
    }

    /// Sends a Reply, or what is to arrive in its place.
    fn send_reply(
        &mut self,
        world: &mut World<'_>,
        rpc: &Rpc,
        slot: usize,
        prepared: &Prepared,
    ) -> Result<(), Failure> {
        let is_faulty = world.fabric.scenario.faults && world.fabric.random.one_in(8);
        let is_generous = prepared.may_grant_more && world.fabric.random.one_in(8);
        let buffer = world.messages.buffer(slot);
        let mut length = prepared.length;
        let mut kind = Kind::Reply(Direction::Forward);
        match rpc.fate {
            Fate::Answered(fault) => {
                let thresholds = self.negotiation.thresholds(prepared.version);
                let header = prepared.header;
                let spoiled = faults::spoil(fault, buffer, (header, length), prepared.offered);
                length = spoiled.min(index(thresholds.send));
                kind = Kind::BadReply(Direction::Forward);
            }
            Fate::OtherVersion => {
                faults::set_word(buffer, 1, 7);
                kind = Kind::UnknownReply;
            }
            // No peer may grant 0 credits; the requester takes it for 1.
            _ if is_faulty => faults::set_word(buffer, 2, 0),
            // More than was asked for may be granted, and is of no use.
            _ if is_generous => faults::set_word(buffer, 2, 64),
            _ => {}
        }
        let message = Message {
            to: End::Requester,
            generation: self.generation,
            length,
            kind,
            invalidate: prepared.invalidate,
        };
        let again = if rpc.fate == Fate::RepliedTwice {
            let copy = world.messages.take()?;
            world.messages.describe(slot, message);
            let (from, to) = world.messages.pair(slot, copy);
            for (byte, copied) in to.iter_mut().zip(from) {
                *byte = *copied;
            }
            Some(copy)
        } else {
            None
        };
        world.send(slot, message)?;
        let Some(copy) = again else {
            return Ok(());
        };
        let again = Message {
            kind: Kind::Other,
            invalidate: None,
            ..message
        };
        world.send(copy, again)
    }
}

/// Decides where the Reply goes, `None` if it fits nowhere.
fn place(
    payload: &Payload,
    call: &ReceivedCall<'_>,
    threshold: u32,
    fabric: &mut Fabric<'_>,
) -> Option<Placement<PARTS>> {
    let parts = payload.layout.parts().map(|part| ReplyPart {
        len: part.len,
        eligible: part.eligible,
    });
    // A responder may use a Reply chunk that it does not need, as if the threshold were lower.
    let lowest = if fabric.random.one_in(4) {
        600
    } else {
        threshold
    };
    let placement = call.place_reply(&parts, lowest.min(threshold));
    placement
        .or_else(|_| call.place_reply(&parts, threshold))
        .ok()
}

/// Writes what goes inline behind the header; the length of the whole message.
fn put_inline(
    payload: &Payload,
    placement: &Placement<PARTS>,
    buffer: &mut [u8],
    header: usize,
) -> Option<usize> {
    let mut length = header;
    for (part, place) in payload.layout.parts().into_iter().zip(placement.places) {
        if let Place::Inline { skip } = place {
            let end = length.checked_add(index(part.len - skip))?;
            payload.fill(part.start + skip, buffer.get_mut(length..end)?);
            length = end;
        }
    }
    Some(length)
}

/// The handle that the Reply to `call` invalidates: any one of the Call, or none.
fn invalidate(call: &ReceivedCall<'_>, is_allowed: bool, fabric: &mut Fabric<'_>) -> Option<u32> {
    if !is_allowed || fabric.random.one_in(4) {
        return None;
    }
    let reads = call.lists.reads.segments().map(|read| read.segment);
    let chunks = call.lists.writes.chunks().chain(call.lists.reply);
    let mut segments = reads.chain(chunks.flat_map(|chunk| chunk.segments()));
    let count = short(segments.clone().count());
    let chosen = index(fabric.random.below(count));
    segments.nth(chosen).map(|segment| segment.handle)
}

/// The length of the first segment that a Reply returns, 0 if it returns none.
fn first_offered(call: &ReceivedCall<'_>) -> u32 {
    let mut chunks = call.lists.writes.chunks().chain(call.lists.reply);
    let first = chunks.next().and_then(|chunk| chunk.segments().next());
    first.map_or(0, |segment| segment.length)
}

/// Writes a Reply into the requester's memory.
struct RdmaWriter<'a, 'b> {
    fabric: &'a mut Fabric<'b>,
    rpc: usize,
    generation: u32,
}

impl RdmaWriter<'_, '_> {
    /// Posts all RDMA Writes of a Reply.
    fn write(
        &mut self,
        payload: &Payload,
        call: &ReceivedCall<'_>,
        placement: &Placement<PARTS>,
    ) -> Result<(), Failure> {
        let mut rest = Segments::new(call.lists.reply);
        let mut writes = call.lists.writes.chunks().enumerate();
        let parts = payload.layout.parts();
        for (part, place) in parts.into_iter().zip(placement.places) {
            match place {
                Place::Inline { .. } => {}
                Place::WriteChunk(number) => {
                    let chunk = writes.find(|(index, _)| short(*index) == number);
                    let mut segments = Segments::new(chunk.map(|(_, chunk)| chunk));
                    self.put(&mut segments, part.start, part.len)?;
                    self.fabric.tally.write_chunks += 1;
                }
                Place::ReplyChunk { skip } => {
                    self.put(&mut rest, part.start + skip, part.len - skip)?;
                }
            }
        }
        self.fabric.tally.reply_chunks += u64::from(placement.reply_chunk_len != 0);
        Ok(())
    }

    /// Posts the RDMA Writes of `left` bytes of the Reply from `at` on.
    fn put<I: Iterator<Item = Segment>>(
        &mut self,
        segments: &mut Segments<I>,
        at: u32,
        left: u32,
    ) -> Result<(), Failure> {
        let (mut at, mut left) = (at, left);
        while left != 0 {
            let segment = segments.take(left).ok_or(Failure::NoSpace)?;
            let access = Access {
                rpc: self.rpc,
                generation: self.generation,
                handle: segment.handle,
                offset: segment.offset,
                length: segment.length,
            };
            self.fabric.post_write(access, at)?;
            at += segment.length;
            left -= segment.length;
        }
        Ok(())
    }
}

/// Segments of a chunk that are filled one after the other.
struct Segments<I> {
    left: I,
    free: Option<Segment>,
}

impl Segments<core::iter::Empty<Segment>> {
    /// The segments of `chunk`, if there is one.
    fn new<'a>(chunk: Option<Chunk<'a>>) -> Segments<impl Iterator<Item = Segment> + 'a> {
        let segments = chunk.into_iter().flat_map(|chunk| chunk.segments());
        Segments {
            left: segments.filter(|segment| segment.length != 0),
            free: None,
        }
    }
}

impl<I: Iterator<Item = Segment>> Segments<I> {
    /// The next piece, of at most `most` bytes.
    fn take(&mut self, most: u32) -> Option<Segment> {
        let segment = self.free.take().or_else(|| self.left.next())?;
        let length = most.min(segment.length);
        if length != segment.length {
            self.free = Some(Segment {
                length: segment.length - length,
                offset: segment.offset.wrapping_add(u64::from(length)),
                ..segment
            });
        }
        Some(Segment { length, ..segment })
    }
}
