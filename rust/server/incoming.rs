// SPDX-License-Identifier: GPL-2.0

//! The Calls of one connection until a thread takes them, which of them a thread may take, and the
//! grants that limit them.
//!
//! XPT_DATA is set when a thread may find a Call. A thread that may not start it
//! ([`SvcxprtRdma::try_take`]) clears the flag, and does not wait; [`SvcxprtRdma::wake`] sets it
//! again when a limit that held the Call back changes.

use super::{
    recvfrom::CallInfo,
    sizes::{BACKWARD_CREDITS, FIRST_GRANT, SPARE_RECEIVES},
    transport::{Qp, RecvBox, SvcxprtRdma},
    v2::VersionTwo,
};
use crate::{
    error::Cause,
    proto::{
        responder::grants::Grants,
        wire::{header::Credits, private_data::Thresholds},
    },
    rdma::{List, RecvCtxt, SqError, RECV_BATCH},
    sunrpc::{jiffies, jiffies_to_ms},
};
use kernel::{
    alloc::Flags,
    prelude::*,
    sync::{atomic::Relaxed, SpinLockGuard},
};

/// What the completions and the threads of one connection share.
pub(super) struct Incoming {
    /// Whether the handshake is over, as the connection manager or a queued message says.
    pub(super) is_established: bool,
    /// Calls whose RDMA Reads are done. They go first: their pages are limited.
    reads_done: List<RecvCtxt<SvcxprtRdma>>,
    /// Other Calls, and messages to be refused.
    ready: List<RecvCtxt<SvcxprtRdma>>,
    pub(super) grants: Grants,
    /// When each Call that is outstanding arrived, in jiffies, the oldest first.
    arrivals: KVVec<usize>,
    pub(super) v2: VersionTwo,
    /// Pages of RDMA Reads, from when a thread takes the Call to post them until a thread takes the
    /// Call to execute it.
    pub(super) pages: u32,
}

impl Incoming {
    /// The state of a new connection, on which up to `credits` Calls are served at once.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(credits: u32, thresholds: Thresholds) -> Result<Self> {
        let calls = usize::try_from(credits.saturating_add(SPARE_RECEIVES))?;
        Ok(Self {
            is_established: false,
            reads_done: List::new(),
            ready: List::new(),
            grants: Grants::new(FIRST_GRANT.min(credits), credits),
            arrivals: KVVec::with_capacity(calls, GFP_KERNEL)?,
            v2: VersionTwo::new(thresholds),
            pages: 0,
        })
    }

    /// The Call to take next.
    fn head(&self) -> Option<&CallInfo> {
        let head = self.reads_done.first().or_else(|| self.ready.first());
        head.map(RecvCtxt::data)
    }

    /// For how many milliseconds the oldest Call has been outstanding.
    pub(super) fn oldest_call_ms(&self) -> usize {
        let oldest = self.arrivals.first();
        oldest.map_or(0, |&at| jiffies_to_ms(jiffies().wrapping_sub(at)))
    }

    /// Receives to be posted if `limit` Calls are served at once: those for Calls, and for Replies
    /// to backward Calls.
    fn target(&self, limit: u32) -> u32 {
        let calls = self.grants.receives(limit, SPARE_RECEIVES);
        calls.saturating_add(BACKWARD_CREDITS)
    }
}

impl SvcxprtRdma {
    /// Sets XPT_DATA and, once the lock is released, wakes a thread, if there is a Call. Waking one
    /// takes longer than all that is done under the lock, which the thread takes next.
    pub(super) fn wake(&self, incoming: SpinLockGuard<'_, Incoming>) {
        if incoming.head().is_some() && !self.svc.is_closing() {
            self.svc.set_data();
            drop(incoming);
            self.svc.enqueue();
        }
    }

