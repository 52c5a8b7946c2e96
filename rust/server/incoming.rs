// SPDX-License-Identifier: GPL-2.0

//! The Calls of one connection until a thread takes them, which of them a thread may take, and the
//! grants that limit them.
//!
//! XPT_DATA is set only while a thread can do something with the first Call: no thread waits for
//! the peer, nor for another thread. Whatever changes the decision ([`SvcxprtRdma::judge`]) calls
//! [`SvcxprtRdma::wake`].

use super::{
    recvfrom::CallInfo,
    sizes::{BACKWARD_CREDITS, FIRST_GRANT, SPARE_RECEIVES},
    transport::{Qp, RecvCtxt, SvcxprtRdma},
    v2::VersionTwo,
};
use crate::{
    error::Cause,
    proto::{
        responder::grants::{Conduct, Grants},
        wire::{header::Credits, private_data::Thresholds},
    },
    rdma::{CqContext, List, RecvCtxt as Receive, SqError, RECV_BATCH},
    sunrpc::{jiffies, PageVec},
};
use kernel::{
    alloc::Flags,
    prelude::*,
    sync::atomic::Relaxed,
    time::{delay::fsleep, msecs_to_jiffies, Delta},
};

/// How long a thread waits before it looks again whether there is memory.
const MEMORY_PAUSE: Delta = Delta::from_millis(10);

/// The most pages that are kept for the next RDMA Reads: those of 1 MiB that begins within a page.
const SPARE_PAGES: usize = 257;

/// What the completions and the threads of one connection share.
pub(super) struct Incoming {
    /// Whether the handshake is over: messages may arrive earlier, but wait for that.
    pub(super) is_established: bool,
    /// Calls whose RDMA Reads are done. They go first: their pages are limited.
    read: List<Receive<SvcxprtRdma>>,
    /// Other Calls, and messages to be refused.
    ready: List<Receive<SvcxprtRdma>>,
    pub(super) grants: Grants,
    /// When a Call was answered or dropped last, or arrived while no other was outstanding, in
    /// jiffies.
    since: usize,
    pub(super) v2: VersionTwo,
    /// Pages of RDMA Reads, from when a thread takes the Call to post them until a thread takes the
    /// Call to execute it.
    pub(super) pages: u32,
    /// Pages that threads gave in exchange.
    pub(super) spare: PageVec,
    /// Calls with threads, or deferred, that offer memory for the Reply.
    offering: u32,
}

impl Incoming {
    /// The state of a new connection, on which up to `credits` Calls are served at once.
    pub(super) fn new(credits: u32, thresholds: Thresholds) -> Self {
        Self {
            is_established: false,
            read: List::new(),
            ready: List::new(),
            grants: Grants::new(FIRST_GRANT.min(credits), credits),
            since: jiffies(),
            v2: VersionTwo::new(thresholds),
            pages: 0,
            spare: PageVec::new(),
            offering: 0,
        }
    }

    /// The Call that is to be taken next.
    fn head(&self) -> Option<&CallInfo> {
        let head = self.read.first().or_else(|| self.ready.first());
        head.map(Receive::data)
    }

    /// For how many milliseconds the oldest Call has been outstanding, at least.
    pub(super) fn oldest_call_ms(&self) -> usize {
        match self.grants.outstanding() {
            0 => 0,
            _ => {
                jiffies().wrapping_sub(self.since).saturating_mul(1000)
                    / msecs_to_jiffies(1000).max(1)
            }
        }
    }

    /// Receives to be posted if `limit` Calls are served at once: those for Calls, and for Replies
    /// to backward Calls.
    fn target(&self, limit: u32) -> u32 {
        let calls = self.grants.receives(limit, SPARE_RECEIVES);
        calls.saturating_add(BACKWARD_CREDITS)
    }
}

impl SvcxprtRdma {
    /// Whether a thread may take `head` now. What `mrs` counts is reserved if so. If not,
    /// [`Self::wake`] is called when the decision may have changed.
    fn judge(&self, incoming: &Incoming, qp: &Qp, head: &CallInfo, mrs: u32) -> bool {
        let pages = head.pages_to_read();
        let limit = self.listener.page_limit;
        if pages > 0 && incoming.pages > 0 {
            // A thread that takes a Call whose Reads are done lowers this.
            let sum = incoming.pages.saturating_add(pages);
            if sum > self.param.max_read_pages || self.listener.read_pages.get() >= limit {
                return false;
            }
        }
        let offers = head.offers_memory();
        qp.reserve(mrs, || {
            !offers
                || self.listener.reply_pages.get() < limit
                || (incoming.offering == 0 && self.reply_pages.load(Relaxed) == 0)
        })
    }

