// SPDX-License-Identifier: GPL-2.0

//! Which version a connection speaks, as a state machine for each end (Version Two section 5).
//!
//! A requester starts with the highest version that the responder may know. Until the first Reply
//! one message is outstanding, and as long as it is of Version Two, it and its Reply have no more
//! than 1024 bytes: the responder might have smaller Receives than Version Two asks for. Both ends
//! post theirs for the highest version that they support, so that a change of the inline
//! thresholds never costs the connection.
//!
//! The transport reports what happens as an event and carries out the action that it gets back.

use crate::proto::wire::header::{Versions, Xid, VERSION_ONE};
use crate::proto::wire::private_data::Thresholds;

/// What happened at a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequesterEvent {
    /// A connection was made, with what private data says of it.
    Connected(Thresholds),
    /// A Call was sent, in the version that [`RequesterNegotiation::version`] tells.
    Sent(Xid),
    /// A Reply arrived, of this version.
    Replied(Xid, u32),
    /// An RDMA_ERROR arrived that says which versions the responder supports. Unless there is an
    /// action, it ends its Call like any other.
    Refused(Xid, Versions),
    /// Another RDMA_ERROR arrived.
    Failed(Xid),
    /// The Reply to the first message is overdue. When that is, the transport says.
    TimedOut,
    /// The connection is lost, or was closed.
    Disconnected,
}

/// What an end has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NegotiationAction {
    /// The connection speaks this version from now on, with its thresholds and as many Calls as
    /// are granted.
    Agree(u32),
    /// Send the Call with this XID again, with this version in its header. The responder has not
    /// executed it, and the application learns nothing of it.
    Resend(Xid, u32),
    /// Close the connection and make a new one, on which the Call is sent again.
    Reconnect,
    /// Fail the Calls that wait and close the connection: none of several versions is common to
    /// both ends.
    Fail,
}

/// First messages in a row whose loss tells something. A responder that restarts loses one.
const TELLING_LOSSES: u32 = 2;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is none.
    Closed,
    /// The next message is the first one.
    Silent(TriedVersion),
    /// The first message is out, and nothing else.
    Waiting(TriedVersion, Xid),
    /// A Reply has arrived.
    Agreed(TriedVersion),
}

/// A version that is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TriedVersion {
    version: u32,
    /// Whether a higher version was refused on this connection.
    refused: bool,
    /// What private data says.
    thresholds: Thresholds,
}

/// Which version a requester speaks with one responder, over all of their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequesterNegotiation {
    supported: Versions,
    /// What the next connection starts with.
    first: u32,
    /// First messages of that version that were lost, one after the other.
    lost: u32,
    state: State,
}

impl RequesterNegotiation {
    /// A requester that supports `supported` and knows nothing of the responder.
    pub(crate) const fn new(supported: Versions) -> Self {
        Self {
            supported,
            first: supported.high,
            lost: 0,
            state: State::Closed,
        }
    }

    /// The version word of the next Call, if there is a connection.
    pub(crate) fn version(&self) -> Option<u32> {
        Some(self.attempt()?.version)
    }

    /// The thresholds for the next Call and its Reply, if there is a connection.
    pub(crate) fn thresholds(&self) -> Option<Thresholds> {
        let TriedVersion {
            version,
            thresholds,
            ..
        } = self.attempt()?;
        Some(if version > VERSION_ONE && !self.is_agreed() {
            thresholds.first()
        } else {
            thresholds.at_version(version)
        })
    }

    /// Whether more than one Call may be outstanding. Before, the credit window has one as well.
    pub(crate) const fn is_agreed(&self) -> bool {
        matches!(self.state, State::Agreed(_))
    }

    /// Takes an event in, and says what to do next, if anything.
    ///
    /// An event that names another XID than that of the first message has no effect, nor has one
    /// that comes too late.
    pub(crate) fn handle(&mut self, event: RequesterEvent) -> Option<NegotiationAction> {
        let (state, action) = match (self.state, event) {
            (_, RequesterEvent::Connected(thresholds)) => {
                let attempt = TriedVersion {
                    version: self.first,
                    refused: false,
                    thresholds,
                };
                (State::Silent(attempt), None)
            }
            (_, RequesterEvent::Disconnected) => {
                self.learn_from_loss();
                (State::Closed, None)
            }
            (State::Silent(attempt), RequesterEvent::Sent(xid)) => {
                (State::Waiting(attempt, xid), None)
            }
            (State::Waiting(attempt, sent), RequesterEvent::Replied(xid, version))
                if xid == sent =>
            {
                // A responder that answers in a lower version is taken at its word.
                let version = version.min(attempt.version);
                self.forget();
                let attempt = TriedVersion { version, ..attempt };
                (
                    State::Agreed(attempt),
                    Some(NegotiationAction::Agree(version)),
                )
            }
            (State::Waiting(attempt, sent), RequesterEvent::Refused(xid, range)) if xid == sent => {
                self.fall_back(attempt, xid, range)
            }
            // Nothing is known of the version, and no credit was granted.
            (State::Waiting(attempt, sent), RequesterEvent::Failed(xid)) if xid == sent => {
                (State::Silent(attempt), None)
            }
            (State::Waiting(attempt, _), RequesterEvent::TimedOut)
                if attempt.version > self.supported.low =>
            {
                self.learn_from_loss();
                (State::Closed, Some(NegotiationAction::Reconnect))
            }
            _ => return None,
        };
        self.state = state;
        action
    }

    /// What is tried, or spoken, on the connection.
    const fn attempt(&self) -> Option<TriedVersion> {
        match self.state {
            State::Closed => None,
            State::Silent(attempt) | State::Waiting(attempt, _) | State::Agreed(attempt) => {
                Some(attempt)
            }
        }
    }

    /// Chooses the highest version below the refused one that both ends support. A range that
    /// includes the refused version must not lead back to it.
    fn fall_back(
        &mut self,
        attempt: TriedVersion,
        xid: Xid,
        range: Versions,
    ) -> (State, Option<NegotiationAction>) {
        if self.supported.high == VERSION_ONE {
            // Nothing is negotiated: it is the error of one Call (RFC 8166 section 4.5).
            return (State::Silent(attempt), None);
        }
        let version = attempt.version.saturating_sub(1).min(range.high);
        if range.contains(version) && self.supported.contains(version) {
            let attempt = TriedVersion {
                version,
                refused: true,
                ..attempt
            };
            let action = NegotiationAction::Resend(xid, version);
            return (State::Waiting(attempt, xid), Some(action));
        }
        self.forget();
        (State::Closed, Some(NegotiationAction::Fail))
    }

    /// What earlier losses seemed to tell may be wrong, or the responder another one by now.
    fn forget(&mut self) {
        self.first = self.supported.high;
        self.lost = 0;
    }

    /// Takes the loss of a connection into account: some first messages without an answer, one
    /// after the other, or a loss right after a refusal, count as a responder that does not know
    /// the version. Otherwise the two ends might negotiate for ever. That holds for the connections
    /// up to one on which they agree.
    fn learn_from_loss(&mut self) {
        match self.state {
            State::Waiting(attempt, _) if !attempt.refused => {
                self.lost = self.lost.saturating_add(1);
                if self.lost >= TELLING_LOSSES {
                    let lower = attempt.version.saturating_sub(1);
                    self.first = lower.max(self.supported.low);
                    self.lost = 0;
                }
            }
            State::Waiting(attempt, _) | State::Silent(attempt) if attempt.refused => {
                self.first = attempt.version;
            }
            _ => {}
        }
    }
}
