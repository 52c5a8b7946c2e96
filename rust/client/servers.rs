// SPDX-License-Identifier: GPL-2.0

//! What was learned of servers, for all transports to them.
//!
//! A server is an address with its port, as one network namespace reaches it. Only servers that did
//! not speak the highest version that was tried are listed, each for a limited time.

use crate::{
    proto::{
        v2::known::{KnownVersions, Lesson},
        wire::header::Versions,
    },
    sunrpc::{client::OwnedXprt, Host},
    sysctl,
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{Arc, SpinLock},
    time::{BootTime, Instant},
};

/// The most servers in the list. In a full one, a new server replaces the one that would be
/// forgotten first.
const MOST: usize = 64;

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

/// The list of servers.
#[pin_data]
pub(crate) struct Servers {
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

impl Servers {
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
    pub(super) fn learn(&self, choice: &Choice, lesson: Lesson) {
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
