// SPDX-License-Identifier: GPL-2.0

//! Backward Calls at both ends (RFC 8167): the requester that serves them, and the responder that
//! makes them.
//!
//! Backward messages are inline always. Credits and Receives are counted apart from those of the
//! forward direction.

use super::super::{
    call::encode_call,
    chunk::Segment,
    credit::CreditWindow,
    header::{Credits, FixedHeader, Procedure, Xid},
    reply::encode_backward,
};
use super::message::{Kind, Message};
use super::queue::Event;
use super::requester::Requester;
use super::rpc::{Fate, Outcome, Rpc};
use super::scenario::Scenario;
use super::stream::{index, short};
use super::world::World;
use super::{Direction, End, Failure, RPCS};

/// How long the responder waits for the Reply to a backward Call.
const BACKWARD_TIMEOUT: u32 = 400_000;

/// Receives beyond those that credits account for, where peers misbehave.
pub(super) const SPARE_RECEIVES: u32 = 8;

/// The requester's callback service.
pub(crate) struct CallbackService {
    /// Which RPCs are being served.
    serving: [bool; RPCS],
    /// Receives for backward Calls, posted or in use.
    receives: u32,
}

impl CallbackService {
    /// A service of no connection.
    pub(crate) const fn new() -> Self {
        Self {
            serving: [false; RPCS],
            receives: 0,
        }
    }

    /// Posts what a new connection needs before it is made.
    pub(crate) fn prepare(&mut self, world: &mut World<'_>, generation: u32) {
        let spare = if world.fabric.scenario.faults {
            SPARE_RECEIVES
        } else {
            0
        };
        self.receives = 1;
        let fabric = &mut world.fabric;
        fabric.post_receives(End::Requester, generation, spare + self.receives);
    }

    /// The connection is lost, and with it whatever is being served for it.
    pub(crate) fn forget(&mut self) {
        self.serving = [false; RPCS];
    }

    /// Hands a backward Call to the upper layer, or drops it.
    ///
    /// # Errors
    ///
    /// [`Failure::Callbacks`] if it is beyond what was granted.
    pub(crate) fn accept(
        &mut self,
        world: &mut World<'_>,
        generation: u32,
        number: Option<usize>,
        _requested: Credits,
    ) -> Result<(), Failure> {
        let number = number.ok_or(Failure::Callbacks)?;
        if world.rpc(number)?.fate == Fate::Ignored {
            world.fabric.post_receives(End::Requester, generation, 1);
            return Ok(());
        }
        let in_use = short(self.serving.iter().filter(|&&serving| serving).count());
        let place = self.serving.get_mut(number).ok_or(Failure::Storage)?;
        if in_use >= self.receives {
            return Err(Failure::Callbacks);
        }
        *place = true;
        let service = world.fabric.service();
        world.fabric.after(service, Event::BackwardServed(number))
    }

    /// The upper layer has served a backward Call: sends the Reply.
    ///
    /// # Errors
    ///
    /// What is wrong with the Reply.
    pub(crate) fn served(
        &mut self,
        world: &mut World<'_>,
        generation: u32,
        number: usize,
    ) -> Result<(), Failure> {
        let place = self.serving.get_mut(number).ok_or(Failure::Storage)?;
        if !core::mem::replace(place, false) {
            return Ok(());
        }
        world.served(number)?;
        let grant = world.fabric.grant(End::Requester);
        let more = grant.saturating_sub(self.receives);
        self.receives += more;
        let fabric = &mut world.fabric;
        fabric.post_receives(End::Requester, generation, 1 + more);
        let rpc = world.rpc(number)?;
        let stream = rpc.reply_stream();
        let slot = world.messages.take()?;
        let buffer = world.messages.buffer(slot);
        let length = encode_backward(
            buffer,
            Requester::VERSION,
            Xid(rpc.xid),
            Credits::new(grant),
        )
        .map_err(|_| Failure::NoSpace)?;
        let end = length + index(stream.total());
        stream.fill(0, buffer.get_mut(length..end).ok_or(Failure::NoSpace)?);
        world.send(
            slot,
            Message {
                to: End::Responder,
                generation,
                length: end,
                kind: Kind::Reply(Direction::Backward),
                ..Message::NONE
            },
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not handed over yet, or ended.
    Idle,
    /// To be sent.
    Queued,
    /// Sent on the present connection.
    Outstanding,
}

/// The backward Calls of the responder.
pub(crate) struct BackwardCalls {
    window: CreditWindow,
    states: [State; RPCS],
}

impl BackwardCalls {
    /// No Call.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            window: CreditWindow::new(Credits::new(scenario.responder.requests)),
            states: [State::Idle; RPCS],
        }
    }

