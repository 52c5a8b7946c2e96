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
    /// The number of Calls that arrived. No connection lives long enough for this or the other
    /// counters to wrap.
    received: u64,
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
            requested: Credits::new(1),
            granted: Credits::new(1),
            received: 0,
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
        self.requested
    }

    /// What the last Reply granted.
    pub(crate) fn granted(&self) -> Credits {
        self.granted
    }

    /// Calls that arrived.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Calls that were answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    /// Calls that arrived and have no answer.
    pub(crate) fn outstanding(&self) -> u64 {
        self.received.saturating_sub(self.answered)
    }

    /// Calls that the requester counts as outstanding, at the most: those without an answer, and
    /// those whose answer it may not have. It is known to have `delivered` answers.
    pub(crate) fn used(&self, delivered: u64) -> u64 {
        (self.received.saturating_sub(self.dropped)).saturating_sub(delivered)
    }

    /// A Call arrived that asks for `requested` credits, or a message that is answered with an
    /// RDMA_ERROR.
    pub(crate) fn call(&mut self, requested: Credits) -> Conduct {
        self.requested = requested;
        self.received = self.received.wrapping_add(1);
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
    pub(crate) fn dropped(&mut self) {
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
        let left = end.saturating_sub(self.received);
        let expected = self.allowed.saturating_sub(self.received);
        let wanted = expected.wrapping_add(u64::from(spare)).min(left);
        u32::try_from(wanted).unwrap_or(u32::MAX)
    }

    /// Calls that the requester may send now.
    pub(crate) fn expected(&self) -> u32 {
        u32::try_from(self.allowed.saturating_sub(self.received)).unwrap_or(u32::MAX)
    }

    /// The most Calls to serve at once.
    pub(crate) const fn limit(&self) -> Credits {
        self.limit
    }
}

/// How many Calls a requester has outstanding, and the limit of its grants that follows.
///
/// Receives are posted for all that is granted, so that what a requester does not use costs memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// The least and the most that the limit becomes.
    first: u32,
    max: u32,
    /// The most Calls that the requester had outstanding since `since`.
    most: u64,
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
            most: 0,
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

    /// A Call has arrived, of which `credits` knows, and the requester has `delivered` answers.
    /// Returns how much more the limit may become: as much again for one that uses all that it may,
    /// if there is room, and nothing for others.
    ///
    /// On a long way most of its Calls are under way, or answers to them: only that these were not
    /// delivered when it sends the next Call tells that it waits for them.
    #[must_use]
    pub(crate) fn called(
        &mut self,
        credits: &ResponderCredits,
        delivered: u64,
        has_room: bool,
    ) -> u32 {
        let used = credits.used(delivered);
        self.most = self.most.max(used);
        let limit = credits.limit.get();
        let max = self.max.min(credits.requested.get());
        match used >= u64::from(limit) && has_room {
            true => max.saturating_sub(limit).min(limit),
            false => 0,
        }
    }

    /// A Reply is about to be sent, `now`. A requester that has not used half of what it may for
    /// some time gets half as much. Returns how much less that is.
    pub(crate) fn replies(&mut self, credits: &mut ResponderCredits, now: u64) -> u32 {
        if now.saturating_sub(self.since) < self.quiet {
            return 0;
        }
        let less = match self.most.saturating_mul(2) < u64::from(credits.limit.get()) {
            true => self.lower(credits),
            false => 0,
        };
        self.most = credits.outstanding();
        self.since = now;
        less
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
