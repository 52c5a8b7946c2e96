// SPDX-License-Identifier: GPL-2.0

//! One connection, and everything that ends with it.

use super::{
    connect::CmWait,
    limits::{backward_payload, EpLimits},
    mr_pool::MrPool,
    transport::Client,
    v2::{Choice, Terms, VersionTwo},
};
use crate::{
    error::Cause,
    proto::{
        requester::credits::CreditWindow,
        wire::{
            header::{Credits, FixedHeader, Versions, Xid},
            private_data::{negotiate, PrivateData, Thresholds},
        },
    },
    rdma::{Bound, CmId, DeviceName, RemovalNotice},
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
    /// When that was.
    pub(super) since: Instant<BootTime>,
    /// The address of this end.
    pub(super) source: SocketAddress,
    /// The device and its port.
    pub(super) device: (DeviceName, u32),
}

/// A connection: the user of a queue pair.
pub(super) struct Ep {
    pub(super) mrs: Arc<MrPool>,
    /// Distinguishes the connection from earlier ones of the transport; in the upper 32 bits, not
    /// 0.
    number: u64,
    /// The credits before the first Reply.
    first_window: CreditWindow,
    /// How many Calls may be outstanding. 0 before the first Reply, which stands for one.
    window: Atomic<u32>,
    pub(super) param: SetOnce<EpParam>,
    pub(super) v2: Option<Pin<KBox<VersionTwo>>>,
    pub(super) wait: Arc<CmWait>,
    _notice: RemovalNotice,
    /// Last: it may be the last reference to the transport, and to the module.
    pub(super) transport: Arc<Client>,
}

impl Ep {
    /// A connection of this size.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(
        transport: &Arc<Client>,
        mrs: Arc<MrPool>,
        wait: &Arc<CmWait>,
        notice: RemovalNotice,
        (limits, choice): (&EpLimits, Choice),
    ) -> Result<Arc<Self>> {
        let this = Self {
            mrs,
            number: u64::from(transport.next_connection()) << 32,
            first_window: CreditWindow::new(Credits::new(limits.requests)),
            window: Atomic::new(0),
            param: SetOnce::new(),
            v2: VersionTwo::new(choice)?,
            wait: wait.clone(),
            _notice: notice,
            transport: transport.clone(),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// Applies what both ends have announced, before the first Call; returns the terms for that
    /// Call.
    pub(super) fn connected(
        &self,
        own: PrivateData,
        peer: Option<PrivateData>,
        id: &CmId<Bound>,
    ) -> Option<Terms> {
        let thresholds = negotiate(own, peer);
        trace::xprtrdma_inline_thresh(
            &self.transport.xprt,
            thresholds.send,
            thresholds.receive,
            own.send.bytes(),
            own.receive.bytes(),
        );
        self.param.populate(EpParam {
            own,
            peer,
            since: Instant::now(),
            source: id.source_address(),
            device: (id.device_name(), id.port()),
        });
        if let Some(v2) = &self.v2 {
            v2.connected(thresholds);
        }
        let terms = self.terms()?;
        self.limit_backward(&terms.thresholds);
        Some(terms)
    }

    /// The terms that are agreed on, or tried; `None` if no version is common to both ends, or
    /// before the connection is established.
    pub(super) fn terms(&self) -> Option<Terms> {
        match &self.v2 {
            Some(v2) => v2.terms(),
            None => {
                let param = self.param.as_ref()?;
                Some(Terms::version_one(negotiate(param.own, param.peer)))
            }
        }
    }

    /// Limits backward messages to what fits these thresholds.
    pub(super) fn limit_backward(&self, thresholds: &Thresholds) {
        let threshold = thresholds.send.min(thresholds.receive);
        self.transport
            .backward_payload
            .store(backward_payload(threshold), Relaxed);
    }

    /// The versions of messages that are accepted.
    pub(super) fn accepted(&self) -> Versions {
        self.v2.as_ref().map_or(Versions::ONE, |v2| v2.accepted())
    }

    /// Takes note of a Reply, which may be the one by which both ends agree on a version.
    pub(super) fn replied(&self, xid: Xid, version: u32) {
        if let Some(v2) = &self.v2 {
            v2.replied(self, xid, version);
        }
    }

    /// An error other than a refused version has ended a Call.
    pub(super) fn failed(&self, xid: Xid) {
        if let Some(v2) = &self.v2 {
            v2.failed(xid);
        }
    }

    /// Whether no version is common to both ends, so that the connection is of no use.
    pub(super) fn is_hopeless(&self) -> bool {
        self.v2.as_ref().is_some_and(|v2| v2.terms().is_none())
    }

    /// The credits that every Call asks for.
    pub(super) fn requested_credits(&self) -> Credits {
        self.first_window.requested()
    }

    /// The credits in force.
    pub(super) fn granted_credits(&self) -> u32 {
        self.window.load(Relaxed).max(1)
    }

    /// Records the grant of a Reply; returns whether the Reply is in a version that this end
    /// speaks. Completions are handled one after the other, so nobody else does so concurrently.
    pub(super) fn grant(&self, reply: &FixedHeader) -> bool {
        let mut credits = self.first_window;
        let window = credits.grant(reply.credits);
        if window == self.window.load(Relaxed) {
            return true;
        }
        // Comes first, so that whoever gets a new credit sends in the version that is agreed on.
        self.replied(reply.xid, reply.version);
        if self.is_hopeless() {
            return false;
        }
        self.window.store(window, Relaxed);
        self.transport.xprt.set_credits(window);
        true
    }

    /// Closes a connection without a common version. Called once its Call has ended: the Call's MRs
    /// could not be invalidated afterwards.
    pub(super) fn close_if_hopeless(&self) {
        if self.is_hopeless() {
            self.wait.close(Cause::NoCommonVersion);
        }
    }

    /// The cookie that a request keeps of its Send: the connection's number, plus that of the slot,
    /// counted from 1.
    pub(super) fn cookie(&self, sent: SentCall) -> u64 {
        let slot = match sent {
            SentCall::Inline => 0,
            // CAST: The kernel's usize always fits a u64; there are fewer than 2^32 slots.
            SentCall::WithChunks(slot) => (slot as u64).wrapping_add(1),
        };
        self.number.wrapping_add(slot)
    }

    /// How the request with this cookie was sent; `None` if that was not on this connection.
    pub(super) fn sent(&self, cookie: u64) -> Option<SentCall> {
        let slot = u32::try_from(cookie.wrapping_sub(self.number)).ok()?;
        Some(match slot.checked_sub(1) {
            None => SentCall::Inline,
            // CAST: A u32 always fits the kernel's usize.
            Some(slot) => SentCall::WithChunks(slot as usize),
        })
    }

    /// What a backward Call of `version` keeps for its Reply: the connection's number, then the
    /// version.
    pub(super) fn backward_mark(&self, version: u32) -> u64 {
        self.number | u64::from(version)
    }

    /// The version of the backward Call with this mark; `None` if the Call did not come on this
    /// connection.
    pub(super) fn backward_version(&self, mark: u64) -> Option<u32> {
        u32::try_from(mark.wrapping_sub(self.number)).ok()
    }
}

/// How a Call was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SentCall {
    /// Without chunks.
    Inline,
    /// With chunks, whose MRs are in the slot of this index.
    WithChunks(usize),
}

impl SentCall {
    /// Whether this is the cookie of a Call with chunks, on whatever connection.
    pub(super) fn has_chunks(cookie: u64) -> bool {
        cookie & u64::from(u32::MAX) != 0
    }
}
