// SPDX-License-Identifier: GPL-2.0

//! Backward Calls at the responder, which makes them (RFC 8167).
//!
//! The responder cannot make a connection. What was not answered when one is lost waits for the
//! next one, and is sent again.

use super::job::BackwardState;
use super::message::{Kind, Message};
use super::payload::index;
use super::queue::SimulationEvent;
use super::responder::Responder;
use super::rpc::Fate;
use super::world::World;
use super::{Direction, End, Failure, Outcome};
use crate::proto::requester::encode::encode_call;
use crate::proto::wire::chunk::Segment;
use crate::proto::wire::encode::encode_inline;
use crate::proto::wire::header::{FixedHeader, Procedure, Xid};

/// How long the responder waits for the Reply to a backward Call.
const BACKWARD_TIMEOUT: u32 = 400_000;

impl Responder<'_> {
    /// The version of backward Calls, if there is one.
    pub(super) fn agreed(&self) -> Option<u32> {
        self.negotiation.agreed(self.calls_and_replies.1 != 0)
    }

    fn backward_call(&mut self, number: usize) -> Result<&mut BackwardState, Failure> {
        self.calls.get_mut(number).ok_or(Failure::Storage)
    }

    /// Takes a backward Call from the upper layer.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that are sent.
    pub(crate) fn submit(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        if world.rpc(number)?.outcome.is_none() {
            *self.backward_call(number)? = BackwardState::Queued;
        }
        self.pump(world)
    }

    /// The Call that waits for a Reply with this XID.
    pub(super) fn awaited(&self, world: &World<'_>, xid: Xid) -> Option<usize> {
        let number = world.find(Direction::Backward, xid.0)?;
        (self.calls.get(number) == Some(&BackwardState::Outstanding)).then_some(number)
    }

    /// Ends a Call.
    ///
    /// # Errors
    ///
    /// What is wrong with this end.
    pub(super) fn end(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        outcome: Outcome,
    ) -> Result<(), Failure> {
        *self.backward_call(number)? = BackwardState::Idle;
        world.end(number, outcome)
    }

    /// Ends all Calls, also those that were not handed over yet.
    ///
    /// # Errors
    ///
    /// What is wrong with these ends.
    pub(super) fn forget_calls(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        while let Some(number) = world.backward_rpc() {
            world.rpc_mut(number)?.fate = Fate::Ignored;
            self.end(world, number, Outcome::Failed)?;
        }
        Ok(())
    }

    /// Sends what may be sent: nothing before the first forward Reply, which tells the version.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that are sent.
    pub(super) fn pump(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        while let Some(version) = self.agreed() {
            let queued = self
                .calls
                .iter()
                .position(|call| *call == BackwardState::Queued);
            let Some(number) = queued.filter(|_| self.credits.take()) else {
                break;
            };
            self.transmit(world, number, version)?;
            *self.backward_call(number)? = BackwardState::Outstanding;
        }
        Ok(())
    }

    /// Sends a backward Call.
    fn transmit(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        version: u32,
    ) -> Result<(), Failure> {
        let rpc = world.rpc(number)?;
        let payload = rpc.call_payload();
        let slot = world.messages.take()?;
        let buffer = world.messages.buffer(slot);
        let (xid, credits) = (Xid(rpc.xid), self.credits.requested());
        let header = if rpc.fate == Fate::HasChunks {
            let fixed = FixedHeader {
                xid,
                version,
                credits,
                procedure: Procedure::Msg,
            };
            let segment = Segment {
                handle: 1,
                length: 64,
                offset: 0,
            };
            let none = core::iter::empty();
            encode_call(buffer, &fixed, [], [[segment].into_iter()], none)
        } else {
            encode_inline(buffer, version, xid, credits)
        };
        let header = header.map_err(|_| Failure::NoSpace)?;
        let length = header + index(payload.total());
        let bytes = buffer.get_mut(header..length).ok_or(Failure::NoSpace)?;
        payload.fill(0, bytes);
        self.post_receives(&mut world.fabric);
        let timeout = SimulationEvent::BackwardTimeout(number, self.generation);
        world.fabric.after(BACKWARD_TIMEOUT, timeout)?;
        world.send(
            slot,
            Message {
                to: End::Requester,
                generation: self.generation,
                length,
                kind: Kind::Call(Direction::Backward),
                ..Message::NONE
            },
        )
    }

    /// No Reply came to a backward Call: only a new connection brings the credit back.
    ///
    /// # Errors
    ///
    /// What is wrong with the end of the Call.
    pub(crate) fn backward_timeout(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        generation: u32,
    ) -> Result<(), Failure> {
        let state = *self.backward_call(number)?;
        if generation != self.generation || state != BackwardState::Outstanding {
            return Ok(());
        }
        if world.rpc(number)?.fate == Fate::Ignored {
            self.end(world, number, Outcome::Failed)?;
        }
        if world.fabric.link.carries(generation) {
            world.fabric.hang_up(End::Responder)?;
        }
        self.disconnect(world);
        Ok(())
    }
}
