// SPDX-License-Identifier: GPL-2.0

//! Version Two of the protocol: which version a connection speaks (Version Two section 5).
//!
//! A connection on which Version Two is tried has one credit until the first Reply, so that one
//! Call is outstanding. Its bytes are kept: if the peer refuses the version, they are sent once
//! more with another one, while the Call's MRs stay registered.

use super::{
    ep::{Ep, EpVersion},
    known_servers::FirstVersion,
};
use crate::{
    error::Cause,
    proto::{
        v2::{
            known::Outcome,
            requester::{NegotiationAction, RequesterEvent, RequesterNegotiation},
        },
        wire::{
            header::{Versions, Xid, VERSION_ONE},
            private_data::DEFAULT_THRESHOLD,
        },
    },
    trace,
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{atomic::Relaxed, SpinLock},
};

/// The negotiation of a connection at an end that is set to speak Version Two.
#[pin_data]
pub(super) struct VersionTwo {
    #[pin]
    first_call: SpinLock<FirstCall>,
    first: FirstVersion,
}

struct FirstCall {
    negotiation: RequesterNegotiation,
    /// The first message, if it was sent.
    message: KVec<u8>,
}

impl VersionTwo {
    /// The negotiation of a connection that is not established yet; `None` if this end is set to
    /// speak only Version One.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(first: FirstVersion) -> Result<Option<Pin<KBox<Self>>>> {
        if first.supported.high == VERSION_ONE {
            return Ok(None);
        }
        let first_call = FirstCall {
            negotiation: RequesterNegotiation::new(first.supported, first.version),
            // CAST: A u32 always fits the kernel's usize.
            message: KVec::with_capacity(DEFAULT_THRESHOLD as usize, GFP_KERNEL)?,
        };
        let this = pin_init!(Self {
            first_call <- new_spinlock!(first_call, "rpcrdma_v2"),
            first,
        });
        Ok(Some(KBox::pin_init(this, GFP_KERNEL)?))
    }

    /// Lets the negotiation handle an event; returns the action, and what the connection has shown.
    /// See [`Self::replied`] and [`Self::err_vers`] for the events that have actions.
    pub(super) fn handle(
        &self,
        event: RequesterEvent,
    ) -> (Option<NegotiationAction>, Option<Outcome>) {
        let negotiation = &mut self.first_call.lock().negotiation;
        (negotiation.handle(event), negotiation.outcome())
    }

    /// As [`Ep::version`].
    pub(super) fn version(&self) -> Option<EpVersion> {
        let negotiation = self.first_call.lock().negotiation;
        let number = negotiation.version()?;
        Some(EpVersion {
            number,
            thresholds: negotiation.thresholds()?,
            is_final: number == VERSION_ONE || negotiation.is_agreed(),
        })
    }

    /// A Call is about to be sent in `message`, which is kept if it is the first one.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the first message is too long.
    pub(super) fn sends(&self, xid: Xid, message: &[u8]) -> Result {
        let mut first_call = self.first_call.lock();
        if message.len() > first_call.message.capacity() {
            return Err(EMSGSIZE);
        }
        first_call.message.clear();
        // The capacity suffices.
        first_call.message.extend_from_slice(message, GFP_ATOMIC)?;
        let _ = first_call.negotiation.handle(RequesterEvent::Sent(xid));
        Ok(())
    }

    /// The versions of messages that are accepted.
    pub(super) fn accepted(&self) -> Versions {
        self.first_call.lock().negotiation.accepted()
    }

    /// A Reply of `version` has arrived, by which both ends may agree on a version.
    pub(super) fn replied(&self, ep: &Ep, xid: Xid, version: u32) {
        let (action, outcome) = self.handle(RequesterEvent::Replied(xid, version));
        match action {
            Some(NegotiationAction::Agree(version)) => {
                ep.transport.servers.record(&self.first, outcome);
                trace::xprtrdma_version(ep.transport.xprt.id(), version);
            }
            Some(NegotiationAction::Fail) => log_failure(ep, version, version),
            _ => {}
        }
    }

    /// The peer has refused the version of a Call; returns what to do, unless the Call just ends.
    pub(super) fn err_vers(&self, ep: &Ep, xid: Xid, range: Versions) -> Option<NegotiationAction> {
        let (action, outcome) = self.handle(RequesterEvent::Refused(xid, range));
        match action? {
            NegotiationAction::Fail => log_failure(ep, range.low, range.high),
            _ => ep.transport.servers.record(&self.first, outcome),
        }
        action
    }

    /// Writes the first message into `buffer`, in the version that is tried now, and returns its
    /// length; `None` if there is no such version, or if the buffer is too small.
    pub(super) fn copy_first(&self, buffer: &mut [u8]) -> Option<usize> {
        let first_call = self.first_call.lock();
        let version = first_call.negotiation.version()?;
        let message = &first_call.message;
        buffer.get_mut(..message.len())?.copy_from_slice(message);
        *buffer.get_mut(4..)?.first_chunk_mut()? = version.to_be_bytes();
        Some(message.len())
    }

    /// The connection ends for `cause`. If the peer has thereby lost the first message, it is taken
    /// not to know the version. A refusal was recorded when it came.
    pub(super) fn lost_for(&self, ep: &Ep, cause: Cause) {
        let negotiation = self.first_call.lock().negotiation;
        let is_lost = match cause {
            Cause::RpcTimeout => true,
            // The peer may end the connection as its access to memory of the first Call has failed.
            Cause::Disconnected | Cause::RetriesExceeded | Cause::RemoteError => {
                !negotiation.is_abandoned()
            }
            // This end has ended it.
            _ => false,
        };
        let outcome = negotiation.outcome();
        if is_lost && matches!(outcome, Some(Outcome::Lost(_))) {
            ep.transport.servers.record(&self.first, outcome);
        }
    }
}

/// No version is common to both ends, which leaves one line in the log until the next Reply.
fn log_failure(ep: &Ep, low: u32, high: u32) {
    if !ep.transport.failure_logged.xchg(true, Relaxed) {
        ep.transport.xprt.log_warning(fmt!(
            "it speaks Versions {low} to {high} of RPC-over-RDMA; this end speaks 1 and 2 if \
             sunrpc.rdma_version_two is set to \"offered\""
        ));
    }
}
