// SPDX-License-Identifier: GPL-2.0

//! Whether the peer lets what was handed over to a send queue complete in time.

/// A chain must complete within this many runs.
const LATE_RUNS: usize = 6;

/// How many runs in a row may find that nothing has completed. One is not enough: on a machine
/// that was stopped the timer of a run fires before the completions are handled.
const QUIET_RUNS: u32 = 2;

/// Chains of one kind. The completions of each kind come in order.
#[derive(Clone, Copy)]
struct Count {
    /// Chains that were handed over, posted or not.
    handed: u64,
    /// Chains that have completed.
    done: u64,
    /// `handed` at the last runs, the latest first.
    marks: [u64; LATE_RUNS],
}

/// The watchdog of a send queue.
pub(super) struct Watchdog {
    /// RDMA Reads, and all others: siw does not complete the ones and the others in order.
    reads: Count,
    others: Count,
    /// Chains that had completed at the last run, if it found any under way.
    seen: Option<u64>,
    /// Runs in a row that found none done since the one before.
    quiet: u32,
}

impl Watchdog {
    /// That of a queue to which nothing was handed over.
    pub(super) const fn new() -> Self {
        const NONE: Count = Count {
            handed: 0,
            done: 0,
            marks: [0; LATE_RUNS],
        };
        Self {
            reads: NONE,
            others: NONE,
            seen: None,
            quiet: 0,
        }
    }

    fn count(&mut self, is_read: bool) -> &mut Count {
        if is_read {
            &mut self.reads
        } else {
            &mut self.others
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
        [&self.reads, &self.others]
            .iter()
            .any(|count| count.handed != count.done)
    }

    /// Returns whether the peer lets too little complete. Called every 10 s.
    pub(super) fn run(&mut self) -> bool {
        let (mut is_late, mut done) = (false, 0u64);
        for count in [&mut self.reads, &mut self.others] {
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
        is_late || self.quiet >= QUIET_RUNS
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_watchdog)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_progress_is_stalled_at_the_third_run() {
        let mut watchdog = Watchdog::new();
        watchdog.handed(false);
        let runs = [(); 3].map(|()| watchdog.run());
        assert_eq!(runs, [false, false, true]);
        watchdog.done(false);
        assert!(!watchdog.run() && !watchdog.is_busy());
        // What was seen before does not count for later chains.
        watchdog.handed(true);
        let runs = [(); 3].map(|()| watchdog.run());
        assert_eq!(runs, [false, false, true]);
    }

    #[test]
    fn a_chain_that_is_not_done_six_runs_later_is_late() {
        for is_read in [false, true] {
            let mut watchdog = Watchdog::new();
            for _ in 0..64 {
                watchdog.handed(is_read);
            }
            // One completes before each run, and another one is handed over.
            let stalled = (0..20).find(|_| {
                watchdog.done(is_read);
                watchdog.handed(is_read);
                watchdog.run()
            });
            assert_eq!(stalled, Some(6));
        }
    }

    #[test]
    fn reads_and_others_are_late_each_for_themselves() {
        let mut watchdog = Watchdog::new();
        watchdog.handed(true);
        let stalled = (0..20).find(|_| {
            watchdog.handed(false);
            watchdog.done(false);
            watchdog.run()
        });
        assert_eq!(stalled, Some(6));
    }
}
