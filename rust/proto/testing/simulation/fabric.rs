// SPDX-License-Identifier: GPL-2.0

//! A reliable connection of two queue pairs: messages arrive whole and in order while it lasts,
//! and none arrives afterwards.
//!
//! The fabric fails the run when an endpoint breaks its contract: a Send that finds no Receive, one
//! that is larger than agreed, a Call beyond the credits, memory that is not to be reached.

use super::history::{History, Step, Tally};
use super::message::{Kind, Message};
use super::payload::short;
use super::private_bytes::PrivateBytes;
use super::queue::{Access, Queue, SimulationEvent};
use super::random::Random;
use super::scenario::Scenario;
use super::{Direction, End, Failure};
use crate::proto::wire::header::{VERSION_ONE, VERSION_TWO};

/// As many messages as a misbehaving peer may send at once without a credit for them.
const SPARE_RECEIVES: u32 = 8;

/// What arrives at one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// Receives that are posted.
    receives: u32,
    /// Their size in bytes.
    receive_size: u32,
    /// The largest message of Version One that may be sent, in bytes.
    threshold: u32,
    /// Whether the sender knows that the receiver speaks Version Two.
    is_two: bool,
    /// When the last Send arrives.
    last_send: u64,
    /// When the last Send, RDMA Read or RDMA Write arrives.
    last: u64,
}

impl Port {
    /// The largest message of a version, in bytes (Version Two sections 2.3 and 5).
    fn threshold_of(&self, version: u32) -> u32 {
        match (version, self.is_two) {
            (VERSION_ONE, _) | (_, false) if version != VERSION_TWO => self.threshold,
            (_, true) => self.threshold.max(4096),
            (_, false) => 1024,
        }
    }
}

/// Flow control of one direction, as an observer counts it.
#[derive(Clone, Copy, Debug)]
struct Flow {
    outstanding: u32,
    allowed: u32,
    requested: u32,
}

impl Flow {
    /// One Call may be outstanding on a new connection (RFC 8166 section 3.3.3).
    const fn new(requested: u32) -> Self {
        Self {
            outstanding: 0,
            allowed: 1,
            requested,
        }
    }

    fn answered(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }
}

/// The connection, or the attempt to make one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Its number. Nothing of one connection reaches the next one.
    pub(crate) generation: u32,
    lost: bool,
    to_requester: Port,
    to_responder: Port,
    forward: Flow,
    backward: Flow,
    /// The private data of the request for the connection.
    pub(crate) request: PrivateBytes,
    /// The private data of the answer.
    pub(crate) answer: PrivateBytes,
}

impl Link {
    /// No connection, before the first attempt.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let port = |receive_size, threshold| Port {
            receives: 0,
            receive_size,
            threshold,
            is_two: false,
            last_send: 0,
            last: 0,
        };
        Self {
            generation: 0,
            lost: true,
            to_requester: port(
                scenario.requester.receive_size(),
                scenario.requester_threshold(),
            ),
            to_responder: port(
                scenario.responder.receive_size(),
                scenario.responder_threshold(),
            ),
            forward: Flow::new(scenario.requester.requests),
            backward: Flow::new(scenario.responder.requests),
            request: PrivateBytes::EMPTY,
            answer: PrivateBytes::EMPTY,
        }
    }

    fn port(&mut self, to: End) -> &mut Port {
        match to {
            End::Requester => &mut self.to_requester,
            End::Responder => &mut self.to_responder,
        }
    }

    fn flow(&mut self, direction: Direction) -> &mut Flow {
        match direction {
            Direction::Forward => &mut self.forward,
            Direction::Backward => &mut self.backward,
        }
    }

    /// Whether this is the connection of that number, and still carries something.
    pub(crate) fn carries(&self, generation: u32) -> bool {
        self.generation == generation && !self.lost
    }
}

/// Time, the connection, and what the seed decides about both.
pub(crate) struct Fabric<'a> {
    /// What the seed goes on deciding.
    pub(crate) random: Random<'a>,
    /// What the seed decided at first.
    pub(crate) scenario: Scenario,
    /// The present, in units of virtual time.
    pub(crate) now: u64,
    /// What is to happen.
    pub(crate) queue: Queue<'a>,
    /// The connection.
    pub(crate) link: Link,
    /// What happened.
    pub(crate) history: History<'a>,
    /// How often it happened.
    pub(crate) tally: Tally,
}

impl<'a> Fabric<'a> {
    /// A fabric before its first event.
    pub(crate) fn new(
        random: Random<'a>,
        scenario: &Scenario,
        queue: Queue<'a>,
        history: History<'a>,
    ) -> Self {
        Self {
            random,
            scenario: *scenario,
            now: 0,
            queue,
            link: Link::new(scenario),
            history,
            tally: Tally::default(),
        }
    }

