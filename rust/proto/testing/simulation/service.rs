// SPDX-License-Identifier: GPL-2.0

//! Forward Calls at the responder: fetched, served once, answered as often as they arrive.

use super::fabric::Fabric;
use super::job::{Job, JobState};
use super::payload::{index, Payload};
use super::queue::{Access, SimulationEvent};
use super::responder::Responder;
use super::rpc::Fate;
use super::world::World;
use super::Failure;
use crate::proto::responder::call::ReceivedCall;
use crate::proto::responder::decode::ReceivedByResponder;
use crate::proto::responder::stream::{Source, StreamPiece};
use crate::proto::testing::responder::decode::decode_call;
use crate::proto::wire::error::ErrorBody;
use crate::proto::wire::header::{Versions, Xid};

/// The Call in a message that was one before, by what a responder keeps of it.
pub(super) fn decode(bytes: &[u8]) -> Result<ReceivedCall<'_>, Failure> {
    match decode_call(bytes, Versions::ONE_AND_TWO) {
        Ok(ReceivedByResponder::Call(call)) => {
            let index = call.index;
            index.call(bytes).ok_or(Failure::Storage)
        }
        Ok(_) => Err(Failure::Storage),
        Err(refused) => Err(Failure::Refused(refused.error)),
    }
}

impl Responder<'_> {
    pub(super) fn job(&mut self, number: usize) -> Result<&mut Job, Failure> {
        self.jobs.get_mut(number).ok_or(Failure::Storage)
    }

    /// A Call has arrived.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or with what follows.
    pub(super) fn call(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        slot: usize,
    ) -> Result<(), Failure> {
        let version = decode(world.messages.bytes(slot))?.index.version;
        let rpc = world.rpc_mut(number)?;
        rpc.received += 1;
        let (xid, fate) = (rpc.xid, rpc.fate);
        if fate == Fate::FirstLost && rpc.received == 1 {
            world.messages.free(slot);
            return Ok(());
        }
        let refusal = match fate {
            Fate::RefusedHeader => Some(ErrorBody::Chunk),
            Fate::RefusedVersion => Some(world.refuse_version(version)),
            _ if self.take_unanswerable(&mut world.fabric, Xid(xid)) => Some(ErrorBody::Chunk),
            _ => None,
        };
        if let Some(body) = refusal {
            world.messages.free(slot);
            return self.refuse(world, number, version, body);
        }
        self.negotiation
            .called(version, self.calls_and_replies.0 == 0);
        self.calls_and_replies.0 += 1;
        let job = self.job(number)?;
        if job.xid != xid {
            *job = Job { xid, ..Job::NONE };
        }
        if job.slot.replace(slot).is_some() {
            return Err(Failure::SentTwice(number));
        }
        match job.state {
            JobState::New => self.fetch(world, number, slot),
            JobState::Reading(_) | JobState::Serving => {
                world.fabric.tally.duplicates += 1;
                Ok(())
            }
            JobState::Served => {
                world.fabric.tally.duplicates += 1;
                self.reply(world, number)
            }
        }
    }

    /// Puts the RPC message together, by RDMA Read where it has to.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    fn fetch(&mut self, world: &mut World<'_>, number: usize, slot: usize) -> Result<(), Failure> {
        let payload = world.rpc(number)?.call_payload();
        let World {
            fabric, messages, ..
        } = world;
        let call = decode(messages.bytes(slot))?;
        let mut assembly = Assembly {
            fabric,
            call: &call,
            payload,
            rpc: number,
            generation: self.generation,
            at: 0,
            reads: 0,
        };
        let is_whole = assembly.run()?;
        let reads = assembly.reads;
        if !is_whole {
            return Err(Failure::CallBytes(number));
        }
        self.job(number)?.state = JobState::Reading(reads);
        if reads == 0 {
            self.serve(world, number)?;
        }
        Ok(())
    }

    /// One RDMA Read of a Call is complete.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn read_done(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        generation: u32,
    ) -> Result<(), Failure> {
        let is_present = generation == self.generation;
        let job = self.job(number)?;
        if let JobState::Reading(left) = job.state {
            if is_present {
                let left = left.saturating_sub(1);
                job.state = JobState::Reading(left);
                if left == 0 {
                    self.serve(world, number)?;
                }
            }
        }
        Ok(())
    }

    /// Hands the Call to the upper layer.
    fn serve(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        self.job(number)?.state = JobState::Serving;
        let service = world.fabric.service();
        let served = SimulationEvent::Served(number, self.incarnation);
        world.fabric.after(service, served)
    }

    /// The upper layer has served a Call.
    ///
    /// # Errors
    ///
    /// What is wrong with the Reply.
    pub(crate) fn served(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        incarnation: u32,
    ) -> Result<(), Failure> {
        if incarnation != self.incarnation {
            return Ok(());
        }
        world.served(number)?;
        self.job(number)?.state = JobState::Served;
        self.reply(world, number)?;
        self.pump(world)
    }
}

/// Puts a Call together from its inline part and its Read chunks.
struct Assembly<'a, 'b> {
    fabric: &'a mut Fabric<'b>,
    call: &'a ReceivedCall<'a>,
    payload: Payload,
    rpc: usize,
    generation: u32,
    /// Bytes of the RPC message so far.
    at: u32,
    /// RDMA Reads posted.
    reads: u32,
}

impl Assembly<'_, '_> {
    /// Goes through all pieces; whether what is there already has the right bytes, and as many.
    fn run(&mut self) -> Result<bool, Failure> {
        for StreamPiece { at, length, source } in self.call.stream() {
            let is_right = match source {
                Source::Inline(from) => {
                    let inline = self.call.payload.unwrap_or_default();
                    let bytes = inline.get(index(from)..index(from + length));
                    bytes.is_some_and(|bytes| self.payload.matches(at, bytes))
                }
                Source::Read { handle, offset } => {
                    let access = Access {
                        rpc: self.rpc,
                        generation: self.generation,
                        handle,
                        offset,
                        length,
                    };
                    self.fabric.post_read(access, at)?;
                    self.reads += 1;
                    true
                }
                Source::RoundUp => {
                    let zeroes = [0; 3];
                    let zeroes = zeroes.get(..index(length)).unwrap_or_default();
                    self.payload.matches(at, zeroes)
                }
            };
            if !is_right || at != self.at {
                return Ok(false);
            }
            self.at += length;
        }
        Ok(self.at == self.payload.total())
    }
}
