// SPDX-License-Identifier: GPL-2.0

//! What a responder grants (RFC 8166 section 3.3.1).

use crate::proto::wire::header::Credits;

/// The credit word of a responder's Replies: what was asked for, within its own limit.
///
/// `limit` is the number of Receives that are posted for this connection.
pub(crate) fn granted(requested: Credits, limit: Credits) -> Credits {
    Credits::new(requested.get().min(limit.get()))
}

/// Whether the requester had a credit for a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// It is within what was granted.
    Within,
    /// The requester has overrun what was granted. The responder may serve the Call, refuse it at
    /// the RPC level, or close the connection (RFC 8166 section 3.3.1).
    Excess,
}

/// The Calls that have arrived on a connection. Whoever receives them counts them, without the lock
/// that Replies take for the other half, [`ResponderCredits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrivals {
    /// What the last Call asked for.
    pub(crate) requested: Credits,
    /// The number of Calls that arrived, and of messages that are answered with an RDMA_ERROR. No
    /// connection lives long enough for it to wrap.
    pub(crate) received: u64,
}

impl Arrivals {
    /// None yet.
    pub(crate) const NONE: Self = Self {
        requested: Credits::new(1),
        received: 0,
    };

    /// Whether the requester had a credit for the last Call, if Calls up to number `allowed`
    /// ([`ResponderCredits::allowed`]) may arrive.
    #[inline(always)]
    pub(crate) fn conduct(self, allowed: u64) -> Conduct {
        if self.received <= allowed {
            Conduct::Within
        } else {
            Conduct::Excess
        }
    }

    /// The most Calls that the requester may count as outstanding: those without an answer, and
    /// those whose answer it may not have. `dropped` Calls were dropped
    /// ([`ResponderCredits::dropped`]), and the requester is known to have `delivered` answers.
    ///
    /// Over a long distance most Calls, or the answers to them, are under way. That the requester
    /// waits for them shows only in answers that are not delivered when it sends its next Call.
    pub(crate) fn used(self, dropped: u64, delivered: u64) -> u64 {
        (self.received.saturating_sub(dropped)).saturating_sub(delivered)
    }
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
    /// The arrivals that this object knows of.
    arrivals: Arrivals,
    /// What the last Reply granted.
    granted: Credits,
    /// The number of Calls that were answered.
    answered: u64,
    /// How many of these were dropped, without a message.
    dropped: u64,
    /// The highest number that a Call may have.
    allowed: u64,
}

impl ResponderCredits {
    /// Starts a connection on which no more than `limit` Calls are to be served at once. The
    /// requester may send one Call until the first Reply.
    pub(crate) const fn new(limit: Credits) -> Self {
        Self {
            limit,
            arrivals: Arrivals::NONE,
            granted: Credits::new(1),
            answered: 0,
            dropped: 0,
            allowed: 1,
        }
    }

    /// Changes the most Calls to serve at once. Later Replies tell the requester.
    pub(crate) fn set_limit(&mut self, limit: Credits) {
        self.limit = limit;
    }

    /// Raises the limit by `more`, as [`Self::set_limit`] does.
    pub(crate) fn raise_limit(&mut self, more: u32) {
        self.set_limit(Credits::new(self.limit.get().saturating_add(more)));
    }

    /// What the last Call asked for.
    pub(crate) fn requested(&self) -> Credits {
        self.arrivals.requested
    }

    /// What the last Reply granted.
    pub(crate) fn granted(&self) -> Credits {
        self.granted
    }

    /// The highest number that a Call may have ([`Arrivals::conduct`]).
    pub(crate) fn allowed(&self) -> u64 {
        self.allowed
    }

    /// Calls that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Calls that were answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    /// Calls that arrived and have no answer.
    pub(crate) fn outstanding(&self) -> u64 {
        self.arrivals.received.saturating_sub(self.answered)
    }

