// SPDX-License-Identifier: GPL-2.0

//! Which version a connection speaks, at the end that asks for it (Version Two section 5).
//!
//! A requester starts with the highest version that the responder may know. Until the first Reply
//! one message is outstanding, and as long as it is of Version Two, it and its Reply have no more
//! than 1024 bytes: the responder might have smaller Receives than Version Two asks for. Both ends
//! post theirs for the highest version that they support, so that a change of the inline
//! thresholds never costs the connection.
//!
//! The first message has no timer of its own. If its Call times out, the connection ends as it does
//! whenever a Call times out, and the version is recorded as [`Outcome::Lost`]; a shorter timer
//! would take a slow responder for one that does not know the version.
//!
//! The transport reports what happens as an event and carries out the action that it gets back.

use super::known::Outcome;
use crate::proto::wire::header::{Versions, Xid, VERSION_ONE};
use crate::proto::wire::private_data::Thresholds;

/// What happened at a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequesterEvent {
    /// The connection was made, with these thresholds from private data.
    Connected(Thresholds),
    /// A Call is about to be sent, in the version that [`RequesterNegotiation::version`] returns.
    /// If an earlier one waits, it has ended without an answer that tells the version.
    Sent(Xid),
    /// A Reply arrived, of this version.
    Replied(Xid, u32),
    /// An RDMA_ERROR arrived that says which versions the responder supports. Unless there is an
    /// action, it ends its Call like any other.
    Refused(Xid, Versions),
    /// Another RDMA_ERROR arrived, or a message that cannot be decoded.
    Failed(Xid),
    /// The requester takes back the memory that a Call offers: the connection may be lost for that.
    Abandoned(Xid),
}

/// What an end has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NegotiationAction {
    /// The connection speaks this version from now on, with its thresholds and as many Calls as
    /// are granted.
    Agree(u32),
    /// Send the Call that was refused again, with this version in its header. The responder has not
    /// executed it, and the application learns nothing of it.
    Resend(u32),
    /// Fail the Calls that wait and close the connection: none of several versions is common to
    /// both ends.
    Fail,
    /// Close the connection, and send the Calls that wait on the next one: the responder speaks a
    /// higher version than it was thought to, and only that. It has not executed the Call.
    Reconnect,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is not made yet, or must not be used.
    Closed,
    /// The next message is the first one.
    Silent,
    /// The first message is out, and nothing else.
    Waiting(Xid),
    /// A Reply has arrived.
    Agreed,
    /// The connection began with a lower version than the responder speaks.
    TooLow,
}

/// Which version a requester speaks on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequesterNegotiation {
    supported: Versions,
    /// The version that is tried, or spoken.
    version: u32,
    /// Whether a higher version was refused.
    refused: bool,
    /// As [`Self::is_abandoned`].
    abandoned: bool,
    /// The thresholds from private data.
    thresholds: Thresholds,
    stage: Stage,
}

impl RequesterNegotiation {
    /// A connection that is not made yet, on which `first` is tried, one of the versions that
    /// the requester supports.
    pub(crate) const fn new(supported: Versions, first: u32) -> Self {
        Self {
            supported,
            version: first,
            refused: false,
            abandoned: false,
            thresholds: Thresholds::DEFAULT,
            stage: Stage::Closed,
        }
    }

    /// The version word of the next Call, if there is a connection.
    pub(crate) fn version(&self) -> Option<u32> {
        (self.stage != Stage::Closed).then_some(self.version)
    }

    /// The thresholds for the next Call and its Reply, if there is a connection.
    pub(crate) fn thresholds(&self) -> Option<Thresholds> {
        let version = self.version()?;
        Some(if version > VERSION_ONE && !self.is_agreed() {
            self.thresholds.first()
        } else {
            self.thresholds.at_version(version)
        })
    }

    /// Whether more than one Call may be outstanding. Until then the credit window is one as well.
    pub(crate) fn is_agreed(&self) -> bool {
        self.stage == Stage::Agreed
    }

