// SPDX-License-Identifier: GPL-2.0

//! What the responder knows of each RPC.

use super::message::Messages;

/// How far a forward Call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    /// The Call has not arrived, or is lost with its connection.
    New,
    /// So many RDMA Reads are under way.
    Reading(u32),
    /// The upper layer has it.
    Serving,
    /// It is served.
    Served,
}

/// What the responder knows of a forward RPC: an entry of its duplicate request cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(super) xid: u32,
    pub(super) state: JobState,
    /// The Call that is to be answered, if its connection still is there.
    pub(super) slot: Option<usize>,
}

impl Job {
    /// What an unused place of the storage holds.
    pub(crate) const NONE: Self = Self {
        xid: 0,
        state: JobState::New,
        slot: None,
    };

    /// Forgets the connection.
    pub(super) fn disconnect(&mut self, messages: &mut Messages<'_>) {
        if let Some(slot) = self.slot.take() {
            messages.free(slot);
        }
        if matches!(self.state, JobState::Reading(_)) {
            self.state = JobState::New;
        }
    }
}

/// How far a backward Call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackwardState {
    /// Not handed over yet, or ended.
    Idle,
    /// To be sent.
    Queued,
    /// Sent on the present connection.
    Outstanding,
}

impl BackwardState {
    /// Forgets the connection.
    pub(super) fn disconnect(&mut self) {
        if *self == Self::Outstanding {
            *self = Self::Queued;
        }
    }
}
