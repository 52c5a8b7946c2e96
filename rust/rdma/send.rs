// SPDX-License-Identifier: GPL-2.0

//! The send queue of a queue pair: its entries, and the chains that are posted or wait for entries.
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
    owner::QpOwner,
    qp::{QpFailure, QpUser, QueuePair},
    send_ctxt::{SendBox, SendCtxt},
    watchdog::Watchdog,
};
use crate::{bindings, trace};
use core::{
    mem::{offset_of, ManuallyDrop},
    ptr::NonNull,
};
use kernel::{error::to_result, prelude::*, sync::SpinLockGuard};

/// One Send in as many is signalled on a client.
pub(crate) const MAX_UNSIGNALED: u32 = 16;

/// Why a chain was not handed over, or why there is no context for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqError {
    /// A client has no idle context, and has made as many as it may or has no memory for one more.
    /// [`QpUser::sq_available`] will be called.
    Full,
    /// A server has no memory.
    NoMem,
    /// The connection is ending, or has to end.
    Closed,
}

impl From<SqError> for Error {
    fn from(error: SqError) -> Self {
        match error {
            SqError::NoMem => ENOMEM,
            SqError::Full | SqError::Closed => EPIPE,
        }
    }
}

/// Numbers of a queue pair.
pub(crate) struct QpView {
    /// Receives that are posted, and all.
    pub(crate) recvs_posted: u32,
    pub(crate) recvs: u32,
    /// Send contexts that are not idle, and all.
    pub(crate) sends_used: u32,
    pub(crate) sends: u32,
    /// Entries of the send queue in use, the most that ever were, and all. Not counted on a client.
    pub(crate) entries_used: u32,
    pub(crate) entries_max: u32,
    pub(crate) entries: u32,
    /// Chains that wait for entries.
    pub(crate) pending: u32,
}

/// The state of a send queue.
///
/// # Invariants
///
/// The entries of the contexts on `posted` and `unsignalled` are not in `free`. A context on one of
/// these lists, or on `covers` of a context there, may be used by the device. Only its completion
/// handler takes it off, once it has completed; or the owner of the queue pair, once no handler
/// runs. One on `pending` is unknown to the device.
///
/// `is_open` goes from true to false once. Nothing is posted while it is false.
pub(super) struct SendQueue<U: QpUser> {
    pub(super) is_open: bool,
    /// Whether a check of the peer is under way.
    pub(super) is_checking: bool,
    /// Entries that are free, and the lowest number that ever were.
    free: u32,
    free_min: u32,
    /// MRs of the RDMA core's pool that are not reserved.
    free_mrs: u32,
    pub(super) idle: List<SendCtxt<U>>,
    /// Contexts that exist.
    pub(super) made: u32,
    /// Posted unsignalled, and on no other context's `covers` yet.
    pub(super) unsignalled: List<SendCtxt<U>>,
    pub(super) posted: List<SendCtxt<U>>,
    /// Handed over, but there were not enough free entries, in order.
    pending: List<SendCtxt<U>>,
    pub(super) watchdog: Watchdog,
    /// Whether [`QpUser::sq_available`] is to be called.
    pub(super) wants_sq: bool,
}

impl<U: QpUser> SendQueue<U> {
    /// An open queue with `entries` free entries, `mrs` MRs of the RDMA core's pool, and these
    /// contexts.
    pub(super) fn new(entries: u32, mrs: u32, idle: List<SendCtxt<U>>) -> Self {
        Self {
            is_open: true,
            is_checking: false,
            free: entries,
            free_min: entries,
            free_mrs: mrs,
            made: idle.len(),
            idle,
            unsignalled: List::new(),
            posted: List::new(),
            pending: List::new(),
            watchdog: Watchdog::new(),
            wants_sq: false,
        }
    }

    /// When the oldest chain that is under way was handed over, in runs of the watchdog. Both lists
    /// are in that order, and what is pending was handed over after all that is posted.
    pub(super) fn oldest(&self) -> Option<u32> {
        let oldest = self.posted.first().or(self.pending.first())?;
        Some(oldest.handed)
    }

    /// Takes the first pending chain, if there are enough free entries for it.
    fn next_pending(&mut self) -> Option<KBox<SendCtxt<U>>> {
        let entries = self.pending.first()?.entries();
        if !self.is_open || entries > self.free {
            return None;
        }
        self.pending.pop_front()
    }
}

impl<U: QpUser> QpOwner<U> {
    /// Closes the send queue, and frees the chains that are pending.
    pub(crate) fn close_sq(&self) {
        let mut sq = self.send.lock();
        sq.is_open = false;
        let mut pending = sq.pending.take();
        drop(sq);
        while let Some(ctxt) = pending.pop_front() {
            let ctxt = ManuallyDrop::new(ctxt);
            // INVARIANT: The owner exists while it is borrowed.
            drop(SendBox { qp: self, ctxt });
        }
    }
}

