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

    /// Calls that the requester counts as outstanding, at the most: those without an answer, and
    /// those whose answer it may not have. So many were `dropped` ([`ResponderCredits::dropped`]),
    /// and it is known to have `delivered` answers.
    ///
    /// On a long way most of its Calls are under way, or answers to them: only that these were not
    /// delivered when it sends the next Call tells that it waits for them.
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
    /// Those that this object knows of.
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

    /// As [`Self::set_limit`], to so many more than now.
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

    /// Takes note of the Calls that have arrived by now, that which is to be answered among them.
    #[inline(always)]
    pub(crate) fn arrived(&mut self, arrivals: Arrivals) {
        self.arrivals = arrivals;
    }

    /// A Reply is about to be sent. Returns its credit word, at least 1: what was asked for, within
    /// the limit and the `receives` that are posted for Calls: all but those for answers to own
    /// Calls.
    pub(crate) fn reply(&mut self, receives: u32) -> Credits {
        let limit = Credits::new(self.limit.get().min(receives));
        self.granted = granted(self.requested(), limit);
        self.error()
    }

    /// Memory is short for the Receives that the last Reply grants, which is still to be sent, and
    /// `posted` is how many Calls have one. Returns what it grants instead, or nothing if no Call
    /// has a Receive and none is outstanding: none could follow, so that no more would be posted.
    pub(crate) fn lower_grant(&mut self, posted: u32) -> Option<Credits> {
        let outstanding = u32::try_from(self.outstanding()).unwrap_or(u32::MAX);
        let covered = posted.saturating_add(outstanding);
        if covered == 0 {
            return None;
        }
        self.granted = granted(self.granted, Credits::new(covered));
        Some(self.granted)
    }

    /// An RDMA_ERROR is about to be sent. Returns its credit word, which grants nothing new.
    pub(crate) fn error(&mut self) -> Credits {
        self.end();
        self.granted
    }

    /// A Call gets no answer. Its requester may send another one in its place when it gives it up.
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
/// Receives are posted for all that is granted, so that what a requester does not use costs memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// The least and the most that the limit becomes.
    first: u32,
    max: u32,
    /// Since when it is looked how many Calls the requester has outstanding.
    since: u64,
    /// How long a limit stays that is not used.
    quiet: u64,
}

impl Load {
    /// The limit, which `first` is, becomes up to `max`, and no less than `first` again. `quiet` is
    /// how long it stays when it is not used, in the unit of the clock that [`Self::replies`] is
    /// given, which begins at 0.
    pub(crate) const fn new(first: u32, max: u32, quiet: u64) -> Self {
        Self {
            first,
            max,
            since: 0,
            quiet,
        }
    }

    /// The least that the limit becomes.
    pub(crate) const fn first(&self) -> u32 {
        self.first
    }

    /// The most that the limit becomes.
    pub(crate) const fn max(&self) -> u32 {
        self.max
    }

    /// How much more the limit may become for a requester that has used all that it may
    /// ([`Arrivals::used`]): as much again.
    pub(crate) fn more(&self, credits: &ResponderCredits) -> u32 {
        let limit = credits.limit.get();
        let max = self.max.min(credits.requested().get());
        max.saturating_sub(limit).min(limit)
    }

    /// A Reply is about to be sent, `now`. If it is time to look what the requester uses, `most`
    /// ([`Arrivals::used`]) is the most that it did since the last look: if that is less than half
    /// of what it may, it gets half as much. Returns how much less that is.
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

    /// There is less room than the requester could use: it gets half as much. Returns how much less
    /// that is.
    pub(crate) fn lower(&self, credits: &mut ResponderCredits) -> u32 {
        let limit = credits.limit.get();
        let lower = (limit / 2).max(self.first).min(limit);
        credits.set_limit(Credits::new(lower));
        limit.saturating_sub(lower)
    }
}
