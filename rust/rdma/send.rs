// SPDX-License-Identifier: GPL-2.0

//! The send queue of a queue pair: its contexts, its entries, and the chains that wait for entries.
//!
//! A chain is a list of work requests of which the last is a Send or an RDMA Read. Each chain has a
//! context. On a server the last request of each chain is signalled. On a client one Send in
//! [`MAX_UNSIGNALED`] is, and its completion also retires the contexts that were posted unsignalled
//! before it: they hang on the context of the signalled Send, from the time that it is posted. A
//! completion retires nothing else: siw completes RDMA Reads later than Sends that were posted
//! after them.

use super::{
    cq::{Complete, CqContext, WcStatus},
    list::List,
    mr_slots::SlotGuard,
    qp::{QpFailure, QpUser, QueuePair},
    send_ctxt::{SendBox, SendCtxt},
    watchdog::Watchdog,
    Pd,
};
use crate::{
    bindings::{self, PageVec},
    trace,
};
use core::{
    mem::{offset_of, ManuallyDrop},
    ptr::NonNull,
};
use kernel::{
    alloc::Flags,
    error::to_result,
    prelude::*,
    sync::{atomic::Relaxed, Arc, SpinLockGuard},
};

/// One Send in as many is signalled on a client.
pub(crate) const MAX_UNSIGNALED: u32 = 16;

/// Idle contexts that are kept on a server.
const KEPT_IDLE: u32 = 16;

/// Why a chain was not handed over, or why there is no context for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqError {
    /// A client has no idle context. [`QpUser::sq_available`] will be called.
    Full,
    /// The chain has more work requests than the send queue has entries.
    TooMany,
    /// There is no memory.
    NoMem,
    /// The connection is ending.
    Closed,
}

impl From<SqError> for Error {
    fn from(error: SqError) -> Self {
        match error {
            SqError::NoMem => ENOMEM,
            SqError::TooMany => EMSGSIZE,
            SqError::Full | SqError::Closed => EPIPE,
        }
    }
}

/// Numbers of a queue pair at one time.
pub(crate) struct QpView {
    /// Receives that are posted, and all.
    pub(crate) recvs_posted: u32,
    pub(crate) recvs: u32,
    /// Send contexts that are not idle, and all.
    pub(crate) sends_used: u32,
    pub(crate) sends: u32,
    /// Entries of the send queue in use, the most that ever were, and all. Not counted on a client.
    pub(crate) entries_used: u32,
    pub(crate) entries_most: u32,
    pub(crate) entries: u32,
    /// Chains that wait for entries.
    pub(crate) pending: u32,
}

/// The state of a send queue.
///
/// # Invariants
///
/// The entries of the contexts on `posted` and `unsignalled` are not in `free`. A context on one of
/// these lists, or on `covers` of a context there, may be used by the device, and is not touched by
/// anybody but its completion handler until it has completed, or until the queue pair is destroyed.
/// One on `pending` is unknown to the device.
///
/// `is_open` goes from true to false once. Nothing is posted while it is false.
pub(super) struct SendQueue<U: QpUser> {
    pub(super) is_open: bool,
    /// Entries that are free, and the lowest number that ever were.
    free: u32,
    least: u32,
    /// MRs of the RDMA core's pool that are not reserved.
    free_mrs: u32,
    pub(super) idle: List<SendCtxt<U>>,
    /// Contexts that exist.
    made: u32,
    /// Contexts that belong to a [`SendBox`]. While there are any, the hardware objects exist:
    /// [`super::QpOwner`] waits when it is dropped.
    pub(super) lent: u32,
    /// Posted unsignalled, and on no other context's `covers` yet.
    pub(super) unsignalled: List<SendCtxt<U>>,
    pub(super) posted: List<SendCtxt<U>>,
    /// Handed over, but there were not enough free entries, in order.
    pub(super) pending: List<SendCtxt<U>>,
    pub(super) watchdog: Watchdog,
    /// Whether the watchdog is queued.
    pub(super) is_watched: bool,
    /// Whether [`QpUser::sq_available`] is to be called.
    wants_sq: bool,
}

