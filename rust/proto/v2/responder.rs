// SPDX-License-Identifier: GPL-2.0

//! Which version a connection speaks, at the end that listens (Version Two section 5).
//!
//! Each Reply has the version of its Call. The first Call decides the version of backward messages,
//! and the thresholds. Until something of Version Two arrives there is nothing to decide, so Calls
//! of Version One need not be reported here.

use crate::proto::wire::header::{VERSION_ONE, VERSION_TWO};
use crate::proto::wire::private_data::Thresholds;

/// How far a connection has come with Version Two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No first Call of Version Two has arrived.
    One,
    /// The first Call is of Version Two, and has arrived.
    Called,
    /// That Call has its Reply.
    Two,
}

/// Which version a responder speaks on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponderNegotiation {
    thresholds: Thresholds,
    stage: Stage,
}

impl ResponderNegotiation {
    /// A connection with these thresholds from private data, on which nothing was received yet.
    pub(crate) const fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            stage: Stage::One,
        }
    }

    /// A Call of `version` was decoded; `is_first` if there was none before, or only such that were
    /// answered with an RDMA_ERROR.
    pub(crate) fn called(&mut self, version: u32, is_first: bool) {
        if version == VERSION_TWO && is_first {
            self.stage = Stage::Called;
        }
    }

    /// A Reply of `version` is about to be sent. Returns whether both ends thereby agree on Version
    /// Two.
    pub(crate) fn replied(&mut self, version: u32) -> bool {
        let agrees = version == VERSION_TWO && self.stage == Stage::Called;
        if agrees {
            self.stage = Stage::Two;
        }
        agrees
    }

    /// A Call of Version Two has an RDMA_ERROR instead of its Reply. Returns whether it was the
    /// first one, so that nothing is decided yet.
    pub(crate) fn failed(&mut self) -> bool {
        let is_first = self.stage == Stage::Called;
        if is_first {
            self.stage = Stage::One;
        }
        is_first
    }

    /// The version of backward Calls; none may be sent before there is one. `has_replied` says
    /// whether a Reply of any version was sent.
    pub(crate) fn agreed(&self, has_replied: bool) -> Option<u32> {
        match self.stage {
            Stage::One => has_replied.then_some(VERSION_ONE),
            Stage::Called => None,
            Stage::Two => Some(VERSION_TWO),
        }
    }

    /// The thresholds for a message of `version`.
    pub(crate) fn thresholds(&self, version: u32) -> Thresholds {
        match self.stage {
            Stage::Called if version > VERSION_ONE => self.thresholds.first(),
            Stage::Two => self.thresholds.at_version(version),
            // A stray message of a higher version does not tell how large the Receives are.
            Stage::One | Stage::Called => self.thresholds.at_version(VERSION_ONE),
        }
    }
}
