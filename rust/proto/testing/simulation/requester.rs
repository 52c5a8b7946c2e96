// SPDX-License-Identifier: GPL-2.0

//! The end that connects: its forward Calls. See [`super::connecting`] for its connection.
//!
//! A Call that was not answered when its connection is lost is sent again on the next one, with
//! new regions.

use super::check::{check_chunk, check_inline};
use super::fabric::Fabric;
use super::memory::Buffer;
use super::message::{Kind, Message};
use super::offer::{Offer, Placed};
use super::queue::SimulationEvent;
use super::rpc::Fate;
use super::scenario::Scenario;
use super::world::World;
use super::{Direction, End, Failure, Outcome, RPCS};
use crate::proto::requester::decode::{
    decode_received, BackwardCall, Received, ReceivedReply, ReplyError, RequesterRefusal,
};
use crate::proto::responder::grants::Grants;
use crate::proto::testing::receives::Receives;
use crate::proto::testing::requester::credits::RequesterCredits;
use crate::proto::v2::known::KnownVersions;
use crate::proto::v2::requester::{NegotiationAction, RequesterEvent, RequesterNegotiation};
use crate::proto::wire::error::{ErrorBody, ErrorMessage};
use crate::proto::wire::header::{Credits, Xid, VERSION_TWO};

/// What is to be done with a Call once none of its regions can be reached.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// The RPC message follows `header` bytes of the Reply.
    Inline { header: usize, placed: Placed },
    /// The RPC message is the first so many bytes of the Reply chunk.
    Chunk { length: u64, placed: Placed },
    /// The RPC failed.
    Failed,
    /// The Call is sent again, in another version.
    Resend,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// Not handed over yet, or ended.
    Idle,
    /// To be sent.
    Queued,
    /// Sent on the present connection.
    Outstanding,
    /// Answered by the message in this slot; local invalidations are under way.
    Fencing(usize, Verdict),
    /// Its task was killed; local invalidations are under way.
    Killed,
}

/// A forward Call at the requester.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentCall {
    pub(super) state: State,
    /// Whether its task was killed while it was outstanding. It has its credit until its answer
    /// comes, or the connection ends: the responder may still work on it.
    pub(super) is_owed: bool,
    pub(super) transmissions: u32,
    pub(super) offer: Offer,
}

/// A Call that may wait for its Reply.
type Awaited = Option<usize>;

/// What the answer to a Call says of versions and credits.
pub(super) enum Answer {
    Reply(Xid, u32, Credits),
    Error(ErrorMessage),
    Refused(Xid),
}

/// What a received message asks for.
enum Seen {
    Reply(Awaited, (Xid, u32, Credits), Verdict),
    Error(Awaited, ErrorMessage),
    Refused(Awaited),
    /// The answer to a Call whose task was killed.
    Late(usize, Answer),
    Backward(Awaited, u32, Credits),
    /// With the credit word of a backward Call, if it is one.
    Answer(ErrorMessage, Option<Credits>),
}

/// The requester.
pub(crate) struct Requester<'a> {
    pub(super) generation: u32,
    pub(super) is_open: bool,
    pub(super) is_closed: bool,
    pub(super) is_finished: bool,
    pub(super) negotiation: RequesterNegotiation,
    /// What is known of the responder, beyond its connections.
    pub(super) known: KnownVersions,
    /// For forward Calls.
    pub(super) credits: RequesterCredits,
    /// For backward Calls.
    pub(super) grants: Grants,
    pub(super) receives: Receives,
    pub(super) calls: &'a mut [SentCall],
    /// The backward Calls that are being served, with the version of each.
    pub(super) serving: [Option<u32>; RPCS],
}

impl SentCall {
    /// What an unused place of the storage holds.
    pub(crate) const NONE: Self = Self {
        state: State::Idle,
        is_owed: false,
        transmissions: 0,
        offer: Offer::NONE,
    };
}

impl<'a> Requester<'a> {
    /// A requester before its first attempt to connect.
    pub(crate) fn new(scenario: &Scenario, calls: &'a mut [SentCall]) -> Self {
        calls.fill(SentCall::NONE);
        let peer = &scenario.requester;
        Self {
            generation: 0,
            is_open: false,
            is_closed: true,
            is_finished: false,
            negotiation: RequesterNegotiation::new(peer.versions, peer.versions.high),
            known: KnownVersions::default(),
            credits: RequesterCredits::new(Credits::new(peer.requests)),
            grants: Grants::new(peer.grants, peer.grants),
            receives: Receives::new(0),
            calls,
            serving: [None; RPCS],
        }
    }

