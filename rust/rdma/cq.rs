// SPDX-License-Identifier: GPL-2.0

//! Completion queues, cqes (`struct ib_cqe`), and what completions report.

use super::{
    qp::{QpUser, QueuePair},
    Pd,
};
use crate::bindings;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{error::from_err_ptr, prelude::*, str::CStrExt};

/// The completion queue of one queue pair, for both of its work queues. The RDMA core polls it in a
/// work item, so that at most one completion handler of the queue pair runs at a time.
///
/// A queue of the RDMA core's pool would not ensure that: another user of the pool polls it in its
/// own thread when it destroys a queue pair with a shared receive queue (`ib_drain_qp()`).
///
/// # Invariants
///
/// `0` is a completion queue that this object owns.
pub(super) struct Cq(NonNull<bindings::ib_cq>);

impl Cq {
    /// Allocates a queue for `entries` completions of `qp` on the device of `pd`. May sleep.
    ///
    /// # Safety
    ///
    /// `qp` is valid when its first work request is posted, and until the queue is disabled.
    ///
    /// # Errors
    ///
    /// Whatever the provider returns, such as `EINVAL` for more entries than the device supports.
    pub(super) unsafe fn new<U: QpUser>(
        pd: &Pd,
        entries: u32,
        qp: *const QueuePair<U>,
    ) -> Result<Self> {
        // SAFETY: The device is registered as long as the protection domain exists. `CALLER` is
        // static. The context is used only by `done`, for completions of this queue pair, which is
        // valid then (this function's contract).
        let ptr = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq_any(
                pd.device().as_raw(),
                qp.cast_mut().cast(),
                i32::try_from(entries).map_err(|_| EINVAL)?,
                bindings::ib_poll_context_IB_POLL_WORKQUEUE,
                super::CALLER.as_char_ptr(),
            )
        })?;
        // INVARIANT: The queue was just allocated.
        Ok(Self(NonNull::new(ptr).ok_or(ENOMEM)?))
    }

    /// Stops the handling of completions, and waits until no handler runs. May sleep; must not be
    /// called from a completion handler.
    pub(super) fn disable(&self) {
        // SAFETY: `0` is a live CQ (type invariant), which the RDMA core polls in a work item.
        unsafe { bindings::rpcrdma_ib_cq_disable(self.as_raw()) };
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.0.as_ptr()
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: This object owns the CQ (type invariant), and its queue pair is destroyed first.
        unsafe { bindings::ib_free_cq(self.0.as_ptr()) };
    }
}

/// A completion that is being handled. There is one at a time for each queue pair.
///
/// # Invariants
///
/// A completion of `qp` is being handled in this thread, so the hardware objects of `qp` exist.
/// This is the only such object for `qp`.
pub(crate) struct CqContext<'a, U: QpUser> {
    qp: &'a QueuePair<U>,
}

impl<'a, U: QpUser> CqContext<'a, U> {
    /// The queue pair.
    pub(crate) fn qp(&self) -> &'a QueuePair<U> {
        self.qp
    }

    /// The user of the queue pair.
    pub(crate) fn user(&self) -> &'a U {
        &self.qp.user
    }
}

/// A cqe, which is a field of the `T` whose work requests have it as their `wr_cqe`. `ID`
/// distinguishes the cqes of a type that has several.
#[repr(transparent)]
pub(super) struct Cqe<T, const ID: u64 = 0> {
    raw: bindings::ib_cqe,
    container: PhantomData<fn(&T)>,
}

impl<T: Complete<ID>, const ID: u64> Cqe<T, ID> {
    /// A cqe that calls [`Complete::complete`] on the object that contains it.
    pub(super) const fn new() -> Self {
        Self {
            raw: bindings::ib_cqe {
                done: Some(done::<T, ID>),
            },
            container: PhantomData,
        }
    }
}

/// Handles the completions of work requests.
///
/// # Safety
///
/// `OFFSET` is the offset of a field of type [`Cqe<Self, ID>`]. Work requests are posted with
/// [`Self::wr_cqe`] only to the queue pair of a [`QueuePair<Self::User>`].
pub(super) unsafe trait Complete<const ID: u64 = 0>: Sized {
    /// The user of the queue pair.
    type User: QpUser;