    /// Records the Calls that have arrived by now, including the one that is to be answered.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, arrivals: Arrivals) {
        self.arrivals = arrivals;
    }

    /// A Reply is about to be sent. Returns its credit word, at least 1: what was asked for, within
    /// the limit and the `receives` that are posted for Calls. Those for answers to own Calls do
    /// not count.
    pub(crate) fn reply(&mut self, receives: u32) -> Credits {
        let limit = Credits::new(self.limit.get().min(receives));
        self.granted = granted(self.requested(), limit);
        self.error()
    }

    /// Memory is short for the Receives that the last Reply, which is still to be sent, grants:
    /// only `posted` Calls have one. Returns what the Reply grants instead, or `None` if no Call
    /// has a Receive and none is outstanding: no Call could follow, and no more Receives would be
    /// posted.
    ///
    /// Other Replies may be sent before this one: those to Calls that are outstanding, which the
    /// grant therefore does not count though they have had their Receives, and those to Calls that
    /// have yet to arrive, which use up what this one grants. Half of the Receives are left for
    /// these.
    pub(crate) fn lower_grant(&mut self, posted: u32) -> Option<Credits> {
        if posted == 0 && self.outstanding() == 0 {
            return None;
        }
        self.granted = granted(self.granted, Credits::new(posted / 2));
        Some(self.granted)
    }

    /// An RDMA_ERROR is about to be sent. Returns its credit word, which grants nothing new.
    pub(crate) fn error(&mut self) -> Credits {
        self.end();
        self.granted
    }

    /// A Call gets no answer. The requester may send another in its place when it gives the Call
    /// up.
    pub(crate) fn drop_call(&mut self) {
        self.dropped = self.dropped.saturating_add(1);
        self.end();
    }

    fn end(&mut self) {
        self.answered = self.answered.wrapping_add(1);
        let allowed = self.answered.wrapping_add(u64::from(self.granted.get()));
        self.allowed = self.allowed.max(allowed);
    }

    /// Receives to be posted for Calls that the requester may send now, and `spare` more for those
    /// beyond the grant: a requester may count a Call as done when it gives it up. One that sends
    /// all of its grant once more finds no Receive until there are answers, so that it never has
    /// more than that outstanding.
    pub(crate) fn receives(&self, spare: u32) -> u32 {
        let excess = u64::from(self.granted.get()).wrapping_add(u64::from(spare));
        let end = self.allowed.wrapping_add(excess);
        let left = end.saturating_sub(self.arrivals.received);
        let expected = self.allowed.saturating_sub(self.arrivals.received);
        let wanted = expected.wrapping_add(u64::from(spare)).min(left);
        u32::try_from(wanted).unwrap_or(u32::MAX)
    }

    /// Calls that the requester may send now.
    pub(crate) fn expected(&self) -> u32 {
        u32::try_from(self.allowed.saturating_sub(self.arrivals.received)).unwrap_or(u32::MAX)
    }

    /// The most Calls to serve at once.
    pub(crate) const fn limit(&self) -> Credits {
        self.limit
    }
}

/// The limit of a requester's grants, which follows from how many Calls it has outstanding.
///
/// Receives are posted for all that is granted, so grants that a requester does not use cost
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// The lowest and the highest limit.
    first: u32,
    max: u32,
    /// When it was last checked how many Calls the requester has outstanding.
    since: u64,
    /// How long an unused limit stays.
    quiet: u64,
}

impl Load {
    /// A limit that starts at `first`, rises up to `max`, and falls no lower than `first`. `quiet`
    /// is how long an unused limit stays, in the unit of the clock that [`Self::replies`] is given,
    /// which begins at 0.
    pub(crate) const fn new(first: u32, max: u32, quiet: u64) -> Self {
        Self {
            first,
            max,
            since: 0,
            quiet,
        }
    }

    /// The lowest limit.
    pub(crate) const fn first(&self) -> u32 {
        self.first
    }

    /// The highest limit.
    pub(crate) const fn max(&self) -> u32 {
        self.max
    }

    /// By how much the limit may rise for a requester that has used all of it ([`Arrivals::used`]):
    /// it may double.
    pub(crate) fn more(&self, credits: &ResponderCredits) -> u32 {
        let limit = credits.limit.get();
        let max = self.max.min(credits.requested().get());
        max.saturating_sub(limit).min(limit)
    }

    /// A Reply is about to be sent at `now`. If it is time to check what the requester uses, `most`
    /// ([`Arrivals::used`]) is the most that it has used since the last check: if that is less than
    /// half of the limit, the limit is halved. Returns by how much it was lowered, or `None` if it
    /// is not time.
    pub(crate) fn replies(
        &mut self,
        credits: &mut ResponderCredits,
        most: u64,
        now: u64,
    ) -> Option<u32> {
        if now.saturating_sub(self.since) < self.quiet {
            return None;
        }
        self.since = now;
        match most.saturating_mul(2) < u64::from(credits.limit.get()) {
            true => Some(self.lower(credits)),
            false => Some(0),
        }
    }

    /// Halves the limit, as there is less room than the requester could use. Returns by how much it
    /// was lowered.
    pub(crate) fn lower(&self, credits: &mut ResponderCredits) -> u32 {
        let limit = credits.limit.get();
        let lower = (limit / 2).max(self.first).min(limit);
        credits.set_limit(Credits::new(lower));
        limit.saturating_sub(lower)
    }
}
