// SPDX-License-Identifier: GPL-2.0

//! What a transport has besides its connection, and keeps beyond it.

use super::{ends::Ends, limits::backward_payload, servers::Servers};
use crate::{
    error::Cause,
    proto::wire::private_data::Thresholds,
    stats::{Forms, Latency, Stats},
    sunrpc::client::{Backchannel, OwnedXprt},
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// What the successive connections of a transport share.
#[pin_data]
pub(super) struct Transport {
    pub(super) stats: Stats,
    pub(super) calls: Forms,
    pub(super) latency: Latency,
    #[pin]
    pub(super) ends: Ends,
    #[pin]
    pub(super) backchannel: Backchannel,
    /// The largest backward message on the last connection.
    pub(super) backward_payload: Atomic<u32>,
    /// The number of the next connection, which is odd.
    next_connection: Atomic<u32>,
    /// Regions that Calls used when the last connection ended, and that the next one will need.
    pub(super) regions_in_use: Atomic<usize>,
    /// Whether connections are made for half of the requests, as a device has refused queues for
    /// all.
    pub(super) is_halved: Atomic<bool>,
    /// Whether the present series of failed attempts was logged.
    pub(super) failure_logged: Atomic<bool>,
    /// Whether the present series of refused versions was logged.
    pub(super) refusal_logged: Atomic<bool>,
    /// What is known of servers.
    pub(super) servers: Arc<Servers>,
    /// Last: the reference to the module goes with it.
    pub(super) xprt: OwnedXprt,
}

impl Transport {
    /// A transport that has not been connected yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(xprt: OwnedXprt, servers: Arc<Servers>) -> Result<Arc<Self>> {
        let transport = try_pin_init!(Self {
            stats: Stats::new(),
            calls: Forms::new(),
            latency: Latency::new(),
            ends <- Ends::new(),
            backchannel <- Backchannel::new(),
            backward_payload: Atomic::new(backward_payload(Thresholds::DEFAULT.receive)),
            next_connection: Atomic::new(1),
            regions_in_use: Atomic::new(0),
            is_halved: Atomic::new(false),
            failure_logged: Atomic::new(false),
            refusal_logged: Atomic::new(false),
            servers,
            xprt,
        }? Error);
        Arc::pin_init(transport, GFP_KERNEL)
    }

    /// The number of a new connection: not 0, and not that of an earlier one.
    pub(super) fn next_connection(&self) -> u32 {
        self.next_connection.fetch_add(2, Relaxed)
    }

    /// Closes the connection for this cause. Does not sleep.
    pub(super) fn end(&self, cause: Cause) {
        self.ends.note(cause);
        self.xprt.force_disconnect();
    }
}