    /// Sets XPT_DATA and wakes a thread, if one may take the first Call. All of this under the
    /// lock: `detach` takes it before the service can end, whose pools svc_xprt_enqueue() uses.
    pub(super) fn wake(&self, incoming: &Incoming, qp: &Qp) {
        // MRs are left to the thread: these are short on few fabrics.
        let can_take = |head: &_| self.judge(incoming, qp, head, 0);
        if incoming.head().is_some_and(can_take) {
            self.wake_any(incoming);
        }
    }

    /// Takes the next Call, if a thread may, and clears XPT_DATA if no thread may take the one
    /// after it. Called by the thread that has marked the transport as busy.
    pub(super) fn take(&self, qp: &Qp) -> Option<RecvCtxt> {
        let mut incoming = self.incoming.lock();
        let taken = self.take_head(&mut incoming, qp);
        let can_take = |head: &_| self.judge(&incoming, qp, head, 0);
        // If this thread could not take the first one, `sq_available` wakes another when one can.
        if taken.is_none() || !incoming.head().is_some_and(can_take) {
            self.svc.clear_data();
        }
        taken
    }

    fn take_head(&self, incoming: &mut Incoming, qp: &Qp) -> Option<RecvCtxt> {
        let head = incoming.head().filter(|_| incoming.is_established)?;
        let mrs = head.needed_mrs(qp);
        if !self.judge(incoming, qp, head, mrs) {
            return None;
        }
        let was_read = incoming.read.pop_front();
        if let Some(ctxt) = &was_read {
            self.put_read_pages(incoming, ctxt.data().read_pages());
        }
        let mut ctxt = was_read.or_else(|| incoming.ready.pop_front())?;
        let info = ctxt.with_data().1;
        info.mrs = mrs;
        let pages = info.pages_to_read();
        incoming.pages = incoming.pages.saturating_add(pages);
        self.listener.read_pages.add(pages);
        if info.offers_memory() {
            info.is_offering = true;
            incoming.offering = incoming.offering.saturating_add(1);
        }
        Some(ctxt)
    }

    /// Counts `pages` pages as no longer those of RDMA Reads, unless [`Self::drop_ready`] has.
    fn put_read_pages(&self, incoming: &mut Incoming, pages: u32) {
        let pages = pages.min(incoming.pages);
        incoming.pages -= pages;
        self.listener.read_pages.subtract(pages);
    }

    /// The RDMA Reads of a Call, of `pages` pages, will not be posted.
    pub(super) fn drop_reads(&self, qp: &Qp, pages: u32) {
        let mut incoming = self.incoming.lock();
        self.put_read_pages(&mut incoming, pages);
        self.wake(&incoming, qp);
    }

    /// [`Self::wake`] without the decision: if no thread may take the first Call, one comes in
    /// vain.
    pub(super) fn wake_any(&self, incoming: &Incoming) {
        let has_call = incoming.is_established && incoming.head().is_some();
        if has_call && !self.svc.is_closing() {
            self.svc.set_data();
            self.svc.enqueue();
        }
    }

    /// The handshake is over. Called by the connection manager.
    pub(super) fn established(&self) {
        let mut incoming = self.incoming.lock();
        incoming.is_established = true;
        self.wake_any(&incoming);
    }

    /// Counts a message that asks for `requested` credits, and queues it. `count` is called under
    /// the lock.
    pub(super) fn queue(
        &self,
        cx: &mut CqContext<'_, Self>,
        ctxt: RecvCtxt,
        requested: Credits,
        count: impl FnOnce(&mut Incoming),
    ) {
        let mut incoming = self.incoming.lock();
        if self.svc.is_closing() {
            // `detach` may have dropped the others.
            drop(incoming);
            return cx.qp().put_recv(ctxt);
        }
        count(&mut incoming);
        if incoming.grants.outstanding() == 0 {
            incoming.since = jiffies();
        }
        if incoming.grants.call(requested) == Conduct::Excess {
            self.stats.counters.excess_calls.increment();
        }
        incoming.ready.push_back(ctxt);
        self.wake(&incoming, cx.qp());
        let is_established = incoming.is_established;
        drop(incoming);
        if !is_established {
            // The datagram that the connection manager waits for may be lost.
            cx.notify_established();
        }
    }

    /// Queues a Call whose RDMA Reads are done.
    pub(super) fn queue_read(&self, qp: &Qp, ctxt: RecvCtxt) {
        let mut incoming = self.incoming.lock();
        if self.svc.is_closing() {
            drop(incoming);
            return qp.put_recv(ctxt);
        }
        incoming.read.push_back(ctxt);
        self.wake(&incoming, qp);
    }

