// SPDX-License-Identifier: GPL-2.0

//! Forward Calls at the responder: fetched, served once, answered as often as they arrive.

use super::super::{
    call::{decode_call, Call, ReceivedByResponder},
    chunk::{header_len, Chunk, Segment},
    credit::granted,
    header::{Credits, ErrorBody, FixedHeader, Procedure, Versions, VERSION_ONE},
    reply::encode_reply,
};
use super::fabric::Fabric;
use super::faults;
use super::message::{Kind, Message, Messages};
use super::queue::{Access, Event};
use super::responder::Responder;
use super::rpc::{Fate, Rpc};
use super::stream::{index, round_up, short, Stream};
use super::world::World;
use super::{Direction, End, Failure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The Call has not arrived, or is lost with its connection.
    New,
    /// So many RDMA Reads are under way.
    Reading(u32),
    /// The upper layer has it.
    Serving,
    /// It is served.
    Served,
}

/// What the responder knows of a forward RPC: an entry of its duplicate request cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    state: State,
    /// The Call that is to be answered, if its connection still is there.
    slot: Option<usize>,
}

impl Job {
    /// What an unused place of the storage holds.
    pub(crate) const NONE: Self = Self {
        state: State::New,
        slot: None,
    };

    /// Forgets the connection.
    pub(super) fn disconnect(&mut self, messages: &mut Messages<'_>) {
        if let Some(slot) = self.slot.take() {
            messages.free(slot);
        }
        if matches!(self.state, State::Reading(_)) {
            self.state = State::New;
        }
    }
}

/// The Call in a message that was a Call before.
fn decode(bytes: &[u8]) -> Result<Call<'_>, Failure> {
    match decode_call(bytes, Versions::ONE) {
        Ok(ReceivedByResponder::Call(call)) => Ok(call),
        Ok(_) => Err(Failure::Storage),
        Err(refused) => Err(Failure::Refused(refused.why.cause)),
    }
}