    /// Takes the next Call, if a thread may take it now, and clears XPT_DATA if there is none.
    /// Called by the thread that has marked the transport as busy. XPT_DATA may be clear: a thread
    /// also comes for a deferred Call, which another one may have taken.
    pub(super) fn take(&self, qp: &Qp) -> Option<RecvBox> {
        let mut incoming = self.incoming.lock();
        let ctxt = self.try_take(&mut incoming, qp);
        if ctxt.is_none() || incoming.head().is_none() {
            self.svc.clear_data();
        }
        ctxt
    }

    /// Takes the first Call, if its pages and those of its Reply are within the limits, no chain is
    /// pending, and there are the MRs that it needs.
    fn try_take(&self, incoming: &mut Incoming, qp: &Qp) -> Option<RecvBox> {
        let head = incoming.head()?;
        let (pages, limit) = (head.pages_to_read, self.listener.page_limit);
        if pages > 0 && incoming.pages > 0 {
            // What lowers this calls `wake`: Reads that are done.
            let sum = incoming.pages.saturating_add(pages);
            if sum > self.max_read_pages || self.listener.read_pages.load(Relaxed) >= limit {
                return None;
            }
        }
        let (mrs, offers) = (head.needed_mrs(qp), head.offers_memory());
        let may_reply = || {
            !offers
                || self.listener.reply_pages.load(Relaxed) < limit
                || self.reply_load.load(Relaxed) == 0
        };
        if !qp.reserve(mrs, may_reply) {
            return None;
        }
        let mut ctxt = match incoming.reads_done.pop_front() {
            Some(ctxt) => {
                self.put_read_pages(incoming, ctxt.data().read_pages());
                ctxt
            }
            None => incoming.ready.pop_front()?,
        };
        incoming.pages = incoming.pages.saturating_add(pages);
        self.listener.read_pages.add(pages, Relaxed);
        ctxt.with_data().1.mrs = mrs;
        self.reply_load.add(offers.into(), Relaxed);
        Some(ctxt)
    }

    /// Subtracts `pages` from both counts of the pages of RDMA Reads, at most what
    /// [`Self::drop_ready`] has left.
    fn put_read_pages(&self, incoming: &mut Incoming, pages: u32) {
        let pages = pages.min(incoming.pages);
        incoming.pages -= pages;
        self.listener.read_pages.fetch_sub(pages, Relaxed);
    }

    /// Counts a message that asks for `requested` credits, and queues it. `count` is called under
    /// the lock.
    pub(super) fn queue(
        &self,
        qp: &Qp,
        mut ctxt: RecvBox,
        requested: Credits,
        count: impl FnOnce(&mut Incoming),
    ) {
        let mut incoming = self.incoming.lock();
        if self.svc.is_closing() {
            // `detach` may have dropped the others.
            drop(incoming);
            return qp.put_recv(ctxt);
        }
        // The connection manager waits for one datagram, which may be lost, so a message counts as
        // well. The CM is not told (rdma_notify()): if the peer disconnects before its worker has
        // heard of that, it repeats its reply for a minute, and rdma_destroy_id() waits for it.
        incoming.is_established = true;
        count(&mut incoming);
        let arrival = jiffies();
        ctxt.with_data().1.arrival = arrival;
        let _ = incoming.arrivals.push_within_capacity(arrival);
        if !incoming.grants.call(requested) {
            self.stats.counters.excess_calls.increment();
        }
        let is_first = incoming.head().is_none();
        incoming.ready.push_back(ctxt);
        // Otherwise XPT_DATA is set, or will be when a limit changes.
        if is_first {
            self.wake(incoming);
        }
    }

    /// Queues a Call whose RDMA Reads are done.
    pub(super) fn requeue(&self, qp: &Qp, ctxt: RecvBox) {
        let mut incoming = self.incoming.lock();
        if self.svc.is_closing() {
            drop(incoming);
            return qp.put_recv(ctxt);
        }
        // If the first of `ready` is held back no thread may be awake, and this one goes before.
        let is_first = incoming.reads_done.first().is_none();
        incoming.reads_done.push_back(ctxt);
        if is_first {
            self.wake(incoming);
        }
    }