impl<U: QpUser> QueuePair<U> {
    /// Locks the send queue, if it is open.
    pub(super) fn lock_open(&self) -> Result<SpinLockGuard<'_, SendQueue<U>>, SqError> {
        let sq = self.send.lock();
        if sq.is_open {
            Ok(sq)
        } else {
            Err(SqError::Closed)
        }
    }

    /// Reserves `mrs` MRs of the RDMA core's pool for a Call, if no chain is pending and
    /// `is_allowed`, which is called under the lock of the send queue, returns true. Otherwise
    /// [`QpUser::sq_available`] is called when this may have changed: when a chain has completed
    /// and none is pending, and at each run of the watchdog.
    pub(crate) fn reserve(&self, mrs: u32, is_allowed: impl FnOnce() -> bool) -> bool {
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
        self.unlock(sq);
    }

    /// Unlocks the queue, and notifies the user if it waits for the queue to be available.
    pub(super) fn unlock(&self, mut sq: SpinLockGuard<'_, SendQueue<U>>) {
        let is_available = sq.wants_sq && sq.is_open && sq.pending.is_empty();
        if is_available {
            sq.wants_sq = false;
        }
        drop(sq);
        if is_available {
            self.user.sq_available();
        }
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
            entries_max: self.sq_entries.saturating_sub(sq.free_min),
            entries: self.sq_entries,
            pending: sq.pending.len(),
        }
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
    /// `EPIPE` if the queue is closed, or whatever the provider returns: the queue is closed then,
    /// and part of the chain may be posted.
    pub(super) unsafe fn post_wrs(
        &self,
        sq: &mut SendQueue<U>,
        first: *const bindings::ib_send_wr,
    ) -> Result {
        if !sq.is_open {
            return Err(EPIPE);
        }
        // SAFETY: The queue is open, so the hardware objects exist; the rest is this function's
        // contract.
        let status = unsafe { bindings::rpcrdma_ib_post_send(self.hw().qp.as_ptr(), first) };
        sq.is_open = status == 0;
        to_result(status)
    }

    /// Posts the chain of `ctxt`, and takes its entries. Whatever happens, the context stays with
    /// `sq`, the open queue of this queue pair.
    ///
    /// # Errors
    ///
    /// Those of [`Self::post_wrs`].
    fn post_locked(&self, sq: &mut SendQueue<U>, mut ctxt: KBox<SendCtxt<U>>) -> Result {
        let first = ctxt.first;
        sq.free = sq.free.saturating_sub(ctxt.entries());
        sq.free_min = sq.free_min.min(sq.free);
        let mut is_signalled = true;
        if U::IS_CLIENT {
            let unsignalled = sq.unsignalled.len().saturating_add(1);
            is_signalled = unsignalled >= MAX_UNSIGNALED || sq.idle.is_empty();
            trace::xprtrdma_post_send(self.cq_number, ctxt.cid, ctxt.message(), is_signalled);
        }
        ctxt.set_signalled(is_signalled);
        if is_signalled {
            ctxt.covers.append(&mut sq.unsignalled);
            sq.posted.push_back(ctxt);
        } else {
            sq.unsignalled.push_back(ctxt);
        }
        // SAFETY: The context, with everything that the chain refers to, is on a list from which
        // only its completion takes it.
        unsafe { self.post_wrs(sq, first) }
    }

    /// Notifies the user that the provider has refused a chain.
    pub(super) fn post_failed(&self, error: Error) {
        if U::IS_CLIENT {
            trace::xprtrdma_post_send_err(self.cq_number, error);
        } else {
            trace::svcrdma_sq_post_err(self.cq_number, error);
        }
        self.user.qp_failed(QpFailure::PostFailed);
    }
}

impl<U: QpUser> SendBox<'_, U> {
    /// Hands over the chain, under the lock of `sq`, the open queue, and of the slot with its MRs,
    /// if it has any.
    ///
    /// # Errors
    ///
    /// [`SqError::Closed`], also if the chain does not fit an empty queue.
    pub(super) fn post(
        self,
        mut sq: SpinLockGuard<'_, SendQueue<U>>,
        slot: Option<SlotGuard<'_, U>>,
    ) -> Result<(), SqError> {
        if self.ctxt.entries() > self.qp.sq_entries {
            drop(sq);
            return Err(SqError::Closed);
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, and does not use the context any more.
        let (qp, mut ctxt) = (this.qp, unsafe { ManuallyDrop::take(&mut this.ctxt) });
        ctxt.handed = sq.watchdog.runs;
        let mut posted = Ok(());
        if sq.pending.is_empty() && ctxt.entries() <= sq.free {
            posted = qp.post_locked(&mut sq, ctxt);
        } else {
            trace::svcrdma_sq_full(qp.cq_number, ctxt.entries(), sq.free, qp.sq_entries);
            qp.user.sq_full();
            sq.pending.push_back(ctxt);
        }
        drop(sq);
        drop(slot);
        posted.map_err(|error| {
            qp.post_failed(error);
            SqError::Closed
        })
    }
}

