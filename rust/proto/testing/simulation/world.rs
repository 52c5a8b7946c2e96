// SPDX-License-Identifier: GPL-2.0

//! What both endpoints work with: the fabric, the memory, the messages and the upper layers' RPCs.

use super::fabric::Fabric;
use super::history::{History, Step};
use super::memory::{Memory, Rights};
use super::message::{Message, Messages};
use super::payload::short;
use super::queue::{Access, Queue, SimulationEvent};
use super::random::Random;
use super::rpc::{Fate, Rpc};
use super::scenario::Scenario;
use super::{Direction, Failure, Outcome, BACKWARD_RPCS, FORWARD_RPCS};
use crate::proto::wire::error::ErrorBody;
use crate::proto::wire::header::{Versions, Xid};

/// All but the two endpoints.
pub(crate) struct World<'a> {
    /// Time and the connection.
    pub(crate) fabric: Fabric<'a>,
    /// The requester's memory.
    pub(crate) memory: Memory<'a>,
    /// All messages.
    pub(crate) messages: Messages<'a>,
    /// RPCs that have not ended.
    pub(crate) left: usize,
    /// Whether the responder has refused a version without naming a lower one that is in common.
    pub(crate) has_no_common_version: bool,
    /// The Call for which an access was refused that the responder has not heard of.
    refused: Option<Xid>,
    /// Where the XIDs start.
    base: u32,
    rpcs: &'a mut [Rpc],
}

impl<'a> World<'a> {
    /// The world that `random` decides, with its RPCs on their way to the endpoints.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if `rpcs` or the queue is too small.
    pub(crate) fn new(
        mut random: Random<'a>,
        queue: Queue<'a>,
        history: History<'a>,
        memory: Memory<'a>,
        messages: Messages<'a>,
        rpcs: &'a mut [Rpc],
    ) -> Result<Self, Failure> {
        let scenario = Scenario::new(&mut random, FORWARD_RPCS, BACKWARD_RPCS);
        let left = scenario.forward + scenario.backward;
        let mut world = Self {
            fabric: Fabric::new(random, &scenario, queue, history),
            memory,
            messages,
            left,
            has_no_common_version: false,
            refused: None,
            base: 0,
            // One more, for RPCs that only have to be there.
            rpcs: rpcs.get_mut(..=left).ok_or(Failure::Storage)?,
        };
        world.prepare()?;
        Ok(world)
    }

    /// Decides about the RPCs, and when the upper layers hand them over.
    fn prepare(&mut self) -> Result<(), Failure> {
        let Fabric {
            scenario,
            random,
            queue,
            ..
        } = &mut self.fabric;
        let span = random.pick(1, &[1_000, 100_000]);
        self.base = random.word();
        let xid = |number: usize| self.base.wrapping_add(short(number));
        // The XID spaces of the two directions have nothing to do with each other, and overlap
        // here. Where a requester answers a Reply of an unknown version they must not, because the
        // responder could not tell what the RDMA_ERROR is for.
        let apart = u32::from(scenario.faults).wrapping_shl(16);
        let (null, rpcs) = self.rpcs.split_first_mut().ok_or(Failure::Storage)?;
        *null = Rpc::NONE;
        for (number, rpc) in rpcs.iter_mut().enumerate() {
            *rpc = match number.checked_sub(scenario.forward) {
                None => Rpc::forward(random, scenario, xid(number)),
                Some(number) => Rpc::backward(random, scenario, xid(number).wrapping_add(apart)),
            };
            let (number, is_forward) = (number + 1, number < scenario.forward);
            let submitted = u64::from(random.below(span));
            queue.push(submitted, SimulationEvent::Submit(number))?;
            if scenario.kills && is_forward && random.one_in(4) {
                let life = u64::from(random.below(span.max(scenario.service)));
                queue.push(submitted + life, SimulationEvent::Kill(number))?;
            }
        }
        queue.push(0, SimulationEvent::Attempt)
    }

