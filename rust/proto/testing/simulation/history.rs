// SPDX-License-Identifier: GPL-2.0

//! What happened: the last steps of one run, and the numbers of many.

use super::message::Kind;
use super::queue::SimulationEvent;
use super::{End, Outcome};

/// Something that a failing run shows.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "the fields are for who reads a failing run")]
pub(crate) enum Step {
    /// An event was taken from the queue.
    Event(SimulationEvent),
    /// A message was sent.
    Sent {
        /// To whom.
        to: End,
        /// What it is.
        kind: Kind,
        /// Its first word.
        xid: u32,
        /// Its length in bytes.
        length: u32,
    },
    /// The connection is lost.
    Lost(u32),
    /// An RPC has ended.
    Ended(usize, Outcome),
}

/// A step and its moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    /// The moment, in units of virtual time.
    pub(crate) at: u64,
    /// The step, `None` in an unused place of the storage.
    pub(crate) step: Option<Step>,
}

impl Recorded {
    /// What an unused place of the storage holds.
    pub(crate) const NONE: Self = Self { at: 0, step: None };
}

/// The last steps of a run.
pub(crate) struct History<'a> {
    places: &'a mut [Recorded],
    next: usize,
}

impl<'a> History<'a> {
    /// No step.
    pub(crate) fn new(places: &'a mut [Recorded]) -> Self {
        places.fill(Recorded::NONE);
        Self { places, next: 0 }
    }

    /// Adds a step, in place of the oldest one.
    pub(crate) fn record(&mut self, at: u64, step: Step) {
        if let Some(place) = self.places.get_mut(self.next) {
            *place = Recorded {
                at,
                step: Some(step),
            };
        }
        self.next = (self.next + 1) % self.places.len().max(1);
    }

    /// The steps in their order.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Recorded> + '_ {
        let (late, early) = self.places.split_at(self.next.min(self.places.len()));
        let steps = early.iter().chain(late).copied();
        steps.filter(|recorded| recorded.step.is_some())
    }
}

/// What happened in a run, or in many, so that one can see that the simulation reaches it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Events.
    pub(crate) events: u64,
    /// Connections that were established.
    pub(crate) connections: u64,
    /// Attempts to connect that failed.
    pub(crate) failed_attempts: u64,
    /// Forward Calls sent, all transmissions.
    pub(crate) calls: u64,
    /// Calls sent again on another connection.
    pub(crate) resent: u64,
    /// Calls with a Read chunk.
    pub(crate) read_chunks: u64,
    /// Calls with a Position Zero chunk.
    pub(crate) position_zero: u64,
    /// Replies with data in a Write chunk.
    pub(crate) write_chunks: u64,
    /// Replies in a Reply chunk.
    pub(crate) reply_chunks: u64,
    /// Regions that the responder invalidated.
    pub(crate) remote_invalidations: u64,
    /// Calls that had to wait for a credit.
    pub(crate) waits: u64,
    /// Calls that the responder's duplicate request cache answered.
    pub(crate) duplicates: u64,
    /// Restarts of the responder.
    pub(crate) restarts: u64,
    /// Connections that were closed because a Reply did not come.
    pub(crate) timeouts: u64,
    /// Replies that the requester refused.
    pub(crate) refused: u64,
    /// RDMA_ERROR messages that ended a Call.
    pub(crate) errors: u64,
    /// Calls that were refused because they had cost connections.
    pub(crate) unanswerable: u64,
    /// Forward RPCs that were answered.
    pub(crate) answered: u64,
    /// Forward RPCs that failed.
    pub(crate) failed: u64,
    /// Forward RPCs whose task was killed.
    pub(crate) killed: u64,
    /// Answers to Calls whose task was killed.
    pub(crate) late: u64,
    /// Times that the responder reached for memory that was taken from it.
    pub(crate) refused_accesses: u64,
    /// Backward RPCs that were answered.
    pub(crate) backward_answered: u64,
    /// Backward RPCs that failed.
    pub(crate) backward_failed: u64,
    /// Connections that agreed on Version Two.
    pub(crate) version_two: u64,
    /// Calls sent again because their version was refused.
    pub(crate) fallbacks: u64,
}

impl Tally {
    /// Adds another run.
    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        for (sum, number) in self.fields().into_iter().zip(other.fields()) {
            *sum = sum.saturating_add(*number);
        }
    }

    /// All numbers.
    fn fields(&mut self) -> [&mut u64; 26] {
        [
            &mut self.events,
            &mut self.connections,
            &mut self.failed_attempts,
            &mut self.calls,
            &mut self.resent,
            &mut self.read_chunks,
            &mut self.position_zero,
            &mut self.write_chunks,
            &mut self.reply_chunks,
            &mut self.remote_invalidations,
            &mut self.waits,
            &mut self.duplicates,
            &mut self.restarts,
            &mut self.timeouts,
            &mut self.refused,
            &mut self.errors,
            &mut self.unanswerable,
            &mut self.answered,
            &mut self.failed,
            &mut self.killed,
            &mut self.late,
            &mut self.refused_accesses,
            &mut self.backward_answered,
            &mut self.backward_failed,
            &mut self.version_two,
            &mut self.fallbacks,
        ]
    }

    /// Whether everything has happened at least once.
    pub(crate) fn is_complete(&self) -> bool {
        let mut copy = *self;
        let complete = copy.fields().into_iter().all(|number| *number != 0);
        complete
    }
}
