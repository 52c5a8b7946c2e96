// SPDX-License-Identifier: GPL-2.0

//! Credits of Calls that were given up before their Reply arrived, in either direction.
//!
//! A Call that was sent and then killed, or whose caller timed out, is released; but the peer still
//! works on it, so that another Call in its place would exceed the grant (RFC 8166 section 3.3.1).
//! Its credit stays in use until a Reply arrives that no request waits for, whatever its XID, or
//! until the connection ends: a peer that makes up XIDs gets no more Calls than it sends Replies.

use super::rpc_xprt::window;

/// The orphaned credits of one transport. sunrpc's transport lock guards them. Zeroes are valid,
/// and stand for none.
#[derive(Default)]
pub(super) struct Orphans {
    /// Credits in use whose Calls were given up.
    credits: u32,
    /// Replies for which there was neither a waiting request nor an orphaned credit. Such a Reply
    /// arrives after its request has left the queue of those that wait, but before that request is
    /// released.
    unclaimed: u32,
    /// When the last Call was given up, or the last Reply to one arrived, in jiffies.
    changed: usize,
}

impl Orphans {
    /// A Call that has a credit, and has been sent, is given up at `now`. Returns whether its
    /// credit stays in use; otherwise its Reply has already arrived.
    pub(super) fn orphan_credit(&mut self, now: usize) -> bool {
        if let Some(rest) = self.unclaimed.checked_sub(1) {
            self.unclaimed = rest;
            return false;
        }
        self.changed = now;
        self.credits = self.credits.saturating_add(1);
        true
    }

    /// A Reply has arrived at `now` that no request waits for. Returns whether it answers a Call
    /// that was given up, whose credit the caller then returns.
    pub(super) fn late_reply(&mut self, now: usize) -> bool {
        let Some(rest) = self.credits.checked_sub(1) else {
            return false;
        };
        self.credits = rest;
        self.changed = now;
        true
    }

    /// A Reply has arrived that neither a request nor an orphaned credit waits for. If there are no
    /// more of these than credits in use, of which the window has `cong`, its Call may be about to
    /// be given up.
    pub(super) fn early_reply(&mut self, cong: usize) {
        if window(self.unclaimed) < cong {
            self.unclaimed = self.unclaimed.saturating_add(1);
        }
    }

    /// The credits that are orphaned at `now`, and how long since the last one was added or a Reply
    /// for one arrived, in jiffies.
    pub(super) fn owed(&self, now: usize) -> Option<(u32, usize)> {
        (self.credits != 0).then(|| (self.credits, now.wrapping_sub(self.changed)))
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_orphans)]
mod tests {
    use super::*;

    #[test]
    fn a_late_reply_returns_one_credit() {
        let mut orphans = Orphans::default();
        assert!(!orphans.late_reply(1));
        assert!(orphans.orphan_credit(2));
        assert!(orphans.orphan_credit(3));
        assert!(orphans.late_reply(4));
        assert_eq!(orphans.owed(4), Some((1, 0)));
        assert!(orphans.late_reply(5));
        assert_eq!(orphans.owed(5), None);
        assert!(!orphans.late_reply(6));
    }

    #[test]
    fn a_reply_before_the_end_of_its_call_leaves_no_orphan() {
        let mut orphans = Orphans::default();
        orphans.early_reply(window(2));
        orphans.early_reply(window(2));
        // Only two Calls have credits.
        orphans.early_reply(window(2));
        assert!(!orphans.orphan_credit(1));
        assert!(!orphans.orphan_credit(2));
        assert!(orphans.orphan_credit(3));
    }

    #[test]
    fn the_peer_owes_since_the_last_call_or_its_last_reply() {
        let mut orphans = Orphans::default();
        // Before the jiffies wrap around.
        assert!(orphans.orphan_credit(usize::MAX));
        assert!(orphans.orphan_credit(8));
        assert_eq!(orphans.owed(9), Some((2, 1)));
        assert!(orphans.late_reply(10));
        assert_eq!(orphans.owed(12), Some((1, 2)));
        assert!(orphans.orphan_credit(13));
        assert_eq!(orphans.owed(14), Some((2, 1)));
    }
}