    /// The offset of the cqe in bytes.
    const OFFSET: usize;

    /// The `wr_cqe` of a work request whose completion goes to `this`.
    fn wr_cqe(this: *const Self) -> *mut bindings::ib_cqe {
        this.wrapping_byte_add(Self::OFFSET).cast_mut().cast()
    }

    /// Handles the completion `wc` of a work request that was posted with the cqe in `this`.
    /// Process context; does not sleep.
    ///
    /// # Safety
    ///
    /// `this` is the pointer from which the request's `wr_cqe` was made, and the request has just
    /// completed on the queue pair of `cx`.
    unsafe fn complete(
        this: NonNull<Self>,
        cx: &mut CqContext<'_, Self::User>,
        wc: &bindings::ib_wc,
    );
}

/// The completion handler of a [`Cqe<T, ID>`].
///
/// # Safety
///
/// Called only by the RDMA core: `cq` and `wc` are valid during the call, and `wc.wr_cqe` is that
/// of the work request that completed.
unsafe extern "C" fn done<T: Complete<ID>, const ID: u64>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: Both are valid during the call. The queue is a `Cq`, whose context is the queue pair
    // (`Complete`'s contract), which is not dropped before its CQ is freed.
    let (qp, wc) = unsafe { (&*(*cq).cq_context.cast::<QueuePair<T::User>>(), &*wc) };
    // INVARIANT: The RDMA core handles the completions of a CQ one after the other.
    let mut cx = CqContext { qp };
    // SAFETY: The RDMA core calls the handler that it finds through the `wr_cqe` of the request.
    // Only cqes within a `T` have this function as their handler, so the pointer is that of such a
    // cqe.
    unsafe {
        let this = wc.__bindgen_anon_1.wr_cqe.cast::<T>();
        T::complete(
            NonNull::new_unchecked(this.byte_sub(T::OFFSET)),
            &mut cx,
            wc,
        );
    }
}

/// The rkey that the peer's Send With Invalidate has invalidated; it exists only while that
/// completion is handled.
///
/// # Invariants
///
/// A successful Receive completion of the queue pair `qp` reported the rkey, so the rkey is invalid
/// there.
pub(crate) struct RemoteInvalidation<'a, U: QpUser> {
    rkey: u32,
    qp: &'a QueuePair<U>,
}

// CAST: A small bit mask, in a signed word.
const WITH_INVALIDATE: i32 = bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as i32;

impl<'a, U: QpUser> RemoteInvalidation<'a, U> {
    /// Reads the rkey from a Receive completion.
    ///
    /// # Safety
    ///
    /// `wc` is a successful Receive completion of `qp`, and is being handled for all of `'a`.
    pub(super) unsafe fn from_completion(
        qp: &'a QueuePair<U>,
        wc: &bindings::ib_wc,
    ) -> Option<Self> {
        if wc.wc_flags & WITH_INVALIDATE == 0 {
            return None;
        }
        // SAFETY: The flag says that the union holds the rkey.
        let rkey = unsafe { &wc.ex.invalidate_rkey };
        // INVARIANT: A successful Receive completion reported the rkey.
        Some(Self { rkey: **rkey, qp })
    }

    /// The rkey, if it was reported by `qp`.
    pub(super) fn into_rkey(self, qp: &QueuePair<U>) -> Option<u32> {
        core::ptr::eq(self.qp, qp).then_some(self.rkey)
    }
}

/// Why a work request failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WcStatus(pub(crate) bindings::ib_wc_status);

impl WcStatus {
    /// The status of a completion, if the request failed.
    pub(super) fn failure(wc: &bindings::ib_wc) -> Option<Self> {
        (wc.status != bindings::ib_wc_status_IB_WC_SUCCESS).then_some(Self(wc.status))
    }

    /// Whether the request was merely flushed after the connection had ended.
    pub(crate) fn is_flush(self) -> bool {
        self.0 == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR
    }

    /// Whether the peer's adapter reports an error of the request, for instance because the memory
    /// is not registered. A peer that does not answer reports none.
    pub(crate) fn is_remote_error(self) -> bool {
        matches!(
            self.0,
            bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR
                | bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR
                | bindings::ib_wc_status_IB_WC_REM_OP_ERR
        )
    }
}
