// SPDX-License-Identifier: GPL-2.0

//! One run.

use super::history::{History, Recorded, Tally};
use super::job::Job;
use super::memory::{Memory, Region};
use super::message::{Message, Messages};
use super::queue::{Queue, Scheduled, SimulationEvent};
use super::random::Random;
use super::requester::{Requester, SentCall};
use super::responder::Responder;
use super::rpc::Rpc;
use super::scenario::Scenario;
use super::world::World;
use super::{Direction, End, Failure};

/// More events than any run has that comes to an end.
const MOST_EVENTS: u64 = 50_000;

/// The memory of a run, which the caller has allocated.
pub(crate) struct Storage<'a> {
    /// [`super::MEMORY`].
    pub(crate) memory: &'a mut [u8],
    /// [`super::REGIONS`].
    pub(crate) regions: &'a mut [Region],
    /// [`super::MESSAGES`] times [`super::MESSAGE_LEN`].
    pub(crate) messages: &'a mut [u8],
    /// [`super::MESSAGES`].
    pub(crate) slots: &'a mut [Option<Message>],
    /// [`super::EVENTS`].
    pub(crate) queue: &'a mut [Scheduled],
    /// [`super::STEPS`].
    pub(crate) history: &'a mut [Recorded],
    /// [`super::RPCS`].
    pub(crate) rpcs: &'a mut [Rpc],
    /// [`super::RPCS`].
    pub(crate) calls: &'a mut [SentCall],
    /// [`super::RPCS`].
    pub(crate) jobs: &'a mut [Job],
}

/// Two endpoints and what is between them.
pub(crate) struct Simulation<'a> {
    world: World<'a>,
    requester: Requester<'a>,
    responder: Responder<'a>,
}

impl<'a> Simulation<'a> {
    /// The run that `random` decides, before its first event.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if `storage` is too small.
    pub(crate) fn new(random: Random<'a>, storage: Storage<'a>) -> Result<Self, Failure> {
        let world = World::new(
            random,
            Queue::new(storage.queue),
            History::new(storage.history),
            Memory::new(storage.memory, storage.regions),
            Messages::new(storage.messages, storage.slots),
            storage.rpcs,
        )?;
        let scenario = world.fabric.scenario;
        Ok(Self {
            world,
            requester: Requester::new(&scenario, storage.calls),
            responder: Responder::new(&scenario, storage.jobs),
        })
    }

    /// What the seed has decided.
    pub(crate) fn scenario(&self) -> &Scenario {
        &self.world.fabric.scenario
    }

    /// The last steps.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Recorded> + '_ {
        self.world.fabric.history.steps()
    }

    /// Runs until everything has come to its end; what happened how often.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub(crate) fn run(&mut self) -> Result<Tally, Failure> {
        while self.world.left != 0 {
            if !self.step()? {
                return Err(Failure::Deadlock(self.world.left));
            }
            if self.world.fabric.tally.events > MOST_EVENTS {
                return Err(Failure::Endless);
            }
            self.disturb()?;
        }
        self.requester.finish(&mut self.world)?;
        while self.step()? {}
        if self.world.memory.is_leaking() {
            return Err(Failure::Leak);
        }
        if self.world.messages.is_leaking() {
            return Err(Failure::MessageLeak);
        }
        Ok(self.world.fabric.tally)
    }

    /// Does what the seed wants done after this number of events.
    fn disturb(&mut self) -> Result<(), Failure> {
        let scenario = self.world.fabric.scenario;
        let events = self.world.fabric.tally.events;
        for loss in scenario.losses {
            if u64::from(loss) == events {
                self.world.fabric.lose()?;
            }
        }
        if u64::from(scenario.restart) == events {
            self.responder.restart(&mut self.world)?;
        }
        Ok(())
    }

    /// Has one event happen; false if there is none.
    fn step(&mut self) -> Result<bool, Failure> {
        let Self {
            world,
            requester,
            responder,
        } = self;
        let Some(event) = world.fabric.next() else {
            return Ok(false);
        };
        match event {
            SimulationEvent::Submit(number) => match world.rpc(number)?.direction {
                Direction::Forward => requester.submit(world, number)?,
                Direction::Backward => responder.submit(world, number)?,
            },
            SimulationEvent::Kill(number) => requester.kill(world, number)?,
            SimulationEvent::Attempt => requester.attempt(world)?,
            SimulationEvent::Established(generation) => requester.established(world, generation)?,
            SimulationEvent::AttemptFailed(generation) => {
                requester.attempt_failed(world, generation)?
            }
            SimulationEvent::ConnectRequest(generation) => {
                responder.connect_request(world, generation)?
            }
            SimulationEvent::Down(End::Requester, generation) => {
                requester.down(world, generation)?
            }
            SimulationEvent::Down(End::Responder, generation) => responder.down(world, generation),
            SimulationEvent::ServerUp => responder.up(),
            SimulationEvent::Deliver(slot) => {
                if let Some(message) = world.arrive(slot)? {
                    match message.to {
                        End::Requester => requester.receive(world, slot, &message)?,
                        End::Responder => responder.receive(world, slot, &message)?,
                    }
                }
            }
            SimulationEvent::Read(access, at) => {
                if world.read(&access, at)? {
                    let delay = world.fabric.delay();
                    let done = SimulationEvent::ReadDone(access.rpc, access.generation);
                    world.fabric.after(delay, done)?;
                }
            }
            SimulationEvent::Write(access, at) => world.write(&access, at)?,
            SimulationEvent::ReadDone(number, generation) => {
                responder.read_done(world, number, generation)?
            }
            SimulationEvent::Served(number, incarnation) => {
                responder.served(world, number, incarnation)?
            }
            SimulationEvent::BackwardServed(number) => requester.backward_served(world, number)?,
            SimulationEvent::Invalidated {
                rpc,
                handle,
                generation,
            } => requester.invalidated(world, rpc, handle, generation)?,
            SimulationEvent::CallTimeout(number, transmission) => {
                requester.call_timeout(world, number, transmission)?;
            }
            SimulationEvent::BackwardTimeout(number, generation) => {
                responder.backward_timeout(world, number, generation)?;
            }
        }
        if let Some(xid) = world.take_refused() {
            responder.cannot_answer(world, xid);
        }
        Ok(true)
    }
}
