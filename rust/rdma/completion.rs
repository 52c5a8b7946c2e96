// SPDX-License-Identifier: GPL-2.0

//! From a work completion to the owner of the work request.

use super::{Idle, MrList, QueuePair, ReceivedMessage};
use crate::bindings;

/// The handle that the peer's Send With Invalidate made invalid.
///
/// # Invariants
///
/// Only a successful Receive completion makes one, so the handle is invalid.
pub(crate) struct RemoteInvalidation {
    handle: u32,
}

impl RemoteInvalidation {
    /// Reads the handle from a Receive completion.
    ///
    /// # Safety
    ///
    /// `wc` is a successful Receive completion.
    pub(super) unsafe fn from_completion(wc: &bindings::ib_wc) -> Option<Self> {
        let with_invalidate = i32::try_from(bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE).ok()?;
        if wc.wc_flags & with_invalidate == 0 {
            return None;
        }
        // SAFETY: The flag says that the union holds the handle.
        let handle = unsafe { &wc.ex.invalidate_rkey };
        // INVARIANT: A successful Receive completion reported the handle.
        Some(Self { handle: **handle })
    }

    /// The handle.
    pub(super) fn handle(&self) -> u32 {
        self.handle
    }
}

/// Why a work request did not succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WcStatus(bindings::ib_wc_status);

impl WcStatus {
    /// The status of a completion, if it failed.
    pub(super) fn failure(wc: &bindings::ib_wc) -> Option<Self> {
        (wc.status != bindings::ib_wc_status_IB_WC_SUCCESS).then_some(Self(wc.status))
    }

    /// Whether the request was only discarded, after the connection had ended.
    pub(crate) fn is_flush(self) -> bool {
        self.0 == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR
    }
}

/// What a queue pair tells its user.
///
/// All of it runs on the RDMA core's completion workqueue, never two at a time for one queue
/// pair. An implementation must not wait for another completion, nor allocate memory in a way
/// that could wait for NFS.
pub(crate) trait Completions: Send + Sync + Sized + 'static {
    /// What each slot of registered regions keeps beside them, under the slot's lock.
    type Slot: Default + Send + Unpin;

    /// A message arrived. Its buffer has to go back by [`Completion::recycle`], sooner or later.
    fn received(
        completion: &mut Completion<'_, Self>,
        message: ReceivedMessage,
        invalidated: Option<RemoteInvalidation>,
    );

    /// A Send completed, so that there is room for another.
    fn send_space(&self);

    /// The local invalidation of slot `index` has succeeded, with these regions.
    fn invalidated(completion: &mut Completion<'_, Self>, index: usize, regions: MrList<Idle>);

    /// The local invalidation of slot `index` has failed; [`Self::failed`] was called before. The
    /// regions stay until the connection's end.
    fn not_invalidated(&self, qp: &QueuePair<Self>, index: usize);

    /// A work request failed, or was flushed. The connection is of no use any more.
    fn failed(&self, status: WcStatus);
}

/// A completion that is being handled. There is one at a time for each queue pair, and what is only
/// for completions to do is done by it.
///
/// # Invariants
///
/// A completion of `qp` is being handled in this thread, and this is the only such object for it.
pub(crate) struct Completion<'a, C: Completions> {
    qp: &'a QueuePair<C>,
}

impl<'a, C: Completions> Completion<'a, C> {
    /// The completion of a request of `qp`.
    ///
    /// # Safety
    ///
    /// As the type's invariant says.
    pub(super) unsafe fn new(qp: &'a QueuePair<C>) -> Self {
        // INVARIANT: The caller's promise.
        Self { qp }
    }

    /// The queue pair.
    pub(crate) fn qp(&self) -> &'a QueuePair<C> {
        self.qp
    }

    /// Gives a message's buffer back to the device. Does not sleep.
    pub(crate) fn recycle(&mut self, message: ReceivedMessage) {
        // SAFETY: The queue is the queue pair's, and by the type's invariant one of its completions
        // is being handled. Should the provider refuse, the peer runs out of Receives in the end,
        // and the connection ends by that.
        let _ = unsafe { self.qp.receive_queue().recycle(self.qp.as_raw(), message) };
    }
}

/// What `wr_cqe` of a work request points to.
#[repr(C)]
pub(super) struct Cqe {
    raw: bindings::ib_cqe,
    index: usize,
}

/// The C type of a completion handler.
pub(super) type Done = unsafe extern "C" fn(*mut bindings::ib_cq, *mut bindings::ib_wc);

impl Cqe {
    /// A handle for the work request at `index` of its queue, completed by `done`.
    pub(super) fn new(done: Done, index: usize) -> Self {
        Self {
            raw: bindings::ib_cqe { done: Some(done) },
            index,
        }
    }

    /// The pointer for `wr_cqe`.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_cqe {
        core::ptr::from_ref(&self.raw).cast_mut()
    }

    /// The index of the work request that completed.
    ///
    /// # Safety
    ///
    /// The completion's `wr_cqe` came from [`Self::as_raw`] of a handle that is alive.
    pub(super) unsafe fn index_of(wc: &bindings::ib_wc) -> usize {
        // SAFETY: `raw` is the first field of a `repr(C)` structure, so the pointers are equal.
        unsafe { (*wc.__bindgen_anon_1.wr_cqe.cast::<Self>()).index }
    }
}