impl<U: QpUser> SendQueue<U> {
    /// An open queue with `entries` free entries, `mrs` MRs of the RDMA core's pool, and no
    /// contexts.
    pub(super) const fn new(entries: u32, mrs: u32) -> Self {
        Self {
            is_open: true,
            free: entries,
            least: entries,
            free_mrs: mrs,
            idle: List::new(),
            made: 0,
            lent: 0,
            unsignalled: List::new(),
            posted: List::new(),
            pending: List::new(),
            watchdog: Watchdog::new(),
            is_watched: false,
            wants_sq: false,
        }
    }

    /// Puts an unused context on `idle`, or returns it to be freed after unlocking.
    fn put_idle(&mut self, ctxt: KBox<SendCtxt<U>>) -> Option<KBox<SendCtxt<U>>> {
        if !U::IS_CLIENT && self.idle.len() >= KEPT_IDLE {
            self.made = self.made.saturating_sub(1);
            return Some(ctxt);
        }
        self.idle.push_front(ctxt);
        None
    }

    /// Whether there are enough free entries for the first pending chain.
    fn pending_fits(&self) -> bool {
        let first = self.pending.first();
        self.is_open && first.is_some_and(|ctxt| ctxt.entries <= self.free)
    }
}

impl<U: QpUser> QueuePair<U> {
    /// A context for one chain. May sleep if `flags` allow it.
    ///
    /// # Errors
    ///
    /// [`SqError::Full`] on a client only; then [`QpUser::sq_full`] was called under the lock, and
    /// [`QpUser::sq_available`] will be. [`SqError::NoMem`], [`SqError::Closed`].
    pub(crate) fn get_send_ctxt(&self, flags: Flags) -> Result<SendBox<'_, U>, SqError> {
        let mut sq = self.send.lock();
        if !sq.is_open {
            return Err(SqError::Closed);
        }
        // INVARIANT: `lent` counts the context.
        sq.lent = sq.lent.saturating_add(1);
        if let Some(ctxt) = sq.idle.pop_front() {
            return Ok(self.lend(ctxt));
        }
        if sq.made < self.caps.sends {
            sq.made = sq.made.saturating_add(1);
            drop(sq);
            // SAFETY: `lent` is not 0.
            let pd = unsafe { &self.hw().pd };
            if let Ok(ctxt) = SendCtxt::new(pd, self.caps.send_size, flags) {
                return Ok(self.lend(ctxt));
            }
            sq = self.send.lock();
            sq.made = sq.made.saturating_sub(1);
            // A completion may have returned contexts meanwhile, the last one to do so.
            if let Some(ctxt) = sq.idle.pop_front() {
                return Ok(self.lend(ctxt));
            }
        }
        self.unlend(&mut sq);
        if !U::IS_CLIENT {
            return Err(SqError::NoMem);
        }
        sq.wants_sq = true;
        self.user.sq_full();
        Err(SqError::Full)
    }

    /// A context that `lent` counts.
    fn lend(&self, ctxt: KBox<SendCtxt<U>>) -> SendBox<'_, U> {
        SendBox {
            qp: self,
            ctxt: ManuallyDrop::new(ctxt),
        }
    }

    /// Counts a context that no longer belongs to a [`SendBox`].
    fn unlend(&self, sq: &mut SendQueue<U>) {
        sq.lent = sq.lent.saturating_sub(1);
        if !sq.is_open {
            self.returned.notify_all();
        }
    }

    /// Makes the first `count` contexts, so that Sends do not depend on memory. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn make_sends(&self, pd: &Arc<Pd>, count: u32) -> Result {
        for _ in 0..count {
            let ctxt = SendCtxt::new(pd, self.caps.send_size, GFP_KERNEL)?;
            let mut sq = self.send.lock();
            sq.made = sq.made.saturating_add(1);
            sq.idle.push_front(ctxt);
        }
        Ok(())
    }

    /// Reserves `mrs` MRs of the RDMA core's pool for a Call, if no chain is pending and
    /// `is_allowed` returns true, which is called under the lock of the send queue. Otherwise
    /// [`QpUser::sq_available`] is called when this may have changed: when a chain has completed
    /// and none is pending.
    pub(crate) fn reserve(&self, mrs: u32, is_allowed: impl Fn() -> bool) -> bool {
        if mrs == 0 && self.pending() == 0 && is_allowed() {
            return true;
        }
        let mut sq = self.send.lock();
        let free = sq.free_mrs.checked_sub(mrs);
        let free = free.filter(|_| sq.pending.is_empty() && is_allowed());
        match free {
            Some(free) => sq.free_mrs = free,
            None => sq.wants_sq = true,
        }
        free.is_some()
    }

    /// Gives back reserved MRs that no chain has used.
    pub(crate) fn unreserve(&self, mrs: u32) {
        if mrs == 0 {
            return;
        }
        let mut sq = self.send.lock();
        sq.free_mrs = sq.free_mrs.saturating_add(mrs);
        self.unlock(sq, None);
    }

    /// Unlocks the queue, frees a surplus context, and tells the user if somebody waits for room
    /// that there now is.
    fn unlock(&self, mut sq: SpinLockGuard<'_, SendQueue<U>>, surplus: Option<KBox<SendCtxt<U>>>) {
        let has_room = sq.is_open && sq.pending.is_empty();
        let room = has_room && core::mem::replace(&mut sq.wants_sq, false);
        drop(sq);
        drop(surplus);
        if room {
            self.user.sq_available();
        }
    }

    /// How many chains are pending.
    pub(crate) fn pending(&self) -> u32 {
        self.n_pending.load(Relaxed)
    }

    /// What debugfs shows of the queues.
    pub(crate) fn view(&self) -> QpView {
        let (recvs_posted, recvs) = self.receives();
        let sq = self.send.lock();
        QpView {
            recvs_posted,
            recvs,
            sends_used: sq.made.saturating_sub(sq.idle.len()),
            sends: sq.made,
            entries_used: self.sq_entries.saturating_sub(sq.free),
            entries_most: self.sq_entries.saturating_sub(sq.least),
            entries: self.sq_entries,
            pending: sq.pending.len(),
        }
    }

    /// Posts nothing on the send queue any more. Does not sleep.
    pub(crate) fn close(&self) {
        self.send.lock().is_open = false;
    }

    /// Frees the chains that are pending, if the queue is closed.
    pub(crate) fn drop_pending(&self) {
        loop {
            let mut sq = self.send.lock();
            if sq.is_open {
                return;
            }
            let Some(ctxt) = self.pop_pending(&mut sq) else {
                return;
            };
            // INVARIANT: `lent` counts the context. The hardware objects exist: their owner drops
            // what is pending before it destroys them.
            sq.lent = sq.lent.saturating_add(1);
            drop(sq);
            drop(self.lend(ctxt));
        }
    }

    /// The first pending chain, which is no longer pending.
    fn pop_pending(&self, sq: &mut SendQueue<U>) -> Option<KBox<SendCtxt<U>>> {
        let ctxt = sq.pending.pop_front();
        self.n_pending.store(sq.pending.len(), Relaxed);
        ctxt
    }

    /// Posts the chain that begins with `first`.
    ///
    /// # Safety
    ///
    /// The requests stay valid during the call, and their memory until they complete or the queue
    /// pair is destroyed. `sq` is the queue of this queue pair.
    ///
    /// # Errors
    ///
    /// `EPIPE` if the queue is closed, or whatever the provider returns.
    pub(super) unsafe fn post_wrs(
        &self,
        sq: &SendQueue<U>,
        first: *const bindings::ib_send_wr,
    ) -> Result {
        if !sq.is_open {
            return Err(EPIPE);
        }
        // SAFETY: The queue is open, so the hardware objects exist; the rest is this function's
        // contract.
        to_result(unsafe { bindings::rpcrdma_ib_post_send(self.hw().qp.as_ptr(), first) })
    }

    /// Posts the chain of `ctxt`, and takes its entries. Whatever happens, the context stays with
    /// `sq`, the open queue of this queue pair.
    ///
    /// # Errors
    ///
    /// Whatever the provider returns. The queue is closed then: part of the chain may be posted.
    fn post_locked(&self, sq: &mut SendQueue<U>, mut ctxt: KBox<SendCtxt<U>>) -> Result {
        let first = ctxt.first;
        sq.free = sq.free.saturating_sub(ctxt.entries);
        sq.least = sq.least.min(sq.free);
        let mut is_signalled = true;
        if U::IS_CLIENT {
            let unsignalled = sq.unsignalled.len().saturating_add(1);
            is_signalled = unsignalled >= MAX_UNSIGNALED || sq.idle.is_empty();
            ctxt.set_signalled(is_signalled);
            trace::xprtrdma_post_send(self, ctxt.cid, ctxt.message(), is_signalled);
        }
        if is_signalled {
            ctxt.covers = sq.unsignalled.take();
            sq.posted.push_back(ctxt);
        } else {
            sq.unsignalled.push_back(ctxt);
        }
        // SAFETY: The context, with everything that the chain refers to, is on a list from which
        // only its completion takes it.
        let posted = unsafe { self.post_wrs(sq, first) };
        posted.inspect_err(|_| sq.is_open = false)
    }

    /// Tells the user that the provider has refused a chain.
    fn refused(&self, error: Error) {
        if U::IS_CLIENT {
            trace::xprtrdma_post_send_err(self, error);
        } else {
            trace::svcrdma_sq_post_err(self, error);
        }
        self.user.failed(QpFailure::PostRefused(error));
    }
}