impl Responder<'_> {
    fn job(&mut self, number: usize) -> Result<&mut Job, Failure> {
        self.jobs.get_mut(number).ok_or(Failure::Storage)
    }

    /// A Call has arrived.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or with what follows.
    pub(super) fn call(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        slot: usize,
    ) -> Result<(), Failure> {
        let rpc = world.rpc_mut(number)?;
        rpc.received += 1;
        let (fate, received) = (rpc.fate, rpc.received);
        let refusal = match fate {
            Fate::FirstLost if received == 1 => {
                world.messages.free(slot);
                return Ok(());
            }
            Fate::RefusedHeader => Some(ErrorBody::Chunk),
            Fate::RefusedVersion => Some(ErrorBody::Version(Versions { low: 2, high: 3 })),
            _ => None,
        };
        if let Some(body) = refusal {
            let version = decode(world.messages.bytes(slot))?.version;
            world.messages.free(slot);
            return self.refuse(world, number, version, body);
        }
        let job = self.job(number)?;
        if let Some(before) = job.slot.replace(slot) {
            // A requester does not send a Call twice on one connection.
            world.messages.free(before);
            return Err(Failure::Credits(Direction::Forward));
        }
        match job.state {
            State::New => self.fetch(world, number, slot),
            State::Reading(_) | State::Serving => {
                world.fabric.tally.duplicates += 1;
                Ok(())
            }
            State::Served => {
                world.fabric.tally.duplicates += 1;
                self.reply(world, number)
            }
        }
    }

    /// Puts the RPC message together, by RDMA Read where it has to.
    fn fetch(&mut self, world: &mut World<'_>, number: usize, slot: usize) -> Result<(), Failure> {
        let stream = world.rpc(number)?.call_stream();
        let generation = self.generation;
        let World {
            fabric, messages, ..
        } = world;
        let call = decode(messages.bytes(slot))?;
        let mut assembly = Assembly {
            fabric,
            call: &call,
            stream,
            rpc: number,
            generation,
            at: 0,
            taken: 0,
            reads: 0,
        };
        assembly.run()?;
        let reads = assembly.reads;
        self.job(number)?.state = State::Reading(reads);
        if reads == 0 {
            self.serve(world, number)?;
        }
        Ok(())
    }

    /// One RDMA Read of a Call is complete.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn read_done(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        generation: u32,
    ) -> Result<(), Failure> {
        let present = generation == self.generation;
        let job = self.job(number)?;
        match &mut job.state {
            State::Reading(left) if present => {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.serve(world, number)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Hands the Call to the upper layer.
    fn serve(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        self.job(number)?.state = State::Serving;
        let service = world.fabric.service();
        let served = Event::Served(number, self.incarnation);
        world.fabric.after(service, served)
    }

    /// The upper layer has served a Call.
    ///
    /// # Errors
    ///
    /// What is wrong with the Reply.
    pub(crate) fn served(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        incarnation: u32,
    ) -> Result<(), Failure> {
        if incarnation != self.incarnation {
            return Ok(());
        }
        world.served(number)?;
        self.job(number)?.state = State::Served;
        self.reply(world, number)
    }

    /// Answers a Call that is served, if its connection still is there.
    fn reply(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        let Some(slot) = self.job(number)?.slot.take() else {
            return Ok(());
        };
        let grant = world.fabric.grant(End::Responder);
        let rpc = world.rpc(number)?;
        let buffer = world.messages.take()?;
        let prepared = self.build(world, &rpc, number, (slot, buffer), grant)?;
        world.messages.free(slot);
        let Some(prepared) = prepared else {
            world.messages.free(buffer);
            return self.refuse(world, number, VERSION_ONE, ErrorBody::Chunk);
        };
        let more = prepared.receives.saturating_sub(self.receives);
        self.receives += more;
        let fabric = &mut world.fabric;
        fabric.post_receives(End::Responder, self.generation, 1 + more);
        world.rpc_mut(number)?.replied += 1;
        self.send_reply(world, &rpc, buffer, prepared)
    }

    /// Writes a Reply into its buffer, and posts its RDMA Writes; `None` if it fits nowhere.
    fn build(
        &self,
        world: &mut World<'_>,
        rpc: &Rpc,
        number: usize,
        (slot, buffer): (usize, usize),
        grant: u32,
    ) -> Result<Option<Prepared>, Failure> {
        let World {
            fabric, messages, ..
        } = world;
        let (request, buffer) = messages.pair(slot, buffer);
        let call = decode(request)?;
        let stream = rpc.reply_stream();
        let write = call.lists.writes.chunks().next();
        let chunk = call.lists.reply;
        let pages = u64::from(rpc.reply.pages);
        let placed = if rpc.eligible.1 && write.is_some() {
            pages
        } else {
            0
        };
        if write.is_some_and(|write| write.length() < placed) {
            return Ok(None);
        }
        let rest = Rest::new(&stream, placed != 0);
        let count = |chunk: Chunk<'_>| short(chunk.segments().count());
        let header = header_len(0, write.map(count), chunk.map(count));
        let threshold = u64::from(self.thresholds.send);
        let inline = header + u64::from(rest.total()) <= threshold;
        let room = chunk.map_or(0, |chunk| chunk.length());
        let fits = header <= threshold && room >= u64::from(rest.total());
        let use_chunk = fits && (!inline || fabric.random.one_in(4));
        if !inline && !use_chunk {
            return Ok(None);
        }
        let mut writer = Placement {
            fabric,
            rpc: number,
            generation: self.generation,
        };
        if let Some(write) = write.filter(|_| placed != 0) {
            writer.place(write.filled(placed), &[(stream.len.head, stream.len.pages)])?;
            writer.fabric.tally.write_chunks += 1;
        }
        let in_chunk = if use_chunk {
            u64::from(rest.total())
        } else {
            0
        };
        if let Some(chunk) = chunk.filter(|_| use_chunk) {
            writer.place(chunk.filled(in_chunk), &rest.ranges)?;
            writer.fabric.tally.reply_chunks += 1;
        }
        let procedure = if use_chunk {
            Procedure::Nomsg
        } else {
            Procedure::Msg
        };
        let credits = granted(call.credits, Credits::new(grant));
        if credits.get() > call.credits.get() {
            return Err(Failure::Grant(credits.get()));
        }
        let fixed = FixedHeader {
            xid: call.xid,
            version: call.version,
            credits,
            procedure,
        };
        let length = encode_reply(
            buffer,
            &fixed,
            write.map(|write| write.filled(placed)),
            chunk.map(|chunk| chunk.filled(in_chunk)),
        )
        .map_err(|_| Failure::NoSpace)?;
        let mut end = length;
        if !use_chunk {
            for (at, length) in rest.ranges {
                let next = end + index(length);
                stream.fill(at, buffer.get_mut(end..next).ok_or(Failure::NoSpace)?);
                end = next;
            }
        }
        let reads = call.lists.reads.segments().map(|read| read.segment);
        let writes = call.lists.writes.chunks().chain(chunk);
        let handles = reads.chain(writes.flat_map(|chunk| chunk.segments()));
        let first = write.or(chunk).and_then(|chunk| chunk.segments().next());
        Ok(Some(Prepared {
            header: length,
            length: end,
            receives: grant.min(call.credits.get()),
            invalidate: self.invalidate(fabric, handles),
            offered: first.map_or(0, |segment| segment.length),
        }))
    }

    /// The handle of a Call that its Reply invalidates.
    fn invalidate(
        &self,
        fabric: &mut Fabric<'_>,
        handles: impl Iterator<Item = Segment> + Clone,
    ) -> Option<u32> {
        if !self.thresholds.remote_invalidation || fabric.random.one_in(4) {
            return None;
        }
        let count = short(handles.clone().count());
        let chosen = index(fabric.random.below(count));
        let mut handles = handles;
        handles.nth(chosen).map(|segment| segment.handle)
    }

    /// Sends a Reply, or what is to arrive in its place.
    fn send_reply(
        &mut self,
        world: &mut World<'_>,
        rpc: &Rpc,
        slot: usize,
        prepared: Prepared,
    ) -> Result<(), Failure> {
        let buffer = world.messages.buffer(slot);
        let mut length = prepared.length;
        let mut kind = Kind::Reply(Direction::Forward);
        match rpc.fate {
            Fate::Answered(fault) => {
                let limit = index(self.thresholds.send);
                let spoiled =
                    faults::spoil(fault, buffer, prepared.header, length, prepared.offered);
                length = spoiled.min(limit);
                kind = Kind::BadReply(Direction::Forward);
            }
            Fate::FirstOfOtherVersion if rpc.replied == 0 => {
                faults::set_word(buffer, 1, 7);
                kind = Kind::Other;
            }
            _ if world.fabric.scenario.faults && world.fabric.random.one_in(8) => {
                // No peer may grant 0 credits; the requester takes it for 1.
                faults::set_word(world.messages.buffer(slot), 2, 0);
            }
            _ => {}
        }
        let message = Message {
            to: End::Requester,
            generation: self.generation,
            length,
            kind,
            invalidate: prepared.invalidate,
        };
        if rpc.fate != Fate::RepliedTwice {
            return world.send(slot, message);
        }
        let copy = world.messages.take()?;
        world.messages.describe(slot, message);
        let (from, to) = world.messages.pair(slot, copy);
        for (byte, copied) in to.iter_mut().zip(from) {
            *byte = *copied;
        }
        world.send(slot, message)?;
        let again = Message {
            kind: Kind::Other,
            invalidate: None,
            ..message
        };
        world.send(copy, again)
    }
}

/// A Reply in its buffer.
struct Prepared {
    /// Bytes of the header.
    header: usize,
    /// Bytes of the message.
    length: usize,
    /// Receives that the grant promises.
    receives: u32,
    /// The handle that its arrival is to invalidate.
    invalidate: Option<u32>,
    /// The length of the first segment that the Call offered.
    offered: u32,
}

/// What is left of a Reply for the Send or the Reply chunk.
struct Rest {
    /// Offset and length of the two parts.
    ranges: [(u32, u32); 2],
}

impl Rest {
    /// All of `stream`, or what is left without the pages and their round-up.
    fn new(stream: &Stream, is_reduced: bool) -> Self {
        let len = &stream.len;
        let pages = if is_reduced {
            len.pages + round_up(len.pages)
        } else {
            0
        };
        let second = len.head + pages;
        Self {
            ranges: [
                (0, len.head),
                (second, stream.total().saturating_sub(second)),
            ],
        }
    }

    /// Bytes.
    fn total(&self) -> u32 {
        self.ranges.iter().map(|(_, length)| length).sum()
    }
}

/// Places parts of a Reply in the requester's memory.
struct Placement<'a, 'b> {
    fabric: &'a mut Fabric<'b>,
    rpc: usize,
    generation: u32,
}

impl Placement<'_, '_> {
    /// Posts the RDMA Writes that put `ranges` of the Reply into `segments`.
    fn place(
        &mut self,
        segments: impl Iterator<Item = Segment>,
        ranges: &[(u32, u32)],
    ) -> Result<(), Failure> {
        let mut segments = segments;
        let mut segment = segments.next();
        for &(mut at, mut left) in ranges {
            while left != 0 {
                let Some(Segment {
                    handle,
                    length,
                    offset,
                }) = segment
                else {
                    return Err(Failure::NoSpace);
                };
                let piece = left.min(length);
                if piece == 0 {
                    segment = segments.next();
                    continue;
                }
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
                segment = Some(Segment {
                    handle,
                    length: length - piece,
                    offset: offset.wrapping_add(u64::from(piece)),
                });
            }
        }
        Ok(())
    }
}

/// Puts a Call together from its inline part and its Read chunks.
struct Assembly<'a, 'b> {
    fabric: &'a mut Fabric<'b>,
    call: &'a Call<'a>,
    stream: Stream,
    rpc: usize,
    generation: u32,
    /// Bytes of the RPC message so far.
    at: u32,
    /// Bytes taken of the inline part, or of the Position Zero chunk.
    taken: u32,
    /// RDMA Reads posted.
    reads: u32,
}

impl Assembly<'_, '_> {
    /// Goes through all chunks by Position.
    fn run(&mut self) -> Result<(), Failure> {
        let call = self.call;
        let reads = &call.lists.reads;
        for (position, length) in reads.chunks().filter(|&(position, _)| position != 0) {
            self.unreduced(position.checked_sub(self.at))?;
            self.chunk(position, 0, short(length))?;
            self.at += round_up(short(length));
        }
        let unreduced = match call.payload {
            Some(payload) => short(payload.len()),
            None => short(reads.length_at(0)),
        };
        self.unreduced(unreduced.checked_sub(self.taken))?;
        if self.at != self.stream.total() {
            return Err(Failure::CallBytes(self.rpc));
        }
        Ok(())
    }

    /// Takes `length` bytes of what is not in an ordinary Read chunk.
    fn unreduced(&mut self, length: Option<u32>) -> Result<(), Failure> {
        let wrong = Failure::CallBytes(self.rpc);
        let length = length.ok_or(wrong)?;
        let from = self.taken;
        self.taken += length;
        let Some(payload) = self.call.payload else {
            return self.chunk(0, from, length);
        };
        let bytes = payload.get(index(from)..index(self.taken)).ok_or(wrong)?;
        if !self.stream.matches(self.at, bytes) {
            return Err(wrong);
        }
        self.at += length;
        Ok(())
    }

    /// Posts the RDMA Reads of `left` bytes of the chunk at `position`, without its first ones.
    fn chunk(&mut self, position: u32, skip: u32, left: u32) -> Result<(), Failure> {
        let (mut skip, mut left) = (skip, left);
        let call = self.call;
        let chunk = call
            .lists
            .reads
            .segments()
            .filter(|read| read.position == position);
        for Segment {
            handle,
            length,
            offset,
        } in chunk.map(|read| read.segment)
        {
            let skipped = skip.min(length);
            skip -= skipped;
            let piece = left.min(length - skipped);
            left -= piece;
            if piece != 0 {
                let access = Access {
                    rpc: self.rpc,
                    generation: self.generation,
                    handle,
                    offset: offset.wrapping_add(u64::from(skipped)),
                    length: piece,
                };
                self.fabric.post_read(access, self.at)?;
                self.reads += 1;
                self.at += piece;
            }
        }
        Ok(())
    }
}
