// SPDX-License-Identifier: GPL-2.0

//! Whether the peer lets what was handed over to a send queue complete in time.

/// How many looks after it was handed over a chain has to be done.
const LATE_LOOKS: usize = 6;

/// How many looks in a row may find that nothing has completed. One is not enough: on a machine
/// that was stopped the timer of a look fires before the completions are handled.
const QUIET_LOOKS: u32 = 2;

/// Chains of one kind. The completions of each kind come in order.
#[derive(Clone, Copy)]
struct Count {
    /// Chains that were handed over, posted or not.
    handed: u64,
    /// Chains that have completed.
    done: u64,
    /// `handed` at the last looks, the latest first.
    marks: [u64; LATE_LOOKS],
}

/// The progress of a send queue.
pub(super) struct Progress {
    /// RDMA Reads, and all others: siw does not complete the ones and the others in order.
    counts: [Count; 2],
    /// Chains that had completed at the last look, if it found any under way.
    seen: Option<u64>,
    /// Looks in a row that found none done since the one before.
    quiet: u32,
}

impl Progress {
    /// That of a queue to which nothing was handed over.
    pub(super) const fn new() -> Self {
        const NONE: Count = Count {
            handed: 0,
            done: 0,
            marks: [0; LATE_LOOKS],
        };
        Self {
            counts: [NONE; 2],
            seen: None,
            quiet: 0,
        }
    }

    fn count(&mut self, is_read: bool) -> &mut Count {
        let [reads, others] = &mut self.counts;
        if is_read {
            reads
        } else {
            others
        }
    }

    /// A chain was handed over.
    pub(super) fn handed(&mut self, is_read: bool) {
        let count = self.count(is_read);
        count.handed = count.handed.wrapping_add(1);
    }

    /// A chain has completed.
    pub(super) fn done(&mut self, is_read: bool) {
        let count = self.count(is_read);
        count.done = count.done.wrapping_add(1);
    }

    /// Whether chains are under way.
    pub(super) fn is_busy(&self) -> bool {
        self.counts.iter().any(|count| count.handed != count.done)
    }

    /// Whether the peer lets too little complete; called every 10 s while chains are under way.
    pub(super) fn is_stalled(&mut self) -> bool {
        let (mut is_late, mut done) = (false, 0u64);
        for count in &mut self.counts {
            let [.., oldest] = count.marks;
            is_late |= count.done < oldest;
            count.marks.rotate_right(1);
            let [latest, ..] = &mut count.marks;
            *latest = count.handed;
            done = done.wrapping_add(count.done);
        }
        self.quiet = match self.seen {
            Some(seen) if seen == done => self.quiet.saturating_add(1),
            _ => 0,
        };
        self.seen = self.is_busy().then_some(done);
        is_late || self.quiet >= QUIET_LOOKS
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_look)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_progress_is_stalled_at_the_third_look() {
        let mut progress = Progress::new();
        assert!(!progress.is_busy());
        progress.handed(false);
        let looks = [(); 3].map(|()| progress.is_stalled());
        assert_eq!(looks, [false, false, true]);
        progress.done(false);
        assert!(!progress.is_stalled() && !progress.is_busy());
        // What was seen before does not count for later chains.
        progress.handed(true);
        let looks = [(); 3].map(|()| progress.is_stalled());
        assert_eq!(looks, [false, false, true]);
    }

    #[test]
    fn a_chain_that_is_not_done_six_looks_later_is_late() {
        for is_read in [false, true] {
            let mut progress = Progress::new();
            for _ in 0..64 {
                progress.handed(is_read);
            }
            // One completes before each look, and another one is handed over.
            let stalled = (0..20).find(|_| {
                progress.done(is_read);
                progress.handed(is_read);
                progress.is_stalled()
            });
            assert_eq!(stalled, Some(6));
        }
    }

    #[test]
    fn reads_and_others_are_late_each_for_themselves() {
        let mut progress = Progress::new();
        progress.handed(true);
        let stalled = (0..20).find(|_| {
            progress.handed(false);
            progress.done(false);
            progress.is_stalled()
        });
        assert_eq!(stalled, Some(6));
    }
}