impl<U: QpUser> SendBox<'_, U> {
    /// Hands over the chain, of `entries` requests, under the lock of the slot with its MRs, if it
    /// has any.
    ///
    /// # Errors
    ///
    /// [`SqError::Closed`].
    pub(super) fn post(
        mut self,
        entries: u32,
        slot: Option<SlotGuard<'_, U>>,
    ) -> Result<(), SqError> {
        let qp = self.qp;
        let mut sq = qp.send.lock();
        if !sq.is_open {
            drop(sq);
            drop(slot);
            return Err(SqError::Closed);
        }
        if !U::IS_CLIENT {
            self.ctxt.entries = entries;
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, and does not use the context any more.
        let ctxt = unsafe { ManuallyDrop::take(&mut this.ctxt) };
        sq.lent = sq.lent.saturating_sub(1);
        sq.watchdog.handed(ctxt.rw.is_read());
        let watch = qp.caps.watch && !core::mem::replace(&mut sq.is_watched, true);
        let mut posted = Ok(());
        if sq.pending.is_empty() && ctxt.entries <= sq.free {
            posted = qp.post_locked(&mut sq, ctxt);
        } else {
            let used = qp.sq_entries.saturating_sub(sq.free);
            trace::svcrdma_sq_full(qp, entries, used, qp.sq_entries);
            qp.user.sq_full();
            sq.pending.push_back(ctxt);
            qp.n_pending.store(sq.pending.len(), Relaxed);
        }
        drop(sq);
        drop(slot);
        if watch {
            qp.watch();
        }
        posted.map_err(|error| {
            qp.refused(error);
            SqError::Closed
        })
    }
}

