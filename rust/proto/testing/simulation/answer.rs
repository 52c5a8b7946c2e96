// SPDX-License-Identifier: GPL-2.0

//! The Reply to a forward Call: what goes by RDMA Write, what in the Send.

use super::fabric::Fabric;
use super::faults;
use super::message::{Kind, Message};
use super::payload::{index, short, Payload};
use super::queue::Access;
use super::responder::Responder;
use super::rpc::{Fate, Rpc};
use super::service::decode;
use super::world::World;
use super::{Direction, End, Failure};
use crate::proto::responder::call::ReceivedCall;
use crate::proto::responder::placement::{Placement, ReplyPlan};
use crate::proto::wire::error::ErrorBody;
use crate::proto::wire::private_data::Thresholds;

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
        self.grants.raise(limit);
        let rpc = world.rpc(number)?;
        let buffer = world.messages.take()?;
        let prepared = self.prepare(world, (number, &rpc), (slot, buffer))?;
        let version = decode(world.messages.bytes(slot))?.index.version;
        world.messages.free(slot);
        let Some(prepared) = prepared else {
            world.messages.free(buffer);
            return self.refuse(world, number, version, ErrorBody::Chunk);
        };
        self.send_reply(world, &rpc, buffer, &prepared)?;
        self.calls_and_replies.1 += 1;
        if self.negotiation.replied(version) && self.agreed() != Some(version) {
            return Err(Failure::Negotiation);
        }
        Ok(())
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
        let thresholds = self.negotiation.thresholds(call.index.version);
        let mut placement = Placement::default();
        let Some(plan) = place(&mut placement, &payload, &call, thresholds.send, fabric) else {
            return Ok(None);
        };
        self.write(fabric, number, &call, &plan)?;

        let credits = self.grants.reply();
        self.post_receives(fabric);
        if credits.get() > call.index.credits.get() {
            return Err(Failure::Grant(credits.get()));
        }
        let header = plan
            .encode(buffer, &call, credits)
            .map_err(|_| Failure::NoSpace)?;
        if short(header) != plan.header_len {
            return Err(Failure::HeaderLength);
        }
        let length = put_inline(&payload, &plan, buffer, header).ok_or(Failure::NoSpace)?;
        if length != header + index(plan.inline_len) {
            return Err(Failure::HeaderLength);
        }
        Ok(Some(Prepared {
            version: call.index.version,
            header,
            length,
            invalidate: invalidate(&call, &thresholds, fabric),
            offered: first_offered(&call),
            // With less granted there are fewer Receives than the requester could use.
            may_grant_more: credits == call.index.credits,
        }))
    }

    /// Posts the RDMA Writes of a Reply.
    fn write(
        &self,
        fabric: &mut Fabric<'_>,
        rpc: usize,
        call: &ReceivedCall<'_>,
        plan: &ReplyPlan<'_>,
    ) -> Result<(), Failure> {
        for (at, target) in plan.rdma_writes(call) {
            let access = Access {
                rpc,
                generation: self.generation,
                handle: target.handle,
                offset: target.offset,
                length: target.length,
            };
            fabric.post_write(access, at)?;
        }
        let written = plan.results().filter(|result| result.length != 0);
        fabric.tally.write_chunks += written.fold(0, |count, _| count + 1);
        fabric.tally.reply_chunks += u64::from(plan.reply_chunk_len != 0);
        Ok(())
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
fn place<'a>(
    placement: &'a mut Placement,
    payload: &Payload,
    call: &ReceivedCall<'_>,
    threshold: u32,
    fabric: &mut Fabric<'_>,
) -> Option<ReplyPlan<'a>> {
    for part in payload.layout.parts() {
        if part.eligible {
            placement.place(call, part.start, part.len);
        }
    }
    // A responder may use a Reply chunk that it does not need, as if the threshold were lower.
    let lowest = if fabric.random.one_in(4) {
        600
    } else {
        threshold
    };
    let total = payload.total();
    let plan = placement.finish(call, total, lowest.min(threshold));
    plan.or_else(|_| placement.finish(call, total, threshold))
        .ok()
}

/// Writes what goes inline behind the header; the length of the whole message.
fn put_inline(
    payload: &Payload,
    plan: &ReplyPlan<'_>,
    buffer: &mut [u8],
    header: usize,
) -> Option<usize> {
    let mut length = header;
    if plan.inline_len != 0 {
        for range in plan.rest() {
            let end = length.checked_add(index(range.length))?;
            payload.fill(range.at, buffer.get_mut(length..end)?);
            length = end;
        }
    }
    Some(length)
}

/// The handle that the Reply to `call` invalidates: one of the Call, or none.
fn invalidate(
    call: &ReceivedCall<'_>,
    thresholds: &Thresholds,
    fabric: &mut Fabric<'_>,
) -> Option<u32> {
    let handle = call.handle_to_invalidate(thresholds);
    handle.filter(|_| !fabric.random.one_in(4))
}

/// The length of the first segment that a Reply returns, 0 if it returns none.
fn first_offered(call: &ReceivedCall<'_>) -> u32 {
    let mut chunks = call.lists.writes.chunks().chain(call.lists.reply);
    let first = chunks.next().and_then(|chunk| chunk.segments().next());
    first.map_or(0, |segment| segment.length)
}
