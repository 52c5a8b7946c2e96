// SPDX-License-Identifier: GPL-2.0

//! Flow control by credits (RFC 8166 section 3.3.1).
//!
//! Credits count messages, not bytes, and each direction has its own (RFC 8167 section 4). An end
//! that both sends and serves Calls has a [`RequesterCredits`], or only its [`CreditWindow`], for
//! the one direction, a [`ResponderCredits`] for the other, and [`Receives`] for the two together.

use super::header::Credits;

/// How many Calls a requester may have outstanding on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreditWindow {
    requested: Credits,
    granted: Credits,
}

impl CreditWindow {
    /// Starts a connection whose Calls all ask for `requested` credits.
    ///
    /// One Call may be outstanding until the first Reply (RFC 8166 section 3.3.3).
    pub(crate) const fn new(requested: Credits) -> Self {
        Self {
            requested,
            granted: Credits::new(1),
        }
    }

    /// Starts over on a new connection, which knows nothing of the grants of the last one.
    #[cfg(rpcrdma_selftest)]
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.requested);
    }

    /// The credit word of every Call.
    pub(crate) const fn requested(&self) -> Credits {
        self.requested
    }

    /// Takes over the grant of a Reply, which may be higher or lower than the last one, and
    /// returns the new window.
    ///
    /// Only a Reply grants credits; an RDMA_ERROR and a backward Call do not.
    pub(crate) fn grant(&mut self, granted: Credits) -> u32 {
        self.granted = granted;
        self.window()
    }

    /// The most Calls that may be outstanding, from 1 to the requested number.
    pub(crate) fn window(&self) -> u32 {
        self.granted.get().min(self.requested.get())
    }
}

/// The credit word of a responder's Replies: what was asked for, within its own limit.
///
/// `limit` is the number of Receives that are posted for this connection.
#[cfg(rpcrdma_selftest)]
pub(crate) fn granted(requested: Credits, limit: Credits) -> Credits {
    Credits::new(requested.get().min(limit.get()))
}

/// The Calls of a requester, which never has more outstanding than its window allows: in the
/// forward direction a client, in the backward direction a server.
#[cfg(rpcrdma_selftest)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequesterCredits {
    window: CreditWindow,
    outstanding: u32,
}

#[cfg(rpcrdma_selftest)]
impl RequesterCredits {
    /// Starts a connection whose Calls all ask for `requested` credits.
    pub(crate) const fn new(requested: Credits) -> Self {
        Self {
            window: CreditWindow::new(requested),
            outstanding: 0,
        }
    }

    /// Starts over on a new connection, on which no Call is outstanding.
    pub(crate) fn reset(&mut self) {
        self.window.reset();
        self.outstanding = 0;
    }

    /// The credit word of every Call.
    pub(crate) const fn requested(&self) -> Credits {
        self.window.requested()
    }

    /// The number of Calls that were sent and have no answer.
    pub(crate) const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Takes the credit for one Call. If there is none, the Call has to wait for an answer to
    /// another one.
    #[must_use]
    pub(crate) fn take(&mut self) -> bool {
        let free = self.outstanding < self.window.window();
        if free {
            self.outstanding = self.outstanding.saturating_add(1);
        }
        free
    }

    /// The Reply to an outstanding Call arrived, with this grant.
    pub(crate) fn reply(&mut self, granted: Credits) {
        self.window.grant(granted);
        self.error();
    }

    /// An outstanding Call was ended by an RDMA_ERROR, which grants nothing.
    pub(crate) fn error(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }
}

/// Whether a Call is one that the requester had a credit for.
#[cfg(rpcrdma_selftest)]
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
#[cfg(rpcrdma_selftest)]
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

#[cfg(rpcrdma_selftest)]
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
    /// the limit and the `receives` that are posted for Calls (see [`Receives::for_calls`]).
    pub(crate) fn reply(&mut self, receives: u32) -> Credits {
        let limit = Credits::new(self.limit.get().min(receives));
        self.granted = granted(self.requested, limit);
        self.error()
    }

    /// An RDMA_ERROR is about to be sent. Returns its credit word, which grants nothing new.
    pub(crate) fn error(&mut self) -> Credits {
        self.answered = self.answered.saturating_add(1);
        let allowed = self.answered.saturating_add(u64::from(self.granted.get()));
        self.allowed = self.allowed.max(allowed);
        self.granted
    }

    /// Receives to have posted for Calls: for those that the requester may send already, and for
    /// all that the next Reply may grant.
    pub(crate) fn receives(&self) -> u32 {
        let expected = self.allowed.saturating_sub(self.received);
        let expected = u32::try_from(expected).unwrap_or(u32::MAX);
        self.limit.get().max(expected)
    }
}

/// The Receives of one end of a connection, which take the messages of both directions.
///
/// Each message uses up one. They are posted before a message can arrive: those for Calls before
/// the Reply that grants them, the one for a Reply before its Call is sent (RFC 8166 section
/// 3.3.1, RFC 8167 section 4.2).
#[cfg(rpcrdma_selftest)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receives {
    posted: u32,
    spare: u32,
}

#[cfg(rpcrdma_selftest)]
impl Receives {
    /// A new connection, without any. `spare` are kept for messages that no credit stands for: an
    /// RDMA_ERROR that answers an RDMA_ERROR or an option of ours.
    pub(crate) const fn new(spare: u32) -> Self {
        Self { posted: 0, spare }
    }

    /// Receives that are posted.
    pub(crate) const fn posted(&self) -> u32 {
        self.posted
    }

    /// So many Receives were posted.
    pub(crate) fn post(&mut self, count: u32) {
        self.posted = self.posted.saturating_add(count);
    }

    /// A message used up a Receive.
    pub(crate) fn consume(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Receives to post before the next message is sent, if `calls` are to be posted for Calls of
    /// the peer ([`ResponderCredits::receives`]) and `replies` for answers to own Calls
    /// ([`RequesterCredits::outstanding`]).
    pub(crate) fn missing(&self, calls: u32, replies: u32) -> u32 {
        let needed = calls.saturating_add(replies).saturating_add(self.spare);
        needed.saturating_sub(self.posted)
    }

    /// Receives that are left for Calls when `replies` are expected as answers to own Calls.
    pub(crate) fn for_calls(&self, replies: u32) -> u32 {
        let others = replies.saturating_add(self.spare);
        self.posted.saturating_sub(others)
    }
}