    fn state(&mut self, number: usize) -> Result<&mut State, Failure> {
        self.states.get_mut(number).ok_or(Failure::Storage)
    }

    /// Takes a Call from the upper layer.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn submit(&mut self, number: usize) -> Result<(), Failure> {
        *self.state(number)? = State::Queued;
        Ok(())
    }

    /// Starts over on a new connection: what was not answered is sent again.
    pub(crate) fn reset(&mut self) {
        self.window.reset();
        for state in &mut self.states {
            if *state == State::Outstanding {
                *state = State::Queued;
            }
        }
    }

    /// The Call that waits for a Reply with this XID.
    pub(crate) fn awaited(&self, world: &World<'_>, xid: Xid) -> Option<usize> {
        let number = world.find(Direction::Backward, xid.0)?;
        self.is_outstanding(number).then_some(number)
    }

    /// Whether a Call waits for its Reply.
    pub(crate) fn is_outstanding(&self, number: usize) -> bool {
        self.states.get(number) == Some(&State::Outstanding)
    }

    /// Takes over the grant of a Reply.
    pub(crate) fn grant(&mut self, credits: Credits) {
        self.window.grant(credits);
    }

    /// Ends a Call.
    ///
    /// # Errors
    ///
    /// What is wrong with this end.
    pub(crate) fn end(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        outcome: Outcome,
    ) -> Result<(), Failure> {
        *self.state(number)? = State::Idle;
        world.end(number, outcome)
    }

    /// The responder has restarted: ends all Calls, also those that were not handed over yet.
    ///
    /// # Errors
    ///
    /// What is wrong with these ends.
    pub(crate) fn restart(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        let Scenario {
            forward, backward, ..
        } = world.fabric.scenario;
        for number in forward..forward + backward {
            let rpc = world.rpc_mut(number)?;
            if rpc.outcome.is_none() {
                rpc.fate = Fate::Ignored;
                self.end(world, number, Outcome::Failed)?;
            }
        }
        Ok(())
    }

    /// Sends what may be sent.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that are sent.
    pub(crate) fn pump(&mut self, world: &mut World<'_>, generation: u32) -> Result<(), Failure> {
        let is = |wanted| move |state: &&State| **state == wanted;
        loop {
            let outstanding = self.states.iter().filter(is(State::Outstanding)).count();
            let queued = self.states.iter().position(|&s| s == State::Queued);
            let Some(number) = queued else {
                return Ok(());
            };
            if short(outstanding) >= self.window.window() {
                return Ok(());
            }
            self.transmit(world, generation, number)?;
            *self.state(number)? = State::Outstanding;
        }
    }

    fn transmit(
        &mut self,
        world: &mut World<'_>,
        generation: u32,
        number: usize,
    ) -> Result<(), Failure> {
        let rpc = world.rpc(number)?;
        let stream = rpc.call_stream();
        let slot = world.messages.take()?;
        let buffer = world.messages.buffer(slot);
        let length = self.header(&rpc, buffer)?;
        let end = length + index(stream.total());
        stream.fill(0, buffer.get_mut(length..end).ok_or(Failure::NoSpace)?);
        world.fabric.post_receives(End::Responder, generation, 1);
        let timeout = Event::BackwardTimeout(number, generation);
        world.fabric.after(BACKWARD_TIMEOUT, timeout)?;
        world.send(
            slot,
            Message {
                to: End::Requester,
                generation,
                length: end,
                kind: Kind::Call(Direction::Backward),
                ..Message::NONE
            },
        )
    }

    /// Writes the header, which some have with a chunk that must not be there; its length.
    fn header(&self, rpc: &Rpc, buffer: &mut [u8]) -> Result<usize, Failure> {
        let (xid, credits) = (Xid(rpc.xid), self.window.requested());
        let written = if rpc.fate == Fate::HasChunks {
            let fixed = FixedHeader {
                xid,
                version: Requester::VERSION,
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
            encode_backward(buffer, Requester::VERSION, xid, credits)
        };
        written.map_err(|_| Failure::NoSpace)
    }
}
