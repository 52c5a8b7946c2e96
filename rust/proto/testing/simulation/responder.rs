// SPDX-License-Identifier: GPL-2.0

//! The end that listens: its connection, and what arrives there.

use super::fabric::Fabric;
use super::job::{BackwardState, Job};
use super::message::{Kind, Message};
use super::private_bytes::PrivateBytes;
use super::queue::SimulationEvent;
use super::scenario::Scenario;
use super::world::World;
use super::{Direction, End, Failure, Outcome, FORWARD_RPCS, RPCS};
use crate::proto::responder::decode::ReceivedByResponder;
use crate::proto::responder::grants::Grants;
use crate::proto::responder::refusal::ResponderRefusal;
use crate::proto::responder::unanswerable::UnanswerableCalls;
use crate::proto::testing::receives::Receives;
use crate::proto::testing::requester::credits::RequesterCredits;
use crate::proto::testing::responder::decode::decode_call;
use crate::proto::v2::responder::ResponderNegotiation;
use crate::proto::wire::error::{ErrorBody, ErrorMessage};
use crate::proto::wire::header::{Credits, Xid};
use crate::proto::wire::private_data::{negotiate, PrivateData, Thresholds};

/// The longest time that a restart takes.
const RESTART: u32 = 50_000;

/// How long Calls are remembered that could not be answered: until they come again, if nothing else
/// is to be waited for.
const REMEMBERED: u64 = 60_000;

/// Those of the requester, which is the only one. None of them makes room for another one.
type Unanswerable = UnanswerableCalls<End, FORWARD_RPCS>;

/// What a received message asks for.
enum Seen {
    Call(usize, Credits),
    BackwardReply(Option<usize>, Credits),
    Error(Option<usize>),
    Answer(ErrorMessage, Credits),
    Nothing,
}

/// The responder.
pub(crate) struct Responder<'a> {
    /// How often it has restarted.
    pub(super) incarnation: u32,
    is_up: bool,
    pub(super) generation: u32,
    pub(super) negotiation: ResponderNegotiation,
    /// Calls on this connection that were not refused, and Replies.
    pub(super) calls_and_replies: (u32, u32),
    /// For forward Calls.
    pub(super) grants: Grants,
    /// For backward Calls.
    pub(super) credits: RequesterCredits,
    pub(super) receives: Receives,
    pub(super) jobs: &'a mut [Job],
    unanswerable: Unanswerable,
    pub(super) calls: [BackwardState; RPCS],
}

impl<'a> Responder<'a> {
    /// A responder that listens.
    pub(crate) fn new(scenario: &Scenario, jobs: &'a mut [Job]) -> Self {
        jobs.fill(Job::NONE);
        let peer = &scenario.responder;
        Self {
            incarnation: 0,
            is_up: true,
            generation: 0,
            negotiation: ResponderNegotiation::new(Thresholds::DEFAULT),
            calls_and_replies: (0, 0),
            grants: Grants::new(peer.grants, peer.grants),
            credits: RequesterCredits::new(Credits::new(peer.requests)),
            receives: Receives::new(0),
            jobs,
            unanswerable: Unanswerable::new(REMEMBERED),
            calls: [BackwardState::Idle; RPCS],
        }
    }

    /// Posts the Receives that are due before the next Send.
    pub(super) fn post_receives(&mut self, fabric: &mut Fabric<'_>) {
        let replies = self.credits.outstanding();
        let missing = self
            .receives
            .missing(self.grants.receives(self.grants.limit(), 0), replies);
        self.receives.post(missing);
        fabric.post_receives(End::Responder, self.generation, missing);
    }

