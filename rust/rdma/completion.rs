// SPDX-License-Identifier: GPL-2.0

//! What the completions of a queue pair tell its user.

use super::{Idle, MrList, QueuePair, ReceivedMessage};
use crate::bindings;
use core::marker::PhantomData;
use kernel::types::Opaque;

/// The handle that the peer's Send With Invalidate has made invalid, as long as its completion is
/// handled.
///
/// # Invariants
///
/// A successful Receive completion of the queue pair `qp` reported the handle, so it is invalid there.
pub(crate) struct RemoteInvalidation<'a> {
    handle: u32,
    qp: *const Opaque<bindings::ib_qp>,
    completion: PhantomData<&'a ()>,
}

// CAST: A bit of a small number, in a signed word.
const WITH_INVALIDATE: i32 = bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as i32;

impl RemoteInvalidation<'_> {
    /// Reads the handle from a Receive completion.
    ///
    /// # Safety
    ///
    /// `wc` is a successful Receive completion of `qp`, which is handled for all of the lifetime.
    pub(super) unsafe fn from_completion(
        qp: &Opaque<bindings::ib_qp>,
        wc: &bindings::ib_wc,
    ) -> Option<Self> {
        if wc.wc_flags & WITH_INVALIDATE == 0 {
            return None;
        }
        // SAFETY: The flag says that the union holds the handle.
        let handle = unsafe { &wc.ex.invalidate_rkey };
        // INVARIANT: A successful Receive completion reported the handle.
        Some(Self {
            handle: **handle,
            qp,
            completion: PhantomData,
        })
    }

    /// The handle, if it was one of `qp`.
    pub(super) fn into_handle(self, qp: &Opaque<bindings::ib_qp>) -> Option<u32> {
        core::ptr::eq(self.qp, qp).then_some(self.handle)
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
        message: ReceivedMessage<Self>,
        invalidated: Option<RemoteInvalidation<'_>>,
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
    #[inline(always)]
    pub(crate) fn recycle(&mut self, message: ReceivedMessage<C>) {
        // SAFETY: By the type's invariant a completion of the queue pair is being handled, in which
        // nobody else recycles. Should the provider refuse, the peer runs out of Receives in the end,
        // and the connection ends by that.
        unsafe { self.qp.recycle(message) };
    }
}
