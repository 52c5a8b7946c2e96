// SPDX-License-Identifier: GPL-2.0

//! Which version of the protocol a connection speaks (Version Two section 5).
//!
//! A connection on which Version Two is tried has one credit until the first Reply, so that one
//! Call is outstanding. Its bytes are kept: if the peer refuses the version, they are sent once
//! more with another one, while the Call's regions stay registered.
//!
//! Until the version is agreed, the sender asks this module before each message, under the send
//! lock, and completion handlers record what the peer says. A connection that speaks Version One
//! from the start uses none of this.

use super::servers::Choice;
use crate::{
    proto::{
        v2::{
            known::Lesson,
            requester::{NegotiationAction, RequesterEvent, RequesterNegotiation},
        },
        wire::{
            header::{Versions, Xid, VERSION_ONE},
            private_data::Thresholds,
        },
    },
    sunrpc::RelaxedCell,
};
use kernel::{new_spinlock, prelude::*, sync::SpinLock};

/// The most bytes of the first message (Version Two section 5).
const FIRST_MESSAGE: usize = 1024;

/// The version and limits that the next message is sent with.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) version: u32,
    pub(super) thresholds: Thresholds,
    /// Whether these hold for the rest of the connection.
    pub(super) is_final: bool,
}

/// What becomes of a Call whose version was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It ends.
    Final,
    /// It is sent again, in the version that is tried now.
    Resend,
    /// It ends, and then the connection.
    NoCommonVersion,
    /// The connection ends, and it is sent on the next one.
    Reconnect,
}

/// Which version a connection speaks.
#[pin_data]
pub(super) struct Version {
    #[pin]
    state: SpinLock<State>,
    /// The version of the next Call. The holder of the send lock sets it.
    next: RelaxedCell<u32>,
    /// The highest version of messages that are accepted. Completions lower it, one after the
    /// other.
    highest: RelaxedCell<u32>,
    /// Whether the version is agreed on; 0 or 1. Completions set it.
    is_agreed: RelaxedCell<u32>,
    /// Whether no version is common to both ends; 0 or 1. Completions set it.
    is_hopeless: RelaxedCell<u32>,
}

struct State {
    negotiation: RequesterNegotiation,
    /// The first message, if it was sent.
    first_message: KVec<u8>,
}

impl Version {
    /// The state for a connection that is not established yet.
    pub(super) fn new(choice: Choice) -> impl PinInit<Self, Error> {
        let Choice {
            supported, first, ..
        } = choice;
        try_pin_init!(Self {
            state <- new_spinlock!(State {
                negotiation: RequesterNegotiation::new(supported, first),
                first_message: match first {
                    VERSION_ONE => KVec::new(),
                    _ => KVec::with_capacity(FIRST_MESSAGE, GFP_KERNEL)?,
                },
            }, "rpcrdma_version"),
            next: RelaxedCell::new(first),
            highest: RelaxedCell::new(first),
            is_agreed: RelaxedCell::new(u32::from(first == VERSION_ONE)),
            is_hopeless: RelaxedCell::new(0),
        }? Error)
    }

    /// The connection is established, and private data has these thresholds. Returns the terms for
    /// the first message.
    pub(super) fn connected(&self, thresholds: Thresholds) -> Option<Terms> {
        let mut state = self.state.lock();
        let _ = (state.negotiation).handle(RequesterEvent::Connected(thresholds));
        self.terms_of(&state.negotiation)
    }

    fn terms_of(&self, negotiation: &RequesterNegotiation) -> Option<Terms> {
        let version = negotiation.version()?;
        Some(Terms {
            version,
            thresholds: negotiation.thresholds()?,
            is_final: version == VERSION_ONE || negotiation.is_agreed(),
        })
    }

    /// The terms that are agreed on, or tried; `None` if no version is common to both ends, or
    /// before the connection is established.
    pub(super) fn spoken(&self) -> Option<Terms> {
        self.terms_of(&self.state.lock().negotiation)
    }

    /// The terms for the next message; `None` if no version is common to both ends. Called under
    /// the send lock.
    pub(super) fn follow(&self) -> Option<Terms> {
        let terms = self.spoken()?;
        self.next.set(terms.version);
        Some(terms)
    }

