// SPDX-License-Identifier: GPL-2.0

//! Version Two of the protocol: which version a connection speaks (Version Two section 5), and what
//! is known of servers.
//!
//! A connection on which Version Two is tried has one credit until the first Reply, so that one
//! Call is outstanding. Its bytes are kept: if the peer refuses the version, they are sent once
//! more with another one, while the Call's MRs stay registered.

use super::ep::Ep;
use crate::{
    error::Cause,
    proto::{
        v2::{
            known::{KnownVersions, Lesson},
            requester::{NegotiationAction, RequesterEvent, RequesterNegotiation},
        },
        wire::{
            header::{Versions, Xid, VERSION_ONE},
            private_data::Thresholds,
        },
    },
    sunrpc::{client::OwnedXprt, Host},
    sysctl, trace,
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{atomic::Relaxed, Arc, SpinLock},
    time::{BootTime, Instant},
};

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

impl Terms {
    /// Those of Version One.
    pub(super) fn version_one(thresholds: Thresholds) -> Self {
        Self {
            version: VERSION_ONE,
            thresholds: thresholds.at_version(VERSION_ONE),
            is_final: true,
        }
    }
}

/// What becomes of a Call whose version was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It ends.
    Final,
    /// It is sent again, in the version that is tried now.
    Resend,
    /// The connection ends, and it is sent on the next one.
    Reconnect,
}

/// The negotiation of a connection at an end that is set to speak Version Two.
#[pin_data]
pub(super) struct VersionTwo {
    #[pin]
    state: SpinLock<State>,
    choice: Choice,
}

struct State {
    negotiation: RequesterNegotiation,
    /// The first message, if it was sent.
    first_message: KVec<u8>,
}

impl State {
    /// The terms that are agreed on, or tried; `None` if no version is common to both ends.
    fn terms(&self) -> Option<Terms> {
        let version = self.negotiation.version()?;
        Some(Terms {
            version,
            thresholds: self.negotiation.thresholds()?,
            is_final: version == VERSION_ONE || self.negotiation.is_agreed(),
        })
    }
}

impl VersionTwo {
    /// The negotiation of a connection that is not established yet; `None` if this end is set to
    /// speak only Version One.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(choice: Choice) -> Result<Option<Pin<KBox<Self>>>> {
        if choice.supported.high == VERSION_ONE {
            return Ok(None);
        }
        let state = State {
            negotiation: RequesterNegotiation::new(choice.supported, choice.first),
            first_message: KVec::with_capacity(FIRST_MESSAGE, GFP_KERNEL)?,
        };
        let this = pin_init!(Self {
            state <- new_spinlock!(state, "rpcrdma_v2"),
            choice,
        });
        Ok(Some(KBox::pin_init(this, GFP_KERNEL)?))
    }

    /// The connection is established, and private data has these thresholds.
    pub(super) fn connected(&self, thresholds: Thresholds) {
        self.handle(RequesterEvent::Connected(thresholds));
    }

    fn handle(&self, event: RequesterEvent) -> Option<NegotiationAction> {
        self.state.lock().negotiation.handle(event)
    }

    /// The terms that are agreed on, or tried; `None` if no version is common to both ends, so that
    /// the connection is of no use.
    pub(super) fn terms(&self) -> Option<Terms> {
        self.state.lock().terms()
    }

    /// A Call is about to be sent in `message`, which is kept if it is the first one.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the first message is too long.
    pub(super) fn sends(&self, xid: Xid, message: &[u8]) -> Result {
        let mut state = self.state.lock();
        if message.len() > state.first_message.capacity() {
            return Err(EMSGSIZE);
        }
        state.first_message.clear();
        // There is room.
        state.first_message.extend_from_slice(message, GFP_ATOMIC)?;
        let _ = state.negotiation.handle(RequesterEvent::Sent(xid));
        Ok(())
    }

    /// The versions of messages that are accepted.
    pub(super) fn accepted(&self) -> Versions {
        self.state.lock().negotiation.accepted()
    }

    /// Takes note of a Reply, which may be the one by which both ends agree on a version.
    pub(super) fn replied(&self, ep: &Ep, xid: Xid, version: u32) {
        let mut state = self.state.lock();
        let action = (state.negotiation).handle(RequesterEvent::Replied(xid, version));
        let terms = state.terms();
        drop(state);
        if let (Some(NegotiationAction::Agree(version)), Some(terms)) = (action, terms) {
            self.learn(ep);
            ep.limit_backward(&terms.thresholds);
            ep.transport.refusal_logged.store(false, Relaxed);
            trace::xprtrdma_version(&ep.transport.xprt, version);
        }
    }

    /// Handles a refusal of a Call's version; returns what is to become of the Call.
    pub(super) fn refused(&self, ep: &Ep, xid: Xid, range: Versions) -> Refusal {
        let transport = &ep.transport;
        match self.handle(RequesterEvent::Refused(xid, range)) {
            Some(NegotiationAction::Resend(..)) => {
                self.learn(ep);
                Refusal::Resend
            }
            Some(NegotiationAction::Reconnect) => {
                self.learn(ep);
                Refusal::Reconnect
            }
            Some(NegotiationAction::Fail) => {
                if !transport.refusal_logged.xchg(true, Relaxed) {
                    transport.xprt.log_warning(fmt!(
                        "it speaks Versions {} to {} of RPC-over-RDMA, and this end is set to \
                         others",
                        range.low,
                        range.high
                    ));
                }
                Refusal::Final
            }
            Some(NegotiationAction::Agree(_)) | None => Refusal::Final,
        }
    }

    /// An error other than a refused version has ended a Call.
    pub(super) fn failed(&self, xid: Xid) {
        let _ = self.handle(RequesterEvent::Failed(xid));
    }

    /// This end takes back the memory that a Call offers, before its Reply.
    pub(super) fn abandoned(&self, xid: Xid) {
        let _ = self.handle(RequesterEvent::Abandoned(xid));
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

    /// Records what this connection has shown of the server, for its later connections.
    fn learn(&self, ep: &Ep) {
        let lesson = self.state.lock().negotiation.lesson();
        if let Some(lesson) = lesson {
            ep.transport.servers.learn(&self.choice, lesson);
        }
    }

    /// Does so for a connection that ends for `cause`, if that lost its first message. If this end
    /// gave the connection up, the peer has lost none. A refusal was noted when it came.
    pub(super) fn lost_for(&self, ep: &Ep, cause: Cause) {
        let is_of_this_end = matches!(
            cause,
            Cause::Closed
                | Cause::Injected
                | Cause::DeviceRemoved
                | Cause::AddressChanged
                | Cause::LocalResources
                | Cause::PostFailed
                | Cause::Retransmission
                | Cause::OneWayCall
        );
        let negotiation = self.state.lock().negotiation;
        // The peer may end the connection as its access to memory of the first Call has failed.
        let is_of_this_end =
            is_of_this_end || cause != Cause::RpcTimeout && negotiation.is_abandoned();
        if !is_of_this_end && matches!(negotiation.lesson(), Some(Lesson::Lost(_))) {
            self.learn(ep);
        }
    }
}