// SAFETY: The field has this type. Contexts are posted only on the queue pair that has made them.
unsafe impl<U: QpUser> Complete for SendCtxt<U> {
    type User = U;

    const OFFSET: usize = offset_of!(Self, signalled);

    unsafe fn complete(this: NonNull<Self>, cx: &mut CqContext<'_, U>, wc: &bindings::ib_wc) {
        let qp = cx.qp();
        let failure = WcStatus::failure(wc);
        // SAFETY: The context is on `posted`, and only this handler takes it off.
        let cid = unsafe { this.as_ref() }.cid;
        if U::IS_CLIENT {
            trace::xprtrdma_wc_send(qp.cq_number, cid, wc);
            // What it covers may not have completed.
            if let Some(status) = failure {
                return qp.user.qp_failed(status.into());
            }
        }
        let mut sq = qp.send.lock();
        let Some(mut ctxt) = sq.posted.take_object(this) else {
            return;
        };
        let (is_read, entries, mrs) = (ctxt.rw.is_read(), ctxt.entries(), qp.mrs_of(&ctxt.rw));
        if !U::IS_CLIENT && !is_read {
            trace::svcrdma_wc_send(qp.cq_number, cid, wc);
        } else if failure.is_some() {
            trace::svcrdma_wc_read_failed(qp.cq_number, cid, wc);
        }
        let mut pages = None;
        if ctxt.pages.len() != 0 {
            drop(sq);
            if is_read && failure.is_none() {
                pages = Some(core::mem::take(&mut ctxt.pages));
            }
            // SAFETY: The chain has completed. A completion is being handled, so the hardware
            // objects exist.
            unsafe { ctxt.release(qp) };
            // Only a failed Read says something about memory of the peer.
            if let Some(status) = failure.filter(|_| is_read) {
                qp.user.part_failed(&ctxt.data, status);
            }
            sq = qp.send.lock();
        }
        let data = core::mem::take(&mut ctxt.data);
        sq.free = sq.free.saturating_add(entries);
        sq.free_mrs = sq.free_mrs.saturating_add(mrs);
        sq.idle.append(&mut ctxt.covers);
        sq.idle.push_front(ctxt);
        sq.watchdog.done = sq.watchdog.done.wrapping_add(1);
        // Pending chains take the entries that are free now. Bounded: each takes at least one, and
        // there are at most `sq_entries`.
        let mut posted = Ok(());
        if failure.is_none() {
            while let Some(next) = sq.next_pending() {
                posted = qp.post_locked(&mut sq, next);
            }
        }
        qp.unlock(sq);
        if let Err(error) = posted {
            qp.post_failed(error);
        }
        match failure {
            None => U::sent(cx, data, pages),
            Some(status) => {
                drop(data);
                qp.user.qp_failed(status.into());
            }
        }
    }
}

// SAFETY: The field has this type. Contexts are posted only on the queue pair that has made them.
unsafe impl<U: QpUser> Complete<1> for SendCtxt<U> {
    type User = U;

    const OFFSET: usize = offset_of!(Self, unsignalled);

    unsafe fn complete(this: NonNull<Self>, cx: &mut CqContext<'_, U>, wc: &bindings::ib_wc) {
        let Some(status) = WcStatus::failure(wc) else {
            return;
        };
        let qp = cx.qp();
        // SAFETY: The request is part of a chain whose last one has not completed, so the context
        // is on a list of the queue, which only a completion handler takes it off.
        let ctxt = unsafe { this.as_ref() };
        if U::IS_CLIENT {
            trace::xprtrdma_wc_unsignaled(qp.cq_number, ctxt.cid, wc);
        } else if ctxt.rw.is_read() {
            trace::svcrdma_wc_read_failed(qp.cq_number, ctxt.cid, wc);
        } else {
            trace::svcrdma_wc_write_failed(qp.cq_number, ctxt.cid, wc);
        }
        qp.user.part_failed(&ctxt.data, status);
        qp.user.qp_failed(status.into());
    }
}