    /// Drops all Calls that no thread has taken. The transport is closed. Its memory may be needed
    /// for long, so the listener's other connections get the pages of RDMA Reads.
    pub(super) fn drop_ready(&self, qp: &Qp) {
        let mut incoming = self.incoming.lock();
        let pages = incoming.pages;
        self.put_read_pages(&mut incoming, pages);
        let (read, ready) = (incoming.read.take(), incoming.ready.take());
        let spare = core::mem::take(&mut incoming.spare);
        drop(incoming);
        drop(spare);
        for mut list in [read, ready] {
            while let Some(ctxt) = list.pop_front() {
                qp.put_recv(ctxt);
            }
        }
    }

    /// Keeps pages that a thread has given in exchange.
    pub(super) fn put_pages(&self, mut pages: PageVec) {
        let mut incoming = self.incoming.lock();
        if self.svc.is_closing() || pages.len() > SPARE_PAGES {
            drop(incoming);
            return;
        }
        if incoming.spare.len() == 0 {
            core::mem::swap(&mut incoming.spare, &mut pages);
        } else {
            incoming.spare.take_from(&mut pages, SPARE_PAGES);
        }
        drop(incoming);
        drop(pages);
    }

    /// `count` pages for RDMA Reads: spare ones, and new ones.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the connection ends while there is no memory.
    pub(super) fn read_pages(&self, count: u32) -> Result<PageVec> {
        let count = usize::try_from(count)?;
        let mut pages = PageVec::new();
        self.wait_for_memory(|| pages.reserve(count, GFP_KERNEL))?;
        pages.take_from(&mut self.incoming.lock().spare, count);
        self.wait_for_memory(|| pages.fill(count, GFP_KERNEL))?;
        Ok(pages)
    }

    /// Calls `make` until it does not fail for lack of memory, or the connection ends. May sleep.
    pub(super) fn wait_for_memory<T>(&self, mut make: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match make() {
                Err(ENOMEM) if !self.svc.is_closing() => fsleep(MEMORY_PAUSE),
                made => return made,
            }
        }
    }

    /// A Call that was taken is done: it gets no Reply if `is_dropped`, and no longer offers memory
    /// if it did. Posts Receives if it gets no Reply.
    pub(super) fn end_call(&self, qp: &Qp, is_dropped: bool, was_offering: bool) {
        let mut incoming = self.incoming.lock();
        if was_offering {
            incoming.offering = incoming.offering.saturating_sub(1);
            self.wake(&incoming, qp);
        }
        if !is_dropped {
            return;
        }
        incoming.grants.drop_call();
        incoming.since = jiffies();
        let target = incoming.target(incoming.grants.limit());
        let outstanding = incoming.grants.outstanding();
        drop(incoming);
        // If no Reply is to come, no thread posts any later.
        if self.post_recvs(qp, target, RECV_BATCH, GFP_KERNEL) == Err(ENOMEM)
            && qp.receives().0 <= BACKWARD_CREDITS
            && outstanding == 0
        {
            self.force_close(Cause::LocalResources);
        }
    }

    /// The credit word of a Reply that is about to be sent, once the Receives that it promises are
    /// posted. Without memory for these, waits until there is some: other threads give back the
    /// Receives of the Calls that they have answered.
    ///
    /// # Errors
    ///
    /// `ENOMEM` or `EPIPE`: the connection ends.
    pub(super) fn grant(&self, qp: &Qp) -> Result<Credits> {
        let incoming = self.incoming.lock();
        let wanted = incoming.grants.wanted();
        if wanted > incoming.grants.limit() {
            let target = incoming.target(wanted);
            drop(incoming);
            if self.post_recvs(qp, target, 1, GFP_KERNEL).is_ok() {
                self.incoming.lock().grants.raise(wanted);
            }
        } else {
            drop(incoming);
        }
        let mut incoming = self.incoming.lock();
        let granted = incoming.grants.reply();
        incoming.since = jiffies();
        let target = incoming.target(incoming.grants.limit());
        drop(incoming);
        self.wait_for_memory(
            || match self.post_recvs(qp, target, RECV_BATCH, GFP_KERNEL) {
                Err(ENOMEM) if self.has_promised(qp) => Ok(()),
                posted => posted,
            },
        )?;
        Ok(granted)
    }

    /// Whether each Call that the requester may send finds a Receive.
    fn has_promised(&self, qp: &Qp) -> bool {
        // A Receive is no longer counted as posted before its Call is counted.
        let incoming = self.incoming.lock();
        let posted = qp.receives().0.saturating_sub(BACKWARD_CREDITS);
        let calls = incoming.grants.outstanding().saturating_add(posted.into());
        calls >= incoming.grants.limit().into()
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
        qp.post_recvs(target, batch, flags)
            .map_err(|error| match error {
                SqError::NoMem => {
                    self.listener.starved(&self.param.peer);
                    ENOMEM
                }
                _ => EPIPE,
            })?;
        Ok(())
    }
}
