// SPDX-License-Identifier: GPL-2.0

//! The Calls that a requester has outstanding (RFC 8166 section 3.3.1).

use crate::proto::wire::header::Credits;

/// The Calls of a requester, which never has more outstanding than its window allows: in the
/// forward direction a client, in the backward direction a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequesterCredits {
    requested: Credits,
    window: u32,
    outstanding: u32,
}

impl RequesterCredits {
    /// Starts a connection whose Calls all ask for `requested` credits.
    pub(crate) const fn new(requested: Credits) -> Self {
        Self {
            requested,
            window: 1,
            outstanding: 0,
        }
    }

    /// Starts over on a new connection, on which no Call is outstanding.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.requested);
    }

    /// The credit word of every Call.
    pub(crate) const fn requested(&self) -> Credits {
        self.requested
    }

    /// The most Calls that may be outstanding.
    pub(crate) const fn window(&self) -> u32 {
        self.window
    }

    /// The number of Calls that were sent and have no answer.
    pub(crate) const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Takes the credit for one Call. If there is none, the Call has to wait for an answer to
    /// another one.
    #[must_use]
    pub(crate) fn take(&mut self) -> bool {
        let free = self.outstanding < self.window;
        if free {
            self.outstanding = self.outstanding.saturating_add(1);
        }
        free
    }

    /// The Reply to an outstanding Call arrived, with this grant.
    pub(crate) fn reply(&mut self, granted: Credits) {
        self.window = granted.get().min(self.requested.get());
        self.error();
    }

    /// An outstanding Call was ended by an RDMA_ERROR, which grants nothing.
    pub(crate) fn error(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }
}
