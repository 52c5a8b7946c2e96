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
    unmatched: u32,
    /// When the last Call was given up, or the last Reply to one arrived, in jiffies.
    changed: usize,
}

impl Orphans {
    /// A Call that has a credit, and has been sent, is given up at `now`. Returns whether its
    /// credit stays in use; otherwise its Reply has already arrived.
    pub(super) fn orphan_credit(&mut self, now: usize) -> bool {
        if let Some(rest) = self.unmatched.checked_sub(1) {
            self.unmatched = rest;
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
    pub(super) fn unmatched_reply(&mut self, cong: usize) {
        if window(self.unmatched) < cong {
            self.unmatched = self.unmatched.saturating_add(1);
        }
    }

    /// Whether any credits are orphaned at `now`; if so, how long the peer may go on owing their
    /// Replies, in jiffies. The peer has no more than `reply_timeout`, from the last Call that was
    /// given up or the last Reply to one, if all credits of the window `cwnd` are orphaned: then
    /// nobody else can send. As long as there are others, the connection is of use, and the time is
    /// always `reply_timeout`; but the peer may grant fewer credits meanwhile.
    pub(super) fn time_left(&self, now: usize, reply_timeout: usize, cwnd: usize) -> Option<usize> {
        let mut silence = now.wrapping_sub(self.changed);
        if window(self.credits) < cwnd {
            silence = 0;
        }
        (self.credits != 0).then(|| reply_timeout.saturating_sub(silence))
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
        assert_eq!(orphans.time_left(4, 9, 0), Some(9));
        assert!(orphans.late_reply(5));
        assert_eq!(orphans.time_left(5, 9, 0), None);
        assert!(!orphans.late_reply(6));
    }

    #[test]
    fn a_reply_before_the_end_of_its_call_leaves_no_orphan() {
        let mut orphans = Orphans::default();
        orphans.unmatched_reply(window(2));
        orphans.unmatched_reply(window(2));
        // Only two Calls have credits.
        orphans.unmatched_reply(window(2));
        assert!(!orphans.orphan_credit(1));
        assert!(!orphans.orphan_credit(2));
        assert!(orphans.orphan_credit(3));
    }

    #[test]
    fn the_peer_owes_since_the_last_call_or_its_last_reply() {
        let mut orphans = Orphans::default();
        let left = |orphans: &Orphans, now| orphans.time_left(now, 5, window(1));
        // Before the jiffies wrap around.
        assert!(orphans.orphan_credit(usize::MAX));
        assert!(orphans.orphan_credit(8));
        assert_eq!(left(&orphans, 9), Some(4));
        assert!(orphans.late_reply(10));
        assert_eq!(left(&orphans, 12), Some(3));
        assert!(orphans.orphan_credit(13));
        assert_eq!(left(&orphans, 14), Some(4));
        assert_eq!(left(&orphans, 19), Some(0));
    }

    #[test]
    fn the_peer_may_owe_while_there_are_other_credits() {
        let mut orphans = Orphans::default();
        assert!(orphans.orphan_credit(0));
        assert_eq!(orphans.time_left(100, 5, window(2)), Some(5));
        // It grants fewer.
        assert_eq!(orphans.time_left(100, 5, window(1)), Some(0));
    }
}
