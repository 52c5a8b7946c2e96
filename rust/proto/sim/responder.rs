// SPDX-License-Identifier: GPL-2.0

//! The end that listens: its connection, and what arrives there.

use super::super::{
    call::{decode_call, ReceivedByResponder},
    conn::{self, Reason},
    header::{Credits, ErrorBody, ErrorMessage, Versions, Xid},
    message::Refusal,
    private_data::{negotiate, PrivateData, Thresholds},
};
use super::callbacks::{BackwardCalls, SPARE_RECEIVES};
use super::message::{Kind, Message};
use super::private_bytes::PrivateBytes;
use super::queue::Event;
use super::rpc::{Fate, Outcome};
use super::scenario::Scenario;
use super::service::Job;
use super::stream::short;
use super::world::World;
use super::{Direction, End, Failure};

/// The longest time that a restart takes.
const RESTART: u32 = 50_000;

/// What a received message asks for.
enum Seen {
    Call(usize),
    BackwardReply(Option<usize>, Credits),
    Error(Option<usize>),
    Answer(ErrorMessage),
    Nothing,
}

/// The responder.
pub(crate) struct Responder<'a> {
    /// How often it has restarted.
    pub(super) incarnation: u32,
    is_up: bool,
    pub(super) generation: u32,
    is_ready: bool,
    pub(super) thresholds: Thresholds,
    /// Receives for forward Calls, posted or in use: as many as were ever granted.
    pub(super) receives: u32,
    pub(super) jobs: &'a mut [Job],
    backward: BackwardCalls,
}

impl<'a> Responder<'a> {
    /// A responder that listens.
    pub(crate) fn new(scenario: &Scenario, jobs: &'a mut [Job]) -> Self {
        jobs.fill(Job::NONE);
        Self {
            incarnation: 0,
            is_up: true,
            generation: 0,
            is_ready: false,
            thresholds: negotiate(PrivateData::DEFAULT, None),
            receives: 0,
            jobs,
            backward: BackwardCalls::new(scenario),
        }
    }

    /// Takes a backward Call from the upper layer.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that are sent.
    pub(crate) fn submit(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        if world.rpc(number)?.outcome.is_some() {
            return Ok(());
        }
        self.backward.submit(number)?;
        self.pump(world)
    }

    /// Sends backward Calls, if there is a connection.
    fn pump(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        if self.is_ready {
            self.backward.pump(world, self.generation)?;
        }
        Ok(())
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
            let rejected = conn::Event::Ended(Reason::Rejected);
            return world.fabric.after(delay, Event::Cm(generation, rejected));
        }
        self.disconnect(world);
        let fabric = &mut world.fabric;
        let own = fabric.scenario.responder.private_data;
        let peer = own.and(fabric.link.request.find());
        self.thresholds = negotiate(own.unwrap_or(PrivateData::DEFAULT), peer);
        self.generation = generation;
        self.receives = 1;
        let spare = if fabric.scenario.faults {
            SPARE_RECEIVES
        } else {
            0
        };
        fabric.post_receives(End::Responder, generation, self.receives + spare);
        let lost = fabric.scenario.answer_lost;
        fabric.link.answer = PrivateBytes::new(&mut fabric.random, own.filter(|_| !lost));
        fabric.after(delay, Event::Cm(generation, conn::Event::Established))
    }

    /// The connection is established, which a first message shows as well.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that are sent.
    pub(crate) fn ready(&mut self, world: &mut World<'_>, generation: u32) -> Result<(), Failure> {
        if generation == self.generation && world.fabric.link.carries(generation) {
            self.is_ready = true;
            self.pump(world)?;
        }
        Ok(())
    }

    /// A connection is lost.
    pub(crate) fn down(&mut self, world: &mut World<'_>, generation: u32) {
        if generation == self.generation {
            self.disconnect(world);
        }
    }

    /// Forgets the connection. Calls that are being served go on.
    fn disconnect(&mut self, world: &mut World<'_>) {
        self.is_ready = false;
        self.backward.reset();
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
        self.incarnation += 1;
        self.is_up = false;
        self.disconnect(world);
        self.jobs.fill(Job::NONE);
        self.backward.restart(world)?;
        let delay = world.fabric.random.between(1, RESTART);
        world.fabric.after(delay, Event::ServerUp)
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
        self.is_ready = true;
        match self.look(world, slot, message)? {
            Seen::Call(number) => self.call(world, number, slot)?,
            Seen::BackwardReply(number, credits) => {
                world.messages.free(slot);
                self.backward.grant(credits);
                if let Some(number) = number {
                    self.backward.end(world, number, Outcome::Answered)?;
                }
            }
            Seen::Error(number) => {
                world.messages.free(slot);
                match number {
                    Some(number) => self.backward.end(world, number, Outcome::Failed)?,
                    None => world
                        .fabric
                        .post_receives(End::Responder, self.generation, 1),
                }
            }
            Seen::Answer(error) => {
                world.messages.free(slot);
                self.error(world, &error, Kind::Other)?;
            }
            Seen::Nothing => {
                world.messages.free(slot);
                world
                    .fabric
                    .post_receives(End::Responder, self.generation, 1);
            }
        }
        self.pump(world)
    }

    /// Finds out what a message is.
    fn look(&self, world: &World<'_>, slot: usize, message: &Message) -> Result<Seen, Failure> {
        Ok(
            match decode_call(world.messages.bytes(slot), Versions::ONE) {
                Ok(ReceivedByResponder::Call(call)) => {
                    let number = world.find(Direction::Forward, call.xid.0);
                    number.map_or(Seen::Nothing, Seen::Call)
                }
                Ok(ReceivedByResponder::BackwardReply {
                    xid,
                    credits,
                    payload,
                    ..
                }) => {
                    let number = self.backward.awaited(world, xid);
                    if let Some(number) = number {
                        let stream = world.rpc(number)?.reply_stream();
                        let whole = short(payload.len()) == stream.total();
                        if !whole || !stream.matches(0, payload) {
                            return Err(Failure::ReplyBytes(number));
                        }
                    }
                    Seen::BackwardReply(number, credits)
                }
                Ok(ReceivedByResponder::Error(error)) => {
                    Seen::Error(self.backward.awaited(world, error.xid))
                }
                Err(refused) if message.kind != Kind::Other => {
                    return Err(Failure::Refused(refused.why.cause));
                }
                Err(refused) => match refused.at_responder() {
                    Some(Refusal::Answer(error)) => Seen::Answer(error),
                    Some(Refusal::Discard) | None => Seen::Nothing,
                },
            },
        )
    }

    /// Sends an RDMA_ERROR.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn error(
        &mut self,
        world: &mut World<'_>,
        error: &ErrorMessage,
        kind: Kind,
    ) -> Result<(), Failure> {
        world
            .fabric
            .post_receives(End::Responder, self.generation, 1);
        let slot = world.messages.take()?;
        let buffer = world.messages.buffer(slot);
        let credits = Credits::new(self.receives);
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

    /// No Reply came to a backward Call: the credit would never come back.
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
        if generation != self.generation || !self.backward.is_outstanding(number) {
            return Ok(());
        }
        if world.rpc(number)?.fate == Fate::Ignored {
            self.backward.end(world, number, Outcome::Failed)?;
        }
        if world.fabric.link.carries(generation) {
            world.fabric.hang_up(End::Responder)?;
        }
        self.disconnect(world);
        Ok(())
    }
}
