// SPDX-License-Identifier: GPL-2.0

//! One connection, and everything that ends with it.

use super::{
    connect::EpState, known_servers::FirstVersion, limits::EpLimits, mr_pool::MrPool,
    transport::RpcrdmaXprt, v2::VersionTwo,
};
use crate::{
    proto::{
        v2::requester::RequesterEvent,
        wire::{
            header::{Credits, FixedHeader, Versions, Xid, VERSION_ONE},
            private_data::{negotiate, PrivateData, Thresholds},
        },
    },
    rdma::{Bound, CmId, DeviceName, Pd, RemovalNotice},
    sunrpc::SocketAddress,
    trace,
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SetOnce,
    },
    time::{BootTime, Instant},
};

/// What both ends announced when the connection was established.
pub(super) struct EpParam {
    /// This end.
    pub(super) own: PrivateData,
    /// The peer, if it said anything.
    pub(super) peer: Option<PrivateData>,
    /// What follows from both, for Version One.
    thresholds: Thresholds,
    /// When that was.
    pub(super) since: Instant<BootTime>,
    /// The address of this end.
    pub(super) source: SocketAddress,
    /// The device and its port.
    pub(super) device: (DeviceName, u32),
}

/// The version and limits that the next message is sent with.
#[derive(Clone, Copy)]
pub(super) struct EpVersion {
    pub(super) number: u32,
    pub(super) thresholds: Thresholds,
    /// Whether these hold for the rest of the connection.
    pub(super) is_final: bool,
}

/// A connection: the user of a queue pair. `reply.rs` implements [`QpUser`] for it, with the
/// handlers of its completions.
///
/// [`QpUser`]: crate::rdma::QpUser
pub(crate) struct Ep {
    pub(super) mrs: Arc<MrPool>,
    /// Distinguishes the connection from earlier ones of the transport; in the upper 32 bits, not
    /// 0.
    number: u64,
    /// The credits that every Call asks for.
    pub(super) requested: Credits,
    /// Credits granted; 0 until the first Reply (one Call may be outstanding).
    granted: Atomic<u32>,
    pub(super) param: SetOnce<EpParam>,
    /// Unless this end is set to speak only Version One.
    pub(super) v2: Option<Pin<KBox<VersionTwo>>>,
    pub(super) state: Arc<EpState>,
    _notice: RemovalNotice,
    /// Last: it may be the last reference to the transport, and to the module.
    pub(super) transport: Arc<RpcrdmaXprt>,
}

impl Ep {
    /// A connection of this size, on which `first` is tried.
    ///
    /// # Errors
    ///
    /// Those of [`MrPool::new`], or `ENOMEM`.
    pub(super) fn new(
        pd: &Arc<Pd>,
        limits: &EpLimits,
        first: FirstVersion,
        state: Arc<EpState>,
        notice: RemovalNotice,
    ) -> Result<Arc<Self>> {
        let transport = state.transport.clone();
        let this = Self {
            mrs: MrPool::new(&transport, pd, limits)?,
            number: u64::from(transport.next_connection.fetch_add(2, Relaxed)) << 32,
            requested: Credits::new(limits.requests),
            granted: Atomic::new(0),
            param: SetOnce::new(),
            v2: VersionTwo::new(first)?,
            state,
            _notice: notice,
            transport,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Applies what both ends have announced, before the first Call.
    pub(super) fn connected(&self, own: PrivateData, peer: Option<PrivateData>, id: &CmId<Bound>) {
        let thresholds = negotiate(own, peer);
        trace::xprtrdma_inline_thresh(
            self.transport.xprt.id(),
            thresholds.send,
            thresholds.receive,
            own.send.bytes(),
            own.receive.bytes(),
        );
        self.param.populate(EpParam {
            own,
            peer,
            thresholds,
            since: Instant::now(),
            source: id.source_address(),
            device: (id.device_name(), id.port()),
        });
        if let Some(v2) = &self.v2 {
            v2.handle(RequesterEvent::Connected(thresholds));
        }
    }

    /// The version that is agreed on, or tried; `None` if none is common to both ends, or before
    /// the connection is established.
    pub(super) fn version(&self) -> Option<EpVersion> {
        if let Some(v2) = &self.v2 {
            return v2.version();
        }
        let param = self.param.as_ref()?;
        Some(EpVersion {
            number: VERSION_ONE,
            thresholds: param.thresholds,
            is_final: true,
        })
    }

    /// Whether it helps to check the peer. A server of Version One may drop the first message of a
    /// trial of Version Two.
    pub(super) fn may_check_peer(&self) -> bool {
        let is_final = self.version().is_some_and(|version| version.is_final);
        is_final && !self.transport.checks_fail.load(Relaxed)
    }

    /// The versions of messages that are accepted.
    pub(super) fn accepted(&self) -> Versions {
        self.v2.as_ref().map_or(Versions::ONE, |v2| v2.accepted())
    }

    /// The credits in force.
    pub(super) fn granted_credits(&self) -> u32 {
        self.granted.load(Relaxed).max(1)
    }

    /// Records the grant of a Reply; returns whether the Reply is in a version that this end
    /// speaks. Completion handlers of the connection run one after the other.
    pub(super) fn grant(&self, reply: &FixedHeader) -> bool {
        let granted = reply.credits.get().min(self.requested.get());
        if granted == self.granted.load(Relaxed) {
            return true;
        }
        // Before set_credits(), whose Calls are sent in the version that is agreed on.
        self.replied(reply.xid, reply.version);
        if self.version().is_none() {
            return false;
        }
        self.transport.failure_logged.store(false, Relaxed);
        self.granted.store(granted, Relaxed);
        self.transport.xprt.set_credits(granted);
        true
    }

    /// A Reply of `version` has arrived, by which both ends may agree on a version.
    pub(super) fn replied(&self, xid: Xid, version: u32) {
        if let Some(v2) = &self.v2 {
            v2.replied(self, xid, version);
        }
    }

    /// An error other than a refused version has ended a Call.
    pub(super) fn call_failed(&self, xid: Xid) {
        if let Some(v2) = &self.v2 {
            v2.handle(RequesterEvent::Failed(xid));
        }
    }

    /// The connection's number in the upper half, and `value`, below 2^32, in the lower half.
    pub(super) fn cookie(&self, value: usize) -> u64 {
        // CAST: The kernel's usize always fits a u64.
        self.number.wrapping_add(value as u64)
    }

    /// The value in a cookie; `None` if that is of another connection.
    pub(super) fn cookie_value(&self, cookie: u64) -> Option<usize> {
        let value = u32::try_from(cookie.wrapping_sub(self.number)).ok()?;
        // CAST: A u32 always fits the kernel's usize.
        Some(value as usize)
    }
}
