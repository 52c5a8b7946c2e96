// SPDX-License-Identifier: GPL-2.0

//! From an RPC to a Send of the requester: the plan, the regions, the header, the inline bytes.

use super::form::{form, Form};
use super::memory::{Buffer, Memory};
use super::message::{Kind, Message};
use super::offer::Offer;
use super::payload::{index, short};
use super::queue::SimulationEvent;
use super::requester::Requester;
use super::rpc::{Fate, Rpc};
use super::world::World;
use super::{Direction, End, Failure};
use crate::proto::requester::encode::encode_call;
use crate::proto::requester::plan::PlanLimits;
use crate::proto::testing::simulation::plan_general::CallPiece;
use crate::proto::v2::requester::RequesterEvent;
use crate::proto::wire::header::{FixedHeader, Xid};

/// How long the requester waits for a Reply.
const CALL_TIMEOUT: u32 = 200_000;

impl Requester<'_> {
    /// Sends a Call, for which there is a credit; false if it has no plan.
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
        let version = self.negotiation.version().ok_or(Failure::NotConnected)?;
        let thresholds = self.negotiation.thresholds();
        let thresholds = thresholds.ok_or(Failure::NotConnected)?;
        let limits = PlanLimits {
            inline_send: thresholds.send,
            inline_receive: thresholds.receive,
            max_segments: world.fabric.scenario.max_segments,
        };
        let Some(form) = form(&rpc, &world.fabric.scenario, &limits) else {
            return Ok(false);
        };
        let World {
            fabric,
            memory,
            messages,
            ..
        } = world;
        let plan = (&rpc, &form);
        let offer = Offer::register(fabric, memory, self.generation, number, plan)?;
        let slot = messages.take()?;
        let buffer = messages.buffer(slot);
        let fixed = FixedHeader {
            xid: Xid(rpc.xid),
            version,
            credits: self.credits.requested(),
            procedure: form.procedure(),
        };
        let header = put_header(buffer, &fixed, memory, number, &offer)?;
        // Without padding that is not registered, a part may need a region less.
        let skips = |piece: &CallPiece| matches!(piece, CallPiece::PositionZero { skip: 1.. });
        let may_be_less = form.call.iter().any(skips) && short(header) < form.header_len;
        if short(header) != form.header_len && !may_be_less {
            return Err(Failure::HeaderLength);
        }
        let call = memory.buffer(number, Buffer::Call, rpc.call.total())?;
        let length = copy_inline(plan, call, buffer, header).ok_or(Failure::NoSpace)?;
        offer.count(fabric);

        let call = self.call(number)?;
        call.offer = offer;
        call.is_owed = false;
        call.transmissions += 1;
        let timeout = SimulationEvent::CallTimeout(number, call.transmissions);
        fabric.tally.calls += 1;
        fabric.tally.resent += u64::from(call.transmissions > 1);
        fabric.after(CALL_TIMEOUT, timeout)?;
        self.post_receives(fabric);
        let message = Message {
            to: End::Responder,
            generation: self.generation,
            length,
            kind: Kind::Call(Direction::Forward),
            ..Message::NONE
        };
        world.send(slot, message)?;
        if rpc.fate == Fate::Invalidated {
            world.memory.invalidate_rpc(number);
        }
        if number != 0 && world.fabric.scenario.kills && world.fabric.random.one_in(4) {
            // Some while the responder works on it.
            let life = world.fabric.service();
            world.fabric.after(life, SimulationEvent::Kill(number))?;
        }
        // Only what an answer brings calls for something to be done.
        let sent = self.negotiation.handle(RequesterEvent::Sent(Xid(rpc.xid)));
        if sent.is_some() {
            return Err(Failure::Negotiation);
        }
        Ok(true)
    }
}

/// Writes the header of a Call; its length.
fn put_header(
    buffer: &mut [u8],
    fixed: &FixedHeader,
    memory: &Memory<'_>,
    number: usize,
    offer: &Offer,
) -> Result<usize, Failure> {
    let segments = memory.segments(number);
    let reads = offer.read_list(segments.clone());
    let writes = offer.write_list(segments.clone());
    let reply = offer.reply_chunk(segments);
    encode_call(buffer, fixed, reads, writes, reply).map_err(|_| Failure::NoSpace)
}

/// Copies what of the Call goes inline behind the header; the length of the whole message.
fn copy_inline(
    (rpc, form): (&Rpc, &Form),
    call: &[u8],
    buffer: &mut [u8],
    header: usize,
) -> Option<usize> {
    let length = header.checked_add(index(form.inline_len))?;
    let mut left = buffer.get_mut(header..length)?;
    for (part, piece) in rpc.call.parts().into_iter().zip(form.call) {
        if let CallPiece::Inline { skip } = piece {
            let end = index(part.start + part.len);
            let bytes = call.get(index(part.start + skip)..end)?;
            let (to, rest) = left.split_at_mut_checked(bytes.len())?;
            to.copy_from_slice(bytes);
            left = rest;
        }
    }
    left.is_empty().then_some(length)
}