    /// Drops all Calls that no thread has taken, and counts the pages of RDMA Reads as the
    /// listener's again: the closed transport may live on for long.
    pub(super) fn drop_ready(&self, qp: &Qp) {
        let mut incoming = self.incoming.lock();
        self.put_read_pages(&mut incoming, u32::MAX);
        let (reads_done, ready) = (incoming.reads_done.take(), incoming.ready.take());
        drop(incoming);
        for mut list in [reads_done, ready] {
            while let Some(ctxt) = list.pop_front() {
                qp.put_recv(ctxt);
            }
        }
    }

    /// A Call that came at `arrival`, and may have offered memory for its Reply, is done.
    pub(super) fn end_call(&self, arrival: usize, is_offering: bool) {
        let mut incoming = self.incoming.lock();
        if let Some(at) = incoming.arrivals.iter().position(|&at| at == arrival) {
            let _ = incoming.arrivals.remove(at);
        }
        if is_offering {
            self.reply_load.fetch_sub(1, Relaxed);
            self.wake(incoming);
        }
    }

    /// A Call gets no Reply, for which Receives would be posted: posts them.
    pub(super) fn drop_call(&self, qp: &Qp) {
        let mut incoming = self.incoming.lock();
        incoming.grants.drop_call();
        let target = incoming.target(incoming.grants.limit());
        drop(incoming);
        if !self.svc.is_closing() && self.post_promised(qp, target).is_err() {
            self.fail(Cause::LocalResources);
        }
    }

    /// The credit word of a Reply that is about to be sent, once the Receives that it promises are
    /// posted.
    ///
    /// # Errors
    ///
    /// `ENOMEM` or `EPIPE`: the connection ends.
    pub(super) fn grant(&self, qp: &Qp) -> Result<Credits> {
        let mut incoming = self.incoming.lock();
        let wanted = incoming.grants.wanted();
        if wanted > incoming.grants.limit() {
            let target = incoming.target(wanted);
            drop(incoming);
            let posted = self.post_recvs(qp, target, 1, GFP_KERNEL);
            incoming = self.incoming.lock();
            if posted.is_ok() {
                incoming.grants.raise(wanted);
            }
        }
        let granted = incoming.grants.reply();
        let target = incoming.target(incoming.grants.limit());
        drop(incoming);
        self.post_promised(qp, target)?;
        Ok(granted)
    }

    /// Posts up to `target` Receives. Without memory for these, waits until each Call that the
    /// requester may send finds one: other threads give back those of Calls that they have
    /// answered.
    ///
    /// # Errors
    ///
    /// `ENOMEM` or `EPIPE`: the connection ends.
    fn post_promised(&self, qp: &Qp, target: u32) -> Result {
        let has_promised = || {
            // A Receive is no longer counted as posted before its Call is counted.
            let incoming = self.incoming.lock();
            let posted = qp.receives().0.saturating_sub(BACKWARD_CREDITS);
            let calls = incoming.grants.outstanding().saturating_add(posted.into());
            calls >= incoming.grants.limit().into()
        };
        self.wait_for_memory(
            || match self.post_recvs(qp, target, RECV_BATCH, GFP_KERNEL) {
                Err(ENOMEM) if has_promised() => Ok(()),
                posted => posted,
            },
        )
    }

    /// Posts Receives for all that may arrive.
    ///
    /// # Errors
    ///
    /// As [`Self::post_recvs`].
    pub(super) fn post_all_recvs(&self, qp: &Qp, flags: Flags) -> Result {
        let incoming = self.incoming.lock();
        let target = incoming.target(incoming.grants.limit());
        drop(incoming);
        self.post_recvs(qp, target, 1, flags)
    }

    /// Posts Receives, if `batch` of them are missing.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory for all, `EPIPE` if the connection ends.
    fn post_recvs(&self, qp: &Qp, target: u32, batch: u32, flags: Flags) -> Result {
        let posted = qp.post_recvs(target, batch, flags);
        if posted == Err(SqError::NoMem) {
            self.listener.starved_grants.increment();
        }
        Ok(posted?)
    }
}