    /// Has `event` happen after `delay`.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn after(&mut self, delay: u32, event: SimulationEvent) -> Result<(), Failure> {
        self.queue.push(self.now + u64::from(delay), event)
    }

    /// Takes the next event, and makes its moment the present.
    pub(crate) fn next(&mut self) -> Option<SimulationEvent> {
        let (at, event) = self.queue.pop()?;
        self.now = at;
        self.tally.events += 1;
        self.record(Step::Event(event));
        Some(event)
    }

    /// Adds a step to the history.
    pub(crate) fn record(&mut self, step: Step) {
        self.history.record(self.now, step);
    }

    /// The time that something takes on its way.
    pub(crate) fn delay(&mut self) -> u32 {
        let longest = self.scenario.delay;
        self.random.between(1, longest)
    }

    /// The time that the upper layer takes to serve a Call.
    pub(crate) fn service(&mut self) -> u32 {
        let longest = self.scenario.service;
        self.random.between(1, longest)
    }

    /// Receives beyond those that credits account for, where a peer misbehaves.
    pub(crate) fn spare_receives(&self) -> u32 {
        if self.scenario.faults {
            SPARE_RECEIVES
        } else {
            0
        }
    }

    /// The credits that one end grants next.
    pub(crate) fn grant(&mut self, by: End) -> u32 {
        let most = match by {
            End::Requester => self.scenario.requester.grants,
            End::Responder => self.scenario.responder.grants,
        };
        if !self.scenario.unsteady || self.random.one_in(3) {
            most
        } else if self.random.one_in(2) {
            1
        } else {
            self.random.between(1, most)
        }
    }

    /// Begins an attempt to connect; its number.
    pub(crate) fn open_link(&mut self) -> u32 {
        let generation = self.link.generation.wrapping_add(1);
        self.link = Link {
            generation,
            lost: false,
            ..Link::new(&self.scenario)
        };
        generation
    }

    /// Posts Receives.
    pub(crate) fn post_receives(&mut self, to: End, generation: u32, count: u32) {
        if self.link.generation == generation {
            self.link.port(to).receives += count;
        }
    }

    /// Loses the connection. Both ends learn of it, each at its own time.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn lose(&mut self) -> Result<(), Failure> {
        if self.link.lost {
            return Ok(());
        }
        self.hang_up(End::Requester)?;
        let delay = self.random.below(1_000);
        self.after(
            delay,
            SimulationEvent::Down(End::Requester, self.link.generation),
        )
    }

    /// Ends the connection at one end. The other one learns of it.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn hang_up(&mut self, by: End) -> Result<(), Failure> {
        if self.link.lost {
            return Ok(());
        }
        let generation = self.link.generation;
        self.link.lost = true;
        self.record(Step::Lost(generation));
        let delay = self.random.below(1_000);
        let other = match by {
            End::Requester => End::Responder,
            End::Responder => End::Requester,
        };
        self.after(delay, SimulationEvent::Down(other, generation))
    }

    /// When something that is posted now arrives; a Send arrives after all that was posted before.
    fn arrival(&mut self, to: End, is_send: bool) -> u64 {
        let earliest = self.now + u64::from(self.delay());
        let port = self.link.port(to);
        let floor = if is_send { port.last } else { port.last_send };
        let at = earliest.max(floor + 1);
        port.last = port.last.max(at);
        if is_send {
            port.last_send = at;
        }
        at
    }

    /// Posts an RDMA Read of the bytes of a Call from `at` on.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn post_read(&mut self, access: Access, at: u32) -> Result<(), Failure> {
        let time = self.arrival(End::Requester, false);
        self.queue.push(time, SimulationEvent::Read(access, at))
    }

    /// Posts an RDMA Write of the bytes of a Reply from `at` on.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn post_write(&mut self, access: Access, at: u32) -> Result<(), Failure> {
        let time = self.arrival(End::Requester, false);
        self.queue.push(time, SimulationEvent::Write(access, at))
    }

    /// Takes a message in hand; whether the connection carries it.
    ///
    /// # Errors
    ///
    /// What is wrong with this Send.
    pub(crate) fn admit(
        &mut self,
        slot: usize,
        message: &Message,
        xid: u32,
        version: u32,
    ) -> Result<bool, Failure> {
        if !self.link.carries(message.generation) {
            return Ok(false);
        }
        let length = short(message.length);
        self.record(Step::Sent {
            to: message.to,
            kind: message.kind,
            xid,
            length,
        });
        let port = self.link.port(message.to);
        if length > port.threshold_of(version) {
            return Err(Failure::Threshold(message.to, length));
        }
        // The first Reply still is as short as its Call.
        port.is_two |= message.kind.is_forward_reply() && version != VERSION_ONE;
        if let Kind::Call(direction) = message.kind {
            let flow = self.link.flow(direction);
            flow.outstanding += 1;
            if flow.outstanding > flow.allowed {
                return Err(Failure::Credits(direction));
            }
        }
        if message.invalidate.is_some() && !self.scenario.remote_invalidation() {
            return Err(Failure::NotNegotiated);
        }
        let at = self.arrival(message.to, true);
        self.queue.push(at, SimulationEvent::Deliver(slot))?;
        Ok(true)
    }

    /// Hands a message with this credit word over; whether the connection still carries it.
    ///
    /// # Errors
    ///
    /// [`Failure::NoReceive`] and [`Failure::ReceiveSize`].
    pub(crate) fn deliver(
        &mut self,
        message: &Message,
        version: u32,
        credits: u32,
    ) -> Result<bool, Failure> {
        if !self.link.carries(message.generation) {
            return Ok(false);
        }
        let port = self.link.port(message.to);
        let receives = port.receives.checked_sub(1);
        port.receives = receives.ok_or(Failure::NoReceive(message.to))?;
        if short(message.length) > port.receive_size {
            return Err(Failure::ReceiveSize(message.to));
        }
        let is_reply = message.kind.is_forward_reply();
        self.link.to_responder.is_two |= is_reply && version != VERSION_ONE;
        match message.kind {
            Kind::Reply(direction) => {
                let flow = self.link.flow(direction);
                flow.answered();
                flow.allowed = credits.max(1).min(flow.requested);
            }
            Kind::BadReply(direction) => {
                // The receiver may have refused it before it came to the credits.
                let flow = self.link.flow(direction);
                flow.answered();
                flow.allowed = flow.allowed.max(credits.min(flow.requested));
            }
            Kind::UnknownReply => self.link.flow(Direction::Forward).answered(),
            Kind::Error(direction) => self.link.flow(direction).answered(),
            Kind::Call(_) | Kind::Other => {}
        }
        Ok(true)
    }
}
