// SPDX-License-Identifier: GPL-2.0

//! One connection, and everything that ends with it.

use super::{
    limits::{backward_payload, Limits},
    monitor::Monitor,
    regions::Regions,
    servers::Choice,
    transport::Transport,
    version::{Terms, Version},
};
use crate::{
    error::Cause,
    proto::{
        requester::credits::CreditWindow,
        v2::known::Lesson,
        wire::{
            header::{Credits, FixedHeader, Xid},
            private_data::{negotiate, PrivateData, Thresholds},
        },
    },
    rdma::{Invalidation, QueuePair, RemovalNotice},
    sunrpc::RelaxedCell,
    trace,
};
use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{atomic::Relaxed, Arc, CondVar, SpinLock},
    time::{BootTime, Instant},
};

/// What both ends announced when the connection was established.
#[derive(Clone, Copy)]
pub(super) struct Agreement {
    /// This end.
    pub(super) own: PrivateData,
    /// The peer, if it said anything.
    pub(super) peer: Option<PrivateData>,
    /// When that was.
    pub(super) since: Instant<BootTime>,
}

/// The context of a queue pair.
#[pin_data]
pub(super) struct Connection {
    /// Notified when an awaited chunk entry becomes free.
    #[pin]
    pub(super) chunks_freed: CondVar,
    pub(super) regions: Arc<Regions>,
    /// Distinguishes the connection from earlier ones of the transport; in the upper 32 bits, not
    /// 0.
    number: u64,
    /// The credits before the first Reply.
    first_window: CreditWindow,
    /// How many Calls may be outstanding. 0 before the first Reply, which stands for one.
    window: RelaxedCell<u32>,
    #[pin]
    agreement: SpinLock<Option<Agreement>>,
    #[pin]
    pub(super) version: Version,
    choice: Choice,
    monitor: Arc<Monitor>,
    _notice: RemovalNotice,
    /// Last: it may be the last reference to the transport, and to the module.
    pub(super) transport: Arc<Transport>,
}

