// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::{cqe::CqRef, Pd};
use crate::{bindings, trace::TraceCq};
use core::ptr::NonNull;
use kernel::{error::from_err_ptr, prelude::*, str::CStrExt, sync::Arc};

/// A completion queue that the RDMA core polls from its workqueue. The completion handler is chosen
/// by the work request ([`super::cqe::Cqe`]).
///
/// It belongs to one connection. Completions in a queue of the RDMA core's pool may be handled
/// several at a time: another user of the pool polls it in his own thread when he ends a queue pair
/// with a shared receive queue (`ib_drain_qp()`).
///
/// # Invariants
///
/// `ptr` is a completion queue on the device of `_pd`, which this object owns.
pub(super) struct Cq {
    ptr: NonNull<bindings::ib_cq>,
    _pd: Arc<Pd>,
}

impl Cq {
    /// Allocates a queue for `entries` completions on the device of `pd`. May sleep.
    ///
    /// # Errors
    ///
    /// Whatever the provider returns, such as `EINVAL` for more entries than the device supports.
    pub(super) fn new(pd: &Arc<Pd>, entries: u32) -> Result<Self> {
        let entries = i32::try_from(entries).map_err(|_| EINVAL)?;
        // SAFETY: The device is registered as long as the protection domain exists, and `CALLER` is
        // static.
        let ptr = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq_any(
                pd.device().as_raw(),
                core::ptr::null_mut(),
                entries,
                bindings::ib_poll_context_IB_POLL_WORKQUEUE,
                super::CALLER.as_char_ptr(),
            )
        })?;
        // INVARIANT: The queue was just allocated.
        Ok(Self {
            ptr: NonNull::new(ptr).ok_or(ENOMEM)?,
            _pd: pd.clone(),
        })
    }

    /// The number of the queue among the RDMA core's resources.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: `ptr` is a live CQ (type invariant).
        unsafe { CqRef::from_raw(self.as_raw()) }.number()
    }

    /// Has no further completion handled, and waits until no handler runs. May sleep; must not be
    /// called from one.
    pub(super) fn disable(&self) {
        // SAFETY: By the type's invariant; the RDMA core polls the queue from its workqueue.
        unsafe { bindings::rpcrdma_ib_cq_disable(self.as_raw()) };
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.ptr.as_ptr()
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: Queue pairs hold a counted reference, so no user of this object is left. The call
        // waits until no completion handler runs.
        unsafe { bindings::ib_free_cq(self.ptr.as_ptr()) };
    }
}
