// SPDX-License-Identifier: GPL-2.0

//! The Reply to a forward Call: what goes by RDMA Write, what in the Send.

use super::super::{
    call::Call,
    chunk::{header_len, Chunk, Segment},
    header::{Credits, ErrorBody, FixedHeader, Procedure},
    negotiate::{Action, ResponderEvent},
    reply::encode_reply,
};
use super::fabric::Fabric;
use super::faults;
use super::message::{Kind, Message};
use super::payload::{index, short, Payload, ITEMS, PARTS};
use super::queue::Access;
use super::responder::Responder;
use super::rpc::{Fate, Rpc};
use super::service::decode;
use super::world::World;
use super::{Direction, End, Failure};

/// Offset and length of the parts of a Reply that are not placed as items.
type Rest = [(u32, u32); PARTS];

/// What a Reply consists of.
struct Split {
    /// Offset and length of the item for each Write chunk, in their order.
    placed: [(u32, u32); ITEMS],
    rest: Rest,
}

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
        world.rpc_mut(number)?.replied += 1;
        self.send_reply(world, &rpc, buffer, &prepared)?;
        match self.negotiation.handle(ResponderEvent::Replied(version)) {
            None | Some(Action::Agree(_)) => Ok(()),
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
        let split = split(&payload, &call);
        let mut writes = call.lists.writes.chunks().zip(split.placed);
        if writes.any(|(chunk, (_, length))| chunk.length() < u64::from(length)) {
            return Ok(None);
        }

        let thresholds = self.negotiation.thresholds(call.version);
        let threshold = u64::from(thresholds.send);
        let count = |chunk: Chunk<'_>| short(chunk.segments().count());
        let chunk = call.lists.reply;
        let header = header_len(0, call.lists.writes.chunks().map(count), chunk.map(count));
        let total = split
            .rest
            .iter()
            .map(|&(_, length)| u64::from(length))
            .sum();
        let is_inline = header + total <= threshold;
        let fits = header <= threshold && chunk.is_some_and(|chunk| chunk.length() >= total);
        // A responder may use a Reply chunk that it does not need.
        let use_chunk = fits && (!is_inline || fabric.random.one_in(4));
        if !is_inline && !use_chunk {
            return Ok(None);
        }

        let mut placement = Placement {
            fabric,
            rpc: number,
            generation: self.generation,
        };
        for (chunk, item) in call.lists.writes.chunks().zip(split.placed) {
            placement.place(chunk.segments(), &[item])?;
            placement.fabric.tally.write_chunks += u64::from(item.1 != 0);
        }
        let used = if use_chunk { total } else { 0 };
        if let Some(chunk) = chunk.filter(|_| use_chunk) {
            placement.place(chunk.segments(), &split.rest)?;
            placement.fabric.tally.reply_chunks += 1;
        }

        let replies = self.credits.outstanding();
        let credits = self.grants.reply(self.receives.for_calls(replies));
        if credits.get() > call.credits.get() {
            return Err(Failure::Grant(credits.get()));
        }
        let fixed = FixedHeader {
            xid: call.xid,
            version: call.version,
            credits,
            procedure: if use_chunk {
                Procedure::Nomsg
            } else {
                Procedure::Msg
            },
        };
        let placed = split.placed.into_iter().chain(core::iter::repeat((0, 0)));
        let writes = call.lists.writes.chunks().zip(placed);
        let writes = writes.map(|(chunk, (_, length))| chunk.filled(u64::from(length)));
        let reply = chunk.map(|chunk| chunk.filled(used));
        let header = encode_reply(buffer, &fixed, writes, reply).map_err(|_| Failure::NoSpace)?;
        let mut length = header;
        if !use_chunk {
            for (at, bytes) in split.rest {
                let end = length + index(bytes);
                let place = buffer.get_mut(length..end).ok_or(Failure::NoSpace)?;
                payload.fill(at, place);
                length = end;
            }
        }
        Ok(Some(Prepared {
            version: call.version,
            header,
            length,
            invalidate: invalidate(&call, thresholds.remote_invalidation, fabric),
            offered: first_offered(&call),
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
            Fate::FirstOfOtherVersion if rpc.replied == 0 => {
                faults::set_word(buffer, 1, 7);
                kind = Kind::UnknownReply;
            }
            // No peer may grant 0 credits; the requester takes it for 1.
            _ if is_faulty => faults::set_word(buffer, 2, 0),
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

/// Decides which items go into the Write chunks of the Call: those that have data and may be placed
/// directly, in their order, until there are no more chunks.
fn split(payload: &Payload, call: &Call<'_>) -> Split {
    let mut chunks = call.lists.writes.chunks();
    let mut placed = [(0, 0); ITEMS];
    let mut slots = placed.iter_mut();
    let mut was_placed = false;
    let rest = payload.layout.parts().map(|part| {
        let skip = if was_placed { part.pad } else { 0 };
        was_placed = part.eligible && part.len != 0 && chunks.next().is_some();
        if !was_placed {
            return (part.start + skip, part.len - skip);
        }
        if let Some(slot) = slots.next() {
            *slot = (part.start, part.len);
        }
        (part.start, 0)
    });
    Split { placed, rest }
}

/// The handle that the Reply to `call` invalidates: any one of the Call, or none.
fn invalidate(call: &Call<'_>, is_allowed: bool, fabric: &mut Fabric<'_>) -> Option<u32> {
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
fn first_offered(call: &Call<'_>) -> u32 {
    let mut chunks = call.lists.writes.chunks().chain(call.lists.reply);
    let first = chunks.next().and_then(|chunk| chunk.segments().next());
    first.map_or(0, |segment| segment.length)
}

/// Places parts of a Reply in the requester's memory.
struct Placement<'a, 'b> {
    fabric: &'a mut Fabric<'b>,
    rpc: usize,
    generation: u32,
}

impl Placement<'_, '_> {
    /// Posts the RDMA Writes that put parts of the Reply into `segments`, one behind the other.
    fn place(
        &mut self,
        segments: impl Iterator<Item = Segment>,
        parts: &[(u32, u32)],
    ) -> Result<(), Failure> {
        let mut segments = segments.filter(|segment| segment.length != 0);
        let mut free = segments.next();
        for &(mut at, mut left) in parts {
            while left != 0 {
                let Segment {
                    handle,
                    length,
                    offset,
                } = free.ok_or(Failure::NoSpace)?;
                let piece = left.min(length);
                let access = Access {
                    rpc: self.rpc,
                    generation: self.generation,
                    handle,
                    offset,
                    length: piece,
                };
                self.fabric.post_write(access, at)?;
                at += piece;
                left -= piece;
                free = if piece == length {
                    segments.next()
                } else {
                    Some(Segment {
                        handle,
                        length: length - piece,
                        offset: offset.wrapping_add(u64::from(piece)),
                    })
                };
            }
        }
        Ok(())
    }
}