impl Connection {
    /// The context of a connection of this size.
    pub(super) fn new<'a>(
        transport: &'a Arc<Transport>,
        regions: &'a Arc<Regions>,
        monitor: &'a Arc<Monitor>,
        notice: RemovalNotice,
        (limits, choice): (&'a Limits, Choice),
    ) -> impl PinInit<Self, Error> + 'a {
        try_pin_init!(Self {
            chunks_freed <- new_condvar!("rpcrdma_chunks_freed"),
            regions: regions.clone(),
            number: u64::from(transport.next_connection()) << 32,
            first_window: CreditWindow::new(Credits::new(limits.requests)),
            window: RelaxedCell::new(0),
            agreement <- new_spinlock!(None, "rpcrdma_agreement"),
            version <- Version::new(choice),
            choice,
            monitor: monitor.clone(),
            _notice: notice,
            transport: transport.clone(),
        }? Error)
    }

    /// Applies what both ends have said, before the first Call; returns the terms for that Call.
    pub(super) fn agree(&self, own: PrivateData, peer: Option<PrivateData>) -> Option<Terms> {
        let thresholds = negotiate(own, peer);
        trace::xprtrdma_inline_thresh(
            &self.transport.xprt,
            thresholds.send,
            thresholds.receive,
            own.send.bytes(),
            own.receive.bytes(),
        );
        *self.agreement.lock() = Some(Agreement {
            own,
            peer,
            since: Instant::now(),
        });
        let terms = self.version.connected(thresholds)?;
        self.limit_backward(&terms.thresholds);
        Some(terms)
    }

    /// Limits backward messages to what fits these thresholds.
    fn limit_backward(&self, thresholds: &Thresholds) {
        let threshold = thresholds.send.min(thresholds.receive);
        self.transport
            .backward_payload
            .store(backward_payload(threshold), Relaxed);
    }

    /// Takes note of a Reply, which may be the one by which both ends agree on a version.
    pub(super) fn replied(&self, xid: Xid, version: u32) {
        if let Some(terms) = self.version.replied(xid, version) {
            self.learn();
            self.limit_backward(&terms.thresholds);
            self.transport.refusal_logged.store(false, Relaxed);
            trace::xprtrdma_version(&self.transport.xprt, terms.version);
        }
    }

    /// Goes on in the version that is tried now: the peer has refused a higher one for a Call that
    /// is gone.
    pub(super) fn settle(&self, xid: Xid) {
        if let Some(terms) = self.version.spoken() {
            self.replied(xid, terms.version);
        }
    }

    /// Records what this connection has shown of the server, for its later connections.
    pub(super) fn learn(&self) {
        if let Some(lesson) = self.version.lesson() {
            self.transport.servers.learn(&self.choice, lesson);
        }
    }

    /// Does so for a connection that ends for `cause`, if that lost its first message. If this end
    /// gave the connection up, the peer has lost none. A refusal was noted when it came.
    pub(super) fn lost_for(&self, cause: Cause) {
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
        // The peer may end the connection as its access to memory of the first Call has failed.
        let is_of_this_end =
            is_of_this_end || cause != Cause::RpcTimeout && self.version.is_abandoned();
        if !is_of_this_end && matches!(self.version.lesson(), Some(Lesson::Lost(_))) {
            self.learn();
        }
    }

    /// What both ends have said, once the connection is made.
    pub(super) fn agreement(&self) -> Option<Agreement> {
        *self.agreement.lock()
    }

    /// The credits that every Call asks for.
    pub(super) fn requested_credits(&self) -> Credits {
        self.first_window.requested()
    }

    /// The credits in force.
    pub(super) fn granted_credits(&self) -> u32 {
        self.window.get().max(1)
    }

    /// Records the grant of a Reply; returns whether the Reply is in a version that this end
    /// speaks. Completions are handled one after the other, so nobody else does so concurrently.
    pub(super) fn grant(&self, reply: &FixedHeader) -> bool {
        let mut credits = self.first_window;
        let window = credits.grant(reply.credits);
        window == self.window.get() || self.change_window(window, reply.xid, reply.version)
    }

    /// Changes the window, as the first Reply always does.
    fn change_window(&self, window: u32, xid: Xid, version: u32) -> bool {
        // Comes first, so that whoever gets a new credit sends in the version that is agreed on.
        self.replied(xid, version);
        if self.version.is_hopeless() {
            return false;
        }
        self.window.set(window);
        self.transport.xprt.set_credits(window);
        true
    }

    /// Expects the connection to be closed, so that flushed work requests are not reported.
    pub(super) fn expect_end(&self) {
        self.monitor.expect_end();
    }

    /// Has the connection closed for this cause.
    pub(super) fn end(&self, cause: Cause) {
        self.monitor.end(cause);
    }

    /// The cookie that a request keeps of its Send: the connection's number, plus that of the chunk
    /// entry, counted from 1. `None` if there can be no such entry.
    pub(super) fn cookie(&self, sent: SentCall) -> Option<u64> {
        let entry = match sent {
            SentCall::Inline => 0,
            SentCall::WithChunks(index) => u32::try_from(index).ok()?.checked_add(1)?,
        };
        Some(self.number | u64::from(entry))
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

    /// How the request with this cookie was sent; `None` if that was not on this connection.
    pub(super) fn sent(&self, cookie: u64) -> Option<SentCall> {
        let entry = cookie.wrapping_sub(self.number);
        match u32::try_from(entry).ok()? {
            0 => Some(SentCall::Inline),
            entry => usize::try_from(entry.wrapping_sub(1))
                .ok()
                .map(SentCall::WithChunks),
        }
    }

    /// Posts the invalidation of an entry's regions, and counts them.
    pub(super) fn invalidate(&self, qp: &QueuePair<Self>, index: usize) -> Invalidation {
        let count = qp.slot(index).map_or(0, |slot| slot.regions().len());
        let posted = qp.invalidate(index);
        if posted == Invalidation::Posted {
            self.transport.stats.local_invalidations.add_len(count);
        }
        posted
    }
}

/// How a Call was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SentCall {
    /// Without chunks.
    Inline,
    /// With the chunks in the entry of this index.
    WithChunks(usize),
}

impl SentCall {
    /// Whether this is the cookie of a Call with chunks, on whatever connection.
    pub(super) fn has_chunks(cookie: u64) -> bool {
        cookie & u64::from(u32::MAX) != 0
    }
}
