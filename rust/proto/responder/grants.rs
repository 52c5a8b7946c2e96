// SPDX-License-Identifier: GPL-2.0

//! What a responder grants (RFC 8166 section 3.3.1).

use crate::proto::wire::header::Credits;

/// The grants of a responder on one connection: in the forward direction a server, in the backward
/// direction a client.
///
/// A requester may have as many Calls outstanding as the last Reply that it has seen granted. Calls
/// and Replies are numbered in the order in which they are sent, so each Reply says up to which
/// number the Calls may go: its own number plus its grant. Replies may be under way, so a lower
/// grant does not take back what an earlier Reply has allowed.
///
/// The limit of what is granted does not fall. It doubles when the requester has used all of it,
/// for which Receives are posted first ([`Self::receives`], then [`Self::raise`]), so a Reply never
/// promises a Receive that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grants {
    /// Calls that arrived, and messages that are answered with an RDMA_ERROR. No connection lives
    /// long enough for this to wrap.
    received: u64,
    /// Calls that were answered or dropped.
    answered: u64,
    /// What the last Reply granted.
    granted: Credits,
    /// The highest number that a Call may have.
    allowed: u64,
    /// The most Calls to serve concurrently, now and ever.
    limit: u32,
    max: u32,
    /// What the last Call asked for.
    requested: Credits,
    /// Calls that got no answer.
    dropped: u64,
    /// Answers that the requester is known to have.
    delivered: u64,
    /// Whether the requester has used all of the limit since it was last raised.
    is_used_up: bool,
    /// What `delivered` was when the limit was last raised.
    raised_at: u64,
}

impl Grants {
    /// Starts a connection on which `limit` Calls are served concurrently, and later up to `max`.
    /// The requester may send one Call until the first Reply.
    pub(crate) const fn new(limit: u32, max: u32) -> Self {
        Self {
            received: 0,
            answered: 0,
            granted: Credits::new(1),
            allowed: 1,
            limit,
            max,
            requested: Credits::new(1),
            dropped: 0,
            delivered: 0,
            is_used_up: false,
            raised_at: 0,
        }
    }

    /// A Call arrives that asks for `requested` credits, or a message that is answered with an
    /// RDMA_ERROR. Returns whether it is within what was granted. If not, the responder may serve
    /// it, refuse it at the RPC level, or close the connection (RFC 8166 section 3.3.1).
    pub(crate) fn call(&mut self, requested: Credits) -> bool {
        self.requested = requested;
        self.received = self.received.wrapping_add(1);
        // Over a long distance most Calls, or the answers to them, are under way. That the
        // requester waits for them shows only in answers that are not delivered when it sends its
        // next Call.
        let in_use = self.received.saturating_sub(self.dropped);
        let in_use = in_use.saturating_sub(self.delivered);
        self.is_used_up |= in_use >= u64::from(self.limit);
        self.received <= self.allowed
    }

    /// The limit that the requester could use. If that is more than [`Self::limit`], post
    /// [`Self::receives`] for it, then [`Self::raise`].
    ///
    /// A peer that lets no answer complete gets no more.
    pub(crate) fn wanted(&self) -> u32 {
        let since = self.delivered.saturating_sub(self.raised_at);
        if !self.is_used_up || since < u64::from(self.limit) {
            return self.limit;
        }
        let most = self.max.min(self.requested.get());
        self.limit.saturating_mul(2).min(most).max(self.limit)
    }

    /// Raises the limit, for which Receives have been posted. It does not fall.
    pub(crate) fn raise(&mut self, limit: u32) {
        if limit > self.limit {
            self.limit = limit;
            self.is_used_up = false;
            self.raised_at = self.delivered;
        }
    }

    /// A Reply or an RDMA_ERROR is about to be sent. Returns its credit word, at least 1: what was
    /// asked for, within the limit.
    pub(crate) fn reply(&mut self) -> Credits {
        let granted = Credits::new(self.requested.get().min(self.limit));
        self.replied(granted);
        granted
    }

    /// A Reply is sent that grants so much.
    pub(crate) fn replied(&mut self, granted: Credits) {
        self.granted = granted;
        self.end_call();
    }

    /// A Call gets no answer. The requester may send another in its place when it gives the Call
    /// up.
    pub(crate) fn drop_call(&mut self) {
        self.dropped = self.dropped.wrapping_add(1);
        self.end_call();
    }

    fn end_call(&mut self) {
        self.answered = self.answered.wrapping_add(1);
        let allowed = self.answered.wrapping_add(u64::from(self.granted.get()));
        self.allowed = self.allowed.max(allowed);
    }

    /// The requester is known to have one more answer.
    pub(crate) fn delivered(&mut self) {
        self.delivered = self.delivered.wrapping_add(1);
    }

    /// Receives to be posted for Calls if the limit is `limit`, and `spare` more for Calls beyond
    /// it: a requester may count a Call as done when it gives it up. One that sends all of its
    /// grant once more finds no Receive until there are answers, so it never has more than twice
    /// the limit and `spare` outstanding.
    pub(crate) fn receives(&self, limit: u32, spare: u32) -> u32 {
        let (limit, spare) = (u64::from(limit), u64::from(spare));
        let outstanding = self.outstanding();
        let expected = limit.saturating_sub(outstanding).wrapping_add(spare);
        let most = limit.wrapping_mul(2).wrapping_add(spare);
        let wanted = expected.min(most.saturating_sub(outstanding));
        u32::try_from(wanted).unwrap_or(u32::MAX)
    }

    /// Calls that arrived and have no answer.
    pub(crate) fn outstanding(&self) -> u64 {
        self.received.saturating_sub(self.answered)
    }

    /// Calls that arrived, and messages that are answered with an RDMA_ERROR.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// How many of these were answered or dropped.
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    /// What the last Call asked for.
    pub(crate) fn requested(&self) -> Credits {
        self.requested
    }

    /// What the last Reply granted.
    pub(crate) fn granted(&self) -> Credits {
        self.granted
    }

    /// The most Calls to serve concurrently.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// The most that the limit can become.
    pub(crate) const fn max(&self) -> u32 {
        self.max
    }
}
