// SPDX-License-Identifier: GPL-2.0

//! What is known of servers: which of them did not speak the highest version that was tried.

use crate::{
    proto::{
        v2::known::{KnownVersions, Outcome},
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
const MAX_SERVERS: usize = 8;

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

/// The version that a connection tries first.
#[derive(Clone, Copy)]
pub(super) struct FirstVersion {
    pub(super) version: u32,
    /// The versions that the connection may speak.
    pub(super) supported: Versions,
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
    list: SpinLock<ServerList>,
    /// When the clock of [`Self::seconds`] began.
    since: Instant<BootTime>,
}

struct ServerList {
    /// At most as many as fit the first allocation.
    servers: KVec<(Server, KnownVersions)>,
    /// How often the setting had been written when these were recorded.
    writes: u32,
}

impl ServerList {
    fn get(&self, server: &Server) -> KnownVersions {
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
            list <- new_spinlock!(ServerList {
                servers: KVec::with_capacity(MAX_SERVERS, GFP_KERNEL)?,
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

    /// What a new connection is to try. Writing the setting discards what was recorded.
    pub(super) fn first_version(&self, xprt: &OwnedXprt) -> FirstVersion {
        let (supported, writes) = sysctl::client_versions();
        let server = Server::of(xprt);
        let mut list = self.list.lock();
        if list.writes != writes {
            list.writes = writes;
            list.servers.clear();
        }
        FirstVersion {
            version: list.get(&server).first(supported, self.seconds()),
            supported,
            server,
            writes,
        }
    }

    /// Records what a connection that began with `first` has shown, if anything, unless the setting
    /// was written since. Does not sleep.
    pub(super) fn record(&self, first: &FirstVersion, outcome: Option<Outcome>) {
        let now = self.seconds();
        let mut list = self.list.lock();
        let Some(outcome) = outcome.filter(|_| list.writes == first.writes) else {
            return;
        };
        list.servers.retain(|(server, _)| *server != first.server);
        let mut known = KnownVersions::default();
        known.record(outcome, now);
        let left = |known: &KnownVersions| known.highest(now).map(|(_, left)| left);
        let entry = (first.server, known);
        if left(&known).is_some() && list.servers.push_within_capacity(entry).is_err() {
            if let Some(place) = (list.servers.iter_mut()).min_by_key(|(_, known)| left(known)) {
                *place = entry;
            }
        }
    }

    /// The highest version that the server may speak, and for how many seconds more that is known;
    /// `None` if nothing is known.
    pub(super) fn highest(&self, xprt: &OwnedXprt) -> Option<(u32, u64)> {
        let known = self.list.lock().get(&Server::of(xprt));
        known.highest(self.seconds())
    }
}
