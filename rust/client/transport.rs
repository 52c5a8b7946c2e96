// SPDX-License-Identifier: GPL-2.0

//! What a transport has besides its connection, and keeps beyond it.

use super::{ends::Ends, limits::backward_payload, version::Choice};
use crate::{
    error::Cause,
    proto::{
        requester::known_versions::{KnownVersions, Lesson},
        wire::private_data::Thresholds,
    },
    stats::{Calls, Latency, Stats},
    sunrpc::client::{BackwardCalls, OwnedXprt},
    sysctl,
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLock,
    },
    time::{BootTime, Instant},
};

/// What the successive connections of a transport share.
#[pin_data]
pub(super) struct Transport {
    pub(super) stats: Stats,
    pub(super) calls: Calls,
    pub(super) latency: Latency,
    #[pin]
    pub(super) ends: Ends,
    #[pin]
    pub(super) backward: BackwardCalls,
    /// The largest backward message on the last connection.
    pub(super) backward_payload: Atomic<u32>,
    /// The number of the next connection, which is odd.
    next_connection: Atomic<u32>,
    /// Regions that Calls used when the last connection ended, and that the next one will need.
    pub(super) regions_in_use: Atomic<usize>,
    /// Whether the present series of failed attempts was logged.
    pub(super) failure_logged: Atomic<bool>,
    /// Whether the present series of refused versions was logged.
    pub(super) refusal_logged: Atomic<bool>,
    #[pin]
    server: SpinLock<Server>,
    /// When the transport was made.
    since: Instant<BootTime>,
    /// Last: the reference to the module goes with it.
    pub(super) xprt: OwnedXprt,
}

/// What is known of the server.
struct Server {
    versions: KnownVersions,
    /// Which write of the setting that was learned after.
    writes: u32,
}

impl Transport {
    /// A transport that has not been connected yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(xprt: OwnedXprt) -> Result<Arc<Self>> {
        let transport = try_pin_init!(Self {
            stats: Stats::new(),
            calls: Calls::new(),
            latency: Latency::new(),
            ends <- Ends::new(),
            backward <- BackwardCalls::new(),
            backward_payload: Atomic::new(backward_payload(Thresholds::DEFAULT.receive)),
            next_connection: Atomic::new(1),
            regions_in_use: Atomic::new(0),
            failure_logged: Atomic::new(false),
            refusal_logged: Atomic::new(false),
            server <- new_spinlock!(Server {
                versions: KnownVersions::default(),
                writes: 0,
            }, "rpcrdma_server"),
            since: Instant::now(),
            xprt,
        }? Error);
        Arc::pin_init(transport, GFP_KERNEL)
    }

    /// The number of a new connection: not 0, and not that of an earlier one.
    pub(super) fn next_connection(&self) -> u32 {
        self.next_connection.fetch_add(2, Relaxed)
    }

    /// Seconds since the transport was made.
    fn seconds(&self) -> u64 {
        self.since.elapsed().as_millis().unsigned_abs() / 1000
    }

    /// What a new connection is to speak. Who writes the setting wants what was learned to be
    /// forgotten.
    pub(super) fn choose_version(&self) -> Choice {
        let (setting, writes) = sysctl::version_two();
        let supported = setting.versions();
        let mut server = self.server.lock();
        if server.writes != writes {
            server.writes = writes;
            server.versions = KnownVersions::default();
        }
        let first = server.versions.first(supported, self.seconds());
        Choice { supported, first }
    }

    /// Takes in what a connection has shown that ends for `cause`. If this end gave it up, then the
    /// peer has lost no message.
    pub(super) fn learn(&self, lesson: Lesson, cause: Cause) {
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
        if !is_of_this_end || !matches!(lesson, Lesson::Lost(_)) {
            self.server.lock().versions.learn(lesson, self.seconds());
        }
    }

    /// Closes the connection for this cause. Does not sleep.
    pub(super) fn end(&self, cause: Cause) {
        self.ends.note(cause);
        self.xprt.force_disconnect();
    }
}