    /// A forward RPC of the upper layer's that has nothing to say.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if there is one already.
    pub(crate) fn start_null(&mut self) -> Result<usize, Failure> {
        // Behind all other XIDs of the run, and not one of an earlier such RPC.
        let xid = self
            .base
            .wrapping_add(0x8000)
            .wrapping_add(self.fabric.link.generation);
        let null = self.rpc_mut(0)?;
        if null.outcome.is_none() {
            return Err(Failure::Storage);
        }
        *null = Rpc::null(xid);
        self.left += 1;
        Ok(0)
    }

    /// A backward RPC that has not ended.
    pub(crate) fn backward_rpc(&self) -> Option<usize> {
        let is_left = |rpc: &Rpc| rpc.direction == Direction::Backward && rpc.outcome.is_none();
        self.rpcs.iter().position(is_left)
    }

    /// What a responder says that refuses a version which it does know.
    pub(crate) fn refuse_version(&mut self, version: u32) -> ErrorBody {
        let range = match self.fabric.random.below(3) {
            0 => Versions { low: 3, high: 4 },
            1 => Versions { low: 2, high: 3 },
            _ => Versions::ONE,
        };
        // Nobody goes back to a higher version, nor to the one that was refused.
        let lowest = self.fabric.scenario.requester.versions.low;
        let has_common = (lowest..version).any(|version| range.contains(version));
        self.has_no_common_version |= !has_common;
        ErrorBody::Version(range)
    }

    /// One RPC.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if there is none of this number.
    pub(crate) fn rpc(&self, number: usize) -> Result<Rpc, Failure> {
        self.rpcs.get(number).copied().ok_or(Failure::Storage)
    }

    /// One RPC, to be changed.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if there is none of this number.
    pub(crate) fn rpc_mut(&mut self, number: usize) -> Result<&mut Rpc, Failure> {
        self.rpcs.get_mut(number).ok_or(Failure::Storage)
    }

    /// The RPC of one direction that has this XID.
    pub(crate) fn find(&self, direction: Direction, xid: u32) -> Option<usize> {
        self.rpcs
            .iter()
            .position(|rpc| rpc.direction == direction && rpc.xid == xid)
    }

    /// Notes that an upper layer has served an RPC.
    ///
    /// # Errors
    ///
    /// [`Failure::ServedTwice`] for a forward Call, which the duplicate request cache protects from
    /// that for as long as the responder runs.
    pub(crate) fn served(&mut self, number: usize) -> Result<(), Failure> {
        let restarts = self.fabric.tally.restarts;
        let rpc = self.rpc_mut(number)?;
        rpc.served += 1;
        if rpc.direction == Direction::Forward && u64::from(rpc.served) > 1 + restarts {
            return Err(Failure::ServedTwice(number));
        }
        Ok(())
    }

    /// Ends an RPC, and frees its regions.
    ///
    /// # Errors
    ///
    /// Whatever is wrong with this end.
    pub(crate) fn end(&mut self, number: usize, outcome: Outcome) -> Result<(), Failure> {
        self.fabric.record(Step::Ended(number, outcome));
        let rpc = self.rpc_mut(number)?;
        if rpc.outcome.is_some() {
            return Err(Failure::EndedTwice(number));
        }
        if rpc.expected() != outcome {
            return Err(Failure::Outcome(number, outcome));
        }
        if outcome == Outcome::Answered && rpc.served == 0 {
            return Err(Failure::NotServed(number));
        }
        rpc.outcome = Some(outcome);
        let direction = rpc.direction;
        let tally = &mut self.fabric.tally;
        let count = match (direction, outcome) {
            (Direction::Forward, Outcome::Answered) => &mut tally.answered,
            (Direction::Forward, Outcome::Failed) => &mut tally.failed,
            (_, Outcome::Killed) => &mut tally.killed,
            (Direction::Backward, Outcome::Answered) => &mut tally.backward_answered,
            (Direction::Backward, Outcome::Failed) => &mut tally.backward_failed,
        };
        *count += 1;
        self.left = self.left.saturating_sub(1);
        self.memory.release(number)
    }