/// The most servers in the list. In a full one, a new server replaces the one that would be
/// forgotten first.
const MOST: usize = 8;

/// A server, as one network namespace reaches it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Server {
    net: u64,
    host: Host,
    port: u16,
}

impl Server {
    fn of(xprt: &OwnedXprt) -> Self {
        let address = xprt.address();
        Self {
            net: xprt.net().cookie(),
            host: address.host(),
            port: address.port(),
        }
    }
}

/// What a connection may speak.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub(super) supported: Versions,
    /// The version that is tried first.
    pub(super) first: u32,
    /// The server that the connection is made to.
    server: Server,
    /// How often the setting had been written when this was chosen.
    writes: u32,
}

/// The servers that did not speak the highest version that was tried, each for a limited time. All
/// transports share the list.
#[pin_data]
pub(crate) struct KnownServers {
    #[pin]
    known: SpinLock<Known>,
    /// When the clock of [`Self::seconds`] began.
    since: Instant<BootTime>,
}

struct Known {
    /// At most as many as fit the first allocation.
    servers: KVec<(Server, KnownVersions)>,
    /// How often the setting had been written when these were learned.
    writes: u32,
}

impl Known {
    fn of(&self, server: &Server) -> KnownVersions {
        let mut servers = self.servers.iter();
        let found = servers.find(|(known, _)| known == server);
        found.map_or_else(KnownVersions::default, |(_, versions)| *versions)
    }
}

impl KnownServers {
    /// An empty list.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let servers = try_pin_init!(Self {
            known <- new_spinlock!(Known {
                servers: KVec::with_capacity(MOST, GFP_KERNEL)?,
                writes: 0,
            }, "rpcrdma_servers"),
            since: Instant::now(),
        }? Error);
        Arc::pin_init(servers, GFP_KERNEL)
    }

    /// The list's clock, in seconds.
    fn seconds(&self) -> u64 {
        self.since.elapsed().as_millis().unsigned_abs() / 1000
    }

    /// What a new connection is to speak. Writing the setting discards what was learned.
    pub(super) fn choose_version(&self, xprt: &OwnedXprt) -> Choice {
        let (supported, writes) = sysctl::client_versions();
        let server = Server::of(xprt);
        let mut known = self.known.lock();
        if known.writes != writes {
            known.writes = writes;
            known.servers.clear();
        }
        Choice {
            supported,
            first: known.of(&server).first(supported, self.seconds()),
            server,
            writes,
        }
    }

    /// Records what the connection with this choice has shown, unless the setting was written
    /// since. Does not sleep.
    fn learn(&self, choice: &Choice, lesson: Lesson) {
        let now = self.seconds();
        let mut guard = self.known.lock();
        let known = &mut *guard;
        if known.writes != choice.writes {
            return;
        }
        let mut servers = known.servers.iter_mut();
        if let Some((_, versions)) = servers.find(|(server, _)| *server == choice.server) {
            versions.learn(lesson, now);
            return;
        }
        let mut versions = KnownVersions::default();
        versions.learn(lesson, now);
        if versions.highest(now).is_none() {
            return;
        }
        let learned = (choice.server, versions);
        if known.servers.push_within_capacity(learned).is_err() {
            let left = |versions: &KnownVersions| versions.highest(now).map(|(_, left)| left);
            let servers = known.servers.iter_mut();
            if let Some(place) = servers.min_by_key(|(_, versions)| left(versions)) {
                *place = learned;
            }
        }
    }

    /// The highest version that the server may speak, and for how many seconds more that is known;
    /// `None` if nothing is known.
    pub(super) fn highest(&self, xprt: &OwnedXprt) -> Option<(u32, u64)> {
        let known = self.known.lock().of(&Server::of(xprt));
        known.highest(self.seconds())
    }
}
