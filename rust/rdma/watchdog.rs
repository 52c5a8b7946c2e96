// SPDX-License-Identifier: GPL-2.0

//! Whether the peer lets what was handed over to a send queue complete in time.

/// A chain must complete within this many runs.
const LATE_RUNS: u32 = 6;

/// How many runs in a row may find that nothing has completed. One is not enough: on a machine
/// that was stopped the timer of a run fires before the completions are handled.
const QUIET_RUNS: u32 = 2;

/// The watchdog of a send queue.
pub(super) struct Watchdog {
    /// How often it has run.
    pub(super) runs: u32,
    /// Chains that have completed.
    pub(super) done: u64,
    /// `done` at the last run, if that found chains under way.
    seen: Option<u64>,
    /// Runs in a row that found none done since the one before.
    quiet: u32,
}

impl Watchdog {
    /// That of a queue to which nothing was handed over.
    pub(super) const fn new() -> Self {
        Self {
            runs: 0,
            done: 0,
            seen: None,
            quiet: 0,
        }
    }

    /// Returns whether the peer lets too little complete. `oldest` is what `runs` was when the
    /// oldest chain that is under way was handed over. Called every 10 s.
    pub(super) fn run(&mut self, oldest: Option<u32>) -> bool {
        let is_late = oldest.is_some_and(|oldest| self.runs.wrapping_sub(oldest) >= LATE_RUNS);
        self.runs = self.runs.wrapping_add(1);
        self.quiet = match self.seen {
            Some(seen) if seen == self.done => self.quiet.saturating_add(1),
            _ => 0,
        };
        self.seen = oldest.map(|_| self.done);
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
        let runs = [(); 3].map(|()| watchdog.run(Some(0)));
        assert_eq!(runs, [false, false, true]);
        watchdog.done += 1;
        assert!(!watchdog.run(None));
        // What was seen before does not count for later chains.
        let handed = Some(watchdog.runs);
        let runs = [(); 3].map(|()| watchdog.run(handed));
        assert_eq!(runs, [false, false, true]);
    }

    #[test]
    fn a_chain_that_is_not_done_six_runs_later_is_late() {
        let mut watchdog = Watchdog::new();
        // Another one completes before each run.
        let stalled = (0..20).find(|_| {
            watchdog.done += 1;
            watchdog.run(Some(0))
        });
        assert_eq!(stalled, Some(6));
    }
}