    /// Sends the message in `slot`, which was written to its length.
    ///
    /// # Errors
    ///
    /// What is wrong with this Send.
    pub(crate) fn send(&mut self, slot: usize, message: Message) -> Result<(), Failure> {
        self.messages.describe(slot, message);
        let (xid, version) = (self.messages.word(slot, 0), self.messages.word(slot, 1));
        if !self.fabric.admit(slot, &message, xid, version)? {
            self.messages.free(slot);
        }
        Ok(())
    }

    /// The message in `slot` arrives; `None` if it is lost with its connection.
    ///
    /// # Errors
    ///
    /// What is wrong with this message.
    pub(crate) fn arrive(&mut self, slot: usize) -> Result<Option<Message>, Failure> {
        let message = self.messages.about(slot);
        let (version, credits) = (self.messages.word(slot, 1), self.messages.word(slot, 2));
        if !self.fabric.deliver(&message, version, credits)? {
            self.messages.free(slot);
            return Ok(None);
        }
        if let Some(handle) = message.invalidate {
            if !self.memory.invalidate(message.generation, handle) {
                self.refuse_access(Memory::rpc_of(handle), handle)?;
                self.messages.free(slot);
                return Ok(None);
            }
            self.fabric.tally.remote_invalidations += 1;
        }
        Ok(Some(message))
    }

    /// Carries an RDMA Read out, of the bytes of a Call from `at` on; whether the connection still
    /// did.
    ///
    /// # Errors
    ///
    /// [`Failure::NotRegistered`], or [`Failure::CallBytes`] if the memory has other bytes.
    pub(crate) fn read(&mut self, access: &Access, at: u32) -> Result<bool, Failure> {
        if !self.fabric.link.carries(access.generation) {
            return Ok(false);
        }
        let payload = self.rpc(access.rpc)?.call_payload();
        let extent = (access.offset, access.length);
        let reached = (self.memory).reach(access.generation, access.handle, extent, Rights::Read);
        let Some(bytes) = reached else {
            self.refuse_access(access.rpc, access.handle)?;
            return Ok(false);
        };
        if !payload.matches(at, bytes) {
            return Err(Failure::CallBytes(access.rpc));
        }
        Ok(true)
    }

    /// Carries an RDMA Write out, of the bytes of a Reply from `at` on, unless the connection is
    /// lost.
    ///
    /// # Errors
    ///
    /// [`Failure::NotRegistered`].
    pub(crate) fn write(&mut self, access: &Access, at: u32) -> Result<(), Failure> {
        if !self.fabric.link.carries(access.generation) {
            return Ok(());
        }
        let payload = self.rpc(access.rpc)?.reply_payload();
        let extent = (access.offset, access.length);
        let reached = (self.memory).reach(access.generation, access.handle, extent, Rights::Write);
        match reached {
            Some(bytes) => payload.fill(at, bytes),
            None => self.refuse_access(access.rpc, access.handle)?,
        }
        Ok(())
    }

    /// The responder has named memory that it may not reach. If it cannot know, because the memory
    /// was taken from it, by a requester that misbehaves or when a task was killed, that costs only
    /// the connection.
    fn refuse_access(&mut self, number: usize, handle: u32) -> Result<(), Failure> {
        let rpc = self.rpc(number)?;
        if !rpc.killed && rpc.fate != Fate::Invalidated {
            return Err(Failure::NotRegistered(handle));
        }
        self.refused = Some(Xid(rpc.xid));
        self.fabric.tally.refused_accesses += 1;
        self.fabric.lose()
    }

    /// Tells the responder of the Call for which an access was refused.
    pub(crate) fn take_refused(&mut self) -> Option<Xid> {
        self.refused.take()
    }
}
