// SPDX-License-Identifier: GPL-2.0

//! Virtual time: what is to happen, and when.

use super::{End, Failure};

/// Something that happens at one moment of virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SimulationEvent {
    /// The upper layer of one end hands over the Call of this RPC.
    Submit(usize),
    /// The task of this RPC, a forward one, is killed.
    Kill(usize),
    /// The requester begins an attempt to connect.
    Attempt,
    /// The requester learns that its connection is made.
    Established(u32),
    /// The requester's attempt was rejected, or its patience with it is over.
    AttemptFailed(u32),
    /// The request for a connection arrives at the responder.
    ConnectRequest(u32),
    /// One end learns that the connection is lost.
    Down(End, u32),
    /// The responder is back after a restart.
    ServerUp,
    /// The message in this slot arrives.
    Deliver(usize),
    /// An RDMA Read fetches the bytes of a Call from offset `at` on.
    Read(Access, u32),
    /// An RDMA Write places the bytes of a Reply from offset `at` on.
    Write(Access, u32),
    /// The RDMA Reads of a Call are complete; the number is the responder's incarnation.
    ReadDone(usize, u32),
    /// The responder's upper layer has served this RPC; the number is its incarnation.
    Served(usize, u32),
    /// The requester's upper layer has served this backward RPC.
    BackwardServed(usize),
    /// A local invalidation of a region of this RPC is complete.
    Invalidated {
        /// The RPC.
        rpc: usize,
        /// The region.
        handle: u32,
        /// The connection.
        generation: u32,
    },
    /// The requester's patience with a Call is over; the number counts its transmissions.
    CallTimeout(usize, u32),
    /// The responder's patience with a backward Call is over; the number is the connection's.
    BackwardTimeout(usize, u32),
}

/// What an RDMA Read or Write of the responder names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// The RPC that it is done for.
    pub(crate) rpc: usize,
    /// The connection.
    pub(crate) generation: u32,
    /// The memory.
    pub(crate) handle: u32,
    /// Where in the memory, as the segment counts it.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u32,
}

/// An event and its moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scheduled {
    at: u64,
    sequence: u32,
    event: SimulationEvent,
}

impl Scheduled {
    /// What an unused place of the storage holds.
    pub(crate) const NONE: Self = Self {
        at: 0,
        sequence: 0,
        event: SimulationEvent::Attempt,
    };
}

/// The events to come, in no order.
pub(crate) struct Queue<'a> {
    places: &'a mut [Scheduled],
    used: usize,
    sequence: u32,
}

impl<'a> Queue<'a> {
    /// An empty queue.
    pub(crate) fn new(places: &'a mut [Scheduled]) -> Self {
        Self {
            places,
            used: 0,
            sequence: 0,
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if there is no room.
    pub(crate) fn push(&mut self, at: u64, event: SimulationEvent) -> Result<(), Failure> {
        let place = self.places.get_mut(self.used).ok_or(Failure::Storage)?;
        *place = Scheduled {
            at,
            sequence: self.sequence,
            event,
        };
        self.used += 1;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    /// Takes the earliest event; of those of one moment the one that was added first.
    pub(crate) fn pop(&mut self) -> Option<(u64, SimulationEvent)> {
        let live = self.places.get_mut(..self.used)?;
        let (index, _) = live
            .iter()
            .enumerate()
            .min_by_key(|(_, place)| (place.at, place.sequence))?;
        let last = live.last().copied()?;
        let taken = core::mem::replace(live.get_mut(index)?, last);
        self.used -= 1;
        Some((taken.at, taken.event))
    }
}
