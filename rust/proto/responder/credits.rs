// SPDX-License-Identifier: GPL-2.0

//! What a responder grants (RFC 8166 section 3.3.1).

use crate::proto::wire::header::Credits;

/// The credit word of a responder's Replies: what was asked for, within its own limit.
///
/// `limit` is the number of Receives that are posted for this connection.
pub(crate) fn granted(requested: Credits, limit: Credits) -> Credits {
    Credits::new(requested.get().min(limit.get()))
}

/// Whether a Call is one that the requester had a credit for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// It is within what was granted.
    Within,
    /// The requester has overrun what was granted. The responder may serve the Call, refuse it at
    /// the RPC level, or close the connection (RFC 8166 section 3.3.1).
    Excess,
}

/// The grants of a responder on one connection: in the forward direction a server, in the
/// backward direction a client.
///
/// A requester may have as many Calls outstanding as the last Reply that it has seen granted. Calls
/// and Replies are numbered in the order in which they are sent, so each Reply says up to which
/// number the Calls may go: its own number plus its grant. Replies may be under way, so that a
/// lower grant does not take back what an earlier Reply has allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponderCredits {
    /// The most Calls to serve at once.
    limit: Credits,
    /// What the last Call asked for.
    requested: Credits,
    /// What the last Reply granted.
    granted: Credits,
    /// The number of Calls that arrived.
    received: u64,
    /// The number of Calls that were answered.
    answered: u64,
    /// The highest number that a Call may have.
    allowed: u64,
}

impl ResponderCredits {
    /// Starts a connection on which no more than `limit` Calls are to be served at once. The
    /// requester may send one Call until the first Reply.
    pub(crate) const fn new(limit: Credits) -> Self {
        Self {
            limit,
            requested: Credits::new(1),
            granted: Credits::new(1),
            received: 0,
            answered: 0,
            allowed: 1,
        }
    }

    /// Changes the most Calls to serve at once. Later Replies tell the requester.
    pub(crate) fn set_limit(&mut self, limit: Credits) {
        self.limit = limit;
    }

    /// What the last Call asked for.
    pub(crate) fn requested(&self) -> Credits {
        self.requested
    }

    /// What the last Reply granted.
    pub(crate) fn granted(&self) -> Credits {
        self.granted
    }

    /// Calls that arrived and have no answer.
    pub(crate) fn outstanding(&self) -> u64 {
        self.received.saturating_sub(self.answered)
    }

    /// A Call arrived that asks for `requested` credits, or a message that is answered with an
    /// RDMA_ERROR.
    pub(crate) fn call(&mut self, requested: Credits) -> Conduct {
        self.requested = requested;
        self.received = self.received.saturating_add(1);
        if self.received <= self.allowed {
            Conduct::Within
        } else {
            Conduct::Excess
        }
    }

    /// A Reply is about to be sent. Returns its credit word, at least 1: what was asked for, within
    /// the limit and the `receives` that are posted for Calls: all but those for answers to own
    /// Calls.
    pub(crate) fn reply(&mut self, receives: u32) -> Credits {
        let limit = Credits::new(self.limit.get().min(receives));
        self.granted = granted(self.requested, limit);
        self.error()
    }

    /// An RDMA_ERROR is about to be sent. Returns its credit word, which grants nothing new.
    pub(crate) fn error(&mut self) -> Credits {
        self.end();
        self.granted
    }

    /// A Call gets no answer. Its requester may send another one in its place when it gives it up.
    pub(crate) fn dropped(&mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.answered = self.answered.saturating_add(1);
        let allowed = self.answered.saturating_add(u64::from(self.granted.get()));
        self.allowed = self.allowed.max(allowed);
    }

    /// Calls that the requester may send now.
    pub(crate) fn expected(&self) -> u32 {
        let expected = self.allowed.saturating_sub(self.received);
        u32::try_from(expected).unwrap_or(u32::MAX)
    }

    /// Receives to be posted for Calls, `spare` of them for those beyond the grant: a requester may
    /// count a Call as done when it gives it up. One that sends all of its grant once more finds no
    /// Receive until there are answers, so that it never has more than that outstanding.
    pub(crate) fn receives(&self, spare: u32) -> u32 {
        let excess = u64::from(self.granted.get()).saturating_add(u64::from(spare));
        let end = self.allowed.saturating_add(excess);
        let left = u32::try_from(end.saturating_sub(self.received)).unwrap_or(u32::MAX);
        self.expected().saturating_add(spare).min(left)
    }

    /// The most Calls to serve at once.
    pub(crate) const fn limit(&self) -> Credits {
        self.limit
    }
}