impl<U: QpUser> Drop for SendBox<'_, U> {
    fn drop(&mut self) {
        let qp = self.qp;
        // SAFETY: The context is not used any more by this object.
        let mut ctxt = unsafe { ManuallyDrop::take(&mut self.ctxt) };
        // SAFETY: The chain was not posted. This `SendBox` is still counted by `lent`.
        unsafe { ctxt.unmap(qp) };
        ctxt.data = U::Send::default();
        let mut sq = qp.send.lock();
        let surplus = sq.put_idle(ctxt);
        qp.unlend(&mut sq);
        qp.unlock(sq, surplus);
    }
}

// SAFETY: The field has this type. Contexts are posted only on the queue pair that has made them.
unsafe impl<U: QpUser> Complete for SendCtxt<U> {
    type User = U;

    const OFFSET: usize = offset_of!(Self, cqe);

    unsafe fn complete(this: NonNull<Self>, cx: &mut CqContext<'_, U>, wc: &bindings::ib_wc) {
        let qp = cx.qp();
        // SAFETY: The context is on `posted`, and only its completion handler touches it (invariant
        // of `SendQueue`).
        let ctxt = unsafe { &mut *this.as_ptr() };
        let failure = WcStatus::failure(wc);
        let (is_read, mrs) = (ctxt.rw.is_read(), ctxt.rw.mrs());
        if U::IS_CLIENT {
            trace::xprtrdma_wc_send(qp, ctxt.cid, wc);
            // What it covers may not have completed.
            if let Some(status) = failure {
                return qp.user.failed(status.into());
            }
        } else if !is_read {
            trace::svcrdma_wc_send(qp, ctxt.cid, wc);
        } else if failure.is_some() {
            trace::svcrdma_wc_read_failed(qp, ctxt.cid, wc);
        }
        let mut pages = PageVec::new();
        if is_read {
            // The thread that posts may have yet to look for a request behind the last one, which
            // is freed when it is unmapped.
            drop(qp.send.lock());
            if failure.is_none() {
                pages = core::mem::take(&mut ctxt.pages);
            }
        }
        // SAFETY: The chain has completed. A completion is being handled, so the hardware objects
        // exist.
        unsafe { ctxt.unmap(qp) };
        // Of a Send it says nothing about memory of the peer.
        if let Some(status) = failure.filter(|_| is_read) {
            qp.user.part_failed(&ctxt.data, status);
        }
        let data = core::mem::take(&mut ctxt.data);

        let mut sq = qp.send.lock();
        // SAFETY: The context is on `posted`.
        let mut ctxt = unsafe { sq.posted.remove(this) };
        sq.free = sq.free.saturating_add(ctxt.entries);
        sq.free_mrs = sq.free_mrs.saturating_add(mrs);
        sq.idle.append(&mut ctxt.covers);
        sq.watchdog.done(is_read);
        let surplus = sq.put_idle(ctxt);
        let mut posted = Ok(());
        while failure.is_none() && sq.pending_fits() {
            if let Some(next) = qp.pop_pending(&mut sq) {
                posted = qp.post_locked(&mut sq, next);
            }
        }
        qp.unlock(sq, surplus);
        if let Err(error) = posted {
            qp.refused(error);
        }
        match failure {
            None => U::sent(cx, data, pages),
            Some(status) => {
                drop(data);
                qp.user.failed(status.into());
            }
        }
    }
}

// SAFETY: The field has this type. Contexts are posted only on the queue pair that has made them.
unsafe impl<U: QpUser> Complete<1> for SendCtxt<U> {
    type User = U;

    const OFFSET: usize = offset_of!(Self, part);

    unsafe fn complete(this: NonNull<Self>, cx: &mut CqContext<'_, U>, wc: &bindings::ib_wc) {
        let Some(status) = WcStatus::failure(wc) else {
            return;
        };
        let qp = cx.qp();
        // SAFETY: The request is part of a chain whose last one has not completed, so the context
        // is on a list of the queue, and only a completion handler touches it.
        let ctxt = unsafe { this.as_ref() };
        if U::IS_CLIENT {
            trace::xprtrdma_wc_unsignaled(qp, ctxt.cid, wc);
        } else if ctxt.rw.is_read() {
            trace::svcrdma_wc_read_failed(qp, ctxt.cid, wc);
        } else {
            trace::svcrdma_wc_write_failed(qp, ctxt.cid, wc);
        }
        qp.user.part_failed(&ctxt.data, status);
        qp.user.failed(status.into());
    }
}
