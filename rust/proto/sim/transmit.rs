// SPDX-License-Identifier: GPL-2.0

//! From an RPC to a Send of the requester: the plan, the regions, the header, the inline bytes.

use super::super::{
    call::encode_call,
    chunk::ReadSegment,
    header::{FixedHeader, Xid},
    plan::{plan, CallForm, Limits, Parts, Plan, ReplyForm},
};
use super::fabric::Fabric;
use super::memory::{Buffer, Memory, Rights};
use super::message::{Kind, Message};
use super::queue::Event;
use super::requester::Requester;
use super::rpc::Rpc;
use super::stream::{index, short};
use super::world::World;
use super::{Direction, End, Failure};

/// How long the requester waits for a Reply.
const CALL_TIMEOUT: u32 = 200_000;

impl Requester<'_> {
    /// Sends a Call; false if it has no plan.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn transmit(
        &mut self,
        world: &mut World<'_>,
        number: usize,
    ) -> Result<bool, Failure> {
        let rpc = world.rpc(number)?;
        let limits = Limits {
            inline_send: self.thresholds.send,
            inline_receive: self.thresholds.receive,
            max_segments: world.fabric.scenario.max_segments,
        };
        let Ok(plan) = plan(&rpc.shape(), &limits) else {
            return Ok(false);
        };
        let World {
            fabric,
            memory,
            messages,
            ..
        } = world;
        let reads = register(fabric, memory, self.generation, number, &rpc, &plan)?;
        let slot = messages.take()?;
        let buffer = messages.buffer(slot);
        let header = self.header(memory, number, &rpc, &plan, reads, buffer)?;
        let call = memory.buffer(number, Buffer::Call, rpc.call_stream().total())?;
        let length = copy_inline(&rpc, &plan, call, buffer, header).ok_or(Failure::NoSpace)?;

        let call = self.call(number)?;
        call.reads = reads;
        call.has_reply_chunk = plan.reply == ReplyForm::ReplyChunk;
        call.transmissions += 1;
        let timeout = Event::CallTimeout(number, call.transmissions);
        fabric.after(CALL_TIMEOUT, timeout)?;
        count(fabric, &plan, call.transmissions);
        fabric.post_receives(End::Requester, self.generation, 1);
        let message = Message {
            to: End::Responder,
            generation: self.generation,
            length,
            kind: Kind::Call(Direction::Forward),
            ..Message::NONE
        };
        world.send(slot, message)?;
        Ok(true)
    }

    /// Writes the header of a Call; its length.
    fn header(
        &self,
        memory: &Memory<'_>,
        number: usize,
        rpc: &Rpc,
        plan: &Plan,
        reads: usize,
        buffer: &mut [u8],
    ) -> Result<usize, Failure> {
        let fixed = FixedHeader {
            xid: Xid(rpc.xid),
            version: Self::VERSION,
            credits: self.window.requested(),
            procedure: plan.procedure(),
        };
        let position = match plan.call {
            CallForm::ReadChunk { position, .. } => position,
            CallForm::Inline | CallForm::PositionZero => 0,
        };
        let segments = memory.segments(number);
        let read_list = segments
            .clone()
            .take(reads)
            .map(|segment| ReadSegment { position, segment });
        let only = |form| if plan.reply == form { usize::MAX } else { 0 };
        let results = segments.skip(reads);
        let write_chunk = results.clone().take(only(ReplyForm::WriteChunk));
        let reply_chunk = results.take(only(ReplyForm::ReplyChunk));
        let length = encode_call(buffer, &fixed, read_list, [write_chunk], reply_chunk)
            .map_err(|_| Failure::NoSpace)?;
        if short(length) != plan.header_len {
            return Err(Failure::HeaderLength);
        }
        Ok(length)
    }
}

/// Registers what the plan asks for; how many regions are the Read list's.
fn register(
    fabric: &mut Fabric<'_>,
    memory: &mut Memory<'_>,
    generation: u32,
    number: usize,
    rpc: &Rpc,
    plan: &Plan,
) -> Result<usize, Failure> {
    let mut add = |memory: &mut Memory<'_>, part: Extent, largest: u32, rights| {
        let (buffer, mut from, mut left) = part;
        while left != 0 {
            let length = left.min(largest);
            let extent = (buffer, from, length);
            memory.register(&mut fabric.random, generation, number, extent, rights)?;
            from += length;
            left -= length;
        }
        Ok::<(), Failure>(())
    };
    let [head, pages, tail] = extents(Buffer::Call, &rpc.call);
    let reads = match plan.call {
        CallForm::Inline => [None; 3],
        CallForm::ReadChunk { .. } => [Some(pages), None, None],
        CallForm::PositionZero => [Some(head), Some(pages), Some(tail)],
    };
    for part in reads.into_iter().flatten() {
        add(memory, part, rpc.region.0, Rights::Read)?;
    }
    let reads = memory.segments(number).count();
    let [head, pages, tail] = extents(Buffer::Reply, &rpc.largest);
    let results = match plan.reply {
        ReplyForm::Inline => [None; 3],
        ReplyForm::WriteChunk => [Some(pages), None, None],
        ReplyForm::ReplyChunk => [Some(head), Some(pages), Some(tail)],
    };
    for part in results.into_iter().flatten() {
        add(memory, part, rpc.region.1, Rights::Write)?;
    }
    let (_, start, length) = tail;
    memory.clear_reply(number, start + length)?;
    Ok(reads)
}

/// A part of a buffer: where it starts, and its length in bytes.
type Extent = (Buffer, u32, u32);

/// Head, pages and tail, one behind the other.
fn extents(buffer: Buffer, len: &Parts) -> [Extent; 3] {
    let tail = len.head + len.pages;
    [
        (buffer, 0, len.head),
        (buffer, len.head, len.pages),
        (buffer, tail, len.tail),
    ]
}

/// Copies what of the Call goes inline behind the header; the length of the whole message.
fn copy_inline(
    rpc: &Rpc,
    plan: &Plan,
    call: &[u8],
    buffer: &mut [u8],
    header: usize,
) -> Option<usize> {
    let length = header.checked_add(index(plan.inline_len))?;
    let inline = buffer.get_mut(header..length)?;
    let (first, second): (&[u8], &[u8]) = match plan.call {
        CallForm::Inline => (call, &[]),
        CallForm::ReadChunk {
            position,
            tail_skip,
        } => {
            let rest = position + rpc.call.pages + tail_skip;
            (call.get(..index(position))?, call.get(index(rest)..)?)
        }
        CallForm::PositionZero => (&[], &[]),
    };
    let (to_first, to_second) = inline.split_at_mut_checked(first.len())?;
    to_first.copy_from_slice(first);
    (to_second.len() == second.len()).then(|| to_second.copy_from_slice(second))?;
    Some(length)
}

/// Counts a Call by its form.
fn count(fabric: &mut Fabric<'_>, plan: &Plan, transmissions: u32) {
    let tally = &mut fabric.tally;
    tally.calls += 1;
    tally.resent += u64::from(transmissions > 1);
    match plan.call {
        CallForm::Inline => {}
        CallForm::ReadChunk { .. } => tally.read_chunks += 1,
        CallForm::PositionZero => tally.position_zero += 1,
    }
}
