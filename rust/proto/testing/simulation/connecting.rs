// SPDX-License-Identifier: GPL-2.0

//! The connection of the requester.

use super::private_bytes::PrivateBytes;
use super::queue::SimulationEvent;
use super::requester::{Requester, State};
use super::world::World;
use super::{End, Failure, RPCS};
use crate::proto::responder::grants::Grants;
use crate::proto::testing::receives::Receives;
use crate::proto::v2::requester::{RequesterEvent, RequesterNegotiation};
use crate::proto::wire::private_data::{negotiate, PrivateData};

/// How long one attempt to connect may take.
const ATTEMPT_TIMEOUT: u32 = 30_000;

/// The longest wait before the next attempt.
const BACKOFF: u32 = 5_000;

/// The present, in seconds of a thousand units.
fn seconds(world: &World<'_>) -> u64 {
    world.fabric.now / 1000
}

impl Requester<'_> {
    /// Begins an attempt to connect.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn attempt(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        if self.is_finished {
            return Ok(());
        }
        self.generation = world.fabric.open_link();
        self.is_closed = false;
        let failed = SimulationEvent::AttemptFailed(self.generation);
        world.fabric.after(ATTEMPT_TIMEOUT, failed)?;
        self.prepare(world);
        let message = world.fabric.scenario.requester.private_data;
        world.fabric.link.request = PrivateBytes::new(&mut world.fabric.random, message);
        let delay = world.fabric.delay();
        let request = SimulationEvent::ConnectRequest(self.generation);
        world.fabric.after(delay, request)
    }

    /// The responder has accepted a connection.
    ///
    /// # Errors
    ///
    /// What is wrong with what follows.
    pub(crate) fn established(
        &mut self,
        world: &mut World<'_>,
        generation: u32,
    ) -> Result<(), Failure> {
        if generation != self.generation || self.is_closed || self.is_open {
            return Ok(());
        }
        self.open(world)
    }

    /// The connection, or the attempt to make it, is lost.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that end.
    pub(crate) fn down(&mut self, world: &mut World<'_>, generation: u32) -> Result<(), Failure> {
        if generation != self.generation {
            return Ok(());
        }
        self.end_connection(world)
    }

    /// An attempt was rejected or took too long, if it is still one.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn attempt_failed(
        &mut self,
        world: &mut World<'_>,
        generation: u32,
    ) -> Result<(), Failure> {
        if self.is_open {
            return Ok(());
        }
        self.down(world, generation)
    }

    /// Closes the connection, or ends the attempt. Another one is made.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that end.
    pub(super) fn end_connection(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        if self.is_closed {
            return Ok(());
        }
        if !self.is_open {
            world.fabric.tally.failed_attempts += 1;
        }
        self.close(world)
    }

    /// Everything is done: closes the connection for good.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that end.
    pub(crate) fn finish(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        self.is_finished = true;
        self.end_connection(world)
    }

    /// Starts to count, and posts the first Receives.
    fn prepare(&mut self, world: &mut World<'_>) {
        self.credits.reset();
        let grant = world.fabric.grant(End::Requester);
        self.grants = Grants::new(grant, grant);
        self.receives = Receives::new(world.fabric.spare_receives());
        self.post_receives(&mut world.fabric);
    }

    /// Lets Calls through.
    fn open(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        let own = world.fabric.scenario.requester.private_data;
        let peer = own.and(world.fabric.link.answer.find());
        let thresholds = negotiate(own.unwrap_or(PrivateData::DEFAULT), peer);
        let supported = world.fabric.scenario.requester.versions;
        let first = self.known.first(supported, seconds(world));
        self.negotiation = RequesterNegotiation::new(supported, first);
        let connected = RequesterEvent::Connected(thresholds);
        if self.negotiation.handle(connected).is_some() {
            return Err(Failure::Negotiation);
        }
        self.is_open = true;
        world.fabric.tally.connections += 1;
        self.pump(world)
    }

    /// Takes the connection down. Nobody can reach any region any more.
    fn close(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        self.is_open = false;
        self.is_closed = true;
        world.fabric.hang_up(End::Requester)?;
        world.memory.invalidate_all(self.generation);
        if let Some(outcome) = self.negotiation.outcome() {
            self.known.record(outcome, seconds(world));
        }
        self.serving = [None; RPCS];
        for number in 0..self.calls.len() {
            self.call(number)?.is_owed = false;
            if let State::Outstanding = self.call(number)?.state {
                self.call(number)?.state = State::Queued;
                world.memory.release(number)?;
            }
            self.settle(world, number)?;
        }
        if self.is_finished {
            return Ok(());
        }
        let backoff = world.fabric.random.between(1, BACKOFF);
        world.fabric.after(backoff, SimulationEvent::Attempt)
    }
}
