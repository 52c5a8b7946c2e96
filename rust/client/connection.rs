// SPDX-License-Identifier: GPL-2.0

//! One connection: what its completions do, and what ends with it.

use super::{
    chunks::{Chunks, Invalidated},
    limits::Limits,
    regions::Regions,
    reply, Client,
};
use crate::{
    proto::{credit::CreditWindow, header::Credits, plan, private_data::Thresholds},
    rdma::{
        Completions, Idle, MrList, QueuePair, ReceivedMessage, Registered, RemoteInvalidation,
        WcStatus,
    },
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLock,
    },
};

/// The context of a queue pair.
#[pin_data]
pub(super) struct Connection {
    pub(super) client: Arc<Client>,
    #[pin]
    pub(super) chunks: Chunks,
    pub(super) regions: Arc<Regions>,
    #[pin]
    credits: SpinLock<CreditWindow>,
    inline_send: Atomic<u32>,
    inline_receive: Atomic<u32>,
    /// Whether the end of the connection was asked for already.
    ending: Atomic<bool>,
}

impl Connection {
    /// The context of a connection of this size.
    pub(super) fn new<'a>(
        client: &'a Arc<Client>,
        regions: &'a Arc<Regions>,
        limits: &'a Limits,
    ) -> impl PinInit<Self, Error> + 'a {
        try_pin_init!(Self {
            client: client.clone(),
            chunks <- Chunks::new(limits.sizes.invalidations),
            regions: regions.clone(),
            credits <- new_spinlock!(
                CreditWindow::new(Credits::new(limits.requests)), "rpcrdma_credits"),
            inline_send: Atomic::new(super::limits::DEFAULT_THRESHOLD),
            inline_receive: Atomic::new(super::limits::DEFAULT_THRESHOLD),
            ending: Atomic::new(false),
        }? Error)
    }

    /// Takes over what both ends have agreed on, before the first Call.
    pub(super) fn agree(&self, thresholds: &Thresholds) {
        self.inline_send.store(thresholds.send, Relaxed);
        self.inline_receive.store(thresholds.receive, Relaxed);
        let stats = &self.client.stats;
        stats.inline_send.set(thresholds.send);
        stats.inline_receive.set(thresholds.receive);
    }

    /// What limits the form of a Call.
    pub(super) fn plan_limits(&self) -> plan::Limits {
        plan::Limits {
            inline_send: self.inline_send.load(Relaxed),
            inline_receive: self.inline_receive.load(Relaxed),
            max_segments: super::limits::MAX_SEGMENTS,
        }
    }

    /// The credits that every Call asks for.
    pub(super) fn requested_credits(&self) -> Credits {
        self.credits.lock().requested()
    }

    /// Takes a grant in.
    pub(super) fn grant(&self, granted: Credits) {
        let mut credits = self.credits.lock();
        let before = credits.window();
        let window = credits.grant(granted);
        drop(credits);
        if window != before {
            self.client.xprt.set_credits(window);
            self.client.stats.granted_credits.set(window);
        }
    }

    /// Has the connection closed. Once is enough.
    pub(super) fn end(&self) {
        if !self.ending.xchg(true, Relaxed) {
            self.client.xprt.force_disconnect();
        }
    }

    /// Waits until the peer has lost access to the memory of the Call `xid`, whose task is gone.
    /// May sleep.
    pub(super) fn fence(&self, qp: &QueuePair<Self>, mark: u32, xid: u32) {
        let Some(index) = index_of(mark) else {
            return;
        };
        if let Some(offer) = self.chunks.take(index, xid) {
            self.client
                .stats
                .local_invalidations
                .add_len(offer.regions.len());
            if let Err(regions) = qp.invalidate(index, offer.regions) {
                self.chunks.stick(index, regions);
                self.end();
            }
        }
        self.chunks.wait(index, xid);
    }

    /// Takes all memory from the peer's reach. The queue pair is drained. May sleep.
    pub(super) fn revoke(&self) {
        self.regions.close();
        self.chunks.revoke();
    }
}

/// The number that a request keeps for its chunk entry.
pub(super) fn mark_of(index: usize) -> u32 {
    u32::try_from(index).map_or(0, |index| index.wrapping_add(1))
}

/// The chunk entry that a request's number means.
pub(super) fn index_of(mark: u32) -> Option<usize> {
    usize::try_from(mark.checked_sub(1)?).ok()
}

impl Completions for Connection {
    fn received(
        &self,
        qp: &QueuePair<Self>,
        message: ReceivedMessage,
        invalidated: Option<RemoteInvalidation>,
    ) {
        // Any message shows that the next connect need not be delayed.
        self.client.xprt.peer_is_alive();
        reply::received(self, qp, message, invalidated);
    }

    fn send_space(&self) {
        self.client.xprt.write_space();
    }

    fn invalidated(
        &self,
        qp: &QueuePair<Self>,
        index: usize,
        outcome: Result<MrList<Idle>, MrList<Registered>>,
    ) {
        match outcome {
            Ok(idle) => {
                self.regions.put(idle);
                if let Invalidated::Settle(settlement) = self.chunks.invalidated(index) {
                    reply::settle(self, qp, settlement);
                }
                self.client.xprt.write_space();
            }
            Err(regions) => {
                self.chunks.stick(index, regions);
                self.end();
            }
        }
    }

    fn failed(&self, status: WcStatus) {
        if !status.is_flush() {
            self.client.stats.failed_requests.increment();
        }
        self.end();
    }
}