    /// The version of the next Call.
    pub(super) fn of_next_call(&self) -> u32 {
        self.next.get()
    }

    /// A Call is about to be sent in `message`, which is kept if it is the first one.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the first message is too long.
    pub(super) fn sends(&self, xid: Xid, message: &[u8]) -> Result {
        if self.is_agreed.get() != 0 {
            return Ok(());
        }
        let mut state = self.state.lock();
        let room = state.first_message.capacity();
        if message.len() > room {
            return Err(EMSGSIZE);
        }
        state.first_message.clear();
        // There is room.
        state.first_message.extend_from_slice(message, GFP_ATOMIC)?;
        let _ = state.negotiation.handle(RequesterEvent::Sent(xid));
        Ok(())
    }

    /// The versions of messages that are accepted. Called in a completion.
    pub(super) fn accepted(&self) -> Versions {
        Versions {
            low: VERSION_ONE,
            high: self.highest.get(),
        }
    }

    /// Records a Reply; returns the terms from now on, if they are new. Called in a completion.
    pub(super) fn replied(&self, xid: Xid, version: u32) -> Option<Terms> {
        if self.is_agreed.get() != 0 {
            return None;
        }
        let mut state = self.state.lock();
        match (state.negotiation).handle(RequesterEvent::Replied(xid, version))? {
            NegotiationAction::Agree(_) => {
                self.highest.set(state.negotiation.accepted().high);
                self.is_agreed.set(1);
                self.terms_of(&state.negotiation)
            }
            NegotiationAction::Fail => {
                self.is_hopeless.set(1);
                None
            }
            NegotiationAction::Resend(..) | NegotiationAction::Reconnect => None,
        }
    }

    /// Records that the peer has refused the version of a Call; returns what becomes of the Call.
    /// Called in a completion.
    pub(super) fn refused(&self, xid: Xid, range: Versions) -> Refusal {
        let mut state = self.state.lock();
        match (state.negotiation).handle(RequesterEvent::Refused(xid, range)) {
            Some(NegotiationAction::Resend(..)) => {
                self.highest.set(state.negotiation.accepted().high);
                Refusal::Resend
            }
            Some(NegotiationAction::Fail) => {
                self.is_hopeless.set(1);
                Refusal::NoCommonVersion
            }
            Some(NegotiationAction::Reconnect) => Refusal::Reconnect,
            Some(NegotiationAction::Agree(_)) | None => Refusal::Final,
        }
    }

    /// Whether no version is common to both ends, so that the connection is of no use.
    pub(super) fn is_hopeless(&self) -> bool {
        self.is_hopeless.get() != 0
    }

    /// An error other than a refused version has ended a Call. Called in a completion.
    pub(super) fn failed(&self, xid: Xid) {
        let _ = (self.state.lock().negotiation).handle(RequesterEvent::Failed(xid));
    }

    /// This end takes back the memory that a Call offers, before its Reply.
    pub(super) fn abandoned(&self, xid: Xid) {
        if self.is_agreed.get() == 0 {
            let _ = (self.state.lock().negotiation).handle(RequesterEvent::Abandoned(xid));
        }
    }

    /// Writes the first message into `buffer`, in the version that is tried now, and returns its
    /// length; `None` if there is no such version, or if the buffer is too small.
    pub(super) fn copy_first(&self, buffer: &mut [u8]) -> Option<usize> {
        let state = self.state.lock();
        let version = state.negotiation.version()?;
        let length = state.first_message.len();
        buffer
            .get_mut(..length)?
            .copy_from_slice(&state.first_message);
        let word = buffer.get_mut(4..)?.first_chunk_mut()?;
        *word = version.to_be_bytes();
        Some(length)
    }

    /// Whether that Call is the first one.
    pub(super) fn is_abandoned(&self) -> bool {
        self.state.lock().negotiation.is_abandoned()
    }

    /// What later connections to the server are to know.
    pub(super) fn lesson(&self) -> Option<Lesson> {
        self.state.lock().negotiation.lesson()
    }
}