    /// Somebody wants to connect: accepts, and forgets the connection before.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn connect_request(
        &mut self,
        world: &mut World<'_>,
        generation: u32,
    ) -> Result<(), Failure> {
        if !world.fabric.link.carries(generation) {
            return Ok(());
        }
        let delay = world.fabric.delay();
        if !self.is_up {
            let rejected = SimulationEvent::AttemptFailed(generation);
            return world.fabric.after(delay, rejected);
        }
        self.disconnect(world);
        let fabric = &mut world.fabric;
        let own = fabric.scenario.responder.private_data;
        let peer = own.and(fabric.link.request.find());
        let thresholds = negotiate(own.unwrap_or(PrivateData::DEFAULT), peer);
        self.negotiation = ResponderNegotiation::new(thresholds);
        self.calls_and_replies = (0, 0);
        self.generation = generation;
        let limit = fabric.grant(End::Responder);
        self.grants = Grants::new(limit, limit);
        self.receives = Receives::new(fabric.spare_receives());
        self.post_receives(fabric);
        let lost = fabric.scenario.answer_lost;
        fabric.link.answer = PrivateBytes::new(&mut fabric.random, own.filter(|_| !lost));
        fabric.after(delay, SimulationEvent::Established(generation))
    }

    /// A connection is lost.
    pub(crate) fn down(&mut self, world: &mut World<'_>, generation: u32) {
        if generation == self.generation {
            self.disconnect(world);
        }
    }

    /// Forgets the connection. Calls that are being served go on.
    pub(super) fn disconnect(&mut self, world: &mut World<'_>) {
        self.negotiation = ResponderNegotiation::new(Thresholds::DEFAULT);
        self.calls_and_replies = (0, 0);
        self.credits.reset();
        for state in &mut self.calls {
            state.disconnect();
        }
        for job in self.jobs.iter_mut() {
            job.disconnect(&mut world.messages);
        }
    }

    /// Loses all memory of what happened, and is away for some time.
    ///
    /// # Errors
    ///
    /// What is wrong with the ends of the backward Calls, which are forgotten as well.
    pub(crate) fn restart(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        world.fabric.lose()?;
        world.fabric.tally.restarts += 1;
        self.is_up = false;
        self.disconnect(world);
        self.incarnation += 1;
        self.jobs.fill(Job::NONE);
        self.unanswerable = Unanswerable::new(REMEMBERED);
        self.forget_calls(world)?;
        let delay = world.fabric.random.between(1, RESTART);
        world.fabric.after(delay, SimulationEvent::ServerUp)
    }

    /// The requester's end has refused an RDMA Read or Write for a Call, which costs the
    /// connection.
    pub(crate) fn cannot_answer(&mut self, world: &World<'_>, xid: Xid) {
        self.unanswerable
            .record(End::Requester, xid, world.fabric.now);
    }

    /// Whether a Call has cost connections before, so that it is to be refused.
    pub(super) fn take_unanswerable(&mut self, fabric: &mut Fabric<'_>, xid: Xid) -> bool {
        let is_found = (self.unanswerable).is_refused(End::Requester, xid, fabric.now);
        if is_found {
            self.unanswerable.forget(End::Requester, xid);
        }
        fabric.tally.unanswerable += u64::from(is_found);
        is_found
    }

    /// Listens again.
    pub(crate) fn up(&mut self) {
        self.is_up = true;
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
        match self.look(world, slot, message)? {
            Seen::Call(number, credits) => {
                self.count_call(world, credits)?;
                self.call(world, number, slot)?;
            }
            Seen::BackwardReply(number, credits) => {
                world.messages.free(slot);
                if let Some(number) = number {
                    self.credits.reply(credits);
                    self.end(world, number, Outcome::Answered)?;
                }
            }
            Seen::Error(number) => {
                world.messages.free(slot);
                if let Some(number) = number {
                    self.credits.error();
                    self.end(world, number, Outcome::Failed)?;
                }
            }
            Seen::Answer(error, credits) => {
                world.messages.free(slot);
                let kind = match message.kind {
                    Kind::Call(direction) => Kind::Error(direction),
                    _ => Kind::Other,
                };
                self.count_call(world, credits)?;
                self.error(world, &error, kind)?;
            }
            Seen::Nothing => world.messages.free(slot),
        }
        self.pump(world)
    }

    /// Counts a Call against what was granted.
    fn count_call(&mut self, world: &World<'_>, requested: Credits) -> Result<(), Failure> {
        let is_within = self.grants.call(requested);
        // Whoever sends bad Replies cannot tell which of its grants were heard.
        if !is_within && !world.fabric.scenario.faults {
            return Err(Failure::Excess(Direction::Forward));
        }
        Ok(())
    }

    /// Finds out what a message is.
    fn look(&self, world: &World<'_>, slot: usize, message: &Message) -> Result<Seen, Failure> {
        let versions = world.fabric.scenario.responder.versions;
        let refused = match decode_call(world.messages.bytes(slot), versions) {
            Ok(ReceivedByResponder::Call(call)) => {
                let number = world.find(Direction::Forward, call.index.xid.0);
                let seen = number.map(|number| Seen::Call(number, call.index.credits));
                return Ok(seen.unwrap_or(Seen::Nothing));
            }
            Ok(ReceivedByResponder::BackwardReply { fixed, payload }) => {
                let number = self.awaited(world, fixed.xid);
                if let Some(number) = number {
                    if self.agreed() != Some(fixed.version) {
                        return Err(Failure::Negotiation);
                    }
                    if !world.rpc(number)?.reply_payload().is(payload) {
                        return Err(Failure::ReplyBytes(number));
                    }
                }
                return Ok(Seen::BackwardReply(number, fixed.credits));
            }
            Ok(ReceivedByResponder::Error(error)) => {
                return Ok(Seen::Error(self.awaited(world, error.xid)));
            }
            Err(refused) => refused,
        };
        match (refused.at_responder(), refused.fixed) {
            (ResponderRefusal::Answer(error), Some(fixed)) => {
                // Of a requester that does nothing wrong, only a version can be refused.
                if message.kind != Kind::Other && !matches!(error.body, ErrorBody::Version(_)) {
                    return Err(Failure::Refused(refused.error));
                }
                Ok(Seen::Answer(error, fixed.credits))
            }
            _ if message.kind == Kind::Other => Ok(Seen::Nothing),
            _ => Err(Failure::Refused(refused.error)),
        }
    }

    /// Sends an RDMA_ERROR in answer to what was counted as a Call.
    fn error(
        &mut self,
        world: &mut World<'_>,
        error: &ErrorMessage,
        kind: Kind,
    ) -> Result<(), Failure> {
        let credits = self.grants.reply();
        self.post_receives(&mut world.fabric);
        let slot = world.messages.take()?;
        let buffer = world.messages.buffer(slot);
        let length = error
            .encode(buffer, credits)
            .map_err(|_| Failure::NoSpace)?;
        world.send(
            slot,
            Message {
                to: End::Requester,
                generation: self.generation,
                length,
                kind,
                ..Message::NONE
            },
        )
    }

    /// Ends a Call with an RDMA_ERROR.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn refuse(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        version: u32,
        body: ErrorBody,
    ) -> Result<(), Failure> {
        let xid = Xid(world.rpc(number)?.xid);
        let error = ErrorMessage { xid, version, body };
        self.error(world, &error, Kind::Error(Direction::Forward))
    }
}