    /// One Call.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if there is none of this number.
    pub(super) fn call(&mut self, number: usize) -> Result<&mut SentCall, Failure> {
        self.calls.get_mut(number).ok_or(Failure::Storage)
    }

    /// Takes a Call from the upper layer.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that are sent.
    pub(crate) fn submit(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        let payload = world.rpc(number)?.call_payload();
        let buffer = world.memory.buffer(number, Buffer::Call, payload.total())?;
        payload.fill(0, buffer);
        self.call(number)?.state = State::Queued;
        self.pump(world)
    }

    /// Posts the Receives that are due before the next Send.
    pub(super) fn post_receives(&mut self, fabric: &mut Fabric<'_>) {
        let replies = self.credits.outstanding();
        let missing = self
            .receives
            .missing(self.grants.receives(self.grants.limit(), 0), replies);
        self.receives.post(missing);
        fabric.post_receives(End::Requester, self.generation, missing);
    }

    /// A Call that is to be sent.
    pub(super) fn queued(&self) -> Option<usize> {
        let queued = |call: &SentCall| matches!(call.state, State::Queued);
        self.calls.iter().position(queued)
    }

    /// Sends what may be sent.
    pub(super) fn pump(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        while let Some(number) = self.queued().filter(|_| self.is_open) {
            if !self.credits.take() {
                world.fabric.tally.waits += 1;
                break;
            }
            self.send(world, number)?;
        }
        let is_idle = self.credits.outstanding() == 0 && self.queued().is_none();
        if self.is_open && is_idle && !self.negotiation.is_agreed() {
            // The responder may not call back before it has replied.
            if world.backward_rpc().is_some() {
                let number = world.start_null()?;
                return self.submit(world, number);
            }
        }
        Ok(())
    }

    /// Sends a Call that has a credit, or ends it if it has no plan.
    fn send(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        self.call(number)?.state = State::Outstanding;
        if !self.transmit(world, number)? {
            self.call(number)?.state = State::Idle;
            self.credits.error();
            world.end(number, Outcome::Failed)?;
        }
        Ok(())
    }

    /// A message has arrived.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or with what follows.
    pub(crate) fn receive(
        &mut self,
        world: &mut World<'_>,
        slot: usize,
        message: &Message,
    ) -> Result<(), Failure> {
        self.receives.consume();
        match self.look(world, slot)? {
            Seen::Reply(Some(number), (xid, version, credits), verdict) => {
                self.credits.reply(credits);
                self.fence(world, number, slot, verdict)?;
                let replied = RequesterEvent::Replied(xid, version);
                match self.negotiation.handle(replied) {
                    Some(NegotiationAction::Agree(version)) => {
                        let is_two = version == VERSION_TWO;
                        world.fabric.tally.version_two += u64::from(is_two);
                    }
                    Some(_) => return Err(Failure::Negotiation),
                    None => {}
                }
            }
            Seen::Error(Some(number), error) => self.error(world, number, slot, &error)?,
            Seen::Refused(Some(number)) => {
                world.fabric.tally.refused += 1;
                self.credits.error();
                let failed = RequesterEvent::Failed(Xid(world.rpc(number)?.xid));
                if self.negotiation.handle(failed).is_some() {
                    return Err(Failure::Negotiation);
                }
                self.fence(world, number, slot, Verdict::Failed)?;
            }
            Seen::Late(number, answer) => {
                world.messages.free(slot);
                self.late(world, number, &answer)?;
            }
            Seen::Backward(number, version, credits) => {
                world.messages.free(slot);
                self.accept(world, number, version, credits)?;
            }
            Seen::Answer(error, call) => {
                world.messages.free(slot);
                let kind = match message.kind {
                    Kind::Call(direction) => Kind::Error(direction),
                    _ => Kind::Other,
                };
                let credits = match call {
                    Some(requested) => {
                        self.grants.call(requested);
                        self.grants.reply()
                    }
                    None => self.credits.requested(),
                };
                self.answer(world, &error, credits, kind)?;
            }
            Seen::Reply(None, ..) | Seen::Error(None, _) | Seen::Refused(None) => {
                world.messages.free(slot);
            }
        }
        self.pump(world)
    }