    /// The versions of messages that are accepted: the one that is spoken, or may still be, and
    /// Version One, in which some responders refuse all others.
    pub(crate) const fn accepted(&self) -> Versions {
        Versions {
            low: VERSION_ONE,
            high: self.version,
        }
    }

    /// Handles an event, and returns what to do next, if anything.
    ///
    /// An event that names another XID than that of the first message has no effect, nor does one
    /// that comes too late.
    pub(crate) fn handle(&mut self, event: RequesterEvent) -> Option<NegotiationAction> {
        match (self.stage, event) {
            (Stage::Closed, RequesterEvent::Connected(thresholds)) => {
                self.thresholds = thresholds;
                self.stage = Stage::Silent;
                None
            }
            (Stage::Silent | Stage::Waiting(_), RequesterEvent::Sent(xid)) => {
                self.stage = Stage::Waiting(xid);
                self.abandoned = false;
                None
            }
            (Stage::Waiting(sent), RequesterEvent::Abandoned(xid)) if xid == sent => {
                self.abandoned = true;
                None
            }
            (Stage::Waiting(sent), RequesterEvent::Replied(xid, version)) if xid == sent => {
                // A responder that answers in a lower version is taken at its word.
                if version < self.supported.low {
                    self.stage = Stage::Closed;
                    return Some(NegotiationAction::Fail);
                }
                self.refused |= version < self.version;
                self.version = version.min(self.version);
                self.stage = Stage::Agreed;
                Some(NegotiationAction::Agree(self.version))
            }
            (Stage::Waiting(sent), RequesterEvent::Refused(xid, range)) if xid == sent => {
                self.fall_back(range)
            }
            // All Calls are of Version One, which needs no first message.
            (Stage::Silent | Stage::TooLow, RequesterEvent::Refused(_, range))
                if self.is_too_low(range) =>
            {
                self.stage = Stage::TooLow;
                Some(NegotiationAction::Reconnect)
            }
            // Nothing is known of the version, and no credit was granted.
            (Stage::Waiting(sent), RequesterEvent::Failed(xid)) if xid == sent => {
                self.stage = Stage::Silent;
                None
            }
            _ => None,
        }
    }

    /// Chooses the highest version below the refused one that both ends support. A range that
    /// includes the refused version must not lead back to it.
    fn fall_back(&mut self, range: Versions) -> Option<NegotiationAction> {
        if self.supported.high == VERSION_ONE {
            // Nothing is negotiated: it is the error of one Call (RFC 8166 section 4.5).
            self.stage = Stage::Silent;
            return None;
        }
        if self.is_too_low(range) {
            self.stage = Stage::TooLow;
            return Some(NegotiationAction::Reconnect);
        }
        let version = self.version.saturating_sub(1).min(range.high);
        if range.contains(version) && self.supported.contains(version) {
            self.version = version;
            self.refused = true;
            return Some(NegotiationAction::Resend(version));
        }
        self.stage = Stage::Closed;
        Some(NegotiationAction::Fail)
    }

    /// Whether the requester has taken back the memory that the first message offers.
    pub(crate) const fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Whether what was remembered of a responder that supports `range` is wrong.
    fn is_too_low(&self, range: Versions) -> bool {
        !self.refused
            && self.version < self.supported.high
            && !range.contains(self.version)
            && range.contains(self.supported.high)
    }

    /// What the next connection is to know, if this one is lost now.
    ///
    /// A first message without an answer counts as a responder that does not know the version:
    /// otherwise the two ends might negotiate for ever.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let highest = self.supported.high;
        match self.stage {
            _ if highest == self.supported.low => None,
            _ if self.refused => Some(Outcome::Refused(self.version)),
            Stage::Waiting(_) if self.version > self.supported.low => {
                Some(Outcome::Lost(self.version.saturating_sub(1)))
            }
            Stage::Agreed if self.version == highest => Some(Outcome::Agreed),
            Stage::TooLow => Some(Outcome::Agreed),
            _ => None,
        }
    }
}
