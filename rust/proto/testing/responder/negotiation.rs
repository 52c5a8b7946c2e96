// SPDX-License-Identifier: GPL-2.0

//! Which version a connection speaks, at the end that listens (Version Two section 5).

use crate::proto::wire::header::VERSION_ONE;
use crate::proto::wire::private_data::Thresholds;

/// What happened at a responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponderEvent {
    /// A Call of this version was decoded. One of another version than the responder supports is
    /// answered with an RDMA_ERROR instead, and is no event.
    Called(u32),
    /// A Reply of this version was sent, which is that of its Call.
    Replied(u32),
}

/// Which version a responder speaks on one connection.
///
/// Each Reply has the version of its Call. What is agreed decides about the version of backward
/// messages, and about the thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponderNegotiation {
    thresholds: Thresholds,
    /// The version of the first Call.
    called: Option<u32>,
    /// Whether the first Call has its Reply.
    replied: bool,
}

impl ResponderNegotiation {
    /// A connection of which private data says this, and on which nothing was received.
    pub(crate) const fn new(thresholds: Thresholds) -> Self {
        Self {
            thresholds,
            called: None,
            replied: false,
        }
    }

    /// Takes an event in. Gives the version that the connection speaks from now on, once.
    pub(crate) fn handle(&mut self, event: ResponderEvent) -> Option<u32> {
        match (event, self.called) {
            (ResponderEvent::Called(version), None) => {
                self.called = Some(version);
                None
            }
            (ResponderEvent::Replied(version), Some(called))
                if version == called && !self.replied =>
            {
                self.replied = true;
                Some(version)
            }
            _ => None,
        }
    }

    /// The version of backward Calls; none may be sent before there is one.
    pub(crate) fn agreed(&self) -> Option<u32> {
        self.called.filter(|_| self.replied)
    }

    /// The thresholds for a message of `version`.
    pub(crate) fn thresholds(&self, version: u32) -> Thresholds {
        let agreed = match self.called {
            Some(called) if self.replied => called,
            _ if version > VERSION_ONE => return self.thresholds.first(),
            _ => version,
        };
        // A stray message of a higher version does not tell how large the Receives are.
        self.thresholds.at_version(version.min(agreed))
    }
}