    /// Finds out what a message is.
    fn look(&self, world: &World<'_>, slot: usize) -> Result<Seen, Failure> {
        let awaited = |xid: Xid| {
            let number = world.find(Direction::Forward, xid.0)?;
            let call = self.calls.get(number)?;
            matches!(call.state, State::Outstanding).then_some(number)
        };
        let owed = |xid: Xid| {
            let number = world.find(Direction::Forward, xid.0)?;
            self.calls.get(number)?.is_owed.then_some(number)
        };
        let versions = world.fabric.scenario.requester.versions;
        Ok(
            match decode_received(world.messages.bytes(slot), versions) {
                Ok(Received::Reply(reply)) => {
                    let fixed = reply.fixed;
                    if let Some(number) = owed(fixed.xid) {
                        let answer = Answer::Reply(fixed.xid, fixed.version, fixed.credits);
                        return Ok(Seen::Late(number, answer));
                    }
                    let number = awaited(reply.fixed.xid);
                    let verdict = number.map(|number| self.judge(world, number, &reply));
                    let facts = (reply.fixed.xid, reply.fixed.version, reply.fixed.credits);
                    Seen::Reply(number, facts, verdict.unwrap_or(Verdict::Failed))
                }
                Ok(Received::Error(error)) => match owed(error.xid) {
                    Some(number) => Seen::Late(number, Answer::Error(error)),
                    None => Seen::Error(awaited(error.xid), error),
                },
                Ok(Received::BackwardCall(call)) => {
                    let number = backward_call(world, &call)?;
                    Seen::Backward(number, call.fixed.version, call.fixed.credits)
                }
                Err(refused) => {
                    let late = refused.fixed.and_then(|fixed| owed(fixed.xid));
                    let number = refused.fixed.and_then(|fixed| awaited(fixed.xid));
                    let number = late.or(number);
                    let serves = world.fabric.scenario.serves;
                    match refused.at_requester(number.is_some(), serves) {
                        RequesterRefusal::Answer(error) => {
                            let is_call = refused.error == ReplyError::ChunksInBackwardCall;
                            let call = refused.fixed.filter(|_| is_call);
                            Seen::Answer(error, call.map(|fixed| fixed.credits))
                        }
                        RequesterRefusal::EndCall => match late {
                            Some(number) => {
                                Seen::Late(number, Answer::Refused(Xid(world.rpc(number)?.xid)))
                            }
                            None => Seen::Refused(number),
                        },
                        RequesterRefusal::Discard => Seen::Refused(None),
                    }
                }
            },
        )
    }

    /// Compares the Reply's chunks with what the Call offered.
    fn judge(&self, world: &World<'_>, number: usize, reply: &ReceivedReply<'_>) -> Verdict {
        let call = self.calls.get(number).copied().unwrap_or(SentCall::NONE);
        let segments = world.memory.segments(number);
        let writes = call.offer.write_list(segments.clone());
        let writes = writes.map(|chunk| chunk.map(|segment| segment.length));
        let chunk = call.offer.reply_chunk(segments);
        let Ok(delivered) = reply.reconcile(writes, chunk.map(|segment| segment.length)) else {
            return Verdict::Failed;
        };
        let mut chunks = call.offer.writes.into_iter();
        let placed = delivered.writes.map(|delivery| {
            let chunk = chunks.next().unwrap_or_default();
            (chunk, delivery.contiguous)
        });
        match reply.payload {
            Some(_) => Verdict::Inline {
                header: reply.header_len,
                placed,
            },
            None => Verdict::Chunk {
                length: delivered.reply.contiguous,
                placed,
            },
        }
    }

    /// An RDMA_ERROR has arrived that names a Call.
    fn error(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        slot: usize,
        error: &ErrorMessage,
    ) -> Result<(), Failure> {
        world.fabric.tally.errors += 1;
        let event = match error.body {
            ErrorBody::Version(versions) => RequesterEvent::Refused(error.xid, versions),
            _ => RequesterEvent::Failed(error.xid),
        };
        match self.negotiation.handle(event) {
            Some(NegotiationAction::Resend(version)) => {
                // Nobody goes back to the version that was refused, or to one that was not named.
                let is_named = version < error.version
                    && matches!(error.body, ErrorBody::Version(range) if range.contains(version));
                let is_next = self.negotiation.version() == Some(version);
                if !is_named || !is_next {
                    return Err(Failure::Negotiation);
                }
                world.fabric.tally.fallbacks += 1;
                self.fence(world, number, slot, Verdict::Resend)
            }
            Some(NegotiationAction::Fail) => {
                world.messages.free(slot);
                self.fail_all(world)
            }
            Some(NegotiationAction::Reconnect) => {
                world.messages.free(slot);
                self.end_connection(world)
            }
            Some(NegotiationAction::Agree(_)) => Err(Failure::Negotiation),
            None => {
                self.credits.error();
                self.fence(world, number, slot, Verdict::Failed)
            }
        }
    }

