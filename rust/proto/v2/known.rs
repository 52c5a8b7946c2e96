// SPDX-License-Identifier: GPL-2.0

//! What earlier connections have shown of the versions that a responder speaks (Version Two section
//! 5.2).
//!
//! The responder may have been replaced by the next time, and one that restarts loses a first
//! message, so what was learned is forgotten after a while.

use crate::proto::wire::header::Versions;

/// What a connection has shown of its responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has refused versions above this one.
    Refused(u32),
    /// It has not answered a version above this one.
    Lost(u32),
    /// It speaks the highest version that the requester supports.
    Agreed,
}

/// How long a refusal is remembered, in seconds.
const REFUSED_FOR: u64 = 600;

/// How long a loss is remembered, in seconds: a server is back by then.
const LOST_FOR: u64 = 60;

/// What was learned of the versions of one responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownVersions {
    /// The highest version that it may speak, and when that is forgotten, in seconds.
    highest: Option<(u32, u64)>,
}

impl KnownVersions {
    /// The highest version that the responder may speak, and for how many seconds more that is
    /// known; `None` if nothing is known. All methods take the time of one clock, in seconds.
    pub(crate) fn highest(&self, now: u64) -> Option<(u32, u64)> {
        let (highest, until) = self.highest?;
        let left = until.checked_sub(now).filter(|left| *left != 0)?;
        Some((highest, left))
    }

    /// The version to begin with, at a requester that supports `supported`.
    pub(crate) fn first(&self, supported: Versions, now: u64) -> u32 {
        self.highest(now).map_or(supported.high, |(highest, _)| {
            highest.max(supported.low).min(supported.high)
        })
    }

    /// Records what a connection has shown.
    pub(crate) fn record(&mut self, outcome: Outcome, now: u64) {
        self.highest = match outcome {
            Outcome::Refused(highest) => Some((highest, now.saturating_add(REFUSED_FOR))),
            Outcome::Lost(highest) => Some((highest, now.saturating_add(LOST_FOR))),
            Outcome::Agreed => None,
        };
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_known))]
mod tests {
    use super::*;

    const BOTH: Versions = Versions::ONE_AND_TWO;

    /// Proves: V2-033, V2-034.
    #[test]
    fn what_was_learned_is_forgotten_in_time() {
        for (outcome, lifetime) in [
            (Outcome::Refused(1), REFUSED_FOR),
            (Outcome::Lost(1), LOST_FOR),
        ] {
            let mut known = KnownVersions::default();
            assert_eq!(known.first(BOTH, 100), 2);
            known.record(outcome, 100);
            assert_eq!(known.first(BOTH, 100), 1);
            assert_eq!(known.first(BOTH, 99 + lifetime), 1);
            assert_eq!(known.first(BOTH, 100 + lifetime), 2);
            // An agreement shows that it was wrong.
            known.record(Outcome::Agreed, 101);
            assert_eq!(known.first(BOTH, 101), 2);
        }
    }

    #[test]
    fn nothing_is_tried_that_is_not_supported() {
        let mut known = KnownVersions::default();
        known.record(Outcome::Refused(1), 100);
        assert_eq!(known.first(Versions { low: 2, high: 2 }, 100), 2);
        assert_eq!(known.first(Versions::ONE, 100), 1);
        known.record(Outcome::Refused(2), 100);
        assert_eq!(known.first(Versions::ONE, 100), 1);
    }
}