    /// No version is common to both ends: ends all Calls that wait, and the connection.
    pub(super) fn fail_all(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        if !world.has_no_common_version {
            return Err(Failure::Negotiation);
        }
        self.end_connection(world)?;
        while let Some(number) = self.queued() {
            world.rpc_mut(number)?.fate = Fate::RefusedVersion;
            self.call(number)?.state = State::Idle;
            world.end(number, Outcome::Failed)?;
        }
        Ok(())
    }

    /// Has every region of the Call invalidated that still is registered, then settles it.
    fn fence(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        slot: usize,
        verdict: Verdict,
    ) -> Result<(), Failure> {
        self.call(number)?.state = State::Fencing(slot, verdict);
        self.invalidate(world, number)
    }

    /// Has the regions of a Call invalidated, behind which it is settled.
    pub(super) fn invalidate(
        &mut self,
        world: &mut World<'_>,
        number: usize,
    ) -> Result<(), Failure> {
        let World { fabric, memory, .. } = world;
        let mut is_clear = true;
        for segment in memory.segments(number) {
            if memory.is_registered(number, segment.handle) {
                is_clear = false;
                let delay = fabric.delay();
                let invalidated = SimulationEvent::Invalidated {
                    rpc: number,
                    handle: segment.handle,
                    generation: self.generation,
                };
                fabric.after(delay, invalidated)?;
            }
        }
        if is_clear {
            self.settle(world, number)?;
        }
        Ok(())
    }

    /// A local invalidation is complete.
    ///
    /// # Errors
    ///
    /// What is wrong with the end of the RPC.
    pub(crate) fn invalidated(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        handle: u32,
        generation: u32,
    ) -> Result<(), Failure> {
        // After the end of the connection there is nothing left to invalidate. What the answer to a
        // Call that was killed has invalidated meanwhile is so already.
        world.memory.invalidate(generation, handle);
        if generation != self.generation || world.memory.registered(number).is_some() {
            return Ok(());
        }
        self.settle(world, number)
    }

    /// Does what was to be done with a Call behind its fence.
    pub(super) fn settle(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        let call = self.call(number)?;
        let (slot, verdict) = match call.state {
            State::Fencing(slot, verdict) => (slot, verdict),
            State::Killed => {
                call.state = State::Idle;
                return world.end(number, Outcome::Killed);
            }
            State::Idle | State::Queued | State::Outstanding => return Ok(()),
        };
        call.state = State::Idle;
        let outcome = match verdict {
            Verdict::Inline { header, placed } => {
                check_inline(world, number, (slot, header), &placed)?;
                Outcome::Answered
            }
            Verdict::Chunk { length, placed } => {
                check_chunk(world, number, length, &placed)?;
                Outcome::Answered
            }
            Verdict::Failed => Outcome::Failed,
            Verdict::Resend => {
                world.messages.free(slot);
                world.memory.release(number)?;
                // The refused Call has not given its credit back.
                return if self.is_open {
                    self.send(world, number)
                } else {
                    self.call(number)?.state = State::Queued;
                    Ok(())
                };
            }
        };
        world.messages.free(slot);
        world.end(number, outcome)
    }

    /// Sends an RDMA_ERROR.
    fn answer(
        &mut self,
        world: &mut World<'_>,
        error: &ErrorMessage,
        credits: Credits,
        kind: Kind,
    ) -> Result<(), Failure> {
        self.post_receives(&mut world.fabric);
        let slot = world.messages.take()?;
        let buffer = world.messages.buffer(slot);
        let length = error
            .encode(buffer, credits)
            .map_err(|_| Failure::NoSpace)?;
        world.send(
            slot,
            Message {
                to: End::Responder,
                generation: self.generation,
                length,
                kind,
                ..Message::NONE
            },
        )
    }

    /// No Reply came to a transmission of a Call: only a new connection brings the credit back.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn call_timeout(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        transmission: u32,
    ) -> Result<(), Failure> {
        let call = self.call(number)?;
        let is_open = matches!(call.state, State::Outstanding) || call.is_owed;
        if call.transmissions != transmission || !is_open {
            return Ok(());
        }
        world.fabric.tally.timeouts += 1;
        self.end_connection(world)
    }
}

/// The RPC of a backward Call, all of whose bytes are right.
fn backward_call(world: &World<'_>, call: &BackwardCall<'_>) -> Result<Awaited, Failure> {
    let Some(number) = world.find(Direction::Backward, call.fixed.xid.0) else {
        return Ok(None);
    };
    if world.rpc(number)?.call_payload().is(call.payload) {
        Ok(Some(number))
    } else {
        Err(Failure::CallBytes(number))
    }
}
